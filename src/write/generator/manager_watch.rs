//! Watches whether a manager is alive, and does its work if none is.

use super::Core;
use crate::error::Result;
use crate::ring::Ring;
use crate::ring::failure_detector::LOOKS_PER_LEASE;
use crate::role::Role;
use crate::swap::promote::{PromoteWhen, Promoted};
use std::time::{Duration, Instant};

/// Watches the holder of the manager's lease, and remembers when this generator last did the manager's work.
pub(crate) struct ManagerWatch {
    /// The holder of the lease when it was last read.
    holder: Option<String>,
    /// When the lease is read next.
    next_look: Instant,
    /// When this generator last did the manager's work in its thread.
    pub(super) last_round: Instant,
}

impl ManagerWatch {
    pub fn new() -> ManagerWatch {
        let now = Instant::now();
        ManagerWatch { holder: None, next_look: now, last_round: now }
    }

    /// Returns whether the holder of the lease is alive.
    pub fn is_alive(&mut self, ring: &Ring) -> bool {
        if self.next_look <= Instant::now() {
            // If the index is unreachable, the last known holder counts: the manager may still work, as this process
            // does.
            if let Ok(lease) = ring.coordination.lease(Role::Manager.as_str()) {
                self.holder = lease.filter(|lease| !lease.released).map(|lease| lease.holder);
                self.next_look = Instant::now() + ring.settings.lease / LOOKS_PER_LEASE;
            }
        }
        self.holder.as_ref().is_some_and(|holder| !ring.failure_detector().is_dead(holder))
    }
}

/// Returns whether a generator that has waited for `waited` does the work of a manager that is alive: once per lease.
/// (A thousand generators may wait, for example for a reader, and must not all do so at each poll.)
fn is_overdue(waited: Duration, lease: Duration, poll: Duration) -> bool {
    let look = poll * 3 / 2;
    waited == Duration::MAX || waited > lease && waited.as_nanos() % lease.as_nanos().max(1) <= look.as_nanos()
}

impl Core {
    /// Does the manager's work once if no manager is alive, or if the manager seems idle for a whole lease. Returns
    /// whether a generation was promoted.
    pub(crate) fn run_maintenance(&mut self, waited: Duration) -> Result<bool> {
        self.ring
            .failure_detector()
            .look(&*self.ring.coordination)
            .unwrap_or_else(|error| tracing::debug!(%error, "cannot read the members"));
        if self.manager.is_alive(&self.ring) && !is_overdue(waited, self.ring.settings.lease, self.ring.settings.poll) {
            return Ok(false);
        }
        let promoted = self.ring.promote(PromoteWhen::Full);
        // Also after a failed promotion, because on a full disk that may need the room that reclaiming frees.
        let reclaimed = self.ring.reclaim();
        let done = promoted.and_then(|promoted| {
            reclaimed?;
            self.ring.recover(&mut self.ring.failure_detector())?;
            Ok(promoted)
        });
        match done {
            Ok(Promoted::Done(promotion)) => {
                self.totals.swaps += u64::from(promotion.ours);
                tracing::debug!(
                    generation = promotion.manifest.summary.generation,
                    "promoted by a generator, because no manager is alive"
                );
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) if error.is_retryable() => {
                self.problem(error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_generator_helps_a_live_manager_once_per_lease() {
        let helps = |seconds| is_overdue(Duration::from_secs(seconds), Duration::from_secs(60), Duration::from_secs(2));
        let times: Vec<u64> = (0..200).filter(|seconds| helps(*seconds)).collect();
        assert_eq!(times, [61, 62, 63, 120, 121, 122, 123, 180, 181, 182, 183], "lease 60 s, poll 2 s");
        assert!(is_overdue(Duration::MAX, Duration::MAX, Duration::ZERO));
    }
}
