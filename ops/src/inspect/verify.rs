//! Verifies a ring, a generation or a file by reading alone: each manifest against its segments, each byte of each
//! segment, and the contents of staging and quarantine.
//!
//! The ring may be in use: what is reclaimed meanwhile is no damage.

use super::Subject;
use super::finding::{Finding, Kind, NAMED, Problem};
use super::verify_file::{self, FileReport, Task};
use crate::missing::{Missing, gaps, missing};
use crate::phase::Phase;
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, surely};
use ringreel::layout::{GenerationDir, Layout, SegmentName, is_owner, sealed_id};
use ringreel::manifest::store::Manifests;
use ringreel::manifest::store::first_unpruned;
use ringreel::manifest::{Manifest, Summary};
use ringreel::ring::descriptor;
use ringreel_format::SegmentId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Most findings of one kind that are listed; further ones are counted.
pub const LISTED: usize = 10_000;

/// Most threads.
const THREADS: usize = 1024;

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Looked {
    /// A ring.
    #[default]
    Ring,
    /// A generation.
    Generation,
    /// A segment.
    Segment,
    /// A RecordIO file.
    #[serde(rename = "RecordIO file")]
    Records,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What was verified.
    pub subject: Looked,
    /// Number of existing generations with a manifest.
    pub generations: u64,
    /// Number of files that were read completely.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Number of intact samples (or records of a RecordIO file). A sample with two names counts once.
    pub readable: u64,
    /// Number of these whose segment no manifest lists, so that readers do not see them: in the filling generation, in
    /// staging, or in a generation without a manifest. 0 for a file.
    pub unlisted: u64,
    /// Number of listed samples that cannot be read.
    pub unreadable: u64,
    /// Findings, damage first, at most [`LISTED`] of each kind.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// Number of findings that are not listed.
    #[serde(rename = "findings_not_listed")]
    pub more: u64,
}

impl Report {
    /// Returns whether anything is damaged.
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(|finding| finding.kind == Kind::Damage)
    }
}

