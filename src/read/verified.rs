//! Which samples' checksums were already verified (`VERIFY: first`): one bit per sample.

use ringreel_format::SegmentId;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most memory for these bits, in bytes. Beyond it, all bits are dropped, and checksums are verified again.
const MEMORY: u64 = 16 << 20;
/// Approximate memory of a segment besides its bits.
const EACH: u64 = 128;

/// The bits of all segments, open or not.
#[derive(Debug, Default)]
pub struct Verified {
    segments: Mutex<(HashMap<SegmentId, Arc<Ordinals>>, u64)>,
}

/// The bits of one segment.
#[derive(Debug)]
pub struct Ordinals {
    bits: Box<[AtomicU64]>,
}

impl Verified {
    /// Returns the bits of a segment of `samples` samples.
    pub fn of(&self, id: SegmentId, samples: u64) -> Arc<Ordinals> {
        let mut guard = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let (segments, memory) = &mut *guard;
        if let Some(known) = segments.get(&id) {
            return known.clone();
        }
        let bytes = EACH + samples / 8;
        if *memory + bytes > MEMORY {
            segments.clear();
            *memory = 0;
        }
        // A segment with more samples than there is memory for (its manifest may claim any number) is verified every
        // time.
        let words = if bytes > MEMORY { 0 } else { samples.div_ceil(64) };
        let ordinals = Arc::new(Ordinals { bits: (0..words).map(|_| AtomicU64::new(0)).collect() });
        *memory += EACH + words * 8;
        segments.insert(id, ordinals.clone());
        ordinals
    }
}

impl Ordinals {
    #[inline]
    pub fn contains(&self, ordinal: u64) -> bool {
        let word = self.bits.get((ordinal / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (ordinal % 64) & 1 == 1)
    }

    pub fn insert(&self, ordinals: Range<u64>) {
        let mut from = ordinals.start;
        while from < ordinals.end {
            let until = ordinals.end.min((from / 64 + 1) * 64);
            let Some(word) = self.bits.get((from / 64) as usize) else { return };
            word.fetch_or(u64::MAX >> (64 - (until - from)) << (from % 64), Ordering::Relaxed);
            from = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_samples_are_known_until_memory_runs_out() {
        let (compared, id) = (Verified::default(), |n: u8| SegmentId([n; 16]));
        compared.of(id(1), 100).insert(70..71);
        let known = compared.of(id(1), 100);
        assert!(known.contains(70) && !known.contains(71) && !known.contains(6) && !known.contains(1000));
        compared.of(id(2), MEMORY * 8 - EACH * 16);
        assert!(!compared.of(id(1), 100).contains(70), "all bits are dropped");
        let boast = compared.of(id(3), u64::MAX);
        boast.insert(0..u64::MAX);
        assert!(!boast.contains(5));
    }

    #[test]
    fn insert_marks_exactly_the_range() {
        for range in [0..0, 3..5, 63..65, 64..128, 70..70, 1..300] {
            let known = Verified::default().of(SegmentId([0; 16]), 300);
            known.insert(range.clone());
            assert!((0..400).all(|n| known.contains(n) == range.contains(&n)), "{range:?}");
        }
    }
}
