//! Memory maps of sealed files.
#![allow(unsafe_code)]

use super::MapMode;
use super::sigbus::{self, Registered};
use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// A map that is registered with the SIGBUS handler, because its file may be truncated.
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

/// Maps `range` of `file`, a sealed segment that was opened at `path` (which is used only in
/// messages). If the file is truncated, the map reads as zeros from there on:
/// [`sigbus::is_truncated`].
///
/// # Errors
/// System errors; a range that is not inside the file.
pub fn map_sealed(file: &File, path: &Path, range: Range<u64>, mode: MapMode) -> io::Result<Bytes> {
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    if range.end > file.metadata()?.len() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than expected"));
    }
    let mut options = MmapOptions::new();
    options.offset(range.start).len((range.end - range.start) as usize);
    // SAFETY: a map must not change while it is borrowed as a slice. The file is a sealed segment:
    // no process of this project opens a sealed segment for writing (rule 1 of
    // docs/internals/protocol.md, enforced by `segment::writer`), so nothing changes it. Other users
    // with write access to the ring's directory can break this; then the bytes that are read may be
    // wrong, which checksums that are compared afterwards detect. A truncated file reads as zeros
    // (`sigbus`). On network filesystems, and with `READ: pread`, nothing is mapped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_pages_keep_what_a_user_wrote() -> io::Result<()> {
        const PAGES: usize = 64;
        let page = sigbus::page();
        let file = tempfile::tempfile()?;
        file.set_len((PAGES * page) as u64)?;
        let map = map_sealed(&file, Path::new("truncated"), 0..(PAGES * page) as u64, MapMode::Private)?;
        let at = |n: usize| map.as_ptr().cast_mut().wrapping_add(n * page);
        file.set_len(0)?;
        // SAFETY: the pages belong to a private, writable map that no other code uses.
        unsafe {
            (0..PAGES).rev().for_each(|n| at(n).write_volatile(n as u8 + 1)); // a fault for each
            (0..PAGES).for_each(|n| assert_eq!(at(n).read_volatile(), n as u8 + 1, "page {n}"));
        }
        Ok(())
    }
}
