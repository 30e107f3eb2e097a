//! How a process spends its time: the time of a stream or a generator, divided between its activities, by the
//! monotonic clock.

mod generator_clock;

use crate::coordination::Report;
pub(crate) use generator_clock::{GeneratorClock, Writing};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a stream spent its time, and what it read. Times are in seconds since the first call of `next`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamStats {
    /// In `next`, while the ring had no sample for this stream: until a generation was published, a server answered
    /// again, or the ring was created.
    pub waited_seconds: f64,
    /// In `next`, for the rest: opening, checking, decompressing and copying samples, or waiting for the prefetch
    /// threads that do this.
    pub read_seconds: f64,
    /// In the caller: between the return of `next` and the following call.
    pub step_seconds: f64,
    /// Samples that were read at least once, of all generations that were read.
    pub distinct: u64,
    /// Samples for training in these generations.
    pub offered: u64,
    /// `distinct` divided by `offered`.
    pub share_read: Option<f64>,
    /// Mean number of times that each distinct sample was read.
    pub reads_per_sample: Option<f64>,
    /// Mean age of a sample when it was read: this machine's clock minus the clock of the sample's generator.
    pub age_seconds: Option<f64>,
    /// The current activity, `waited`, `read` or `step`; empty before the first call and after the end.
    pub now: String,
}

/// How a generator spent its time, in seconds since it was opened. The clock advances every 1 to 10 ms: a short call
/// may count as 0 or as a whole tick, and the sums over many calls are right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratorTimes {
    /// In the caller: between two calls.
    pub made_seconds: f64,
    /// In a call, without the waits.
    pub wrote_seconds: f64,
    /// In a call, waiting for room on the disk or in the ring, for a promotion, or before another attempt after an
    /// error.
    pub waited_room_seconds: f64,
    /// In a call, waiting until readers have read the newest generation (REUSE min).
    pub waited_readers_seconds: f64,
    /// The current activity, `made`, `wrote`, `waited_room` or `waited_readers`.
    pub now: String,
}

/// The activities of a stream in [`StreamStats::now`], in the order of [`Reading`].
const READING: [&str; 3] = ["waited", "read", "step"];
/// The activities of a generator in [`GeneratorTimes::now`], in the order of [`Writing`].
const WRITING: [&str; 4] = ["made", "wrote", "waited_room", "waited_readers"];

impl StreamStats {
    /// Returns the share of the time in which the ring had no sample for the stream, from 0 to 1. `None` before the
    /// first call.
    pub fn starved(&self) -> Option<f64> {
        self.shares().map(|[waited, ..]| waited)
    }

    /// Returns the shares of the time, from 0 to 1: waited, read, step. `None` without valid times.
    pub fn shares(&self) -> Option<[f64; 3]> {
        shares([self.waited_seconds, self.read_seconds, self.step_seconds])
    }
}

impl GeneratorTimes {
    /// Returns the shares of the time, from 0 to 1: made, wrote, waited for room, waited for readers. `None` without
    /// valid times.
    pub fn shares(&self) -> Option<[f64; 4]> {
        shares([self.made_seconds, self.wrote_seconds, self.waited_room_seconds, self.waited_readers_seconds])
    }
}

/// Published times, of which one grows with the clock.
pub(crate) trait Times: Clone {
    /// Returns the current activity, and its seconds if it is known.
    fn current(&mut self) -> (&str, Option<&mut f64>);

    /// Adds `elapsed` to the current activity.
    fn grow(&mut self, elapsed: Duration) {
        if let (_, Some(seconds)) = self.current() {
            *seconds += elapsed.as_secs_f64();
        }
    }

    /// Returns these times with the seconds of the current activity that `before` has, if the activity is the same.
    fn with_current_of(&self, before: &Self) -> Self {
        let (mut times, mut before) = (self.clone(), before.clone());
        if let ((now, Some(seconds)), (then, Some(known))) = (times.current(), before.current())
            && now == then
        {
            *seconds = *known;
        }
        times
    }
}

impl Times for StreamStats {
    fn current(&mut self) -> (&str, Option<&mut f64>) {
        current(&self.now, READING, [&mut self.waited_seconds, &mut self.read_seconds, &mut self.step_seconds])
    }
}

impl Times for GeneratorTimes {
    fn current(&mut self) -> (&str, Option<&mut f64>) {
        let (room, readers) = (&mut self.waited_room_seconds, &mut self.waited_readers_seconds);
        current(&self.now, WRITING, [&mut self.made_seconds, &mut self.wrote_seconds, room, readers])
    }
}

/// Returns the activity `now`, and its seconds if it is one of `activities`.
fn current<'t, const N: usize>(
    now: &'t str,
    activities: [&str; N],
    seconds: [&'t mut f64; N],
) -> (&'t str, Option<&'t mut f64>) {
    let known = activities.into_iter().zip(seconds).find(|(activity, _)| *activity == now);
    (now, known.map(|(_, seconds)| seconds))
}

