//! The current state of a ring, for people and scripts. Changes nothing, and does not become a member. (To get the time of
//! a shared filesystem, it creates and removes an empty file in `index/tmp`.)

use crate::held_out::held_out_state;
use crate::history::History;
use crate::missing::missing;
use ringreel::coordination::{Report, if_available};
use ringreel::error::{Error, Result};
use ringreel::failure_log::{Failure, failures};
use ringreel::layout::{read_generations, sealed_id};
use ringreel::manifest::{Manifest, SegmentEntry};
use ringreel::ring::Ring;
use ringreel::ring::scan::ScannedGeneration;
use ringreel::role::Role;
use ringreel::segment::reader::read_tail;
use ringreel::times::{StreamStats, total};
use ringreel::unix_ms;
use ringreel_format::SegmentId;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Number of swaps over which rates and times are averaged.
const RECENT: usize = 9;
/// Most generations in the reuse histogram.
const REUSE_OF: u64 = 64;

/// A readable generation.
#[derive(Clone, Debug, Serialize)]
pub struct GenerationStatus {
    /// Its number.
    pub generation: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of held-out samples, which are its first ones.
    pub held_out: u64,
    /// Size of its segments in bytes.
    pub bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Seconds since it became readable, by this machine's clock.
    pub age_seconds: f64,
    /// Time for which generators could not commit at its promotion, in milliseconds.
    pub swap_ms: f64,
    /// Number of passes by runs whose logs are kept; `None` while the index is unreachable.
    pub passes: Option<u64>,
}

/// A bar of the reuse histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReuseStatus {
    /// Number of passes.
    pub passes: u64,
    /// Number of generations with this number of passes.
    pub generations: u64,
}

/// The filling generation.
#[derive(Clone, Debug, Serialize)]
pub struct WritingStatus {
    /// Its number.
    pub generation: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples at which it is promoted.
    pub cap: u64,
    /// Size of its segments in bytes.
    pub bytes: u64,
    /// Whether it is being promoted: renamed, but without a manifest.
    pub swapping: bool,
}

/// A member of the ring.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    /// Its owner name.
    pub name: String,
    /// Seconds since its last heartbeat. For a member that seems silent, by the clock of the index if possible; else by
    /// both machines' clocks.
    pub silent_seconds: f64,
    /// Of a reader: the share of its time, from 0 to 1, in which the ring had no sample for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Option<f64>,
    /// Its last report.
    #[serde(flatten)]
    pub report: Report,
}

