//! The coordination store in the directory of the ring, as file names. It depends on no file
//! contents that change, and takes no lock: a name has one creator on every filesystem that was
//! measured, whereas a counter in a file under `flock` lost half of its increments on one of them.
//!
//! ```text
//! counter/<generation>/<block>     its creator owns a block of numbers (counter.rs)
//! counter/<generation>/closed      no more numbers
//! status/<generation>              the swap status; the highest generation counts
//! leases/<role>.<token>            holds its holder's name; the highest token counts (leases.rs)
//! leases/<role>.<token>.free       was given up
//! members/<owner>.<beat>           a heartbeat, with a report; the highest beat counts (membership.rs)
//! notes/<folder>/<name>            written once; the first one stays (notes.rs)
//! tmp/                             being written
//! ```

mod counter;
mod leases;
mod membership;
mod notes;

pub use notes::NOTES;

use super::allocator::NumberAllocator;
use super::{CoordinationStore, SwapStatus};
use crate::error::{Error, Result};
use crate::fs::atomic_publish::publish;
use crate::fs::{Fs, FsError, FsResult, surely};
use crate::layout::parse_number;
use crate::random::random_u32;
use counter::COUNTERS;
use leases::LEASES;
use membership::{LastBeat, MEMBERS};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Size limit of a report, status or lease, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Pauses before missing directories are created again.
const REMOVED_MEANWHILE: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
];
/// The directory of statuses.
const STATUSES: &str = "status";
/// The directory of files that are being written.
const TEMP: &str = "tmp";

/// The coordination store in files; see the module.
#[derive(Debug)]
pub struct FileStore {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    me: String,
    block: u64,
    numbers: NumberAllocator,
    temp: AtomicU64,
    /// The last heartbeat of each member that this process publishes.
    beats: Mutex<HashMap<String, LastBeat>>,
}

impl FileStore {
    /// Creates the store in directory `root`. `me` is this process's owner name, and `block` how
    /// many numbers it claims at a time.
    pub fn new(fs: Arc<dyn Fs>, root: PathBuf, me: &str, block: u64) -> FileStore {
        let block = block.max(1);
        let (numbers, beats) = (NumberAllocator::default(), Mutex::default());
        FileStore { fs, root, me: me.to_owned(), block, numbers, temp: AtomicU64::new(0), beats }
    }

    /// Returns the directory `name` of the store.
    fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns a new name for a file that is being written.
    fn temp(&self) -> PathBuf {
        let n = self.temp.fetch_add(1, Ordering::Relaxed);
        self.dir(TEMP).join(format!("{}.{n}.{:08x}", self.me, random_u32()))
    }

    /// Lists the names in `dir`; returns an empty list if it is missing.
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        match surely(&*self.fs, dir, || self.fs.list(dir)) {
            Ok(names) => Ok(names),
            // A file in place of a directory counts as an empty directory.
            Err(error) if error.is_gone() || error.source.kind() == ErrorKind::NotADirectory => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file `path`. Ignores a directory, because the store never creates one of that
    /// name.
    fn forget(&self, path: &Path) -> Result<()> {
        match self.fs.forget_file(path) {
            Err(error) if error.source.kind() == ErrorKind::IsADirectory => Ok(()),
            done => Ok(done?),
        }
    }

    /// Removes those files in `dir` whose names fulfil `which`.
    fn forget_where(&self, dir: &Path, which: impl Fn(&str) -> bool) -> Result<()> {
        self.list(dir)?.iter().filter(|name| which(name)).try_for_each(|name| self.forget(&dir.join(name)))
    }

    /// Returns the generations that have a status.
    fn statuses(&self) -> Result<Vec<u64>> {
        Ok(self.list(&self.dir(STATUSES))?.iter().filter_map(|name| parse_number(name)).collect())
    }

    /// Runs `action`. If a directory is missing, creates the store's directories and `below`, and
    /// runs it again; several times, because another process may be removing them meanwhile.
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
        for name in [COUNTERS, STATUSES, LEASES, MEMBERS, NOTES, TEMP] {
            self.fs.ensure_dir(&self.dir(name))?;
        }
        below.map_or(Ok(()), |dir| self.fs.ensure_dir(dir))
    }

    /// Creates the empty file `path`, unless it exists.
    fn mark(&self, below: Option<&Path>, path: &Path) -> Result<()> {
        match self.with_dirs(below, || self.fs.create_new(path)) {
            Ok(file) => Ok(file.close()?),
            Err(error) if error.is_taken() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads and decodes the file `path`. Returns `None` if it is missing.
    fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        match self.fs.read(path, MAX_BYTES) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(Error::Coordination(format!("{}: {error}", path.display()))),
            },
            Err(error) if error.is_gone() => Ok(None),
            Err(error) if is_no_file(&error) => Err(Error::Coordination(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Like [`FileStore::read`], but returns `None` for contents that cannot be decoded, such as
    /// those of a truncated file.
    fn read_hint<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        match self.read(path) {
            Err(Error::Coordination(why)) => {
                tracing::debug!("{why}");
                Ok(None)
            }
            other => other,
        }
    }

    fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
        serde_json::to_vec(value).map_err(|error| Error::Coordination(error.to_string()))
    }
}

/// Returns whether the name is a directory, a link or a device, which the store never creates.
fn is_no_file(error: &FsError) -> bool {
    let errno = Errno::from_io_error(&error.source);
    errno.is_none() || matches!(errno, Some(Errno::ISDIR | Errno::LOOP))
}

/// Splits `<name>.<number>`.
fn numbered(name: &str) -> Option<(&str, u64)> {
    let (name, number) = name.rsplit_once('.')?;
    Some((name, parse_number(number)?))
}

impl CoordinationStore for FileStore {
    fn place(&self) -> String {
        format!("files in {}", self.root.display())
    }

    fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn publish_status(&self, status: &SwapStatus) -> Result<bool> {
        let target = self.dir(STATUSES).join(status.generation.to_string());
        let bytes = Self::encode(status)?;
        let publish = || self.with_dirs(None, || publish(&*self.fs, &self.temp(), &target, &bytes, false));
        if !publish()? && self.read_hint::<SwapStatus>(&target)?.is_none() {
            self.forget(&target)?; // it is unreadable
            publish()?;
        }
        Ok(self.statuses()?.into_iter().max() <= Some(status.generation))
    }

    fn status(&self) -> Result<Option<SwapStatus>> {
        let mut numbers = self.statuses()?;
        numbers.sort_unstable();
        for n in numbers.into_iter().rev() {
            if let Some(status) = self.read_hint(&self.dir(STATUSES).join(n.to_string()))? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    fn forget_before(&self, generation: u64) -> Result<()> {
        self.forget_where(&self.dir(STATUSES), |name| parse_number(name).is_some_and(|n| n < generation))?;
        self.forget_counters_before(generation)
    }

    fn clear(&self) -> Result<()> {
        self.forget_before(u64::MAX)?;
        self.clear_notes()?;
        [STATUSES, LEASES, MEMBERS, TEMP].iter().try_for_each(|name| self.forget_where(&self.dir(name), |_| true))
    }
}
