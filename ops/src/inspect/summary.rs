//! Facts about a ring or a generation, from its directory alone. The ring may be in use; what is removed meanwhile is
//! skipped.
//!
//! The work is bounded for rings of any size: directories are listed, manifests of existing generations are read, and the
//! footers of some files.

use super::issue::Issue;
use super::sample_stats::{SampleStats, glance};
use super::samples::Samples;
use super::{Subject, tree};
use crate::missing::gaps;
use ringreel::error::{Error, FsError, Result};
use ringreel::fs::{Fs, surely};
use ringreel::layout::{GenerationDir, Layout, SegmentName};
use ringreel::manifest::store::Manifests;
use ringreel::manifest::{Manifest, SegmentEntry, Summary};
use ringreel::ring::descriptor::{self, RingDescriptor};
use ringreel::segment::reader::read_tail;
use ringreel::unix_ms;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Most generations that are described: the newest ones.
const GENERATIONS: usize = 64;
/// Most owners that are named.
const OWNERS: usize = 16;
/// Most segments of a generation that are named.
const SEGMENTS: usize = 10;
/// Footers are read of at most this number of files without a manifest.
const FOOTERS: usize = 1000;

/// What one owner generated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The owner.
    pub owner: String,
    /// Number of samples.
    pub samples: u64,
    /// Size of the files in bytes.
    pub bytes: u64,
    /// Number of files.
    pub segments: u64,
}

/// The state of a generation's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has a manifest, so readers see it.
    Readable,
    /// It is the filling generation.
    Filling,
    /// Its promotion is unfinished: it has no manifest yet.
    Promoting,
    /// Its manifest is missing or cannot be used.
    Unlisted,
    /// It is litter: no manifest belongs to it.
    Litter,
}

/// One generation.
#[derive(Clone, Debug, Serialize)]
pub struct Generation {
    /// Its number.
    pub generation: u64,
    /// Its directory.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// State of the directory.
    pub state: State,
    /// Number of samples; `None` if it has no manifest and too many files.
    pub samples: Option<u64>,
    /// Size of its files in bytes; `None` as for `samples`.
    pub bytes: Option<u64>,
    /// Number of files.
    pub segments: u64,
    /// Seconds since its manifest was published, by this machine's clock.
    pub age_seconds: Option<f64>,
    /// The process that published it.
    pub by: Option<String>,
    /// Time for which generators could not commit at its promotion, in milliseconds.
    pub swap_ms: Option<f64>,
    /// Its owners, those with most samples first, at most 16.
    pub owners: Vec<Share>,
    /// Number of further owners.
    pub more_owners: u64,
    /// Its first segments, at most ten.
    pub first_segments: Vec<SegmentEntry>,
    /// Without a manifest: the number of files whose footer cannot be read, and why the first cannot.
    #[serde(skip)]
    pub without_footer: Option<(u64, String)>,
}

/// The contents of staging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Staging {
    /// Number of owners' directories.
    pub owners: u64,
    /// Number of finished segments, not listed by a manifest or only recently.
    pub finished: u64,
    /// Number of unfinished files, of live or dead owners.
    pub begun: u64,
}

/// A ring.
#[derive(Clone, Debug, Serialize)]
pub struct Ring {
    /// Its directory.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// `ring.json`; `None` if it cannot be used.
    pub descriptor: Option<RingDescriptor>,
    /// The newest generation; 0 before the first.
    pub newest: Option<u64>,
    /// Number of samples delivered so far.
    pub delivered: Option<u64>,
    /// Size of the delivered samples in bytes.
    pub delivered_bytes: Option<u64>,
    /// The newest existing generations, oldest first, at most 64.
    pub generations: Vec<Generation>,
    /// Number of older existing generations.
    pub more_generations: u64,
    /// The owners of all readable generations, those with most samples first, at most 16.
    pub owners: Vec<Share>,
    /// Number of further owners.
    pub more_owners: u64,
    /// Contents of staging.
    pub staging: Staging,
    /// Number of segments in quarantine.
    pub quarantined: u64,
    /// Number of names in the trash.
    pub trash: u64,
    /// Statistics of some samples of the newest generation that has any.
    pub glance: Option<SampleStats>,
    /// Issues of the ring.
    #[serde(skip)]
    pub issues: Vec<Issue>,
}

