//! Orphans: segments in the directory of a generation that no manifest lists and that have no
//! staging name any more. Removing an orphan would lose its samples.
//!
//! Normally there are no such segments, because a staging name stays until a manifest lists the
//! segment. They exist after files were removed by hand or a manifest was lost.

use crate::error::{Error, Result};
use crate::fs::surely;
use crate::layout::SegmentName;
use crate::manifest::store::Lookup;
use crate::manifest::{Manifest, SegmentEntry};
use crate::ring::Ring;
use crate::ring::scan::ScannedGeneration;
use ringreel_format::SegmentId;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// What the manifests say about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A manifest lists it.
    Delivered,
    /// No manifest lists it, and every manifest that could list it exists.
    Undelivered,
    /// A manifest that could list it cannot be read.
    Unclear,
    /// The first manifest that could list it was pruned.
    TooOld,
}

impl Ring {
    /// Returns whether a manifest from `from` up to `newest` lists the segment.
    pub fn delivery_from(&self, entry: &SegmentEntry, from: u64, newest: u64) -> Result<Delivery> {
        match self.manifests.find(entry.id, from, newest) {
            Ok(Lookup::Listed(_)) => Ok(Delivery::Delivered),
            Ok(Lookup::Pruned) => Ok(Delivery::TooOld),
            Ok(Lookup::NotListed) => Ok(Delivery::Undelivered),
            Err(Error::Manifest { .. }) => Ok(Delivery::Unclear),
            Err(Error::Fs { source }) if source.is_gone() => Ok(Delivery::Unclear),
            Err(error) => Err(error),
        }
    }

    /// Returns at most `limit` readable segments in the directory of a generation that have no
    /// other name and that `judge` does not find delivered. `manifest` is that of the generation,
    /// if it has one; `newest` is the newest generation.
    pub fn last_names(
        &self,
        dir: &Path,
        manifest: Option<&Manifest>,
        limit: usize,
        newest: u64,
        judge: &dyn Fn(&SegmentEntry) -> Result<Delivery>,
    ) -> Result<Vec<(SegmentEntry, Delivery)>> {
        let mut found = Vec::new();
        if !self.is_dir(dir)? {
            return Ok(found);
        }
        let names = self.list_or_none(dir)?;
        let listed = manifest.map(Manifest::names).unwrap_or_default();
        let mut elsewhere = None;
        for name in &names {
            if found.len() >= limit {
                break;
            }
            let Some(parsed) = SegmentName::parse(name).filter(|parsed| !listed.contains(parsed)) else { continue };
            let entry = match self.read_entry(dir, name, parsed.index) {
                Ok(entry) => entry,
                Err(Error::Format { .. }) => continue,
                Err(Error::Fs { source }) if !source.is_retryable() => continue,
                Err(error) => return Err(error),
            };
            if self.fs.exists(&self.layout.sealed(&entry.owner, entry.id))? {
                continue;
            }
            // The staging name is checked first, because it is removed only after a manifest lists
            // the segment.
            let verdict = judge(&entry)?;
            if matches!(verdict, Delivery::Delivered | Delivery::TooOld) {
                continue;
            }
            if elsewhere.is_none() {
                let mut ids = self.quarantined()?;
                ids.extend(self.in_filling(newest + 1)?);
                elsewhere = Some(ids);
            }
            if elsewhere.as_ref().is_none_or(|ids| !ids.contains(&entry.id)) {
                found.push((entry, verdict));
            }
        }
        Ok(found)
    }

    /// Returns whether `dir` is a directory, and not a link, for instance, which ringreel never creates.
    fn is_dir(&self, dir: &Path) -> Result<bool> {
        match surely(&*self.fs, dir, || self.fs.identity(dir)) {
            Ok(is) => Ok(is.is_dir),
            Err(error) if error.is_gone() && !error.is_stale() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the ids of the segments that are linked into generation `n`, which fills or is being
    /// promoted, or into the one after it.
    pub fn in_filling(&self, n: u64) -> Result<HashSet<SegmentId>> {
        let mut ids = HashSet::new();
        let (write, read) = (|n| self.layout.write(n), |n| self.layout.read(n));
        for dir in [write(n), read(n), write(n + 1), read(n + 1)] {
            let found = self.segments_in(&dir)?.unwrap_or_default();
            ids.extend(found.segments.iter().map(|entry| entry.id));
        }
        Ok(ids)
    }

    /// Returns the segments in a directory, or `None` if it does not exist. A segment that cannot
    /// be read just now is an error and is not counted as damaged, because the caller's decision
    /// cannot be undone.
    pub fn segments_in(&self, dir: &Path) -> Result<Option<ScannedGeneration>> {
        if !self.is_dir(dir)? {
            return Ok(None);
        }
        let mut found = ScannedGeneration::default();
        for name in self.list_or_none(dir)? {
            let Some(parsed) = SegmentName::parse(&name) else { continue };
            match self.read_entry(dir, &name, parsed.index) {
                Ok(entry) => found.segments.push(Arc::new(entry)),
                Err(Error::Fs { source }) if source.is_retryable() || source.is_denied() => return Err(source.into()),
                Err(Error::Fs { source }) if source.is_gone() => {}
                Err(_) => found.damaged += 1,
            }
        }
        found.segments.sort_by_key(|entry| (entry.born, entry.index, entry.id));
        Ok(Some(found))
    }

    /// Returns the ids of the segments in quarantine.
    pub fn quarantined(&self) -> Result<HashSet<SegmentId>> {
        let names = self.list_or_none(&self.layout.quarantine())?;
        Ok(names.iter().flat_map(|name| name.split('.')).filter_map(|word| word.parse().ok()).collect())
    }
}
