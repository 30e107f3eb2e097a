//! Reclaim: removes old generations, litter and old manifests. A directory is first moved to
//! `trash/`, so that no process sees a partial one, and then emptied.

use super::orphans::Delivery;
use crate::coordination::if_available;
use crate::error::{Error, REPAIR_COMMAND, Result};
use crate::fs::FsError;
use crate::layout::GenerationDir;
use crate::manifest::SegmentEntry;
use crate::random::random_u32;
use crate::ring::Ring;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The coordination store forgets old generations when the newest generation is a multiple of this.
const FORGET_EVERY: u64 = 8;

/// The result of a reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Number of generations removed.
    pub generations: u64,
    /// Number of samples in them, according to their manifests.
    pub samples: u64,
    /// Whether another call may soon remove more: a run has generations to read, or this call found
    /// old directories or files in `trash/`.
    pub more: bool,
}

impl Ring {
    /// Makes promotions of this process skip the reclaim that normally precedes them, so that a
    /// promotion removes nothing.
    pub fn leave_reclaiming(&self) {
        self.steps.reclaimed.store(u64::MAX, Ordering::Relaxed);
    }

    /// Removes generations older than KEEP that no reader needs, litter, and old manifests.
    ///
    /// # Errors
    /// Filesystem errors, except for names that are missing or still held open.
    pub fn reclaim(&self) -> Result<Reclaimed> {
        let newest = self.manifests.newest_listed()?;
        let retirable = self.retirable(newest)?;
        // While the newest manifest is not visible yet, no generation counts as old.
        let more = !retirable.is_empty() || self.has_pins() || self.manifests.get(newest)?.is_none();
        let mut done = Reclaimed { more, ..Reclaimed::default() };
        if_available(self.note_new_deaths())?;
        if !retirable.is_empty() {
            self.sync_manifests(newest)?;
        }
        for (name, dir) in retirable {
            // A directory that cannot be checked stays, and does not stop the others from being
            // removed.
            let needed = self.is_needed(&self.layout.root().join(&name), dir, newest);
            if let Some(why) = needed.unwrap_or_else(|error| Some(format!("cannot check it: {error}"))) {
                if !self.steps.told_of_last_names.swap(true, Ordering::Relaxed) {
                    tracing::error!("not reclaiming {name}: {why}");
                }
                continue;
            }
            let trashed = format!("{name}.{:08x}", random_u32());
            match self.move_to(&self.layout.root().join(&name), &self.layout.trash(), &trashed) {
                Ok(()) => {}
                Err(error) if error.is_gone() => continue, // another process moved it
                Err(error) if error.is_denied() => {
                    tracing::warn!("cannot remove an old generation: {error}");
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if let GenerationDir::Read(g) = dir {
                done.generations += 1;
                done.samples += self.manifests.get(g)?.map_or(0, |manifest| manifest.summary.samples);
            }
        }
        for name in self.list_or_none(&self.layout.trash())? {
            self.empty(&self.layout.trash().join(name))?;
            done.more = true;
        }
        self.steps.reclaimed.fetch_max(newest, Ordering::Relaxed);
        // Not in each reclaim, because old counters are small.
        if newest.is_multiple_of(FORGET_EVERY) {
            if_available(self.coordination.forget_before(newest))?;
            if_available(self.retire_runs(newest))?;
        }
        self.prune_manifests(newest)?;
        Ok(done)
    }

    /// Returns the directories of generations that are no longer needed, by name.
    ///
    /// # Errors
    /// An unusable newest manifest: no generation counts as old because of it.
    pub fn retirable(&self, newest: u64) -> Result<Vec<(String, GenerationDir)>> {
        if self.manifests.get(newest)?.is_none() {
            return Ok(Vec::new()); // it is not visible
        }
        let pinned = self.affordable_pins(newest)?;
        let reclaimable = self.reclaimable_from()?;
        let retire = |name: String| {
            let dir = GenerationDir::parse(&name)?;
            let kept = matches!(dir, GenerationDir::Read(g) if pinned.contains(&g) || g < reclaimable);
            (is_old(dir, newest, self.settings.keep) && !kept).then_some((name, dir))
        };
        Ok(self.fs.list(self.layout.root())?.into_iter().filter_map(retire).collect())
    }

    /// Returns why a directory is still needed: removing it would lose the samples of an orphan.
    /// Normally it returns `None`.
    pub fn is_needed(&self, path: &Path, dir: GenerationDir, newest: u64) -> Result<Option<String>> {
        let manifest = match dir {
            GenerationDir::Read(g) => match self.manifests.get(g) {
                Ok(manifest) => manifest,
                Err(Error::Manifest { .. }) => None,
                Err(error) => return Err(error),
            },
            GenerationDir::Write(_) => None,
        };
        let judge = |entry: &SegmentEntry| self.delivery_from(entry, entry.born, newest);
        let found = self.last_names(path, manifest.as_deref(), 1, newest, &judge)?;
        Ok(found.first().map(|(entry, verdict)| {
            let file = entry.file();
            match verdict {
                Delivery::Unclear => {
                    format!("a manifest is lost, so it is unknown whether {file} was delivered; run {REPAIR_COMMAND}")
                }
                _ => format!("no manifest lists {file} and it has no other name; run {REPAIR_COMMAND}"),
            }
        }))
    }

    /// Removes the files in `dir`, a name in `trash/`, and `dir` itself.
    fn empty(&self, dir: &Path) -> Result<()> {
        // After a false "not found", the directory stays until the next round.
        let names = match self.fs.list(dir) {
            Ok(names) => names,
            Err(error) if error.is_gone() => return Ok(()),
            Err(error) if error.source.kind() == ErrorKind::NotADirectory => return self.unlink_if_allowed(dir),
            Err(error) => return Err(error.into()),
        };
        for name in names {
            match self.fs.remove_file(&dir.join(name)) {
                Ok(()) => {}
                Err(error) if held(&error) || error.is_denied() => {}
                // A foreign directory, which is not removed.
                Err(error) if error.source.kind() == ErrorKind::IsADirectory => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.fs.remove_dir(dir) {
            Err(error) if !held(&error) && !error.is_denied() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns whether a directory belongs to a generation that is no longer kept. A directory with a
/// high number is never old: this process's view of the manifests may be outdated.
pub fn is_old(dir: GenerationDir, newest: u64, keep: u64) -> bool {
    match dir {
        GenerationDir::Read(g) => g.saturating_add(keep) < newest,
        GenerationDir::Write(g) => g <= newest,
    }
}

/// Returns whether the name is gone already, or held open by a reader (`.nfs*` files on NFS) and
/// left to the next round.
fn held(error: &FsError) -> bool {
    error.is_gone() || error.is_taken() || error.source.kind() == ErrorKind::ResourceBusy
}
