//! Which generations are gone: reclaimed, as they are to be in the end, or missing.

use super::Reader;
use crate::error::Result;
use crate::ring::manifest::Manifest;
use std::sync::PoisonError;

impl Reader {
    /// Returns the generations, oldest first, that KEEP covers and whose directories were missing
    /// when they were read.
    pub fn missing(&self) -> Vec<u64> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Counts a generation as missing. Logs it once.
    pub(super) fn note_missing(&self, generation: u64) {
        if self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(generation) {
            let dir = self.ring.layout.read(generation);
            tracing::error!("{} is missing, although KEEP covers it", dir.display());
        }
    }

    /// Returns whether the generation is gone: its directory is, or it is too old to be kept, where a
    /// view of the directory may outlive it.
    ///
    /// # Errors
    /// What the filesystem says.
    pub(super) fn is_gone(&self, manifest: &Manifest) -> Result<bool> {
        let generation = manifest.summary.generation;
        let there = self.ring.fs.exists(&self.ring.layout.read(generation))?;
        // After the look at the directory, which may be reclaimed at any moment.
        let old = self.is_old(manifest)?;
        if !there && !old {
            self.note_missing(generation);
        }
        Ok(!there || old)
    }

    /// Returns whether the generation may have been reclaimed: the newest manifest, by a listing of
    /// `manifests/`, puts it out of KEEP.
    ///
    /// # Errors
    /// What the filesystem says.
    pub(super) fn is_old(&self, manifest: &Manifest) -> Result<bool> {
        let newest = self.ring.manifests.newest_listed()?;
        Ok(manifest.summary.generation.saturating_add(self.ring.keep) < newest && !self.ring.is_kept(manifest))
    }
}
