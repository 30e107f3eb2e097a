//! Reads single-file NIfTI of versions 1 and 2 (`.nii`, `.nii.gz`): <https://nifti.nimh.nih.gov/nifti-1> (`nifti1.h`) and
//! `nifti2.h`. Voxels are read as stored, with axes in the order x, y, z, ... as in nibabel's `img.dataobj`. Scaling and
//! affine are put into the meta, not applied.
//!
//! | field | version 1 | version 2 |
//! |---|---|---|
//! | `sizeof_hdr`, i32: 348 or 540, and with it the byte order | 0 | 0 |
//! | `magic` | 344, `n+1\0` | 4, `n+2\0` |
//! | `dim`, eight numbers | 40, i16 | 16, i64 |
//! | `datatype`, i16 | 70 | 12 |
//! | `pixdim`, eight numbers | 76, f32 | 104, f64 |
//! | `vox_offset` | 108, f32 | 168, i64 |
//! | `scl_slope`, `scl_inter` | 112, f32 | 176, f64 |
//! | `sform_code` | 254, i16 | 348, i32 |
//! | `srow_x`, `srow_y`, `srow_z`, four numbers each | 280, f32 | 400, f64 |

use super::array::{Array, Order, elements};
use byteorder::{BE, ByteOrder, LE};
use ringreel_format::{DType, Meta, Value};

/// Offsets of the fields of a version.
struct Fields {
    len: usize,
    magic: (usize, &'static [u8; 4]),
    dim: usize,
    datatype: usize,
    pixdim: usize,
    vox_offset: usize,
    scl_slope: usize,
    sform_code: usize,
    srow: usize,
    wide: bool,
}

const V1: Fields = Fields {
    len: 348,
    magic: (344, b"n+1\0"),
    dim: 40,
    datatype: 70,
    pixdim: 76,
    vox_offset: 108,
    scl_slope: 112,
    sform_code: 254,
    srow: 280,
    wide: false,
};
const V2: Fields = Fields {
    len: 540,
    magic: (4, b"n+2\0"),
    dim: 16,
    datatype: 12,
    pixdim: 104,
    vox_offset: 168,
    scl_slope: 176,
    sform_code: 348,
    srow: 400,
    wide: true,
};

/// Parses the volume in an uncompressed file.
///
/// # Errors
/// A file that is not NIfTI, is truncated, or has an unsupported type of voxels (colours, long doubles).
pub fn parse(bytes: &[u8]) -> Result<Array, String> {
    match bytes.first_chunk::<4>().map(|size| (i32::from_le_bytes(*size), i32::from_be_bytes(*size))) {
        Some((348, _)) => volume::<LE>(bytes, &V1, false),
        Some((_, 348)) => volume::<BE>(bytes, &V1, true),
        Some((540, _)) => volume::<LE>(bytes, &V2, false),
        Some((_, 540)) => volume::<BE>(bytes, &V2, true),
        _ => Err("not a NIfTI file".to_owned()),
    }
}

fn volume<O: ByteOrder>(bytes: &[u8], fields: &Fields, big_endian: bool) -> Result<Array, String> {
    let header = bytes.get(..fields.len).ok_or("its header is truncated")?;
    if header[fields.magic.0..][..4] != fields.magic.1[..] {
        return Err("not a single-file NIfTI (.nii): pairs of .hdr and .img are not supported".to_owned());
    }
    let wide = fields.wide;
    let dim = |n: usize| match wide {
        true => O::read_i64(&header[fields.dim + 8 * n..]),
        false => i64::from(O::read_i16(&header[fields.dim + 2 * n..])),
    };
    let float = |at: usize, n: usize| match wide {
        true => O::read_f64(&header[at + 8 * n..]),
        false => f64::from(O::read_f32(&header[at + 4 * n..])),
    };
    let axes = usize::try_from(dim(0)).ok().filter(|axes| (1..=7).contains(axes)).ok_or("invalid number of axes")?;
    let shape = (1..=axes).map(|n| u64::try_from(dim(n))).collect::<Result<Vec<u64>, _>>();
    let shape = shape.map_err(|_| "an axis has a negative length")?;
    let dtype = datatype(O::read_i16(&header[fields.datatype..]))?;
    let begin = match wide {
        true => usize::try_from(O::read_i64(&header[fields.vox_offset..])).ok(),
        false => Some(float(fields.vox_offset, 0)).filter(|at| (0.0..1e15).contains(at)).map(|at| at as usize),
    };
    let begin = begin.ok_or("invalid offset of the voxels")?.max(fields.len);
    let want = dtype.byte_len(&shape).map_err(|error| error.to_string())?;
    let data = usize::try_from(want).ok().and_then(|len| bytes.get(begin..)?.get(..len));
    let data = data.ok_or_else(|| format!("truncated: expected {want} bytes of voxels at byte {begin}"))?;
    let data = elements(data, &dtype, &shape, Order { big_endian, first_axis_fastest: true });

    let mut meta = Meta::new();
    let list = |values: Vec<f64>| Value::Array(values.into_iter().map(Value::Float).collect());
    meta.set("pixdim", list((1..=axes).map(|n| float(fields.pixdim, n)).collect()));
    let size = if wide { 8 } else { 4 };
    let (slope, inter) = (float(fields.scl_slope, 0), float(fields.scl_slope + size, 0));
    if slope != 0.0 && slope.is_finite() && (slope, inter) != (1.0, 0.0) {
        meta.set("scl_slope", slope);
        meta.set("scl_inter", inter);
    }
    let code =
        if wide { O::read_i32(&header[fields.sform_code..]) } else { O::read_i16(&header[fields.sform_code..]).into() };
    if code > 0 {
        meta.set(
            "affine",
            Value::Array((0..3).map(|row| list((0..4).map(|n| float(fields.srow, 4 * row + n)).collect())).collect()),
        );
    }
    Ok(Array { dtype, shape, data, meta })
}

fn datatype(code: i16) -> Result<DType, String> {
    Ok(match code {
        2 => DType::U8,
        4 => DType::I16,
        8 => DType::I32,
        16 => DType::F32,
        32 => DType::C64,
        64 => DType::F64,
        256 => DType::I8,
        512 => DType::U16,
        768 => DType::U32,
        1024 => DType::I64,
        1280 => DType::U64,
        1792 => DType::C128,
        _ => return Err(format!("its voxels have the NIfTI type {code}, which is not supported")),
    })
}
