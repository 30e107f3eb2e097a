//! Evidence in a generation's directory for its lost manifest.
//!
//! A staging name exists until a manifest lists its segment. So a segment in `read.<n>` without a staging name that no
//! other manifest lists was listed by manifest `n`. A segment with a staging name may have been listed too, if the
//! promoter died before it removed the name; or it was linked too late, and its owner links it again. The totals of the
//! adjacent manifests tell how many samples the manifest listed.

use super::manifests::Rebuilt;
use ringreel::error::{Error, Result};
use ringreel::manifest::{SegmentEntry, Summary};
use ringreel::ring::Ring;
use ringreel_format::SegmentId;
use std::collections::HashSet;
use std::sync::Arc;

/// The segments in a directory with a lost manifest that no other manifest lists. Each id once, in the order in which
/// segments are chosen.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Whether the directory exists.
    pub there: bool,
    /// Segments that the manifest must have listed.
    pub certain: Vec<SegmentEntry>,
    /// Segments that it may have listed.
    pub possible: Vec<SegmentEntry>,
    /// Number of files that cannot be read.
    pub damaged: usize,
}

/// The segments to list.
#[derive(Debug)]
pub(super) struct Choice {
    /// The segments of the rebuilt manifest.
    pub listed: Vec<SegmentEntry>,
    /// Whether the choice is inferred and not certain.
    pub inferred: bool,
    /// Staged segments that may or may not have been delivered.
    pub unclear: Vec<SegmentEntry>,
}

pub(super) fn samples(segments: &[SegmentEntry]) -> u64 {
    segments.iter().fold(0, |sum, entry| sum.saturating_add(entry.samples))
}

impl Evidence {
    /// Chooses the segments to list. `listed` is the number of samples in the lost manifest, if it is known; `cap` is the
    /// maximum.
    pub(super) fn choose(self, listed: Option<u64>, cap: u64) -> Choice {
        let sure = samples(&self.certain);
        let most = listed.unwrap_or(cap).min(cap);
        let room = most.saturating_sub(sure);
        // More than it can have listed: other files were removed by hand too.
        let mut choice = Choice { listed: self.certain, inferred: sure > most, unclear: Vec::new() };
        // All listed segments exist: the others were linked too late, and their owners link them again.
        if self.possible.is_empty() || room == 0 {
            return choice;
        }
        choice.inferred = true;
        let mut left = room;
        for entry in self.possible {
            if entry.samples <= left {
                left -= entry.samples;
                choice.listed.push(entry);
            } else {
                choice.unclear.push(entry);
            }
        }
        choice.listed.sort_by_key(|entry| (entry.born, entry.index, entry.id));
        choice
    }
}

/// Collects the evidence in `read.<n>`. The order matters: first the directory, then staging, then the manifests, because a
/// later manifest may list a segment meanwhile.
pub(super) fn evidence(ring: &Ring, n: u64, rebuilt: &Rebuilt, elsewhere: &HashSet<SegmentId>) -> Result<Evidence> {
    let Some(found) = ring.segments_in(&ring.layout.read(n))? else { return Ok(Evidence::default()) };
    let mut evidence = Evidence { there: true, damaged: found.damaged, ..Evidence::default() };
    let mut seen = HashSet::new();
    for entry in found.segments {
        // A staged segment that is linked into an unpublished generation is delivered by that generation.
        let staged = ring.fs.exists(&ring.layout.sealed(&entry.owner, entry.id))?;
        if !seen.insert(entry.id) || (staged && elsewhere.contains(&entry.id)) {
            continue;
        }
        if staged { &mut evidence.possible } else { &mut evidence.certain }.push(Arc::unwrap_or_clone(entry));
    }
    // Read after staging, because an owner may have moved a segment from there meanwhile.
    let quarantined = ring.quarantined()?;
    evidence.certain.retain(|entry| !quarantined.contains(&entry.id));
    evidence.possible.retain(|entry| !quarantined.contains(&entry.id));
    let newest = ring.manifests.numbers()?.into_iter().max().unwrap_or(0);
    drop_listed(ring, n, &mut evidence.certain, newest, rebuilt)?;
    drop_listed(ring, n, &mut evidence.possible, newest, rebuilt)?;
    Ok(evidence)
}

/// Removes the entries that a readable or rebuilt manifest lists, except that of generation `but`. (Reads each manifest
/// once, because there may be thousands.)
pub(super) fn drop_listed(
    ring: &Ring,
    but: u64,
    entries: &mut Vec<SegmentEntry>,
    newest: u64,
    rebuilt: &Rebuilt,
) -> Result<()> {
    let Some(first) = entries.iter().map(|entry| entry.born).min() else { return Ok(()) };
    for k in ring.manifests.between(first, newest)?.into_iter().filter(|k| *k != but) {
        entries.retain(|entry| !rebuilt.lists(k, entry.id));
        match ring.manifests.get_surely(k) {
            Ok(Some(manifest)) => entries.retain(|entry| !manifest.lists(entry.id)),
            Ok(None) | Err(Error::Manifest { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the summary of generation `n`, rebuilt or existing; `None` if there is neither.
pub(super) fn summary_of(ring: &Ring, n: u64, rebuilt: &Rebuilt) -> Result<Option<Summary>> {
    if let Some(summary) = rebuilt.summary(n) {
        return Ok(Some(summary.clone()));
    }
    match ring.manifests.get_surely(n) {
        Ok(manifest) => Ok(manifest.map(|manifest| manifest.summary.clone())),
        Err(Error::Manifest { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
