//! Finds generations that are missing although no role removes them: those that KEEP covers, and
//! those with held-out samples.

use ringreel::config::MAX_KEEP;
use ringreel::error::{Error, Result};
use ringreel::fs::Fs;
use ringreel::layout::{Layout, read_generations};
use ringreel::manifest::store::Manifests;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A generation whose manifest or directory is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The number of the generation.
    pub generation: u64,
    /// The missing path.
    pub path: PathBuf,
    /// Number of samples that its manifest lists; `None` if the manifest is missing.
    pub samples: Option<u64>,
}

/// Returns the missing generations, oldest first, among those that are always kept: the newest, the
/// `keep` before it, and those with any of the ring's first `validation` samples. The scan for
/// held-out samples ends at a damaged manifest.
///
/// # Errors
/// Filesystem errors.
pub fn missing(
    fs: &dyn Fs,
    layout: &Layout,
    manifests: &Manifests,
    keep: u64,
    validation: u64,
) -> Result<Vec<Missing>> {
    let newest = manifests.newest_listed()?;
    let oldest = newest.saturating_sub(keep);
    let mut found = Vec::new();
    let mut look = |generation: u64| -> Result<bool> {
        let manifest = match manifests.get(generation) {
            Err(Error::Manifest { .. }) => return Ok(false),
            manifest => manifest?,
        };
        let Some(manifest) = manifest else {
            found.push(Missing { generation, path: layout.manifest(generation), samples: None });
            return Ok(false);
        };
        let (dir, samples) = (layout.read(generation), manifest.summary.samples);
        if samples > 0 && !fs.exists(&dir)? {
            found.push(Missing { generation, path: dir, samples: Some(samples) });
        }
        Ok(manifest.summary.total_samples < validation)
    };
    // The held-out samples are the first ones of the ring.
    let mut held_out = 1;
    while validation > 0 && held_out < oldest && look(held_out)? {
        held_out += 1;
    }
    for generation in oldest..=newest {
        look(generation)?;
    }
    // A generation that was reclaimed meanwhile is not missing.
    let newest = if found.is_empty() { newest } else { manifests.newest_listed()? };
    found.retain(|missing| missing.generation < oldest || missing.generation + keep >= newest);
    Ok(found)
}

/// Returns the generations, oldest first, whose directory is missing although an older generation
/// still has one; for callers that do not know KEEP. A gap is not necessarily a loss: a run that
/// still has to read one generation keeps only that one, and later ones may be reclaimed. The
/// newest generation and held-out ones are left to [`missing`].
///
/// # Errors
/// Filesystem errors.
pub fn gaps(fs: &dyn Fs, layout: &Layout, manifests: &Manifests, validation: u64) -> Result<Vec<u64>> {
    let newest = manifests.newest_listed()?;
    let names = fs.list(layout.root())?;
    let there: BTreeSet<u64> = read_generations(&names).collect();
    let trained_on = |n: u64| -> Result<bool> {
        let manifest = manifests.usable(n)?;
        Ok(manifest.is_some_and(|it| it.summary.samples > 0 && it.held_out(validation).is_empty()))
    };
    let mut gaps = Vec::new();
    let mut follows = false;
    for n in newest.saturating_sub(MAX_KEEP)..newest {
        if there.contains(&n) {
            follows = follows || trained_on(n)?;
        } else if follows && trained_on(n)? && !fs.exists(&layout.read(n))? {
            gaps.push(n);
        }
    }
    // If a generation was reclaimed meanwhile, those before it are gone too, so there is no gap.
    if gaps.is_empty() || manifests.newest_listed()? == newest { Ok(gaps) } else { Ok(Vec::new()) }
}
