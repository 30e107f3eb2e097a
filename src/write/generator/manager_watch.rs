//! Whether a manager lives, and whether a generator does a manager's work meanwhile.

use super::Core;
use crate::error::Result;
use crate::ring::Ring;
use crate::ring::failure_detector::LOOKS_PER_LEASE;
use crate::role::Role;
use crate::swap::maintenance::{DeadOwners, Due, Round};
use crate::swap::promote::{PromoteWhen, Promoted};
use std::time::{Duration, Instant};

/// Watches the holder of the manager's lease, and remembers when this generator last did its work.
pub(crate) struct ManagerWatch {
    /// The holder of the lease, as far as was seen.
    holder: Option<String>,
    /// When the lease is read again.
    next_look: Instant,
    /// When this generator last did a manager's work unasked.
    last_round: Instant,
}

impl ManagerWatch {
    pub fn new() -> ManagerWatch {
        let now = Instant::now();
        ManagerWatch { holder: None, next_look: now, last_round: now }
    }

    /// Returns whether the holder of the lease lives.
    pub fn is_alive(&mut self, ring: &Ring) -> bool {
        if self.next_look <= Instant::now() {
            // Where the index is away, the manager may go on as well as we do: what was known last holds.
            if let Ok(lease) = ring.coordination.lease(Role::Manager.as_str()) {
                self.holder = lease.filter(|lease| !lease.released).map(|lease| lease.holder);
                self.next_look = Instant::now() + ring.settings.lease / LOOKS_PER_LEASE;
            }
        }
        self.holder.as_ref().is_some_and(|holder| !ring.failure_detector().is_dead(holder))
    }

    /// Returns whether a lease has passed since this generator last did a manager's work unasked.
    pub fn is_round_due(&self, lease: Duration) -> bool {
        self.last_round.elapsed() > lease
    }

    /// Notes that this generator does a manager's work unasked, now.
    pub fn note_round(&mut self) {
        self.last_round = Instant::now();
    }
}

/// Returns whether a generator that has waited for `waited` does the work of a manager that lives: once in each lease. (A
/// thousand generators may wait, for a reader perhaps: not all of them at each look.)
fn is_overdue(waited: Duration, lease: Duration, poll: Duration) -> bool {
    let look = poll * 3 / 2;
    waited == Duration::MAX || waited > lease && waited.as_nanos() % lease.as_nanos().max(1) <= look.as_nanos()
}

impl Core {
    /// Where no manager lives, or ours seems to do nothing for a whole lease, does its work once. True: it helped.
    pub(crate) fn run_maintenance(&mut self, waited: Duration) -> Result<bool> {
        self.ring
            .failure_detector()
            .look(&*self.ring.coordination)
            .unwrap_or_else(|error| tracing::debug!(%error, "members cannot be seen"));
        if self.manager.is_alive(&self.ring) && !is_overdue(waited, self.ring.settings.lease, self.ring.settings.poll) {
            return Ok(false);
        }
        // On a full disk, a promotion may need the room that reclaiming frees, so both are done or neither.
        let always = &mut Due { reclaim: true, dead: DeadOwners::Adopt };
        match self.ring.run_maintenance(Some(PromoteWhen::Full), always) {
            Ok(Round { promoted: Some(Promoted::Done(promotion)), .. }) => {
                self.swaps += u64::from(promotion.ours);
                tracing::debug!(
                    generation = promotion.manifest.summary.generation,
                    "promoted by a generator: no manager lives"
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
    fn waiting_generator_helps_a_living_manager_once_in_a_lease() {
        let helps = |seconds| is_overdue(Duration::from_secs(seconds), Duration::from_secs(60), Duration::from_secs(2));
        let times: Vec<u64> = (0..200).filter(|seconds| helps(*seconds)).collect();
        assert_eq!(times, [61, 62, 63, 120, 121, 122, 123, 180, 181, 182, 183], "lease 60 s, poll 2 s");
        assert!(is_overdue(Duration::MAX, Duration::MAX, Duration::ZERO));
    }
}
