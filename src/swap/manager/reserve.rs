//! A file that takes room on the disk until a manager needs that room.

use crate::error::FsError;
use crate::fs::atomic_publish::write_new;
use crate::ring::Ring;
use std::path::PathBuf;

/// Bytes held in reserve, so that a full disk does not keep the manager from publishing and reclaiming.
const RESERVE: usize = 1 << 20;

/// The reserve of one manager.
pub(crate) struct Reserve {
    file: PathBuf,
}

impl Reserve {
    pub(crate) fn new(ring: &Ring) -> Reserve {
        Reserve { file: ring.layout.staging_of(&ring.me).join("reserve") }
    }

    /// Writes the file if it is missing and there is room for it.
    pub(crate) fn keep(&self, ring: &Ring) {
        if ring.fs.exists(&self.file).unwrap_or(true) {
            return;
        }
        let room = ring.fs.space(ring.layout.root()).map_or(0, |space| space.bytes);
        if room > 16 * RESERVE as u64 {
            let made = ring.fs.ensure_dir(&ring.layout.staging_of(&ring.me));
            let made = made.and_then(|()| write_new(&*ring.fs, &self.file, &vec![0; RESERVE], false));
            made.unwrap_or_else(|error| tracing::debug!(%error, "no reserve can be held"));
        }
    }

    /// Removes the file, so that its room can be used.
    ///
    /// # Errors
    /// What the filesystem says.
    pub(crate) fn release(&self, ring: &Ring) -> Result<(), FsError> {
        ring.fs.forget_file(&self.file)
    }
}
