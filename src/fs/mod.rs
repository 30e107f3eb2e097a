//! The filesystem operations that a ring needs.
//!
//! [`Fs`] is the contract; [`Posix`] implements it on a real filesystem. Tests wrap it to inject
//! faults. The operations are few on purpose: processes coordinate by the existence of names
//! (create, link, mkdir and rename have one winner on every filesystem that was measured), never by
//! locks or by file contents that change.

mod absence;
pub mod atomic_publish;
mod confined;
pub mod map;
pub mod openat;
pub mod poll;
mod posix;
pub mod sigbus;

pub use crate::error::FsError;
pub use absence::surely;
pub use confined::Confined;
pub use openat::{Modes, SETGID_CURE};
pub use posix::Posix;

use bytes::Bytes;
use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// The result type of filesystem calls.
pub type FsResult<T> = std::result::Result<T, FsError>;

/// The identity of a file, and its size as this client sees it, which may be outdated on a network
/// filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device and inode number.
    pub inode: (u64, u64),
    /// Size in bytes.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Free space on a filesystem for this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes; `None` if the filesystem does not count them.
    pub inodes: Option<u64>,
}

/// The kind of filesystem that holds a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name as `mount` reports it, or `unknown`.
    pub name: &'static str,
    /// Whether only this machine uses it: mapping is safe, inotify reports all changes, and every
    /// process sees the changes of the others at once.
    pub local: bool,
}

/// How to map a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapMode {
    /// Read-only, shared between all processes that map the file.
    Shared,
    /// Copy on write: writes change only this map, not the file or other maps.
    Private,
}

/// A file that only this process writes.
pub trait FileWriter: Write + Send {
    /// Overwrites bytes that were written before, from byte `at` on. Later writes continue at the
    /// end.
    ///
    /// # Errors
    /// System errors; some of the bytes may have been overwritten.
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()>;

    /// Truncates the file to `len` bytes; later writes continue there.
    ///
    /// # Errors
    /// System errors.
    fn cut(&mut self, len: u64) -> FsResult<()>;

    /// Syncs everything written to the disk or to the file server.
    ///
    /// # Errors
    /// System errors. After an error the contents of the file are unknown: the caller has to
    /// discard the file, and never sync it again.
    fn sync(&mut self) -> FsResult<()>;

    /// Closes the file. On a network filesystem, only this may report a failed write.
    ///
    /// # Errors
    /// System errors.
    fn close(self: Box<Self>) -> FsResult<()>;
}

/// Block size of [`Fs::read_blocks`] in bytes.
const BLOCK: u64 = 256 << 10;

/// A file that is open for reading.
pub trait FileReader: Send + Sync {
    /// Returns its size in bytes, as this client sees it.
    ///
    /// # Errors
    /// System errors.
    fn size(&self) -> FsResult<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// System errors; the end of the file before the buffer is full.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()>;

    /// Maps bytes of a file that never changes. Returns `None` if this filesystem does not support
    /// maps.
    ///
    /// # Errors
    /// System errors.
    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>>;
}

/// Returns `fs` confined to the ring in `root`; see [`Fs::fenced`].
pub fn within(fs: Arc<dyn Fs>, root: &Path, modes: Option<Modes>) -> Arc<dyn Fs> {
    fs.fenced(root, modes).unwrap_or(fs)
}

fn presence(looked: FsResult<Identity>) -> FsResult<bool> {
    match looked {
        Ok(_) => Ok(true),
        Err(error) if error.is_gone() => Ok(false),
        Err(error) => Err(error),
    }
}

