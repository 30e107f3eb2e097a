//! A file that occupies disk space until a manager needs that space.

use super::Manager;
use crate::error::FsError;
use crate::fs::atomic_publish::write_new;
use std::path::PathBuf;

/// Number of bytes in reserve, so that a manager can publish and reclaim on a full disk.
const RESERVE: usize = 1 << 20;

impl Manager {
    fn reserve(&self) -> PathBuf {
        self.ring.layout.staging_of(&self.ring.me).join("reserve")
    }

    /// Writes the reserve if it is missing and there is enough free space.
    pub(crate) fn keep_reserve(&self) {
        let (ring, file) = (&self.ring, self.reserve());
        if ring.fs.exists(&file).unwrap_or(true) {
            return;
        }
        let room = ring.fs.space(ring.layout.root()).map_or(0, |space| space.bytes);
        if room > 16 * RESERVE as u64 {
            let made = ring.fs.ensure_dir(&ring.layout.staging_of(&ring.me));
            let made = made.and_then(|()| write_new(&*ring.fs, &file, &vec![0; RESERVE], false));
            made.unwrap_or_else(|error| tracing::debug!(%error, "cannot write the reserve file"));
        }
    }

    /// Removes the reserve to free its space.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn release_reserve(&self) -> Result<(), FsError> {
        self.ring.fs.forget_file(&self.reserve())
    }
}