/// Collects facts about a ring. At most `most` samples are read.
///
/// # Errors
/// The filesystem's errors.
pub fn ring(fs: &Arc<dyn Fs>, layout: &Layout, most: u64) -> Result<Ring> {
    let path = layout.root().to_owned();
    let mut issues = Vec::new();
    let (descriptor, other_version) = descriptor(&**fs, layout, &mut issues)?;
    let manifests = Manifests::new(fs.clone(), layout.clone());
    let (newest, summary) = newest(&manifests, &mut issues)?;
    let (there, more_generations) = directories(&**fs, layout)?;
    let mut generations = Vec::new();
    for dir in there {
        match one(fs, layout, &manifests, newest, dir) {
            Ok(told) => generations.push(told),
            Err(Error::Fs { source }) if source.is_gone() => {} // reclaimed or promoted meanwhile
            Err(Error::Fs { source }) if is_denied(&source) => issues.push(Issue::Denied { why: source.to_string() }),
            Err(error) => return Err(error),
        }
    }
    issues.extend(other_version);
    issues.extend(issues_of(newest, summary.as_ref().map(|summary| summary.samples), &generations));
    if newest.is_some() {
        let validation = descriptor.as_ref().map_or(0, |descriptor| descriptor.validation);
        let gaps = gaps(&**fs, layout, &manifests, validation)?;
        issues.extend(gaps.into_iter().map(|generation| Issue::Gap { generation }));
    }
    let any = newest.is_some_and(|newest| newest > 0);
    let glance = any.then(|| glance_of(fs, &Subject::Ring(layout.clone()), most, &mut issues)).flatten();
    let readable = generations.iter().filter(|told| told.state == State::Readable);
    let (owners, more_owners) = shares(readable.flat_map(|told| told.owners.iter().cloned()));
    let staging = staging(&**fs, layout)?;
    let quarantined = quarantine(&**fs, layout, &mut issues)?;
    let trash = names(&**fs, layout.trash())?.len() as u64;
    Ok(Ring {
        path,
        descriptor,
        newest,
        delivered: summary.as_ref().map(|summary| summary.total_samples),
        delivered_bytes: summary.as_ref().map(|summary| summary.total_bytes),
        generations,
        more_generations,
        owners,
        more_owners,
        staging,
        quarantined,
        trash,
        glance,
        issues,
    })
}

/// Reads `ring.json`. If it cannot be read, returns `None` and adds an issue; if it has another version, returns `None`
/// and the issue.
fn descriptor(
    fs: &dyn Fs,
    layout: &Layout,
    issues: &mut Vec<Issue>,
) -> Result<(Option<RingDescriptor>, Option<Issue>)> {
    match descriptor::read(fs, layout) {
        Ok(Some(descriptor)) => return Ok((Some(descriptor), None)),
        Ok(None) => issues.push(Issue::NoDescriptor),
        Err(Error::Fs { source }) => return Err(source.into()),
        Err(error) if descriptor::is_of_another_version(fs, layout) => {
            return Ok((None, Some(Issue::OtherVersion { why: error.to_string() })));
        }
        Err(error) => issues.push(Issue::BadDescriptor { why: error.to_string() }),
    }
    Ok((None, None))
}

/// Returns the newest generation and the summary of its manifest. What cannot be read is `None` and adds an issue.
fn newest(manifests: &Manifests, issues: &mut Vec<Issue>) -> Result<(Option<u64>, Option<Summary>)> {
    let newest = match manifests.newest_listed() {
        Ok(newest) => newest,
        Err(Error::RingNotFound { .. }) => {
            issues.push(Issue::NoManifest);
            return Ok((None, None));
        }
        Err(error) => return Err(error),
    };
    let manifest = manifests.get(newest).unwrap_or_else(|error| {
        issues.push(Issue::BadManifest { why: error.to_string() });
        None
    });
    Ok((Some(newest), manifest.map(|manifest| manifest.summary.clone())))
}

