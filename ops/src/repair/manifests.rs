//! Rebuilds missing or damaged manifests from the evidence in the generation's directory.
//!
//! A rebuilt manifest of certain segments alone lists the same ids as the lost one, as far as they still exist. Processes
//! that still know the lost manifest see no difference, so others may work meanwhile. It is published by link, like every
//! manifest: if one exists that this client does not see, the existing one wins. Manifests with inferred segments, and
//! replacements of damaged manifests, wait until no manager and no generator is alive.

use super::facts::{Blocker, Cause, Rebuilding, Remedy};
use super::reconstruct::{Choice, drop_listed, evidence, samples, summary_of};
use super::{Liveness, Plan};
use crate::phase::Phase;
use ringreel::error::{Error, Result};
use ringreel::fs::atomic_publish::{publish, same_file, write_new};
use ringreel::layout::{GenerationDir, is_owner, read_generations, sealed_id};
use ringreel::manifest::store::first_unpruned;
use ringreel::manifest::{Manifest, SegmentEntry, Summary};
use ringreel::random::random_u32;
use ringreel::ring::Ring;
use ringreel::segment::reader::read_tail;
use ringreel_format::SegmentId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// Most generations beyond the newest manifest whose manifests can be rebuilt.
const BEYOND: u64 = 64;
/// Beginning of the error message for a manifest of another version.
const OTHER_VERSION: &str = "it has version";

/// The rebuilt manifests, by generation.
#[derive(Debug, Default)]
pub(super) struct Rebuilt(BTreeMap<u64, Manifest>);

impl Rebuilt {
    pub(super) fn lists(&self, n: u64, id: SegmentId) -> bool {
        self.0.get(&n).is_some_and(|manifest| manifest.lists(id))
    }

