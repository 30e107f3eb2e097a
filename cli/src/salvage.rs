//! `ringreel repair --salvage`

use super::output::{json_line, line, progress_bytes};
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
        if json {
            json_line(
                &json!({ "salvaged": { "path": one.path.to_string_lossy(), "to": one.to.as_deref().map(std::path::Path::to_string_lossy), "samples": one.samples, "of": one.of } }),
            )?;
            continue;
        }
        line(&crate::render::repair::salvaged(one))?;
    }
    Ok(())
}
