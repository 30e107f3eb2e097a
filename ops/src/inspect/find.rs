//! Where in a ring the sample with an id is, or a generation with a number.

use super::Subject;
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, surely};
use ringreel::layout::{GenerationDir, Layout, is_owner, read_generations, sealed_id};
use ringreel::manifest::store::Manifests;
use ringreel::segment::SampleId;
use ringreel_format::SegmentId;
use std::io;
use std::sync::Arc;

/// Generation `n` of a ring: readable, or filling.
///
/// # Errors
/// There is none of this number (any more, or yet); what the filesystem says.
pub fn generation(fs: &dyn Fs, layout: &Layout, n: u64) -> Result<Subject> {
    for dir in [GenerationDir::Read(n), GenerationDir::Write(n)] {
        if fs.exists(&layout.generation(dir))? {
            return Ok(Subject::Generation(layout.clone(), dir));
        }
    }
    let root = layout.root().display();
    let why = if fs.exists(&layout.manifest(n))? {
        "its samples were removed, its manifest is all that is left of it"
    } else {
        "`ringreel inspect` without --generation lists those that are there"
    };
    Err(Error::Sample(format!("{root} has no generation {n}: {why}")))
}

/// The ids of the segments in a ring: those that the manifests of its generations list, and the
/// finished ones of its generators.
///
/// # Errors
/// What the filesystem says. Manifests that cannot be used are left out.
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
        // What is in a directory of another user, or in none, is not known. (Just listed, so no wrong no.)
        let names = fs.list(&layout.staging_of(&owner)).unwrap_or_default();
        found.extend(names.iter().filter_map(|name| sealed_id(name)));
    }
    Ok(found)
}

/// The names of the directories in staging.
fn owners(fs: &Arc<dyn Fs>, layout: &Layout) -> Result<Vec<String>> {
    let dir = layout.staging();
    match surely(&**fs, &dir, || fs.list(&dir)) {
        Err(error) if error.is_gone() || error.source.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        listed => Ok(listed?.into_iter().filter(|owner| is_owner(owner)).collect()),
    }
}

/// What in a ring holds the sample with this id: the newest generation that lists it, or the finished segment of a
/// generator that no manifest lists yet. None: it is not here (any more).
///
/// # Errors
/// What the filesystem says. Manifests that cannot be used are left out.
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
        // Of a directory that is somebody else's, or none, it is not known.
        if fs.exists(&sealed).unwrap_or(false) {
            return Ok(Some(Subject::File(sealed)));
        }
    }
    Ok(None)
}
