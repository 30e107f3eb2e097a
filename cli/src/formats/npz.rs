//! `.npz`: a ZIP file of one `.npy` file for each array, not compressed, as `numpy.savez` writes it.

use super::npy;
use ringreel::read::ReadPart;
use std::io::{self, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// From this size on a file in the ZIP needs fields of 64 bits.
const LARGE: u64 = u32::MAX as u64 - (1 << 20);

/// Writes all parts of a sample as a `.npz` file. Each is found by its name.
///
/// # Errors
/// As [`npy::write`]; a name that no file in a ZIP can have; what `out` says. Nothing is written where a part cannot be.
pub fn write(parts: &[ReadPart], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for part in parts {
        npy::header(&part.dtype, &part.shape).and_then(|_| part.data()).map_err(super::invalid)?;
        if part.name.contains('\0') || part.name.len() > 60_000 {
            let what = format!("no file in a ZIP can have the name of part {:?}", part.name);
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