/// The state of a ring.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its directory.
    pub ring: String,
    /// Its id.
    pub ring_id: String,
    /// The parts of a sample.
    pub sample: Vec<String>,
    /// Number of samples per generation.
    pub swap_cap: u64,
    /// Number of held-out samples, which are the first ones of the ring.
    pub validation: u64,
    /// Number of readable held-out samples.
    pub validation_readable: u64,
    /// Number of held-out samples that readers found damaged, and that still are.
    pub validation_damaged: u64,
    /// The newest generation.
    pub newest: u64,
    /// Seconds since it became readable; `None` before the first.
    pub newest_age_seconds: Option<f64>,
    /// Number of promotions so far.
    pub swaps: u64,
    /// Mean time for which generators could not commit at recent swaps, in milliseconds.
    pub swap_ms_mean: Option<f64>,
    /// Number of samples delivered so far.
    pub samples_delivered: u64,
    /// Number of finished samples that no manifest lists yet.
    pub samples_waiting: u64,
    /// Sum of delivered and waiting samples.
    pub samples_generated: u64,
    /// Size of all segments delivered so far, in bytes.
    pub bytes_delivered: u64,
    /// Samples per second over recent swaps.
    pub samples_per_second: Option<f64>,
    /// Size of the ring's segments on disk, in bytes.
    pub bytes: u64,
    /// Number of their files.
    pub files: u64,
    /// Bytes that this user may still write; `None` if the filesystem does not report them.
    pub free_bytes: Option<u64>,
    /// Files that may still be created; `None` if the filesystem does not report or count them.
    pub free_files: Option<u64>,
    /// MAX_BYTES: the configured maximum size of the ring.
    pub max_bytes: Option<u64>,
    /// Readable generations, oldest first.
    pub generations: Vec<GenerationStatus>,
    /// Generations that must exist, by KEEP or because they have held-out samples, but whose directories or manifests are
    /// missing; oldest first.
    pub missing: Vec<u64>,
    /// How often recent generations were read: at most 64, without the newest, which is still being read. Empty while the
    /// index is unreachable.
    pub reuse: Vec<ReuseStatus>,
    /// The filling generation.
    pub writing: WritingStatus,
    /// The process that holds the manager's lease.
    pub manager: Option<String>,
    /// Managers, standby ones included.
    pub managers: Vec<MemberStatus>,
    /// Generators.
    pub generators: Vec<MemberStatus>,
    /// Readers.
    pub readers: Vec<MemberStatus>,
    /// The share of the readers' time, from 0 to 1, in which the ring had no sample for them. `None` if no living reader
    /// has published its times.
    pub starved: Option<f64>,
    /// Members of any role without a heartbeat for a lease, which are in none of the lists above: dead, stopped, or
    /// disconnected.
    pub silent: Vec<MemberStatus>,
    /// The place of the index.
    pub index: String,
    /// Why the index is unreachable; members are then unknown.
    pub index_away: Option<String>,
    /// Failures of generators and managers, newest first; empty while the index is unreachable.
    pub failures: Vec<Failure>,
    /// Number of segments in quarantine.
    pub quarantined: u64,
}

/// Returns the state of a ring, without waiting. A member whose report is older than its lease by this machine's clock
/// counts as silent, unless it is alive by the index's clock (that of the shared filesystem, for an index in files) or by
/// its heartbeats, if the caller uses the same [`Ring`] repeatedly.
///
/// # Errors
/// The filesystem's errors.
pub fn status(ring: &Ring) -> Result<Status> {
    let newest = ring.manifests.newest_listed()?;
    let now = unix_ms();
    let reads = if_available(ring.reads())?;
    let generations = generations(ring, reads.as_ref(), now)?;
    let totals = |manifest: Arc<Manifest>| (manifest.summary.total_samples, manifest.summary.total_bytes);
    // Everything depends on the newest manifest, so its damage is an error.
    let (delivered, bytes_delivered) = ring.manifests.get(newest)?.map_or((0, 0), totals);
    let filling = ring.look_at_filling(newest)?;
    let waiting = waiting(ring, newest, &filling)?;
    let mut recent = History::of_last(RECENT);
    recent.update(ring)?;
    let space = ring.fs.space(ring.layout.root()).ok();
    let (bytes, files) = ring.usage_with(newest, &filling)?;
    let index_away = ring.coordination.ping().err().map(why);
    let Members { managers, generators, readers, silent } = members(ring, now)?;
    let manager = holder(ring, &silent)?;
    let held_out = held_out_state(ring)?;
    let missing = missing(&*ring.fs, &ring.layout, &ring.manifests, ring.settings.keep, ring.descriptor.validation)?;
    Ok(Status {
        ring: ring.layout.root().display().to_string(),
        ring_id: ring.descriptor.ring_id.clone(),
        sample: ring.descriptor.sample.clone(),
        swap_cap: ring.descriptor.swap_cap,
        validation: ring.descriptor.validation,
        validation_readable: held_out.readable,
        validation_damaged: held_out.damaged,
        newest,
        newest_age_seconds: generations.iter().find(|g| g.generation == newest).map(|g| g.age_seconds),
        swaps: newest,
        swap_ms_mean: recent.swap_ms_mean(),
        samples_delivered: delivered,
        samples_waiting: waiting,
        samples_generated: delivered.saturating_add(waiting),
        samples_per_second: recent.samples_per_second(),
        bytes_delivered,
        bytes,
        files,
        free_bytes: space.map(|space| space.bytes),
        free_files: space.and_then(|space| space.inodes),
        max_bytes: ring.settings.max_bytes,
        generations,
        missing: missing.iter().map(|missing| missing.generation).collect(),
        reuse: reads.map_or(Ok(Vec::new()), |reads| reuse(ring, newest, &reads))?,
        writing: writing(ring, newest + 1)?,
        manager,
        managers,
        generators,
        starved: total(readers.iter().filter_map(|reader| reader.report.reading.as_ref())).starved(),
        readers,
        silent,
        failures: failures(&*ring.coordination)?,
        index: ring.coordination.place(),
        index_away,
        quarantined: ring.list_or_none(&ring.layout.quarantine())?.iter().filter(|name| name.ends_with(".rec")).count()
            as u64,
    })
}

