//! Writes `.nii` files: NIfTI-1, single file, uncompressed (`nifti1.h`,
//! nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h).
//!
//! The file is a header of 348 bytes, four bytes that say that no extension follows, and from byte 352 the voxels:
//! little endian, the first axis fastest. So element `[i, j, k]` of the part is voxel (i, j, k) of the image. The
//! geometry is unknown: voxels have size 1, and the affine is the identity (`sform_code` 2, as nibabel writes it).

use super::invalid;
use ringreel::error::Error;
use ringreel::read::ReadPart;
use ringreel::value_stats::{Number, decoder};
use ringreel_format::DType;
use std::io::{self, Write};

const HEADER: usize = 348;
/// Offset of the voxels (`vox_offset`).
const VOXELS: usize = 352;
/// Number of voxels per write.
const BATCH: usize = 1 << 16;

/// The NIfTI data type of the elements: code (`DT_*`), bytes per voxel, and the conversion needed.
fn datatype(dtype: &DType) -> Option<(i16, usize, Conversion)> {
    use Conversion::{ToBit, ToFloat, Unchanged};
    Some(match dtype {
        DType::Bytes | DType::U8 => (2, 1, Unchanged),
        DType::Bool => (2, 1, ToBit),
        DType::I16 => (4, 2, Unchanged),
        DType::I32 => (8, 4, Unchanged),
        DType::F32 => (16, 4, Unchanged),
        DType::F16 | DType::BF16 => (16, 4, ToFloat),
        DType::C64 => (32, 8, Unchanged),
        DType::F64 => (64, 8, Unchanged),
        DType::I8 => (256, 1, Unchanged),
        DType::U16 => (512, 2, Unchanged),
        DType::U32 => (768, 4, Unchanged),
        DType::I64 => (1024, 8, Unchanged),
        DType::U64 => (1280, 8, Unchanged),
        DType::C128 => (1792, 16, Unchanged),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    Unchanged,
    /// Converts a bool to 0 or 1.
    ToBit,
    /// Converts a 16-bit float to 32 bits, without loss.
    ToFloat,
}

/// Writes a part as a NIfTI-1 image. The header contains `about`, cut to 79 bytes.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a part that NIfTI-1 cannot represent: elements that are not numbers, no axes or
/// more than seven, an axis that is empty or longer than 32,767. An error of `out`.
pub fn write(part: &ReadPart, about: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let refuse = |why: String| invalid(Error::Sample(format!("part {:?} cannot be a NIfTI-1 image: {why}", part.name)));
    let Some((code, bytes, conversion)) = datatype(&part.dtype) else {
        return Err(refuse(format!("elements of type {} are not supported", part.dtype)));
    };
    if part.shape.is_empty() || part.shape.len() > 7 {
        return Err(refuse(format!("it has {} axes, NIfTI-1 allows 1 to 7", part.shape.len())));
    }
    let axes: Vec<i16> = part.shape.iter().filter_map(|axis| i16::try_from(*axis).ok().filter(|n| *n > 0)).collect();
    if axes.len() != part.shape.len() {
        return Err(refuse(format!("its shape is {:?}, NIfTI-1 allows axes of 1 to 32767", part.shape)));
    }
    let data = part.data().map_err(invalid)?;
    out.write_all(&header(&axes, code, bytes, about))?;
    let (itemsize, decode) = (part.dtype.itemsize() as usize, decoder(&part.dtype));
    let mut batch = Vec::with_capacity(BATCH * bytes);
    let mut failed = Ok(());
    fastest_first(&part.shape, |n| {
        let voxel = &data[n * itemsize..][..itemsize];
        match (conversion, decode.map(|decode| decode(voxel))) {
            (Conversion::ToBit, _) => batch.push(u8::from(voxel[0] != 0)),
            (Conversion::ToFloat, Some(Number::Float(x))) => batch.extend_from_slice(&(x as f32).to_le_bytes()),
            _ => batch.extend_from_slice(voxel),
        }
        if batch.len() >= BATCH * bytes {
            failed = out.write_all(&batch);
            batch.clear();
        }
        failed.is_ok()
    });
    failed?;
    out.write_all(&batch)?;
    out.flush()
}

/// Calls `each` with the memory position of every element of a row-major array, first index fastest, until it returns
/// false.
fn fastest_first(shape: &[u64], mut each: impl FnMut(usize) -> bool) {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as usize;
    }
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    loop {
        if !each(at) {
            return;
        }
        let mut axis = 0;
        loop {
            if axis == shape.len() {
                return;
            }
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis] as usize;
            index[axis] = 0;
            axis += 1;
        }
    }
}

/// The header and the four bytes after it. Field names and offsets are those of `nifti1.h`.
fn header(axes: &[i16], code: i16, bytes: usize, about: &str) -> [u8; VOXELS] {
    let mut out = [0; VOXELS];
    let mut put = |at: usize, field: &[u8]| out[at..at + field.len()].copy_from_slice(field);
    put(0, &(HEADER as i32).to_le_bytes()); // sizeof_hdr
    put(40, &(axes.len() as i16).to_le_bytes()); // dim[0]
    for n in 0..7 {
        let len = axes.get(n).copied().unwrap_or(1);
        put(42 + 2 * n, &len.to_le_bytes()); // dim[1..8]
        put(80 + 4 * n, &1f32.to_le_bytes()); // pixdim[1..8]
    }
    put(70, &code.to_le_bytes()); // datatype
    put(72, &(8 * bytes as i16).to_le_bytes()); // bitpix
    put(76, &1f32.to_le_bytes()); // pixdim[0], qfac
    put(108, &(VOXELS as f32).to_le_bytes()); // vox_offset
    // scl_slope (112) is 0: voxels are not scaled
    let cut = (0..=about.len().min(79)).rev().find(|n| about.is_char_boundary(*n)).unwrap_or(0);
    put(148, &about.as_bytes()[..cut]); // descrip
    put(254, &2i16.to_le_bytes()); // sform_code: NIFTI_XFORM_ALIGNED_ANAT
    for row in 0..3 {
        put(280 + 20 * row, &1f32.to_le_bytes()); // srow_x[0], srow_y[1], srow_z[2]
    }
    put(344, b"n+1\0"); // magic
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_index_moves_fastest() {
        let mut order = Vec::new();
        fastest_first(&[2, 3], |n| {
            order.push(n);
            true
        });
        assert_eq!(order, [0, 3, 1, 4, 2, 5]);
        let mut count = 0;
        fastest_first(&[1, 4, 1, 3], |_| {
            count += 1;
            count < 7
        });
        assert_eq!(count, 7);
    }
}
