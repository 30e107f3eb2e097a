//! Writes a segment in `staging/<owner>/`: as `<id>.part` while only its owner writes it, and as `<id>.rec` from its
//! seal on, which is one rename to a name that was never used.
//!
//! A segment that [`StagingWriter::seal`] returned is complete and is never opened for writing again.

use crate::error::{Error, FsError, Result};
use crate::fs::atomic_publish::DirSyncs;
use crate::fs::{FileWriter, Fs, FsResult};
use crate::layout::Layout;
use ringreel_format::{FormatError, SampleRef, Sealed, SegmentInfo, SegmentWriter, Sink, WriteOptions};
use std::io::{self, IoSlice, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A segment that is being written.
pub struct StagingWriter {
    fs: Arc<dyn Fs>,
    /// The directory of the owner's staging directory.
    staging: PathBuf,
    /// The staging directory of the owner.
    dir: PathBuf,
    part: PathBuf,
    rec: PathBuf,
    file: Buffered,
    writer: SegmentWriter,
    /// Set when it is complete and closed, so that only its name is missing.
    closed: Option<Sealed>,
    options: StagingOptions,
}

/// Options for writing a segment.
#[derive(Clone, Debug)]
pub struct StagingOptions {
    /// Compression, among others.
    pub write: WriteOptions,
    /// Size of the write buffer in bytes.
    pub buffer: usize,
    /// Whether to fsync the file before it is sealed: always on a network filesystem.
    pub sync: bool,
    /// Whether to fsync the directory after it is sealed: for DURABILITY node.
    pub sync_dir: bool,
    /// Whether the directory's own name was synced after the directory was created.
    pub settled: Arc<AtomicBool>,
    /// Results of directory syncs.
    pub dir_syncs: DirSyncs,
    /// The memory of the write buffer, which each segment passes on to the next.
    pub memory: Arc<Mutex<Vec<u8>>>,
}

impl StagingWriter {
    /// Begins the segment that `info` describes in the staging directory of `owner`.
    ///
    /// # Errors
    /// Filesystem errors. No file is left behind.
    pub fn begin(
        fs: Arc<dyn Fs>,
        layout: &Layout,
        owner: &str,
        info: SegmentInfo,
        options: &StagingOptions,
    ) -> Result<StagingWriter> {
        let (staging, dir) = (layout.staging(), layout.staging_of(owner));
        let (part, rec) = (layout.part(owner, info.id), layout.sealed(owner, info.id));
        let file = match fs.create_unique(&part) {
            Err(error) if error.is_gone() => {
                fs.ensure_dir(&staging)?;
                fs.ensure_dir(&dir)?;
                options.settled.store(false, Ordering::Relaxed);
                fs.create_unique(&part)?
            }
            other => other?,
        };
        let buffer = std::mem::take(&mut *lock(&options.memory));
        let mut file = Buffered { file: Some(file), drained: 0, buffer, limit: options.buffer };
        let begun = SegmentWriter::begin(&mut file, info, options.write.clone());
        let writer = begun.map_err(|error| {
            let _ = fs.forget_file(&part);
            Error::format("write", &part)(error)
        })?;
        Ok(StagingWriter { fs, staging, dir, part, rec, file, writer, closed: None, options: options.clone() })
    }

    /// Returns the segment's description.
    pub fn info(&self) -> &SegmentInfo {
        self.writer.info()
    }

    /// Returns the samples in it so far.
    pub fn samples(&self) -> u64 {
        self.writer.samples()
    }

    /// Returns the bytes in it so far.
    pub fn bytes(&self) -> u64 {
        self.writer.position()
    }

    /// Compresses parts at these levels from the next sample on.
    pub fn compress(&mut self, levels: &[Option<i32>]) {
        self.writer.compress(levels.to_vec());
    }

    /// Appends one sample. After an error that [`Error::is_retryable`], the call may be repeated with the same
    /// sample, unless [`StagingWriter::must_discard`].
    ///
    /// # Errors
    /// A sample that does not match the schema; filesystem errors.
    pub fn sample(&mut self, sample: &SampleRef<'_>) -> Result<()> {
        self.closed = None;
        let written = self.writer.sample_over(&mut self.file, sample);
        written.or_else(|error| self.roll_back(error))
    }

    /// Cuts the file back to the last whole sample, so that the failed write can be repeated.
    fn roll_back<T>(&mut self, error: FormatError) -> Result<T> {
        let failed = Error::format("write", &self.part)(error);
        if let Err(error) = self.file.cut(self.writer.position()) {
            // The contents of the file are now unknown: nothing more may be written to it.
            tracing::warn!(%error, "cannot roll back a failed write; the segment will be discarded");
            self.file.file = None;
        }
        Err(failed)
    }

    /// Seals the segment, and returns its new path. After an error that [`Error::is_retryable`], the call may be
    /// repeated, unless [`StagingWriter::must_discard`].
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn seal(&mut self) -> Result<(Sealed, PathBuf)> {
        let sealed = self.closed.map_or_else(|| self.close(), Ok)?;
        match self.fs.rename(&self.part, &self.rec) {
            Ok(()) => {}
            // The server's reply may have been lost. Then the new name exists, and no other process could have
            // created it. If that cannot be checked now, the rename is tried again: a discarded segment with that
            // name might still be delivered.
            Err(error) => match self.fs.exists(&self.rec) {
                Ok(true) => {}
                seen => {
                    let error = seen.err().filter(FsError::is_retryable).unwrap_or(error);
                    self.closed = self.closed.filter(|_| error.is_retryable());
                    return Err(error.into());
                }
            },
        }
        if self.options.sync_dir {
            self.sync_name().inspect_err(|error| {
                // A failed sync is not repeated: the next segment gets another name. If no file could be opened,
                // there was no sync.
                self.closed = self.closed.filter(|_| error.is_out_of_files());
            })?;
        }
        Ok((sealed, self.rec.clone()))
    }

    /// Syncs the name of the sealed segment in its directory, and once that directory's own name in `staging`.
    fn sync_name(&self) -> FsResult<()> {
        let StagingOptions { settled, dir_syncs, .. } = &self.options;
        self.fs.sync_dir(&self.dir)?;
        if !settled.load(Ordering::Relaxed) {
            dir_syncs.sync(&*self.fs, &self.staging)?;
            settled.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes the rest and closes the file.
    fn close(&mut self) -> Result<Sealed> {
        let finished = self.writer.finish(&mut self.file);
        let sealed = match finished.and_then(|sealed| Ok(self.file.flush().map(|()| sealed)?)) {
            Ok(sealed) => sealed,
            Err(error) => return self.roll_back(error),
        };
        if let Some(mut file) = self.file.file.take() {
            if self.options.sync {
                file.sync()?;
            }
            file.close()?;
        }
        self.closed = Some(sealed);
        *lock(&self.options.memory) = std::mem::take(&mut self.file.buffer);
        Ok(sealed)
    }

    /// Returns whether the contents of the file are unknown, so that the segment must be discarded.
    pub fn must_discard(&self) -> bool {
        self.file.file.is_none() && self.closed.is_none()
    }

    /// Returns whether all is written and only the name is missing: no more samples can be appended.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Removes the file. No call has returned the ids of its samples.
    ///
    /// # Errors
    /// Filesystem errors. The file may then have its sealed name, and samples that are written again would be
    /// delivered twice.
    pub fn discard(&self) -> Result<()> {
        let _ = self.fs.forget_file(&self.part); // if this fails, the file is litter
        // It may have got its sealed name before the failure: no process may adopt samples that will be written
        // again.
        match self.fs.remove_file(&self.rec) {
            // NotFound means that it does not exist. A stale handle does not mean that.
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
            done => Ok(done?),
        }
    }
}

fn lock(memory: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A large page of the page cache. A write that begins at a multiple of this size and is as long gets one on
/// filesystems that have large pages (ext4, XFS, btrfs), and readers map it as one.
const LARGE_PAGE: u64 = 2 << 20;
/// A small page, or a multiple of it.
const PAGE: u64 = 64 << 10;

/// A write buffer that can be cut back to any earlier length, even after a partial write. Large writes bypass it
/// except for their last bytes, so that writes to the file end at multiples of pages.
struct Buffered {
    file: Option<Box<dyn FileWriter>>,
    /// Bytes that are in the file for certain; those of the buffer follow.
    drained: u64,
    buffer: Vec<u8>,
    limit: usize,
}

impl Buffered {
    fn open(&mut self) -> io::Result<&mut Box<dyn FileWriter>> {
        self.file.as_mut().ok_or_else(|| io::Error::other("the file was closed"))
    }

    /// Writes the buffered bytes and then `bytes`, in one call if the file takes all.
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let passed = self.open().and_then(|file| write_all(file, &mut [IoSlice::new(&buffer), IoSlice::new(bytes)]));
        self.buffer = buffer; // put back on success too, to reuse its memory
        if passed.is_ok() {
            self.drained += (self.buffer.len() + bytes.len()) as u64;
            self.buffer.clear();
        }
        passed
    }

    /// Returns how many of `len` bytes that follow the buffered ones are to be written with them: up to the end of a
    /// page, of a large one if one ends nearby.
    fn to_pass(&self, len: usize) -> usize {
        let begin = self.drained + self.buffer.len() as u64;
        let end = begin + len as u64;
        let rest = if end % LARGE_PAGE < PAGE { end % LARGE_PAGE } else { end % PAGE };
        len.saturating_sub(rest as usize)
    }

    fn cut(&mut self, len: u64) -> FsResult<()> {
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let buffered = len.saturating_sub(self.drained) as usize;
        self.buffer.truncate(buffered);
        self.drained = self.drained.min(len);
        file.cut(self.drained)
    }
}

impl Sink for Buffered {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let in_file = self.drained.saturating_sub(at).min(bytes.len() as u64) as usize;
        let (in_file, buffered) = bytes.split_at(in_file);
        if !in_file.is_empty() {
            self.open()?.write_over(at, in_file).map_err(|error| error.source)?;
        }
        self.buffer.write_over(at.saturating_sub(self.drained), buffered)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        Buffered::cut(self, len).map_err(|error| error.source)
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        if self.buffer.len() + bytes.len() > self.limit {
            let (now, later) = bytes.split_at(self.to_pass(bytes.len()));
            self.pass(now)?;
            rest = later;
        }
        self.buffer.extend_from_slice(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(&[])
    }
}

/// Like [`Write::write_all`], from two slices.
fn write_all(file: &mut dyn Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // skips empty slices
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Records the bytes that a file received and where each write ended. Takes at most this many bytes per call.
    #[derive(Clone)]
    struct Recorded(Arc<Mutex<(Vec<u8>, Vec<u64>)>>, usize);

    impl Write for Recorded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let (file, ends) = &mut *self.0.lock().unwrap();
            let before = file.len();
            for slice in slices {
                let room = self.1 - (file.len() - before);
                file.extend_from_slice(&slice[..slice.len().min(room)]);
            }
            ends.push(file.len() as u64);
            Ok(file.len() - before)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl FileWriter for Recorded {
        fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()> {
            self.0.lock().unwrap().0[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn cut(&mut self, len: u64) -> FsResult<()> {
            self.0.lock().unwrap().0.truncate(len as usize);
            Ok(())
        }

        fn sync(&mut self) -> FsResult<()> {
            Ok(())
        }

        fn close(self: Box<Self>) -> FsResult<()> {
            Ok(())
        }
    }

    fn buffered(limit: usize, in_a_call: usize) -> (Buffered, Recorded) {
        let file = Recorded(Arc::default(), in_a_call);
        (Buffered { file: Some(Box::new(file.clone())), drained: 0, buffer: Vec::new(), limit }, file)
    }

    #[test]
    fn large_writes_end_where_large_pages_do() {
        let (mut to, file) = buffered(1 << 20, usize::MAX);
        let part = vec![7; 16 << 20];
        for _ in 0..2 {
            to.write_all(&[1; 300]).unwrap();
            to.write_all(&part).unwrap();
        }
        assert_eq!(file.0.lock().unwrap().1, [16 << 20, 32 << 20], "one call for each part and the bytes before it");
        assert_eq!(to.buffer.len(), 600);
        to.write_all(&part[..(3 << 20) + 5000]).unwrap();
        assert_eq!(file.0.lock().unwrap().1[2], 35 << 20, "no large page ends near, but a small one");
    }

    #[test]
    fn small_writes_fill_whole_pages() {
        let (mut to, file) = buffered(1 << 20, usize::MAX);
        (0..1000).for_each(|_| to.write_all(&[7; 4169]).unwrap());
        assert_eq!(file.0.lock().unwrap().1, [1 << 20, 2 << 20, 3 << 20]);
    }

    #[test]
    fn buffered_writes_survive_cuts_and_overwrites() {
        check_writes(usize::MAX);
        check_writes(1_000_003);
    }

    fn check_writes(in_a_call: usize) {
        let (mut to, file) = buffered(1 << 20, in_a_call);
        let (mut all, zeros) = (Vec::new(), vec![0; 9 << 20]);
        for n in 0..60u32 {
            // From 1 byte to 8 MiB, and around each limit.
            let len = (1u32 << (n % 24)) as usize + [0, 1, 300][n as usize % 3] - usize::from(n % 7 == 0);
            let bytes = (0..len).map(|at| (at as u32 ^ n) as u8).collect::<Vec<_>>();
            let cut = n % 5 == 3;
            to.write_all(if cut { &bytes } else { &zeros[..len] }).unwrap();
            if cut {
                let len = all.len() + bytes.len() / 2;
                Sink::cut(&mut to, len as u64).unwrap();
                all.extend_from_slice(&bytes[..bytes.len() / 2]);
            } else {
                // Like a head, which is only known after the bytes that follow it were written.
                to.write_over(all.len() as u64, &bytes).unwrap();
                all.extend_from_slice(&bytes);
            }
            assert!(to.buffer.len() <= to.limit + PAGE as usize);
        }
        to.flush().unwrap();
        assert!(file.0.lock().unwrap().0 == all);
    }
}
