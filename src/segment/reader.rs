//! Reads a sealed segment: mapped, or into memory of the process. Both give the same bytes.
//!
//! A segment that was truncated, overwritten or deleted while it is read is detected and reported: its length is
//! checked before each sample, heads are always verified, and large parts as VERIFY says. A mapped file reads as
//! zeros where it was truncated ([`crate::fs::sigbus`]); samples from such a map are refused.

use crate::error::{Error, FsError, Result};
use crate::fs::sigbus::is_truncated;
use crate::fs::{FileReader, Fs, FsResult, MapMode, surely};
use crate::memory::{self, CHECKED, HANDED_OUT, Reservation};
use bytes::Bytes;
use ringreel_format::frame::{self, FrameHeader};
use ringreel_format::input::{RangeRead, StreamInput};
use ringreel_format::segment::part::{PART, ReadOptions, decoded_room, gather, joined_room, stored_in};
use ringreel_format::segment::pieces::Pieces;
use ringreel_format::segment::slice::decode_head;
use ringreel_format::segment::{CHUNK, walk};
use ringreel_format::{Footer, FormatError, Head, PartHead, PartPlace, Sample, SegmentInfo, TRAILER_LEN, Trailer};
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

/// Bytes that are read first: the trailer, and in a segment of few samples also the footer.
const TAIL: u64 = 4096;
/// Samples up to this size are read even if private maps are wanted, because a map costs more than a copy of them.
const SMALL: u64 = 64 << 10;
/// The error of a segment whose map shows zeros where the file was truncated.
const TRUNCATED: &str = "the segment was truncated while it was read (or the disk cannot read it)";
/// Alignment of tensors in the process's memory, as in the file.
const ALIGNMENT: usize = 64;

/// How bytes of the file reach the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One map of the whole file, kept open: no copy.
    Shared,
    /// A separate copy-on-write map for each sample: no copy, and a write changes only this map. Small samples are
    /// read.
    Private,
    /// Read into memory.
    Copy,
}

/// The footer of a segment, and the length of its file.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The footer.
    pub footer: Footer,
    /// Length of the file in bytes, as this client sees it.
    pub len: u64,
}

/// Reads and checks the trailer and the footer.
///
/// # Errors
/// A file that is not a segment, or is damaged or unfinished; filesystem errors.
pub fn read_tail(fs: &dyn Fs, path: &Path) -> Result<Tail> {
    tail_of(&*surely(fs, path, || fs.open(path))?, path, Access::Copy)
}

fn tail_of(file: &dyn FileReader, path: &Path, access: Access) -> Result<Tail> {
    let bad = |source| Error::Format { path: path.to_owned(), source };
    let len = file.size()?;
    if len < TRAILER_LEN {
        return Err(bad(FormatError::NotASegment { why: "it is shorter than a trailer" }));
    }
    let begin = len.saturating_sub(TAIL);
    let mut tail = read_range(file, path, begin..len)?;
    let trailer = tail.last_chunk().ok_or(FormatError::NotASegment { why: "it is shorter than a trailer" });
    let at = trailer.and_then(|trailer| Trailer::decode(trailer, len)).map_err(bad)?.footer_at;
    let mut base = begin;
    if at < begin {
        let limit = frame::framed_len(frame::MAX_LEN, 1 << 16) + TRAILER_LEN; // with room for many splits
        if len - at > limit {
            return Err(bad(FormatError::TooLarge { what: "bytes of a footer", value: len - at, limit }));
        }
        // The table of many samples takes longer to copy than everything else.
        let is_mapped = access != Access::Copy && len - at > SMALL;
        let map = match is_mapped.then(|| file.map(at..len, MapMode::Shared)).transpose() {
            Err(error) if can_read_instead(&error) => None,
            map => map?.flatten(),
        };
        tail = map.map_or_else(|| read_range(file, path, at..len), Ok)?;
        base = at;
    }
    let footer = footer_in(&tail, at, base, len)
        .map_err(|error| if is_truncated(&tail) { truncated_map(path) } else { bad(error) })?;
    Ok(Tail { footer, len })
}

/// Decodes the footer at file offset `at` of a file of `len` bytes. `tail` has the bytes from offset `base` on.
fn footer_in(tail: &Bytes, at: u64, base: u64, len: u64) -> ringreel_format::Result<Footer> {
    let record = frame::read_record(tail, (at - base) as usize, base)?;
    if base + record.next as u64 != len - TRAILER_LEN {
        return Err(FormatError::Malformed { at, what: "the footer does not end at the trailer" });
    }
    let payload = match record.payload {
        Cow::Borrowed(payload) => tail.slice_ref(payload),
        Cow::Owned(joined) => joined.into(),
    };
    Footer::decode(&payload, at)
}

