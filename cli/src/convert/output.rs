//! Files that have their name only once they are whole: they are written beside it, as `<name>.part`. Whoever is killed
//! leaves such a one behind, and whoever begins again writes over it.

use ringreel::error::{Error, FsError, Result};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::recordio::index::{Entry, write_entry};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// `path` with `end` behind its last name.
pub fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// A file that is being written. It is removed where it is not finished.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    part: PathBuf,
    file: Option<BufWriter<File>>,
    written: u64,
}

impl Output {
    /// Begins the file that shall have the name `path`. What is there stays there until [`Output::finish`].
    ///
    /// # Errors
    /// Somebody else writes it at this time; what the filesystem says.
    pub fn begin(path: &Path) -> Result<Output> {
        let part = with_end(path, ".part");
        let bad = |op| {
            let part = part.clone();
            move |error| FsError::new(op, &part, error)
        };
        // Ours is the file only while it has the name: whoever held the lock before us may have given it another one.
        let file = loop {
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).custom_flags(flags.bits() as i32);
            let file = options.open(&part).map_err(bad("create"))?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let why = io::Error::new(io::ErrorKind::ResourceBusy, "somebody else writes it at this time");
                    return Err(bad("create")(why).into());
                }
                // No locks on this filesystem: they only save from two at once.
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

    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Brings it to the disk and gives it its name, in place of what has it. Returns its bytes.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn finish(self) -> Result<u64> {
        self.end(true)
    }

    /// What was written is in the file; with `sync`, on the disk.
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

/// Writes one file of many, whole. It survives the end of this process, not that of the machine: that would take
/// milliseconds for each.
///
/// # Errors
/// As [`Output::begin`] and [`Output::finish`].
pub fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut output = Output::begin(path)?;
    output.write_all(bytes).map_err(|error| FsError::new("write", path, error))?;
    output.end(false).map(drop)
}

/// A `.rec` file and the `.idx` file beside it. The records appear last: whoever sees them sees their index.
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
    /// A record of 2^29 bytes or more; what the filesystem says.
    pub fn write(&mut self, key: u64, payload: &[u8]) -> Result<()> {
        let offset = self.records.write(payload).map_err(Error::format("write", &self.path))?;
        let key = key.to_string();
        write_entry(&mut self.index, Entry { key: &key, offset }).map_err(Error::format("write", &self.path))?;
        self.count += 1;
        Ok(())
    }

    /// Bytes of its records so far.
    pub fn bytes(&self) -> u64 {
        self.records.position()
    }

    /// Records so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Gives both files their names. Returns them, with their bytes.
    ///
    /// # Errors
    /// As [`Output::finish`].
    pub fn finish(mut self) -> Result<Vec<(PathBuf, u64)>> {
        // Where the disk is full, the old records stay.
        let mut records = self.records.into_inner();
        records.settle(true)?;
        self.index.settle(true)?;
        // Old records must not be seen with the new index.
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
