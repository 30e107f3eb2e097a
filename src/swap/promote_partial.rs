//! Partial promotion: makes the filling generation readable although it is not full. The steps are
//! those of any promotion; generators continue in the next generation.

use super::promote::{PromoteWhen, Promoted, Promotion};
use crate::error::{Error, Result};
use crate::ring::Ring;

/// Number of attempts after transient errors, and while another process promotes.
const ATTEMPTS: u32 = 20;

/// The result of a partial promotion.
#[derive(Clone, Debug, Default)]
pub struct PartialPromotion {
    /// The promotions of this call: one, or two if another promotion was left half done.
    pub promotions: Vec<Promotion>,
    /// Whether another process made the generation readable meanwhile.
    pub by_another: bool,
    /// Why the generation is not readable yet (REUSE min).
    pub held: Option<String>,
}

impl Ring {
    /// Promotes the filling generation if it has at least one sample. As after every promotion, old
    /// generations are reclaimed.
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn promote_partial(&self) -> Result<PartialPromotion> {
        let mut done = PartialPromotion::default();
        let next = self.manifests.newest_listed()? + 1;
        // While a promotion is half done, the generation after that one is filling.
        let filling = next + u64::from(self.is_renamed(next)?);
        let mut last = None;
        // Does not use rounds of maintenance, because one reclaim after the last promotion serves
        // both.
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
                    std::thread::sleep(self.settings.poll); // another process is promoting it
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
            tracing::warn!("cannot reclaim old generations; the next promotion tries again: {error}");
        }
        let _ = self.fs.remove_dir(&self.layout.staging_of(&self.me)); // stays if it is not empty
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