/// A filesystem.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Creates a file that does not exist. If several processes try, one wins, and the others get
    /// an error for which [`FsError::is_taken`] returns true.
    ///
    /// # Errors
    /// System errors.
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>>;

    /// Creates a file whose name has at least 128 random bits that the caller drew for this call.
    /// No other file has that name, so the create need not be exclusive. On NFS, an exclusive
    /// create costs one more request, in which the client sets the times of the file.
    ///
    /// # Errors
    /// System errors.
    fn create_unique(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.create_new(path)
    }

    /// Opens a file. Fails if `path` is a link.
    ///
    /// # Errors
    /// System errors.
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>>;

    /// Returns the names in a directory, unsorted. Leaves out names that are not UTF-8, which
    /// ringreel never creates.
    ///
    /// # Errors
    /// System errors.
    fn list(&self, dir: &Path) -> FsResult<Vec<String>>;

    /// Creates one directory. If it exists, [`FsError::is_taken`] of the error returns true.
    ///
    /// # Errors
    /// System errors.
    fn make_dir(&self, path: &Path) -> FsResult<()>;

    /// Creates a second name of a file, which must not exist. If the reply is lost, this may fail
    /// although it had its effect.
    ///
    /// # Errors
    /// System errors.
    fn link(&self, from: &Path, to: &Path) -> FsResult<()>;

    /// Renames a file or a directory. If the reply is lost, this may fail although it had its
    /// effect.
    ///
    /// # Errors
    /// System errors.
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()>;

    /// Removes the name of a file.
    ///
    /// # Errors
    /// System errors.
    fn remove_file(&self, path: &Path) -> FsResult<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// System errors.
    fn remove_dir(&self, path: &Path) -> FsResult<()>;

    /// Returns the identity of the file at `path`. Does not follow links.
    ///
    /// # Errors
    /// System errors.
    fn identity(&self, path: &Path) -> FsResult<Identity>;

    /// Returns when the file or its name last changed (`st_ctime`), by the filesystem's clock.
    ///
    /// # Errors
    /// System errors; `Unsupported` if this filesystem has no such time.
    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        let source = std::io::ErrorKind::Unsupported.into();
        Err(FsError::new("get the change time of", path, source))
    }

    /// Opens a directory for reading and closes it. If the server reports that the directory
    /// changed, this client then drops its cached failed lookups of names in it: see [`surely`].
    ///
    /// # Errors
    /// System errors.
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.list(dir).map(drop)
    }

    /// Syncs the names in a directory to the disk.
    ///
    /// # Errors
    /// System errors.
    fn sync_dir(&self, path: &Path) -> FsResult<()>;

    /// Returns the free space of the filesystem that holds `path`.
    ///
    /// # Errors
    /// System errors.
    fn space(&self, path: &Path) -> FsResult<Space>;

    /// Returns the kind of filesystem that holds `path`.
    ///
    /// # Errors
    /// System errors.
    fn kind(&self, path: &Path) -> FsResult<Kind>;

    /// Returns this filesystem confined to the ring in `root`: it follows no link below `root`, and
    /// new files and directories get `modes` (with `None`, the umask decides). Returns `None` if
    /// this filesystem needs no confinement.
    fn fenced(&self, _root: &Path, _modes: Option<Modes>) -> Option<Arc<dyn Fs>> {
        None
    }

    /// Reads a small file of at most `limit` bytes. A missing file is looked up [`surely`].
    ///
    /// # Errors
    /// System errors; a file that is larger than `limit`.
    fn read(&self, path: &Path, limit: u64) -> FsResult<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_blocks(path, limit, &mut |block| bytes.extend_from_slice(block))?;
        Ok(bytes)
    }

    /// Reads a file like [`Fs::read`], but passes one block at a time to `take`, so that the file
    /// need not be in memory as a whole.
    ///
    /// # Errors
    /// As [`Fs::read`]; `take` may have been called for some blocks.
    fn read_blocks(&self, path: &Path, limit: u64, take: &mut dyn FnMut(&[u8])) -> FsResult<()> {
        let file = surely(self, path, || self.open(path))?;
        let len = file.size()?;
        if len > limit {
            let why = std::io::Error::other(format!("it has {len} bytes, more than the limit of {limit}"));
            return Err(FsError::new("read", path, why));
        }
        let mut block = vec![0; len.min(BLOCK) as usize];
        let mut at = 0;
        while at < len {
            block.truncate((len - at).min(BLOCK) as usize);
            file.read_exact_at(&mut block, at)?;
            take(&block);
            at += block.len() as u64;
        }
        Ok(())
    }

    /// Creates a directory, unless it exists.
    ///
    /// # Errors
    /// System errors.
    fn ensure_dir(&self, path: &Path) -> FsResult<()> {
        match self.make_dir(path) {
            Err(error) if error.is_taken() => Ok(()),
            other => other,
        }
    }

    /// Returns whether `path` exists. Before it returns false, it opens the parent directory and
    /// repeats the lookup, as [`surely`] does.
    ///
    /// # Errors
    /// System errors, except that the name is missing.
    fn exists(&self, path: &Path) -> FsResult<bool> {
        presence(surely(self, path, || self.identity(path)))
    }

    /// Returns whether one lookup finds `path`. True is certain; false may be outdated by a minute.
    /// For polls in which a false "not found" only causes a delay.
    ///
    /// # Errors
    /// System errors, except that the name is missing.
    fn seen(&self, path: &Path) -> FsResult<bool> {
        presence(self.identity(path))
    }

    /// Removes the name of a file, unless it is missing.
    ///
    /// # Errors
    /// System errors, except that the name is missing.
    fn forget_file(&self, path: &Path) -> FsResult<()> {
        match self.remove_file(path) {
            Err(error) if error.is_gone() => Ok(()),
            other => other,
        }
    }
}
