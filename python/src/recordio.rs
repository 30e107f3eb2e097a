//! Plain RecordIO files for `ringreel.recordio`: reads records by offset or in sequence, and writes new files.
//!
//! A reader does not use the file offset of the operating system: each read names its offset. So threads do not disturb
//! one another, and neither do a process and its forked children, which share the open file. The reader's lock is taken
//! and released with the GIL held, around steps that never block; so no thread waits for it, and it is free at a fork.

use crate::array::Input;
use crate::errors;
use crate::forked::OwnProcess;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList};
use ringreel::Error;
use ringreel::error::FsError;
use ringreel::format::FormatError;
use ringreel::format::input::SliceInput;
use ringreel::format::recordio::{self, Record, index};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size in bytes of a sequential read, and of a writer's buffer.
const BLOCK: usize = 256 << 10;
/// Least size in bytes of a random read.
const SMALLEST: usize = 4 << 10;
/// Size in bytes above which a buffer is released after a read.
const KEPT: usize = 16 << 20;

/// Returns the `ringreel.recordio.RecordError` for invalid contents of `path`.
pub fn refused(py: Python<'_>, path: &Path, error: FormatError) -> PyErr {
    if let FormatError::Io(source) = &error {
        let errno = source.raw_os_error();
        let source =
            errno.map_or_else(|| io::Error::new(source.kind(), error.to_string()), io::Error::from_raw_os_error);
        return failed(py, "write", path, source);
    }
    let exception = || {
        let message = format!("{}: {error}", path.display());
        let exception = py.import("ringreel.recordio")?.getattr("RecordError")?.call1((message,))?;
        exception.setattr("path", path.to_string_lossy())?;
        exception.setattr("offset", error.at())?;
        exception.setattr("kind", error.name())?;
        Ok(PyErr::from_value(exception))
    };
    exception().unwrap_or_else(|failure| failure)
}

/// Returns the OSError for a failed system call.
fn failed(py: Python<'_>, op: &'static str, path: &Path, source: io::Error) -> PyErr {
    errors::raise(py, Error::from(FsError::new(op, path, source)))
}

/// A section of a file in memory.
#[derive(Default)]
struct Window {
    /// File offset of its first byte.
    base: u64,
    /// Memory, whose first `filled` bytes are from the file.
    bytes: Vec<u8>,
    filled: usize,
}

/// A record in a [`Window`].
struct SplitItem {
    payload: Payload,
    end: u64,
}

enum Payload {
    /// A range of the window.
    Whole(Range<usize>),
    /// A payload that the framing had split.
    Joined(Vec<u8>),
}

/// The error of a read.
enum Failure {
    System(io::Error),
    Format(FormatError),
}