    pub(super) fn summary(&self, n: u64) -> Option<&Summary> {
        self.0.get(&n).map(|manifest| &manifest.summary)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    pub(super) fn contains(&self, n: u64) -> bool {
        self.0.contains_key(&n)
    }
}

/// A manifest to publish.
#[derive(Debug)]
pub(super) struct Rebuild {
    generation: u64,
    /// The error of the damaged manifest that it replaces.
    replaces: Option<String>,
    /// Staged segments that may or may not have been delivered.
    pub(super) unclear: Vec<SegmentEntry>,
}

/// Finds the lost manifests, oldest first, and rebuilds them in the plan.
pub(super) fn plan_manifests(ring: &Ring, life: &Liveness, plan: &mut Plan) -> Result<()> {
    let newest = ring.manifests.numbers()?.into_iter().max();
    let mut broken = broken(ring, newest.unwrap_or(0), plan)?;
    let top = beyond(ring, newest)?;
    let next = newest.map_or(0, |newest| newest + 1);
    let gone = (next..=top.unwrap_or(0)).filter(|n| top.is_some() || *n == 0);
    broken.extend(gone.map(|n| (n, Cause::NoManifestOfReadable)));
    plan.newest = top.max(newest).unwrap_or(0);
    let elsewhere = ring.in_filling(plan.newest + 1)?;
    let beyond = plan_beyond(ring, plan)?;
    let numbers: BTreeSet<u64> = broken.iter().map(|(n, _)| *n).collect();
    let mut blocked_at = None;
    for (n, why) in broken {
        let before = if n == 0 { None } else { summary_of(ring, n - 1, &plan.rebuilt)? };
        if n > 0 && before.is_none() {
            let blocked = Some(Blocker::ManifestFirst { generation: n - 1 });
            plan.add("manifest", &ring.layout.manifest(n), why, Remedy::Rebuild, blocked);
            continue;
        }
        let after = if numbers.contains(&(n + 1)) { None } else { summary_of(ring, n + 1, &plan.rebuilt)? };
        let (manifest, choice, action) = rebuild(ring, n, before.as_ref(), after.as_ref(), plan, &elsewhere)?;
        let mut blocked = beyond.clone();
        let replaces = if let Cause::Refused { why } = &why { Some(why.clone()) } else { None };
        // If the next manifest is lost too, a segment that was linked late may be in both directories, and no manifest
        // says which of them listed it.
        let in_doubt = choice.inferred || numbers.contains(&(n + 1));
        if blocked.is_none() && (replaces.is_some() || in_doubt) {
            plan.depends_on_life = true;
            blocked = life.is_in_the_way();
        }
        if blocked.is_none() && n > 0 && blocked_at == Some(n - 1) {
            blocked = Some(Blocker::ManifestFirst { generation: n - 1 });
        }
        if blocked.is_some() {
            blocked_at = Some(n);
        } else {
            plan.rebuilds.push(Rebuild { generation: n, replaces, unclear: choice.unclear });
        }
        plan.add("manifest", &ring.layout.manifest(n), why, action, blocked);
        plan.rebuilt.0.insert(n, manifest);
    }
    Ok(())
}

/// Returns the missing and damaged manifests up to the newest: number and cause.
fn broken(ring: &Ring, newest: u64, plan: &mut Plan) -> Result<Vec<(u64, Cause)>> {
    let mut broken = Vec::new();
    // Older manifests may be pruned, and count as empty.
    for n in first_unpruned(newest)..=newest {
        let path = ring.layout.manifest(n);
        match ring.manifests.get_surely(n) {
            Ok(Some(manifest)) if manifest.summary.ring == ring.descriptor.ring_id => {}
            Ok(Some(manifest)) => {
                let why = Cause::OtherRing { ring: manifest.summary.ring.clone() };
                plan.add("manifest", &path, why, Remedy::NothingIsKnown, Some(Blocker::RestoreManifest));
            }
            Ok(None) => broken.push((n, Cause::NoManifest)),
            Err(Error::Manifest { message, .. }) if message.starts_with(OTHER_VERSION) => {
                let why = Cause::Refused { why: message };
                plan.add("manifest", &path, why, Remedy::LeaveWhole, Some(Blocker::OtherVersion));
            }
            Err(Error::Manifest { message, .. }) => broken.push((n, Cause::Refused { why: message })),
            Err(error) => return Err(error),
        }
    }
    Ok(broken)
}

/// Finds generations too far beyond the newest manifest to be rebuilt. Returns a blocker if there are any, because new
/// generations below them would deliver their samples twice.
fn plan_beyond(ring: &Ring, plan: &mut Plan) -> Result<Option<Blocker>> {
    let mut blocked = None;
    let names = ring.fs.list(ring.layout.root())?;
    // Listed after the directories, so that a promotion meanwhile does not look like a lost manifest.
    let newest = ring.manifests.numbers()?.into_iter().max().max(Some(plan.newest)).unwrap_or(0);
    for k in read_generations(&names) {
        let path = ring.layout.read(k);
        if Phase::of(GenerationDir::Read(k), newest + 1) != Phase::Ahead
            || ring.segments_in(&path)?.is_none_or(|found| found.segments.is_empty())
        {
            continue;
        }
        let (why, action) = (Cause::TooManyManifestsLost, Remedy::RestoreManifests);
        blocked = Some(Blocker::ManifestsLost { path });
        plan.add("manifest", &ring.layout.manifest(k), why, action, blocked.clone());
    }
    Ok(blocked)
}

/// Returns the highest generation beyond the newest manifest with a segment that a manifest must have listed. (An
/// unfinished promotion leaves all staging names.)
fn beyond(ring: &Ring, newest: Option<u64>) -> Result<Option<u64>> {
    let next = newest.map_or(0, |newest| newest + 1);
    let mut top = None;
    for k in read_generations(&ring.fs.list(ring.layout.root())?) {
        if (next..next.saturating_add(BEYOND)).contains(&k)
            && !evidence(ring, k, &Rebuilt::default(), &HashSet::new())?.certain.is_empty()
            && !ring.fs.exists(&ring.layout.manifest(k))?
        {
            top = top.max(Some(k));
        }
    }
    Ok(top)
}

fn rebuild(
    ring: &Ring,
    n: u64,
    before: Option<&Summary>,
    after: Option<&Summary>,
    plan: &Plan,
    elsewhere: &HashSet<SegmentId>,
) -> Result<(Manifest, Choice, Remedy)> {
    let Some(before) = before else {
        let summary = Summary::empty(&ring.descriptor.ring_id, &ring.me);
        let choice = Choice { listed: Vec::new(), inferred: false, unclear: Vec::new() };
        return Ok((Manifest::new(summary, Vec::new()), choice, Remedy::RemakeEmpty));
    };
    let listed = after.map(|after| after.before().saturating_sub(before.total_samples));
    let evidence = evidence(ring, n, &plan.rebuilt, elsewhere)?;
    let (there, damaged) = (evidence.there, evidence.damaged);
    let choice = if there || listed == Some(0) {
        evidence.choose(listed, ring.descriptor.swap_cap)
    } else {
        let unclear = staged_before(ring, n, plan, elsewhere)?;
        Choice { listed: Vec::new(), inferred: !unclear.is_empty(), unclear }
    };
    let has = samples(&choice.listed);
    let mut summary = before.next(&ring.me, &choice.listed, 0.0);
    summary.lost = listed.map_or(0, |listed| listed.saturating_sub(has));
    summary.total_samples = summary.total_samples.saturating_add(summary.lost);
    if let Some(after) = after {
        summary.total_bytes = summary.total_bytes.max(after.total_bytes.saturating_sub(after.bytes));
        summary.unix_ms = after.unix_ms;
    }
    let action = Remedy::RebuildFrom(Rebuilding {
        generation: n,
        is_there: there,
        samples: has,
        segments: choice.listed.len(),
        listed,
        damaged,
        unclear: choice.unclear.len(),
    });
    Ok((Manifest::new(summary, choice.listed.clone()), choice, action))
}

/// Returns the staged segments that generation `n` may have listed. A segment that cannot be read now is an error, because
/// it would be committed, perhaps a second time, once the manifest exists.
fn staged_before(ring: &Ring, n: u64, plan: &Plan, elsewhere: &HashSet<SegmentId>) -> Result<Vec<SegmentEntry>> {
    let mut staged = Vec::new();
    for owner in ring.fs.list(&ring.layout.staging())?.into_iter().filter(|owner| is_owner(owner)) {
        for name in ring.list_or_none(&ring.layout.staging_of(&owner))? {
            let Some(id) = sealed_id(&name) else { continue };
            let tail = match read_tail(&*ring.fs, &ring.layout.sealed(&owner, id)) {
                Ok(tail) => tail,
                Err(Error::Fs { source }) if source.is_retryable() || source.is_denied() => {
                    return Err(source.into());
                }
                Err(Error::Fs { .. } | Error::Format { .. }) => continue, // gone, or cannot be committed
                Err(error) => return Err(error),
            };
            let entry = SegmentEntry { owner: owner.as_str().into(), ..SegmentEntry::of(&tail, 0) };
            if entry.id == id && entry.born <= n && !elsewhere.contains(&id) {
                staged.push(entry);
            }
        }
    }
    drop_listed(ring, n, &mut staged, plan.newest, &plan.rebuilt)?;
    Ok(staged)
}

pub(super) fn apply_rebuild(ring: &Ring, rebuild: &Rebuild, rebuilt: &Rebuilt) -> Result<()> {
    let n = rebuild.generation;
    let path = ring.layout.manifest(n);
    let Some(manifest) = rebuilt.0.get(&n) else { return Ok(()) };
    // First, so that they are not committed once the manifest exists.
    for entry in &rebuild.unclear {
        let why = format!("the manifest of generation {n} was lost: this segment may have been delivered already");
        ring.quarantine_staged(&entry.owner, entry.id, why)?;
    }
    let refused = |message: String| Error::Manifest { path: path.clone(), message, passing: false };
    manifest.check().map_err(&refused)?;
    let bytes = manifest.encode().map_err(|error| refused(error.to_string()))?;
    ring.fs.ensure_dir(&ring.layout.staging())?;
    ring.fs.ensure_dir(&ring.layout.staging_of(&ring.me))?;
    ring.fs.ensure_dir(&ring.layout.manifests())?;
    let temp = ring.layout.staging_of(&ring.me).join(format!("manifest.{n}.{:08x}", random_u32()));
    match &rebuild.replaces {
        None => drop(publish(&*ring.fs, &temp, &path, &bytes, true)?),
        Some(why) if ring.manifests.get(n).is_err() => {
            keep_in_quarantine(ring, &path, &format!("manifest.{n}"), why)?;
            put_in_place(ring, &temp, &path, &bytes)?;
        }
        Some(_) => {} // repaired by another process
    }
    Ok(ring.fs.sync_dir(&ring.layout.manifests())?)
}

/// Replaces the file at `path` by a rename. The name exists all the time: if it were missing for a moment, another process
/// might promote the generation again.
pub(super) fn put_in_place(ring: &Ring, temp: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    write_new(&*ring.fs, temp, bytes, true)?;
    if let Err(error) = ring.fs.rename(temp, path) {
        let _ = ring.fs.forget_file(temp); // at worst, litter stays
        // The rename may have succeeded and its reply been lost.
        if ring.fs.read(path, bytes.len() as u64).ok().as_deref() != Some(bytes) {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Gives a damaged file a name in quarantine, once.
pub(super) fn keep_in_quarantine(ring: &Ring, path: &Path, name: &str, why: &str) -> Result<()> {
    let dir = ring.layout.quarantine();
    ring.fs.ensure_dir(&dir)?;
    for other in ring.fs.list(&dir)?.iter().filter(|other| other.starts_with(name)) {
        if same_file(&*ring.fs, path, &dir.join(other))? == Some(true) {
            return Ok(());
        }
    }
    let name = format!("{name}.{:08x}", random_u32());
    let target = dir.join(&name);
    if let Err(error) = ring.fs.link(path, &target)
        && same_file(&*ring.fs, path, &target)? != Some(true)
    {
        return Err(error.into());
    }
    ring.note_why(&name, why);
    Ok(())
}
