//! NumPy's file format, `.npy`: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! A file: `\x93NUMPY`, major and minor version, the header's length (u16; from version 2 on u32), and the header: a
//! Python literal `{'descr': ..., 'fortran_order': ..., 'shape': ..., }`, filled up with spaces so that the elements
//! begin at a multiple of 64 bytes.

use ringreel_format::{DType, PartRef};
use std::ops::Range;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read.
const MAX_HEADER: usize = 1 << 16;

/// What a `.npy` file holds: the type and the shape of its elements, which of its bytes they are, and whether the first
/// axis is the one that changes fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type of the elements, as they are in memory of a little-endian machine.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// The first axis changes fastest, not the last one.
    pub fortran_order: bool,
    /// The elements' bytes are in the order of big-endian machines.
    pub big_endian: bool,
    /// Which bytes of the file are the elements.
    pub data: Range<usize>,
}

/// The header for elements of this type and shape, row-major. None for types that NumPy does not know.
pub fn header(dtype: &DType, shape: &[u64]) -> Option<Vec<u8>> {
    let descr = match dtype {
        DType::Bytes | DType::U8 => "'|u1'".to_owned(),
        DType::Bool => "'|b1'".to_owned(),
        DType::I8 => "'|i1'".to_owned(),
        DType::U16 => "'<u2'".to_owned(),
        DType::U32 => "'<u4'".to_owned(),
        DType::U64 => "'<u8'".to_owned(),
        DType::I16 => "'<i2'".to_owned(),
        DType::I32 => "'<i4'".to_owned(),
        DType::I64 => "'<i8'".to_owned(),
        DType::F16 => "'<f2'".to_owned(),
        // As NumPy writes an array of ml_dtypes.bfloat16.
        DType::BF16 => "'<V2'".to_owned(),
        DType::F32 => "'<f4'".to_owned(),
        DType::F64 => "'<f8'".to_owned(),
        DType::C64 => "'<c8'".to_owned(),
        DType::C128 => "'<c16'".to_owned(),
        DType::Numpy { descr, .. } if descr.chars().any(char::is_control) => return None,
        DType::Numpy { descr, .. } if descr.starts_with('[') => descr.clone(),
        DType::Numpy { descr, .. } if !descr.contains(['\'', '\\']) => format!("'{descr}'"),
        _ => return None,
    };
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let axes = if axes.len() == 1 { format!("{},", axes[0]) } else { axes.join(", ") };
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({axes}), }}");
    // Version 3 is UTF-8, 2 has a longer length: as NumPy itself, the lowest that will do.
    let (version, width) = match text.len() {
        _ if !text.is_ascii() => (3, 4),
        len if len + 128 > usize::from(u16::MAX) => (2, 4),
        _ => (1, 2),
    };
    let before = MAGIC.len() + 2 + width;
    let len = (before + text.len() + 1).next_multiple_of(64) - before;
    text.extend(std::iter::repeat_n(' ', len - text.len() - 1));
    text.push('\n');
    let mut out = [MAGIC, &[version, 0]].concat();
    out.extend_from_slice(&(len as u32).to_le_bytes()[..width]);
    out.extend_from_slice(text.as_bytes());
    Some(out)
}

/// A whole file of these elements. None for types that NumPy does not know.
pub fn file(dtype: &DType, shape: &[u64], data: &[u8]) -> Option<Vec<u8>> {
    let mut out = header(dtype, shape)?;
    out.extend_from_slice(data);
    Some(out)
}

