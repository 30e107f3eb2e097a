//! Reads `.npy` files of numbers, by <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//! ([`crate::formats::npy`] writes them.)

use super::array::{Array, Order, elements};
use ringreel_format::{DType, Meta};

/// Longest header in bytes.
const MAX_HEADER: usize = 1 << 16;

/// Parses the array in a file.
///
/// # Errors
/// A file that is not `.npy`, is truncated, or has elements other than numbers (objects, records, text, dates).
pub fn parse(bytes: &[u8]) -> Result<Array, String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("not an .npy file")?;
    let (width, rest) = match rest {
        [1, _, rest @ ..] => (2, rest),
        [2 | 3, _, rest @ ..] => (4, rest),
        _ => return Err("unknown version of .npy".to_owned()),
    };
    let (len, rest) = rest.split_at_checked(width).ok_or("truncated")?;
    let len = len.iter().rev().fold(0usize, |len, byte| len << 8 | usize::from(*byte));
    if len > MAX_HEADER {
        return Err(format!("its header claims {len} bytes, more than the limit of {MAX_HEADER}"));
    }
    let (header, data) = rest.split_at_checked(len).ok_or("truncated")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not UTF-8")?;
    let field = |name: &str| {
        let at = header.find(name).ok_or("its header is not NumPy's")?;
        Ok::<_, String>(header[at + name.len()..].trim_start())
    };
    let descr = field("'descr':")?.strip_prefix('\'').and_then(|descr| descr.split_once('\''));
    let descr = descr.ok_or("it has records: only numbers are supported")?.0;
    let (dtype, big_endian) =
        from_descr(descr).ok_or_else(|| format!("it has elements {descr}: only numbers are supported"))?;
    let shape = field("'shape':")?.strip_prefix('(').and_then(|shape| shape.split_once(')'));
    let shape = shape.ok_or("its shape is not a tuple")?.0;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty()).map(str::parse::<u64>);
    let shape =
        axes.collect::<Result<Vec<_>, _>>().map_err(|_| format!("its shape is not a tuple of numbers: {shape}"))?;
    let want = dtype.byte_len(&shape).map_err(|error| error.to_string())?;
    if data.len() as u64 != want {
        return Err(format!("it has {} bytes of elements, but its header requires {want}", data.len()));
    }
    let order = Order { big_endian, first_axis_fastest: field("'fortran_order':")?.starts_with("True") };
    let data = elements(data, &dtype, &shape, order);
    Ok(Array { dtype, shape, data, meta: Meta::new() })
}

/// Returns the dtype, and whether numbers are big-endian.
fn from_descr(descr: &str) -> Option<(DType, bool)> {
    let (order, name) = descr.split_at_checked(1)?;
    let dtype = match name {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => return None,
    };
    "<>|=".contains(order).then_some((dtype, order == ">"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::npy::header;

    #[test]
    fn written_files_are_read_and_bad_files_refused() {
        let shape = [2, 3];
        let Ok(good) = header(&DType::I16, &shape).map(|header| [&header, &[1; 12][..]].concat()) else { return };
        let array = Array { dtype: DType::I16, shape: shape.to_vec(), data: vec![1; 12], meta: Meta::new() };
        assert_eq!(parse(&good), Ok(array));
        for len in 0..good.len() {
            assert!(parse(&good[..len]).is_err(), "{len}");
        }
        let text = String::from_utf8_lossy(&good[10..128]).into_owned();
        for (from, to) in [
            ("'<i2'", "'|O'  "),
            ("(2, 3)", "(2, x)"),
            ("(2, 3)", "(2, 4)"),
            ("'descr'", "'d'    "),
            ("'<i2'", "[('a'"),
        ] {
            let bad = [&good[..10], text.replace(from, to).as_bytes(), &good[128..]].concat();
            assert!(parse(&bad).is_err(), "{to}");
        }
        let huge = text.replace("(2, 3)", "(9223372036854775807, 9)");
        assert!(parse(&[&good[..10], &huge.as_bytes()[..118], &good[128..]].concat()).is_err());
    }
}
