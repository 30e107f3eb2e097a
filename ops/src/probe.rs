//! Measures the behaviour of a filesystem in a scratch directory, and of an index server, for
//! [`crate::doctor`], which judges them.
//!
//! Everything that the ring relies on is measured through [`Fs`], as the ring uses it, so that a faulty filesystem in a
//! test is detected like a real one. [`Extra`] has the other measurements.

pub mod contents;
pub mod delays;
pub mod names;
#[cfg(feature = "mongodb")]
pub mod server;

use ringreel::fs::openat::DirEntryAt;
use ringreel::fs::poll::watcher;
use ringreel::fs::{Fs, FsError, FsResult, Modes, Posix};
pub use ringreel::layout::SCRATCH;
use ringreel::random::random_u32;
use std::any::Any;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};

/// A scratch directory older than this was left by a killed process.
const OLD: Duration = Duration::from_secs(24 * 3600);
/// Maximum depth of scratch directories.
const DEPTH: usize = 6;
/// Longest time to remove old scratch directories.
const SWEEP: Duration = Duration::from_secs(2);

/// Owner and permissions of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Permissions, with setuid, setgid and sticky bit.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change, by the filesystem's clock.
    pub modified: SystemTime,
}

/// Operations on a filesystem that the ring does not use, for measurements.
pub trait Extra: Send + Sync + fmt::Debug {
    /// Returns owner and permissions of `path`. Does not follow links.
    ///
    /// # Errors
    /// The system's error.
    fn facts(&self, path: &Path) -> FsResult<Facts>;

    /// Returns whether this user may create names in the directory `path`, by access(2).
    fn may_write(&self, path: &Path) -> bool;

    /// Creates a directory with these modes, as a ring with RING_MODE does.
    ///
    /// # Errors
    /// The system's error.
    fn make_dir_with(&self, path: &Path, modes: Modes) -> FsResult<()>;

    /// Adds 1 to the decimal number in the file at `path`, under flock.
    ///
    /// # Errors
    /// The system's error.
    fn add_under_lock(&self, path: &Path) -> FsResult<()>;

    /// Calls `on_change` when names in `dir` change (inotify), until the returned value is dropped.
    ///
    /// # Errors
    /// The error as text.
    fn watch(&self, dir: &Path, on_change: Box<dyn Fn() + Send>) -> Result<Box<dyn Any>, String>;

    /// Overwrites the beginning of an existing file in place. (The ring never does.)
    ///
    /// # Errors
    /// The system's error.
    fn overwrite(&self, path: &Path, bytes: &[u8]) -> FsResult<()>;
}

/// [`Extra`] by system calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Extra for System {
    fn facts(&self, path: &Path) -> FsResult<Facts> {
        let look = || {
            let meta = std::fs::symlink_metadata(path)?;
            let (mode, uid, gid) = (meta.mode() & 0o7777, meta.uid(), meta.gid());
            Ok(Facts { mode, uid, gid, modified: meta.modified()? })
        };
        look().map_err(|error| FsError::new("stat", path, error))
    }

    fn may_write(&self, path: &Path) -> bool {
        use rustix::fs::Access;
        rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    }

    fn make_dir_with(&self, path: &Path, modes: Modes) -> FsResult<()> {
        let quiet = Once::new(); // no warning about a lost setgid bit, because the caller checks it
        quiet.call_once(|| ());
        DirEntryAt::plain(path).with_modes(Some(modes), &quiet).make_dir()
    }

    fn add_under_lock(&self, path: &Path) -> FsResult<()> {
        let add = || -> io::Result<()> {
            let lock = OpenOptions::new().read(true).write(true).open(path)?;
            fs2::FileExt::lock_exclusive(&lock)?;
            let mut file = OpenOptions::new().read(true).write(true).open(path)?;
            let mut text = String::new();
            Read::by_ref(&mut file).take(32).read_to_string(&mut text)?;
            let number: u64 = text.trim().parse().map_err(io::Error::other)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(format!("{:020}", number + 1).as_bytes())?;
            drop(file);
            fs2::FileExt::unlock(&lock)
        };
        add().map_err(|error| FsError::new("count under flock in", path, error))
    }

    fn watch(&self, dir: &Path, on_change: Box<dyn Fn() + Send>) -> Result<Box<dyn Any>, String> {
        watcher(dir, on_change).map(|watcher| Box::new(watcher) as Box<dyn Any>).map_err(|error| error.to_string())
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> FsResult<()> {
        let write = || -> io::Result<()> {
            let mut file: File = OpenOptions::new().write(true).open(path)?;
            file.write_all(bytes)
        };
        write().map_err(|error| FsError::new("overwrite", path, error))
    }
}

