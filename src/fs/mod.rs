//! What the ring asks of a filesystem, and nothing more.
//!
//! [`Fs`] is the contract; [`Posix`] keeps it on a real one. Tests put one in between that injects faults. The calls
//! are few on purpose: coordination is by the presence of names (create, link, mkdir and rename have one winner on
//! every filesystem that was measured), never by locks or by contents that change.

mod absence;
pub mod atomic_publish;
mod confined;
pub mod delays;
pub mod map;
pub mod openat;
pub mod poll;
mod posix;
pub mod sigbus;

pub use crate::error::FsError;
pub use absence::surely;
pub use confined::Confined;
pub use openat::Modes;
pub use openat::SETGID_CURE;
pub use posix::Posix;

use bytes::Bytes;
use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Short for what a filesystem call returns.
pub type FsResult<T> = std::result::Result<T, FsError>;

/// What tells two files apart, and how large one is in this client's view (which may be stale on a network).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Bytes.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Room on a filesystem, for this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes free.
    pub bytes: u64,
    /// Inodes free; none where the filesystem does not count them.
    pub inodes: Option<u64>,
}

/// Which kind of filesystem a directory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, as `mount` would say it, where known.
    pub name: &'static str,
    /// Known to be used by this machine alone: mapping is safe, inotify fires, what one process does all others see.
    pub local: bool,
}

/// How to map a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapMode {
    /// Read-only, shared with everybody who maps the file.
    Shared,
    /// Copy on write: whoever writes into it changes his own copy, and nobody else's.
    Private,
}

/// A file that is being written, by this process alone.
pub trait FileWriter: Write + Send {
    /// Puts `bytes` in place of as many that were written before, at byte `at`. Writing goes on at the end.
    ///
    /// # Errors
    /// What the system says; some of them may have been put there.
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()>;

    /// Cuts the file back to `len` bytes, after which writing goes on there.
    ///
    /// # Errors
    /// What the system says.
    fn cut(&mut self, len: u64) -> FsResult<()>;

    /// Brings everything written to the disk (or to the server).
    ///
    /// # Errors
    /// What the system says. After that the file's contents are unknown: throw it away, never sync it again.
    fn sync(&mut self) -> FsResult<()>;

    /// Closes the file. On a network filesystem this is where a failed write may show.
    ///
    /// # Errors
    /// What the system says.
    fn close(self: Box<Self>) -> FsResult<()>;
}

/// Most bytes that [`Fs::read_blocks`] reads at once.
const BLOCK: u64 = 256 << 10;

/// A file that is being read.
pub trait FileReader: Send + Sync {
    /// Bytes in it, in this client's view.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> FsResult<u64>;

    /// Fills `buffer` from byte `offset` on.
    ///
    /// # Errors
    /// What the system says; an end of the file before the buffer is full.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()>;

    /// Maps bytes of a file that will never change. None where this filesystem cannot map.
    ///
    /// # Errors
    /// What the system says.
    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>>;
}

