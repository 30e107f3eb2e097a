//! Durability: which files and directories are synced, and what is known to be on the disk.

use super::Ring;
use crate::config::Durability;
use crate::error::{Error, Result};
use crate::fs::FsError;
use crate::fs::atomic_publish::DirSyncs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What this process has synced.
#[derive(Default)]
pub(crate) struct Syncs {
    /// What became of directories' syncs, this process's staging included.
    dirs: DirSyncs,
    /// The newest generation whose manifest is known to be on the disk.
    settled: AtomicU64,
}

impl Ring {
    /// Whether files are synced before they are sealed: on a network always, since a full server may take writes and
    /// keep nothing.
    pub fn syncs_files(&self) -> bool {
        !self.settings.kind.local || self.settings.durability == Durability::Node
    }

    /// Whether directories are synced at each step.
    pub fn syncs_dirs(&self) -> bool {
        self.settings.durability == Durability::Node
    }

    /// Returns the record of directory syncs, for a writer that adds to it.
    pub(crate) fn dir_syncs(&self) -> DirSyncs {
        self.syncs.dirs.clone()
    }

    /// Syncs a directory, where that was asked for.
    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<()> {
        if self.syncs_dirs() { Ok(self.syncs.dirs.sync(&*self.fs, dir)?) } else { Ok(()) }
    }

    /// Syncs the ring's own name, where that was asked for. (Who may not read the directory above may not sync it; and
    /// there are filesystems, as that of an automounter, which have nothing to sync.)
    pub(crate) fn sync_root(&self) -> Result<()> {
        let above = self.layout.root().parent().filter(|above| !above.as_os_str().is_empty());
        match self.sync_dir(above.unwrap_or(Path::new("."))) {
            Err(Error::Fs { source }) if source.is_denied() || has_no_sync(&source) => Ok(()),
            done => done,
        }
    }

    /// Who builds upon a manifest makes sure that a power cut does not take it back: whoever published it may not have
    /// come to that.
    pub(crate) fn sync_manifests(&self, newest: u64) -> Result<()> {
        if self.syncs_dirs() && self.syncs.settled.load(Ordering::Relaxed) < newest {
            self.syncs.dirs.sync(&*self.fs, &self.layout.manifests())?;
            self.syncs.settled.fetch_max(newest, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Whether a filesystem says that it syncs no directories.
fn has_no_sync(error: &FsError) -> bool {
    matches!(error.source.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}
