//! `COMPRESS: auto`: decides by repeated trials whether a part is compressed.
//!
//! A decision changes how bytes are stored, never which bytes are read. A trial needs memory for 1 MiB of a part and
//! for its compressed form, however large the part is.

use crate::coordination::PartCompression;
use ringreel_format::PartRef;
use rustix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::io;

/// The zstd level of trials. A higher level takes several times as long for label maps, and gains little
/// (`docs/how-to/compression.md`).
const LEVEL: i32 = 1;
/// Smallest ratio that pays: a compressed part cannot be mapped, and is decoded each time it is read.
const RATIO: f64 = 2.0;
/// Bytes per second of compression time that compression must save: a generator gains on every disk that is slower.
const SAVED_WRITING: f64 = 100e6;
/// Bytes per second of decoding time that compression must save, for readers. (Samples are read more often than
/// written, and training waits for readers.)
const SAVED_READING: f64 = 500e6;

/// Most bytes of a part that a trial compresses, as evenly spaced slices of `SLICE` bytes.
const TRIED: usize = 1 << 20;
const SLICE: usize = 1 << 16;
/// Repetitions of a trial, of which the fastest counts: caches are cold at first.
const TIMES: usize = 3;
/// Shorter parts are not compressed: they are stored in the head of their sample, or are hardly larger than that.
const SHORT: usize = 1 << 10;
/// After `SURE` consecutive trials that agree, only every `AGAIN`-th sample of the part is tried.
const SURE: u32 = 3;
const AGAIN: u32 = 64;
/// Consecutive trials that must disagree to change a decision.
const DOUBTS: u32 = 2;

/// Result of a trial. Times are CPU seconds, so that other load on the machine does not count.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    bytes: usize,
    compressed: usize,
    compress_seconds: f64,
    decode_seconds: f64,
}

impl Trial {
    fn of(data: &[u8]) -> io::Result<Trial> {
        let data = spread(data);
        let (mut compress_seconds, mut decode_seconds, mut compressed) = (f64::MAX, f64::MAX, Vec::new());
        for _ in 0..TIMES {
            let begun = processor_seconds();
            compressed = zstd::bulk::compress(&data, LEVEL)?;
            let half = processor_seconds();
            zstd::bulk::decompress(&compressed, data.len())?;
            compress_seconds = compress_seconds.min(half - begun);
            decode_seconds = decode_seconds.min(processor_seconds() - half);
        }
        Ok(Trial { bytes: data.len(), compressed: compressed.len(), compress_seconds, decode_seconds })
    }

    fn ratio(&self) -> f64 {
        self.bytes as f64 / self.compressed.max(1) as f64
    }

    fn pays(&self) -> bool {
        let saved = self.bytes as f64 - self.compressed as f64;
        let is_worth = |seconds: f64, per_second: f64| saved >= seconds * per_second;
        self.ratio() >= RATIO
            && is_worth(self.compress_seconds, SAVED_WRITING)
            && is_worth(self.decode_seconds, SAVED_READING)
    }
}

/// Returns the CPU time of this thread in seconds.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns evenly spaced slices of a long part, in order, or all of a short part.
fn spread(data: &[u8]) -> Cow<'_, [u8]> {
    if data.len() <= TRIED {
        return Cow::Borrowed(data);
    }
    const COUNT: usize = TRIED / SLICE;
    let (gap, rest) = ((data.len() - SLICE) / (COUNT - 1), (data.len() - SLICE) % (COUNT - 1));
    // At multiples of 64, where elements begin.
    let begin = |n: usize| (n * gap + n * rest / (COUNT - 1)) & !63;
    Cow::Owned((0..COUNT).flat_map(|n| &data[begin(n)..][..SLICE]).copied().collect())
}

/// A part whose compression is decided by trials.
#[derive(Debug, Default)]
struct Undecided {
    /// Its index in the sample, and its name.
    n: usize,
    name: String,
    /// The decision: whether compression pays. `None` before the first trial.
    pays: Option<bool>,
    /// Consecutive trials that agreed with the decision, and consecutive trials that did not.
    agreed: u32,
    doubts: u32,
    /// Samples to skip before the next trial.
    wait: u32,
    /// The last trial that agreed with the decision.
    trial: Trial,
}

impl Undecided {
    /// Takes a trial into account. Returns whether the decision changed.
    fn count(&mut self, trial: Trial) -> bool {
        let pays = trial.pays();
        let agrees = self.pays == Some(pays);
        self.doubts = if agrees { 0 } else { self.doubts + 1 };
        let decided = !agrees && (self.pays.is_none() || self.doubts == DOUBTS);
        if decided {
            (self.pays, self.doubts) = (Some(pays), 0);
        }
        if agrees || decided {
            self.trial = trial;
        }
        self.agreed = if agrees { self.agreed + 1 } else { u32::from(decided) };
        self.wait = if self.agreed >= SURE { AGAIN - 1 } else { 0 };
        decided
    }