/// What the file `bytes` holds.
///
/// # Errors
/// In words, of files that are none, or hold what is not numbers (objects, records, text, dates).
pub fn parse(bytes: &[u8]) -> Result<Array, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as an .npy file does")?;
    let (width, rest) = match rest {
        [1, _, rest @ ..] => (2, rest),
        [2 | 3, _, rest @ ..] => (4, rest),
        _ => return Err("it has a version of .npy that is not known".to_owned()),
    };
    let (len, rest) = rest.split_at_checked(width).ok_or("its end is missing")?;
    let len = len.iter().rev().fold(0usize, |len, byte| len << 8 | usize::from(*byte));
    if len > MAX_HEADER {
        return Err(format!("its header says to have {len} bytes"));
    }
    let text = rest.get(..len).and_then(|text| std::str::from_utf8(text).ok()).ok_or("its header is not whole")?;
    let field = |name: &str| {
        let at = text.find(&format!("'{name}':"))? + name.len() + 3;
        Some(text[at..].trim_start())
    };
    let (descr, fortran, shape) = match (field("descr"), field("fortran_order"), field("shape")) {
        (Some(descr), Some(fortran), Some(shape)) => (descr, fortran, shape),
        _ => return Err("its header is not NumPy's".to_owned()),
    };
    let descr = descr.strip_prefix('\'').and_then(|descr| descr.split_once('\''));
    let (descr, _) = descr.ok_or("it holds records, which are not packed: only numbers are")?;
    let (dtype, big_endian) =
        from_descr(descr).ok_or_else(|| format!("it holds {descr:?}: only numbers are packed"))?;
    let shape = shape.strip_prefix('(').and_then(|shape| shape.split_once(')')).ok_or("its shape is no tuple")?.0;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty()).map(str::parse::<u64>);
    let shape =
        axes.collect::<Result<Vec<_>, _>>().map_err(|_| format!("its shape ({shape}) is no tuple of numbers"))?;
    let want = dtype.byte_len(&shape).map_err(|error| error.to_string())?;
    let begin = bytes.len() - rest.len() + len;
    let have = (bytes.len() - begin) as u64;
    if have != want {
        return Err(format!("it holds {have} bytes of elements, and its header says {want}"));
    }
    let fortran_order = fortran.starts_with("True");
    Ok(Array { dtype, shape, fortran_order, big_endian, data: begin..bytes.len() })
}

fn from_descr(descr: &str) -> Option<(DType, bool)> {
    let big = descr.starts_with('>');
    let name = descr.strip_prefix(['<', '>', '|', '=']).unwrap_or(descr);
    let name = match name {
        "b1" | "?" => "bool",
        "u1" => "u8",
        "u2" => "u16",
        "u4" => "u32",
        "u8" => "u64",
        "i1" => "i8",
        "i2" => "i16",
        "i4" => "i32",
        "i8" => "i64",
        "f2" => "f16",
        "f4" => "f32",
        "f8" => "f64",
        "c8" => "c64",
        "c16" => "c128",
        _ => return None,
    };
    Some((DType::from_name(name)?, big))
}

/// The elements of an array as the format wants them: little endian, row-major.
pub fn elements(array: &Array, bytes: &[u8]) -> Vec<u8> {
    let mut data = bytes[array.data.clone()].to_vec();
    if array.big_endian {
        swap(&array.dtype, &mut data);
    }
    if array.fortran_order { to_row_major(&data, array.dtype.itemsize() as usize, &array.shape) } else { data }
}

/// Turns the bytes of each number round.
pub fn swap(dtype: &DType, data: &mut [u8]) {
    let complex = matches!(dtype, DType::C64 | DType::C128);
    let size = dtype.itemsize() as usize / if complex { 2 } else { 1 };
    data.chunks_exact_mut(size.max(1)).for_each(<[u8]>::reverse);
}

/// Elements whose first axis changes fastest, put so that the last one does. `shape` stays what it is.
pub fn to_row_major(data: &[u8], size: usize, shape: &[u64]) -> Vec<u8> {
    let shape: Vec<usize> = shape.iter().map(|axis| *axis as usize).collect();
    if shape.iter().filter(|axis| **axis > 1).count() < 2 || data.is_empty() {
        return data.to_vec();
    }
    // The place, in the input, of the element that comes next in the output: an odometer over all axes but the last.
    let mut strides = vec![size; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1] * shape[axis - 1];
    }
    let last = shape.len() - 1;
    let mut out = Vec::with_capacity(data.len());
    let mut at = vec![0; last];
    loop {
        let row: usize = at.iter().zip(&strides).map(|(n, stride)| n * stride).sum();
        for n in 0..shape[last] {
            let from = row + n * strides[last];
            out.extend_from_slice(&data[from..from + size]);
        }
        let Some(axis) = (0..last).rev().find(|axis| at[*axis] + 1 < shape[*axis]) else { return out };
        at[axis] += 1;
        at[axis + 1..].fill(0);
    }
}

/// The part that an array becomes.
pub fn part<'a>(array: &'a Array, elements: &'a [u8]) -> PartRef<'a> {
    PartRef::new(array.dtype.clone(), &array.shape, elements)
}
