//! A name in an open directory, and the system calls on it.

use super::{FileReader, FileWriter, FsError, FsResult, MapMode, map};
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Default modes of new files and directories; the umask clears bits of them.
const FILE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY: Mode = Mode::from_raw_mode(0o777);

/// The bit that makes new entries of a directory belong to the directory's group.
const SETGID: u32 = 0o2000;
/// What a user can do if a directory cannot keep the bit.
pub const SETGID_CURE: &str = "add this user to that group, or give the directory above the ring a group that all \
     its users are in (`chgrp GROUP DIR; chmod g+s DIR`), or set a default ACL there (`setfacl -d -m g:GROUP:rwx DIR`)";

/// The operation that fails if a directory could not be opened for a sync.
pub(crate) const OPEN_DIR: &str = "open directory";

/// The modes of new files and directories, independent of the umask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes(u32);

impl Modes {
    /// Creates the modes from RING_MODE. Files get the read and write bits of `mode`. Directories
    /// get all of its bits, and execute permission for every class that has read permission.
    pub fn new(mode: u32) -> Modes {
        Modes(mode)
    }

    fn of_files(self) -> Mode {
        Mode::from_raw_mode(self.0 & 0o666)
    }

    /// Returns whether directories get the setgid bit.
    pub fn has_setgid(self) -> bool {
        self.0 & SETGID != 0
    }

    fn of_directories(self) -> Mode {
        Mode::from_raw_mode(self.0 & 0o2777 | (self.0 & 0o444) >> 2)
    }
}

/// A name, relative to an open directory or as a path. Links are not followed, except for a path
/// that is listed or synced.
pub struct DirEntryAt<'p> {
    /// The directory; `None` if `name` is a path.
    dir: Option<OwnedFd>,
    name: &'p Path,
    /// The path, for messages.
    path: &'p Path,
    modes: Option<(Modes, &'p Once)>,
}

impl<'p> DirEntryAt<'p> {
    /// Creates an entry for `path`, which is resolved as usual.
    pub fn plain(path: &'p Path) -> DirEntryAt<'p> {
        DirEntryAt { dir: None, name: path, path, modes: None }
    }

    /// Creates an entry for `name` in `dir`; `path` is used in messages.
    pub fn within(dir: OwnedFd, name: &'p Path, path: &'p Path) -> DirEntryAt<'p> {
        DirEntryAt { dir: Some(dir), name, path, modes: None }
    }

    /// Sets the modes of new files and directories. `warned` completes once a directory did not
    /// keep the setgid bit.
    pub fn with_modes(self, modes: Option<Modes>, warned: &'p Once) -> DirEntryAt<'p> {
        DirEntryAt { modes: modes.map(|modes| (modes, warned)), ..self }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, AsFd::as_fd)
    }

    /// Returns `result` of the call `op` on this entry.
    pub fn on<T>(&self, op: &'static str, result: Result<T, Errno>) -> FsResult<T> {
        result.map_err(|errno| FsError::new(op, self.path, errno.into()))
    }

    fn open_with(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(self.dir(), self.name, flags | OFlags::CLOEXEC, mode)
    }

    /// Opens the directory for reading. In a confined ring, fails if it is a link.
    pub fn open_dir(&self) -> Result<OwnedFd, Errno> {
        let fenced = if self.dir.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        self.open_with(OFlags::RDONLY | OFlags::DIRECTORY | fenced, Mode::empty())
    }

    /// Creates a file for writing, with the flags `how` besides the usual ones.
    pub fn create(&self, how: OFlags) -> FsResult<Box<dyn FileWriter>> {
        let file = self.on("create", self.open_with(OFlags::WRONLY | OFlags::CREATE | how, FILE))?;
        if let Some((modes, _)) = self.modes {
            let set = rustix::fs::fchmod(&file, modes.of_files());
            self.on("set the mode of", set).inspect_err(|_| _ = self.unlink(AtFlags::empty()))?;
        }
        let file = file.into();
        Ok(Box::new(Writer { file, path: self.path.to_owned() }))
    }

    /// Opens a file for reading.
    pub fn open(&self) -> FsResult<File> {
        // Fails for a link, which may lead out of the ring, and does not block on a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(self.on("open", self.open_with(flags, Mode::empty()))?);
        let meta = file.metadata().map_err(|source| FsError::new("stat", self.path, source))?;
        if !meta.is_file() {
            return Err(FsError::new("open", self.path, io::Error::other("it is not a plain file")));
        }
        Ok(file)
    }