/// Collects facts about one generation, statistics of at most `most` samples, and issues.
///
/// # Errors
/// The filesystem's errors.
pub fn generation(
    fs: &Arc<dyn Fs>,
    layout: &Layout,
    dir: GenerationDir,
    most: u64,
) -> Result<(Generation, Option<SampleStats>, Vec<Issue>)> {
    let manifests = Manifests::new(fs.clone(), layout.clone());
    let newest = match manifests.newest_listed() {
        Ok(newest) => Some(newest),
        Err(Error::RingNotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    let told = one(fs, layout, &manifests, newest, dir)?;
    let mut issues = issues_of(None, None, std::slice::from_ref(&told));
    let few = told.state == State::Readable || told.segments <= FOOTERS as u64;
    let seen = few.then(|| glance_of(fs, &Subject::Generation(layout.clone(), dir), most, &mut issues)).flatten();
    Ok((told, seen, issues))
}

/// Returns the newest directories of generations, oldest first, and the number of older ones.
fn directories(fs: &dyn Fs, layout: &Layout) -> Result<(Vec<GenerationDir>, u64)> {
    let names = fs.list(layout.root())?;
    let mut there: Vec<GenerationDir> = names.iter().filter_map(|name| GenerationDir::parse(name)).collect();
    there.sort_unstable_by_key(|dir| (dir.number(), matches!(dir, GenerationDir::Write(_))));
    let more = there.len().saturating_sub(GENERATIONS);
    Ok((there.split_off(more), more as u64))
}

/// Collects facts about one generation.
fn one(
    fs: &Arc<dyn Fs>,
    layout: &Layout,
    manifests: &Manifests,
    newest: Option<u64>,
    dir: GenerationDir,
) -> Result<Generation> {
    let state = tree::state(&**fs, layout, newest, dir)?;
    let (n, path) = (dir.number(), layout.generation(dir));
    if state == State::Readable {
        match manifests.get(n) {
            Ok(Some(manifest)) => return Ok(listed(path, &manifest)),
            Ok(None) => {}
            Err(_) => return unlisted(fs, n, path, State::Unlisted),
        }
    }
    unlisted(fs, n, path, state)
}

fn listed(path: PathBuf, manifest: &Manifest) -> Generation {
    let summary = &manifest.summary;
    let each = manifest.segments.iter().map(|entry| Share {
        owner: entry.owner.to_string(),
        samples: entry.samples,
        bytes: entry.bytes,
        segments: 1,
    });
    let (owners, more_owners) = shares(each);
    Generation {
        generation: summary.generation,
        path,
        state: State::Readable,
        samples: Some(summary.samples),
        bytes: Some(summary.bytes),
        segments: manifest.segments.len() as u64,
        age_seconds: Some(unix_ms().saturating_sub(summary.unix_ms) as f64 / 1e3),
        by: Some(summary.by.clone()),
        swap_ms: Some(summary.swap_ms),
        owners,
        more_owners,
        first_segments: manifest.segments.iter().take(SEGMENTS).cloned().collect(),
        without_footer: None,
    }
}

/// Collects facts about a generation without a manifest, from the footers of its files if these are not too many.
fn unlisted(fs: &Arc<dyn Fs>, n: u64, path: PathBuf, state: State) -> Result<Generation> {
    // A false "not found" must be an error here.
    let mut files = match fs.list(&path) {
        Err(error) if error.source.kind() == io::ErrorKind::NotADirectory => Vec::new(),
        listed => listed?,
    };
    files.retain(|name| SegmentName::parse(name).is_some());
    files.sort_unstable_by_key(|name| SegmentName::parse(name));
    let segments = files.len() as u64;
    let (mut found, mut without_footer) = (Vec::new(), None::<(u64, String)>);
    if files.len() <= FOOTERS {
        for file in files {
            let tail = match read_tail(&**fs, &path.join(&file)) {
                Ok(tail) => tail,
                Err(Error::Fs { source }) if source.is_gone() => continue,
                Err(error) => {
                    without_footer.get_or_insert_with(|| (0, error.to_string())).0 += 1;
                    continue;
                }
            };
            found.push(SegmentEntry::of(&tail, SegmentName::parse(&file).map_or(0, |name| name.index)));
        }
    }
    let known = segments <= FOOTERS as u64;
    let sum = |of: fn(&SegmentEntry) -> u64| known.then(|| found.iter().map(of).fold(0, u64::saturating_add));
    let each = found.iter().map(|entry| Share {
        owner: entry.owner.to_string(),
        samples: entry.samples,
        bytes: entry.bytes,
        segments: 1,
    });
    let (owners, more_owners) = shares(each);
    let (samples, bytes) = (sum(|entry| entry.samples), sum(|entry| entry.bytes));
    found.truncate(SEGMENTS);
    Ok(Generation {
        generation: n,
        path,
        state,
        samples,
        bytes,
        segments,
        age_seconds: None,
        by: None,
        swap_ms: None,
        owners,
        more_owners,
        first_segments: found,
        without_footer,
    })
}

/// Sums up shares by owner, sorted by samples. Returns the largest, and the number of the others.
fn shares(each: impl Iterator<Item = Share>) -> (Vec<Share>, u64) {
    let mut by_owner = BTreeMap::<String, Share>::new();
    for share in each {
        let sum = by_owner.entry(share.owner.clone()).or_insert(Share { owner: share.owner, ..Share::default() });
        sum.samples = sum.samples.saturating_add(share.samples);
        sum.bytes = sum.bytes.saturating_add(share.bytes);
        sum.segments = sum.segments.saturating_add(share.segments);
    }
    let mut shares: Vec<Share> = by_owner.into_values().collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.samples));
    let more = shares.len().saturating_sub(OWNERS) as u64;
    shares.truncate(OWNERS);
    (shares, more)
}

