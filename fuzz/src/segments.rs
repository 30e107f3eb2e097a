//! Segments: the decoders of their records, and the three ways to read them.

use crate::alloc::bounded;
use crate::model::assert_head;
use crate::repair::repaired;
use crate::source::Chunked;
use byteorder::{ByteOrder, LE};
use bytes::Bytes;
use ringreel_format::describe::{FieldKind, describe};
use ringreel_format::frame;
use ringreel_format::input::{Input, SliceInput};
use ringreel_format::recordio::Region;
use ringreel_format::segment::part::gather;
use ringreel_format::segment::pieces::Piece;
use ringreel_format::segment::salvage::{Salvage, SalvageItem, SalvagedSample};
use ringreel_format::segment::slice::decode_head;
use ringreel_format::segment::walk::{self, SegmentWalk};
use ringreel_format::{
    Codec, DType, Footer, FormatError, Head, Meta, Part, PartPlace, ReadOptions, Result, Sample, SegmentInfo,
    SegmentSlice, Shape, TRAILER_LEN,
};
use std::ops::Range;

/// Largest allocation while reading a segment, in addition to the input's length. A part's memory grows in steps of
/// this size, and the 65,536 values that a meta may have take as much. Decoded compressed parts are smaller.
pub(crate) const EXTRA: usize = 4 << 20;

/// Maximum size of decoded compressed parts.
pub(crate) const OPTIONS: ReadOptions = ReadOptions { verify: true, max_part: 1 << 20 };

/// A sample in a comparable form (a NaN in the meta equals itself).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plain {
    pub(crate) ordinal: u64,
    pub(crate) unix_ms: u64,
    pub(crate) meta: Vec<u8>,
    pub(crate) parts: Vec<PlainPart>,
}

