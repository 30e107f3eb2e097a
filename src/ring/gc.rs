//! What a manager would reclaim: named beforehand, with the bytes that it takes, and reclaimed by the manager's own
//! code.

use super::Ring;
use super::maintenance::{Dead, Due};
use super::recover::GRACE;
use crate::coordination::if_available;
use crate::error::Result;
use crate::layout::{GenerationDir, SegmentName, is_owner, sealed_id};
use crate::ring::manifest::Manifest;
use crate::segment::reader::read_tail;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that nobody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Where it is.
    pub path: PathBuf,
    /// Why nobody needs it.
    pub why: String,
    /// Files in it.
    pub files: u64,
    /// Bytes of those that have no other name.
    pub bytes: u64,
    /// Why it stays where it is.
    pub stays: Option<String>,
}

impl Ring {
    /// What [`Ring::gc`] would remove now.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn garbage(&self) -> Result<Vec<Garbage>> {
        let newest = self.manifests.newest_listed()?;
        let mut found = Vec::new();
        for (name, dir) in self.retirable(newest)? {
            let path = self.layout.root().join(&name);
            let (why, manifest) = match dir {
                GenerationDir::Read(g) => {
                    (format!("it is older than the newest generation and KEEP ({})", self.settings.keep), self.known(g))
                }
                GenerationDir::Write(_) => ("this generation was promoted already".to_owned(), None),
            };
            let stays = self.is_needed(&path, dir, newest);
            let stays = stays.unwrap_or_else(|error| Some(format!("it cannot be looked at: {error}")));
            let (files, bytes) = self.weigh(&path, manifest.as_deref())?;
            found.push(Garbage { path, why, files, bytes, stays });
        }
        for name in self.list_or_none(&self.layout.trash())? {
            let number = name.split('.').nth(1).and_then(|n| n.parse().ok());
            let manifest = number.filter(|_| name.starts_with("read.")).and_then(|n| self.known(n));
            let path = self.layout.trash().join(&name);
            let (files, bytes) = self.weigh(&path, manifest.as_deref())?;
            found.push(Garbage { path, why: "it is being removed".to_owned(), files, bytes, stays: None });
        }
        Ok(found)
    }

    /// What owners who have been dead for long had begun: as far as their silence was watched.
    ///
    /// # Errors
    /// What the filesystem or the index says.
    pub fn garbage_of_the_dead(&self) -> Result<Vec<Garbage>> {
        let mut found = Vec::new();
        let mut watch = self.watch();
        if if_available(watch.look(&*self.coordination))?.is_none() {
            return Ok(found);
        }
        for owner in self.list_or_none(&self.layout.staging())? {
            if owner == self.me || !is_owner(&owner) || !watch.is_silent_for(&owner, GRACE) {
                continue;
            }
            let dir = self.layout.staging_of(&owner);
            let names = self.list_or_none(&dir)?;
            for name in names.iter().filter(|name| sealed_id(name).is_none()) {
                let path = dir.join(name);
                // Just listed: a wrong no is out of the question.
                let bytes = self.fs.identity(&path).map_or(0, |found| found.len);
                let why = "its owner began it, and is dead".to_owned();
                found.push(Garbage { path, why, files: 1, bytes, stays: None });
            }
            if names.is_empty() {
                let why = "it is empty, and its owner is dead".to_owned();
                found.push(Garbage { path: dir, why, files: 0, bytes: 0, stays: None });
            }
        }
        Ok(found)
    }

    /// Whether any owner left what it had begun, so that it is worth to watch who is dead.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn has_begun_files(&self) -> Result<bool> {
        let mut owners = self.list_or_none(&self.layout.staging())?;
        owners.retain(|owner| *owner != self.me && is_owner(owner));
        for owner in owners {
            let names = self.list_or_none(&self.layout.staging_of(&owner))?;
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
    pub fn gc(&self) -> Result<()> {
        self.run_maintenance(None, &mut Due { reclaim: true, dead: Dead::Sweep }).map(drop)
    }

    fn known(&self, n: u64) -> Option<Arc<Manifest>> {
        self.manifests.get(n).ok().flatten()
    }

    /// Files in a directory, and the bytes that go with it. A segment that its manifest does not list is staged, or listed
    /// elsewhere: only a name of it goes.
    fn weigh(&self, dir: &Path, manifest: Option<&Manifest>) -> Result<(u64, u64)> {
        let names = self.list_or_none(dir)?;
        let listed = manifest.map(Manifest::names);
        let is_listed = |name: &str, listed: &HashSet<SegmentName>| {
            SegmentName::parse(name).is_some_and(|name| listed.contains(&name))
        };
        let in_trash = dir.parent() == Some(&*self.layout.trash());
        let (mut bytes, mut inodes) = (0, HashSet::new());
        for name in &names {
            let path = dir.join(name);
            let counts = match &listed {
                Some(listed) => is_listed(name, listed) || read_tail(&*self.fs, &path).is_err(),
                None => in_trash || read_tail(&*self.fs, &path).is_err(),
            };
            // Just listed, so a wrong no cannot come from this client's memory.
            match self.fs.identity(&path) {
                Ok(found) if counts && inodes.insert(found.inode) => bytes += found.len,
                _ => {}
            }
        }
        Ok((names.len() as u64, bytes))
    }
}
