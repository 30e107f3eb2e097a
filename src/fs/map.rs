//! Mapping of sealed files.
#![allow(unsafe_code)]

use super::MapMode;
use super::sigbus::{self, Registered};
use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A map that is in the table of those whose files may shrink.
struct Guarded<M> {
    _registered: Registered, // before the map, so that it is dropped first
    map: M,
}

impl<M: AsRef<[u8]>> Guarded<M> {
    fn new(map: M, writable: bool, path: &Path) -> io::Result<Guarded<M>> {
        let bytes = map.as_ref();
        let registered = sigbus::register(bytes.as_ptr() as usize, bytes.len(), writable, path)?;
        Ok(Guarded { _registered: registered, map })
    }
}

impl<M: AsRef<[u8]>> AsRef<[u8]> for Guarded<M> {
    fn as_ref(&self) -> &[u8] {
        self.map.as_ref()
    }
}

/// Maps `range` of `file`, a sealed segment that was opened at `path` (which is for messages only). If somebody
/// truncates the file, the map reads as zeros from there on: [`sigbus::is_torn`].
///
/// # Errors
/// What the system says; a range that is not inside the file.
pub fn map_sealed(file: &File, path: &Path, range: Range<u64>, mode: MapMode) -> io::Result<Bytes> {
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
    // changes it. Whoever else may write to the ring's directory can break this; then what is read may be wrong, and is
    // found so where checksums are compared afterwards. A file that is truncated reads as zeros (`sigbus`). On network
    // filesystems, and where READ is pread, nothing is mapped.
    match mode {
        MapMode::Shared => {
            let map: Mmap = unsafe { options.map(file) }?;
            Ok(Bytes::from_owner(Guarded::new(map, false, path)?))
        }
        MapMode::Private => {
            let map: MmapMut = unsafe { options.no_reserve_swap().map_copy(file) }?;
            Ok(Bytes::from_owner(Guarded::new(map, true, path)?))
        }
    }
}

/// Whether nobody has written to `map`, a private map of a file: each of its pages is the file's, or was not looked at
/// yet. (Whoever writes gets a copy of the page, which belongs to no file.) False, too, where the system does not tell.
pub fn is_unwritten(map: &[u8]) -> bool {
    // proc(5), pagemap: 8 bytes for each page.
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    let begin = map.as_ptr() as usize;
    let pages = begin / sigbus::page()..(begin + map.len()).div_ceil(sigbus::page());
    let Ok(table) = File::open("/proc/self/pagemap") else { return false };
    let mut entries = [0; 8 * 2048];
    pages.clone().step_by(entries.len() / 8).all(|first| {
        let entries = &mut entries[..8 * (pages.end - first).min(2048)];
        let is_as_it_was = |entry: &[u8; 8]| {
            let entry = u64::from_le_bytes(*entry);
            entry & PRESENT_OR_SWAPPED == 0 || entry & OF_A_FILE != 0
        };
        table.read_exact_at(entries, first as u64 * 8).is_ok() && entries.as_chunks().0.iter().all(is_as_it_was)
    })
}
