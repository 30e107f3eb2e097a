//! The swaps of a ring, from its manifests: samples, duration and generators of each.
//!
//! Read-only and bounded to a number of recent swaps. To observe a ring repeatedly, keep a [`History`] and update it; each
//! manifest is then read once.

use ringreel::error::{Error, Result};
use ringreel::manifest::store::Manifests;
use ringreel::manifest::{Manifest, Summary};
use ringreel::ring::Ring;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};

/// Most generators that are listed per swap: those with the most samples.
pub const NAMED: usize = 64;

/// The samples of one generator in a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Its owner name.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
}

/// One swap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swap {
    /// The promoted generation.
    pub generation: u64,
    /// Time by the promoter's clock: Unix time in milliseconds.
    pub unix_ms: u64,
    /// Number of samples in the generation.
    pub samples: u64,
    /// Size of its segments in bytes.
    pub bytes: u64,
    /// Number of samples in all generations up to this one.
    pub total_samples: u64,
    /// Bytes in all generations up to this one.
    pub total_bytes: u64,
    /// Time for which generators could not commit, in milliseconds.
    pub swap_ms: f64,
    /// The process that promoted it.
    pub by: String,
    /// Seconds since the previous swap; `None` for the first one, after an unknown one, and if the clocks of the two
    /// promoters contradict the order.
    pub seconds: Option<f64>,
    /// Samples per second in this time; `None` if it is unknown or zero.
    pub samples_per_second: Option<f64>,
    /// Its generators, those with the most samples first, at most [`NAMED`].
    pub generators: Vec<Share>,
    /// Number of samples of all other generators.
    pub others: u64,
}

impl Swap {
    fn new(manifest: &Manifest, before: Option<&Swap>) -> Swap {
        let Summary { generation, unix_ms, samples, bytes, total_samples, total_bytes, swap_ms, .. } = manifest.summary;
        let before = before.filter(|before| before.generation + 1 == generation);
        let seconds = before.and_then(|before| seconds_between(before.unix_ms, unix_ms));
        let (generators, others) = shares(manifest);
        Swap {
            generation,
            unix_ms,
            samples,
            bytes,
            total_samples,
            total_bytes,
            swap_ms,
            by: manifest.summary.by.clone(),
            seconds,
            samples_per_second: seconds.and_then(|seconds| per_second(samples, seconds)),
            generators,
            others,
        }
    }
}

/// Returns the seconds from one time to another; `None` if the second is before the first.
fn seconds_between(from_unix_ms: u64, to_unix_ms: u64) -> Option<f64> {
    Some(to_unix_ms.checked_sub(from_unix_ms)? as f64 / 1e3)
}

fn per_second(samples: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| samples as f64 / seconds)
}

/// Returns the generators with the most samples, and the number of samples of all others.
fn shares(manifest: &Manifest) -> (Vec<Share>, u64) {
    let mut by_name = HashMap::<&str, u64>::new();
    for segment in &manifest.segments {
        let samples = by_name.entry(&segment.owner).or_default();
        *samples = samples.saturating_add(segment.samples);
    }
    let mut all: Vec<_> = by_name.into_iter().collect();
    all.sort_unstable_by(|(name, samples), (other, more)| more.cmp(samples).then(name.cmp(other)));
    let others = all.iter().skip(NAMED).fold(0, |sum: u64, (_, samples)| sum.saturating_add(*samples));
    let named = all.into_iter().take(NAMED).map(|(name, samples)| Share { name: name.to_owned(), samples });
    (named.collect(), others)
}

/// The most recent swaps of a ring.
#[derive(Clone, Debug)]
pub struct History {
    swaps: VecDeque<Swap>,
    most: usize,
    /// Manifests up to this generation have been read.
    seen: u64,
}

impl History {
    /// Creates an empty history of at most `most` swaps.
    pub fn of_last(most: usize) -> History {
        History { swaps: VecDeque::new(), most: most.max(1), seen: 0 }
    }

    /// Reads new manifests. Returns whether there is a new swap.
    ///
    /// Skips missing and damaged manifests, except that the newest one is read again the next time.
    ///
    /// # Errors
    /// The filesystem's errors.
    pub fn update(&mut self, ring: &Ring) -> Result<bool> {
        self.update_from(&ring.manifests)
    }

