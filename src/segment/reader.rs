//! Reading a sealed segment: mapped, or read into memory of our own. Both give the same bytes.
//!
//! A segment that was truncated, overwritten or deleted under its reader is found and reported, not trusted: its length
//! is compared before each sample, heads are always checked, large parts as VERIFY says. One that is truncated while it is
//! mapped reads as zeros ([`crate::fs::sigbus`]): nothing that was found in such a map is given away.

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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};

/// What is read first: the trailer, and in a segment of few samples the footer with it.
const TAIL: u64 = 4096;
/// Smaller samples are read even where a private map is wished for: a map costs more than their copy.
const SMALL: u64 = 64 << 10;
/// Said of a segment whose map shows zeros in place of what the file has lost.
const TRUNCATED: &str = "the segment was truncated while it was read (or the disk cannot read it)";
/// Where tensors begin in memory of our own, as in the file.
const ALIGNMENT: usize = 64;

/// How bytes come from the file to whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One map of the whole file, kept: no copy.
    Shared,
    /// A map of its own for each sample, copy on write: no copy, and a write changes this map alone. Small samples are
    /// read.
    Private,
    /// Read into memory.
    Copy,
}

/// The footer of a segment and what its file looks like from here.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The footer.
    pub footer: Footer,
    /// Bytes of the file, in this client's view.
    pub len: u64,
}

/// Reads and checks trailer and footer.
///
/// # Errors
/// No segment; a damaged or unfinished one; what the filesystem says.
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
        let limit = frame::framed_len(frame::MAX_LEN, 1 << 16) + TRAILER_LEN; // how often it is split is chance
        if len - at > limit {
            return Err(bad(FormatError::TooLarge { what: "bytes of a footer", value: len - at, limit }));
        }
        // The table of many samples: to copy it takes longer than all else.
        let is_mapped = access != Access::Copy && len - at > SMALL;
        let map = match is_mapped.then(|| file.map(at..len, MapMode::Shared)).transpose() {
            Err(error) if can_read_instead(&error) => None,
            map => map?.flatten(),
        };
        tail = map.map_or_else(|| read_range(file, path, at..len), Ok)?;
        base = at;
    }
    let footer =
        footer_in(&tail, at, base, len).map_err(|error| if is_truncated(&tail) { torn(path) } else { bad(error) })?;
    Ok(Tail { footer, len })
}

/// The footer at file offset `at` of a file of `len` bytes, in `tail`, which begins at `base`.
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

/// Whether `error` only says that the system grants no further map: then the bytes are read. Logs
/// the first such error of the process.
pub(super) fn can_read_instead(error: &FsError) -> bool {
    static WARNED: Once = Once::new();
    let is_out_of_maps = error.is_out_of_maps();
    if is_out_of_maps {
        WARNED.call_once(|| {
            tracing::warn!(
                "{error}: samples are read into memory instead; raise the sysctl vm.max_map_count or \
                 `ulimit -v`, or hold fewer samples"
            );
        });
    }
    is_out_of_maps
}

/// Bytes of the file, in memory where byte n of the file lies as far from a multiple of 64 as n does.
fn read_range(file: &dyn FileReader, path: &Path, range: Range<u64>) -> FsResult<Bytes> {
    let room = room_for(range.end - range.start).map_err(|error| FsError::new("read", path, error))?;
    aligned(room, (range.end - range.start) as usize, range.start, |out| file.read_exact_at(out, range.start))
}

/// Memory of this process for what a file claims to hold. (A file with holes may claim anything.)
fn room_for(len: u64) -> io::Result<Reservation<'static>> {
    let held = HANDED_OUT.take(len)?;
    if len > SMALL && Vec::<u8>::new().try_reserve_exact(len as usize + ALIGNMENT).is_err() {
        let why = format!("the system has no memory for the {len} bytes that are to be read at once");
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    Ok(held)
}

