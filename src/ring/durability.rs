//! Durability: which files and directories are synced, and which syncs are known to have succeeded.

use super::Ring;
use crate::config::Durability;
use crate::error::{Error, Result};
use crate::fs::FsError;
use crate::fs::atomic_publish::DirSyncs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The syncs that this process has made.
#[derive(Default)]
pub(crate) struct Syncs {
    /// The results of directory syncs, including those of this process's staging directory.
    dirs: DirSyncs,
    /// The newest generation whose manifest is known to be on the disk.
    settled: AtomicU64,
}

impl Ring {
    /// Returns whether files are synced before they are sealed. On a network filesystem they always
    /// are, because a full server may accept writes and lose the data.
    pub fn syncs_files(&self) -> bool {
        !self.settings.kind.local || self.settings.durability == Durability::Node
    }

    /// Returns whether directories are synced at each step.
    pub fn syncs_dirs(&self) -> bool {
        self.settings.durability == Durability::Node
    }

    /// Returns the record of directory syncs, for a writer that adds to it.
    pub(crate) fn dir_syncs(&self) -> DirSyncs {
        self.syncs.dirs.clone()
    }

    /// Syncs a directory if DURABILITY is `node`.
    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<()> {
        if self.syncs_dirs() { Ok(self.syncs.dirs.sync(&*self.fs, dir)?) } else { Ok(()) }
    }

    /// Syncs the entry of the ring in its parent directory if DURABILITY is `node`. Ignores a
    /// parent that this user may not read, and filesystems that cannot sync directories, such as an
    /// automounter's.
    pub(crate) fn sync_root(&self) -> Result<()> {
        let above = self.layout.root().parent().filter(|above| !above.as_os_str().is_empty());
        match self.sync_dir(above.unwrap_or(Path::new("."))) {
            Err(Error::Fs { source }) if source.is_denied() || has_no_sync(&source) => Ok(()),
            done => done,
        }
    }

    /// Syncs `manifests/` before a step that relies on the manifest of generation `newest`, so that
    /// a power cut cannot take that manifest back: its publisher may have died before the sync.
    pub(crate) fn sync_manifests(&self, newest: u64) -> Result<()> {
        if self.syncs_dirs() && self.syncs.settled.load(Ordering::Relaxed) < newest {
            self.syncs.dirs.sync(&*self.fs, &self.layout.manifests())?;
            self.syncs.settled.fetch_max(newest, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns whether the error means that the filesystem cannot sync directories.
fn has_no_sync(error: &FsError) -> bool {
    matches!(error.source.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}