    fn log_decision(&self, len: usize) {
        let decision = if self.pays == Some(true) { "compressed" } else { "not compressed" };
        let speed = |seconds: f64| (self.trial.bytes as f64 / seconds.max(1e-9) / 1e6).round();
        tracing::info!(
            part = self.name,
            bytes = len,
            ratio = (self.trial.ratio() * 100.0).round() / 100.0,
            compress_mb_per_second = speed(self.trial.compress_seconds),
            decode_mb_per_second = speed(self.trial.decode_seconds),
            "COMPRESS: auto: from now on this part is {decision}"
        );
    }
}

/// Decisions for the parts whose COMPRESS is `auto`.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveCompression(Vec<Undecided>);

impl AdaptiveCompression {
    /// Creates undecided entries for those parts of `names` whose index `wanted` accepts.
    pub(crate) fn new(names: &[String], wanted: impl Fn(usize) -> bool) -> AdaptiveCompression {
        let part = |(n, name): (usize, &String)| Undecided { n, name: name.clone(), ..Undecided::default() };
        AdaptiveCompression(names.iter().enumerate().filter(|(n, _)| wanted(*n)).map(part).collect())
    }

    /// Tries the parts of a sample whose trial is due. Returns whether `levels` was changed.
    pub(crate) fn look(&mut self, parts: &[PartRef<'_>], levels: &mut [Option<i32>]) -> bool {
        let mut changed = false;
        for part in &mut self.0 {
            let Some(data) = parts.get(part.n).map(|part| part.data).filter(|data| data.len() >= SHORT) else {
                continue;
            };
            if part.wait > 0 {
                part.wait -= 1;
                continue;
            }
            match Trial::of(data) {
                Ok(trial) if part.count(trial) => {
                    part.log_decision(data.len());
                    levels[part.n] = part.pays.filter(|pays| *pays).map(|_| LEVEL);
                    changed = true;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, part = part.name, "cannot measure whether compressing this part pays")
                }
            }
        }
        changed
    }

    /// Returns the decisions made so far.
    pub(crate) fn stored(&self) -> Vec<PartCompression> {
        let decided = self.0.iter().filter(|part| part.pays.is_some());
        let one = |part: &Undecided| PartCompression {
            part: part.name.clone(),
            compressed: part.pays == Some(true),
            ratio: (part.trial.ratio() * 100.0).round() / 100.0,
        };
        decided.map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(ratio: f64, compress_mb: f64, decode_mb: f64) -> Trial {
        let bytes = 1e6;
        Trial {
            bytes: bytes as usize,
            compressed: (bytes / ratio) as usize,
            compress_seconds: 1.0 / compress_mb,
            decode_seconds: 1.0 / decode_mb,
        }
    }

    #[test]
    fn compression_pays_if_it_saves_enough_bytes_per_second() {
        assert!(trial(50.0, 600.0, 2000.0).pays(), "a label map");
        assert!(!trial(1.1, 400.0, 2000.0).pays(), "an image: too little is saved, however fast");
        assert!(!trial(1.9, 9000.0, 9000.0).pays(), "mapping is worth more than this ratio");
        assert!(trial(2.0, 210.0, 1100.0).pays());
        assert!(!trial(2.0, 190.0, 1100.0).pays(), "a generator is better off on a disk of 100 MB/s");
        assert!(!trial(2.0, 210.0, 900.0).pays(), "a reader is better off on a disk of 500 MB/s");
    }

    fn undecided() -> Undecided {
        AdaptiveCompression::new(&["x".to_owned()], |_| true).0.remove(0)
    }

    #[test]
    fn decision_changes_after_two_disagreeing_trials_in_a_row() {
        let (good, bad) = (trial(50.0, 900.0, 3000.0), trial(1.0, 900.0, 3000.0));
        let mut part = undecided();
        let mut decisions = Vec::new();
        for trial in [bad, good, bad, good, good, good, good, bad, good, bad, bad] {
            part.count(trial);
            decisions.push((part.pays == Some(true), part.wait));
        }
        let sure = AGAIN - 1;
        let want = [
            (false, 0), // the first trial decides, but is not trusted yet
            (false, 0), // one that disagrees
            (false, 0),
            (false, 0),
            (true, 0), // two in a row: the decision changes
            (true, 0),
            (true, sure), // three agree
            (true, 0),    // one disagrees: the next sample is tried
            (true, 0),
            (true, 0),
            (false, 0),
        ];
        assert_eq!(decisions, want);
    }

    /// The trial compresses slices of a long part that are spread from its beginning to its end.
    #[test]
    fn trial_slices_span_a_long_part_from_start_to_end() {
        for len in [TRIED + 1, TRIED + 64, 3 * TRIED + 4097, 40 * TRIED] {
            let data: Vec<u8> = (0..len).map(|n| (n * 255 / len) as u8).collect();
            let tried = spread(&data);
            assert_eq!((tried.len(), tried[0], tried.is_sorted()), (TRIED, 0, true), "{len}");
            assert!(tried.last().is_some_and(|last| *last >= 253), "{len}");
        }
        assert_eq!(spread(&[1, 2, 3]), vec![1, 2, 3]);
    }
}
