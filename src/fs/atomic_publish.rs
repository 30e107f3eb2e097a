//! Atomic publication: a file appears under its name complete or not at all, and the first process
//! that publishes a name wins.

use super::openat::OPEN_DIR;
use super::{Fs, FsError, FsResult};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Directory syncs. After one sync has failed with EIO, this process does no further sync, because
/// the kernel may have dropped the data that it could not write and report success for the next
/// sync (<https://wiki.postgresql.org/wiki/Fsync_Errors>). A file is discarded and written again in
/// this case, but names in a directory that other processes have already seen cannot be.
#[derive(Clone, Debug, Default)]
pub struct DirSyncs {
    failed: Arc<OnceLock<PathBuf>>,
}

impl DirSyncs {
    /// Syncs the names in `dir` to the disk.
    ///
    /// # Errors
    /// Filesystem errors. After an EIO on any directory, every call returns this error. After other
    /// errors no sync happened, and the call may be repeated.
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
    let why = "the disk failed (EIO): names in this directory may be lost in a power cut, and a second sync would not \
               report it. This process stops using them, and staged segments stay. Check the kernel log and the disk, \
               then start it again";
    FsError::new("sync directory", dir, io::Error::other(why))
}

/// A function that writes the contents of a file.
pub type Write<'a> = &'a dyn Fn(&mut dyn io::Write) -> io::Result<()>;

/// Buffer size for contents that are written in small pieces, in bytes.
const WRITE_BUFFER: usize = 64 << 10;

/// Writes a complete new file under a name that no other process uses.
///
/// # Errors
/// Filesystem errors; the file is removed then.
pub fn write_new(fs: &dyn Fs, path: &Path, bytes: &[u8], sync: bool) -> FsResult<()> {
    write_new_by(fs, path, &|file| file.write_all(bytes), sync)
}

/// Like [`write_new`], for contents that need not be in memory at once.
fn write_new_by(fs: &dyn Fs, path: &Path, write: Write<'_>, sync: bool) -> FsResult<()> {
    let mut file = fs.create_new(path)?;
    let mut buffered = io::BufWriter::with_capacity(WRITE_BUFFER, &mut file);
    let written = write(&mut buffered).and_then(|()| buffered.flush());
    drop(buffered.into_parts()); // data that a failed write left in the buffer is not written again
    let written = written.map_err(|source| FsError::new("write", path, source));
    let written = written.and_then(|()| if sync { file.sync() } else { Ok(()) });
    let closed = file.close();
    let result = written.and(closed);
    if result.is_err() {
        let _ = fs.forget_file(path); // no other process uses it
    }
    result
}

/// Publishes `bytes` as `target` through `temp`, a name on the same filesystem that no other
/// process uses. Returns true if `target` is now this process's file, and false if another process
/// published it first.
///
/// # Errors
/// Filesystem errors, if the file was not published.
pub fn publish(fs: &dyn Fs, temp: &Path, target: &Path, bytes: &[u8], sync: bool) -> FsResult<bool> {
    publish_by(fs, temp, target, &|file| file.write_all(bytes), sync)
}

/// Like [`publish`], for contents that need not be in memory at once.
///
/// # Errors
/// As [`publish`].
pub fn publish_by(fs: &dyn Fs, temp: &Path, target: &Path, write: Write<'_>, sync: bool) -> FsResult<bool> {
    write_new_by(fs, temp, write, sync)?;
    let result = match fs.link(temp, target) {
        Ok(()) => Ok(true),
        // Another process may have been first. Or the reply to our own call was lost and the call
        // was sent again. And a call that failed may still have had its effect.
        Err(error) => match same_file(fs, temp, target) {
            Ok(Some(ours)) => Ok(ours),
            // The name is taken, but a second call cannot find out by whom, because it is not
            // visible yet, or `temp` is gone.
            _ if error.is_taken() => Ok(false),
            _ => Err(error),
        },
    };
    let _ = fs.forget_file(temp); // if this fails, recovery removes it as litter
    result
}

/// Returns whether `a` and `b` are the same file, or `None` if `b` does not exist.
///
/// # Errors
/// Filesystem errors.
pub fn same_file(fs: &dyn Fs, a: &Path, b: &Path) -> FsResult<Option<bool>> {
    match fs.identity(b) {
        Ok(target) => Ok(Some(fs.identity(a)?.inode == target.inode)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}