/// Memory with its part of the budget, which is given back when the last who has some of it lets it go.
struct Counted<T> {
    bytes: T,
    _room: Reservation<'static>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// `len` bytes that `fill` wrote, in memory that lies as far from a multiple of 64 as `at` does.
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

/// As [`Sample::decode`], with a part of the budget for what is no slice of the file.
///
/// # Errors
/// As there; no memory.
pub fn decode(bytes: &Bytes, base: u64, info: &SegmentInfo, options: ReadOptions) -> ringreel_format::Result<Sample> {
    let (head, payload) = decode_head(bytes, base, info)?;
    let copied = |part: &PartHead| joined_room(part).saturating_add(decoded_room(part, options));
    let copied = head.parts.iter().map(copied).collect();
    let stored = |_: &PartHead, records: &Pieces| stored_in(bytes, base, records);
    counted(copied, || Sample::assemble(head, &payload, base, info, options, stored))
}

/// The sample that `assemble` makes, each of whose parts takes so many bytes of memory.
fn counted(
    copied: Vec<u64>,
    assemble: impl FnOnce() -> ringreel_format::Result<Sample>,
) -> ringreel_format::Result<Sample> {
    // Each part has its own: who keeps one of them holds no memory of the others.
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

/// Most bytes of one record that is looked at as a whole: heads, footers, records of a RecordIO file.
pub fn largest_record() -> usize {
    (memory::bytes() / 16).clamp(SMALL, frame::framed_len(frame::MAX_LEN, 1 << 16)) as usize
}

/// Memory that looking at a file of `len` bytes needs, record by record: the record, its parts joined, and a copy.
pub fn record_room(len: u64) -> u64 {
    len.min(largest_record() as u64) * 3
}

/// Looks at every byte of a finished segment. What is compressed is decoded, a part to a quarter of the memory at most; for
/// the rest it needs little memory, however large the segment is. Where many threads do so, and the memory is not enough for
/// all, some wait.
///
/// # Errors
/// The first damage found; what the filesystem says.
pub fn check_whole(fs: &dyn Fs, path: &Path) -> Result<Tail> {
    /// What the parts of the file before took: those of the next one may be as large.
    static USUAL: AtomicU64 = AtomicU64::new(1 << 20);
    let most = memory::bytes() / 4;
    let mut part = USUAL.load(Ordering::Relaxed).min(most);
    loop {
        match check(fs, path, part, |input| walk::check(input, part)) {
            Err(Error::Format { source: FormatError::TooLarge { what: PART, value, .. }, .. })
                if part < most && value <= most =>
            {
                part = value.max(part * 2).min(most);
            }
            done => {
                USUAL.store(part, Ordering::Relaxed);
                return done;
            }
        }
    }
}

/// The same, but nothing is decoded: whether the bytes are those that its owner wrote.
///
/// # Errors
/// As [`check_whole`].
pub fn check_stored(fs: &dyn Fs, path: &Path) -> Result<Tail> {
    check(fs, path, 0, |input| walk::check_stored(input))
}

fn check(
    fs: &dyn Fs,
    path: &Path,
    part: u64,
    walk: impl FnOnce(StreamInput<RangeRead<'_, '_>>) -> ringreel_format::Result<Footer>,
) -> Result<Tail> {
    let file = surely(fs, path, || fs.open(path))?;
    let len = file.size()?;
    let _room = CHECKED.wait_for(record_room(len) + 2 * part); // as it is stored, and decoded
    let mut read_at = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(|error| error.source);
    let source = RangeRead::new(&mut read_at, 0..len);
    let input = StreamInput::new(source, 0).at_most(largest_record());
    let footer = walk(input).map_err(Error::format("read", path))?;
    Ok(Tail { footer, len })
}

/// The error of a segment whose map was torn.
pub fn torn(path: &Path) -> Error {
    FsError::new("read", path, io::Error::new(io::ErrorKind::UnexpectedEof, TRUNCATED)).into()
}

/// Whether it is that one.
pub fn is_of_torn_map(error: &Error) -> bool {
    matches!(error, Error::Fs { source } if source.source.get_ref().is_some_and(|why| why.to_string() == TRUNCATED))
}

/// A sealed segment, open for reading.
pub struct SegmentReader {
    file: Box<dyn FileReader>,
    path: Arc<Path>,
    tail: Tail,
    access: Access,
    whole: OnceLock<Bytes>,
    /// Nothing was read since the file was opened and asked for its length.
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

    /// How its bytes are read.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Bytes of its file.
    pub(super) fn read(&self, range: Range<u64>) -> FsResult<Bytes> {
        read_range(&*self.file, &self.path, range)
    }

    /// Its file.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Trailer and footer.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// What the segment says of itself.
    pub fn info(&self) -> &SegmentInfo {
        &self.tail.footer.info
    }

    /// Sample `ordinal`.
    ///
    /// # Errors
    /// Damage: a file that has another length than when it was opened, a checksum, a head of another sample; an ordinal
    /// beyond the last.
    pub fn sample(&self, ordinal: u64, options: ReadOptions) -> Result<Sample> {
        let bad = |source| Error::Format { path: self.path.to_path_buf(), source };
        let beyond = || Error::Sample(format!("{}: there is no sample {ordinal}", self.path.display()));
        let extent = self.tail.footer.extent(ordinal).map_err(bad)?.ok_or_else(beyond)?;
        // An NFS client that has read from a file asks the server for its length. It was asked for
        // when the file was opened, and a read notices a file that has become shorter since.
        if !self.fresh.swap(false, Ordering::Relaxed) || self.access != Access::Copy {
            self.check_len()?;
        }
        let base = extent.start;
        let sample = if extent.end - base > CHUNK {
            self.gathered(extent, options)?
        } else {
            let bytes = self.bytes(extent)?;
            let sample = decode(&bytes, base, self.info(), options);
            self.unless_torn(&[bytes], sample)?
        };
        if sample.ordinal != ordinal {
            return Err(bad(FormatError::Malformed { at: base, what: "a sample has another ordinal" }));
        }
        Ok(sample)
    }

    pub(super) fn check_len(&self) -> Result<()> {
        let have = self.file.size()?;
        if have == self.tail.len {
            return Ok(());
        }
        let (need, what) = (self.tail.len, "the segment (its length changed after it was opened)");
        let source = FormatError::Truncated { at: have.min(need), what, need, have };
        Err(Error::Format { path: self.path.to_path_buf(), source })
    }

    /// The head of sample `ordinal`: what stands where, and how long it is.
    ///
    /// # Errors
    /// As [`SegmentReader::sample`].
    pub fn head(&self, ordinal: u64) -> Result<Head> {
        let bad = |source| Error::Format { path: self.path.to_path_buf(), source };
        let beyond = || Error::Sample(format!("{}: there is no sample {ordinal}", self.path.display()));
        let extent = self.tail.footer.extent(ordinal).map_err(bad)?.ok_or_else(beyond)?;
        let base = extent.start;
        let head = read_range(&*self.file, &self.path, self.frames_at(extent)?)?;
        Ok(decode_head(&head, base, self.info()).map_err(bad)?.0)
    }

    /// A sample that may have a part in several records, which cannot be given without a copy: read part by part, each
    /// straight into memory of its own. A part in one record is mapped where that is the way.
    fn gathered(&self, extent: Range<u64>, options: ReadOptions) -> Result<Sample> {
        let bad = |source| Error::Format { path: self.path.to_path_buf(), source };
        let base = extent.start;
        let head = read_range(&*self.file, &self.path, self.frames_at(extent.clone())?)?;
        let (head, payload) = decode_head(&head, base, self.info()).map_err(bad)?;
        let of_one_record = |part: &PartHead| match &part.place {
            PartPlace::Large { records, .. } if records.count() > 1 => 0, // counted where it is read
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
        self.unless_torn(&maps, sample)
    }

    /// Refuses what was found in a map that shows zeros in place of what the file has lost. (What a page holds behind the
    /// file's end is zeros, too, and nobody notices: where something is wrong, the file is asked.)
    fn unless_torn(&self, maps: &[Bytes], sample: std::result::Result<Sample, FormatError>) -> Result<Sample> {
        let is_shorter = || self.file.size().is_ok_and(|len| len < self.tail.len);
        if maps.iter().any(|map| is_truncated(map)) || sample.is_err() && is_shorter() {
            return Err(torn(&self.path));
        }
        sample.map_err(Error::format("read", &self.path))
    }

    /// The frames of the record that begins where `extent` does.
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

    /// The whole file, mapped once and for all.
    pub(super) fn whole(&self) -> FsResult<Bytes> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let whole = self.file.map(0..self.tail.len, MapMode::Shared)?.ok_or_else(|| self.cannot_map())?;
        Ok(self.whole.get_or_init(|| whole).clone())
    }

    fn cannot_map(&self) -> FsError {
        FsError::new("map", &self.path, io::Error::other("this filesystem cannot map; use READ: pread"))
    }

    fn bytes(&self, extent: Range<u64>) -> FsResult<Bytes> {
        let mapped = match self.access {
            Access::Shared => self.whole().map(|whole| whole.slice(extent.start as usize..extent.end as usize)),
            Access::Private if extent.end - extent.start > SMALL => self.private_map(extent.clone()),
            Access::Private | Access::Copy => return read_range(&*self.file, &self.path, extent),
        };
        match mapped {
            Err(error) if can_read_instead(&error) => read_range(&*self.file, &self.path, extent),
            mapped => mapped,
        }
    }

    fn private_map(&self, extent: Range<u64>) -> FsResult<Bytes> {
        // The map begins at a page, so that alignment in memory is that in the file.
        let from = extent.start & !(SMALL - 1);
        let map = self.file.map(from..extent.end, MapMode::Private)?.ok_or_else(|| self.cannot_map())?;
        Ok(map.slice((extent.start - from) as usize..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length beyond the memory of the machine is refused before anything is allocated.
    #[test]
    fn requests_beyond_the_memory_are_refused_before_allocation() {
        assert!(room_for(1 << 20).is_ok());
        for len in [memory::bytes() + 1, u64::MAX / 2] {
            let refused = room_for(len).map(drop).map_err(|error| error.kind());
            assert_eq!(refused, Err(io::ErrorKind::OutOfMemory), "{len}");
        }
    }
}
