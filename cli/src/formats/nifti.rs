//! `.nii`: NIfTI-1, one file, not compressed (`nifti1.h`, nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h).
//!
//! A header of 348 bytes, four bytes that say that no extension follows, the voxels from byte 352 on: little endian, the
//! first axis fastest. So element `[i, j, k]` of the part is voxel (i, j, k) of the image. Nothing is known of the
//! geometry: voxels have the size 1, and the affine is the identity (`sform_code` 2, as nibabel writes it).

use super::invalid;
use ringreel::error::Error;
use ringreel::read::ReadPart;
use ringreel::value_stats::{Number, decoder};
use ringreel_format::DType;
use std::io::{self, Write};

const HEADER: usize = 348;
/// Where the voxels begin (`vox_offset`).
const VOXELS: usize = 352;
/// Voxels that are gathered before they are written.
const BATCH: usize = 1 << 16;

/// What the elements become: NIfTI's code (`DT_*`), bytes of one, and whether they have to be converted first.
fn datatype(dtype: &DType) -> Option<(i16, usize, Conversion)> {
    use Conversion::{AsTheyAre, ToBit, ToFloat};
    Some(match dtype {
        DType::Bytes | DType::U8 => (2, 1, AsTheyAre),
        DType::Bool => (2, 1, ToBit),
        DType::I16 => (4, 2, AsTheyAre),
        DType::I32 => (8, 4, AsTheyAre),
        DType::F32 => (16, 4, AsTheyAre),
        DType::F16 | DType::BF16 => (16, 4, ToFloat),
        DType::C64 => (32, 8, AsTheyAre),
        DType::F64 => (64, 8, AsTheyAre),
        DType::I8 => (256, 1, AsTheyAre),
        DType::U16 => (512, 2, AsTheyAre),
        DType::U32 => (768, 4, AsTheyAre),
        DType::I64 => (1024, 8, AsTheyAre),
        DType::U64 => (1280, 8, AsTheyAre),
        DType::C128 => (1792, 16, AsTheyAre),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    AsTheyAre,
    /// A bool to 0 or 1.
    ToBit,
    /// A float of 16 bits to one of 32, which loses nothing.
    ToFloat,
}

/// Writes a part as a NIfTI-1 image; `about` stands in its header, cut to 79 bytes.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a part that no NIfTI-1 image can hold: of no numbers, without axes or with more
/// than seven, with one that is empty or longer than 32,767. What `out` says.
pub fn write(part: &ReadPart, about: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let refuse = |why: String| invalid(Error::Sample(format!("part {:?} cannot be a NIfTI-1 image: {why}", part.name)));
    let Some((code, bytes, conversion)) = datatype(&part.dtype) else {
        return Err(refuse(format!("its elements are of type {}", part.dtype)));
    };
    if part.shape.is_empty() || part.shape.len() > 7 {
        return Err(refuse(format!("it has {} axes, an image has 1 to 7", part.shape.len())));
    }
    let axes: Vec<i16> = part.shape.iter().filter_map(|axis| i16::try_from(*axis).ok().filter(|n| *n > 0)).collect();
    if axes.len() != part.shape.len() {
        return Err(refuse(format!("its shape is {:?}, an axis of an image has 1 to 32767", part.shape)));
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

/// Calls `each` with the place in memory of every element of a row-major array, in the order in which the first index
/// moves fastest, until it says false.
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

/// The header, and the four bytes behind it. Field names and offsets are those of `nifti1.h`.
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