/// Verifies `subject` with `threads` threads. In a ring, `keep` generations before the newest must exist (the value of
/// KEEP; `None` if it is unknown). Calls `begin` with the number of bytes to read, and `progress` with the number of bytes
/// read since its last call.
///
/// # Errors
/// The filesystem's errors, if nothing can be read.
pub fn verify(
    fs: &Arc<dyn Fs>,
    subject: &Subject,
    keep: Option<u64>,
    threads: usize,
    begin: &dyn Fn(u64),
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Report> {
    let (report, listed) = (Report::default(), [0; 3]);
    let mut look = Verifier { fs: fs.clone(), report, listed, tasks: Vec::new() };
    match subject {
        Subject::Ring(layout) => {
            look.report.subject = Looked::Ring;
            look.ring(layout, keep)?;
        }
        Subject::Generation(layout, dir) => {
            look.report.subject = Looked::Generation;
            look.generation(layout, *dir)?;
        }
        Subject::File(path) => {
            let bytes = fs.identity(path)?.len;
            begin(bytes);
            let is_segment = verify_file::is_segment(&**fs, path)?;
            look.report.subject = if is_segment { Looked::Segment } else { Looked::Records };
            let checked =
                if is_segment { verify_file::segment(&**fs, path)? } else { verify_file::recordio(&**fs, path)? };
            progress(bytes);
            let listed = checked.footer.as_ref().map_or(checked.good, |footer| footer.count);
            look.report.unreadable = listed.saturating_sub(checked.good);
            look.take(checked);
        }
    }
    begin(look.tasks.iter().map(|task| task.bytes).fold(0, u64::saturating_add));
    look.check_all(threads, progress);
    let mut report = look.report;
    report.findings.sort_by(|a, b| (a.kind, &a.path, a.bytes).cmp(&(b.kind, &b.path, b.bytes)));
    report.findings.iter_mut().for_each(|finding| finding.samples.truncate(NAMED));
    Ok(report)
}

struct Verifier {
    fs: Arc<dyn Fs>,
    report: Report,
    /// Number of listed findings of each kind.
    listed: [usize; 3],
    tasks: Vec<Task>,
}

impl Verifier {
    fn find(&mut self, kind: Kind, path: &Path, problem: Problem) {
        self.add(Finding::new(kind, path, problem));
    }

    fn add(&mut self, finding: Finding) {
        let listed = &mut self.listed[finding.kind as usize];
        if *listed < LISTED {
            *listed += 1;
            self.report.findings.push(finding);
        } else {
            self.report.more += 1;
        }
    }

    fn take(&mut self, checked: FileReport) {
        self.report.files += u64::from(checked.was_read);
        self.report.bytes = self.report.bytes.saturating_add(checked.bytes);
        self.report.readable = self.report.readable.saturating_add(checked.good);
        self.report.more = self.report.more.saturating_add(checked.more);
        checked.findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// Lists a directory. One that cannot be read becomes a finding, not an error.
    fn list(&mut self, dir: &Path, denied: Kind) -> Result<Vec<String>> {
        match surely(&*self.fs, dir, || self.fs.list(dir)) {
            Ok(mut names) => {
                names.sort_unstable();
                return Ok(names);
            }
            Err(error) if error.is_gone() => {}
            Err(error) if error.source.kind() == io::ErrorKind::NotADirectory => {
                self.find(Kind::Note, dir, Problem::NotDirectory);
            }
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => {
                self.find(denied, dir, Problem::Denied { why: error.source.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Vec::new())
    }

    fn ring(&mut self, layout: &Layout, keep: Option<u64>) -> Result<()> {
        let mut validation = 0;
        let ring_id = match descriptor::read(&*self.fs, layout) {
            Ok(Some(descriptor)) => {
                validation = descriptor.validation;
                Some(descriptor.ring_id)
            }
            Ok(None) => {
                self.find(Kind::Damage, &layout.ring_json(), Problem::NoDescriptor);
                None
            }
            // The layout of another version is unknown.
            Err(error) if matches!(error, Error::Fs { .. }) || descriptor::is_of_another_version(&*self.fs, layout) => {
                return Err(error);
            }
            Err(error) => {
                self.find(Kind::Damage, &layout.ring_json(), Problem::refused(error));
                None
            }
        };
        let listed = self.manifests(layout, ring_id.as_deref())?;
        let newest = listed.keys().copied().max();
        let mut ids: HashMap<SegmentId, u64> = HashMap::new();
        for (n, manifest) in &listed {
            for entry in manifest.iter().flat_map(|manifest| &manifest.segments) {
                if let Some(before) = ids.insert(entry.id, *n) {
                    let problem = Problem::ListedTwice { id: entry.id.to_string(), before };
                    self.find(Kind::Damage, &layout.manifest(*n), problem);
                }
            }
        }
        self.directories(layout, &listed, newest)?;
        if newest.is_some() {
            self.missing(layout, keep, validation)?;
        }
        self.staging(layout, &ids)?;
        for name in self.list(&layout.quarantine(), Kind::Note)? {
            let path = layout.quarantine().join(&name);
            if let Some(stem) = name.strip_suffix(".rec") {
                let why = self.fs.read(&layout.quarantine().join(format!("{stem}.why")), 1 << 16).unwrap_or_default();
                let why = String::from_utf8_lossy(&why).trim().to_owned();
                let why = Some(why).filter(|why| !why.is_empty());
                self.find(Kind::Note, &path, Problem::InQuarantine { why });
            }
        }
        Ok(())
    }

    /// Reads all manifests; `None` for those that are missing or cannot be read.
    fn manifests(&mut self, layout: &Layout, ring_id: Option<&str>) -> Result<BTreeMap<u64, Option<Arc<Manifest>>>> {
        let manifests = Manifests::new(self.fs.clone(), layout.clone());
        let there: HashSet<u64> = manifests.numbers()?.into_iter().collect();
        let Some(newest) = there.iter().copied().max() else {
            self.find(Kind::Damage, &layout.manifests(), Problem::NoManifest);
            return Ok(BTreeMap::new());
        };
        // (Some of the first manifests are kept too.)
        let expected: BTreeSet<u64> = there.iter().copied().chain(first_unpruned(newest)..=newest).collect();
        let mut found = BTreeMap::new();
        let mut before: Option<Arc<Manifest>> = None;
        for n in expected {
            before = before.filter(|before| before.summary.generation + 1 == n);
            let path = layout.manifest(n);
            if !there.contains(&n) {
                let is_readable = self.fs.exists(&layout.read(n))?;
                self.find(Kind::Damage, &path, Problem::ManifestMissing { generation: n, is_readable });
                found.insert(n, None);
                before = None;
                continue;
            }
            match manifests.get(n) {
                Ok(Some(manifest)) => {
                    self.summary(&manifest.summary, &path, ring_id, before.as_deref());
                    before = Some(manifest.clone());
                    found.insert(n, Some(manifest));
                }
                Ok(None) => {} // removed meanwhile
                Err(error) => {
                    let why = if let Error::Fs { source } = &error { source.to_string() } else { error.to_string() };
                    self.find(Kind::Damage, &path, Problem::Refused { why });
                    before = None;
                    found.insert(n, None);
                }
            }
        }
        Ok(found)
    }

    /// Checks the ring id and the totals of a manifest.
    fn summary(&mut self, summary: &Summary, path: &Path, ring_id: Option<&str>, before: Option<&Manifest>) {
        if ring_id.is_some_and(|id| id != summary.ring) {
            self.find(Kind::Damage, path, Problem::OtherRing { ring: summary.ring.clone() });
        }
        if let Some(before) = before {
            let had = summary.samples.saturating_add(summary.lost);
            let total = before.summary.total_samples.saturating_add(had);
            if total != summary.total_samples {
                let says = summary.total_samples;
                self.find(Kind::Damage, path, Problem::WrongTotal { says, delivered: total });
            }
        }
        if summary.lost > 0 {
            self.find(Kind::Note, path, Problem::Rebuilt { lost: summary.lost });
        }
    }

    fn directories(
        &mut self,
        layout: &Layout,
        listed: &BTreeMap<u64, Option<Arc<Manifest>>>,
        newest: Option<u64>,
    ) -> Result<()> {
        let next = newest.map_or(0, |newest| newest + 1);
        for name in self.list(layout.root(), Kind::Damage)? {
            let Some(dir) = GenerationDir::parse(&name) else { continue };
            match dir {
                GenerationDir::Read(n) => match listed.get(&n) {
                    Some(Some(manifest)) => self.promoted(layout, manifest)?,
                    Some(None) => self.unlisted(&layout.read(n))?, // its manifest is reported already
                    None if self.fs.exists(&layout.manifest(n))? => {} // promoted meanwhile
                    None if Phase::of(dir, next) == Phase::Promoting => {
                        self.find(Kind::Unfinished, &layout.read(n), Problem::Promoting { generation: n });
                        self.unlisted(&layout.read(n))?;
                    }
                    None => self.find(Kind::Note, &layout.read(n), Problem::Litter),
                },
                GenerationDir::Write(n) if Phase::of(dir, next) == Phase::Filling => self.unlisted(&layout.write(n))?,
                GenerationDir::Write(n) => self.find(Kind::Note, &layout.write(n), Problem::PromotedAlready),
            }
        }
        Ok(())
    }

    /// Finds generations whose directories are missing. (Missing manifests are reported before.)
    fn missing(&mut self, layout: &Layout, keep: Option<u64>, validation: u64) -> Result<()> {
        let manifests = Manifests::new(self.fs.clone(), layout.clone());
        let missing = missing(&*self.fs, layout, &manifests, keep.unwrap_or(0), validation)?;
        for Missing { generation, path, samples } in &missing {
            let Some(samples) = *samples else { continue };
            self.find(Kind::Damage, path, Problem::DirectoryMissing { generation: *generation, samples });
            self.report.unreadable = self.report.unreadable.saturating_add(samples);
        }
        if keep.is_none() {
            for n in gaps(&*self.fs, layout, &manifests, validation)? {
                self.find(Kind::Note, &layout.read(n), Problem::Gap);
            }
        }
        Ok(())
    }

    /// Adds the files of a generation with a manifest.
    fn promoted(&mut self, layout: &Layout, manifest: &Manifest) -> Result<()> {
        let dir = layout.read(manifest.summary.generation);
        self.report.generations += 1;
        let listed = manifest.names();
        for entry in &manifest.segments {
            let (path, bytes) = (dir.join(entry.file()), entry.bytes);
            self.tasks.push(Task { path, listed: Some(entry.clone()), within: dir.clone(), bytes });
        }
        let mut more = self.list(&dir, Kind::Damage)?;
        more.retain(|name| SegmentName::parse(name).is_none_or(|name| !listed.contains(&name)));
        self.strays(&dir, &more, |more| Problem::NotListed { more });
        Ok(())
    }

    /// Adds the segments in a directory without a manifest.
    fn unlisted(&mut self, dir: &Path) -> Result<()> {
        let mut strays = Vec::new();
        for name in self.list(dir, Kind::Damage)? {
            let path = dir.join(&name);
            if SegmentName::parse(&name).is_none() {
                strays.push(name);
                continue;
            }
            // Just listed, so the NFS client cannot answer with a false "not found".
            match self.fs.identity(&path) {
                Ok(found) if !found.is_dir => {
                    self.tasks.push(Task { path, listed: None, within: dir.to_owned(), bytes: found.len });
                }
                Ok(_) => strays.push(name),
                Err(error) if error.is_gone() => {}
                Err(error) => self.find(Kind::Damage, &path, Problem::refused(error)),
            }
        }
        self.strays(dir, &strays, |more| Problem::NotSegment { more });
        Ok(())
    }

    /// Reports unexpected names: the first ones, and the number of the others.
    fn strays(&mut self, dir: &Path, names: &[String], problem: fn(u64) -> Problem) {
        names.iter().take(NAMED).for_each(|name| self.find(Kind::Note, &dir.join(name), problem(0)));
        if let Some(more) = names.len().checked_sub(NAMED).filter(|more| *more > 0) {
            self.find(Kind::Note, dir, problem(more as u64));
        }
    }

    fn staging(&mut self, layout: &Layout, ids: &HashMap<SegmentId, u64>) -> Result<()> {
        for owner in self.list(&layout.staging(), Kind::Note)? {
            let dir = layout.staging_of(&owner);
            if !is_owner(&owner) {
                self.find(Kind::Note, &dir, Problem::NotOwner);
                continue;
            }
            let (mut waiting, mut begun) = (0u64, 0u64);
            for name in self.list(&dir, Kind::Note)? {
                match sealed_id(&name) {
                    Some(id) if ids.contains_key(&id) => {} // listed by a manifest; only the staging name is left
                    Some(_) => {
                        let path = dir.join(&name);
                        waiting += 1;
                        // Only for the progress bar; just listed, so a false "not found" is excluded.
                        let bytes = self.fs.identity(&path).map_or(0, |found| found.len);
                        self.tasks.push(Task { path, listed: None, within: dir.clone(), bytes });
                    }
                    None => begun += 1,
                }
            }
            if waiting > 0 {
                self.find(Kind::Unfinished, &dir, Problem::Waiting { segments: waiting });
            }
            if begun > 0 {
                self.find(Kind::Note, &dir, Problem::Begun { files: begun });
            }
        }
        Ok(())
    }

    fn generation(&mut self, layout: &Layout, dir: GenerationDir) -> Result<()> {
        let manifests = Manifests::new(self.fs.clone(), layout.clone());
        match dir {
            GenerationDir::Write(n) => self.unlisted(&layout.write(n)),
            GenerationDir::Read(n) => match manifests.get(n) {
                Ok(Some(manifest)) => self.promoted(layout, &manifest),
                Ok(None) => {
                    self.find(Kind::Damage, &layout.manifest(n), Problem::Unlisted { generation: n });
                    self.unlisted(&layout.read(n))
                }
                Err(Error::Fs { source }) => Err(source.into()),
                Err(error) => {
                    self.find(Kind::Damage, &layout.manifest(n), Problem::refused(error));
                    self.unlisted(&layout.read(n))
                }
            },
        }
    }

    fn check_all(&mut self, threads: usize, progress: &(dyn Fn(u64) + Sync)) {
        let tasks = std::mem::take(&mut self.tasks);
        let (next, fs) = (AtomicUsize::new(0), self.fs.clone());
        let seen = Mutex::new(HashSet::new());
        let all = Mutex::new(self);
        // Not `sched::in_order`: the order of results does not matter, and a large file must not delay small ones.
        thread::scope(|scope| {
            for _ in 0..threads.clamp(1, THREADS.min(tasks.len().max(1))) {
                scope.spawn(|| {
                    while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Some((checked, unreadable)) = verify_file::task(&fs, task, &seen) {
                            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                            all.report.unreadable = all.report.unreadable.saturating_add(unreadable);
                            if task.listed.is_none() {
                                all.report.unlisted = all.report.unlisted.saturating_add(checked.good);
                            }
                            all.take(checked);
                        }
                        progress(task.bytes);
                    }
                });
            }
        });
    }
}
