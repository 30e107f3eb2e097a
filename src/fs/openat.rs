//! One name in one directory, and the system's calls on it.

use super::{FileReader, FileWriter, FsError, FsResult, Identity, MapMode, map};
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What files and directories are made with where nothing else is said; the umask takes away from it.
const FILE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY: Mode = Mode::from_raw_mode(0o777);

/// The bit by which names in a directory belong to the directory's group.
const SETGID: u32 = 0o2000;
/// What to do where a directory cannot keep it.
pub const SETGID_CURE: &str = "add this user to that group, or give the directory above the ring a group that all \
     its users are in (`chgrp GROUP DIR; chmod g+s DIR`), or set a default ACL there (`setfacl -d -m g:GROUP:rwx DIR`)";

/// What failed before a directory could be synced.
pub(crate) const OPEN_DIR: &str = "open directory";

/// Modes of what is made, whatever the umask says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes(u32);

impl Modes {
    /// Files get the bits for reading and writing of `mode`. Directories get all of it, and may be entered by whoever may
    /// read.
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

/// A name, in an open directory or as a path. A link under this name is never followed, but for a path that is listed or
/// synced.
pub struct DirEntryAt<'p> {
    /// None: `name` is a path.
    dir: Option<OwnedFd>,
    name: &'p Path,
    /// For messages.
    path: &'p Path,
    modes: Option<(Modes, &'p Once)>,
}

impl<'p> DirEntryAt<'p> {
    /// `path`, looked up as ever.
    pub fn plain(path: &'p Path) -> DirEntryAt<'p> {
        DirEntryAt { dir: None, name: path, path, modes: None }
    }

    /// `name` in `dir`, which is at `path`.
    pub fn within(dir: OwnedFd, name: &'p Path, path: &'p Path) -> DirEntryAt<'p> {
        DirEntryAt { dir: Some(dir), name, path, modes: None }
    }

    /// Gives what is made here these modes. `warned` is done once the setgid bit was found missing.
    pub fn with_modes(self, modes: Option<Modes>, warned: &'p Once) -> DirEntryAt<'p> {
        DirEntryAt { modes: modes.map(|modes| (modes, warned)), ..self }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, AsFd::as_fd)
    }

    fn on<T>(&self, op: &'static str, result: Result<T, Errno>) -> FsResult<T> {
        result.map_err(|errno| FsError::new(op, self.path, errno.into()))
    }

    fn open_with(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(self.dir(), self.name, flags | OFlags::CLOEXEC, mode)
    }

    /// A directory is read by whoever opened it: where the ring is fenced in, it is no link.
    fn open_dir(&self) -> Result<OwnedFd, Errno> {
        let fenced = if self.dir.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        self.open_with(OFlags::RDONLY | OFlags::DIRECTORY | fenced, Mode::empty())
    }

    pub fn create_new(&self) -> FsResult<Box<dyn FileWriter>> {
        self.create_with(OFlags::EXCL)
    }

    pub fn create_unique(&self) -> FsResult<Box<dyn FileWriter>> {
        self.create_with(OFlags::NOFOLLOW | OFlags::NONBLOCK)
    }

    fn create_with(&self, how: OFlags) -> FsResult<Box<dyn FileWriter>> {
        let file = self.on("create", self.open_with(OFlags::WRONLY | OFlags::CREATE | how, FILE))?;
        if let Some((modes, _)) = self.modes {
            let set = rustix::fs::fchmod(&file, modes.of_files());
            self.on("set the mode of", set).inspect_err(|_| drop(self.remove_file()))?;
        }
        let file = file.into();
        Ok(Box::new(Writer { file, path: self.path.to_owned() }))
    }

    pub fn open(&self) -> FsResult<Box<dyn FileReader>> {
        Ok(Box::new(Reader { file: self.open_file()?, path: self.path.to_owned() }))
    }

    pub fn open_file(&self) -> FsResult<File> {
        // Neither a link that leads out of the ring nor a FIFO that would make us wait for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(self.on("open", self.open_with(flags, Mode::empty()))?);
        let meta = file.metadata().map_err(|source| FsError::new("look at", self.path, source))?;
        if !meta.is_file() {
            return Err(FsError::new("open", self.path, io::Error::other("it is not a plain file")));
        }
        Ok(file)
    }