/// Returns whether `error` only means that the system grants no further map, so that the bytes can be read instead.
/// Logs the first such error of the process.
pub(super) fn can_read_instead(error: &FsError) -> bool {
    static WARNED: Once = Once::new();
    let is_out_of_maps = error.is_out_of_maps();
    if is_out_of_maps {
        WARNED.call_once(|| {
            tracing::warn!(
                "{error}: reading samples into memory instead of mapping them; raise the sysctl vm.max_map_count or \
                 `ulimit -v`, or hold fewer samples"
            );
        });
    }
    is_out_of_maps
}

/// Reads bytes of the file into memory at the same distance from a multiple of 64 as in the file.
fn read_range(file: &dyn FileReader, path: &Path, range: Range<u64>) -> FsResult<Bytes> {
    let room = room_for(range.end - range.start).map_err(|error| FsError::new("read", path, error))?;
    aligned(room, (range.end - range.start) as usize, range.start, |out| file.read_exact_at(out, range.start))
}

/// Reserves memory for bytes that a file claims to have. (A sparse file may claim any length.)
fn room_for(len: u64) -> io::Result<Reservation<'static>> {
    let held = HANDED_OUT.take(len)?;
    if len > SMALL && Vec::<u8>::new().try_reserve_exact(len as usize + ALIGNMENT).is_err() {
        let why = format!("the system has no memory to read {len} bytes at once");
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    Ok(held)
}

/// Memory with its share of the budget, which is returned when the last reference is dropped.
struct Counted<T> {
    bytes: T,
    _room: Reservation<'static>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Returns `len` bytes written by `fill`, in memory at the same distance from a multiple of 64 as `at`.
fn aligned<E>(
    room: Reservation<'static>,
    len: usize,
    at: u64,
    fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
) -> std::result::Result<Bytes, E> {
    let mut buffer = vec![0u8; len + ALIGNMENT];
    let wanted = (at % ALIGNMENT as u64) as usize;
    let start = (wanted + ALIGNMENT - buffer.as_ptr() as usize % ALIGNMENT) % ALIGNMENT;
    fill(&mut buffer[start..start + len])?;
    let buffer = if len as u64 > SMALL {
        Bytes::from_owner(Counted { bytes: buffer, _room: room })
    } else {
        Bytes::from(buffer)
    };
    Ok(buffer.slice(start..start + len))
}

/// Decodes a sample as [`Sample::decode`] does, and reserves memory for the parts that are not slices of the file.
///
/// # Errors
/// As [`Sample::decode`]; insufficient memory.
pub fn decode(bytes: &Bytes, base: u64, info: &SegmentInfo, options: ReadOptions) -> ringreel_format::Result<Sample> {
    let (head, payload) = decode_head(bytes, base, info)?;
    let copied = |part: &PartHead| joined_room(part).saturating_add(decoded_room(part, options));
    let copied = head.parts.iter().map(copied).collect();
    let stored = |_: &PartHead, records: &Pieces| stored_in(bytes, base, records);
    counted(copied, || Sample::assemble(head, &payload, base, info, options, stored))
}

/// Returns the sample that `assemble` makes. `copied` has the bytes of memory that each of its parts takes.
fn counted(
    copied: Vec<u64>,
    assemble: impl FnOnce() -> ringreel_format::Result<Sample>,
) -> ringreel_format::Result<Sample> {
    // Reserved per part, so that a caller that keeps one part holds no memory of the others.
    let rooms = copied.iter().map(|len| HANDED_OUT.take(*len)).collect::<io::Result<Vec<_>>>()?;
    let mut sample = assemble()?;
    for ((part, copied), room) in sample.parts.iter_mut().zip(copied).zip(rooms) {
        if copied > SMALL
            && let Ok(bytes) = part.data().cloned()
        {
            *part = part.with_data(Bytes::from_owner(Counted { bytes, _room: room }))?;
        }
    }
    Ok(sample)
}

/// Returns the size of the largest record that is read as a whole: heads, footers, records of a RecordIO file.
pub fn largest_record() -> usize {
    (memory::bytes() / 16).clamp(SMALL, frame::framed_len(frame::MAX_LEN, 1 << 16)) as usize
}

/// Returns the memory needed to check a file of `len` bytes record by record: the record, its joined frames, and a
/// copy.
pub fn record_room(len: u64) -> u64 {
    len.min(largest_record() as u64) * 3
}

/// Checks, without decoding, whether the bytes are those that the owner wrote.
///
/// # Errors
/// As [`check`].
pub fn check_stored(fs: &dyn Fs, path: &Path) -> Result<Tail> {
    check(fs, path, 0, |input| walk::check_stored(input))
}

/// Checks a finished segment with `walk`, which decodes parts of up to `part` bytes. If many threads check segments and
/// the memory is insufficient, some wait.
///
/// # Errors
/// The first damage found; filesystem errors.
pub fn check(
    fs: &dyn Fs,
    path: &Path,
    part: u64,
    walk: impl FnOnce(StreamInput<RangeRead<'_, '_>>) -> ringreel_format::Result<Footer>,
) -> Result<Tail> {
    let file = surely(fs, path, || fs.open(path))?;
    let len = file.size()?;
    let _room = CHECKED.wait_for(record_room(len) + 2 * part); // the stored and the decoded part
    let mut read_at = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(|error| error.source);
    let source = RangeRead::new(&mut read_at, 0..len);
    let input = StreamInput::new(source, 0).at_most(largest_record());
    let footer = walk(input).map_err(Error::format("read", path))?;
    Ok(Tail { footer, len })
}

/// Returns the error of a segment whose map was truncated.
pub fn truncated_map(path: &Path) -> Error {
    FsError::new("read", path, io::Error::new(io::ErrorKind::UnexpectedEof, TRUNCATED)).into()
}

/// Returns whether `error` is the one of [`truncated_map`].
pub fn is_of_truncated_map(error: &Error) -> bool {
    matches!(error, Error::Fs { source } if source.source.get_ref().is_some_and(|why| why.to_string() == TRUNCATED))
}

/// A sealed segment, open for reading.
pub struct SegmentReader {
    file: Box<dyn FileReader>,
    path: Arc<Path>,
    tail: Tail,
    access: Access,
    whole: OnceLock<Bytes>,
    /// Whether nothing was read since the file was opened and its length was checked.
    fresh: AtomicBool,
}

impl SegmentReader {
    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// As [`read_tail`].
    pub fn open(fs: &dyn Fs, path: &Path, access: Access) -> Result<SegmentReader> {
        let file = surely(fs, path, || fs.open(path))?;
        let tail = tail_of(&*file, path, access)?;
        let fresh = AtomicBool::new(true);
        Ok(SegmentReader { file, path: path.into(), tail, access, whole: OnceLock::new(), fresh })
    }