impl Window {
    /// Returns `give` of the record at `at`, or None if the window has no byte of it.
    ///
    /// # Errors
    /// Returns `Truncated` also if only the window ends too early, and the errors of an invalid record.
    fn record<T>(&self, at: u64, give: impl FnOnce(Record<'_>) -> T) -> Result<Option<T>, FormatError> {
        let begin = at.checked_sub(self.base).and_then(|skip| usize::try_from(skip).ok());
        let Some(bytes) = begin.and_then(|begin| self.bytes[..self.filled].get(begin..)) else { return Ok(None) };
        Ok(recordio::RecordReader::with_input(SliceInput::new(bytes, at)).next()?.map(give))
    }

    /// Returns the record at `at` of the file, or None at its end. Reads `ahead` bytes, and more for a longer record.
    fn load(&mut self, file: &File, at: u64, ahead: usize) -> Result<Option<SplitItem>, Failure> {
        let mut want = ahead;
        loop {
            let at_end = self.extend(file, at, want).map_err(Failure::System)?;
            let base = self.base;
            let found = self.record(at, |record| {
                let begin = (at - base) as usize + 8;
                let payload = match record.splits {
                    0 => Payload::Whole(begin..begin + record.payload.len()),
                    _ => Payload::Joined(record.payload.to_vec()),
                };
                SplitItem { payload, end: record.end }
            });
            match found {
                Err(FormatError::Truncated { at: frame, need, .. }) if !at_end => {
                    // A length is trusted up to the length of the file. A record of many frames is read in steps of
                    // doubling size, because each frame is known only after the previous one was read.
                    let left = file.metadata().map_err(Failure::System)?.len().saturating_sub(at);
                    let more = (frame - at + need).max(2 * self.filled as u64).min(left);
                    want = (more as usize).max(want + SMALLEST);
                }
                found => return found.map_err(Failure::Format),
            }
        }
    }

    /// Fills the window with `want` bytes from `at`. Returns whether the file ended before.
    fn extend(&mut self, file: &File, at: u64, want: usize) -> io::Result<bool> {
        let held = at.checked_sub(self.base).filter(|skip| *skip <= self.filled as u64);
        let skip = held.map_or(self.filled, |skip| skip as usize);
        self.bytes.copy_within(skip..self.filled, 0);
        self.base = at;
        self.filled -= skip;
        if self.bytes.len() < want {
            self.bytes.reserve_exact(want - self.bytes.len());
            self.bytes.resize(want, 0);
        }
        while self.filled < want {
            match file.read_at(&mut self.bytes[self.filled..want], at + self.filled as u64) {
                Ok(0) => return Ok(true),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// The state of a reader between two calls.
struct State {
    /// Offset of the record that `read` returns next.
    position: u64,
    /// Size in bytes of the last record in the file, used as the estimate for the next one.
    usual: usize,
    window: Window,
}

impl State {
    fn passed(&mut self, at: u64, end: u64) {
        self.position = end;
        self.usual = (end - at) as usize;
    }

    fn keep(&mut self, window: Window) {
        self.window = if window.bytes.len() <= KEPT { window } else { Window::default() };
    }
}

/// A RecordIO file that is open for reading. Forked children can use it too; each continues independently from the
/// position at the fork.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct RecordReader {
    file: File,
    path: PathBuf,
    state: Mutex<State>,
}

impl RecordReader {
    fn state(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the record at `given`, or at the current position; None at the end of the file. `read` then continues
    /// after the record.
    fn record<'py>(&self, py: Python<'py>, given: Option<u64>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        loop {
            let mut state = self.state(py);
            let at = given.unwrap_or(state.position);
            match state.window.record(at, |record| (PyBytes::new(py, record.payload), record.end)) {
                Ok(Some((bytes, end))) => {
                    state.passed(at, end);
                    return Ok(Some(bytes));
                }
                Ok(None) | Err(FormatError::Truncated { .. }) => {}
                Err(error) => return Err(refused(py, &self.path, error)),
            }
            let ahead = if at == state.position { BLOCK } else { state.usual.clamp(SMALLEST, BLOCK) };
            let mut window = std::mem::take(&mut state.window);
            drop(state);
            let loaded = py.detach(|| window.load(&self.file, at, ahead)).map_err(|failure| match failure {
                Failure::System(source) => failed(py, "read", &self.path, source),
                Failure::Format(error) => refused(py, &self.path, error),
            })?;
            let bytes = loaded.map(|SplitItem { payload, end }| {
                let bytes = match payload {
                    Payload::Whole(range) => PyBytes::new(py, &window.bytes[range]),
                    Payload::Joined(bytes) => PyBytes::new(py, &bytes),
                };
                (bytes, end)
            });
            let mut state = self.state(py);
            state.keep(window);
            if given.is_none() && state.position != at {
                continue; // another thread has read this record meanwhile
            }
            if let Some((_, end)) = &bytes {
                state.passed(at, *end);
            }
            return Ok(bytes.map(|(bytes, _)| bytes));
        }
    }

    /// Returns the error for an offset behind the end of the file.
    fn beyond(&self, py: Python<'_>, at: u64) -> PyErr {
        match self.file.metadata() {
            Ok(meta) => {
                let (need, have) = (8, meta.len().saturating_sub(at));
                refused(py, &self.path, FormatError::Truncated { at, what: "a record", need, have })
            }
            Err(source) => failed(py, "stat", &self.path, source),
        }
    }
}

#[pymethods]
impl RecordReader {
    /// Opens the file `path`.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<RecordReader> {
        let file = py.detach(|| File::open(&path)).map_err(|source| failed(py, "open", &path, source))?;
        let state = State { position: 0, usual: 0, window: Window::default() };
        Ok(RecordReader { file, path, state: Mutex::new(state) })
    }

    /// Returns the next record, or None at the end of the file.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let record = self.record(py, None)?;
        if record.is_none() {
            let at = self.position(py);
            let size = self.file.metadata().map_err(|source| failed(py, "stat", &self.path, source))?.len();
            if at > size {
                return Err(self.beyond(py, at));
            }
        }
        Ok(record)
    }

    /// Returns the record at byte `offset`.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.record(py, Some(offset))?.ok_or_else(|| self.beyond(py, offset))
    }

    /// Makes `read` continue at byte `offset`.
    fn seek(&self, py: Python<'_>, offset: u64) {
        self.state(py).position = offset;
    }

    /// The byte offset at which `read` continues.
    #[getter]
    fn position(&self, py: Python<'_>) -> u64 {
        self.state(py).position
    }
}

type Open = recordio::RecordWriter<BufWriter<File>>;

enum Sink {
    Open(Open),
    /// A write failed, and the file may end with an incomplete record.
    Failed(File),
    Closed,
}

impl Sink {
    /// Runs `work` on the open file.
    fn with<T>(&mut self, work: impl FnOnce(&mut Open) -> Result<T, FormatError>) -> Result<T, Refusal> {
        let done = match self {
            Sink::Open(writer) => work(writer),
            Sink::Failed(_) => return Err(Refusal::Failed),
            Sink::Closed => return Err(Refusal::Closed),
        };
        if matches!(done, Err(FormatError::Io(_))) {
            self.give_up();
        }
        done.map_err(Refusal::Format)
    }

