//! Compares a generator's first sample with the samples in the ring, so that generators that disagree on a part's
//! dtype or shape are found when they start, not when a consumer stacks samples.

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::layout::SegmentName;
use crate::ring::Ring;
use crate::segment::reader::{Tail, read_tail};
use ringreel_format::{DType, Schema, Value};
use std::path::Path;

/// Compares `schema`, that of a generator's first sample, with the first segment of the newest generation, or of the
/// generation that fills if the newest has none. Logs a warning if they differ. Parts of dtype bytes may have any
/// length.
///
/// # Errors
/// [`Error::Sample`] if they differ and `strict` is set (STRICT_SCHEMA).
pub(crate) fn compare(ring: &Ring, schema: &Schema, newest: u64, strict: bool) -> Result<()> {
    let dirs = [(newest, ring.layout.read(newest)), (newest + 1, ring.layout.write(newest + 1))];
    let first = dirs.iter().find_map(|(n, dir)| Some((n, first_segment(&*ring.fs, dir)?)));
    let Some((generation, tail)) = first else { return Ok(()) };
    let info = &tail.footer.info;
    let differing = schema.parts.iter().find_map(|here| {
        let there = info.schema.parts.iter().find(|there| there.name == here.name)?;
        let shapes_differ = here.dtype != DType::Bytes && here.shape != there.shape;
        (here.dtype != there.dtype || shapes_differ).then_some((here, there))
    });
    let Some((here, there)) = differing else { return Ok(()) };
    let owner = match info.provenance.get("generator") {
        Some(Value::Text(owner)) => owner.as_str(),
        _ => "an unknown generator",
    };
    let message = format!(
        "part {:?} of this generator's first sample is {} of shape {:?}; in generation {generation} it is {} of shape \
         {:?} (segment {}, written by {owner})",
        here.name, here.dtype, here.shape, there.dtype, there.shape, info.id
    );
    if strict {
        return Err(Error::Sample(format!("{message}; STRICT_SCHEMA: true forbids that")));
    }
    tracing::warn!("{message}: such samples cannot be stacked into one batch; STRICT_SCHEMA: true refuses them");
    Ok(())
}

/// Reads the footer of the segment with the lowest number in a generation's directory. Returns `None` if no segment
/// is readable, since the comparison only serves a warning.
fn first_segment(fs: &dyn Fs, dir: &Path) -> Option<Tail> {
    // A false negative only suppresses the warning.
    let names = fs.list(dir).ok()?;
    let lowest = names.iter().filter_map(|name| SegmentName::parse(name)).min()?;
    read_tail(fs, &dir.join(lowest.to_string())).ok()
}
