//! Reads the elements of a part of any type as numbers, and maps them to brightness.

use ringreel::read::ReadPart;
use ringreel::value_stats::{Decode, decoder};
use ringreel_format::DType;
use std::collections::BTreeSet;

/// Number of elements examined to find a part's range and distinct values.
const LOOKED_AT: usize = 1 << 18;

/// The elements of a part, row-major.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a> {
    pub dtype: &'a DType,
    bytes: &'a [u8],
    size: usize,
    decode: Decode,
}

impl<'a> Numbers<'a> {
    /// The elements of `part`; `None` if they are not numbers or need a later version.
    pub fn of(part: &'a ReadPart) -> Option<Numbers<'a>> {
        let bytes: &[u8] = part.data().ok()?;
        let size = usize::try_from(part.dtype.itemsize()).ok()?;
        let decode = decoder(&part.dtype).filter(|_| part.dtype != DType::Bytes)?;
        Some(Numbers { dtype: &part.dtype, bytes, size, decode })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.size
    }

    /// The element at `index`, or NaN beyond the end. For a complex number, its magnitude.
    pub fn at(&self, index: usize) -> f64 {
        let begin = index.saturating_mul(self.size);
        self.bytes.get(begin..begin.saturating_add(self.size)).map_or(f64::NAN, |bytes| (self.decode)(bytes).to_f64())
    }

    /// Elements spread over the whole part: all of a small part, about [`LOOKED_AT`] of a large one.
    pub fn some(&self) -> impl Iterator<Item = f64> + '_ {
        // An odd step, so that it does not walk along an axis whose length is a power of two.
        let step = if self.len() <= LOOKED_AT { 1 } else { (self.len() / LOOKED_AT) | 1 };
        (0..self.len()).step_by(step).map(|index| self.at(index))
    }

    /// Whether the part looks like labels: integers with at most `most` distinct values.
    pub fn are_few(&self, most: usize) -> bool {
        let whole = matches!(self.dtype, DType::Bool)
            || matches!(self.dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
            || matches!(self.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
        let mut seen = BTreeSet::new();
        let mut still_few = |value: f64| {
            seen.insert(value as i64);
            seen.len() <= most
        };
        whole && self.some().all(&mut still_few)
    }
}

/// The range of numbers drawn from black to white.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    low: f64,
    high: f64,
}

impl Window {
    /// The full range of bytes.
    pub const BYTES: Window = Window { low: 0.0, high: 255.0 };

    /// The 1st to 99th percentile of the finite values, so that a few outliers do not darken the rest; the minimum to the
    /// maximum if the two percentiles are equal.
    pub fn of(numbers: &Numbers<'_>) -> Window {
        let mut values: Vec<f64> = numbers.some().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (Some(least), Some(greatest)) = (values.first(), values.last()) else {
            return Window { low: 0.0, high: 1.0 };
        };
        let at = |percent: usize| values[(values.len() - 1) * percent / 100];
        match (at(1), at(99)) {
            (low, high) if low < high => Window { low, high },
            _ if least < greatest => Window { low: *least, high: *greatest },
            _ => Window { low: least.min(0.0), high: greatest.max(least.min(0.0) + 1.0) },
        }
    }

    /// The position of `value` between black (0) and white (1). NaN is black.
    pub fn part_of(&self, value: f64) -> f64 {
        // Halves, because the difference of two finite numbers can overflow.
        let share = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// The brightness of `value`.
    pub fn grey(&self, value: f64) -> u8 {
        (self.part_of(value) * 255.0).round() as u8
    }

    /// Whether all values are below 16: bytes that would be almost black without scaling.
    pub fn is_dark(&self) -> bool {
        self.high < 16.0
    }

    /// The numbers drawn black and white.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }
}
