//! Buffers shared between Rust and Python, in both directions.
//!
//! This is the only `unsafe` code of the crate. It relies on these invariants:
//!
//! - The memory behind a [`Part`] is one of two kinds. It is a read-only map of a sealed segment, which all samples of
//!   the segment share (a write faults). Or, if the part is `own`, it is writable memory of its sample (or batch) alone:
//!   a `Vec`, an anonymous private map, or a copy-on-write map of a file. Only the second kind is lent for writing.
//! - The memory does not move while its `Part` lives, and Python holds the `Part` while it uses the memory.
//! - Once a `Part` exists, Rust code reads writable memory through a reference only to copy it, in `__reduce_ex__`.
#![allow(unsafe_code)]

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use ringreel::fs::map::map_sealed;
use ringreel::fs::{Confined, MapMode};
use ringreel::read::log_truncated_maps;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::os::raw::c_int;
use std::path::Path;
use std::sync::Arc;

/// Alignment of every part in bytes, sufficient for any element type of NumPy.
const ALIGNMENT: usize = 16;

/// One part of a sample: its bytes, read-only for Python, with element type and shape.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Part {
    dtype: String,
    shape: Vec<u64>,
    data: Bytes,
    /// Whether `data` is writable memory of this part alone.
    own: bool,
    /// The path of the segment that stores these bytes uncompressed, and their offset in it.
    place: Option<(Arc<Path>, u64)>,
    /// The reason why this version cannot read the part, if it cannot.
    unreadable: Option<String>,
}

impl Part {
    /// Returns a part over `data`, which has to satisfy the module's invariants. Copies unaligned memory.
    pub fn over(dtype: String, shape: Vec<u64>, data: Bytes, own: bool) -> Part {
        let aligned = data.is_empty() || (data.as_ptr() as usize).is_multiple_of(ALIGNMENT);
        let (data, own) = if aligned { (data, own) } else { (aligned_copy(&data), true) };
        Part { dtype, shape, data, own, place: None, unreadable: None }
    }

    /// Returns the part with the path of its segment and its offset there.
    pub fn with_place(self, place: Option<(Arc<Path>, u64)>) -> Part {
        Part { place, ..self }
    }

    /// Returns a part without data, which a later version wrote.
    pub fn unreadable(dtype: String, shape: Vec<u64>, why: String) -> Part {
        Part { dtype, shape, data: Bytes::new(), own: true, place: None, unreadable: Some(why) }
    }
}

fn aligned_copy(data: &[u8]) -> Bytes {
    let mut buffer = Vec::<u8>::with_capacity(data.len() + ALIGNMENT);
    let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    buffer.resize(start, 0);
    buffer.extend_from_slice(data);
    Bytes::from(buffer).slice(start..)
}

#[pymethods]
impl Part {
    /// Returns a part with a copy of `data`. Used for unpickling.
    #[new]
    #[pyo3(signature = (dtype, shape, data, unreadable = None))]
    fn new(dtype: String, shape: Vec<u64>, data: &Bound<'_, PyAny>, unreadable: Option<String>) -> PyResult<Part> {
        let input = Input::of(data)?;
        Ok(Part { dtype, shape, data: aligned_copy(input.bytes()), own: true, place: None, unreadable })
    }

    /// Maps `length` bytes of a sealed segment privately, from byte `offset`. `descriptor` is the segment, open for
    /// reading; the caller keeps it.
    #[staticmethod]
    fn mapped(dtype: String, shape: Vec<u64>, descriptor: RawFd, offset: u64, length: u64) -> PyResult<Part> {
        log_truncated_maps();
        if descriptor < 0 {
            return Err(PyValueError::new_err("the file descriptor is not open"));
        }
        // SAFETY: the caller keeps the file open during this call. If it is not open, the system call that duplicates
        // it fails. The segment's name is used in messages only.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().map(File::from)?;
        let name = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_else(|_| "a segment".into());
        let end = offset.saturating_add(length);
        Ok(Part::over(dtype, shape, map_sealed(&file, &name, offset..end, MapMode::Private)?, true))
    }