/// A filesystem to measure.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The operations that the ring uses.
    pub fs: Arc<dyn Fs>,
    /// Other operations.
    pub extra: Arc<dyn Extra>,
}

impl Subject {
    /// Returns the filesystem of this machine.
    pub fn system() -> Subject {
        Subject { fs: Arc::new(Posix), extra: Arc::new(System) }
    }

    /// Creates the scratch directory `dir`, and removes scratch directories beside it that are older than a day.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_scratch(&self, dir: &Path) -> FsResult<()> {
        self.fs.make_dir(dir)?;
        self.sweep(dir.parent().unwrap_or(dir), dir);
        Ok(())
    }

    /// Removes scratch directories that are a day older than `new`, by the filesystem's clock.
    fn sweep(&self, place: &Path, new: &Path) {
        let (Ok(new), Ok(names)) = (self.extra.facts(new), self.fs.list(place)) else { return };
        let begun = Instant::now();
        for name in names.iter().filter(|name| is_scratch(name)) {
            if begun.elapsed() > SWEEP {
                return; // the next run removes the rest
            }
            let path = place.join(name);
            let age = self.extra.facts(&path).ok().and_then(|old| new.modified.duration_since(old.modified).ok());
            if age.is_some_and(|age| age > OLD) {
                let _ = remove_tree(&*self.fs, &path); // fails for another user's
            }
        }
    }
}

/// Returns whether a name is one of [`scratch_name`], or that of a pair's meeting.
fn is_scratch(name: &str) -> bool {
    let is_number = |rest: &str| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(SCRATCH).is_some_and(|rest| rest == "peers" || is_number(rest))
}

/// Returns a random name for a scratch directory in `place`.
pub fn scratch_name(place: &Path) -> PathBuf {
    place.join(format!("{SCRATCH}{:08x}", random_u32()))
}

/// Removes a scratch directory and its contents. A missing directory is no error.
///
/// # Errors
/// The system's error.
pub fn remove_tree(fs: &dyn Fs, dir: &Path) -> FsResult<()> {
    remove_tree_while(fs, dir, &|| ())
}

/// Like [`remove_tree`], and calls `each` before each name is removed.
///
/// # Errors
/// The system's error.
pub fn remove_tree_while(fs: &dyn Fs, dir: &Path, each: &dyn Fn()) -> FsResult<()> {
    // A link is removed, never followed.
    match fs.identity(dir) {
        Ok(found) if !found.is_dir => return fs.forget_file(dir),
        Err(error) if error.is_gone() => return Ok(()),
        _ => {}
    }
    // A temporary name of an open file disappears when the file is closed, so the removal is retried.
    for pause in [100, 200] {
        if remove_below(fs, dir, DEPTH, each).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(pause));
    }
    remove_below(fs, dir, DEPTH, each)
}

fn remove_below(fs: &dyn Fs, dir: &Path, depth: usize, each: &dyn Fn()) -> FsResult<()> {
    let names = match fs.list(dir) {
        Err(error) if error.is_gone() => return Ok(()),
        names => names?,
    };
    for name in names {
        each();
        let path = dir.join(name);
        // Most names are files, so removal is tried first.
        if fs.forget_file(&path).is_err() && depth > 0 && fs.identity(&path).is_ok_and(|found| found.is_dir) {
            let _ = remove_below(fs, &path, depth - 1, each);
        }
    }
    match fs.remove_dir(dir) {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}
