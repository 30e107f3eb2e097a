//! Partial promotion: makes the filling generation readable although it is not full. The steps are
//! those of any promotion; generators continue in the next generation.

use ringreel::error::{Error, Result};
use ringreel::ring::Ring;
use ringreel::swap::promote::{PromoteWhen, Promoted, Promotion};

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

/// Promotes the filling generation if it has at least one sample. As after every promotion, old
/// generations are reclaimed.
///
/// # Errors
/// Filesystem errors.
pub fn promote_partial(ring: &Ring) -> Result<PartialPromotion> {
    let mut done = PartialPromotion::default();
    let next = ring.manifests.newest_listed()? + 1;
    // While a promotion is half done, the generation after that one is filling.
    let filling = next + u64::from(ring.fs.exists(&ring.layout.read(next))?);
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match ring.promote(PromoteWhen::NotEmpty) {
            Ok(Promoted::Done(promotion)) => done.promotions.push(promotion),
            Ok(not_done) if ring.manifests.newest_listed()? < filling => {
                if let Promoted::Blocked { why, .. } = not_done {
                    done.held = Some(why);
                    break;
                }
                if is_empty(ring, filling)? {
                    break;
                }
                std::thread::sleep(ring.settings.poll); // another process is promoting it
            }
            Ok(_) => {}
            Err(error) if error.is_retryable() => {
                tracing::warn!("{error}; trying again");
                last = Some(error);
                std::thread::sleep(ring.settings.poll);
                continue;
            }
            Err(error) => return Err(error),
        }
        last = None;
        if ring.manifests.newest()? >= filling {
            break;
        }
    }
    if let Some(error) = last.filter(|_| done.promotions.is_empty()) {
        return Err(error);
    }
    done.by_another =
        ring.manifests.newest()? >= filling && done.promotions.iter().all(|p| p.manifest.summary.generation < filling);
    // One reclaim after the last promotion serves both.
    if !done.promotions.is_empty()
        && let Err(error) = ring.reclaim()
    {
        tracing::warn!("cannot reclaim old generations; the next promotion tries again: {error}");
    }
    let _ = ring.fs.remove_dir(&ring.layout.staging_of(&ring.me)); // stays if it is not empty
    Ok(done)
}

fn is_empty(ring: &Ring, n: u64) -> Result<bool> {
    match ring.count_samples(n) {
        Ok(fill) => Ok(fill == 0),
        Err(Error::Fs { source }) if source.is_gone() => Ok(!ring.fs.exists(&ring.layout.read(n))?),
        Err(error) => Err(error),
    }
}
