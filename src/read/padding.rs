//! Padding samples: the shapes of a real sample, and a fill value in every element. They equalise the number of steps
//! when a worker has no sample left and others still do.

use super::{ReadPart, ReadSample};
use crate::error::{Error, Result};
use bytes::Bytes;
use half::{bf16, f16};
use ringreel_format::DType;

/// Returns a copy of `like` marked as padding, with every element of a part set to `pad_value` of the part's name,
/// clamped to the range of its type.
///
/// # Errors
/// The dtype or the codec of a part is only known to a later version.
pub fn padding_sample(like: &ReadSample, pad_value: impl Fn(&str) -> f64) -> Result<ReadSample> {
    let part = |part: &ReadPart| {
        let (len, element) = (part.data()?.len(), element(&part.dtype, pad_value(&part.name)));
        let data = Bytes::from(element.repeat(len / element.len()));
        let part_of = part.part.with_data(data).map_err(|error| Error::Sample(error.to_string()))?;
        Ok(ReadPart { name: part.name.clone(), part: part_of })
    };
    let parts = like.parts.iter().map(part).collect::<Result<_>>()?;
    Ok(ReadSample { parts, is_padding: true, ..like.clone() })
}

/// Returns the bytes of one element. `as` clamps a float to an integer's range, and converts NaN to 0.
fn element(dtype: &DType, pad_value: f64) -> Vec<u8> {
    match dtype {
        DType::Bool => vec![u8::from(pad_value >= 1.0)],
        DType::U8 => vec![pad_value as u8],
        DType::U16 => (pad_value as u16).to_le_bytes().to_vec(),
        DType::U32 => (pad_value as u32).to_le_bytes().to_vec(),
        DType::U64 => (pad_value as u64).to_le_bytes().to_vec(),
        DType::I8 => (pad_value as i8).to_le_bytes().to_vec(),
        DType::I16 => (pad_value as i16).to_le_bytes().to_vec(),
        DType::I32 => (pad_value as i32).to_le_bytes().to_vec(),
        DType::I64 => (pad_value as i64).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(finite(pad_value, f64::from(f16::MAX))).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(finite(pad_value, f64::from(bf16::MAX))).to_le_bytes().to_vec(),
        DType::F32 => (finite(pad_value, f64::from(f32::MAX)) as f32).to_le_bytes().to_vec(),
        DType::F64 => pad_value.to_le_bytes().to_vec(),
        DType::C64 => [finite(pad_value, f64::from(f32::MAX)) as f32, 0.0].map(f32::to_le_bytes).concat(),
        DType::C128 => [pad_value, 0.0].map(f64::to_le_bytes).concat(),
        // Bytes, and types that only NumPy can interpret.
        _ => vec![0; dtype.itemsize().max(1) as usize],
    }
}

/// Clamps a finite value so that it stays finite.
fn finite(pad_value: f64, max: f64) -> f64 {
    if pad_value.is_finite() { pad_value.clamp(-max, max) } else { pad_value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_value_is_clamped_to_the_range_of_each_type() {
        let bytes = |dtype: DType, pad_value| element(&dtype, pad_value);
        assert_eq!(bytes(DType::U8, -100.0), [0]);
        assert_eq!(bytes(DType::U8, 300.0), [255]);
        assert_eq!(bytes(DType::I8, -300.0), [0x80]);
        assert_eq!(bytes(DType::Bool, -100.0), [0]);
        assert_eq!(bytes(DType::Bool, 1.0), [1]);
        assert_eq!(bytes(DType::I64, -100.0), (-100i64).to_le_bytes());
        assert_eq!(bytes(DType::I32, f64::NAN), [0; 4]);
        assert_eq!(bytes(DType::F32, -100.0), (-100f32).to_le_bytes());
        assert_eq!(bytes(DType::F32, 1e300), f32::MAX.to_le_bytes());
        assert_eq!(bytes(DType::F16, -1e6), f16::MIN.to_le_bytes());
        assert_eq!(bytes(DType::BF16, -100.0), bf16::from_f32(-100.0).to_le_bytes());
        assert_eq!(bytes(DType::C64, 2.0), [2f32.to_le_bytes(), [0; 4]].concat());
        assert_eq!(bytes(DType::Bytes, 7.0), [0]);
        assert_eq!(bytes(DType::Numpy { descr: "<M8[ns]".into(), itemsize: 8 }, 7.0), [0; 8]);
    }
}
