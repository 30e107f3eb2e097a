//! How a manager follows the generation that fills: when it looks again, and what it has seen.

use crate::error::Result;
use crate::fs::poll::jittered;
use crate::ring::Ring;
use crate::swap::promote::Promoted;
use std::time::{Duration, Instant};

/// Where the system reports changes, a generation without any is listed again after this time.
const QUIET_LOOK: Duration = Duration::from_secs(5);
/// Where the system does not tell of names, a manager waits for an eighth of the time since it last saw something new, so
/// that it notices what is new late by an eighth of that time at most.
const PATIENCE: u32 = 8;
const MILLISECOND: Duration = Duration::from_millis(1);
/// The looks at the filling generation.
pub(crate) struct FillMonitor {
    /// When it was listed last; `None` if another manager held the lease meanwhile.
    looked: Option<Instant>,
    /// When there was something new at a look.
    moved: Instant,
    /// Whether it may have changed since.
    changed: bool,
    /// What the full generation waited for at that look; `None` if it was not blocked.
    blocked: Option<String>,
    /// Samples in it at that look, and how fast they came since the one before.
    samples: u64,
    seconds_per_sample: f64,
}

impl FillMonitor {
    pub(crate) fn new() -> FillMonitor {
        FillMonitor {
            looked: None,
            moved: Instant::now(),
            changed: true,
            blocked: None,
            samples: 0,
            seconds_per_sample: f64::INFINITY,
        }
    }

    /// Returns whether the generation is to be listed in this round. Without an answer from a watch, it may have changed.
    pub(crate) fn is_look_due(&mut self, ring: &Ring) -> Result<bool> {
        let changed = std::mem::replace(&mut self.changed, true); // until a watch says that nothing did
        let overdue = self.looked.is_none_or(|at| at.elapsed() > QUIET_LOOK);
        // A full generation that waits for its readers is promoted without a new name in it.
        Ok(overdue || changed || self.is_released(ring)?)
    }

    /// Notes what a watch says: whether a name came or went.
    pub(crate) fn set_changed(&mut self, changed: bool) {
        self.changed = changed;
    }

    /// Notes that something new was seen.
    pub(crate) fn note_change(&mut self) {
        self.moved = Instant::now();
    }

    /// Makes a look due, since changes are missed.
    pub(crate) fn forget_look(&mut self) {
        self.looked = None;
    }

    /// Returns whether the last look found the generation full, and blocked by readers.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// How long is rested after a look that took so long. (What was waited for a server that fell silent is no cost of looking.)
    pub(crate) fn rest_after(&self, took: Duration, ring: &Ring) -> Duration {
        let missing = ring.descriptor.swap_cap.saturating_sub(self.samples);
        let until_full = if missing > 0 { self.seconds_per_sample * missing as f64 } else { f64::INFINITY };
        rest(took, until_full).min(ring.settings.lease / 4)
    }

    /// Returns the time until the next look. `at_each_poll`: the system reports new files, or another manager holds the lease.
    /// Otherwise the manager waits longer the longer no file arrives: at most half a lease, and no later than a silent member
    /// counts as dead.
    pub(crate) fn pause(&self, at_each_poll: bool, ring: &Ring) -> Duration {
        let poll = jittered(ring.settings.poll);
        if at_each_poll || self.blocked.is_some() {
            return poll;
        }
        // With the jitter, half a lease: of the time between two looks at the members no more counts.
        let longest = jittered((self.moved.elapsed() / PATIENCE).min(ring.settings.lease * 2 / 5));
        let until_death = ring.failure_detector().until_death().map_or(longest, |until| until + MILLISECOND);
        longest.min(until_death).max(poll)
    }

    /// Records the result of a look at the filling generation.
    pub(crate) fn note_look(&mut self, promoted: &Promoted) {
        let (now, samples) = (Instant::now(), self.filled_by(promoted));
        let (before, had) = (self.looked.replace(now), std::mem::replace(&mut self.samples, samples));
        // Another process promotes: new files came, although this look counted none.
        if samples != had || matches!(promoted, Promoted::Raced) {
            self.moved = now;
        }
        self.seconds_per_sample =
            before.map_or(f64::INFINITY, |before| pace(now - before, samples.saturating_sub(had)));
        self.blocked = match promoted {
            Promoted::Blocked { why, .. } => Some(why.clone()),
            Promoted::Done(_) | Promoted::Filling { .. } | Promoted::Raced => None,
        };
    }

    /// Returns whether the last look found the next generation blocked by readers, who do not block it any more.
    fn is_released(&mut self, ring: &Ring) -> Result<bool> {
        if self.blocked.is_none() {
            return Ok(false);
        }
        let blocked = ring.held_back()?;
        let is_released = blocked.is_none();
        if !is_released {
            self.blocked = blocked;
        }
        Ok(is_released)
    }

    /// Returns the number of samples in the filling generation; the number known before if the look does not show it.
    fn filled_by(&self, promoted: &Promoted) -> u64 {
        match promoted {
            Promoted::Done(_) => 0,
            Promoted::Filling { samples } | Promoted::Blocked { samples, .. } => *samples,
            Promoted::Raced => self.samples,
        }
    }
}

/// Returns the seconds per sample since the look before, in which `gained` samples came. If none came, it counts one, so that
/// the rest after a look that finds nothing is at least as long as the look.
fn pace(elapsed: Duration, gained: u64) -> f64 {
    elapsed.as_secs_f64() / gained.max(1) as f64
}

/// Returns the pause after a look that took `took`, in a generation that is full in `until_full` seconds at the current pace.
/// A look costs more the fuller the generation is, so the pause is a few times as long; but at most half the time that is
/// left, because generators wait once the generation is full, and the last look should find few new samples.
fn rest(took: Duration, until_full: f64) -> Duration {
    let longest = took * 4;
    Duration::try_from_secs_f64(until_full / 2.0).map_or(longest, |half| longest.min(half))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_closer_together_before_a_generation_is_full() {
        let took = Duration::from_millis(3);
        for nobody_knows in [f64::INFINITY, f64::NAN, 1e300, 3600.0] {
            assert_eq!(rest(took, nobody_knows), took * 4);
        }
        // A hundred samples, one each millisecond: how many are missing at the last looks, each of which takes 3 ms.
        let (mut now, mut missing) = (0.0f64, Vec::new());
        while now < 100.0 {
            missing.push((100.0 - now).ceil());
            now += 3.0 + rest(took, (100.0 - now) / 1e3).as_secs_f64() * 1e3;
        }
        assert!(*missing.last().unwrap() <= 4.0 && now < 104.0 && missing.len() < 16, "{now} {missing:?}");
    }

    /// While a generation is nearly full, looks that find nothing new stay frequent, and take at most half the time.
    #[test]
    fn looks_stay_frequent_near_full_within_half_the_time() {
        let took = Duration::from_millis(10);
        // One sample is missing; the look before the last one was 20 ms ago.
        assert_eq!(rest(took, pace(Duration::from_millis(20), 0)), took);
        let mut rested = took * 4;
        for _ in 0..100 {
            rested = rest(took, pace(took + rested, 0));
            assert!(rested >= took, "{rested:?}");
        }
        // Many samples are missing: the pause is the longest one.
        assert_eq!(rest(took, pace(took * 5, 0) * 100.0), took * 4);
    }
}
