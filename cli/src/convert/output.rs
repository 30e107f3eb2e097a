//! Output files that get their names when they are complete. They are written as `<name>.part`. A killed process leaves
//! such a file behind, and the next attempt overwrites it.

use ringreel::error::{Error, FsError, Result};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::recordio::index::{Entry, write_entry};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Size of the write buffer in bytes.
const BUFFER: usize = 1 << 20;

/// Returns `path` with `end` appended to its last name.
pub fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// A file that is being written. It is removed when it is dropped unfinished.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    part: PathBuf,
    file: Option<BufWriter<File>>,
    written: u64,
}

impl Output {
    /// Begins the file `path`. An existing file stays until [`Output::finish`].
    ///
    /// # Errors
    /// Another process is writing the file; the filesystem's errors.
    pub fn begin(path: &Path) -> Result<Output> {
        let part = with_end(path, ".part");
        let bad = |op| {
            let part = part.clone();
            move |error| FsError::new(op, &part, error)
        };
        // The lock is ours only if the file still has the name: the previous holder may have renamed it meanwhile.
        let file = loop {
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).custom_flags(flags.bits() as i32);
            let file = options.open(&part).map_err(bad("create"))?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let why = io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing it");
                    return Err(bad("create")(why).into());
                }
                // A filesystem without locks: they only prevent two processes from writing at once.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            let ours = file.metadata().map_err(bad("stat"))?;
            if fs::symlink_metadata(&part).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                break file;
            }
        };
        file.set_len(0).map_err(bad("truncate"))?;
        Ok(Output { path: path.to_owned(), part, file: Some(BufWriter::with_capacity(BUFFER, file)), written: 0 })
    }

    /// Returns the number of bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Syncs the file and gives it its name, replacing an existing file. Returns its size in bytes.
    ///
    /// # Errors
    /// The filesystem's errors.
    pub fn finish(self) -> Result<u64> {
        self.end(true)
    }

    /// Flushes the buffer; with `sync`, also syncs the file.
    fn settle(&mut self, sync: bool) -> Result<()> {
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let done = file.flush().and_then(|()| if sync { file.get_ref().sync_data() } else { Ok(()) });
        Ok(done.map_err(|error| FsError::new("write", &self.part, error))?)
    }

    fn end(mut self, sync: bool) -> Result<u64> {
        self.settle(sync)?;
        fs::rename(&self.part, &self.path).map_err(|error| FsError::new("rename", &self.path, error))?;
        self.file = None;
        Ok(self.written)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.part);
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Writes a whole small file. It is not synced, because that would take milliseconds per file, so a crash of the machine
/// may lose it.
///
/// # Errors
/// As [`Output::begin`] and [`Output::finish`].
pub fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut output = Output::begin(path)?;
    output.write_all(bytes).map_err(|error| FsError::new("write", path, error))?;
    output.end(false).map(drop)
}

/// A `.rec` file and its `.idx` file. The `.rec` file is published last, so that a visible one always has its index.
#[derive(Debug)]
pub struct RecFile {
    path: PathBuf,
    records: RecordWriter<Output>,
    index: Output,
    count: u64,
}

impl RecFile {
    /// Begins `path`, which ends in `.rec`.
    ///
    /// # Errors
    /// As [`Output::begin`].
    pub fn begin(path: &Path) -> Result<RecFile> {
        let index = Output::begin(&path.with_extension("idx"))?;
        Ok(RecFile { path: path.to_owned(), records: RecordWriter::new(Output::begin(path)?), index, count: 0 })
    }

    /// Writes one record, and a line of the index.
    ///
    /// # Errors
    /// A record of 2^29 bytes or more; the filesystem's errors.
    pub fn write(&mut self, key: u64, payload: &[u8]) -> Result<()> {
        let offset = self.records.write(payload).map_err(Error::format("write", &self.path))?;
        let key = key.to_string();
        write_entry(&mut self.index, Entry { key: &key, offset }).map_err(Error::format("write", &self.path))?;
        self.count += 1;
        Ok(())
    }

    /// Returns the size of the records written so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.records.position()
    }

    /// Returns the number of records written so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Gives both files their names. Returns the files with their sizes in bytes.
    ///
    /// # Errors
    /// As [`Output::finish`].
    pub fn finish(mut self) -> Result<Vec<(PathBuf, u64)>> {
        // First, so that the old records stay if the disk is full.
        let mut records = self.records.into_inner();
        records.settle(true)?;
        self.index.settle(true)?;
        // Old records must not be visible with the new index.
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FsError::new("remove", &self.path, error).into());
            }
            _ => {}
        }
        let index = (self.path.with_extension("idx"), self.index.finish()?);
        let records = (self.path, records.finish()?);
        Ok(vec![records, index])
    }
}
