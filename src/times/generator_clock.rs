//! The clock of a generator.

use super::{GeneratorTimes, WRITING};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    Made,
    Wrote,
    Room,
    Readers,
}

/// Measures the times of a generator. Any thread may read it; one at a time changes it, since a generator serves one
/// call at a time.
///
/// A write of a small sample takes a few hundred nanoseconds, so a change of the activity takes no lock and reads a
/// clock that costs a fifth of the usual one ([`coarse_now`]).
#[derive(Debug, Default)]
pub(crate) struct GeneratorClock([Counter; 4]);

impl GeneratorClock {
    /// Begins in the caller.
    pub fn start() -> GeneratorClock {
        let clock = GeneratorClock::default();
        clock.enter(Writing::Made);
        clock
    }

    pub fn enter(&self, activity: Writing) {
        self.enter_at(activity, coarse_now());
    }

    fn enter_at(&self, activity: Writing, now: u64) {
        self.0.iter().for_each(|counter| counter.stop(now));
        self.0[activity as usize].start(now);
    }

    /// Begins an activity in the same call if the generator waits.
    pub fn end_wait(&self) {
        if [Writing::Room, Writing::Readers].iter().any(|wait| self.0[*wait as usize].is_running()) {
            self.enter(Writing::Wrote);
        }
    }

    pub fn times(&self) -> GeneratorTimes {
        let now = coarse_now();
        let [made_seconds, wrote_seconds, waited_room_seconds, waited_readers_seconds] =
            self.0.each_ref().map(|counter| counter.nanoseconds(now) as f64 / 1e9);
        let current = self.0.iter().position(Counter::is_running);
        let now = current.map_or("", |activity| WRITING[activity]).to_owned();
        GeneratorTimes { made_seconds, wrote_seconds, waited_room_seconds, waited_readers_seconds, now }
    }
}

/// The time of one activity as a single number, so that another thread always reads a valid time: the nanoseconds so
/// far or, with the highest bit set, while the activity goes on, the moment at which it would have had to begin to have
/// taken as long without a break.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

/// Marks an activity that goes on.
const RUNNING: u64 = 1 << 63;

impl Counter {
    fn is_running(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RUNNING != 0
    }

    fn start(&self, now: u64) {
        // Modulo 2^63: the moment may be before the clock's origin.
        self.0.store(now.wrapping_sub(self.0.load(Ordering::Relaxed)) | RUNNING, Ordering::Relaxed);
    }

    fn stop(&self, now: u64) {
        if self.is_running() {
            self.0.store(self.nanoseconds(now), Ordering::Relaxed);
        }
    }

    fn nanoseconds(&self, now: u64) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            time if time & RUNNING == 0 => time,
            // Signed, with 63 bits: another thread may have started the activity after `now` was read.
            since => (((now.wrapping_sub(since) << 1) as i64) >> 1).max(0) as u64,
        }
    }
}

/// Returns the nanoseconds of the monotonic clock as of the kernel's last tick, 1 to 10 ms ago.
///
/// The times of many short activities are right in sum, because each moment belongs to one activity, and the ticks do
/// not depend on when activities begin.
fn coarse_now() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = ClockId::MonotonicCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_assign_each_moment_to_one_activity() {
        let clock = GeneratorClock::default();
        let seconds = |now: u64| clock.0.each_ref().map(|counter| counter.nanoseconds(now));
        // Times of an activity that are longer than the clock's reading: the machine has just started.
        clock.0[0].0.store(100, Ordering::Relaxed);
        for (now, to) in [(1, Writing::Made), (3, Writing::Wrote), (6, Writing::Readers), (10, Writing::Made)] {
            clock.enter_at(to, now);
        }
        assert_eq!(seconds(15), [107, 3, 0, 4]);
        assert_eq!(clock.times().now, "made");
        clock.enter_at(Writing::Room, 15);
        assert_eq!((seconds(15), seconds(16)), ([107, 3, 0, 4], [107, 3, 1, 4]));
        assert_eq!(seconds(14), [107, 3, 0, 4], "read before the activity began");
        clock.end_wait();
        assert_eq!(clock.times().now, "wrote");
        clock.end_wait();
        assert_eq!(clock.times().now, "wrote");
    }
}
