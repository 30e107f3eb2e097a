//! Bytes across the border: the buffers that Python reads and writes, and those that it gives us.
//!
//! The only `unsafe` of this crate. What it rests on:
//!
//! - The memory behind a [`Part`] is either a map of a sealed segment, for reading, which all samples of the segment share
//!   (a write faults), or, where the part is its `own`, writable memory that belongs to its sample (or batch) alone: a
//!   `Vec`, a private map of no file, or a copy-on-write map of one. Only the latter is ever lent for writing.
//! - It stays where it is for as long as its `Part` lives, and Python holds the `Part` while it uses the memory.
//! - Once a `Part` exists, this project reads memory that may be written into through a Rust reference only to copy it
//!   (`__reduce_ex__`), when it is asked to.
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

/// Where every part begins, so that any element type of NumPy is aligned.
const ALIGNMENT: usize = 16;

/// One part of a sample: its bytes, read-only for Python, and what they mean.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Part {
    dtype: String,
    shape: Vec<u64>,
    data: Bytes,
    /// Whether that is writable memory of this part alone.
    own: bool,
    /// Where these bytes stand in a segment, as they are.
    place: Option<(Arc<Path>, u64)>,
    /// Why this version cannot read it, where it cannot.
    unreadable: Option<String>,
}

impl Part {
    /// A part over `data`, which is memory as the module demands it. Unaligned memory is copied.
    pub fn over(dtype: String, shape: Vec<u64>, data: Bytes, own: bool) -> Part {
        let aligned = data.is_empty() || (data.as_ptr() as usize).is_multiple_of(ALIGNMENT);
        let (data, own) = if aligned { (data, own) } else { (aligned_copy(&data), true) };
        Part { dtype, shape, data, own, place: None, unreadable: None }
    }

    /// The same, of which is known in which file its bytes stand, from which byte on.
    pub fn with_place(self, place: Option<(Arc<Path>, u64)>) -> Part {
        Part { place, ..self }
    }

    /// A part without data, which a later version wrote.
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
    /// A part with a copy of `data`: for unpickling.
    #[new]
    #[pyo3(signature = (dtype, shape, data, unreadable = None))]
    fn new(dtype: String, shape: Vec<u64>, data: &Bound<'_, PyAny>, unreadable: Option<String>) -> PyResult<Part> {
        let input = Input::of(data)?;
        Ok(Part { dtype, shape, data: aligned_copy(input.bytes()), own: true, place: None, unreadable })
    }

    /// A part of `length` bytes that stand in a sealed segment, from byte `offset` on: a private map of them.
    /// `descriptor`: the segment, open for reading; it stays the caller's.
    #[staticmethod]
    fn mapped(dtype: String, shape: Vec<u64>, descriptor: RawFd, offset: u64, length: u64) -> PyResult<Part> {
        log_truncated_maps();
        if descriptor < 0 {
            return Err(PyValueError::new_err("this is no open file"));
        }
        // SAFETY: a file that the caller has open, for the time of this call. (One that is not open is refused by the
        // system, which duplicates it first.) The segment's name is for messages only.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().map(File::from)?;
        let name = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_else(|_| "a segment".into());
        let end = offset.saturating_add(length);
        Ok(Part::over(dtype, shape, map_sealed(&file, &name, offset..end, MapMode::Private)?, true))
    }

    /// The path of the segment in which these bytes stand as they are, and from which byte on; None where they do not.
    #[getter]
    fn place(&self) -> Option<(&OsStr, u64)> {
        self.place.as_ref().map(|(path, offset)| (path.as_os_str(), *offset))
    }

    /// Opens the segment that `place` names, for reading, as readers open it: no link below the ring's directory is
    /// followed. The descriptor is the caller's. Raises OSError.
    fn open(&self) -> PyResult<RawFd> {
        let none = || PyValueError::new_err("this part stands in no file as it is");
        let (path, _) = self.place.as_ref().ok_or_else(none)?;
        let ring = path.ancestors().nth(2).ok_or_else(none)?; // of ring/read.1/000000.rec
        Ok(Confined::new(ring, None).open_file(path).map_err(|error| error.source)?.into_raw_fd())
    }

    /// Why this version cannot read the part (a later version wrote it), or None.
    #[getter(unreadable)]
    fn why_unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Name of the element type: "f32", "bytes", "numpy:<M8[ns]", ...
    #[getter]
    fn dtype(&self) -> &str {
        &self.dtype
    }

    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __len__(&self) -> usize {
        self.data.len()
    }

    /// Its memory, for writing, where that is its own; else a copy.
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
        // SAFETY: Python's interpreter calls this with a view that it owns and that lives until `__releasebuffer__`.
        unsafe { fill(slf.as_any(), &slf.get().data, view, flags, Mode::ReadOnly) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

/// Memory that may be written into, of a [`Part`] or copied from it: what torch is given.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct WritablePart {
    data: Bytes,
}

#[pymethods]
impl WritablePart {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above. That the memory may be written is seen to by `Part::writable` (see the module).
        unsafe { fill(slf.as_any(), &slf.get().data, view, flags, Mode::Writable) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

#[derive(Clone, Copy)]
enum Mode {
    Writable = 0,
    ReadOnly = 1,
}

/// Describes `data` in `view`; a request for writing is refused where `mode` says so.
///
/// # Safety
/// `view` is valid for writes. `data` is owned by `owner`, stays where it is while `owner` lives, and is writable memory
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
    // SAFETY: `view` is not null and the caller's to fill. CPython puts a new reference to `owner` into it, so `owner`,
    // and with it `data`, outlives the view; neither `Bytes` nor its memory ever moves. With `ReadOnly` CPython marks
    // the view so and refuses PyBUF_WRITABLE.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, mode as c_int, flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// Bytes that Python gave, borrowed for the time of one call.
pub struct Input {
    buffer: PyBuffer<u8>,
}

impl Input {
    /// The bytes of `object`, which has a contiguous buffer of unsigned bytes.
    ///
    /// # Errors
    /// An object without such a buffer.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Input> {
        let buffer = PyBuffer::<u8>::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Input { buffer })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let len = self.buffer.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `len` contiguous bytes at `buf_ptr` alive and in place for as long as this view is
        // held (the buffer protocol's rule), and the slice borrows the view. That nobody changes them meanwhile is the
        // promise of the caller of `write`, stated in its documentation, as for every C function that works on an array
        // without the GIL: the array belongs to the call until it returns. Who breaks it stores a sample whose
        // checksum does not fit, which readers find.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), len) }
    }
}