    /// Like [`History::update`], but reads only `manifests`.
    ///
    /// # Errors
    /// As [`History::update`].
    pub fn update_from(&mut self, manifests: &Manifests) -> Result<bool> {
        let newest = manifests.newest()?;
        let first = newest.saturating_sub(self.most as u64) + 1;
        let known = self.swaps.back().map(|swap| swap.generation);
        for n in first.max(self.seen + 1)..=newest {
            match manifests.get(n) {
                Ok(Some(manifest)) => self.swaps.push_back(Swap::new(&manifest, self.swaps.back())),
                Ok(None) | Err(Error::Manifest { .. }) if n == newest => break,
                Ok(None) => {}
                Err(Error::Manifest { path, message, .. }) => {
                    tracing::debug!(path = %path.display(), message, "swap skipped in the history");
                }
                Err(error) => return Err(error),
            }
            self.seen = n;
        }
        while self.swaps.front().is_some_and(|swap| swap.generation < first) {
            self.swaps.pop_front();
        }
        Ok(self.swaps.back().map(|swap| swap.generation) != known)
    }

    /// Returns the swaps, oldest first.
    pub fn swaps(&self) -> impl DoubleEndedIterator<Item = &Swap> + ExactSizeIterator {
        self.swaps.iter()
    }

    /// Returns the newest swap.
    pub fn newest(&self) -> Option<&Swap> {
        self.swaps.back()
    }

    /// Returns samples per second from the first of these swaps to the last; `None` if the time between them is unknown.
    pub fn samples_per_second(&self) -> Option<f64> {
        let (first, last) = (self.swaps.front()?, self.swaps.back()?);
        let seconds = seconds_between(first.unix_ms, last.unix_ms)?;
        per_second(last.total_samples.saturating_sub(first.total_samples), seconds)
    }

