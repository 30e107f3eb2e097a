//! Finds the sample with an id, or the generation with a number, in a ring.

use super::Subject;
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, surely};
use ringreel::layout::{GenerationDir, Layout, is_owner, read_generations, sealed_id};
use ringreel::manifest::store::Manifests;
use ringreel::segment::SampleId;
use ringreel_format::SegmentId;
use std::io;
use std::sync::Arc;

/// Returns generation `n` of a ring, readable or filling.
///
/// # Errors
/// The generation does not exist (any more or yet); the filesystem's errors.
pub fn generation(fs: &dyn Fs, layout: &Layout, n: u64) -> Result<Subject> {
    for dir in [GenerationDir::Read(n), GenerationDir::Write(n)] {
        if fs.exists(&layout.generation(dir))? {
            return Ok(Subject::Generation(layout.clone(), dir));
        }
    }
    let root = layout.root().display();
    let why = if fs.exists(&layout.manifest(n))? {
        "it was removed, and only its manifest is left"
    } else {
        "`ringreel inspect` without --generation lists the existing ones"
    };
    Err(Error::Sample(format!("{root} has no generation {n}: {why}")))
}

/// Returns the ids of the segments in a ring: those listed by manifests, and finished ones in staging. Skips manifests
/// that cannot be used.
///
/// # Errors
/// The filesystem's errors.
pub fn segments(fs: &Arc<dyn Fs>, layout: &Layout) -> Result<Vec<SegmentId>> {
    let manifests = Manifests::new(fs.clone(), layout.clone());
    let mut found = Vec::new();
    for n in read_generations(&fs.list(layout.root())?) {
        match manifests.get(n) {
            Ok(Some(manifest)) => found.extend(manifest.segments.iter().map(|entry| entry.id)),
            Ok(None) | Err(Error::Manifest { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for owner in owners(fs, layout)? {
        // The directory may be unreadable or removed. (It was just listed, so a false "not found" is excluded.)
        let names = fs.list(&layout.staging_of(&owner)).unwrap_or_default();
        found.extend(names.iter().filter_map(|name| sealed_id(name)));
    }
    Ok(found)
}

/// Returns the names of the owners' directories in staging.
fn owners(fs: &Arc<dyn Fs>, layout: &Layout) -> Result<Vec<String>> {
    let dir = layout.staging();
    match surely(&**fs, &dir, || fs.list(&dir)) {
        Err(error) if error.is_gone() || error.source.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        listed => Ok(listed?.into_iter().filter(|owner| is_owner(owner)).collect()),
    }
}

/// Returns what holds the sample with this id: the newest generation that lists it, or a finished segment in staging that
/// no manifest lists yet. Returns `None` if the ring does not have it (any more). Skips manifests that cannot be used.
///
/// # Errors
/// The filesystem's errors.
pub fn holder(fs: &Arc<dyn Fs>, layout: &Layout, id: SampleId) -> Result<Option<Subject>> {
    let manifests = Manifests::new(fs.clone(), layout.clone());
    let mut there: Vec<u64> = read_generations(&fs.list(layout.root())?).collect();
    there.sort_unstable();
    for n in there.into_iter().rev() {
        match manifests.get(n) {
            Ok(Some(manifest)) if manifest.lists(id.segment) => {
                return Ok(Some(Subject::Generation(layout.clone(), GenerationDir::Read(n))));
            }
            Ok(_) | Err(Error::Manifest { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for owner in owners(fs, layout)? {
        let sealed = layout.sealed(&owner, id.segment);
        // The directory may be unreadable or removed.
        if fs.exists(&sealed).unwrap_or(false) {
            return Ok(Some(Subject::File(sealed)));
        }
    }
    Ok(None)
}
