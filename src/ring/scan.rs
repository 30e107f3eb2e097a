//! What a generation's directory holds right now. Each segment's footer is read once; a damaged one (perhaps only seen
//! too early) is looked at again each time.

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

/// A generation's directory, as far as it was read.
#[derive(Default)]
struct Scan {
    generation: u64,
    /// Which directory that is: a rename keeps it, a directory that was made anew is another one.
    inode: (u64, u64),
    by_name: HashMap<SegmentName, Arc<SegmentEntry>>,
    owners: Owners,
    unreadable: HashMap<String, u32>,
    /// Whether an earlier generation's manifest lists a segment; those do not change.
    listed_before: HashMap<SegmentId, bool>,
}

/// What this process knows of two generations: of the one that is being promoted, and of the one that fills meanwhile.
#[derive(Default)]
pub(crate) struct Scanner {
    scans: [Mutex<Scan>; 2],
}

impl Scanner {
    /// What is known of the directory of generation `n`, or of another one with the same parity.
    fn of(&self, n: u64) -> MutexGuard<'_, Scan> {
        self.scans[(n % 2) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A segment that could not be read so often is no longer just seen too early: somebody is told.
const TELL_AFTER: u32 = 5;

/// What a look at the directory found.
#[derive(Clone, Debug, Default)]
pub struct ScannedGeneration {
    /// Segments that pass their footer check, sorted by (born, index): the order in which they are chosen.
    pub segments: Vec<Arc<SegmentEntry>>,
    /// Files that did not pass, and why.
    pub damaged: Vec<(String, String)>,
}

impl Scan {
    /// Frees what is known of generation `n`.
    fn forget(&mut self, n: u64) {
        if self.generation == n {
            *self = Scan::default();
        }
    }

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
            tracing::warn!("a segment cannot be read and is not counted: {error}");
        }
    }
}

