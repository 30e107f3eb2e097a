//! A real filesystem, accessed by system calls.

use super::confined::Confined;
use super::openat::{DirEntryAt, Modes};
use super::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, Space};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

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

impl Fs for Posix {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        DirEntryAt::plain(path).create_new()
    }

    fn create_unique(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        DirEntryAt::plain(path).create_unique()
    }

    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        DirEntryAt::plain(path).open()
    }

    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        DirEntryAt::plain(dir).list()
    }

    fn refresh(&self, dir: &Path) -> FsResult<()> {
        DirEntryAt::plain(dir).refresh()
    }

    fn make_dir(&self, path: &Path) -> FsResult<()> {
        DirEntryAt::plain(path).make_dir()
    }

    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        DirEntryAt::plain(from).link(&DirEntryAt::plain(to))
    }

    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        DirEntryAt::plain(from).rename(&DirEntryAt::plain(to))
    }

    fn remove_file(&self, path: &Path) -> FsResult<()> {
        DirEntryAt::plain(path).remove_file()
    }

    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        DirEntryAt::plain(path).remove_dir()
    }

    fn identity(&self, path: &Path) -> FsResult<Identity> {
        DirEntryAt::plain(path).identity()
    }

    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        DirEntryAt::plain(path).changed()
    }

    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        DirEntryAt::plain(path).sync_dir()
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
        Some(Arc::new(Confined::new(root, modes)))
    }
}