    pub fn list(&self) -> FsResult<Vec<String>> {
        let entries = self.on("list", self.open_dir().and_then(Dir::new))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = self.on("list", entry)?;
            match entry.file_name().to_str() {
                Ok(name) if !matches!(name, "." | "..") => names.push(name.to_owned()),
                _ => {}
            }
        }
        Ok(names)
    }

    pub fn refresh(&self) -> FsResult<()> {
        self.on(OPEN_DIR, self.open_dir()).map(drop)
    }

    pub fn make_dir(&self) -> FsResult<()> {
        let made = rustix::fs::mkdirat(self.dir(), self.name, DIRECTORY);
        match (self.modes, made) {
            (Some((modes, warned)), Ok(())) => {
                self.on("set the mode of", self.set_mode(modes, warned)).inspect_err(|_| drop(self.remove_dir()))
            }
            // Ours may lack its mode: whoever made it died, or was told of it twice. One below the ring, that is: the
            // ring's own directory may have been made by a person.
            (Some((modes, warned)), Err(Errno::EXIST)) if self.dir.is_some() => {
                let _ = self.set_mode(modes, warned);
                self.on("make directory", made)
            }
            _ => self.on("make directory", made),
        }
    }

    /// Gives a directory of ours its mode, by the open directory: nobody puts a link in its place meanwhile. What it
    /// inherited of the group stays. chmod(2) drops the setgid bit without an error where this user
    /// is not in the directory's group; that is a warning, the first time.
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
                     bit. What is made in it belongs to its maker's own group, not to {group}. \
                     What to do: {SETGID_CURE}"
                );
            });
        }
        Ok(())
    }

    pub fn link(&self, to: &DirEntryAt<'_>) -> FsResult<()> {
        to.on("link", rustix::fs::linkat(self.dir(), self.name, to.dir(), to.name, AtFlags::empty()))
    }

    pub fn rename(&self, to: &DirEntryAt<'_>) -> FsResult<()> {
        to.on("rename", rustix::fs::renameat(self.dir(), self.name, to.dir(), to.name))
    }

    pub fn remove_file(&self) -> FsResult<()> {
        self.on("remove", rustix::fs::unlinkat(self.dir(), self.name, AtFlags::empty()))
    }

    pub fn remove_dir(&self) -> FsResult<()> {
        self.on("remove directory", rustix::fs::unlinkat(self.dir(), self.name, AtFlags::REMOVEDIR))
    }

    pub fn identity(&self) -> FsResult<Identity> {
        let stat = self.on("look at", rustix::fs::statat(self.dir(), self.name, AtFlags::SYMLINK_NOFOLLOW))?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(Identity { inode: (stat.st_dev, stat.st_ino), len: stat.st_size as u64, is_dir })
    }

    pub fn changed(&self) -> FsResult<SystemTime> {
        let look = rustix::fs::statat(self.dir(), self.name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = self.on("look at", look)?;
        let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
        Ok(UNIX_EPOCH + Duration::new(seconds, stat.st_ctime_nsec as u32))
    }

    pub fn sync_dir(&self) -> FsResult<()> {
        // Told apart: an error of opening is none of the disk's.
        let dir = self.on(OPEN_DIR, self.open_dir())?;
        // An xfs that was shut down (its disk failed, its power was cut) answers "synced" all the same, as of Linux 6.18:
        // what it did not write down it has forgotten. Asked for anything else, it tells.
        let synced = rustix::fs::fsync(&dir).and_then(|()| rustix::fs::fstat(&dir));
        self.on("sync directory", synced).map(drop)
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
        on("cut", &self.path, self.file.set_len(len))?;
        on("seek", &self.path, self.file.seek(SeekFrom::Start(len)).map(|_| ()))
    }

    fn sync(&mut self) -> FsResult<()> {
        on("sync", &self.path, self.file.sync_data())
    }

    fn close(self: Box<Self>) -> FsResult<()> {
        on("close", &self.path, nix::unistd::close(self.file).map_err(io::Error::from))
    }
}

struct Reader {
    file: File,
    path: PathBuf,
}

impl FileReader for Reader {
    fn size(&self) -> FsResult<u64> {
        on("look at", &self.path, self.file.metadata().map(|meta| meta.len()))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        on("read", &self.path, self.file.read_exact_at(buffer, offset))
    }

    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>> {
        on("map", &self.path, map::map_sealed(&self.file, &self.path, range, mode)).map(Some)
    }
}