/// Returns these times as shares of their sum, from 0 to 1. `None` if the sum is 0 or a time is invalid.
fn shares<const N: usize>(seconds: [f64; N]) -> Option<[f64; N]> {
    let all: f64 = seconds.iter().sum();
    (all > 0.0 && all.is_finite() && seconds.iter().all(|time| *time >= 0.0)).then(|| seconds.map(|time| time / all))
}

/// Returns the times of these streams, added up. Leaves out streams with invalid times.
pub fn total<'a>(streams: impl Iterator<Item = &'a StreamStats>) -> StreamStats {
    let mut total = StreamStats::default();
    for stats in streams.filter(|stats| stats.shares().is_some()) {
        total.waited_seconds += stats.waited_seconds;
        total.read_seconds += stats.read_seconds;
        total.step_seconds += stats.step_seconds;
    }
    total
}

/// Divides time between the activities of a stream, which follow each other without a gap.
#[derive(Debug, Default)]
struct Stopwatch {
    times: [Duration; READING.len()],
    /// The current activity and its start; `None` while no time is counted.
    current: Option<(usize, Instant)>,
}

impl Stopwatch {
    /// Ends the current activity at `now` and begins another.
    fn switch(&mut self, to: Option<usize>, now: Instant) {
        if let Some((activity, since)) = self.current {
            self.times[activity] += now.saturating_duration_since(since);
        }
        self.current = to.map(|activity| (activity, now));
    }

    fn seconds(&self) -> [f64; READING.len()] {
        let mut times = self.times;
        if let Some((activity, since)) = self.current {
            times[activity] += since.elapsed();
        }
        times.map(|time| time.as_secs_f64())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Waited,
    Read,
    Step,
}

/// A sample that was read, for [`StreamClock`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    /// Time of the sample by its generator's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    pub bytes: u64,
    pub generation: u64,
    /// Its number among the samples for training of its generation, and their number. `None` for a substitute.
    pub place: Option<(u64, u64)>,
    /// Epochs that the stream has finished.
    pub epochs: u64,
}

/// Measures the times of a stream, from its first call of `next` on, and counts what it read. Any thread may read it.
#[derive(Debug, Default)]
pub(crate) struct StreamClock(Mutex<StreamState>);

#[derive(Debug, Default)]
struct StreamState {
    watch: Stopwatch,
    coverage: Coverage,
    samples: u64,
    bytes: u64,
    /// Sum of the samples' ages in milliseconds.
    age_ms: u64,
    generation: Option<u64>,
    epochs: u64,
    /// A moment by both clocks. Other moments are computed from it, which saves reading the second clock.
    wall: Option<(Instant, u64)>,
}

/// Longest time for which the wall clock is computed from the monotonic clock.
const WALL_CLOCK_FOR: Duration = Duration::from_secs(10);

impl StreamClock {
    pub fn enter(&self, activity: Reading) {
        let now = Instant::now();
        lock(&self.0).watch.switch(Some(activity as usize), now);
    }

    /// Returns to the caller with a sample, or without one.
    pub fn deliver(&self, sample: Option<Delivered>) {
        let now = Instant::now();
        let mut state = lock(&self.0);
        state.watch.switch(Some(Reading::Step as usize), now);
        if let Some(sample) = sample {
            state.count(sample, now);
        }
    }

    /// Counts no more time: the stream has ended.
    pub fn stop(&self) {
        let now = Instant::now();
        lock(&self.0).watch.switch(None, now);
    }

    /// Adds time that the caller waited before the stream existed.
    pub fn add_wait(&self, waited: Duration) {
        lock(&self.0).watch.times[Reading::Waited as usize] += waited;
    }

    /// Writes what is published of a stream into its process's report.
    pub fn fill(&self, report: &mut Report) {
        report.reading = Some(self.stats());
        let state = lock(&self.0);
        (report.samples, report.bytes) = (state.samples, state.bytes);
        (report.generation, report.epochs) = (state.generation, state.epochs);
    }

    pub fn stats(&self) -> StreamStats {
        let state = lock(&self.0);
        let [waited_seconds, read_seconds, step_seconds] = state.watch.seconds();
        let Coverage { distinct, offered, reads, .. } = state.coverage;
        let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        StreamStats {
            waited_seconds,
            read_seconds,
            step_seconds,
            distinct,
            offered,
            share_read: ratio(distinct, offered),
            reads_per_sample: ratio(reads, distinct),
            age_seconds: ratio(state.age_ms, state.samples).map(|ms| ms / 1e3),
            now: state.watch.current.map_or("", |(activity, _)| READING[activity]).to_owned(),
        }
    }
}