    /// Returns whether the buffer has room for more than `bytes` bytes.
    fn has_room(&mut self, bytes: usize) -> bool {
        match self {
            Sink::Open(writer) => {
                let buffer = writer.get_mut();
                buffer.capacity() - buffer.buffer().len() > bytes
            }
            _ => false,
        }
    }

    /// Discards the buffer, so that nothing more is written into the file.
    fn give_up(&mut self) {
        *self = match std::mem::replace(self, Sink::Closed) {
            Sink::Open(writer) => Sink::Failed(writer.into_inner().into_parts().0),
            other => other,
        };
    }
}

/// The error of a writer.
enum Refusal {
    Format(FormatError),
    Closed,
    Failed,
}

/// A RecordIO file that is being written, by one process.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct RecordWriter {
    path: PathBuf,
    sink: OwnProcess<Mutex<Sink>>,
}

impl RecordWriter {
    fn raise(&self, py: Python<'_>, refusal: Refusal) -> PyErr {
        let plain = |why: &str| errors::plain(&format!("{}: {why}", self.path.display()));
        match refusal {
            Refusal::Format(error) => refused(py, &self.path, error),
            Refusal::Closed => plain("this writer is closed"),
            Refusal::Failed => plain("an earlier write failed, and the file may end within a record: write it again"),
        }
    }
}

