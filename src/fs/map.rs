//! Mapping of sealed files.
#![allow(unsafe_code)]

use super::MapMode;
use super::sigbus::{self, Registered};
use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions};
use rustix::ioctl;
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
    let Ok(table) = File::open("/proc/self/pagemap") else { return false };
    let pages = pages_of(map);
    scanned(&table, &pages).unwrap_or_else(|_| looked_up(&table, &pages))
}

/// The numbers of its pages.
fn pages_of(map: &[u8]) -> Range<usize> {
    let begin = map.as_ptr() as usize;
    begin / sigbus::page()..(begin + map.len()).div_ceil(sigbus::page())
}

/// As the kernel finds it in its own tables, many times as fast as page by page.
///
/// # Errors
/// A kernel before Linux 6.7, or another one, which cannot.
fn scanned(pagemap: &File, pages: &Range<usize>) -> io::Result<bool> {
    /// `struct page_region` and `struct pm_scan_arg` of linux/fs.h.
    #[repr(C)]
    #[derive(Default)]
    struct Region {
        start: u64,
        end: u64,
        categories: u64,
    }
    #[repr(C)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        vec: u64,
        vec_len: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }
    const PAGE_IS_FILE: u64 = 1 << 2;
    const PAGE_IS_PRESENT_OR_SWAPPED: u64 = 1 << 3 | 1 << 4;
    const PAGEMAP_SCAN: ioctl::Opcode = ioctl::opcode::read_write::<Scan>(b'f', 16);

    // The first page that is there, or swapped, and not of a file.
    let mut found = Region::default();
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start: (pages.start * sigbus::page()) as u64,
        end: (pages.end * sigbus::page()) as u64,
        walk_end: 0,
        vec: (&raw mut found).expose_provenance() as u64,
        vec_len: 1,
        max_pages: 1,
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT_OR_SWAPPED,
        return_mask: PAGE_IS_PRESENT_OR_SWAPPED,
    };
    // SAFETY: with this operation and flags of 0 the kernel reads and writes `scan`, which has the layout that it asks for
    // (and says how long it is), and writes `vec_len` regions to where `vec` points: that is `found`, which lives until the
    // call has returned. It changes nothing else.
    unsafe { ioctl::ioctl(pagemap, ioctl::Updater::<PAGEMAP_SCAN, Scan>::new(&mut scan)) }?;
    Ok(found.end == 0)
}

/// The same from the table of pages: proc(5), pagemap, 8 bytes for each page.
fn looked_up(pagemap: &File, pages: &Range<usize>) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    let mut entries = [0; 8 * 2048];
    pages.clone().step_by(entries.len() / 8).all(|first| {
        let entries = &mut entries[..8 * (pages.end - first).min(2048)];
        let is_as_it_was = |entry: &[u8; 8]| {
            let entry = u64::from_le_bytes(*entry);
            entry & PRESENT_OR_SWAPPED == 0 || entry & OF_A_FILE != 0
        };
        pagemap.read_exact_at(entries, first as u64 * 8).is_ok() && entries.as_chunks().0.iter().all(is_as_it_was)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What both ways say of `map`; none where the kernel has only one.
    fn both(map: &[u8]) -> io::Result<Option<bool>> {
        let table = File::open("/proc/self/pagemap")?;
        let pages = pages_of(map);
        let slow = looked_up(&table, &pages);
        assert_eq!(is_unwritten(map), slow);
        let Ok(fast) = scanned(&table, &pages) else { return Ok(None) };
        assert_eq!(fast, slow);
        Ok(Some(fast))
    }

    #[test]
    fn the_scan_and_the_table_find_the_same_pages_written() -> io::Result<()> {
        let (page, pages) = (sigbus::page(), 5000);
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let Ok(file) = tempfile::tempfile_in(&dir) else { continue };
            file.set_len((pages * page) as u64)?;
            for written in [None, Some(0), Some(pages / 2 * page + 7), Some(pages * page - 1)] {
                // SAFETY: the file is this test's own, and nobody changes it.
                let mut map = unsafe { MmapOptions::new().map_copy(&file) }?;
                let Some(unwritten) = both(&map)? else {
                    return writeln!(io::stderr(), "SKIPPED: this kernel has no PAGEMAP_SCAN");
                };
                assert!(unwritten, "untouched, {}", dir.display());
                assert_eq!(map.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 0);
                assert_eq!(both(&map)?, Some(true), "read, {}", dir.display());
                if let Some(at) = written {
                    map[at] = 1;
                    assert_eq!(both(&map)?, Some(false), "byte {at} written, {}", dir.display());
                    let apart = |range: Range<usize>| both(&map[range]);
                    assert_eq!(apart(0..page)?, Some(at >= page));
                    assert_eq!(apart((pages - 1) * page..pages * page)?, Some(at < (pages - 1) * page));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn mended_pages_keep_what_a_user_wrote() -> io::Result<()> {
        const PAGES: usize = 64;
        let page = sigbus::page();
        let file = tempfile::tempfile()?;
        file.set_len((PAGES * page) as u64)?;
        let map = map_sealed(&file, Path::new("mended"), 0..(PAGES * page) as u64, MapMode::Private)?;
        let at = |n: usize| map.as_ptr().cast_mut().wrapping_add(n * page);
        file.set_len(0)?;
        // SAFETY: the pages belong to a private, writable map, of which nobody else has a part.
        unsafe {
            (0..PAGES).rev().for_each(|n| at(n).write_volatile(n as u8 + 1)); // a fault for each
            (0..PAGES).for_each(|n| assert_eq!(at(n).read_volatile(), n as u8 + 1, "page {n}"));
        }
        Ok(())
    }

    #[test]
    fn what_cannot_be_scanned_is_an_error_and_not_an_answer() -> io::Result<()> {
        assert!(scanned(&File::open("/dev/null")?, &(0..1)).is_err());
        Ok(())
    }
}
