//! Writes `.npz` files: an uncompressed ZIP file with one `.npy` file per array, as `numpy.savez` writes it.

use super::npy;
use crate::convert::pack::array::Array;
use crate::convert::pack::npy::parse;
use ringreel::read::ReadPart;
use std::io::{self, Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Files of at least this size need 64-bit fields in the ZIP.
const LARGE: u64 = u32::MAX as u64 - (1 << 20);

/// Most bytes of an array that is read.
const MAX_ARRAY: u64 = 16 << 30;

/// Reads the arrays of a `.npz` file, compressed or not, with their names, in the order of the file.
///
/// # Errors
/// In words: the file is no complete ZIP file, has no array, has other files than arrays, or holds an array of other
/// elements than numbers.
pub fn read(bytes: &[u8]) -> Result<Vec<(String, Array)>, String> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|error| format!("not a complete .npz file: {error}"))?;
    let mut arrays = Vec::new();
    for n in 0..zip.len() {
        let file = zip.by_index(n).map_err(|error| error.to_string())?;
        let path = file.name().map_err(|error| error.to_string())?.into_owned();
        let name = path.strip_suffix(".npy").ok_or_else(|| format!("{path:?} in it is not an .npy file"))?;
        let mut content = Vec::new();
        let read = file.take(MAX_ARRAY + 1).read_to_end(&mut content);
        read.map_err(|error| format!("array {name:?}: {error}"))?;
        if content.len() as u64 > MAX_ARRAY {
            return Err(format!("array {name:?} is larger than {MAX_ARRAY} bytes"));
        }
        arrays.push((name.to_owned(), parse(&content).map_err(|why| format!("array {name:?}: {why}"))?));
    }
    if arrays.is_empty() { Err("it holds no array".to_owned()) } else { Ok(arrays) }
}

/// Writes all parts of a sample as a `.npz` file. Each is found by its name.
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
