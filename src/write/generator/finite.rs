//! `CHECK_FINITE`: finds NaN and infinite elements of floating-point parts before a sample is written.

use crate::config::CheckFinite;
use crate::error::{Error, Result};
use crate::value_stats::Range;
use ringreel_format::{DType, PartRef};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time between two warnings about one part.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Bytes in which the scan has no branch: it ends after the first block with an element that is not finite.
const BLOCK: usize = 4096;

/// Checks the samples of one generator.
pub(crate) struct Finite {
    mode: CheckFinite,
    /// Findings by the part's index in SAMPLE.
    found: HashMap<usize, Found>,
}

/// What was found in one part since its last warning.
#[derive(Default)]
struct Found {
    range: Range,
    warned: Option<Instant>,
}

impl Finite {
    pub fn new(mode: CheckFinite) -> Finite {
        Finite { mode, found: HashMap::new() }
    }

    /// Checks `parts`, whose names are `names`.
    ///
    /// # Errors
    /// [`Error::Sample`] with the part and the counts if `CHECK_FINITE` is `refuse`.
    pub fn check(&mut self, names: &[String], parts: &[PartRef<'_>]) -> Result<()> {
        if self.mode == CheckFinite::Off {
            return Ok(());
        }
        for (n, (part, name)) in parts.iter().zip(names).enumerate() {
            if all_finite(&part.dtype, part.data) {
                continue;
            }
            let Some(range) = Range::of(&part.dtype, part.data) else { continue };
            if self.mode == CheckFinite::Warn {
                if let Some(warning) = self.note(n, name, range, Instant::now()) {
                    tracing::warn!("{warning}");
                }
            } else if let Some(what) = range.not_finite(name) {
                return Err(Error::Sample(format!("{what}; CHECK_FINITE: refuse forbids that")));
            }
        }
        Ok(())
    }

    /// Adds the findings in part `n` of a sample. Returns a warning if one is due.
    fn note(&mut self, n: usize, name: &str, range: Range, now: Instant) -> Option<String> {
        let found = self.found.entry(n).or_default();
        found.range = found.range.with(range);
        if found.warned.is_some_and(|warned| now.duration_since(warned) < WARN_EVERY) {
            return None;
        }
        found.warned = Some(now);
        let what = std::mem::take(&mut found.range).not_finite(name)?;
        Some(format!("{what}, in samples written since the last such warning (CHECK_FINITE is warn)"))
    }
}

/// Returns whether no element has an exponent of all ones. True for types without an exponent.
fn all_finite(dtype: &DType, data: &[u8]) -> bool {
    match dtype {
        DType::F16 => no_exponent(data, |bytes: [u8; 2]| u16::from_le_bytes(bytes) & 0x7c00 == 0x7c00),
        DType::BF16 => no_exponent(data, |bytes: [u8; 2]| u16::from_le_bytes(bytes) & 0x7f80 == 0x7f80),
        DType::F32 | DType::C64 => {
            no_exponent(data, |bytes: [u8; 4]| u32::from_le_bytes(bytes) & 0x7f80_0000 == 0x7f80_0000)
        }
        DType::F64 | DType::C128 => {
            const EXPONENT: u64 = 0x7ff0_0000_0000_0000;
            no_exponent(data, |bytes: [u8; 8]| u64::from_le_bytes(bytes) & EXPONENT == EXPONENT)
        }
        _ => true,
    }
}

/// Returns whether `is_odd` is false for all elements of `N` bytes. Has no branch per element, so that the compiler
/// can vectorize the loop.
fn no_exponent<const N: usize>(data: &[u8], is_odd: impl Fn([u8; N]) -> bool) -> bool {
    let is_fine = |block: &[u8]| !block.as_chunks().0.iter().fold(false, |odd, bytes| odd | is_odd(*bytes));
    data.chunks(BLOCK).all(is_fine)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_type_with_an_exponent_is_checked() {
        let nan64 = f64::NAN.to_le_bytes();
        let infinite = f32::NEG_INFINITY.to_le_bytes();
        let cases: [(DType, &[u8]); 6] = [
            (DType::F16, &[0x00, 0x7c]),
            (DType::BF16, &[0xc0, 0xff]),
            (DType::F32, &infinite),
            (DType::F64, &nan64),
            (DType::C64, &[0, 0, 0, 0, 0, 0, 0x80, 0x7f]),
            (DType::C128, &[[0; 8], nan64].concat()),
        ];
        for (dtype, odd) in cases {
            // The last element of many blocks, and of a block that is not full.
            for before in [0, BLOCK / odd.len() * 3, 5] {
                let fine = vec![0; before * odd.len()];
                assert!(all_finite(&dtype, &fine), "{dtype}");
                assert!(!all_finite(&dtype, &[&fine, odd].concat()), "{dtype}, {before} before");
            }
            let greatest = vec![0xff; 64];
            assert!(all_finite(&DType::U32, &greatest) && !all_finite(&dtype, &greatest));
        }
    }

    #[test]
    fn warnings_are_limited_to_one_a_minute_and_add_up() {
        let mut finite = Finite::new(CheckFinite::Warn);
        let start = Instant::now();
        let range = |nan, infinite| Range { elements: 10, nan, infinite, ..Range::default() };
        let mut warn = |n, after, range| finite.note(n, "image", range, start + Duration::from_secs(after));
        assert!(warn(0, 0, range(1, 0)).unwrap().contains("holds 1 NaN and 0 infinite of 10 elements"));
        assert_eq!(warn(0, 1, range(2, 1)), None);
        assert!(warn(1, 2, range(0, 4)).unwrap().contains("4 infinite"), "each part has a separate limit");
        assert!(warn(0, 61, range(0, 1)).unwrap().contains("holds 2 NaN and 2 infinite of 20 elements"));
    }
}
