//! A real filesystem, accessed by system calls.

use super::confined::Confined;
use super::openat::{DirEntryAt, Modes, OPEN_DIR, Reader};
use super::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, Space};
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The filesystem of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix;

/// Magic numbers of filesystems that only one machine uses (`linux/magic.h`).
const LOCAL: [(u64, &str); 10] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x7371_7368, "squashfs"),
];
/// Magic numbers of filesystems that many machines share.
const SHARED: [(u64, &str); 9] = [
    (0x6969, "nfs"),
    (0x0bd0_0bd0, "lustre"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x4750_4653, "gpfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x1983_0326, "beegfs"),
];

/// Resolves paths: in the two real filesystems, only this differs.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// Returns the entry at `path`, for the call `op`.
    fn at<'p>(&'p self, op: &'static str, path: &'p Path) -> FsResult<DirEntryAt<'p>>;

    /// See [`Fs::fenced`].
    fn fenced_in(&self, _root: &Path, _modes: Option<Modes>) -> Option<Arc<dyn Fs>> {
        None
    }

    /// Makes the call `op` on the entry at `path`.
    fn call<T>(
        &self,
        op: &'static str,
        path: &Path,
        call: impl FnOnce(&DirEntryAt<'_>) -> Result<T, Errno>,
    ) -> FsResult<T> {
        let at = self.at(op, path)?;
        at.on(op, call(&at))
    }
}

impl Resolve for Posix {
    fn at<'p>(&'p self, _op: &'static str, path: &'p Path) -> FsResult<DirEntryAt<'p>> {
        Ok(DirEntryAt::plain(path))
    }

    fn fenced_in(&self, root: &Path, modes: Option<Modes>) -> Option<Arc<dyn Fs>> {
        Some(Arc::new(Confined::new(root, modes)))
    }
}

impl<R: Resolve> Fs for R {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.at("create", path)?.create(OFlags::EXCL)
    }

    fn create_unique(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.at("create", path)?.create(OFlags::NOFOLLOW | OFlags::NONBLOCK)
    }

    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        Ok(Box::new(Reader { file: self.at("open", path)?.open()?, path: path.to_owned() }))
    }

    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        let at = self.at("list", dir)?;
        let mut names = Vec::new();
        for entry in at.on("list", at.open_dir().and_then(Dir::new))? {
            let entry = at.on("list", entry)?;
            match entry.file_name().to_str() {
                Ok(name) if !matches!(name, "." | "..") => names.push(name.to_owned()),
                _ => {}
            }
        }
        Ok(names)
    }

    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.call(OPEN_DIR, dir, |at| at.open_dir()).map(drop)
    }

    fn make_dir(&self, path: &Path) -> FsResult<()> {
        self.at("create directory", path)?.make_dir()
    }

    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        let from = self.at("link", from)?;
        self.call("link", to, |to| from.link(to))
    }

    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        let from = self.at("rename", from)?;
        self.call("rename", to, |to| from.rename(to))
    }

    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.call("remove", path, |at| at.unlink(AtFlags::empty()))
    }

    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.call("remove directory", path, |at| at.unlink(AtFlags::REMOVEDIR))
    }

    fn identity(&self, path: &Path) -> FsResult<Identity> {
        let stat = self.call("stat", path, |at| at.stat())?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(Identity { inode: (stat.st_dev, stat.st_ino), len: stat.st_size as u64, is_dir })
    }

    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        let stat = self.call("stat", path, |at| at.stat())?;
        let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
        Ok(UNIX_EPOCH + Duration::new(seconds, stat.st_ctime_nsec as u32))
    }

    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        // Opening and syncing are separate operations, because an error of opening is not a disk
        // error.
        let at = self.at(OPEN_DIR, path)?;
        let dir = at.on(OPEN_DIR, at.open_dir())?;
        // After a shutdown (its disk failed, or its power was cut), XFS still reports success for
        // fsync, as of Linux 6.18, although it lost the names that were not yet written. Any other
        // call on the directory reports the error.
        let synced = rustix::fs::fsync(&dir).and_then(|()| rustix::fs::fstat(&dir));
        at.on("sync directory", synced).map(drop)
    }

    fn space(&self, path: &Path) -> FsResult<Space> {
        // One call for both values, because a generator checks them before each sample.
        let stat =
            rustix::fs::statvfs(path).map_err(|errno| FsError::new("get the free space of", path, errno.into()))?;
        let bytes = stat.f_frsize.saturating_mul(stat.f_bavail);
        Ok(Space { bytes, inodes: (stat.f_files > 0).then_some(stat.f_favail) })
    }

    fn kind(&self, path: &Path) -> FsResult<Kind> {
        let no = |errno: rustix::io::Errno| FsError::new("get the filesystem type of", path, errno.into());
        let magic = rustix::fs::statfs(path).map_err(no)?.f_type as u64 & 0xffff_ffff;
        let named = |table: &[(u64, &'static str)]| table.iter().find(|row| row.0 == magic).map(|row| row.1);
        Ok(match named(&LOCAL) {
            Some(name) => Kind { name, local: true },
            None => Kind { name: named(&SHARED).unwrap_or("unknown"), local: false },
        })
    }

    fn fenced(&self, root: &Path, modes: Option<Modes>) -> Option<Arc<dyn Fs>> {
        self.fenced_in(root, modes)
    }
}
