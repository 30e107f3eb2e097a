//! What a filesystem really does, measured in a scratch directory: for [`crate::doctor`].
//!
//! Everything the ring relies upon is asked of [`Fs`], as the ring does it, so that a filesystem that lies in a test is
//! found out like one in the field. What is measured besides stands in [`Extra`]. Nothing is judged here.

pub mod contents;
pub mod delays;
pub mod names;

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

/// A scratch directory that is so much older than a new one was left by a process that was killed.
const OLD: Duration = Duration::from_secs(24 * 3600);
/// Scratch directories are not deeper.
const DEPTH: usize = 6;
/// Longest time for what others left.
const SWEEP: Duration = Duration::from_secs(2);

/// Whose a name is, and what may be done with it.
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

/// What is measured of a filesystem besides what the ring asks of it.
pub trait Extra: Send + Sync + fmt::Debug {
    /// Whose `path` is. Links are not followed.
    ///
    /// # Errors
    /// What the system says.
    fn facts(&self, path: &Path) -> FsResult<Facts>;

    /// Whether this user may make names in the directory `path`, as far as the system tells without trying.
    fn may_write(&self, path: &Path) -> bool;

    /// Makes a directory with these modes, as a ring with RING_MODE does.
    ///
    /// # Errors
    /// What the system says.
    fn make_dir_with(&self, path: &Path, modes: Modes) -> FsResult<()>;

    /// Adds 1 to the decimal number in the file at `path`, under flock.
    ///
    /// # Errors
    /// What the system says.
    fn add_under_lock(&self, path: &Path) -> FsResult<()>;

    /// Calls `on_change` when names come or go in `dir`, for as long as what it returns lives (inotify).
    ///
    /// # Errors
    /// In words.
    fn watch(&self, dir: &Path, on_change: Box<dyn Fn() + Send>) -> Result<Box<dyn Any>, String>;

    /// Writes `bytes` over the beginning of an existing file, in place. (The ring never does.)
    ///
    /// # Errors
    /// What the system says.
    fn overwrite(&self, path: &Path, bytes: &[u8]) -> FsResult<()>;
}

/// [`Extra`] by the system's own calls.
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
        let quiet = Once::new(); // a lost setgid bit is for the caller to find
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

/// A filesystem to be measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As the ring uses it.
    pub fs: Arc<dyn Fs>,
    /// And besides.
    pub extra: Arc<dyn Extra>,
}

impl Subject {
    /// The filesystem of this machine.
    pub fn system() -> Subject {
        Subject { fs: Arc::new(Posix), extra: Arc::new(System) }
    }

    /// Makes the scratch directory `dir`. What a process that was killed left beside it a day ago is removed.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_scratch(&self, dir: &Path) -> FsResult<()> {
        self.fs.make_dir(dir)?;
        self.sweep(dir.parent().unwrap_or(dir), dir);
        Ok(())
    }

    /// Removes what is a day older than `new`: both times are the filesystem's own.
    fn sweep(&self, place: &Path, new: &Path) {
        let (Ok(new), Ok(names)) = (self.extra.facts(new), self.fs.list(place)) else { return };
        let begun = Instant::now();
        for name in names.iter().filter(|name| is_scratch(name)) {
            if begun.elapsed() > SWEEP {
                return; // the rest, another time
            }
            let path = place.join(name);
            let age = self.extra.facts(&path).ok().and_then(|old| new.modified.duration_since(old.modified).ok());
            if age.is_some_and(|age| age > OLD) {
                let _ = remove_tree(&*self.fs, &path); // another user's stays
            }
        }
    }
}

/// Whether a name is one that [`scratch_name`] gives, or that of a meeting.
fn is_scratch(name: &str) -> bool {
    let is_number = |rest: &str| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(SCRATCH).is_some_and(|rest| rest == "peers" || is_number(rest))
}

/// A name for a scratch directory in `place`.
pub fn scratch_name(place: &Path) -> PathBuf {
    place.join(format!("{SCRATCH}{:08x}", random_u32()))
}

/// Removes a scratch directory and what is in it. What is gone already is no error.
///
/// # Errors
/// What the system says.
pub fn remove_tree(fs: &dyn Fs, dir: &Path) -> FsResult<()> {
    remove_tree_while(fs, dir, &|| ())
}

/// The same; `each` is called before each name is removed.
///
/// # Errors
/// What the system says.
pub fn remove_tree_while(fs: &dyn Fs, dir: &Path, each: &dyn Fn()) -> FsResult<()> {
    // A link that somebody put there is removed, and never followed.
    match fs.identity(dir) {
        Ok(found) if !found.is_dir => return fs.forget_file(dir),
        Err(error) if error.is_gone() => return Ok(()),
        _ => {}
    }
    // What cannot be removed may be a leftover of an open file, which goes by itself when that is closed: once more, then.
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
        // Most names are files: each is removed by one call, without a look before.
        if fs.forget_file(&path).is_err() && depth > 0 && fs.identity(&path).is_ok_and(|found| found.is_dir) {
            let _ = remove_below(fs, &path, depth - 1, each);
        }
    }
    match fs.remove_dir(dir) {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}