impl SegmentEntry {
    /// The entry for a segment of these contents, with this place in its generation.
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
    /// Looks at the directory of generation `n`, be it `write.<n>` or `read.<n>`.
    ///
    /// # Errors
    /// A directory that is gone, or what else the filesystem says.
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
            match self.read_entry(dir, parsed, &name) {
                Ok(entry) => {
                    let entry = scan.keep(entry);
                    found.segments.push(entry);
                }
                Err(Error::Fs { source }) if source.is_gone() => {}
                // The segment may be in order: no manifest is to be made without it.
                Err(Error::Fs { source }) if source.is_exhausted() => return Err(source.into()),
                Err(error) => {
                    scan.tell(&name, &error);
                    found.damaged.push((name, error.to_string()));
                }
            }
        }
        found.segments.sort_by_key(|entry| (entry.born, entry.index, entry.id));
        Ok(found)
    }

    fn read_entry(&self, dir: &Path, parsed: SegmentName, name: &str) -> Result<SegmentEntry> {
        let tail = read_tail(&*self.fs, &dir.join(name))?;
        let entry = self.entry(&tail, parsed.index, name)?;
        if entry.samples == parsed.samples {
            return Ok(entry);
        }
        let why = "its name says another number of samples";
        Err(Error::Format { path: name.into(), source: FormatError::NotASegment { why } })
    }

    /// What would stand in the manifest; an error for what must not stand there.
    pub(crate) fn entry(&self, tail: &Tail, index: u64, name: &str) -> Result<SegmentEntry> {
        let entry = SegmentEntry::of(tail, index);
        let why = match entry.samples {
            _ if !is_owner(&entry.owner) => "its owner's name is none of ours",
            0 => "it holds no sample",
            n if n > self.descriptor.swap_cap => "it holds more samples than a generation",
            _ => return Ok(entry),
        };
        Err(Error::Format { path: name.into(), source: FormatError::NotASegment { why } })
    }

    /// The segments of generation `n` that count: each id once, and none that an earlier manifest lists.
    ///
    /// # Errors
    /// As the manifests' reading.
    pub fn countable(&self, n: u64, found: &[Arc<SegmentEntry>]) -> Result<Vec<Arc<SegmentEntry>>> {
        let mut ids: HashSet<SegmentId> = HashSet::new();
        let mut counted = Vec::new();
        // What the generation before will list, where that waits for its manifest, is not known yet: it counts.
        let before = n.saturating_sub(1);
        let known =
            if self.manifests.newest_known()? >= before { before } else { self.manifests.newest()?.min(before) };
        if known + 1 == n {
            self.scanner.of(known).forget(known); // its manifest is out
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

    /// Returns whether the directory of generation `n` has the name that its promotion gives it. Asks the server.
    pub(crate) fn is_renamed(&self, n: u64) -> Result<bool> {
        Ok(self.fs.exists(&self.layout.read(n))?)
    }

    /// Samples in `write.<n>` that would be listed if it were promoted now.
    ///
    /// # Errors
    /// A directory that is gone, or what else the filesystem says.
    pub fn count_samples(&self, n: u64) -> Result<u64> {
        Ok(self.fill_in(n, &self.layout.write(n))?.0)
    }

    /// The same of what is in `dir`, which is `read.<n>` while it is promoted; and the bytes of their segments.
    ///
    /// # Errors
    /// As [`Ring::count_samples`].
    pub fn fill_in(&self, n: u64, dir: &Path) -> Result<(u64, u64)> {
        let found = self.look_at(n, dir)?;
        let entries = self.countable(n, &found.segments)?;
        Ok(entries.iter().fold((0, 0), |(samples, bytes), entry| (samples + entry.samples, bytes + entry.bytes)))
    }

    /// Returns the bytes and the number of files of the ring's segments: of the generations that are there, as their
    /// manifests list them, and of the filling generation. (A segment that is staged and linked is one file.)
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn usage(&self) -> Result<(u64, u64)> {
        let newest = self.manifests.newest()?;
        self.usage_with(newest, &self.look_at_filling(newest)?)
    }

    /// As [`Ring::usage`], for a caller that has looked at the generations after `newest`.
    pub fn usage_with(&self, newest: u64, filling: &[ScannedGeneration]) -> Result<(u64, u64)> {
        let oldest = newest.saturating_sub(self.settings.keep);
        let mut there: BTreeSet<u64> = self.kept_for_ever()?.iter().map(|kept| kept.generation).collect();
        there.extend(oldest..=newest);
        // Those that readers still need.
        let names = self.fs.list(self.layout.root())?;
        there.extend(read_generations(&names).filter(|n| *n <= newest));
        let (mut bytes, mut files) = (0u64, 0);
        for n in there {
            if let Some(manifest) = self.manifests.usable(n)? {
                bytes = manifest.summary.bytes.saturating_add(bytes); // a manifest may claim anything
                files += manifest.segments.len() as u64;
            }
        }
        for found in filling {
            bytes = found.segments.iter().map(|entry| entry.bytes).fold(bytes, u64::saturating_add);
            files += (found.segments.len() + found.damaged.len()) as u64;
        }
        Ok((bytes, files))
    }

    /// What is linked into the generation after `newest`; while that is promoted, also what is linked into the one after it.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn look_at_filling(&self, newest: u64) -> Result<Vec<ScannedGeneration>> {
        let next = newest + 1;
        let look = |n, dir: &Path| match self.look_at(n, dir) {
            Err(Error::Fs { source }) if source.is_gone() => Ok(None),
            found => found.map(Some),
        };
        let mut promoted = look(next, &self.layout.read(next))?;
        let filling = if promoted.is_some() { None } else { look(next, &self.layout.write(next))? };
        if promoted.is_none() && filling.is_none() {
            promoted = look(next, &self.layout.read(next))?; // it was renamed between the two looks
        }
        let ahead = look(next + 1, &self.layout.write(next + 1))?;
        Ok([promoted, filling, ahead].into_iter().flatten().collect())
    }
}
