//! Reads the array in a file, and converts its elements to little-endian, row-major order.

use super::{nifti, npy, read_file};
use flate2::read::MultiGzDecoder;
use ringreel_format::{DType, Meta};
use std::io::Read;
use std::path::Path;

/// Largest file, and largest decompressed file, in bytes.
const MAX_FILE: u64 = 1 << 40;
const MAX_UNPACKED: u64 = 16 << 30;

/// An array with meta.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// The elements, little-endian, row-major.
    pub data: Vec<u8>,
    /// Other values in the file: of NIfTI, voxel sizes, affine and scaling.
    pub meta: Meta,
}

/// Reads the array in a file: `.nii` and `.nii.gz` are NIfTI, all others `.npy`.
///
/// # Errors
/// A file of another format, or damaged; the error as text.
pub fn read(path: &Path) -> Result<Array, String> {
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().to_lowercase());
    if name.ends_with(".nii.gz") {
        let packed = read_file(path, MAX_FILE)?;
        let mut bytes = Vec::new();
        let unpacked = MultiGzDecoder::new(&packed[..]).take(MAX_UNPACKED).read_to_end(&mut bytes);
        unpacked.map_err(|error| format!("cannot decompress: {error}"))?;
        return nifti::parse(&bytes);
    }
    let bytes = read_file(path, MAX_FILE)?;
    if name.ends_with(".nii") { nifti::parse(&bytes) } else { npy::parse(&bytes) }
}

/// The order of elements in a file.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Whether numbers are big-endian.
    pub big_endian: bool,
    /// Whether the first axis changes fastest (column-major).
    pub first_axis_fastest: bool,
}

/// Converts elements to little-endian, row-major order.
pub fn elements(data: &[u8], dtype: &DType, shape: &[u64], order: Order) -> Vec<u8> {
    let size = dtype.itemsize() as usize;
    let mut data = if order.first_axis_fastest { to_row_major(data, size, shape) } else { data.to_vec() };
    if order.big_endian {
        let parts = if matches!(dtype, DType::C64 | DType::C128) { 2 } else { 1 };
        data.chunks_exact_mut(size / parts).for_each(<[u8]>::reverse);
    }
    data
}

/// Converts column-major to row-major order. `data` has the length that `shape` requires.
fn to_row_major(data: &[u8], size: usize, shape: &[u64]) -> Vec<u8> {
    let shape: Vec<usize> = shape.iter().map(|axis| *axis as usize).collect();
    if shape.iter().filter(|axis| **axis > 1).count() < 2 || data.is_empty() {
        return data.to_vec();
    }
    let mut strides = vec![size; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1] * shape[axis - 1];
    }
    // One output row at a time; `at` is the index of the row over all axes except the last.
    let last = shape.len() - 1;
    let mut out = Vec::with_capacity(data.len());
    let mut at = vec![0; last];
    loop {
        let row: usize = at.iter().zip(&strides).map(|(n, stride)| n * stride).sum();
        for n in 0..shape[last] {
            out.extend_from_slice(&data[row + n * strides[last]..][..size]);
        }
        let Some(axis) = (0..last).rev().find(|axis| at[*axis] + 1 < shape[*axis]) else { return out };
        at[axis] += 1;
        at[axis + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_axis_becomes_the_slowest() {
        // Element (i, j, k) is 100 i + 10 j + k.
        let shape = [2usize, 3, 4];
        let fortran: Vec<u8> =
            (0..4).flat_map(|k| (0..3).flat_map(move |j| (0..2).map(move |i| 100 * i + 10 * j + k))).collect();
        let rows: Vec<u8> =
            (0..2).flat_map(|i| (0..3).flat_map(move |j| (0..4).map(move |k| 100 * i + 10 * j + k))).collect();
        let shape: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
        let order = Order { big_endian: false, first_axis_fastest: true };
        assert_eq!(elements(&fortran, &DType::U8, &shape, order), rows);
        let wide: Vec<u8> = fortran.iter().flat_map(|x| [0, *x]).collect();
        let expected: Vec<u8> = rows.iter().flat_map(|x| [*x, 0]).collect();
        let order = Order { big_endian: true, first_axis_fastest: true };
        assert_eq!(elements(&wide, &DType::U16, &shape, order), expected);
    }
}
