//! The validation split: the first VALIDATION samples of the ring, counted over the generations in
//! the order of their manifests. They are held out: never reclaimed, and never served for training.
//!
//! Manifests do not change, so all processes agree on the held-out samples. The generations that
//! hold them are the first of the ring; all later ones may be reclaimed.

use super::Ring;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The folder of notes in which readers record each damaged held-out sample, as
/// `<generation>.<position>`.
pub const DAMAGED: &str = "damaged";

/// A generation, and positions in it.
pub type Positions = (Arc<Manifest>, Range<u64>);

/// What this process knows of the kept generations.
#[derive(Debug, Default)]
pub(crate) struct KeptSoFar {
    /// The kept generations before `next`.
    kept: Vec<u64>,
    /// The first generation whose manifest was not seen yet.
    next: u64,
    /// The first generation that is known not to be kept, whether or not its manifest is pruned. No
    /// later generation is kept.
    end: Option<u64>,
}

impl Manifest {
    /// Returns the positions of this generation's samples that belong to the first `validation`
    /// samples of the ring. The range is empty, or begins at 0.
    pub fn held_out(&self, validation: u64) -> Range<u64> {
        0..validation.saturating_sub(self.summary.before()).min(self.summary.samples)
    }

    /// Returns the number of held-out samples that are lost because this manifest was lost and
    /// rebuilt from the remaining segments.
    pub fn held_out_lost(&self, validation: u64) -> u64 {
        let listed = self.summary.samples.saturating_add(self.summary.lost);
        validation.saturating_sub(self.summary.before()).min(listed) - self.held_out(validation).end
    }

    /// Returns the other positions, which are served for training.
    pub fn training(&self, validation: u64) -> Range<u64> {
        self.held_out(validation).end..self.summary.samples
    }
}

impl Ring {
    /// Returns the positions of a generation that are held out. The range is empty, or begins at 0.
    pub fn held_out(&self, manifest: &Manifest) -> Range<u64> {
        manifest.held_out(self.descriptor.validation)
    }

    /// Returns the positions of a generation that are served for training.
    pub fn training(&self, manifest: &Manifest) -> Range<u64> {
        manifest.training(self.descriptor.validation)
    }

    /// Returns whether a generation is never reclaimed. This includes an empty one between
    /// generations with held-out samples.
    pub fn is_kept(&self, manifest: &Manifest) -> bool {
        manifest.summary.before() < self.descriptor.validation
    }

    /// Returns the first generation that the validation split allows to reclaim and whose manifest
    /// it allows to prune: 0 if no samples are held out, and a number above every generation while
    /// the split is not complete.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn reclaimable_from(&self) -> Result<u64> {
        if self.descriptor.validation == 0 {
            return Ok(0);
        }
        self.kept_for_ever()?;
        Ok(self.lock_kept().end.unwrap_or(u64::MAX))
    }

    /// Returns the generations that are never reclaimed, oldest first, as far as their manifests
    /// are visible: those that hold held-out samples, and empty ones between them.
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn kept_for_ever(&self) -> Result<Vec<u64>> {
        if self.descriptor.validation == 0 {
            return Ok(Vec::new());
        }
        let newest = self.manifests.newest()?;
        let mut known = self.lock_kept();
        // Generations after a manifest that is not visible are read again at each call, until it
        // is.
        let mut behind = None;
        for generation in known.next..known.end.unwrap_or(newest + 1) {
            let Some(manifest) = self.manifests.get(generation)? else {
                behind.get_or_insert_default();
                continue;
            };
            if !self.is_kept(&manifest) {
                known.end = Some(generation);
                break;
            }
            behind.as_mut().unwrap_or(&mut known.kept).push(generation);
            if behind.is_none() {
                known.next = generation + 1;
            }
            if manifest.summary.total_samples >= self.descriptor.validation {
                known.end = Some(generation + 1);
                break;
            }
        }
        Ok(known.kept.iter().copied().chain(behind.unwrap_or_default()).collect())
    }

    /// Returns the held-out samples that exist so far, oldest first, as positions in generations.
    ///
    /// # Errors
    /// A manifest that must exist and is not visible (yet); filesystem errors.
    pub fn held_out_samples(&self) -> Result<Vec<Positions>> {
        self.held_out_and_lost().map(|(found, _)| found)
    }

    /// Like [`Ring::held_out_samples`], and also returns how many held-out samples are lost.
    ///
    /// # Errors
    /// As [`Ring::held_out_samples`].
    pub fn held_out_and_lost(&self) -> Result<(Vec<Positions>, u64)> {
        let newest = self.manifests.newest()?;
        let (mut found, mut samples, mut lost) = (Vec::new(), 0u64, 0u64);
        for generation in self.kept_for_ever()? {
            let Some(manifest) = self.manifests.get(generation)? else { continue };
            let positions = self.held_out(&manifest);
            lost = manifest.held_out_lost(self.descriptor.validation).saturating_add(lost);
            if !positions.is_empty() {
                samples += positions.end;
                found.push((manifest, positions));
            }
        }
        let all = self.manifests.get(newest)?.map_or(0, |manifest| manifest.summary.total_samples);
        let wanted = self.descriptor.validation.min(all);
        if lost.saturating_add(samples) < wanted {
            let message = format!("the visible manifests list {samples} of {wanted} held-out samples");
            return Err(Error::Manifest { path: self.layout.manifests(), message, passing: true });
        }
        Ok((found, lost))
    }

    /// Records in a note that a reader found a sample damaged, if the sample is held out. A failure
    /// is only logged, because the note is used only by `status`.
    pub(crate) fn note_damaged(&self, manifest: &Manifest, position: u64, why: &str) {
        if !self.held_out(manifest).contains(&position) {
            return;
        }
        let name = format!("{}.{position}", manifest.summary.generation);
        if let Err(error) = self.coordination.add_note(DAMAGED, &name, why) {
            tracing::debug!(%error, name, "cannot record a damaged held-out sample");
        }
    }

    fn lock_kept(&self) -> MutexGuard<'_, KeptSoFar> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
