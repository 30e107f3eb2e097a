//! When a manager reclaims, and when it recovers the files of dead owners.

use crate::coordination::if_available;
use crate::error::Result;
use crate::ring::Ring;
use crate::swap::maintenance::{DeadOwners, Due};
use std::time::{Duration, Instant};

/// Leases between two rounds of reclaiming when the last one left nothing to do.
const LEASES_BETWEEN_RECLAIMS: u32 = 6;
/// The next times of what is not done in each round.
pub(crate) struct Schedule {
    next_recovery: Instant,
    next_reclaim: Instant,
    /// How many counted as dead after the last recovery.
    dead: usize,
}

impl Schedule {
    /// Everything is due.
    pub(crate) fn new() -> Schedule {
        let now = Instant::now();
        Schedule { next_recovery: now, next_reclaim: now, dead: 0 }
    }

    /// Returns what is due now: everything if `at_once`.
    pub(crate) fn due(&self, at_once: bool) -> Due {
        if !at_once && Instant::now() < self.next_recovery {
            return Due::nothing();
        }
        Due { reclaim: at_once || Instant::now() >= self.next_reclaim, dead: DeadOwners::Adopt }
    }

    /// Whether there are more dead than after the last recovery: then what they left is not to wait for the next one.
    pub(crate) fn somebody_died(&self, ring: &Ring) -> Result<bool> {
        let mut watch = ring.failure_detector();
        if_available(watch.look(&*ring.coordination))?;
        Ok(watch.dead() > self.dead)
    }

    /// Notes how many members count as dead after a recovery.
    pub(crate) fn note_dead(&mut self, dead: usize) {
        self.dead = dead;
    }

    /// Notes the end of a recovery: the next one is due after a lease.
    pub(crate) fn note_recovery(&mut self, lease: Duration) {
        self.next_recovery = Instant::now() + lease;
    }

    /// Notes the end of a reclaim. `more`: it left something to do.
    pub(crate) fn note_reclaim(&mut self, more: bool, lease: Duration) {
        let leases = if more { 1 } else { LEASES_BETWEEN_RECLAIMS };
        self.next_reclaim = Instant::now() + lease * leases;
    }

    /// Makes a reclaim due with the next recovery.
    pub(crate) fn reclaim_now(&mut self) {
        self.next_reclaim = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaim_is_due_with_a_recovery_or_less_often() {
        let lease = Duration::from_secs(3600);
        let mut schedule = Schedule::new();
        let all = Due { reclaim: true, dead: DeadOwners::Adopt };
        assert_eq!(schedule.due(false), all);
        schedule.note_reclaim(false, lease);
        assert_eq!(schedule.due(false), Due { reclaim: false, dead: DeadOwners::Adopt });
        schedule.note_recovery(lease);
        assert_eq!((schedule.due(false), schedule.due(true)), (Due::nothing(), all));
        schedule.reclaim_now();
        assert_eq!(schedule.due(false), Due::nothing(), "with the recovery, not before");
    }
}
