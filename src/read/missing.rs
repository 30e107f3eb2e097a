//! Generations that no longer exist: reclaimed as intended, or missing.

use super::Reader;
use crate::error::Result;
use crate::manifest::Manifest;
use std::path::Path;
use std::sync::{Arc, PoisonError};

impl Reader {
    /// Returns the generations, oldest first, that KEEP covers and whose directories or manifests were found missing.
    pub fn missing(&self) -> Vec<u64> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Counts a generation as missing because `path` is missing. Logs this once.
    pub(crate) fn note_missing(&self, generation: u64, path: &Path) {
        if self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(generation) {
            tracing::error!("{} is missing, although KEEP covers it", path.display());
        }
    }

    /// Returns the manifest of generation `n`, or `None` if it does not exist yet or no longer. Counts the generation
    /// as missing if KEEP covers it.
    ///
    /// # Errors
    /// A damaged manifest; filesystem errors.
    pub fn manifest(&self, n: u64) -> Result<Option<Arc<Manifest>>> {
        let manifests = &self.ring.manifests;
        let found = manifests.get(n)?;
        if found.is_none() {
            let newest = manifests.newest_listed()?;
            if n <= newest && newest <= n.saturating_add(self.ring.settings.keep) {
                self.note_missing(n, &self.ring.layout.manifest(n));
            }
        }
        Ok(found)
    }

    /// Returns whether the generation is gone: its directory does not exist, or it is too old to be kept, in which
    /// case a stale view of its directory may still exist.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn is_gone(&self, manifest: &Manifest) -> Result<bool> {
        let generation = manifest.summary.generation;
        let dir = self.ring.layout.read(generation);
        let there = self.ring.fs.exists(&dir)?;
        // Checked after the directory, which may be reclaimed at any moment.
        let old = self.is_old(manifest)?;
        if !there && !old {
            self.note_missing(generation, &dir);
        }
        Ok(!there || old)
    }

    /// Returns whether the generation may have been reclaimed: the newest manifest, found by a listing of
    /// `manifests/`, puts it outside KEEP.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn is_old(&self, manifest: &Manifest) -> Result<bool> {
        let newest = self.ring.manifests.newest_listed()?;
        Ok(manifest.summary.generation.saturating_add(self.ring.settings.keep) < newest && !self.ring.is_kept(manifest))
    }
}