    /// Returns how its bytes are read.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Reads bytes of its file.
    pub(super) fn read(&self, range: Range<u64>) -> FsResult<Bytes> {
        read_range(&*self.file, &self.path, range)
    }

    /// Returns the path of its file.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Returns its footer and length.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Returns the segment's description.
    pub fn info(&self) -> &SegmentInfo {
        &self.tail.footer.info
    }

    fn bad(&self, source: FormatError) -> Error {
        Error::Format { path: self.path.to_path_buf(), source }
    }

    /// Returns where sample `ordinal` is in the file.
    fn extent(&self, ordinal: u64) -> Result<Range<u64>> {
        let beyond = || Error::Sample(format!("{}: the segment has no sample {ordinal}", self.path.display()));
        self.tail.footer.extent(ordinal).map_err(|error| self.bad(error))?.ok_or_else(beyond)
    }

    /// Reads sample `ordinal`.
    ///
    /// # Errors
    /// Damage: a changed length of the file, a wrong checksum, the head of another sample; an ordinal beyond the
    /// last.
    pub fn sample(&self, ordinal: u64, options: ReadOptions) -> Result<Sample> {
        let extent = self.extent(ordinal)?;
        // An NFS client that has read from a file asks the server for its length. The length was already checked when
        // the file was opened, and a read detects a file that has become shorter since.
        if !self.fresh.swap(false, Ordering::Relaxed) || self.access != Access::Copy {
            self.check_len()?;
        }
        let base = extent.start;
        let sample = if extent.end - base > CHUNK {
            self.gathered(extent, options)?
        } else {
            let bytes = self.bytes(extent)?;
            let sample = decode(&bytes, base, self.info(), options);
            self.unless_truncated(&[bytes], sample)?
        };
        if sample.ordinal != ordinal {
            return Err(self.bad(FormatError::Malformed { at: base, what: "a sample has another ordinal" }));
        }
        Ok(sample)
    }

    pub(super) fn check_len(&self) -> Result<()> {
        let have = self.file.size()?;
        if have == self.tail.len {
            return Ok(());
        }
        let (need, what) = (self.tail.len, "the segment (its length changed after it was opened)");
        Err(self.bad(FormatError::Truncated { at: have.min(need), what, need, have }))
    }

    /// Reads the head of sample `ordinal`, which describes its parts.
    ///
    /// # Errors
    /// As [`SegmentReader::sample`].
    pub fn head(&self, ordinal: u64) -> Result<Head> {
        let extent = self.extent(ordinal)?;
        let base = extent.start;
        let head = self.read(self.frames_at(extent)?)?;
        Ok(decode_head(&head, base, self.info()).map_err(|error| self.bad(error))?.0)
    }

