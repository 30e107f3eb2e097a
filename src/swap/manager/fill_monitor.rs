//! Decides when a manager scans the filling generation, and keeps the results of the scans.

use crate::error::Result;
use crate::fs::poll::jittered;
use crate::ring::Ring;
use crate::swap::promote::Promoted;
use std::time::{Duration, Instant};

/// Where the system reports changes, a generation without changes is still listed at this interval.
const QUIET_LOOK: Duration = Duration::from_secs(5);
/// Where the system reports no changes, a manager pauses for an eighth of the time since it last
/// saw a change, so that it notices a new file late by at most an eighth of that time.
const PATIENCE: u32 = 8;
const MILLISECOND: Duration = Duration::from_millis(1);
/// The scans of the filling generation.
pub(crate) struct FillMonitor {
    /// When it was listed last; `None` if another manager has held the lease since, because this
    /// one may have missed changes.
    pub(super) looked: Option<Instant>,
    /// When a scan last found a change, or a round ended with a swap or an error.
    pub(super) moved: Instant,
    /// Whether it may have changed since.
    pub(super) changed: bool,
    /// Whether the last scan found it full and blocked by readers.
    pub(super) is_blocked: bool,
    /// Number of samples in it at the last scan, and the time per sample since the scan before.
    samples: u64,
    seconds_per_sample: f64,
}

impl FillMonitor {
    pub(crate) fn new() -> FillMonitor {
        FillMonitor {
            looked: None,
            moved: Instant::now(),
            changed: true,
            is_blocked: false,
            samples: 0,
            seconds_per_sample: f64::INFINITY,
        }
    }

    /// Returns whether the generation is to be listed in this round. Without a watch, it may always
    /// have changed.
    pub(crate) fn is_look_due(&mut self, ring: &Ring) -> Result<bool> {
        let changed = std::mem::replace(&mut self.changed, true); // until a watch reports no change
        let overdue = self.looked.is_none_or(|at| at.elapsed() > QUIET_LOOK);
        // A full generation that waits for its readers is promoted without any new file in it.
        Ok(overdue || changed || (self.is_blocked && ring.held_back()?.is_none()))
    }

    /// Returns the rest after a round that took `took`. At most a quarter of a lease, because time
    /// spent waiting for an unresponsive server is not the cost of the scan.
    pub(crate) fn rest_after(&self, took: Duration, ring: &Ring) -> Duration {
        let missing = ring.descriptor.swap_cap.saturating_sub(self.samples);
        let until_full = if missing > 0 { self.seconds_per_sample * missing as f64 } else { f64::INFINITY };
        rest(took, until_full).min(ring.settings.lease / 4)
    }

    /// Returns the time until the next scan. `at_each_poll`: the system reports new files, or
    /// another manager holds the lease. Otherwise the pause grows with the time since the last new
    /// file: up to half a lease, and no later than a silent member counts as dead.
    pub(crate) fn pause(&self, at_each_poll: bool, ring: &Ring) -> Duration {
        let poll = jittered(ring.settings.poll);
        if at_each_poll || self.is_blocked {
            return poll;
        }
        // With the jitter, this is at most half a lease; the failure detector counts no more than
        // that between two polls.
        let longest = jittered((self.moved.elapsed() / PATIENCE).min(ring.settings.lease * 2 / 5));
        let until_death = ring.failure_detector().until_death().map_or(longest, |until| until + MILLISECOND);
        longest.min(until_death).max(poll)
    }

    /// Records the result of a scan of the filling generation.
    pub(crate) fn note_look(&mut self, promoted: &Promoted) {
        let now = Instant::now();
        let samples = match promoted {
            Promoted::Done(_) => 0,
            Promoted::Filling { samples } | Promoted::Blocked { samples, .. } => *samples,
            Promoted::Raced => self.samples, // the scan did not count them
        };
        let (before, had) = (self.looked.replace(now), std::mem::replace(&mut self.samples, samples));
        // Another process promotes the generation, so new files arrived although this scan did not
        // count them.
        if samples != had || matches!(promoted, Promoted::Raced) {
            self.moved = now;
        }
        self.seconds_per_sample =
            before.map_or(f64::INFINITY, |before| pace(now - before, samples.saturating_sub(had)));
        self.is_blocked = matches!(promoted, Promoted::Blocked { .. });
    }
}

/// Returns the seconds per sample since the scan before, in which `gained` samples arrived. If none
/// arrived, counts one, so that the rest after such a scan is at least as long as the scan.
fn pace(elapsed: Duration, gained: u64) -> f64 {
    elapsed.as_secs_f64() / gained.max(1) as f64
}

/// Returns the rest after a scan that took `took`, for a generation that is full in `until_full`
/// seconds at the current pace. A scan costs more the fuller the generation is, so the rest is four
/// times as long as the scan. But it is at most half the remaining time, because generators wait
/// once the generation is full, and the last scan should find few new samples.
fn rest(took: Duration, until_full: f64) -> Duration {
    let longest = took * 4;
    Duration::try_from_secs_f64(until_full / 2.0).map_or(longest, |half| longest.min(half))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn scans_become_more_frequent_as_a_generation_fills() {
        let took = Duration::from_millis(3);
        for far_off in [f64::INFINITY, f64::NAN, 1e300, 3600.0] {
            assert_eq!(rest(took, far_off), took * 4);
        }
        // A hundred samples, one each millisecond: how many are missing at the last scans, each of
        // which takes 3 ms.
        let (mut now, mut missing) = (0.0f64, Vec::new());
        while now < 100.0 {
            missing.push((100.0 - now).ceil());
            now += 3.0 + rest(took, (100.0 - now) / 1e3).as_secs_f64() * 1e3;
        }
        assert!(*missing.last().unwrap() <= 4.0 && now < 104.0 && missing.len() < 16, "{now} {missing:?}");
    }

    /// While a generation is nearly full, scans that find no new sample stay frequent, and take at
    /// most half the time.
    #[test]
    fn scans_near_full_take_at_most_half_the_time() {
        let took = Duration::from_millis(10);
        // One sample is missing; the scan before the last one was 20 ms ago.
        assert_eq!(rest(took, pace(Duration::from_millis(20), 0)), took);
        let mut rested = took * 4;
        for _ in 0..100 {
            rested = rest(took, pace(took + rested, 0));
            assert!(rested >= took, "{rested:?}");
        }
        // Many samples are missing, so the rest is the longest one.
        assert_eq!(rest(took, pace(took * 5, 0) * 100.0), took * 4);
    }
}
