//! Mapping of sealed files.
#![allow(unsafe_code)]

use super::MapMode;
use bytes::Bytes;
use memmap2::MmapOptions;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Maps `range` of `file`, a sealed segment.
///
/// # Errors
/// What the system says; a range that is not inside the file.
pub fn map_sealed(file: &File, range: Range<u64>, mode: MapMode) -> io::Result<Bytes> {
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    if range.end > file.metadata()?.len() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it should be"));
    }
    let mut options = MmapOptions::new();
    options.offset(range.start).len((range.end - range.start) as usize);
    // SAFETY: a map must not change while it is borrowed as a slice. The file is a sealed segment: no process of this
    // project opens a sealed segment for writing (rule 1 of docs/design.md, kept by `segment::staging`), so nothing
    // changes it. Whoever else may write to the ring's directory can break this; on network filesystems, and where
    // READ is pread, nothing is mapped.
    match mode {
        MapMode::Shared => unsafe { options.map(file) }.map(Bytes::from_owner),
        MapMode::Private => unsafe { options.no_reserve_swap().map_copy(file) }.map(Bytes::from_owner),
    }
}
