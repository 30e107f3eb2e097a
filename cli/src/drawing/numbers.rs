//! The elements of a part as numbers, whatever their type is; and which brightness they get.

use ringreel::read::ReadPart;
use ringreel::value_stats::{Decode, decoder};
use ringreel_format::DType;
use std::collections::BTreeSet;

/// Elements that are looked at for a part's range and its distinct values.
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
    /// Those of `part`; none where its elements are no numbers, or cannot be read by this version.
    pub fn of(part: &'a ReadPart) -> Option<Numbers<'a>> {
        let bytes: &[u8] = part.data().ok()?;
        let size = usize::try_from(part.dtype.itemsize()).ok()?;
        let decode = decoder(&part.dtype).filter(|_| part.dtype != DType::Bytes)?;
        Some(Numbers { dtype: &part.dtype, bytes, size, decode })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.size
    }

    /// The element at `index`; NaN where there is none. Of a complex number, its magnitude.
    pub fn at(&self, index: usize) -> f64 {
        let begin = index.saturating_mul(self.size);
        self.bytes.get(begin..begin.saturating_add(self.size)).map_or(f64::NAN, |bytes| (self.decode)(bytes).to_f64())
    }

    /// Elements from all over the part: all of them, or as many as are enough to know it.
    pub fn some(&self) -> impl Iterator<Item = f64> + '_ {
        // An odd step, so that it does not walk along an axis whose length is a power of two.
        let step = if self.len() <= LOOKED_AT { 1 } else { (self.len() / LOOKED_AT) | 1 };
        (0..self.len()).step_by(step).map(|index| self.at(index))
    }

    /// Whether it looks like labels: whole numbers, of which there are few different ones.
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

/// The range of numbers that is drawn from black to white.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    low: f64,
    high: f64,
}

impl Window {
    /// Bytes as they are.
    pub const BYTES: Window = Window { low: 0.0, high: 255.0 };

    /// From the 1st to the 99th percentile of what is finite, so that a few wild values do not blacken the rest; from the
    /// least to the greatest where these two are the same.
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

    /// How far `value` is from black (0) to white (1). NaN is black.
    pub fn part_of(&self, value: f64) -> f64 {
        // Halves: the difference of two of the largest numbers is none.
        let share = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// The brightness of `value`.
    pub fn grey(&self, value: f64) -> u8 {
        (self.part_of(value) * 255.0).round() as u8
    }

    /// Whether it lies in the first 16 of 256: bytes that would be all but black as they are.
    pub fn is_dark(&self) -> bool {
        self.high < 16.0
    }

    /// Its ends.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }
}
