//! Scans the directory of a generation. The footer of each segment is read once; a damaged one is
//! read again at each scan, because this client may have seen it too early.

use super::Ring;
use crate::error::{Error, Result};
use crate::fs::surely;
use crate::layout::{SegmentName, is_owner, read_generations};
use crate::manifest::{Owners, SegmentEntry};
use crate::segment::reader::{Tail, read_tail};
use ringreel_format::{FormatError, SegmentId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The directory of a generation, as far as this process has read it.
#[derive(Default)]
struct Scan {
    generation: u64,
    /// Identifies the directory: a rename keeps the inode, a newly created directory has another
    /// one.
    inode: (u64, u64),
    by_name: HashMap<SegmentName, Arc<SegmentEntry>>,
    owners: Owners,
    unreadable: HashMap<String, u32>,
    /// Whether a manifest of an earlier generation lists the segment; the answer never changes.
    listed_before: HashMap<SegmentId, bool>,
}

/// What this process has read of two generations: the one that is being promoted, and the one that
/// fills meanwhile.
#[derive(Default)]
pub(crate) struct Scanner {
    scans: [Mutex<Scan>; 2],
}

impl Scanner {
    /// Returns the scan of generation `n`, or of another generation with the same parity.
    fn of(&self, n: u64) -> MutexGuard<'_, Scan> {
        self.scans[(n % 2) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After this many failed reads, a segment was not just seen too early, and a warning is logged.
const TELL_AFTER: u32 = 5;

/// The result of one scan of the directory.
#[derive(Clone, Debug, Default)]
pub struct ScannedGeneration {
    /// Segments that pass their footer check, sorted by (born, index): the order in which a
    /// promotion chooses them.
    pub segments: Vec<Arc<SegmentEntry>>,
    /// Number of files that did not pass.
    pub damaged: usize,
}

impl Scan {
    fn keep(&mut self, mut entry: SegmentEntry) -> Arc<SegmentEntry> {
        entry.owner = self.owners.share(&entry.owner);
        let entry = Arc::new(entry);
        self.by_name.insert(entry.name(), Arc::clone(&entry));
        entry
    }

    fn tell(&mut self, name: &str, error: &Error) {
        let times = self.unreadable.entry(name.to_owned()).or_default();
        *times += 1;
        if *times == TELL_AFTER {
            tracing::warn!("cannot read a segment; it is not counted: {error}");
        }
    }
}

impl SegmentEntry {
    /// Builds the entry of a segment with this tail and this index in its generation.
    pub fn of(tail: &Tail, index: u64) -> SegmentEntry {
        let footer = &tail.footer;
        SegmentEntry {
            id: footer.info.id,
            index,
            owner: footer.info.owner().into(),
            born: footer.info.born,
            samples: footer.count,
            bytes: tail.len,
            check: footer.check,
        }
    }
}

impl Ring {
    /// Scans the directory of generation `n`, which is `write.<n>` or `read.<n>`.
    ///
    /// # Errors
    /// A missing directory; other filesystem errors.
    pub fn look_at(&self, n: u64, dir: &Path) -> Result<ScannedGeneration> {
        let inode = surely(&*self.fs, dir, || self.fs.identity(dir))?.inode;
        let names = self.fs.list(dir)?;
        let mut scan = self.scanner.of(n);
        if (scan.generation, scan.inode) != (n, inode) {
            *scan = Scan { generation: n, inode, ..Scan::default() };
        }
        let mut found = ScannedGeneration::default();
        for name in names {
            let Some(parsed) = SegmentName::parse(&name) else { continue };
            if let Some(entry) = scan.by_name.get(&parsed) {
                found.segments.push(entry.clone());
                continue;
            }
            match self.read_named_entry(dir, parsed, &name) {
                Ok(entry) => found.segments.push(scan.keep(entry)),
                Err(Error::Fs { source }) if source.is_gone() => {}
                // The segment may be intact, so no manifest may be published without it.
                Err(Error::Fs { source }) if source.is_exhausted() => return Err(source.into()),
                Err(error) => {
                    scan.tell(&name, &error);
                    found.damaged += 1;
                }
            }
        }
        found.segments.sort_by_key(|entry| (entry.born, entry.index, entry.id));
        Ok(found)
    }

    /// Like [`Ring::read_entry`], but also refuses a segment whose name has a different number of samples.
    fn read_named_entry(&self, dir: &Path, parsed: SegmentName, name: &str) -> Result<SegmentEntry> {
        let entry = self.read_entry(dir, name, parsed.index)?;
        if entry.samples == parsed.samples {
            return Ok(entry);
        }
        let why = "its name has a different number of samples than its footer";
        Err(Error::Format { path: name.into(), source: FormatError::NotASegment { why } })
    }

    /// Reads the footer of a segment in `dir`, and builds its manifest entry. Returns an error for
    /// a segment that no manifest may list.
    pub(crate) fn read_entry(&self, dir: &Path, name: &str, index: u64) -> Result<SegmentEntry> {
        let entry = SegmentEntry::of(&read_tail(&*self.fs, &dir.join(name))?, index);
        let why = match entry.samples {
            _ if !is_owner(&entry.owner) => "its owner name is not a valid ringreel owner name",
            0 => "it has no samples",
            n if n > self.descriptor.swap_cap => "it has more samples than SWAP_CAP",
            _ => return Ok(entry),
        };
        Err(Error::Format { path: name.into(), source: FormatError::NotASegment { why } })
    }

    /// Returns the segments of generation `n` that count: each id once, without those that an
    /// earlier manifest lists.
    ///
    /// # Errors
    /// Errors of reading manifests.
    pub fn countable(&self, n: u64, found: &[Arc<SegmentEntry>]) -> Result<Vec<Arc<SegmentEntry>>> {
        let mut ids: HashSet<SegmentId> = HashSet::new();
        let mut counted = Vec::new();
        // While the generation before waits for its manifest, it is not known what that will list.
        // A segment that is linked into both counts here.
        let before = n.saturating_sub(1);
        let known =
            if self.manifests.newest_known()? >= before { before } else { self.manifests.newest()?.min(before) };
        if known + 1 == n {
            let mut scan = self.scanner.of(known);
            if scan.generation == known {
                *scan = Scan::default(); // its manifest is published
            }
        }
        for entry in found {
            if !self.is_listed_before(n, known, entry)? && ids.insert(entry.id) {
                counted.push(entry.clone());
            }
        }
        Ok(counted)
    }

    fn is_listed_before(&self, n: u64, newest: u64, entry: &SegmentEntry) -> Result<bool> {
        let known = |scan: &Scan| (scan.generation == n).then(|| scan.listed_before.get(&entry.id).copied()).flatten();
        if let Some(listed) = known(&self.scanner.of(n)) {
            return Ok(listed);
        }
        let listed = n > 0 && self.manifests.find(entry.id, entry.born, newest)?.generation().is_some();
        let mut scan = self.scanner.of(n);
        if scan.generation == n && (listed || newest + 1 >= n) {
            scan.listed_before.insert(entry.id, listed);
        }
        Ok(listed)
    }

    /// Returns whether the directory of generation `n` has been renamed by its promotion. Always
    /// queries the file server.
    pub(crate) fn is_renamed(&self, n: u64) -> Result<bool> {
        Ok(self.fs.exists(&self.layout.read(n))?)
    }

    /// Returns the number of samples in `write.<n>` that a promotion would list now.
    ///
    /// # Errors
    /// A missing directory; other filesystem errors.
    pub fn count_samples(&self, n: u64) -> Result<u64> {
        Ok(self.fill_in(n, &self.layout.write(n))?.0)
    }

    /// Returns the number of samples in `dir` that a promotion would list now, and the bytes of
    /// their segments. `dir` is `write.<n>`, or `read.<n>` during the promotion.
    ///
    /// # Errors
    /// As [`Ring::count_samples`].
    pub fn fill_in(&self, n: u64, dir: &Path) -> Result<(u64, u64)> {
        let found = self.look_at(n, dir)?;
        let entries = self.countable(n, &found.segments)?;
        Ok(entries.iter().fold((0, 0), |(samples, bytes), entry| (samples + entry.samples, bytes + entry.bytes)))
    }

    /// Returns the bytes and the number of files of the ring's segments: of the existing
    /// generations, as their manifests list them, and of the filling generation. A segment that is
    /// both staged and linked is one file.
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn usage(&self) -> Result<(u64, u64)> {
        let newest = self.manifests.newest()?;
        self.usage_with(newest, &self.look_at_filling(newest)?)
    }

    /// Like [`Ring::usage`], for a caller that has already scanned the generations after `newest`.
    pub fn usage_with(&self, newest: u64, filling: &[ScannedGeneration]) -> Result<(u64, u64)> {
        let oldest = newest.saturating_sub(self.settings.keep);
        let mut there: BTreeSet<u64> = self.kept_for_ever()?.into_iter().collect();
        there.extend(oldest..=newest);
        // Older generations that readers still need.
        let names = self.fs.list(self.layout.root())?;
        there.extend(read_generations(&names).filter(|n| *n <= newest));
        let (mut bytes, mut files) = (0u64, 0);
        for n in there {
            if let Some(manifest) = self.manifests.usable(n)? {
                bytes = manifest.summary.bytes.saturating_add(bytes); // a forged manifest may claim any number
                files += manifest.segments.len() as u64;
            }
        }
        for found in filling {
            bytes = found.segments.iter().map(|entry| entry.bytes).fold(bytes, u64::saturating_add);
            files += (found.segments.len() + found.damaged) as u64;
        }
        Ok((bytes, files))
    }

    /// Scans the generation after `newest`. While that is being promoted, scans the one after it,
    /// too.
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn look_at_filling(&self, newest: u64) -> Result<Vec<ScannedGeneration>> {
        let next = newest + 1;
        let look = |n, dir: &Path| match self.look_at(n, dir) {
            Err(Error::Fs { source }) if source.is_gone() => Ok(None),
            found => found.map(Some),
        };
        let mut promoted = look(next, &self.layout.read(next))?;
        let filling = if promoted.is_some() { None } else { look(next, &self.layout.write(next))? };
        if promoted.is_none() && filling.is_none() {
            promoted = look(next, &self.layout.read(next))?; // it was renamed between the two scans
        }
        let ahead = look(next + 1, &self.layout.write(next + 1))?;
        Ok([promoted, filling, ahead].into_iter().flatten().collect())
    }
}
