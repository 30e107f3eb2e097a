//! The elements of a part as numbers: their statistics, and access to single elements.

use half::{bf16, f16};
use ringreel_format::DType;
use serde::Serialize;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A bool (0 or 1) or an integer.
    Whole(i128),
    /// A float. Types narrower than 64 bits are widened, which loses nothing.
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Number {
    /// Converts the number to a float. An integer above 2^53 may lose precision; a complex number
    /// becomes its absolute value.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Whole(n) => n as f64,
            Number::Float(x) => x,
            Number::Complex(re, im) => re.hypot(im),
        }
    }
}

/// A function that decodes one element from the front of its bytes.
pub type Decode = fn(&[u8]) -> Number;

/// Returns the decoder for elements of this type, or `None` if they are not numbers (NumPy's other
/// types, those of a later version).
pub fn decoder(dtype: &DType) -> Option<Decode> {
    /// Returns the first `N` bytes. They always exist, because a part has only whole elements.
    fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    fn f32_at(bytes: &[u8]) -> f64 {
        f64::from(f32::from_le_bytes(first(bytes)))
    }
    fn f64_at(bytes: &[u8]) -> f64 {
        f64::from_le_bytes(first(bytes))
    }
    let decode: Decode = match dtype {
        DType::Bytes | DType::U8 => |b| Number::Whole(i128::from(first::<1>(b)[0])),
        DType::Bool => |b| Number::Whole(i128::from(first::<1>(b)[0] != 0)),
        DType::U16 => |b| Number::Whole(i128::from(u16::from_le_bytes(first(b)))),
        DType::U32 => |b| Number::Whole(i128::from(u32::from_le_bytes(first(b)))),
        DType::U64 => |b| Number::Whole(i128::from(u64::from_le_bytes(first(b)))),
        DType::I8 => |b| Number::Whole(i128::from(i8::from_le_bytes(first(b)))),
        DType::I16 => |b| Number::Whole(i128::from(i16::from_le_bytes(first(b)))),
        DType::I32 => |b| Number::Whole(i128::from(i32::from_le_bytes(first(b)))),
        DType::I64 => |b| Number::Whole(i128::from(i64::from_le_bytes(first(b)))),
        DType::F16 => |b| Number::Float(f16::from_le_bytes(first(b)).to_f64()),
        DType::BF16 => |b| Number::Float(bf16::from_le_bytes(first(b)).to_f64()),
        DType::F32 => |b| Number::Float(f32_at(b)),
        DType::F64 => |b| Number::Float(f64_at(b)),
        DType::C64 => |b| Number::Complex(f32_at(b), f32_at(&b[4..])),
        DType::C128 => |b| Number::Complex(f64_at(b), f64_at(&b[8..])),
        _ => return None,
    };
    Some(decode)
}

/// Returns the elements in `data`, in memory order, or `None` as [`decoder`].
pub fn numbers<'a>(dtype: &DType, data: &'a [u8]) -> Option<impl Iterator<Item = Number> + 'a> {
    let decode = decoder(dtype)?;
    Some(data.chunks_exact(dtype.itemsize() as usize).map(decode))
}

/// Statistics of elements. Complex elements count by their absolute values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Number of elements.
    pub elements: u64,
    /// Number of NaN elements.
    pub nan: u64,
    /// Number of infinite elements.
    pub infinite: u64,
    /// The smallest finite element.
    pub min: Option<f64>,
    /// The largest finite element.
    pub max: Option<f64>,
    /// The mean of the finite elements.
    pub mean: Option<f64>,
}

impl Range {
    /// Computes the statistics of the elements in `data`. Returns `None` as [`decoder`].
    pub fn of(dtype: &DType, data: &[u8]) -> Option<Range> {
        let mut range = Range::default();
        let mut sum = 0.0;
        for number in numbers(dtype, data)? {
            let x = number.to_f64();
            range.elements += 1;
            if x.is_nan() {
                range.nan += 1;
            } else if x.is_infinite() {
                range.infinite += 1;
            } else {
                range.min = Some(range.min.map_or(x, |min| min.min(x)));
                range.max = Some(range.max.map_or(x, |max| max.max(x)));
                sum += x;
            }
        }
        range.mean = (range.finite() > 0).then(|| sum / range.finite() as f64);
        Some(range)
    }

    /// Describes how many elements of part `name` are not finite. Returns `None` if all are finite.
    pub fn not_finite(&self, name: &str) -> Option<String> {
        let Range { elements, nan, infinite, .. } = self;
        let what = || format!("part {name:?} holds {nan} NaN and {infinite} infinite of {elements} elements");
        (nan + infinite > 0).then(what)
    }

    fn finite(&self) -> u64 {
        self.elements - self.nan - self.infinite
    }

    /// Combines the statistics of two sets of elements.
    pub fn with(self, other: Range) -> Range {
        let both = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(of(a, b)),
            (one, other) => one.or(other),
        };
        let share = |range: &Range| range.mean.map(|mean| mean * range.finite() as f64);
        let finite = self.finite() + other.finite();
        Range {
            elements: self.elements + other.elements,
            nan: self.nan + other.nan,
            infinite: self.infinite + other.infinite,
            min: both(self.min, other.min, f64::min),
            max: both(self.max, other.max, f64::max),
            mean: both(share(&self), share(&other), |a, b| a + b).map(|sum| sum / finite as f64),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn statistics_count_values_that_are_not_finite() {
        let data: Vec<u8> = [1.0f32, f32::NAN, -3.0, f32::INFINITY, 5.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let range = Range::of(&DType::F32, &data).unwrap();
        let want = Range { elements: 5, nan: 1, infinite: 1, min: Some(-3.0), max: Some(5.0), mean: Some(1.0) };
        assert_eq!(range, want);
        let more = range.with(Range::of(&DType::U8, &[1, 9]).unwrap());
        assert_eq!((more.elements, more.min, more.max, more.mean), (7, Some(-3.0), Some(9.0), Some(13.0 / 5.0)));
        assert_eq!(range.with(Range::default()), range);
        assert_eq!(Range::of(&DType::F32, &[]).unwrap(), Range::default());
        assert_eq!(Range::of(&DType::Numpy { descr: "<M8[s]".into(), itemsize: 8 }, &[0; 8]), None);
    }

    #[test]
    fn every_numeric_type_is_decoded() {
        let cases: [(DType, &[u8], Number); 9] = [
            (DType::Bool, &[2], Number::Whole(1)),
            (DType::I8, &[0xff], Number::Whole(-1)),
            (DType::U16, &[1, 2], Number::Whole(0x201)),
            (DType::I64, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Number::Whole(-2)),
            (DType::U64, &[0xff; 8], Number::Whole(i128::from(u64::MAX))),
            (DType::F16, &[0, 0x3c], Number::Float(1.0)),
            (DType::BF16, &[0x80, 0x3f], Number::Float(1.0)),
            (DType::F32, &[0, 0, 0x80, 0xbf], Number::Float(-1.0)),
            (DType::C64, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40], Number::Complex(1.0, 2.0)),
        ];
        for (dtype, bytes, want) in cases {
            assert_eq!(numbers(&dtype, bytes).unwrap().collect::<Vec<_>>(), [want], "{dtype}");
        }
    }
}