/// Returns the live manager that holds the lease. (A dead manager keeps the lease until another one takes it.)
fn holder(ring: &Ring, silent: &[MemberStatus]) -> Result<Option<String>> {
    let lease = if_available(ring.coordination.lease(Role::Manager.as_str()))?.flatten();
    let holder = lease.filter(|lease| !lease.released).map(|lease| lease.holder);
    let lives =
        |name: &String| ring.failure_detector().is_listed(name) && silent.iter().all(|member| member.name != *name);
    Ok(holder.filter(lives))
}

/// Returns why the coordination store is unreachable.
fn why(error: Error) -> String {
    match error {
        Error::CoordinationUnavailable { message, .. } | Error::CoordinationDenied { message, .. } => message,
        other => other.to_string(),
    }
}

/// Returns the readable generations, oldest first. `reads` is how often each was read, if it is known.
fn generations(ring: &Ring, reads: Option<&BTreeMap<u64, u64>>, now: u64) -> Result<Vec<GenerationStatus>> {
    let mut generations = Vec::new();
    for n in read_generations(&ring.fs.list(ring.layout.root())?) {
        if let Some(manifest) = ring.manifests.usable(n)? {
            let summary = &manifest.summary;
            generations.push(GenerationStatus {
                generation: n,
                samples: summary.samples,
                held_out: ring.held_out(&manifest).end,
                bytes: summary.bytes,
                segments: manifest.segments.len() as u64,
                age_seconds: now.saturating_sub(summary.unix_ms) as f64 / 1e3,
                swap_ms: summary.swap_ms,
                passes: reads.map(|reads| reads.get(&n).copied().unwrap_or(0)),
            });
        }
    }
    generations.sort_by_key(|generation| generation.generation);
    Ok(generations)
}

