//! Generations that must be there and are not: no role of the ring removes one that KEEP covers, or
//! that holds samples which are held out.

use crate::config::MAX_KEEP;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::layout::{Layout, read_generations};
use crate::manifest::store::Manifests;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A generation of which the manifest or the directory is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its number.
    pub generation: u64,
    /// The path that is missing.
    pub path: PathBuf,
    /// How many samples its manifest lists; none if the manifest is missing.
    pub samples: Option<u64>,
}

/// Returns the generations, oldest first, that must be there and are not: of the newest one and
/// `keep` before it, and of those with any of the ring's first `validation` samples. A manifest that
/// is damaged is not looked behind.
///
/// # Errors
/// What the filesystem says.
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
    // Held-out samples are the ring's first ones.
    let mut held_out = 1;
    while validation > 0 && held_out < oldest && look(held_out)? {
        held_out += 1;
    }
    for generation in oldest..=newest {
        look(generation)?;
    }
    // What was reclaimed meanwhile is not missing.
    let newest = if found.is_empty() { newest } else { manifests.newest_listed()? };
    found.retain(|missing| missing.generation < oldest || missing.generation + keep >= newest);
    Ok(found)
}

/// Returns the generations, oldest first, whose directories are not there although that of an older
/// one is, for a caller that does not know KEEP. They may have been reclaimed: a run that has still to
/// read a generation keeps that one alone. The newest generation and held-out ones are left to
/// [`missing`].
///
/// # Errors
/// What the filesystem says.
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
    // What was reclaimed meanwhile is no gap: the generations before it are gone, too.
    if gaps.is_empty() || manifests.newest_listed()? == newest { Ok(gaps) } else { Ok(Vec::new()) }
}
