//! What a manager would reclaim: named beforehand, with the bytes that it takes, and reclaimed by the manager's own
//! code.

use ringreel::coordination::if_available;
use ringreel::error::Result;
use ringreel::layout::{GenerationDir, SegmentName, is_owner, sealed_id};
use ringreel::manifest::Manifest;
use ringreel::ring::Ring;
use ringreel::segment::reader::read_tail;
use ringreel::swap::adopt::GRACE;
use ringreel::swap::maintenance::{DeadOwners, Due};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that nobody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Where it is.
    pub path: PathBuf,
    /// Why nobody needs it.
    pub why: Unneeded,
    /// Files in it.
    pub files: u64,
    /// Bytes of those that have no other name.
    pub bytes: u64,
    /// Why it stays where it is.
    pub stays: Option<Stays>,
}

/// Why something is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unneeded {
    /// It is older than the newest generation and this many before it (KEEP).
    BeyondKeep(u64),
    /// Its generation was promoted.
    PromotedAlready,
    /// It lies in the trash.
    Trash,
    /// Its owner began it, and is dead.
    Begun,
    /// It is empty, and its owner is dead.
    Empty,
}

/// Why something stays. The texts are the core's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stays {
    /// It holds a segment that may not have been delivered.
    Needed(String),
    /// It cannot be looked at.
    Refused(String),
}

/// What [`gc`](gc()) would remove now.
///
/// # Errors
/// What the filesystem says.
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

/// What owners who have been dead for long had begun: as far as their silence was watched.
///
/// # Errors
/// What the filesystem or the index says.
pub fn garbage_of_the_dead(ring: &Ring) -> Result<Vec<Garbage>> {
    let mut found = Vec::new();
    let mut watch = ring.failure_detector();
    if if_available(watch.look(&*ring.coordination))?.is_none() {
        return Ok(found);
    }
    for owner in ring.list_or_none(&ring.layout.staging())? {
        if owner == ring.me || !is_owner(&owner) || !watch.is_silent_for(&owner, GRACE) {
            continue;
        }
        let dir = ring.layout.staging_of(&owner);
        let names = ring.list_or_none(&dir)?;
        for name in names.iter().filter(|name| sealed_id(name).is_none()) {
            let path = dir.join(name);
            // Just listed: a wrong no is out of the question.
            let bytes = ring.fs.identity(&path).map_or(0, |found| found.len);
            found.push(Garbage { path, why: Unneeded::Begun, files: 1, bytes, stays: None });
        }
        if names.is_empty() {
            found.push(Garbage { path: dir, why: Unneeded::Empty, files: 0, bytes: 0, stays: None });
        }
    }
    Ok(found)
}

/// Whether any owner left what it had begun, so that it is worth to watch who is dead.
///
/// # Errors
/// What the filesystem says.
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

/// Reclaims, as the manager does, and removes what the long dead had begun.
///
/// # Errors
/// What the filesystem or the index says.
pub fn gc(ring: &Ring) -> Result<()> {
    ring.run_maintenance(None, &mut Due { reclaim: true, dead: DeadOwners::RemoveUnfinished }).map(drop)
}

fn known(ring: &Ring, n: u64) -> Option<Arc<Manifest>> {
    ring.manifests.get(n).ok().flatten()
}

/// Files in a directory, and the bytes that go with it. A segment that its manifest does not list is staged, or listed
/// elsewhere: only a name of it goes.
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
        // Just listed, so a wrong no cannot come from this client's memory.
        match ring.fs.identity(&path) {
            Ok(found) if counts && inodes.insert(found.inode) => bytes += found.len,
            _ => {}
        }
    }
    Ok((names.len() as u64, bytes))
}
