//! Samples that are held out: the first VALIDATION samples of the ring, counted over the generations in the order of
//! their manifests. They are kept for ever, and never served for training.
//!
//! Manifests do not change, so everybody always agrees on which samples they are; and the generations that hold them
//! are the first ones, up to one from which on all others may be reclaimed.

use super::Ring;
use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::memory;
use crate::segment::SampleId;
use crate::segment::reader::{Access, SegmentReader};
use ringreel_format::ReadOptions;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The index folder in which readers note each damaged held-out sample, as `<generation>.<position>`.
const DAMAGED: &str = "damaged";

/// A held-out sample that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSample {
    /// Its generation.
    pub generation: u64,
    /// Its position there.
    pub position: u64,
    /// Its id.
    pub id: SampleId,
    /// The segment that holds it.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// The state of the held-out samples, as `status` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValidationState {
    /// Samples that can be read.
    pub readable: u64,
    /// Samples that readers found damaged, and that still are.
    pub damaged: u64,
}

/// A generation that is kept since it holds samples that are held out (or is empty, and lies between those).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptGeneration {
    /// Its number.
    pub generation: u64,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Their number.
    pub files: u64,
}

/// A generation, and positions in it.
pub type Positions = (Arc<Manifest>, Range<u64>);

/// What this process knows of these generations.
#[derive(Debug, Default)]
pub(crate) struct KeptSoFar {
    /// Those before `next`.
    kept: Vec<KeptGeneration>,
    /// The first generation whose manifest was not seen yet.
    next: u64,
    /// The first generation that is known not to be kept, be its manifest pruned or not. None after it is.
    end: Option<u64>,
}

impl Manifest {
    /// The positions of this generation's samples that are held out, where the first `validation` samples of the ring
    /// are: its first ones, or none.
    pub fn held_out(&self, validation: u64) -> Range<u64> {
        0..validation.saturating_sub(self.summary.before()).min(self.summary.samples)
    }

    /// How many samples that were held out are gone: this manifest was lost, and made again from what was left.
    pub fn held_out_lost(&self, validation: u64) -> u64 {
        let listed = self.summary.samples.saturating_add(self.summary.lost);
        validation.saturating_sub(self.summary.before()).min(listed) - self.held_out(validation).end
    }

    /// The other positions: those that are served for training.
    pub fn training(&self, validation: u64) -> Range<u64> {
        self.held_out(validation).end..self.summary.samples
    }
}

impl Ring {
    /// The positions of a generation that are held out: its first ones, or none.
    pub fn held_out(&self, manifest: &Manifest) -> Range<u64> {
        manifest.held_out(self.descriptor.validation)
    }

    /// The positions of a generation that are served for training: all others.
    pub fn training(&self, manifest: &Manifest) -> Range<u64> {
        manifest.training(self.descriptor.validation)
    }

    /// Whether a generation is never reclaimed. (An empty one between those that hold held-out samples stays, too.)
    pub fn is_kept(&self, manifest: &Manifest) -> bool {
        manifest.summary.before() < self.descriptor.validation
    }

    /// The first generation that may be reclaimed, and its manifest pruned, as far as held-out samples go: 0 where none
    /// are held out, and a number that no generation has as long as none is known.
    ///
    /// # Errors
    /// What the filesystem says.
    pub(crate) fn reclaimable_from(&self) -> Result<u64> {
        if self.descriptor.validation == 0 {
            return Ok(0);
        }
        self.kept_for_ever()?;
        Ok(self.lock_kept().end.unwrap_or(u64::MAX))
    }

    /// The generations that are never reclaimed, oldest first, as far as their manifests can be seen.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn kept_for_ever(&self) -> Result<Vec<KeptGeneration>> {
        if self.descriptor.validation == 0 {
            return Ok(Vec::new());
        }
        let newest = self.manifests.newest()?;
        let mut known = self.lock_kept();
        // What lies behind a manifest that cannot be seen is looked at each time, until it is seen.
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
            let (bytes, files) = (manifest.summary.bytes, manifest.segments.len() as u64);
            behind.as_mut().unwrap_or(&mut known.kept).push(KeptGeneration { generation, bytes, files });
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

