//! A real filesystem, through the system's own calls.

use super::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Space, map};
use bytes::Bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The filesystem of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix;

fn on<T>(op: &'static str, path: &Path, result: io::Result<T>) -> FsResult<T> {
    result.map_err(|source| FsError::new(op, path, source))
}

/// Magic numbers of filesystems that one machine has to itself (`linux/magic.h`).
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
/// And of some that many machines share.
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
        let file = on("create", path, OpenOptions::new().write(true).create_new(true).open(path))?;
        Ok(Box::new(Writer { file, path: path.to_owned() }))
    }

    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        // Neither a link that leads out of the ring nor a FIFO that would make us wait for ever.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = on("open", path, OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path))?;
        if !on("look at", path, file.metadata())?.is_file() {
            return Err(FsError::new("open", path, io::Error::other("it is not a plain file")));
        }
        Ok(Box::new(Reader { file, path: path.to_owned() }))
    }

    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        let entries = on("list", dir, fs::read_dir(dir))?;
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = on("list", dir, entry)?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn make_dir(&self, path: &Path) -> FsResult<()> {
        on("make directory", path, fs::create_dir(path))
    }

    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        on("link", to, fs::hard_link(from, to))
    }

    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        on("rename", to, fs::rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> FsResult<()> {
        on("remove", path, fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        on("remove directory", path, fs::remove_dir(path))
    }

    fn identity(&self, path: &Path) -> FsResult<Identity> {
        let meta = on("look at", path, fs::symlink_metadata(path))?;
        Ok(Identity { inode: (meta.dev(), meta.ino()), len: meta.len(), is_dir: meta.is_dir() })
    }

    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        on("sync directory", path, File::open(path).and_then(|dir| dir.sync_all()))
    }

    fn space(&self, path: &Path) -> FsResult<Space> {
        let bytes = on("ask for space", path, fs2::available_space(path))?;
        let stat = on("ask for space", path, rustix::fs::statvfs(path).map_err(io::Error::from))?;
        Ok(Space { bytes, inodes: (stat.f_files > 0).then_some(stat.f_favail) })
    }

    fn kind(&self, path: &Path) -> FsResult<Kind> {
        let stat = on("ask for the kind of filesystem", path, rustix::fs::statfs(path).map_err(io::Error::from))?;
        let magic = stat.f_type as u64 & 0xffff_ffff;
        let named = |table: &[(u64, &'static str)]| table.iter().find(|row| row.0 == magic).map(|row| row.1);
        Ok(match named(&LOCAL) {
            Some(name) => Kind { name, local: true },
            None => Kind { name: named(&SHARED).unwrap_or("unknown"), local: false },
        })
    }
}

struct Writer {
    file: File,
    path: PathBuf,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl FileWriter for Writer {
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
