//! A file that occupies disk space until a manager needs that space.

use crate::error::FsError;
use crate::fs::atomic_publish::write_new;
use crate::ring::Ring;
use std::path::PathBuf;

/// Number of bytes in reserve, so that a manager can publish and reclaim on a full disk.
const RESERVE: usize = 1 << 20;

/// The reserve of one manager.
pub(crate) struct Reserve {
    file: PathBuf,
}

impl Reserve {
    pub(crate) fn new(ring: &Ring) -> Reserve {
        Reserve { file: ring.layout.staging_of(&ring.me).join("reserve") }
    }

    /// Writes the file if it is missing and there is enough free space.
    pub(crate) fn keep(&self, ring: &Ring) {
        if ring.fs.exists(&self.file).unwrap_or(true) {
            return;
        }
        let room = ring.fs.space(ring.layout.root()).map_or(0, |space| space.bytes);
        if room > 16 * RESERVE as u64 {
            let made = ring.fs.ensure_dir(&ring.layout.staging_of(&ring.me));
            let made = made.and_then(|()| write_new(&*ring.fs, &self.file, &vec![0; RESERVE], false));
            made.unwrap_or_else(|error| tracing::debug!(%error, "cannot write the reserve file"));
        }
    }

    /// Removes the file to free its space.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn release(&self, ring: &Ring) -> Result<(), FsError> {
        ring.fs.forget_file(&self.file)
    }
}
