//! The index kept in the ring itself, as names. No contents that change are ever read, and no lock is taken: a name
//! that was created has one creator on every filesystem that was measured, whereas a counter in a file under flock lost
//! half of its increments on one of them.
//!
//! ```text
//! counter/<generation>/<block>     whoever creates it owns a block of numbers
//! counter/<generation>/closed      no more numbers
//! status/<generation>              the highest one counts
//! leases/<role>.<token>            holds its holder's name; the highest token counts
//! leases/<role>.<token>.free       was given up
//! members/<owner>.<beat>           a sign of life, with a report; the highest beat counts
//! notes/<folder>/<name>            written once; the first one stays
//! tmp/                             being written
//! ```

use super::block::{Block, Numbers};
use super::{BEATS_PER_LEASE, Index, Lease, NUMBERS_END, Report, SwapStatus};
use crate::error::{Error, Result};
use crate::fs::publish::{publish, write_new};
use crate::fs::{Fs, FsError, FsResult, surely};
use crate::layout::parse_number;
use crate::random::random_u32;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Largest report, status or lease, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// How often a block that another one took is followed by the next before we jump at random.
const PATIENCE: u32 = 64;
/// How long is waited before missing directories are made again.
const REMOVED_MEANWHILE: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
];
/// The directory of notes, with one for each folder.
pub const NOTES: &str = "notes";
/// Heartbeats that may follow a report before changed details of a wait are written.
const BEATS_WITHOUT_DETAILS: u64 = 2;
/// Old leases that are left lying, so that a late claimant finds its token taken.
const LEASES_KEPT: u64 = 16;

/// See the module.
#[derive(Debug)]
pub struct FilesIndex {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    me: String,
    block: u64,
    numbers: Block,
    temp: AtomicU64,
    /// The last beat of each member that this process speaks for.
    beats: Mutex<HashMap<String, Said>>,
}

/// A member's file: a report, and the heartbeat with which it was written. Later heartbeats rename the file, and readers
/// of it add the time of as many heartbeats to the report's.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    #[serde(flatten)]
    report: Report,
    since: u64,
}

impl Written {
    /// The report as it stands at `beat`.
    fn at(self, beat: u64) -> Report {
        self.report.after(beat.saturating_sub(self.since))
    }
}

/// A beat that was published, and what its file holds.
#[derive(Debug)]
struct Said {
    beat: u64,
    written: Written,
}

impl Said {
    /// Whether the file that is there may stand for `beat` with `report`, too: the time that readers of it compute is
    /// right within one heartbeat, and nothing else differs, or only what a member waits for in detail.
    fn stands_for(&self, beat: u64, report: &Report) -> bool {
        let Written { report: said, since } = &self.written;
        let beats = beat.saturating_sub(*since);
        let off = Duration::from_millis(said.clone().after(beats).unix_ms.abs_diff(report.unix_ms));
        let waits_still = report.doing.is_empty() == said.doing.is_empty() && beats <= BEATS_WITHOUT_DETAILS;
        let doing = if waits_still { &said.doing } else { &report.doing }.clone();
        let (unix_ms, per_second) = (said.unix_ms, said.per_second);
        Report { unix_ms, per_second, doing, ..report.clone() } == *said && off <= said.lease() / BEATS_PER_LEASE
    }
}