/// Returns the generation that fills or is being promoted.
fn writing(ring: &Ring, generation: u64) -> Result<WritingStatus> {
    let cap = ring.descriptor.swap_cap;
    for (dir, swapping) in [(ring.layout.write(generation), false), (ring.layout.read(generation), true)] {
        match ring.fill_in(generation, &dir) {
            Ok(_) if swapping && ring.fs.exists(&ring.layout.manifest(generation))? => {} // promoted meanwhile
            Ok((samples, bytes)) => return Ok(WritingStatus { generation, samples, cap, bytes, swapping }),
            Err(Error::Manifest { .. }) => {} // a manifest is damaged, so delivered samples cannot be excluded
            Err(Error::Fs { source }) if source.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(WritingStatus { generation, samples: 0, cap, bytes: 0, swapping: false })
}

/// Counts recent generations by how often they were read.
fn reuse(ring: &Ring, newest: u64, reads: &BTreeMap<u64, u64>) -> Result<Vec<ReuseStatus>> {
    let mut bars = BTreeMap::new();
    let kept = ring.kept_for_ever()?;
    for n in newest.saturating_sub(REUSE_OF).max(1)..newest {
        // The first generations may have only held-out samples. (No other manifest is read, because they may be large.)
        if !kept.contains(&n) || ring.manifests.usable(n)?.is_some_and(|manifest| !ring.training(&manifest).is_empty())
        {
            *bars.entry(reads.get(&n).copied().unwrap_or(0)).or_default() += 1;
        }
    }
    Ok(bars.into_iter().map(|(passes, generations)| ReuseStatus { passes, generations }).collect())
}

/// Returns the number of samples that are sealed in staging and that no manifest lists. Opens no
/// segment that is linked into the filling generation: its samples are in `filling` already.
fn waiting(ring: &Ring, newest: u64, filling: &[ScannedGeneration]) -> Result<u64> {
    let linked = filling.iter().flat_map(|found| &found.segments);
    let linked: HashMap<SegmentId, &SegmentEntry> = linked.map(|entry| (entry.id, &**entry)).collect();
    let mut samples: u64 = 0;
    let mut seen = HashSet::new();
    for owner in ring.fs.list(&ring.layout.staging())? {
        let dir = ring.layout.staging_of(&owner);
        // Just listed, so the NFS client cannot answer with a false "not found".
        for name in ring.fs.list(&dir).unwrap_or_default() {
            let Some(id) = sealed_id(&name) else { continue };
            let (born, count) = match linked.get(&id) {
                Some(entry) => (entry.born, entry.samples),
                None => match read_tail(&*ring.fs, &dir.join(&name)) {
                    Ok(tail) => (tail.footer.info.born, tail.footer.count),
                    Err(_) => continue,
                },
            };
            let listed = match ring.manifests.find(id, born, newest) {
                Err(Error::Manifest { .. }) => false, // a damaged manifest may list it
                other => other?.generation().is_some(),
            };
            if !listed && seen.insert(id) {
                samples = samples.saturating_add(count);
            }
        }
    }
    Ok(samples)
}

#[derive(Default)]
struct Members {
    managers: Vec<MemberStatus>,
    generators: Vec<MemberStatus>,
    readers: Vec<MemberStatus>,
    silent: Vec<MemberStatus>,
}

fn members(ring: &Ring, now: u64) -> Result<Members> {
    let mut found = Members::default();
    let mut watch = ring.failure_detector();
    if if_available(watch.look_at_once(&*ring.coordination))?.is_none() {
        return Ok(found);
    }
    let mut beats = watch.listed();
    beats.sort();
    let mut members = Vec::new();
    for (name, beat) in beats {
        match ring.coordination.report(&name, beat) {
            Ok(Some(report)) => members.push((name, beat, report)),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, name, "cannot read the report of a member"),
        }
    }
    let unheard = |(name, _, report): &&(String, u64, Report)| {
        !watch.was_heard(name) && is_over(report.unix_ms.abs_diff(now), report, ring.settings.lease)
    };
    let unheard = members.iter().filter(unheard);
    let unheard: Vec<_> = unheard.map(|(name, beat, _)| (name.clone(), *beat)).collect();
    let ages = match unheard.is_empty() {
        true => HashMap::new(),
        false => if_available(ring.coordination.beat_ages(&unheard))?.unwrap_or_default(),
    };
    for (name, _, report) in members {
        let by_clock = now.abs_diff(report.unix_ms);
        let age = ages.get(&name).map(|age| age.as_millis() as u64);
        let silent_ms = age.unwrap_or(now.saturating_sub(report.unix_ms));
        let was_unheard = !watch.was_heard(&name) && is_over(age.unwrap_or(by_clock), &report, ring.settings.lease);
        let is_silent = watch.is_dead(&name) || was_unheard;
        let starved = report.reading.as_ref().and_then(StreamStats::starved);
        let member = MemberStatus { name, silent_seconds: silent_ms as f64 / 1e3, starved, report };
        match Role::parse(&member.report.role) {
            _ if is_silent => found.silent.push(member),
            Some(Role::Manager) => found.managers.push(member),
            Some(Role::Generator) => found.generators.push(member),
            Some(Role::Reader) | None => found.readers.push(member),
        }
    }
    Ok(found)
}

/// Returns whether `ms` milliseconds of silence exceed the member's lease and ours.
fn is_over(ms: u64, report: &Report, ours: Duration) -> bool {
    u128::from(ms) > report.lease().max(ours).as_millis()
}