fn issues_of(newest: Option<u64>, samples: Option<u64>, there: &[Generation]) -> Vec<Issue> {
    let mut issues = Vec::new();
    for told in there {
        if let Some((files, why)) = told.without_footer.as_ref().filter(|_| told.state != State::Litter) {
            issues.push(Issue::NoFooter { files: *files, why: why.clone() });
        }
        let generation = told.generation;
        issues.extend(match told.state {
            State::Readable | State::Filling => None,
            State::Promoting => Some(Issue::Promoting { generation }),
            State::Unlisted => Some(Issue::Unlisted { generation }),
            State::Litter => Some(Issue::Litter { path: told.path.clone() }),
        });
    }
    if let (Some(generation), Some(samples)) = (newest, samples)
        && samples > 0
        && !there.iter().any(|told| told.generation == generation)
        && !there.iter().any(|told| told.generation > generation && told.state == State::Readable)
    {
        issues.push(Issue::NewestMissing { generation, samples });
    }
    issues
}

/// Returns statistics of some samples of `subject`; `None` if none can be read.
fn glance_of(fs: &Arc<dyn Fs>, subject: &Subject, most: u64, issues: &mut Vec<Issue>) -> Option<SampleStats> {
    match Samples::open(fs.clone(), subject).and_then(|samples| glance(&samples, most)) {
        Ok(seen) => {
            issues.extend(seen.issues());
            Some(seen)
        }
        Err(Error::Fs { source }) if !source.is_gone() => {
            issues.push(Issue::NoSample { why: source.to_string() });
            None
        }
        Err(_) => None, // reclaimed meanwhile, or no readable generation, which is reported elsewhere
    }
}

/// Counts the segments in quarantine, and adds an issue if there are any.
fn quarantine(fs: &dyn Fs, layout: &Layout, issues: &mut Vec<Issue>) -> Result<u64> {
    let segments = names(fs, layout.quarantine())?.iter().filter(|name| name.ends_with(".rec")).count() as u64;
    if segments > 0 {
        issues.push(Issue::Quarantined { segments });
    }
    Ok(segments)
}

fn staging(fs: &dyn Fs, layout: &Layout) -> Result<Staging> {
    let mut staging = Staging::default();
    for owner in names(fs, layout.staging())? {
        // Just listed, so the NFS client cannot answer with a false "not found".
        let Ok(names) = fs.list(&layout.staging_of(&owner)) else { continue };
        staging.owners += 1;
        for name in names {
            match name.rsplit_once('.') {
                Some((_, "rec")) => staging.finished += 1,
                _ => staging.begun += 1,
            }
        }
    }
    Ok(staging)
}

fn is_denied(error: &FsError) -> bool {
    error.source.kind() == io::ErrorKind::PermissionDenied
}

/// Lists a directory. Returns no names if it is missing, not a directory, or not readable.
fn names(fs: &dyn Fs, dir: PathBuf) -> Result<Vec<String>> {
    match surely(fs, &dir, || fs.list(&dir)) {
        Ok(names) => Ok(names),
        Err(error) if error.is_gone() || error.source.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        Err(error) if is_denied(&error) => {
            tracing::warn!("not counted: {error}");
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}