impl FilesIndex {
    /// The index in directory `root`. `me` is this process's owner name, `block` how many numbers it takes at a time.
    pub fn new(fs: Arc<dyn Fs>, root: PathBuf, me: &str, block: u64) -> FilesIndex {
        let block = block.max(1);
        let (numbers, beats) = (Block::default(), Mutex::default());
        FilesIndex { fs, root, me: me.to_owned(), block, numbers, temp: AtomicU64::new(0), beats }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn counter_dir(&self, generation: u64) -> PathBuf {
        self.dir("counter").join(generation.to_string())
    }

    fn note_dir(&self, folder: &str) -> PathBuf {
        self.dir(NOTES).join(folder)
    }

    fn temp(&self) -> PathBuf {
        let n = self.temp.fetch_add(1, Ordering::Relaxed);
        self.dir("tmp").join(format!("{}.{n}.{:08x}", self.me, random_u32()))
    }

    /// Returns the time by the filesystem's clock: that of a new file.
    fn now(&self) -> FsResult<SystemTime> {
        let temp = self.temp();
        self.fs.create_new(&temp)?.close()?;
        let now = self.fs.changed(&temp);
        self.fs.forget_file(&temp)?;
        now
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        match surely(&*self.fs, dir, || self.fs.list(dir)) {
            Ok(names) => Ok(names),
            // A file in place of a directory has no names in it.
            Err(error) if error.is_gone() || error.source.kind() == ErrorKind::NotADirectory => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a name. A directory of that name is left alone: this index never makes one.
    fn forget(&self, path: &Path) -> Result<()> {
        match self.fs.forget_file(path) {
            Err(error) if error.source.kind() == ErrorKind::IsADirectory => Ok(()),
            done => Ok(done?),
        }
    }

    /// Does `action`; where a directory is missing, makes them all and does it again. Somebody may be removing them all
    /// just now, name by name: so not once only.
    fn with_dirs<T>(&self, below: Option<&Path>, action: impl Fn() -> FsResult<T>) -> FsResult<T> {
        let mut done = action();
        for pause in REMOVED_MEANWHILE {
            match done {
                Err(error) if error.is_gone() => {}
                done => return done,
            }
            std::thread::sleep(pause);
            done = self.make_dirs(below).and_then(|()| action());
        }
        done
    }

    fn make_dirs(&self, below: Option<&Path>) -> FsResult<()> {
        self.fs.ensure_dir(&self.root)?;
        for name in ["counter", "status", "leases", "members", NOTES, "tmp"] {
            self.fs.ensure_dir(&self.dir(name))?;
        }
        below.map_or(Ok(()), |dir| self.fs.ensure_dir(dir))
    }

    /// Claims the next block that nobody has, after the number `taken`. None: the generation is closed.
    fn claim_block(&self, generation: u64, taken: Option<u64>) -> Result<Option<Numbers>> {
        let dir = self.counter_dir(generation);
        // A wrong no: a number of a generation that is over, whose link fails.
        if self.fs.seen(&dir.join("closed"))? {
            return Ok(None);
        }
        let mut block = match taken {
            Some(taken) => taken.div_ceil(self.block),
            None => self.highest_block(&dir)?.map_or(0, |highest| highest + 1),
        };
        let numbers = |block| Numbers { generation, next: block * self.block, end: (block + 1) * self.block };
        for attempt in 0..=PATIENCE {
            if block >= NUMBERS_END / self.block {
                break;
            }
            match self.with_dirs(Some(&dir), || self.fs.create_new(&dir.join(block.to_string()))) {
                Ok(file) => return file.close().map(|()| Some(numbers(block))).map_err(Error::from),
                Err(error) if error.is_taken() => {}
                Err(error) if error.is_gone() => return Ok(None), // just forgotten: the generation is over
                Err(error) => return Err(error.into()),
            }
            let highest = self.highest_block(&dir)?;
            // The listing may be old, and many may look at once: leave some room to the others.
            let spread = u64::from(random_u32()) % u64::from(attempt + 1);
            block = highest.map_or(0, |n| n + 1).max(block + 1) + spread;
        }
        tracing::debug!("no free block of numbers in {}: random ones are taken", dir.display());
        Ok(None)
    }

    /// Returns the highest claimed block. Ignores numbers beyond all blocks.
    fn highest_block(&self, dir: &Path) -> Result<Option<u64>> {
        let end = NUMBERS_END / self.block;
        Ok(self.list(dir)?.iter().filter_map(|name| parse_number(name)).filter(|block| *block < end).max())
    }

    fn read<T: serde::de::DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        match self.fs.read(path, MAX_BYTES) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(Error::Index(format!("{}: {error}", path.display()))),
            },
            Err(error) if error.is_gone() => Ok(None),
            Err(error) if is_no_file(&error) => Err(Error::Index(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The same of what is only a hint: what cannot be understood (it was cut off, say) says nothing.
    fn read_hint<T: serde::de::DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        match self.read(path) {
            Err(Error::Index(why)) => {
                tracing::debug!("{why}");
                Ok(None)
            }
            other => other,
        }
    }

    fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
        serde_json::to_vec(value).map_err(|error| Error::Index(error.to_string()))
    }
}

/// Whether the name is a directory, a link or a device, which this index never makes.
fn is_no_file(error: &FsError) -> bool {
    let errno = Errno::from_io_error(&error.source);
    errno.is_none() || matches!(errno, Some(Errno::ISDIR | Errno::LOOP))
}

/// `<name>.<number>`, split.
fn numbered(name: &str) -> Option<(&str, u64)> {
    let (name, number) = name.rsplit_once('.')?;
    Some((name, parse_number(number)?))
}

impl Index for FilesIndex {
    fn place(&self) -> String {
        format!("files in {}", self.root.display())
    }

    fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn next_index(&self, generation: u64) -> Result<Option<u64>> {
        self.numbers.take(generation, |taken| self.claim_block(generation, taken))
    }

    fn handed_out(&self, generation: u64) -> Result<u64> {
        Ok(self.highest_block(&self.counter_dir(generation))?.map_or(0, |highest| (highest + 1) * self.block))
    }

    fn skip_to(&self, generation: u64, next: u64) -> Result<()> {
        self.numbers.skip_to(generation, next);
        let Some(block) = next.div_ceil(self.block).checked_sub(1) else { return Ok(()) };
        let dir = self.counter_dir(generation);
        match self.with_dirs(Some(&dir), || self.fs.create_new(&dir.join(block.to_string()))) {
            Ok(file) => Ok(file.close()?),
            Err(error) if error.is_taken() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn close_generation(&self, generation: u64) -> Result<()> {
        let dir = self.counter_dir(generation);
        match self.with_dirs(Some(&dir), || self.fs.create_new(&dir.join("closed"))) {
            Ok(file) => Ok(file.close()?),
            Err(error) if error.is_taken() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn publish_status(&self, status: &SwapStatus) -> Result<bool> {
        let target = self.dir("status").join(status.generation.to_string());
        let bytes = Self::encode(status)?;
        let publish = || self.with_dirs(None, || publish(&*self.fs, &self.temp(), &target, &bytes, false));
        if !publish()? && self.read_hint::<SwapStatus>(&target)?.is_none() {
            self.forget(&target)?; // it says nothing
            publish()?;
        }
        let names = self.list(&self.dir("status"))?;
        Ok(names.iter().filter_map(|name| parse_number(name)).max() <= Some(status.generation))
    }

    fn status(&self) -> Result<Option<SwapStatus>> {
        let mut numbers: Vec<u64> =
            self.list(&self.dir("status"))?.iter().filter_map(|name| parse_number(name)).collect();
        numbers.sort_unstable();
        for n in numbers.into_iter().rev() {
            if let Some(status) = self.read_hint(&self.dir("status").join(n.to_string()))? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    fn lease(&self, role: &str) -> Result<Option<Lease>> {
        let names = self.list(&self.dir("leases"))?;
        let tokens = names.iter().filter_map(|name| numbered(name)).filter(|(name, _)| *name == role);
        let Some(token) = tokens.map(|(_, token)| token).max() else { return Ok(None) };
        // Where it cannot be told who holds it, nobody does, who will be found to be silent.
        let holder = self.read_hint(&self.dir("leases").join(format!("{role}.{token}")))?.unwrap_or_default();
        let released = names.contains(&format!("{role}.{token}.free"));
        Ok(Some(Lease { token, holder, released }))
    }

    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool> {
        let dir = self.dir("leases");
        let target = dir.join(format!("{role}.{token}"));
        let bytes = Self::encode(&holder)?;
        let won = self.with_dirs(None, || publish(&*self.fs, &self.temp(), &target, &bytes, false))?;
        if won {
            for name in self.list(&dir)? {
                let old = numbered(name.strip_suffix(".free").unwrap_or(&name));
                if old.is_some_and(|(other, n)| other == role && n + LEASES_KEPT < token) {
                    self.forget(&dir.join(name))?;
                }
            }
        }
        Ok(won)
    }

    fn release_lease(&self, role: &str, token: u64) -> Result<()> {
        let path = self.dir("leases").join(format!("{role}.{token}.free"));
        match self.with_dirs(None, || self.fs.create_new(&path)) {
            Ok(file) => Ok(file.close()?),
            Err(error) if error.is_taken() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
        let dir = self.dir("members");
        let target = dir.join(format!("{member}.{beat}"));
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let last = beats.get(member).map(|last| dir.join(format!("{member}.{}", last.beat)));
        // One request to a file server. A new report takes six.
        if let (Some(said), Some(last)) = (beats.get_mut(member).filter(|said| said.stands_for(beat, report)), &last) {
            match self.fs.rename(last, &target) {
                // The name is absent: another process removed it, or the rename succeeded and its reply was lost.
                Err(error) if error.is_gone() && !self.fs.exists(&target)? => {}
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {
                    said.beat = beat;
                    return Ok(());
                }
            }
        }
        let written = Written { report: report.clone(), since: beat };
        let bytes = Self::encode(&written)?;
        let said = self.with_dirs(None, || {
            let temp = self.temp();
            write_new(&*self.fs, &temp, &bytes, false)?;
            self.fs.rename(&temp, &target)
        });
        match (said, last) {
            (Ok(()), last) => {
                beats.insert(member.to_owned(), Said { beat, written });
                last.map_or(Ok(()), |last| self.forget(&last))?;
            }
            // On a full disk the old report takes the new number: being alive needs no room.
            (Err(error), Some(last)) if error.is_full() => {
                self.fs.rename(&last, &target)?;
                if let Some(said) = beats.get_mut(member) {
                    said.beat = beat;
                }
            }
            (Err(error), _) => return Err(error.into()),
        }
        Ok(())
    }

    fn leave(&self, member: &str) -> Result<()> {
        for name in self.list(&self.dir("members"))? {
            if numbered(&name).is_some_and(|(other, _)| other == member) {
                self.forget(&self.dir("members").join(name))?;
            }
        }
        for name in self.list(&self.dir("tmp"))? {
            if name.strip_prefix(member).is_some_and(|rest| rest.starts_with('.')) {
                self.forget(&self.dir("tmp").join(name))?;
            }
        }
        Ok(())
    }

    fn members(&self) -> Result<Vec<(String, u64)>> {
        let mut last = HashMap::new();
        for name in self.list(&self.dir("members"))? {
            if let Some((member, beat)) = numbered(&name) {
                let known = last.entry(member.to_owned()).or_insert(beat);
                *known = beat.max(*known);
            }
        }
        Ok(last.into_iter().collect())
    }

    /// Compares the files' times with the time of a file that it makes and removes: all are of the
    /// filesystem's clock. A process that may not write here learns nothing.
    fn ages(&self, beats: &[(String, u64)]) -> Result<HashMap<String, Duration>> {
        let Ok(now) = self.now() else { return Ok(HashMap::new()) };
        let dir = self.dir("members");
        let age = |(member, beat): &(String, u64)| {
            // Just listed. A wrong no: the report's own time counts.
            let changed = self.fs.changed(&dir.join(format!("{member}.{beat}"))).ok()?;
            Some((member.clone(), now.duration_since(changed).unwrap_or_default()))
        };
        Ok(beats.iter().filter_map(age).collect())
    }

    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>> {
        let written: Option<Written> = self.read(&self.dir("members").join(format!("{member}.{beat}")))?;
        Ok(written.map(|written| written.at(beat)))
    }

    fn note(&self, folder: &str, name: &str, text: &str) -> Result<String> {
        let dir = self.note_dir(folder);
        let target = dir.join(name);
        if text.is_empty() {
            return match self.with_dirs(Some(&dir), || self.fs.create_new(&target)) {
                Ok(file) => file.close().map(|()| String::new()).map_err(Error::from),
                Err(error) if error.is_taken() => Ok(self.read_note(folder, name)?.unwrap_or_default()),
                Err(error) => Err(error.into()),
            };
        }
        let ours = self.with_dirs(Some(&dir), || publish(&*self.fs, &self.temp(), &target, text.as_bytes(), false))?;
        if ours {
            return Ok(text.to_owned());
        }
        let unseen =
            || Error::Index(format!("{} was written by somebody else and cannot be seen yet", target.display()));
        self.read_note(folder, name)?.ok_or_else(unseen)
    }

    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>> {
        match self.fs.read(&self.note_dir(folder).join(name), MAX_BYTES) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.is_gone() || is_no_file(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn note_names(&self, folder: &str) -> Result<Vec<String>> {
        self.list(&self.note_dir(folder))
    }

    fn drop_note(&self, folder: &str, name: &str) -> Result<()> {
        let dir = self.note_dir(folder);
        self.forget(&dir.join(name))?;
        let _ = self.fs.remove_dir(&dir); // the last one takes its folder with it
        Ok(())
    }

    fn forget_before(&self, generation: u64) -> Result<()> {
        for name in self.list(&self.dir("status"))? {
            if parse_number(&name).is_some_and(|n| n < generation) {
                self.forget(&self.dir("status").join(name))?;
            }
        }
        for name in self.list(&self.dir("counter"))? {
            if let Some(old) = parse_number(&name).filter(|n| *n < generation) {
                let dir = self.counter_dir(old);
                for name in self.list(&dir)? {
                    self.forget(&dir.join(name))?;
                }
                match self.fs.remove_dir(&dir) {
                    Err(error) if !error.is_gone() && !error.is_taken() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        self.forget_before(u64::MAX)?;
        for folder in self.list(&self.dir(NOTES))? {
            for name in self.note_names(&folder)? {
                self.drop_note(&folder, &name)?;
            }
        }
        for name in ["status", "leases", "members", "tmp"] {
            for file in self.list(&self.dir(name))? {
                self.forget(&self.dir(name).join(file))?;
            }
        }
        Ok(())
    }
}