    /// The samples that are held out, oldest first, as far as there are any yet: positions in generations.
    ///
    /// # Errors
    /// A manifest that must be there and cannot be seen (yet); what the filesystem says.
    pub fn held_out_samples(&self) -> Result<Vec<Positions>> {
        self.held_out_and_lost().map(|(found, _)| found)
    }

    /// The same, and how many of them are gone for ever.
    ///
    /// # Errors
    /// As [`Ring::held_out_samples`].
    pub fn held_out_and_lost(&self) -> Result<(Vec<Positions>, u64)> {
        let newest = self.manifests.newest()?;
        let (mut found, mut samples, mut lost) = (Vec::new(), 0u64, 0u64);
        for kept in self.kept_for_ever()? {
            let Some(manifest) = self.manifests.get(kept.generation)? else { continue };
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
            let message = format!("of {wanted} held-out samples, the manifests that can be seen list {samples}");
            return Err(Error::Manifest { path: self.layout.manifests(), message, passing: true });
        }
        Ok((found, lost))
    }

    /// Returns the damaged held-out samples. Reads every byte of all held-out samples.
    ///
    /// # Errors
    /// As [`Ring::held_out_samples`]; a file server that does not answer.
    pub fn damaged_held_out(&self) -> Result<Vec<DamagedSample>> {
        let mut damaged = Vec::new();
        for (manifest, positions) in self.held_out_samples()? {
            for position in positions {
                damaged.extend(self.check_held_out(&manifest, position)?);
            }
        }
        Ok(damaged)
    }

    /// Counts the held-out samples. Of their contents, it reads only the samples that a reader found damaged, so that
    /// a file put back from a copy counts again.
    ///
    /// # Errors
    /// What the filesystem says. A missing manifest or an index that does not answer is no error.
    pub fn held_out_state(&self) -> Result<ValidationState> {
        let found = match self.held_out_samples() {
            Err(Error::Manifest { .. }) => return Ok(ValidationState::default()),
            other => other?,
        };
        let samples: u64 = found.iter().map(|(_, positions)| positions.end - positions.start).sum();
        let mut damaged = 0;
        for name in if_available(self.coordination.note_names(DAMAGED))?.unwrap_or_default() {
            let parsed =
                name.split_once('.').and_then(|(n, at)| Some((n.parse::<u64>().ok()?, at.parse::<u64>().ok()?)));
            let Some((generation, position)) = parsed else { continue };
            let here = |(manifest, positions): &&Positions| {
                manifest.summary.generation == generation && positions.contains(&position)
            };
            if let Some((manifest, _)) = found.iter().find(here) {
                damaged += u64::from(self.check_held_out(manifest, position)?.is_some());
            }
        }
        Ok(ValidationState { readable: samples.saturating_sub(damaged), damaged })
    }

    /// Notes in the index that a reader found a sample damaged, if the sample is held out. A failure is only logged:
    /// the note is for `status` alone.
    pub(crate) fn note_damaged(&self, manifest: &Manifest, position: u64, why: &str) {
        if !self.held_out(manifest).contains(&position) {
            return;
        }
        let name = format!("{}.{position}", manifest.summary.generation);
        if let Err(error) = self.coordination.add_note(DAMAGED, &name, why) {
            tracing::debug!(%error, name, "cannot note a damaged held-out sample");
        }
    }

    /// Reads one sample and compares its checksums.
    fn check_held_out(&self, manifest: &Manifest, position: u64) -> Result<Option<DamagedSample>> {
        let Some((entry, ordinal)) = manifest.locate(position) else { return Ok(None) };
        let generation = manifest.summary.generation;
        let path = self.layout.read(generation).join(entry.file());
        let options = ReadOptions { verify: true, max_part: memory::bytes() };
        let read = SegmentReader::open(&*self.fs, &path, Access::Copy)
            .and_then(|segment| entry.check(&segment).and_then(|()| segment.sample(ordinal, options)));
        let why = match read {
            Ok(_) => return Ok(None),
            Err(Error::Fs { source }) if source.is_gone() => "the file is missing".to_owned(),
            Err(Error::Fs { source }) if source.is_away() => return Err(source.into()),
            Err(Error::Format { source, .. }) => source.to_string(),
            Err(error) => error.to_string(),
        };
        let id = SampleId { segment: entry.id, ordinal };
        Ok(Some(DamagedSample { generation, position, id, path, why }))
    }

    fn lock_kept(&self) -> MutexGuard<'_, KeptSoFar> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
