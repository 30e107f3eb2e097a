//! Lists what a manager would remove, with its size, and removes it by the manager's code.

use ringreel::coordination::if_available;
use ringreel::error::{Error, Result};
use ringreel::layout::{GenerationDir, SegmentName, is_owner, sealed_id};
use ringreel::manifest::Manifest;
use ringreel::ring::Ring;
use ringreel::segment::reader::read_tail;
use ringreel::swap::adopt::{UNFINISHED_GRACE_LEASES, is_left_for_later};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file or directory that no process needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Its path.
    pub path: PathBuf,
    /// Why no process needs it.
    pub why: Unneeded,
    /// Number of files in it.
    pub files: u64,
    /// Bytes that its removal frees.
    pub bytes: u64,
    /// Why it cannot be removed.
    pub stays: Option<Stays>,
}

/// Why something is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unneeded {
    /// A generation older than the newest and KEEP more; the value of KEEP.
    BeyondKeep(u64),
    /// A directory `write.<n>` whose generation is already promoted.
    PromotedAlready,
    /// It is in the trash.
    Trash,
    /// An unfinished file of a dead owner.
    Begun,
    /// An empty directory of a dead owner.
    Empty,
}

/// Why something cannot be removed. The texts are from the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stays {
    /// It has a segment that may be undelivered.
    Needed(String),
    /// It cannot be examined.
    Refused(String),
}

/// Lists what [`gc`](gc()) would remove now.
///
/// # Errors
/// The filesystem's errors.
pub fn garbage(ring: &Ring) -> Result<Vec<Garbage>> {
    let newest = ring.manifests.newest_listed()?;
    let mut found = Vec::new();
    for (name, dir) in ring.retirable(newest)? {
        let path = ring.layout.root().join(&name);
        let (why, manifest) = match dir {
            GenerationDir::Read(g) => (Unneeded::BeyondKeep(ring.settings.keep), known(ring, g)),
            GenerationDir::Write(_) => (Unneeded::PromotedAlready, None),
        };
        let stays = ring.is_needed(&path, dir, newest);
        let stays = match stays {
            Ok(needed) => needed.map(Stays::Needed),
            Err(error) => Some(Stays::Refused(error.to_string())),
        };
        let (files, bytes) = weigh(ring, &path, manifest.as_deref())?;
        found.push(Garbage { path, why, files, bytes, stays });
    }
    for name in ring.list_or_none(&ring.layout.trash())? {
        let number = name.split('.').nth(1).and_then(|n| n.parse().ok());
        let manifest = number.filter(|_| name.starts_with("read.")).and_then(|n| known(ring, n));
        let path = ring.layout.trash().join(&name);
        let (files, bytes) = weigh(ring, &path, manifest.as_deref())?;
        found.push(Garbage { path, why: Unneeded::Trash, files, bytes, stays: None });
    }
    Ok(found)
}

/// Lists the unfinished files of owners whose silence was watched for [`UNFINISHED_GRACE_LEASES`] leases.
///
/// # Errors
/// The filesystem's or the index's errors.
pub fn garbage_of_the_dead(ring: &Ring) -> Result<Vec<Garbage>> {
    let mut found = Vec::new();
    let mut watch = ring.failure_detector();
    if if_available(watch.look(&*ring.coordination))?.is_none() {
        return Ok(found);
    }
    for owner in ring.list_or_none(&ring.layout.staging())? {
        if owner == ring.me || !is_owner(&owner) || !watch.is_silent_for(&owner, UNFINISHED_GRACE_LEASES) {
            continue;
        }
        let dir = ring.layout.staging_of(&owner);
        let names = ring.list_or_none(&dir)?;
        for name in names.iter().filter(|name| sealed_id(name).is_none()) {
            let path = dir.join(name);
            // Just listed, so the NFS client cannot answer with a false "not found".
            let bytes = ring.fs.identity(&path).map_or(0, |found| found.len);
            found.push(Garbage { path, why: Unneeded::Begun, files: 1, bytes, stays: None });
        }
        if names.is_empty() {
            found.push(Garbage { path: dir, why: Unneeded::Empty, files: 0, bytes: 0, stays: None });
        }
    }
    Ok(found)
}

/// Returns whether any owner has unfinished files, so that its heartbeat must be watched.
///
/// # Errors
/// The filesystem's errors.
pub fn has_begun_files(ring: &Ring) -> Result<bool> {
    let mut owners = ring.list_or_none(&ring.layout.staging())?;
    owners.retain(|owner| *owner != ring.me && is_owner(owner));
    for owner in owners {
        let names = ring.list_or_none(&ring.layout.staging_of(&owner))?;
        if names.is_empty() || names.iter().any(|name| sealed_id(name).is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reclaims as a manager does, and removes unfinished files of dead owners.
///
/// # Errors
/// The filesystem's or the index's errors.
pub fn gc(ring: &Ring) -> Result<()> {
    ring.reclaim()?;
    let mut watch = ring.failure_detector();
    if if_available(watch.look(&*ring.coordination))?.is_none() {
        return Ok(()); // without the index, dead and unreachable members look the same
    }
    for owner in ring.list_or_none(&ring.layout.staging())? {
        if owner == ring.me || !is_owner(&owner) {
            continue;
        }
        match ring.remove_unfinished(&owner, &mut watch) {
            Err(Error::Fs { source }) if is_left_for_later(&source) => ring.log_once(&owner, &source),
            done => done.map(drop)?,
        }
    }
    Ok(())
}

fn known(ring: &Ring, n: u64) -> Option<Arc<Manifest>> {
    ring.manifests.get(n).ok().flatten()
}

/// Returns the number of files in a directory, and the bytes that its removal frees. A segment that its manifest does not
/// list is staged or listed elsewhere, so that only a name of it is removed.
fn weigh(ring: &Ring, dir: &Path, manifest: Option<&Manifest>) -> Result<(u64, u64)> {
    let names = ring.list_or_none(dir)?;
    let listed = manifest.map(Manifest::names);
    let is_listed =
        |name: &str, listed: &HashSet<SegmentName>| SegmentName::parse(name).is_some_and(|name| listed.contains(&name));
    let in_trash = dir.parent() == Some(&*ring.layout.trash());
    let (mut bytes, mut inodes) = (0, HashSet::new());
    for name in &names {
        let path = dir.join(name);
        let counts = match &listed {
            Some(listed) => is_listed(name, listed) || read_tail(&*ring.fs, &path).is_err(),
            None => in_trash || read_tail(&*ring.fs, &path).is_err(),
        };
        // Just listed, so the NFS client cannot answer with a false "not found".
        match ring.fs.identity(&path) {
            Ok(found) if counts && inodes.insert(found.inode) => bytes += found.len,
            _ => {}
        }
    }
    Ok((names.len() as u64, bytes))
}
