//! What a generation's directory proves of its manifest, when that is lost.
//!
//! A staging name stays until a manifest lists its segment. So a segment in `read.<n>` that has no staging name, and
//! that no other manifest lists, was listed by manifest `n`. One that has a staging name may have been, too: whoever
//! published the manifest died before he removed the name; or it came too late, and its owner links it once more. How
//! many samples the manifest listed, the neighbours' totals tell.

use super::manifests::Rebuilt;
use ringreel::error::{Error, Result};
use ringreel::manifest::{SegmentEntry, Summary};
use ringreel::ring::Ring;
use ringreel_format::SegmentId;
use std::collections::HashSet;
use std::sync::Arc;

/// What lies in a directory whose manifest is lost, and is listed by no other one. Each id once, in the order in which
/// segments are chosen.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Whether the directory is there.
    pub there: bool,
    /// Segments that the manifest must have listed.
    pub certain: Vec<SegmentEntry>,
    /// Segments that it may have listed.
    pub possible: Vec<SegmentEntry>,
    /// Files that cannot be read.
    pub damaged: usize,
}

/// What is to be listed, and what cannot be told of.
#[derive(Debug)]
pub(super) struct Choice {
    /// The segments of the manifest.
    pub listed: Vec<SegmentEntry>,
    /// Whether any of them, or of the others, is there by inference alone.
    pub inferred: bool,
    /// Staged segments of which it cannot be told whether they were delivered.
    pub unclear: Vec<SegmentEntry>,
}

pub(super) fn samples(segments: &[SegmentEntry]) -> u64 {
    segments.iter().fold(0, |sum, entry| sum.saturating_add(entry.samples))
}

impl Evidence {
    /// `listed`: how many samples the manifest listed, where that can be told; never more than `cap`.
    pub(super) fn choose(self, listed: Option<u64>, cap: u64) -> Choice {
        let sure = samples(&self.certain);
        let most = listed.unwrap_or(cap).min(cap);
        let room = most.saturating_sub(sure);
        // More than it can have listed: something else was removed by hand, too.
        let mut choice = Choice { listed: self.certain, inferred: sure > most, unclear: Vec::new() };
        // All that it listed is there: the others came too late, and their owners know.
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

/// Looks at `read.<n>`. The order matters: first what is there, then whether it is staged, then what the manifests
/// say, of which a later one may list it meanwhile.
pub(super) fn evidence(ring: &Ring, n: u64, rebuilt: &Rebuilt, elsewhere: &HashSet<SegmentId>) -> Result<Evidence> {
    let Some(found) = ring.segments_in(&ring.layout.read(n))? else { return Ok(Evidence::default()) };
    let mut evidence = Evidence { there: true, damaged: found.damaged.len(), ..Evidence::default() };
    let mut seen = HashSet::new();
    for entry in found.segments {
        // What is staged, and linked into a generation that is still to be listed, is delivered by that one.
        let staged = ring.fs.exists(&ring.layout.sealed(&entry.owner, entry.id))?;
        if !seen.insert(entry.id) || (staged && elsewhere.contains(&entry.id)) {
            continue;
        }
        if staged { &mut evidence.possible } else { &mut evidence.certain }.push(Arc::unwrap_or_clone(entry));
    }
    // Looked at after the staging names, from where an owner may have moved it meanwhile.
    let quarantined = ring.quarantined()?;
    evidence.certain.retain(|entry| !quarantined.contains(&entry.id));
    evidence.possible.retain(|entry| !quarantined.contains(&entry.id));
    let newest = ring.manifests.numbers()?.into_iter().max().unwrap_or(0);
    drop_listed(ring, n, &mut evidence.certain, newest, rebuilt)?;
    drop_listed(ring, n, &mut evidence.possible, newest, rebuilt)?;
    Ok(evidence)
}

/// Drops what a manifest lists that can be read or that is rebuilt: any but that of generation `but`. (Each manifest
/// is read once: there may be thousands.)
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

/// The summary of generation `n`, rebuilt or as it is; none where neither can be had.
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
