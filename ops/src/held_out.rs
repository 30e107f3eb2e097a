//! Finds held-out samples that cannot be read, and counts the others.

use ringreel::coordination::if_available;
use ringreel::error::{Error, Result};
use ringreel::manifest::Manifest;
use ringreel::memory;
use ringreel::ring::Ring;
use ringreel::ring::validation_split::{DAMAGED, Positions};
use ringreel::segment::SampleId;
use ringreel::segment::reader::{Access, SegmentReader};
use ringreel_format::ReadOptions;
use std::path::PathBuf;

/// A held-out sample that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSample {
    /// The generation of the sample.
    pub generation: u64,
    /// Its position in the generation.
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
    /// Number of samples that can be read.
    pub readable: u64,
    /// Number of samples that readers found damaged and that are still damaged.
    pub damaged: u64,
}

/// Returns the damaged held-out samples. Reads every byte of all held-out samples.
///
/// # Errors
/// As [`Ring::held_out_samples`]; a file server that does not respond.
pub fn damaged_held_out(ring: &Ring) -> Result<Vec<DamagedSample>> {
    let mut damaged = Vec::new();
    for (manifest, positions) in ring.held_out_samples()? {
        for position in positions {
            damaged.extend(check(ring, &manifest, position)?);
        }
    }
    Ok(damaged)
}

/// Counts the held-out samples. Reads only those that a reader found damaged, so that a file
/// restored from a copy counts as readable again.
///
/// # Errors
/// Filesystem errors. A missing manifest or an unreachable coordination store is not an error.
pub fn held_out_state(ring: &Ring) -> Result<ValidationState> {
    let found = match ring.held_out_samples() {
        Err(Error::Manifest { .. }) => return Ok(ValidationState::default()),
        other => other?,
    };
    let samples: u64 = found.iter().map(|(_, positions)| positions.end - positions.start).sum();
    let mut damaged = 0;
    for name in if_available(ring.coordination.note_names(DAMAGED))?.unwrap_or_default() {
        let parsed = name.split_once('.').and_then(|(n, at)| Some((n.parse::<u64>().ok()?, at.parse::<u64>().ok()?)));
        let Some((generation, position)) = parsed else { continue };
        let here = |(manifest, positions): &&Positions| {
            manifest.summary.generation == generation && positions.contains(&position)
        };
        if let Some((manifest, _)) = found.iter().find(here) {
            damaged += u64::from(check(ring, manifest, position)?.is_some());
        }
    }
    Ok(ValidationState { readable: samples.saturating_sub(damaged), damaged })
}

/// Reads one sample and verifies its checksums. Returns `None` if it is intact.
fn check(ring: &Ring, manifest: &Manifest, position: u64) -> Result<Option<DamagedSample>> {
    let Some((entry, ordinal)) = manifest.locate(position) else { return Ok(None) };
    let generation = manifest.summary.generation;
    let path = ring.layout.read(generation).join(entry.file());
    let options = ReadOptions { verify: true, max_part: memory::bytes() };
    let read = SegmentReader::open(&*ring.fs, &path, Access::Copy)
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
