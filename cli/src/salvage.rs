//! `ringreel repair --salvage`

use super::output::{json_line, line, plain_path, progress_bytes};
use ringreel::humanize::human_bytes;
use ringreel::ring::Ring;
use ringreel_ops::inspect::salvage::salvage;
use serde_json::json;
use std::path::Path;

/// Salvages the damaged segments of `ring` into `dir`, and prints one line for each.
pub fn run(ring: &Ring, dir: &Path, json: bool) -> anyhow::Result<()> {
    let bar = progress_bytes("checking");
    let found = salvage(&ring.fs, &ring.layout, dir, &|bytes| bar.set_length(bytes), &|more| bar.inc(more))?;
    bar.finish_and_clear();
    for one in &found {
        let (path, to) = (plain_path(&one.path), one.to.as_deref().map(plain_path));
        if json {
            json_line(
                &json!({ "salvaged": { "path": one.path.to_string_lossy(), "to": one.to.as_deref().map(std::path::Path::to_string_lossy), "samples": one.samples, "of": one.of } }),
            )?;
            continue;
        }
        let (samples, of) = (one.samples, one.of);
        line(&match to {
            Some(to) => format!("salvaged {path}: {samples} of {of} samples, in {to} ({})", human_bytes(one.bytes)),
            None => format!("not salvaged {path}: none of its {of} samples is intact"),
        })?;
    }
    Ok(())
}