    /// The path of the segment that stores these bytes uncompressed, and their offset in it, or None.
    #[getter]
    fn place(&self) -> Option<(&OsStr, u64)> {
        self.place.as_ref().map(|(path, offset)| (path.as_os_str(), *offset))
    }

    /// Opens the segment that `place` names for reading, without following links below the ring's directory, as readers
    /// do. Returns a descriptor that the caller has to close. Raises OSError.
    fn open(&self) -> PyResult<RawFd> {
        let none = || PyValueError::new_err("no file stores this part uncompressed");
        let (path, _) = self.place.as_ref().ok_or_else(none)?;
        let ring = path.ancestors().nth(2).ok_or_else(none)?; // of ring/read.1/000000.rec
        Ok(Confined::new(ring, None).open_file(path).map_err(|error| error.source)?.into_raw_fd())
    }

    /// The reason why this version cannot read the part (a later version wrote it), or None.
    #[getter(unreadable)]
    fn why_unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// The name of the element type: "f32", "bytes", "numpy:<M8[ns]", ...
    #[getter]
    fn dtype(&self) -> &str {
        &self.dtype
    }

    /// The lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __len__(&self) -> usize {
        self.data.len()
    }

    /// Returns the part's memory for writing if it is private, and otherwise a copy.
    fn writable(slf: Bound<'_, Part>) -> WritablePart {
        let part = slf.get();
        WritablePart { data: if part.own { part.data.clone() } else { aligned_copy(&part.data) } }
    }

    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Part>,
        protocol: u32,
    ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
        let (py, part) = (slf.py(), slf.get());
        let data = match protocol {
            5.. => py.import("pickle")?.getattr("PickleBuffer")?.call1((slf,))?,
            _ => PyBytes::new(py, &part.data).into_any(),
        };
        let given = (&part.dtype, part.shape(py)?, data, &part.unreadable).into_pyobject(py)?;
        Ok((slf.get_type(), given))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter owns `view`, which lives until `__releasebuffer__`.
        unsafe { fill(slf.as_any(), &slf.get().data, view, flags, Mode::ReadOnly) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

/// Writable memory of a [`Part`], or copied from one, for torch's tensors.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct WritablePart {
    data: Bytes,
}

#[pymethods]
impl WritablePart {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above. `Part::writable` ensures that the memory is writable (see the module).
        unsafe { fill(slf.as_any(), &slf.get().data, view, flags, Mode::Writable) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

#[derive(Clone, Copy)]
enum Mode {
    Writable = 0,
    ReadOnly = 1,
}

/// Describes `data` in `view`. Refuses a request for a writable view if `mode` is read-only.
///
/// # Safety
/// `view` is valid for writes. `data` is owned by `owner`, does not move while `owner` lives, and is writable memory
/// unless `mode` is read-only.
unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    data: &Bytes,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    mode: Mode,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view was given"));
    }
    let (start, len) = (data.as_ptr().cast_mut().cast(), data.len() as ffi::Py_ssize_t);
    // SAFETY: `view` is not null, and the caller passes it to be filled. CPython stores a new reference to `owner` in
    // it, so `owner`, and with it `data`, outlives the view; neither `Bytes` nor its memory moves. With `ReadOnly`,
    // CPython marks the view as read-only and refuses PyBUF_WRITABLE.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, mode as c_int, flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// Bytes of a Python object, borrowed for the time of one call.
pub struct Input {
    buffer: PyBuffer<u8>,
}

impl Input {
    /// Borrows the bytes of `object`, which must have a contiguous buffer of unsigned bytes.
    ///
    /// # Errors
    /// Returns an error if `object` has no such buffer.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Input> {
        let buffer = PyBuffer::<u8>::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Input { buffer })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        let len = self.buffer.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: by the buffer protocol, the exporter keeps `len` contiguous bytes at `buf_ptr` alive and in place
        // while this view is held, and the slice borrows the view. The documentation of `write` requires that no other
        // thread changes the bytes during the call, as for every C function that reads an array without the GIL. A
        // caller that breaks this rule stores a sample with a wrong checksum, which readers detect.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), len) }
    }
}
