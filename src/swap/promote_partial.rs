//! Sealing: the generation that fills becomes readable as it is. The same promotion as that of a full one; whoever
//! generates goes on in the next.

use super::promote::{PromoteWhen, Promoted, Promotion};
use crate::error::{Error, Result};
use crate::ring::Ring;

/// How often something that passes is tried again.
const ATTEMPTS: u32 = 20;

/// What sealing did.
#[derive(Clone, Debug, Default)]
pub struct PartialPromotion {
    /// Generations that it made readable: one, or two where a promotion was left half done.
    pub promotions: Vec<Promotion>,
    /// Somebody else made the generation readable meanwhile.
    pub by_another: bool,
    /// Why the generation is not made readable yet (REUSE min).
    pub held: Option<String>,
}

impl Ring {
    /// Makes the generation that fills readable, if there is a sample in it. As with every promotion, old generations
    /// are reclaimed then.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn promote_partial(&self) -> Result<PartialPromotion> {
        let mut done = PartialPromotion::default();
        let next = self.manifests.newest_listed()? + 1;
        // Where a promotion is half done, it is the one after that fills.
        let filling = next + u64::from(self.is_renamed(next)?);
        let mut last = None;
        // No rounds of maintenance, because a single reclaim after the last promotion serves both.
        for _ in 0..ATTEMPTS {
            match self.promote(PromoteWhen::NotEmpty) {
                Ok(Promoted::Done(promotion)) => done.promotions.push(promotion),
                Ok(not_done) if self.manifests.newest_listed()? < filling => {
                    if let Promoted::Blocked { why, .. } = not_done {
                        done.held = Some(why);
                        break;
                    }
                    if self.is_empty(filling)? {
                        break;
                    }
                    std::thread::sleep(self.settings.poll); // somebody is at it
                }
                Ok(_) => {}
                Err(error) if error.is_retryable() => {
                    tracing::warn!("{error}; trying again");
                    last = Some(error);
                    std::thread::sleep(self.settings.poll);
                    continue;
                }
                Err(error) => return Err(error),
            }
            last = None;
            if self.manifests.newest()? >= filling {
                break;
            }
        }
        if let Some(error) = last.filter(|_| done.promotions.is_empty()) {
            return Err(error);
        }
        done.by_another = self.manifests.newest()? >= filling
            && done.promotions.iter().all(|p| p.manifest.summary.generation < filling);
        if !done.promotions.is_empty()
            && let Err(error) = self.reclaim()
        {
            tracing::warn!("old generations are left to the next one: {error}");
        }
        let _ = self.fs.remove_dir(&self.layout.staging_of(&self.me)); // stays where something is in it
        Ok(done)
    }

    fn is_empty(&self, n: u64) -> Result<bool> {
        match self.count_samples(n) {
            Ok(fill) => Ok(fill == 0),
            Err(Error::Fs { source }) if source.is_gone() => Ok(!self.is_renamed(n)?),
            Err(error) => Err(error),
        }
    }
}