/// A part, or the name of its error.
pub(crate) type PlainPart = std::result::Result<(DType, Shape, std::result::Result<Bytes, &'static str>), &'static str>;

pub(crate) fn plain_part(part: Result<&Part>) -> PlainPart {
    let part = part.map_err(|error| error.name())?;
    let data = part.data().cloned().map_err(|error| error.name());
    assert!(data.as_ref().is_ok_and(|data| data.len() as u64 == part.len()) || data.is_err());
    Ok((part.dtype.clone(), part.shape.clone(), data))
}

pub(crate) fn plain(sample: &Sample) -> Plain {
    let Sample { ordinal, unix_ms, meta, parts } = sample;
    let parts = parts.iter().map(|part| plain_part(Ok(part))).collect();
    Plain { ordinal: *ordinal, unix_ms: *unix_ms, meta: meta.encode().unwrap(), parts }
}

pub(crate) fn plain_salvaged(sample: &SalvagedSample) -> Plain {
    let SalvagedSample { ordinal, unix_ms, meta, parts, .. } = sample;
    let parts = parts.iter().map(|part| plain_part(part.as_ref().map_err(Clone::clone))).collect();
    Plain { ordinal: *ordinal, unix_ms: *unix_ms, meta: meta.encode().unwrap(), parts }
}

/// Segments: reading in order gives the same samples and the same error from memory and from a stream. A segment that
/// the check accepts can be read by position with the same samples, and [`Salvage`] yields all of them and skips
/// nothing. For any input, the items that [`Salvage`] yields and skips cover the file, in order.
///
/// Refused input is tested again with matching checksums ([`repaired`]), so that the checks behind them are reached.
pub fn segment(data: &[u8]) {
    if !one_segment(data)
        && let Some(data) = repaired(data)
    {
        one_segment(&data);
    }
}

fn one_segment(data: &[u8]) -> bool {
    let (bytes, len) = (Bytes::copy_from_slice(data), data.len());
    let walked = bounded(len, EXTRA, || walk_on(SegmentWalk::begin(SliceInput::new(data, 0), OPTIONS.max_part)));
    let streamed = bounded(len, EXTRA, || walk_on(SegmentWalk::new(Chunked::new(data), OPTIONS.max_part)));
    assert_eq!(walked, streamed, "memory and stream differ");
    let checked = bounded(len, EXTRA, || walk::check(SliceInput::new(data, 0), OPTIONS.max_part));
    let fine =
        walked.error.is_none() && walked.samples.iter().flat_map(|sample| &sample.parts).all(|part| part.is_ok());
    assert_eq!(fine, checked.is_ok(), "{checked:?} {walked:?}");
    let by_position = bounded(len, EXTRA, || read_by_position(&bytes));
    let salvaged = bounded(len, EXTRA, || Salvage::new(bytes.clone(), OPTIONS).collect::<Vec<_>>());
    assert_covers(&bytes, &salvaged);
    let Ok(footer) = checked else { return false };
    let header = SegmentWalk::begin(SliceInput::new(data, 0), 0).unwrap().info().encode_header().unwrap();
    assert_eq!(footer.info.encode_header().unwrap(), header, "header and footer differ");
    let read: Vec<_> = by_position.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(footer.count, read.len() as u64);
    assert_eq!(read, walked.samples, "reading by position and in order differ");
    let saved = salvaged.iter().map(|found| match found {
        SalvageItem::Sample(sample) => plain_salvaged(sample),
        SalvageItem::Skipped(region) => unreachable!("{region:?} of a whole segment was skipped"),
    });
    assert!(saved.eq(walked.samples), "salvage and the walk differ");
    true
}

#[derive(Debug, PartialEq)]
struct Walked {
    samples: Vec<Plain>,
    error: Option<String>,
}

fn walk_on(walk: Result<SegmentWalk<impl Input>>) -> Walked {
    let mut samples = Vec::new();
    let mut walk = match walk {
        Ok(walk) => walk,
        Err(error) => return Walked { samples, error: Some(error.to_string()) },
    };
    let error = loop {
        match walk.next() {
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
            Ok(Some(sample)) => {
                let Head { ordinal, unix_ms, meta, parts, .. } = sample.head;
                let parts =
                    (0..parts.len()).map(|n| plain_part(sample.part(n).as_ref().map_err(Clone::clone))).collect();
                samples.push(Plain { ordinal: *ordinal, unix_ms: *unix_ms, meta: meta.encode().unwrap(), parts });
            }
        }
    };
    Walked { samples, error }
}

/// Reads each sample of the footer's table from its own bytes, and again part by part, as from a file.
fn read_by_position(bytes: &Bytes) -> Option<Vec<Result<Plain>>> {
    let segment = SegmentSlice::open(bytes.clone()).ok()?;
    let footer = segment.footer();
    assert_eq!(footer.count, footer.offsets().count() as u64);
    assert!(footer.extent(footer.count).unwrap().is_none());
    let one = |ordinal: u64| {
        let extent = footer.extent(ordinal)?.unwrap();
        let bytes = bytes.slice(extent.start as usize..extent.end as usize);
        let sample = Sample::decode(&bytes, extent.start, &footer.info, OPTIONS);
        let gathered = gather_sample(&bytes, extent.start, &footer.info);
        match (&sample, &gathered) {
            (Ok(sample), Ok(gathered)) => assert_eq!(plain(sample), plain(gathered)),
            (Err(_), Err(_)) => {}
            // In one frame, the checksum must detect a magic number inside a payload; in several, the framing refuses
            // it.
            (Ok(_), Err(error)) => assert_eq!(error.name(), "UnescapedMagic"),
            (Err(error), Ok(_)) => unreachable!("{error}, and yet it can be gathered"),
        }
        let sample = sample?;
        let another = || FormatError::Malformed { at: extent.start, what: "a sample has another ordinal" };
        if sample.ordinal == ordinal { Ok(plain(&sample)) } else { Err(another()) }
    };
    Some((0..footer.count).map(one).collect())
}

/// Reads the sample in `bytes`, which begin at `base`, with its large parts as from a file.
fn gather_sample(bytes: &Bytes, base: u64, info: &SegmentInfo) -> Result<Sample> {
    let (head, payload) = decode_head(bytes, base, info)?;
    Sample::assemble(head, &payload, base, info, OPTIONS, |part, _| {
        let mut read_at = |out: &mut [u8], at: u64| {
            let from = bytes.get((at - base) as usize..).and_then(|rest| rest.get(..out.len()));
            out.copy_from_slice(from.ok_or(std::io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        if part.stored_len > bytes.len() as u64 {
            return Err(FormatError::Input("a part is larger than its sample".to_owned()));
        }
        let mut out = vec![0; part.stored_len as usize];
        gather(part, &mut out, &mut read_at)?;
        Ok(out.into())
    })
}

/// Checks that the items cover the file: the header, then samples, regions and records of later versions, each
/// beginning at the end of the previous one; then footer and trailer.
pub(crate) fn assert_covers(bytes: &Bytes, found: &[SalvageItem]) {
    let len = bytes.len() as u64;
    let info = Salvage::new(bytes.clone(), OPTIONS).info().cloned();
    let Some(info) = info else {
        assert!(matches!(found, [SalvageItem::Skipped(Region { begin: 0, end, .. })] if *end == len), "{found:?}");
        return;
    };
    let (mut pos, mut sample_end, mut last_ordinal) = (0, 0, None);
    for (n, found) in found.iter().enumerate() {
        match found {
            SalvageItem::Sample(sample) => {
                step_to(bytes, &info, &mut pos, sample.at);
                assert!(last_ordinal < Some(sample.ordinal), "{sample:?} is not above {last_ordinal:?}");
                let rest = bytes.slice(sample.at as usize..);
                let (head, _) = decode_head(&rest, sample.at, &info).unwrap();
                (last_ordinal, sample_end) = (Some(sample.ordinal), head.end.min(len));
                pos = sample_end;
                assert_eq!(sample.parts.len(), head.parts.len());
            }
            // A region of a part or of padding lies in the sample before it.
            SalvageItem::Skipped(region) if region.begin < sample_end => {
                assert!(region.begin < region.end && region.end <= sample_end, "{region:?} {sample_end}");
            }
            SalvageItem::Skipped(region) => {
                assert!(region.begin < region.end || (region.begin, region.end) == (len, len), "{n}: {region:?}");
                assert!(region.end.is_multiple_of(4) || region.end == len, "{region:?}");
                let ended = step_to(bytes, &info, &mut pos, region.begin);
                let mut inside = (region.begin + 4..region.end).step_by(4);
                let lost = inside.find(|at| !ended && stands_at(bytes, &info, *at, last_ordinal));
                assert_eq!(lost, None, "{region:?} omits what is stored there");
                pos = region.end;
            }
        }
    }
    step_to(bytes, &info, &mut pos, len);
    let regions = found.iter().filter_map(|found| match found {
        SalvageItem::Skipped(region) => Some(region.begin..region.end),
        SalvageItem::Sample(_) => None,
    });
    let mut last_end = 0;
    for region in regions {
        assert!(last_end <= region.start && region.end <= len, "{region:?} begins before {last_end}");
        last_end = region.end;
    }
}

/// Whether `at` has a head above the last ordinal, or a footer.
fn stands_at(bytes: &[u8], info: &SegmentInfo, at: u64, last_ordinal: Option<u64>) -> bool {
    let Ok(record) = frame::read_strict(bytes, at as usize, 0) else { return false };
    let footer = || Footer::decode(&Bytes::copy_from_slice(&record.payload), at);
    match Head::decode(&record.payload, at..record.next as u64, info) {
        Ok(head) => last_ordinal < Some(head.ordinal),
        Err(_) => footer().is_ok_and(|footer| footer.info.id == info.id),
    }
}

/// Skips the header, records of later versions, footer and trailer, up to `to`. Returns whether a footer was among
/// them, because nothing is read behind it.
fn step_to(bytes: &[u8], info: &SegmentInfo, pos: &mut u64, to: u64) -> bool {
    let mut ended = false;
    while *pos < to {
        let record = frame::read_strict(bytes, *pos as usize, 0).unwrap();
        let payload = &record.payload;
        let is_header = *pos == 0 && SegmentInfo::decode_header(payload).is_ok();
        let is_trailer = to == bytes.len() as u64 && to - *pos == TRAILER_LEN;
        if !is_header && !is_trailer {
            assert_eq!(LE::read_u32(payload), bound_crc(info, *pos, &payload[4..]), "a record at {pos} is omitted");
            assert!(payload[4] != b'S', "a sample at {pos} is omitted");
            ended |= payload[4] == b'F';
        }
        *pos = record.next as u64;
    }
    assert_eq!(*pos, to);
    ended
}

/// Section 10 of SPEC.md.
pub(crate) fn bound_crc(info: &SegmentInfo, at: u64, body: &[u8]) -> u32 {
    crc32fast::hash(&[&info.id.0, &at.to_le_bytes()[..], body].concat())
}

/// Heads, and headers. The input is: length of the segment info, u16; offset of the head in steps of 4 bytes, u16; the
/// segment info; the head's bytes after its checksum. The checksums are made to match.
///
/// Re-encoding an accepted header gives the same bytes. A head is accepted or refused as by a simple model of section 6
/// of SPEC.md, with the same contents. Its parts are where section 7 puts them, and neither a byte less nor a byte more
/// is accepted.
pub fn head(data: &[u8]) {
    let Some((fixed, rest)) = data.split_at_checked(4) else { return };
    let Some((info, body)) = rest.split_at_checked(usize::from(LE::read_u16(fixed))) else { return };
    let at = u64::from(LE::read_u16(&fixed[2..])) * 4;
    let mut header = [b"RINGREEL\x01\0\0\0\0\0\0\0", info].concat();
    let crc = crc32fast::hash(&[&header[..12], info].concat());
    LE::write_u32(&mut header[12..16], crc);
    let Ok(info) = bounded(header.len(), EXTRA, || SegmentInfo::decode_header(&header)) else { return };
    assert_eq!(info.encode_header().unwrap(), header, "written again, a header differs");
    let payload = with_crc(&info, at, body);
    let frames = at..at + frame::framed_len(payload.len() as u64, 0);
    let head = bounded(payload.len(), EXTRA, || Head::decode(&payload, frames.clone(), &info));
    assert_head(&payload, frames.end, &info, head.as_ref().ok());
    assert_described(&payload, frames.clone(), &info, head.is_ok());
    let Ok(head) = head else { return };
    let shorter = with_crc(&info, at, &body[..body.len() - 1]);
    assert!(Head::decode(&shorter, frames.clone(), &info).is_err(), "without its last byte");
    let longer = with_crc(&info, at, &[body, &[0]].concat());
    assert!(Head::decode(&longer, frames.clone(), &info).is_err(), "with a byte more");
    assert_places(&head, payload.len(), frames.end, info.schema.parts.len());
}

/// Checks that the description of a record covers all its bytes, and has an error exactly if the decoder refuses the
/// record.
fn assert_described(payload: &[u8], frames: Range<u64>, info: &SegmentInfo, is_accepted: bool) {
    let Some(fields) = describe(payload, frames, Some(info)) else { return assert!(!is_accepted) };
    assert!(fields.iter().map(|field| field.bytes.len()).sum::<usize>() == payload.len(), "{fields:?}");
    let is_right = fields.iter().all(|field| field.error.is_none() && field.kind != FieldKind::Leftover);
    let is_later = payload[4] == b'F' && payload[6] != 0; // a later minor version may add fields
    assert!(is_right == is_accepted || is_later, "{fields:?}");
}

fn with_crc(info: &SegmentInfo, at: u64, body: &[u8]) -> Vec<u8> {
    [&bound_crc(info, at, body).to_le_bytes(), body].concat()
}

/// Section 7 of SPEC.md: the position of each record of the large parts.
fn assert_places(head: &Head, payload: usize, mut end: u64, parts: usize) {
    const CHUNK: u64 = 1 << 28;
    assert_eq!(head.parts.len(), parts);
    let mut inline_end = 0;
    for part in &head.parts {
        let decoded = part.decoded_len().unwrap();
        assert!(part.codec != Codec::Plain || part.stored_len == decoded);
        match &part.place {
            PartPlace::Inline(range) => {
                assert!(inline_end <= range.start && range.end <= payload && range.len() as u64 == part.stored_len);
                inline_end = range.end;
            }
            PartPlace::Large { records, .. } => {
                assert_eq!(records.count(), part.stored_len.div_ceil(CHUNK).max(1));
                assert_eq!(records.iter().map(|piece| piece.len).sum::<u64>(), part.stored_len);
                for (n, Piece { frames, len }) in records.iter().enumerate() {
                    assert!(len == CHUNK || n as u64 + 1 == records.count());
                    let gap = frames.start - end;
                    assert!(
                        (frames.start + 8).is_multiple_of(64)
                            && gap.is_multiple_of(4)
                            && (gap == 0 || (8..=68).contains(&gap))
                    );
                    assert_eq!(gap == 0, (end + 8).is_multiple_of(64));
                    let splits = (frames.end - frames.start - frame::framed_len(len, 0)) / 4;
                    assert!(splits <= len / 4);
                    end = frames.end;
                }
            }
        }
    }
    assert!(head.end == end && end <= i64::MAX as u64);
}

/// Footers and trailers. The input is: offset of the footer in steps of 4 bytes, u16; the footer's bytes after its
/// checksum. The checksum is made to match.
///
/// In an accepted footer, each field is where section 8 of SPEC.md puts it; re-encoding the segment info gives the same
/// bytes; and the table returns an extent or an error for each ordinal.
pub fn footer(data: &[u8]) {
    let Some((at, body)) = data.split_at_checked(2) else { return };
    let at = u64::from(LE::read_u16(at)) * 4;
    let count = body.get(4..12).map_or(0, LE::read_u64);
    let info_at = count.saturating_mul(8).saturating_add(24);
    let payload = [&[0; 4], body].concat();
    let id = payload.get(info_at.min(usize::MAX as u64) as usize..).and_then(|rest| rest.get(..16)).unwrap_or(&[0; 16]);
    let crc = crc32fast::hash(&[id, &at.to_le_bytes(), body].concat());
    let payload = Bytes::from([&crc.to_le_bytes(), body].concat());
    let Ok(footer) = bounded(payload.len(), EXTRA, || Footer::decode(&payload, at)) else { return };
    assert_described(&payload, at..at, &footer.info, true);
    assert_eq!((footer.at, footer.check, footer.count), (at, crc, count));
    assert_eq!((payload[4], footer.heads_crc), (b'F', LE::read_u32(&payload[16..])));
    let table: Vec<u64> = payload[24..info_at as usize].chunks(8).map(LE::read_u64).collect();
    assert!(footer.offsets().eq(table.iter().copied()));
    let info = footer.info.encode_header().unwrap();
    assert!(payload[info_at as usize..].starts_with(&info[16..]), "written again, the segment info differs");
    assert!(payload[6] != 0 || payload.len() == info_at as usize + info.len() - 16);
    for ordinal in 0..count {
        let begin = table[ordinal as usize];
        let end = table.get(ordinal as usize + 1).copied().unwrap_or(at);
        match footer.extent(ordinal) {
            Ok(extent) => assert!(extent == Some(begin..end) && begin < end && end <= at && begin.is_multiple_of(4)),
            Err(_) => assert!(begin >= end || end > at || !begin.is_multiple_of(4)),
        }
    }
    assert!(footer.extent(count).unwrap().is_none() && footer.extent(u64::MAX).unwrap().is_none());
}

/// Meta: re-encoding accepted input gives the same bytes.
pub fn meta(data: &[u8]) {
    if let Ok(meta) = bounded(data.len(), EXTRA, || Meta::decode(data, 0)) {
        assert_eq!(meta.encode().unwrap(), data);
    }
}
