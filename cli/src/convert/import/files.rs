//! Arrays, volumes and images in files: a sample has one file for each of its parts.

use super::picture;
use super::ring::Tensor;
use super::{Import, Loaded, Refusal};
use crate::convert::pack::array::{self, Array};
use crate::convert::pack::inputs::{Input, where_they_are};
use crate::convert::pack::{MAX_RECORD, read_file};
use ringreel::error::Result;
use ringreel_format::{Meta, Value};
use std::path::Path;

/// Endings of images that are decoded.
pub const IMAGES: [&str; 3] = [".jpg", ".jpeg", ".png"];

/// Whether `path` ends as the file of an image does.
pub fn is_image(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    IMAGES.iter().any(|end| name.ends_with(end))
}

/// Imports one sample for each of `inputs`, whose files are those of the parts `names`.
///
/// # Errors
/// As [`Import::all`].
pub fn import(import: &mut Import<'_>, inputs: &[Input], names: &[String], options: &picture::Options) -> Result<()> {
    import.all(inputs, |input| where_they_are(&input.files), |input| load(input, names, options))
}

fn load(input: &Input, names: &[String], options: &picture::Options) -> Loaded {
    let (mut parts, mut about) = (Vec::new(), Meta::new());
    for (path, name) in input.files.iter().zip(names) {
        let (part, mut meta) = read(path, options).map_err(|why| Refusal::of(path, why))?;
        meta.set("file", path.to_string_lossy().as_ref());
        about.set(name.as_str(), Value::Map(meta));
        parts.push(part);
    }
    let mut meta = Meta::new();
    meta.set("input", input.stem.as_str());
    meta.set("files", Value::Map(about));
    Ok((parts, meta))
}

fn read(path: &Path, options: &picture::Options) -> std::result::Result<(Tensor, Meta), String> {
    if is_image(path) {
        return Ok((picture::tensor(read_file(path, MAX_RECORD)?, options)?, Meta::new()));
    }
    let Array { dtype, shape, data, meta } = array::read(path)?;
    Ok((Tensor { dtype, shape, data }, meta))
}
