//! Decides when a manager reclaims, and when it recovers the files of dead owners.

use crate::coordination::if_available;
use crate::error::Result;
use crate::ring::Ring;
use std::time::{Duration, Instant};

/// Number of leases between two reclaims if the last one found nothing to remove.
const LEASES_BETWEEN_RECLAIMS: u32 = 6;
/// When the steps that do not run in each round are due next.
pub(crate) struct Schedule {
    pub(super) next_recovery: Instant,
    pub(super) next_reclaim: Instant,
    /// Number of members that counted as dead after the last recovery.
    pub(super) dead: usize,
}

impl Schedule {
    /// Creates a schedule in which every step is due.
    pub(crate) fn new() -> Schedule {
        let now = Instant::now();
        Schedule { next_recovery: now, next_reclaim: now, dead: 0 }
    }

    /// Returns whether a recovery is due, which it always is `at_once`.
    pub(crate) fn is_recovery_due(&self, at_once: bool) -> bool {
        at_once || Instant::now() >= self.next_recovery
    }

    /// Returns whether a reclaim is due with the recovery, which it always is `at_once`.
    pub(crate) fn is_reclaim_due(&self, at_once: bool) -> bool {
        at_once || Instant::now() >= self.next_reclaim
    }

    /// Returns whether more members are dead than after the last recovery, so that recovery is due
    /// at once.
    pub(crate) fn somebody_died(&self, ring: &Ring) -> Result<bool> {
        let mut watch = ring.failure_detector();
        if_available(watch.look(&*ring.coordination))?;
        Ok(watch.dead() > self.dead)
    }

    /// Records the end of a reclaim. `more`: another one may remove more.
    pub(crate) fn note_reclaim(&mut self, more: bool, lease: Duration) {
        let leases = if more { 1 } else { LEASES_BETWEEN_RECLAIMS };
        self.next_reclaim = Instant::now() + lease * leases;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaim_is_due_with_a_recovery_or_less_often() {
        let lease = Duration::from_secs(3600);
        let mut schedule = Schedule::new();
        let due = |schedule: &Schedule, at_once| (schedule.is_recovery_due(at_once), schedule.is_reclaim_due(at_once));
        assert_eq!(due(&schedule, false), (true, true));
        schedule.note_reclaim(false, lease);
        assert_eq!(due(&schedule, false), (true, false));
        schedule.next_recovery = Instant::now() + lease;
        assert_eq!((due(&schedule, false), due(&schedule, true)), ((false, false), (true, true)));
        schedule.next_reclaim = Instant::now();
        assert_eq!(due(&schedule, false), (false, true), "it waits for the recovery");
    }
}