    pub fn make_dir(&self) -> FsResult<()> {
        let made = rustix::fs::mkdirat(self.dir(), self.name, DIRECTORY);
        match (self.modes, made) {
            (Some((modes, warned)), Ok(())) => {
                let set = self.on("set the mode of", self.set_mode(modes, warned));
                set.inspect_err(|_| _ = self.unlink(AtFlags::REMOVEDIR))
            }
            // A directory of this user may lack its mode because the process that created it died
            // before setting it, or because the reply was lost and the call was repeated. The
            // ring's own directory is left alone, because a person may have created it.
            (Some((modes, warned)), Err(Errno::EXIST)) if self.dir.is_some() => {
                let _ = self.set_mode(modes, warned);
                self.on("create directory", made)
            }
            _ => self.on("create directory", made),
        }
    }

    /// Sets the mode of a directory that this user owns, through the open directory, so that it
    /// cannot be replaced by a link meanwhile. A setgid bit that it has already stays. chmod(2)
    /// clears the setgid bit without an error if this user is not in the directory's group; this
    /// logs a warning the first time.
    fn set_mode(&self, modes: Modes, warned: &Once) -> Result<(), Errno> {
        let dir = self.open_with(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = rustix::fs::fstat(&dir)?;
        let wanted = modes.of_directories() | Mode::from_raw_mode(stat.st_mode & SETGID);
        let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if !is_ours || stat.st_mode & 0o2777 == wanted.as_raw_mode() {
            return Ok(());
        }
        rustix::fs::fchmod(&dir, wanted)?;
        let dropped = || wanted.as_raw_mode() & SETGID & !rustix::fs::fstat(&dir).map_or(SETGID, |stat| stat.st_mode);
        if dropped() != 0 {
            warned.call_once(|| {
                let (path, group) = (self.path.display(), stat.st_gid);
                tracing::warn!(
                    "{path} did not keep the setgid bit: this user is not in its group {group}, or the filesystem drops the \
                     bit. New files in it belong to their creator's own group, not to {group}. \
                     To fix it, {SETGID_CURE}"
                );
            });
        }
        Ok(())
    }

    pub fn link(&self, to: &DirEntryAt<'_>) -> Result<(), Errno> {
        rustix::fs::linkat(self.dir(), self.name, to.dir(), to.name, AtFlags::empty())
    }

    pub fn rename(&self, to: &DirEntryAt<'_>) -> Result<(), Errno> {
        rustix::fs::renameat(self.dir(), self.name, to.dir(), to.name)
    }

    /// Removes the name: of a file, or with `REMOVEDIR` of an empty directory.
    pub fn unlink(&self, flags: AtFlags) -> Result<(), Errno> {
        rustix::fs::unlinkat(self.dir(), self.name, flags)
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(self.dir(), self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn on<T>(op: &'static str, path: &Path, result: io::Result<T>) -> FsResult<T> {
    result.map_err(|source| FsError::new(op, path, source))
}

struct Writer {
    file: File,
    path: PathBuf,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.file.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl FileWriter for Writer {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()> {
        on("write", &self.path, self.file.write_all_at(bytes, at))
    }

    fn cut(&mut self, len: u64) -> FsResult<()> {
        on("truncate", &self.path, self.file.set_len(len))?;
        on("seek", &self.path, self.file.seek(SeekFrom::Start(len)).map(|_| ()))
    }

    fn sync(&mut self) -> FsResult<()> {
        on("sync", &self.path, self.file.sync_data())
    }

    #[allow(unsafe_code)]
    fn close(self: Box<Self>) -> FsResult<()> {
        // SAFETY: this was the only owner of the descriptor, and it is closed once.
        let closed = match unsafe { libc::close(self.file.into_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        on("close", &self.path, closed)
    }
}

/// A file that is open for reading, and its path for messages.
pub struct Reader {
    pub file: File,
    pub path: PathBuf,
}

impl FileReader for Reader {
    fn size(&self) -> FsResult<u64> {
        on("stat", &self.path, self.file.metadata().map(|meta| meta.len()))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        on("read", &self.path, self.file.read_exact_at(buffer, offset))
    }

    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>> {
        on("map", &self.path, map::map_sealed(&self.file, &self.path, range, mode)).map(Some)
    }
}
