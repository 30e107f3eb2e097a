//! Reclaim: old generations, litter and old manifests are removed. A directory is first moved to `trash/`, so that
//! nobody finds half of it, and then emptied.

use super::orphans::Delivery;
use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::fs::FsError;
use crate::layout::{GenerationDir, Phase};
use crate::manifest::SegmentEntry;
use crate::random::random_u32;
use crate::ring::Ring;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

/// After so many generations the index is told to forget the old ones.
const FORGET_EVERY: u64 = 8;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Generations.
    pub generations: u64,
    /// Samples in them, as their manifests say.
    pub samples: u64,
    /// Files unlinked.
    pub files: u64,
    /// Whether another call may soon remove more: a run has generations to read, or there was something old or in `trash/`.
    pub more: bool,
}

impl Ring {
    /// Removes what is older than KEEP and not needed by a reader, and what nobody can need.
    ///
    /// # Errors
    /// What the filesystem says, but for names that are gone or still held open.
    pub fn reclaim(&self) -> Result<Reclaimed> {
        let newest = self.manifests.newest_listed()?;
        let retirable = self.retirable(newest)?;
        // A newest manifest that cannot be seen yet makes nothing old.
        let more = !retirable.is_empty() || self.has_pins() || self.manifests.get(newest)?.is_none();
        let mut done = Reclaimed { more, ..Reclaimed::default() };
        if_available(self.note_new_deaths())?;
        if !retirable.is_empty() {
            self.sync_manifests(newest)?;
        }
        for (name, dir) in retirable {
            // What cannot be looked at stays, and holds up nothing else.
            let needed = self.is_needed(&self.layout.root().join(&name), dir, newest);
            if let Some(why) = needed.unwrap_or_else(|error| Some(format!("it cannot be looked at: {error}"))) {
                if !self.steps.maintenance.told_of_last_names.swap(true, Ordering::Relaxed) {
                    tracing::error!("{name} is not reclaimed: {why}");
                }
                continue;
            }
            let trashed = format!("{name}.{:08x}", random_u32());
            match self.move_to(&self.layout.root().join(&name), &self.layout.trash(), &trashed) {
                Ok(()) => {}
                Err(error) if error.is_gone() => continue, // somebody else did it
                Err(error) if error.is_denied() => {
                    tracing::warn!("an old generation cannot be removed: {error}");
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
            done.files += self.empty(&self.layout.trash().join(name))?;
            done.more = true;
        }
        self.steps.maintenance.reclaimed.fetch_max(newest, Ordering::Relaxed);
        // Old counters are small: not each time.
        if newest.is_multiple_of(FORGET_EVERY) {
            if_available(self.coordination.forget_before(newest))?;
            if_available(self.retire_runs(newest))?;
        }
        self.prune_manifests(newest)?;
        Ok(done)
    }

    /// Directories of generations that nobody needs, by their names.
    ///
    /// # Errors
    /// A newest manifest that cannot be used, whoever put it there: nothing counts as old because of that.
    pub fn retirable(&self, newest: u64) -> Result<Vec<(String, GenerationDir)>> {
        if self.manifests.get(newest)?.is_none() {
            return Ok(Vec::new()); // it cannot be seen
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

    /// Why a directory is needed after all: the samples of a segment in it would be lost. By the rules there is none.
    pub fn is_needed(&self, path: &Path, dir: GenerationDir, newest: u64) -> Result<Option<String>> {
        let manifest = match dir {
            GenerationDir::Read(g) => match self.manifests.get(g) {
                Ok(manifest) => manifest,
                Err(Error::Manifest { .. }) => None,
                Err(error) => return Err(error),
            },
            GenerationDir::Write(_) => None,
        };
        let judge = |entry: &SegmentEntry| self.delivery(entry, newest);
        let found = self.last_names(path, manifest.as_deref(), 1, newest, &judge)?;
        Ok(found.first().map(|(entry, verdict)| {
            let file = entry.file();
            match verdict {
                Delivery::Unclear => {
                    format!("a manifest is lost, so whether {file} was delivered cannot be told: see `ringreel repair`")
                }
                _ => format!("no manifest lists {file}, and it has no other name: see `ringreel repair`"),
            }
        }))
    }

    fn empty(&self, dir: &Path) -> Result<u64> {
        // After a wrong no the directory stays until the next round.
        let names = match self.fs.list(dir) {
            Ok(names) => names,
            Err(error) if error.is_gone() => return Ok(0),
            Err(error) if error.source.kind() == ErrorKind::NotADirectory => {
                self.unlink_if_allowed(dir)?;
                return Ok(1);
            }
            Err(error) => return Err(error.into()),
        };
        let mut removed = 0;
        for name in names {
            match self.fs.remove_file(&dir.join(name)) {
                Ok(()) => removed += 1,
                Err(error) if held(&error) || error.is_denied() => {}
                // A directory that somebody put there: not ours to take apart.
                Err(error) if error.source.kind() == ErrorKind::IsADirectory => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.fs.remove_dir(dir) {
            Err(error) if !held(&error) && !error.is_denied() => Err(error.into()),
            _ => Ok(removed),
        }
    }
}

/// Whether a directory is of a generation that is kept no more. None is for being too new: our view of the manifests may
/// be the older one.
pub fn is_old(dir: GenerationDir, newest: u64, keep: u64) -> bool {
    match dir {
        GenerationDir::Read(g) => g.saturating_add(keep) < newest,
        GenerationDir::Write(_) => dir.phase(newest.saturating_add(1)) == Phase::Retired,
    }
}

/// Gone already, or held open by a reader (`.nfs*` files on NFS): the next round sees to it.
fn held(error: &FsError) -> bool {
    error.is_gone() || error.is_taken() || error.source.kind() == ErrorKind::ResourceBusy
}
