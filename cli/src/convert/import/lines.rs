//! Lines of text, without their ends: each is a sample of bytes.

use super::Import;
use super::ring::Tensor;
use crate::convert::pack::files::each_line;
use crate::convert::pack::inputs::where_they_are;
use ringreel::error::Result;
use ringreel_format::Meta;
use std::path::{Path, PathBuf};

/// Lines that are taken together, at most.
const BATCH: usize = 1024;

/// Imports the lines of the files at `paths`.
///
/// # Errors
/// As [`Import::all`]; a line that is longer than a record can be.
pub fn import(import: &mut Import<'_>, paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        let place = where_they_are(std::slice::from_ref(path));
        let mut batch = Vec::new();
        each_line(path, &mut |number, line| {
            batch.push((number, line));
            if batch.len() < BATCH { Ok(()) } else { take(import, path, &place, &mut batch) }
        })?;
        take(import, path, &place, &mut batch)?;
    }
    Ok(())
}

fn take(import: &mut Import<'_>, path: &Path, place: &str, batch: &mut Vec<(u64, Vec<u8>)>) -> Result<()> {
    let name = |(number, _): &(u64, Vec<u8>)| format!("{place}:{number}");
    import.all(batch, name, |(number, line)| {
        let mut meta = Meta::new();
        meta.set("file", path.to_string_lossy().as_ref());
        meta.set("line", *number);
        Ok((vec![Tensor::bytes(line.clone())], meta))
    })?;
    batch.clear();
    Ok(())
}