/// `fs` for the ring in `root`: see [`Fs::fenced`].
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
    /// Creates a file that does not exist. Of several who try, one wins; the others get [`FsError::is_taken`].
    ///
    /// # Errors
    /// What the system says.
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>>;

    /// Creates a file whose name holds at least 128 random bits that the caller drew for this call.
    /// No other file has that name, so the create need not be exclusive. On NFS, an exclusive one
    /// costs a request more, by which the client sets the file's times.
    ///
    /// # Errors
    /// What the system says.
    fn create_unique(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.create_new(path)
    }

    /// Opens a file. A link in place of a file is refused.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>>;

    /// The names in a directory, unsorted; names that are not UTF-8 are left out (no name of ours is such).
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, dir: &Path) -> FsResult<Vec<String>>;

    /// Makes one directory. [`FsError::is_taken`] when it is there.
    ///
    /// # Errors
    /// What the system says.
    fn make_dir(&self, path: &Path) -> FsResult<()>;

    /// Gives a file a second name, which must not exist. May fail after it happened, when the reply is lost.
    ///
    /// # Errors
    /// What the system says.
    fn link(&self, from: &Path, to: &Path) -> FsResult<()>;

    /// Moves a file or a directory. May fail after it happened, when the reply is lost.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&self, path: &Path) -> FsResult<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the system says.
    fn remove_dir(&self, path: &Path) -> FsResult<()>;

    /// What is at `path`; links are not followed.
    ///
    /// # Errors
    /// What the system says.
    fn identity(&self, path: &Path) -> FsResult<Identity>;

    /// Returns when the file, or its name, last changed (`st_ctime`), by the filesystem's clock.
    ///
    /// # Errors
    /// What the system says; `Unsupported` where this filesystem keeps no such time.
    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        let source = std::io::ErrorKind::Unsupported.into();
        Err(FsError::new("ask for the time of", path, source))
    }

    /// Opens a directory for reading and closes it, so that this client forgets which of its names
    /// were absent, if the server says that the directory changed: see [`surely`].
    ///
    /// # Errors
    /// What the system says.
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.list(dir).map(drop)
    }

    /// Brings a directory's names to the disk.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, path: &Path) -> FsResult<()>;

    /// Room left where `path` lies.
    ///
    /// # Errors
    /// What the system says.
    fn space(&self, path: &Path) -> FsResult<Space>;

    /// Which kind of filesystem `path` lies on.
    ///
    /// # Errors
    /// What the system says.
    fn kind(&self, path: &Path) -> FsResult<Kind>;

    /// The same filesystem for the ring in `root`, on which no link below `root` is followed, and what is made has these
    /// modes (none: what the umask leaves). None where that is left to this one.
    fn fenced(&self, _root: &Path, _modes: Option<Modes>) -> Option<Arc<dyn Fs>> {
        None
    }

    /// A small file, whole: at most `limit` bytes. An absent file is looked for [`surely`].
    ///
    /// # Errors
    /// What the system says; a file that is larger.
    fn read(&self, path: &Path, limit: u64) -> FsResult<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_blocks(path, limit, &mut |block| bytes.extend_from_slice(block))?;
        Ok(bytes)
    }

    /// Reads the file as [`Fs::read`] does, and gives `take` a block at a time, so that nobody needs
    /// memory for all of it.
    ///
    /// # Errors
    /// As [`Fs::read`]; `take` may have been given some blocks.
    fn read_blocks(&self, path: &Path, limit: u64, take: &mut dyn FnMut(&[u8])) -> FsResult<()> {
        let file = surely(self, path, || self.open(path))?;
        let len = file.size()?;
        if len > limit {
            let why = std::io::Error::other(format!("it has {len} bytes, {limit} are allowed"));
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

    /// Makes a directory, which may be there already.
    ///
    /// # Errors
    /// What the system says.
    fn ensure_dir(&self, path: &Path) -> FsResult<()> {
        match self.make_dir(path) {
            Err(error) if error.is_taken() => Ok(()),
            other => other,
        }
    }

    /// Returns whether `path` exists. Before it answers no, it opens the parent directory and looks
    /// again, as [`surely`] does.
    ///
    /// # Errors
    /// What the system says, except that the name is absent.
    fn exists(&self, path: &Path) -> FsResult<bool> {
        presence(surely(self, path, || self.identity(path)))
    }

    /// Returns whether one lookup finds `path`. True is certain; false may be out of date by a
    /// minute. For polls in which a wrong false only delays what the caller does.
    ///
    /// # Errors
    /// What the system says, except that the name is absent.
    fn seen(&self, path: &Path) -> FsResult<bool> {
        presence(self.identity(path))
    }

    /// Removes a file's name, which may be gone already.
    ///
    /// # Errors
    /// What the system says, but for a name that is gone.
    fn forget_file(&self, path: &Path) -> FsResult<()> {
        match self.remove_file(path) {
            Err(error) if error.is_gone() => Ok(()),
            other => other,
        }
    }
}
