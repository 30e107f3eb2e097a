//! Segments whose last name is in a directory where no process looks for it. They are staged again under their owner, and
//! then linked like all finished segments of dead owners.

use super::facts::{Blocker, Cause, Remedy};
use super::{Liveness, Plan};
use crate::phase::Phase;
use ringreel::error::{Error, Result};
use ringreel::fs::atomic_publish::same_file;
use ringreel::layout::GenerationDir;
use ringreel::manifest::SegmentEntry;
use ringreel::ring::Ring;
use ringreel::segment::reader::check_stored;
use ringreel::swap::orphans::Delivery;
use std::path::PathBuf;

/// Most segments that are examined in one directory at a time.
const AT_ONCE: usize = 10_000;

/// A misplaced segment.
#[derive(Debug)]
pub(super) struct Stray {
    path: PathBuf,
    entry: SegmentEntry,
    /// What is wrong with it.
    damage: Option<String>,
}

/// Finds segments that no manifest lists and whose only name is in a generation's directory.
pub(super) fn plan_strays(ring: &Ring, life: &Liveness, plan: &mut Plan) -> Result<()> {
    let next = plan.newest + 1;
    for name in ring.fs.list(ring.layout.root())? {
        let dir = ring.layout.root().join(&name);
        let Some(found) = GenerationDir::parse(&name) else { continue };
        if matches!(Phase::of(found, next), Phase::Filling | Phase::Promoting) {
            continue; // its future manifest will list the contents
        }
        let manifest = match found {
            GenerationDir::Write(_) => None,
            GenerationDir::Read(k) if !plan.rebuilt.contains(k) => match ring.manifests.get(k) {
                Ok(manifest) => manifest,
                Err(Error::Manifest { .. }) => continue,
                Err(error) => return Err(error),
            },
            GenerationDir::Read(_) => continue,
        };
        let judge = |entry: &SegmentEntry| delivery_with(ring, entry, plan);
        for (entry, verdict) in ring.last_names(&dir, manifest.as_deref(), AT_ONCE, plan.newest, &judge)? {
            let path = dir.join(entry.file());
            let why = Cause::LastName { samples: entry.samples };
            let damage = match check_stored(&*ring.fs, &path) {
                Ok(_) => None,
                Err(Error::Format { source, .. }) => Some(source.to_string()),
                Err(Error::Fs { source }) if source.is_gone() => continue, // reclaimed meanwhile
                Err(error) => return Err(error),
            };
            let action = match &damage {
                None => Remedy::StageAgain,
                Some(why) => Remedy::QuarantineDamaged { why: why.clone() },
            };
            let blocked = match verdict {
                Delivery::Unclear => Some(Blocker::UnreadableManifest),
                _ if *life == Liveness::Unheard => life.is_in_the_way(),
                _ => None,
            };
            plan.depends_on_life |= blocked.is_none();
            ring.failure_detector().silence(&entry.owner); // starts to time its silence
            plan.add("segment", &path, why, action, blocked.clone());
            if blocked.is_none() {
                plan.strays.push(Stray { path, entry, damage });
            }
        }
    }
    Ok(())
}

/// Returns whether a segment was delivered, by the existing and the rebuilt manifests.
pub(super) fn delivery_with(ring: &Ring, entry: &SegmentEntry, plan: &Plan) -> Result<Delivery> {
    if entry.born > plan.newest + 1 {
        return Ok(Delivery::Unclear); // the manifests that would list it are lost
    }
    if plan.rebuilt.numbers().any(|n| n >= entry.born && plan.rebuilt.lists(n, entry.id)) {
        return Ok(Delivery::Delivered);
    }
    let mut from = entry.born;
    for n in plan.rebuilt.numbers().filter(|n| *n >= entry.born) {
        if from < n {
            let verdict = ring.delivery_from(entry, from, n - 1)?;
            if verdict != Delivery::Undelivered {
                return Ok(verdict);
            }
        }
        from = n + 1;
    }
    if from > plan.newest { Ok(Delivery::Undelivered) } else { ring.delivery_from(entry, from, plan.newest) }
}

/// Gives the segment a staging name again; a damaged one then goes to quarantine.
pub(super) fn apply_stray(ring: &Ring, stray: &Stray) -> Result<()> {
    stage_again(ring, stray)?;
    match &stray.damage {
        Some(why) => ring.quarantine_staged(&stray.entry.owner, stray.entry.id, why.clone()).map(drop),
        None => Ok(()),
    }
}

fn stage_again(ring: &Ring, stray: &Stray) -> Result<()> {
    let SegmentEntry { owner, id, .. } = &stray.entry;
    let staged = ring.layout.sealed(owner, *id);
    ring.fs.ensure_dir(&ring.layout.staging())?;
    ring.fs.ensure_dir(&ring.layout.staging_of(owner))?;
    // After a false "not found", the next plan finds the file again.
    match ring.fs.link(&stray.path, &staged) {
        Ok(()) => Ok(()),
        Err(error) if error.is_gone() => Ok(()), // moved by another process
        Err(error) => match same_file(&*ring.fs, &stray.path, &staged) {
            Ok(Some(true)) => Ok(()),
            _ => Err(error.into()),
        },
    }
}
