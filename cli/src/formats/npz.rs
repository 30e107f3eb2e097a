//! Writes `.npz` files: an uncompressed ZIP file with one `.npy` file per array, as `numpy.savez` writes it.

use super::npy;
use ringreel::read::ReadPart;
use std::io::{self, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Files of at least this size need 64-bit fields in the ZIP.
const LARGE: u64 = u32::MAX as u64 - (1 << 20);

/// Writes all parts of a sample as a `.npz` file, under their names.
///
/// # Errors
/// As [`npy::write`]; a part name that a ZIP file cannot contain; an error of `out`. No output is written if a part
/// cannot be represented.
pub fn write(parts: &[ReadPart], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for part in parts {
        npy::header(&part.dtype, &part.shape).and_then(|_| part.data()).map_err(super::invalid)?;
        if part.name.contains('\0') || part.name.len() > 60_000 {
            let what = format!("the name of part {:?} is not allowed in a ZIP file", part.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    let mut zip = ZipWriter::new_stream(out);
    for part in parts {
        let options =
            SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(part.len() >= LARGE);
        zip.start_file(format!("{}.npy", part.name), options).map_err(io::Error::from)?;
        npy::write(part, &mut zip)?;
    }
    zip.finish().map_err(io::Error::from)?.flush()
}
