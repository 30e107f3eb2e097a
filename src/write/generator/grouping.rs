//! Group commit: decides when the open segment is sealed.
//!
//! `docs/internals/writing.md` lists the conditions and their reasons. While the caller is busy, the generator's thread
//! checks the age of the first sample.

use crate::config::Config;

/// The divisor of SWAP_CAP that gives the most samples of a segment.
const PART_OF_GENERATION: u64 = 8;

/// Decides when a segment is complete. Times are in milliseconds since 1970, by this machine's clock.
#[derive(Debug)]
pub(crate) struct Grouping {
    /// Whether SEGMENT_SAMPLES is `auto`.
    pub is_auto: bool,
    /// Most samples of a segment.
    most: u64,
    bytes: u64,
    millis: u64,
    /// When the last sample was written; 0 before the first one.
    last_ms: u64,
    /// When the first sample of the open segment was written, if a segment is open.
    first_ms: Option<u64>,
    /// Whether the segment is to be sealed before the next sample is written.
    pub is_complete: bool,
}

impl Grouping {
    pub fn new(config: &Config, swap_cap: u64) -> Grouping {
        let most = config.segment_samples.map_or(swap_cap / PART_OF_GENERATION, |n| n.min(swap_cap)).max(1);
        Grouping {
            is_auto: config.segment_samples.is_none(),
            most,
            bytes: config.segment_bytes,
            millis: config.segment_time.as_millis().try_into().unwrap_or(u64::MAX),
            last_ms: 0,
            first_ms: None,
            is_complete: false,
        }
    }

    /// Notes that a sample was appended at `now_ms`. The segment now has `samples` and `bytes`. `share` is this
    /// generator's share of the room in the generation that fills.
    pub fn appended(&mut self, samples: u64, bytes: u64, share: u64, now_ms: u64) {
        let first_ms = *self.first_ms.get_or_insert(now_ms);
        let since_last = now_ms.abs_diff(std::mem::replace(&mut self.last_ms, now_ms));
        let is_full = samples >= self.most;
        let is_due = self.is_auto
            && (samples >= share
                || bytes >= self.bytes
                || since_last >= self.millis
                || now_ms.abs_diff(first_ms) >= self.millis);
        self.is_complete |= is_full || is_due;
    }

    /// Returns whether the first sample has waited for `SEGMENT_SECONDS`.
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.is_auto && self.first_ms.is_some_and(|first| now_ms.abs_diff(first) >= self.millis)
    }

    /// Notes that the segment was sealed or discarded.
    pub fn reset(&mut self) {
        (self.first_ms, self.is_complete) = (None, false);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;

    fn grouping(keys: &str, swap_cap: u64) -> Grouping {
        let text = format!("RING: r\nINDEX: files\n{keys}");
        Grouping::new(&Config::parse(&text, "test", Path::new("."), false).unwrap(), swap_cap)
    }

    const START: u64 = 1_000_000_000;

    /// Returns the sizes of the segments into which `samples` of `bytes` each, `millis` apart, are grouped.
    fn sizes(grouping: &mut Grouping, samples: u64, bytes: u64, millis: u64, share: u64) -> Vec<u64> {
        let (mut found, mut open) = (Vec::new(), 0);
        for n in 0..samples {
            open += 1;
            grouping.appended(open, open * bytes, share, START + n * millis);
            if grouping.is_complete {
                found.push(open);
                (open, _) = (0, grouping.reset());
            }
        }
        found
    }

    #[test]
    fn segment_is_sealed_at_the_first_limit_that_it_meets() {
        let auto = "SEGMENT_SAMPLES: auto";
        assert_eq!(sizes(&mut grouping(auto, 800), 250, 1, 0, u64::MAX), [1, 100, 100], "an eighth of SWAP_CAP");
        assert_eq!(sizes(&mut grouping(auto, 800), 9, 16 << 20, 0, u64::MAX), [1, 2, 2, 2, 2], "SEGMENT_BYTES");
        assert_eq!(sizes(&mut grouping(auto, 800), 13, 1, 100, u64::MAX), [1, 6, 6], "SEGMENT_SECONDS");
        assert_eq!(sizes(&mut grouping(auto, 800), 7, 1, 0, 3), [1, 3, 3], "the share of the room");
        assert_eq!(sizes(&mut grouping(auto, 800), 3, 1, 500, u64::MAX), [1, 1, 1], "a slow generator");
        assert_eq!(sizes(&mut grouping(auto, 7), 3, 1, 0, u64::MAX), [1, 1, 1], "a small SWAP_CAP");
        let keys = "SEGMENT_SAMPLES: auto\nSEGMENT_BYTES: 3KB\nSEGMENT_SECONDS: 0.01";
        assert_eq!(sizes(&mut grouping(keys, 800), 5, 1500, 0, u64::MAX), [1, 2, 2]);
        assert_eq!(sizes(&mut grouping(keys, 800), 5, 1, 5, u64::MAX), [1, 3]);
    }

    #[test]
    fn fixed_number_of_samples_does_not_depend_on_the_pace() {
        for millis in [0, 1000] {
            assert_eq!(sizes(&mut grouping("SEGMENT_SAMPLES: 5", 800), 11, 1 << 30, millis, 1), [5, 5]);
            assert_eq!(sizes(&mut grouping("SEGMENT_SAMPLES: 50", 4), 8, 1, millis, 1), [4, 4], "at most SWAP_CAP");
        }
        let mut fixed = grouping("SEGMENT_SAMPLES: 5", 800);
        fixed.appended(1, 1, 1, 0);
        assert!(!fixed.is_old(u64::MAX));
    }

    #[test]
    fn unsealed_sample_is_old_after_segment_seconds() {
        let mut auto = grouping("SEGMENT_SAMPLES: auto", 800);
        assert!(!auto.is_old(START), "no sample is open");
        auto.appended(1, 1, 100, START);
        assert!(auto.is_complete, "the first sample of a generator");
        auto.reset();
        auto.appended(1, 1, 100, START + 100);
        assert!(!auto.is_complete && !auto.is_old(START + 599) && auto.is_old(START + 600));
        auto.reset();
        assert!(!auto.is_old(START + 10_000));
    }
}