#[pymethods]
impl RecordWriter {
    /// Creates the file `path`, or empties an existing one.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf) -> PyResult<RecordWriter> {
        let file = py.detach(|| File::create(&path)).map_err(|source| failed(py, "create", &path, source))?;
        let writer = recordio::RecordWriter::new(BufWriter::with_capacity(BLOCK, file));
        Ok(RecordWriter { path, sink: OwnProcess::new(Mutex::new(Sink::Open(writer))) })
    }

    /// Writes a record, and returns the byte offset at which it starts.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let sink = self.sink.get("record writer")?;
        let input = Input::of(data)?;
        let payload = input.bytes();
        // A record that fits into the buffer, even if the framing splits it, does not block: the GIL is kept.
        let most = 2 * payload.len() + 16;
        if let Ok(mut sink) = sink.try_lock()
            && sink.has_room(most)
        {
            return sink.with(|writer| writer.write(payload)).map_err(|refusal| self.raise(py, refusal));
        }
        let done = py.detach(|| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.with(|writer| writer.write(payload))
        });
        done.map_err(|refusal| self.raise(py, refusal))
    }

    /// The byte offset at which the next record will start.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        let sink = self.sink.get("record writer")?;
        let mut sink = sink.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        sink.with(|writer| Ok(writer.position())).map_err(|refusal| self.raise(py, refusal))
    }

    /// Writes the buffer to the file, and closes it. Does nothing if it is already closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let sink = self.sink.get("record writer")?;
        let (flushed, closed) = py.detach(|| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let flushed = match &mut *sink {
                Sink::Open(writer) => writer.get_mut().flush(),
                _ => Ok(()),
            };
            sink.give_up();
            (flushed, std::mem::replace(&mut *sink, Sink::Closed))
        });
        // Dropping a file would hide the error of its close.
        let closed = match closed {
            Sink::Failed(file) => py.import("os")?.call_method1("close", (file.into_raw_fd(),)).map(|_| ()),
            _ => Ok(()),
        };
        flushed.map_err(|source| failed(py, "write", &self.path, source))?;
        closed.map_err(|error| match error.value(py).getattr("errno").and_then(|errno| errno.extract()) {
            Ok(errno) => failed(py, "close", &self.path, io::Error::from_raw_os_error(errno)),
            Err(_) => error,
        })
    }
}

/// The keys of an `.idx` file in their order, and the offset by key.
type Index<'py> = (Bound<'py, PyList>, Bound<'py, PyDict>);

/// Parses an `.idx` file into its keys, each made by `key_type` from its text, and the byte offset by key: of a
/// repeated key, the last one. `path` is named in errors.
#[pyfunction]
pub fn record_index<'py>(
    py: Python<'py>,
    data: &[u8],
    path: PathBuf,
    key_type: &Bound<'py, PyAny>,
) -> PyResult<Index<'py>> {
    let (keys, offsets) = (PyList::empty(py), PyDict::new(py));
    let whole_numbers = key_type.is(py.get_type::<pyo3::types::PyInt>());
    for (line, entry) in index::entries(data).enumerate() {
        let index::Entry { key, offset } = entry.map_err(|error| refused(py, &path, error))?;
        let key = match key.parse::<i64>() {
            Ok(number) if whole_numbers => number.into_pyobject(py)?.into_any(),
            _ => key_type.call1((key,)).map_err(|error| unfit(py, &path, line + 1, key, key_type, error))?,
        };
        offsets.set_item(&key, offset)?;
        keys.append(key)?;
    }
    Ok((keys, offsets))
}

/// Returns the exception for a key that `key_type` refuses.
fn unfit(py: Python<'_>, path: &Path, line: usize, key: &str, key_type: &Bound<'_, PyAny>, cause: PyErr) -> PyErr {
    let kind = key_type.getattr("__name__").unwrap_or_else(|_| key_type.clone());
    let message =
        format!("{}: line {line}: the key {key:?} is not of type {kind}: pass another key_type", path.display());
    let exception = || {
        let exception = py.import("ringreel.recordio")?.getattr("RecordError")?.call1((message,))?;
        exception.setattr("path", path.to_string_lossy())?;
        Ok(PyErr::from_value(exception))
    };
    let raised = exception().unwrap_or_else(|failure| failure);
    raised.set_cause(py, Some(cause));
    raised
}
