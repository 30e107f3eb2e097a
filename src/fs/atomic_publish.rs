//! Publishing: a file appears under its name whole or not at all, and the first who publishes a name wins.

use super::openat::OPEN_DIR;
use super::{Fs, FsError, FsResult};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Syncs of directories, none of which is done any more once a disk has failed at one: it may have forgotten what it
/// could not write, and say of the next sync that all is well. (<https://wiki.postgresql.org/wiki/Fsync_Errors>. A file is
/// thrown away then and written again; the names in a directory that others have seen cannot be.)
#[derive(Clone, Debug, Default)]
pub struct DirSyncs {
    failed: Arc<OnceLock<PathBuf>>,
}

impl DirSyncs {
    /// Brings the names in `dir` to the disk.
    ///
    /// # Errors
    /// What the filesystem says. After an EIO (of any directory) this error again, which does not pass. Other errors say
    /// that there was no sync, and it may be tried again.
    pub fn sync(&self, fs: &dyn Fs, dir: &Path) -> FsResult<()> {
        const EIO: i32 = 5;
        if let Some(failed) = self.failed.get() {
            return Err(not_again(failed));
        }
        fs.sync_dir(dir).map_err(|error| match error.source.raw_os_error() {
            Some(EIO) if error.op != OPEN_DIR => not_again(self.failed.get_or_init(|| dir.to_owned())),
            _ => error,
        })
    }
}

fn not_again(dir: &Path) -> FsError {
    let why = "the disk failed (EIO): names in this directory may be gone after a power cut, and a second sync would not \
               tell. Nothing is built upon them here, and what is staged stays. Look at the kernel's log, check the disk, \
               then start again";
    FsError::new("sync directory", dir, io::Error::other(why))
}

/// Writes a file's contents.
pub type Write<'a> = &'a dyn Fn(&mut dyn io::Write) -> io::Result<()>;

/// Bytes that are written at once, where the contents are written in small pieces.
const WRITE_BUFFER: usize = 64 << 10;

/// Writes a new file, whole, under a name that nobody else looks at.
///
/// # Errors
/// What the filesystem says; the file is removed then.
pub fn write_new(fs: &dyn Fs, path: &Path, bytes: &[u8], sync: bool) -> FsResult<()> {
    write_new_by(fs, path, &|file| file.write_all(bytes), sync)
}

/// As [`write_new`], of contents that need not be in memory at once.
///
/// # Errors
/// As [`write_new`].
pub fn write_new_by(fs: &dyn Fs, path: &Path, write: Write<'_>, sync: bool) -> FsResult<()> {
    let mut file = fs.create_new(path)?;
    let mut buffered = io::BufWriter::with_capacity(WRITE_BUFFER, &mut file);
    let written = write(&mut buffered).and_then(|()| buffered.flush());
    drop(buffered.into_parts()); // what a failed write left in it is not tried again
    let written = written.map_err(|source| FsError::new("write", path, source));
    let written = written.and_then(|()| if sync { file.sync() } else { Ok(()) });
    let closed = file.close();
    let result = written.and(closed);
    if result.is_err() {
        let _ = fs.forget_file(path); // it is ours alone, and of no use
    }
    result
}

/// Publishes `bytes` as `target`, by way of `temp` (a name of ours alone, on the same filesystem). True: what stands
/// there now is ours. False: somebody else was first.
///
/// # Errors
/// What the filesystem says, when it did not happen.
pub fn publish(fs: &dyn Fs, temp: &Path, target: &Path, bytes: &[u8], sync: bool) -> FsResult<bool> {
    publish_by(fs, temp, target, &|file| file.write_all(bytes), sync)
}

/// As [`publish`], of contents that need not be in memory at once.
///
/// # Errors
/// As [`publish`].
pub fn publish_by(fs: &dyn Fs, temp: &Path, target: &Path, write: Write<'_>, sync: bool) -> FsResult<bool> {
    write_new_by(fs, temp, write, sync)?;
    let result = match fs.link(temp, target) {
        Ok(()) => Ok(true),
        // Either another one was first, or the reply to our own call was lost and it was sent again; and a call that
        // failed may have happened all the same.
        Err(error) => match same_file(fs, temp, target) {
            Ok(Some(ours)) => Ok(ours),
            // It is taken, says one call, and another one cannot tell by whom: not seen yet, or our temp is gone.
            _ if error.is_taken() => Ok(false),
            _ => Err(error),
        },
    };
    let _ = fs.forget_file(temp); // litter at worst
    result
}

/// Whether `a` and `b` are one file; none where `b` is not there.
///
/// # Errors
/// What the filesystem says.
pub fn same_file(fs: &dyn Fs, a: &Path, b: &Path) -> FsResult<Option<bool>> {
    match fs.identity(b) {
        Ok(target) => Ok(Some(fs.identity(a)?.inode == target.inode)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}