    /// Returns the mean time for which generators could not commit at a swap, in milliseconds.
    pub fn swap_ms_mean(&self) -> Option<f64> {
        (!self.swaps.is_empty())
            .then(|| self.swaps.iter().map(|swap| swap.swap_ms).sum::<f64>() / self.swaps.len() as f64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ringreel::fs::{Fs, Posix};
    use ringreel::layout::Layout;
    use ringreel::manifest::SegmentEntry;
    use ringreel_format::SegmentId;
    use std::sync::Arc;
    use tempfile::TempDir;

    struct Past {
        dir: TempDir,
        last: Summary,
    }

    impl Past {
        fn new() -> Past {
            let dir = tempfile::tempdir().unwrap();
            Posix.make_dir(&Layout::new(dir.path()).manifests()).unwrap();
            let past = Past { dir, last: Summary::empty("ring", "me") };
            past.write(&Manifest::new(past.last.clone(), Vec::new()));
            past
        }

        fn manifests(&self) -> Manifests {
            Manifests::new(Arc::new(Posix), Layout::new(self.dir.path()))
        }

        fn write(&self, manifest: &Manifest) {
            let path = Layout::new(self.dir.path()).manifest(manifest.summary.generation);
            std::fs::write(path, manifest.encode().unwrap()).unwrap();
        }

        /// Adds a swap at this time, with one segment of the given number of samples for each owner.
        fn swap(&mut self, unix_ms: u64, owners: &[(&str, u64)]) {
            let entry = |(n, (owner, samples)): (usize, &(&str, u64))| SegmentEntry {
                id: SegmentId((self.last.generation as u128 * 1000 + n as u128).to_be_bytes()),
                index: n as u64,
                owner: (*owner).into(),
                born: 1,
                samples: *samples,
                bytes: 10 * samples,
                check: 0,
            };
            let segments: Vec<_> = owners.iter().enumerate().map(entry).collect();
            self.last = Summary { unix_ms, ..self.last.next("me", &segments, 2.0) };
            self.write(&Manifest::new(self.last.clone(), segments));
        }
    }

    fn numbers(history: &History) -> Vec<u64> {
        history.swaps().map(|swap| swap.generation).collect()
    }

    #[test]
    fn swaps_have_a_rate_and_their_generators() {
        let mut past = Past::new();
        past.swap(10_000, &[("a", 1), ("b", 5)]);
        past.swap(12_000, &[("a", 2), ("b", 1), ("a", 3)]);
        let mut history = History::of_last(100);
        assert!(history.update_from(&past.manifests()).unwrap());
        let (first, second) = (&history.swaps[0], &history.swaps[1]);
        assert_eq!((first.seconds, first.samples_per_second), (None, None), "creating the ring is no swap");
        assert_eq!((second.seconds, second.samples_per_second), (Some(2.0), Some(3.0)));
        assert_eq!((second.samples, second.bytes, second.total_samples, second.total_bytes), (6, 60, 12, 120));
        let share = |name: &str, samples| Share { name: name.to_owned(), samples };
        assert_eq!((&first.generators[..], first.others), (&[share("b", 5), share("a", 1)][..], 0));
        assert_eq!(second.generators, [share("a", 5), share("b", 1)]);
        assert_eq!((history.samples_per_second(), history.swap_ms_mean()), (Some(3.0), Some(2.0)));
    }

    #[test]
    fn clocks_that_stand_still_or_go_back_give_no_rate() {
        let mut past = Past::new();
        [5000, 5000, 4000, 6000].iter().for_each(|at| past.swap(*at, &[("a", 4)]));
        let mut history = History::of_last(100);
        history.update_from(&past.manifests()).unwrap();
        let seconds: Vec<_> = history.swaps().map(|swap| swap.seconds).collect();
        assert_eq!(seconds, [None, Some(0.0), None, Some(2.0)]);
        let rates: Vec<_> = history.swaps().map(|swap| swap.samples_per_second).collect();
        assert_eq!(rates, [None, None, None, Some(2.0)]);
        assert_eq!(history.samples_per_second(), Some(12.0), "from the first swap to the last");
    }

    #[test]
    fn update_reads_new_manifests_and_keeps_recent_swaps() {
        let mut past = Past::new();
        (1..=5).for_each(|n| past.swap(n * 1000, &[("a", n)]));
        let mut history = History::of_last(3);
        assert!(history.update_from(&past.manifests()).unwrap());
        assert_eq!(numbers(&history), [3, 4, 5]);
        assert!(!history.update_from(&past.manifests()).unwrap());
        // Manifests that were read may be removed.
        (0..=5).for_each(|n| std::fs::remove_file(Layout::new(past.dir.path()).manifest(n)).unwrap());
        past.swap(6000, &[("a", 6)]);
        assert!(history.update_from(&past.manifests()).unwrap());
        assert_eq!(numbers(&history), [4, 5, 6]);
        assert_eq!(history.newest().unwrap().samples_per_second, Some(6.0));
    }

    /// A manifest that is damaged or missing leaves a gap in the history, and the swap after the gap has no rate.
    #[test]
    fn missing_manifest_leaves_a_gap_without_a_rate_after_it() {
        let mut past = Past::new();
        (1..=5).for_each(|n| past.swap(n * 1000, &[("a", n)]));
        let layout = Layout::new(past.dir.path());
        std::fs::write(layout.manifest(2), "not a manifest\n").unwrap();
        std::fs::remove_file(layout.manifest(4)).unwrap();
        let newest = std::fs::read(layout.manifest(5)).unwrap();
        std::fs::write(layout.manifest(5), &newest[..newest.len() / 2]).unwrap();
        let mut history = History::of_last(100);
        history.update_from(&past.manifests()).unwrap();
        assert_eq!(numbers(&history), [1, 3]);
        std::fs::write(layout.manifest(5), &newest).unwrap(); // it was seen before it was whole
        assert!(history.update_from(&past.manifests()).unwrap());
        assert_eq!(numbers(&history), [1, 3, 5]);
        assert!(history.swaps().all(|swap| swap.seconds.is_none()));
    }

    #[test]
    fn generators_with_the_most_samples_are_named() {
        let mut past = Past::new();
        let names: Vec<String> = (0..NAMED as u64 + 3).map(|n| format!("node-{n:03}")).collect();
        let owners: Vec<_> = names.iter().zip(1..).map(|(name, samples)| (name.as_str(), samples)).collect();
        past.swap(1000, &owners);
        let mut history = History::of_last(1);
        history.update_from(&past.manifests()).unwrap();
        let swap = history.newest().unwrap();
        assert_eq!((swap.generators.len(), swap.others), (NAMED, 1 + 2 + 3));
        assert_eq!((swap.generators[0].name.as_str(), swap.generators[0].samples), ("node-066", 67));
    }
}