    /// Reads a sample that may have a part in several records, which cannot be returned without a copy: each part is
    /// read directly into separate memory. A part in one record is mapped if `access` allows it.
    fn gathered(&self, extent: Range<u64>, options: ReadOptions) -> Result<Sample> {
        let base = extent.start;
        let head = self.read(self.frames_at(extent.clone())?)?;
        let (head, payload) = decode_head(&head, base, self.info()).map_err(|error| self.bad(error))?;
        let of_one_record = |part: &PartHead| match &part.place {
            PartPlace::Large { records, .. } if records.count() > 1 => 0, // reserved when it is read
            _ => joined_room(part),
        };
        let copied = |part: &PartHead| of_one_record(part).saturating_add(decoded_room(part, options));
        let copied = head.parts.iter().map(copied).collect();
        let mut maps = Vec::new();
        let large = |part: &PartHead, records: &Pieces| {
            let frames = records.frames();
            if frames.end > extent.end {
                let (what, need) = ("a part", frames.end - frames.start);
                let have = extent.end.saturating_sub(frames.start);
                return Err(FormatError::Truncated { at: frames.start, what, need, have });
            }
            if records.count() == 1 {
                let bytes = self.bytes(frames.clone()).map_err(|error| error.source)?;
                maps.push(bytes.clone());
                stored_in(&bytes, frames.start, records)
            } else {
                if part.stored_len > options.max_part {
                    let (value, limit) = (part.stored_len, options.max_part);
                    return Err(FormatError::TooLarge { what: PART, value, limit });
                }
                let room = room_for(part.stored_len)?;
                let read_at = &mut |out: &mut [u8], at| self.file.read_exact_at(out, at).map_err(|error| error.source);
                aligned(room, part.stored_len as usize, 0, |out| gather(part, out, read_at))
            }
        };
        let sample = counted(copied, || Sample::assemble(head, &payload, base, self.info(), options, large));
        self.unless_truncated(&maps, sample)
    }

    /// Refuses a sample from a map that shows zeros where the file was truncated. (In the file's last page, bytes
    /// beyond its end are zeros without a fault, so on any error the length of the file is checked.)
    fn unless_truncated(&self, maps: &[Bytes], sample: std::result::Result<Sample, FormatError>) -> Result<Sample> {
        let is_shorter = || self.file.size().is_ok_and(|len| len < self.tail.len);
        if maps.iter().any(|map| is_truncated(map)) || sample.is_err() && is_shorter() {
            return Err(truncated_map(&self.path));
        }
        sample.map_err(Error::format("read", &self.path))
    }

    /// Returns the extent of the frames of the record at the start of `extent`.
    fn frames_at(&self, extent: Range<u64>) -> Result<Range<u64>> {
        let mut end = extent.start;
        loop {
            let mut header = [0; frame::HEADER_LEN as usize];
            self.file.read_exact_at(&mut header, end)?;
            let frame = FrameHeader::parse(&header, end).map_err(Error::format("read", &self.path))?;
            end = extent.end.min(end + frame.framed_len());
            if frame.flag == 0 || frame.flag == 3 || end == extent.end {
                return Ok(extent.start..end);
            }
        }
    }

    /// Returns the map of the whole file, which is created once.
    pub(super) fn whole(&self) -> FsResult<Bytes> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let whole = self.file.map(0..self.tail.len, MapMode::Shared)?.ok_or_else(|| self.cannot_map())?;
        Ok(self.whole.get_or_init(|| whole).clone())
    }

    fn cannot_map(&self) -> FsError {
        FsError::new("map", &self.path, io::Error::other("this filesystem cannot map files; set READ: pread"))
    }

    fn bytes(&self, extent: Range<u64>) -> FsResult<Bytes> {
        let mapped = match self.access {
            Access::Shared => self.whole().map(|whole| whole.slice(extent.start as usize..extent.end as usize)),
            Access::Private if extent.end - extent.start > SMALL => self.private_map(extent.clone()),
            Access::Private | Access::Copy => return self.read(extent),
        };
        match mapped {
            Err(error) if can_read_instead(&error) => self.read(extent),
            mapped => mapped,
        }
    }

    fn private_map(&self, extent: Range<u64>) -> FsResult<Bytes> {
        // The map begins at a page boundary, so the alignment in memory is that in the file.
        let from = extent.start & !(SMALL - 1);
        let map = self.file.map(from..extent.end, MapMode::Private)?.ok_or_else(|| self.cannot_map())?;
        Ok(map.slice((extent.start - from) as usize..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length beyond the memory of the machine is refused before any allocation.
    #[test]
    fn requests_beyond_the_memory_are_refused_before_allocation() {
        assert!(room_for(1 << 20).is_ok());
        for len in [memory::bytes() + 1, u64::MAX / 2] {
            let refused = room_for(len).map(drop).map_err(|error| error.kind());
            assert_eq!(refused, Err(io::ErrorKind::OutOfMemory), "{len}");
        }
    }
}