impl StreamState {
    fn count(&mut self, sample: Delivered, now: Instant) {
        let wall = self.wall.filter(|(at, _)| now.saturating_duration_since(*at) <= WALL_CLOCK_FOR);
        let (at, unix_ms) = *self.wall.insert(wall.unwrap_or_else(|| (now, crate::unix_ms())));
        let since = now.saturating_duration_since(at).as_millis() as u64;
        let age = (unix_ms + since).saturating_sub(sample.unix_ms);
        self.age_ms = self.age_ms.saturating_add(age);
        (self.samples, self.bytes) = (self.samples + 1, self.bytes + sample.bytes);
        (self.generation, self.epochs) = (Some(sample.generation), sample.epochs);
        if let Some((number, samples)) = sample.place {
            self.coverage.count(sample.generation, number, samples);
        }
    }
}

/// Number of generations for which each sample that was read is remembered.
const GENERATIONS: usize = 4;
/// Number of samples of a generation that are remembered (16 MiB of bits); each read of a later one counts as its first.
const TRACKED: u64 = 1 << 27;

/// Which samples of the last generations were read.
#[derive(Debug, Default)]
struct Coverage {
    distinct: u64,
    offered: u64,
    reads: u64,
    /// The last generations, the newest at the end: number, and a bit for each sample that was read.
    seen: Vec<(u64, Vec<u64>)>,
}

impl Coverage {
    /// Counts a read of sample `number` of the `samples` of a generation.
    fn count(&mut self, generation: u64, number: u64, samples: u64) {
        self.reads += 1;
        let at = self.seen.iter().rposition(|(known, _)| *known == generation).unwrap_or_else(|| {
            self.offered = self.offered.saturating_add(samples);
            if self.seen.len() >= GENERATIONS {
                self.seen.remove(0);
            }
            self.seen.push((generation, Vec::new()));
            self.seen.len() - 1
        });
        let (bits, word, bit) = (&mut self.seen[at].1, (number / 64) as usize, 1u64 << (number % 64));
        if number < TRACKED {
            if word >= bits.len() {
                bits.resize((word + 1).next_power_of_two(), 0);
            }
            if bits[word] & bit != 0 {
                return;
            }
            bits[word] |= bit;
        }
        self.distinct += 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopwatch_assigns_each_moment_to_one_activity() {
        let (mut watch, start) = (Stopwatch::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seconds, to) in [(1, Some(0)), (3, Some(2)), (6, Some(0)), (10, None), (90, Some(1)), (91, None)] {
            watch.switch(to, at(seconds));
        }
        assert_eq!(watch.seconds(), [6.0, 1.0, 3.0]);
        watch.switch(Some(1), at(5));
        watch.switch(None, at(4)); // clocks of virtual machines may step back
        assert_eq!(watch.seconds(), [6.0, 1.0, 3.0]);
    }

    #[test]
    fn coverage_counts_each_sample_of_a_generation_once() {
        let mut coverage = Coverage::default();
        for (generation, number) in [(1, 0), (1, 70), (1, 0), (2, 0), (1, 70), (2, 99), (1, TRACKED), (1, u64::MAX)] {
            coverage.count(generation, number, 100);
        }
        assert_eq!((coverage.distinct, coverage.offered, coverage.reads), (6, 200, 8));
        (3..1000).for_each(|generation| coverage.count(generation, 1, u64::MAX));
        assert_eq!((coverage.seen.len(), coverage.offered), (GENERATIONS, u64::MAX));
    }

    #[test]
    fn starved_share_ignores_invalid_numbers() {
        let stats =
            |waited_seconds, step_seconds| StreamStats { waited_seconds, step_seconds, ..StreamStats::default() };
        assert_eq!(stats(1.0, 3.0).starved(), Some(0.25));
        for (waited, step) in [(0.0, 0.0), (-1.0, 3.0), (f64::NAN, 3.0), (f64::INFINITY, 1.0), (f64::MAX, f64::MAX)] {
            assert_eq!(stats(waited, step).starved(), None, "{waited} {step}");
        }
        let all = [stats(1.0, 0.0), stats(0.0, 1.0), stats(f64::NAN, 2.0), stats(-5.0, 0.0)];
        assert_eq!(total(all.iter()).starved(), Some(0.5));
    }

    #[test]
    fn current_activity_grows_and_is_not_news() {
        let stats = |now: &str, waited_seconds, step_seconds| StreamStats {
            now: now.to_owned(),
            waited_seconds,
            step_seconds,
            ..StreamStats::default()
        };
        let mut later = stats("step", 1.0, 2.0);
        later.grow(Duration::from_secs(5));
        assert_eq!(later, stats("step", 1.0, 7.0));
        assert_eq!(later.with_current_of(&stats("step", 1.0, 2.0)), stats("step", 1.0, 2.0));
        assert_eq!(later.with_current_of(&stats("waited", 1.0, 2.0)), later, "another activity");
        let mut unknown = stats("of a later version", 1.0, 2.0);
        unknown.grow(Duration::from_secs(5));
        assert_eq!(unknown, stats("of a later version", 1.0, 2.0));
    }
}
