//! Plain RecordIO: frames, and resync behind damage.

use crate::alloc::bounded;
use crate::source::Chunked;
use byteorder::{ByteOrder, LE};
use ringreel_format::frame::{self, MAGIC, MAX_LEN};
use ringreel_format::input::{Input, STEP};
use ringreel_format::recordio::{RecordReader, ResyncItem, ResyncReader};
use ringreel_format::{FormatError, Result};

/// Largest allocation while reading records, in addition to the input's length: one increment of a stream's buffer.
const EXTRA: usize = STEP;

/// A record as the model reads it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plain {
    pub(crate) at: usize,
    pub(crate) payload: Vec<u8>,
    pub(crate) splits: u64,
    pub(crate) end: usize,
}

/// The name and the position of an error, as in section 19 of SPEC.md.
pub(crate) type Wrong = (&'static str, Option<u64>);

pub(crate) fn wrong(error: &FormatError) -> Wrong {
    (error.name(), error.at())
}

/// Section 2 of SPEC.md in its simplest form: reads the record at `at`.
pub(crate) fn model(data: &[u8], at: usize, strict: bool) -> std::result::Result<Plain, Wrong> {
    let (mut payload, mut splits, mut pos) = (Vec::new(), 0, at);
    loop {
        let (left, here) = (&data[pos..], Some(pos as u64));
        if left.len() < 8 {
            return Err(("Truncated", here));
        }
        if LE::read_u32(left) != MAGIC {
            return Err(("BadMagic", here));
        }
        let (flag, len) = (left[7] >> 5, (LE::read_u32(&left[4..]) & 0x1fff_ffff) as usize);
        if flag > 3 {
            return Err(("BadFlag", here));
        }
        if (flag == 1 || flag == 2) && len % 4 != 0 {
            return Err(("UnalignedPart", here));
        }
        if (flag < 2) != (pos == at) {
            return Err(("BadFlag", here));
        }
        if pos > at {
            payload.extend_from_slice(&MAGIC.to_le_bytes());
            splits += 1;
        }
        if (payload.len() + len) as u64 > MAX_LEN {
            return Err(("TooLarge", None));
        }
        let end = 8 + len.next_multiple_of(4);
        if end > left.len() {
            return Err(("Truncated", here));
        }
        if left[8 + len..end].iter().any(|byte| *byte != 0) {
            return Err(("DirtyPadding", Some((pos + 8 + len) as u64)));
        }
        let magic = (8..(8 + len).saturating_sub(3)).step_by(4).find(|n| LE::read_u32(&left[*n..]) == MAGIC);
        if let Some(n) = magic.filter(|_| strict) {
            return Err(("UnescapedMagic", Some((pos + n) as u64)));
        }
        payload.extend_from_slice(&left[8..8 + len]);
        pos += end;
        if flag == 0 || flag == 3 {
            return Ok(Plain { at, payload, splits, end: pos });
        }
    }
}

/// Reads all records up to the end or to the first error.
pub(crate) fn model_all(data: &[u8]) -> (Vec<Plain>, Option<Wrong>) {
    let (mut records, mut pos) = (Vec::new(), 0);
    while pos < data.len() {
        match model(data, pos, true) {
            Ok(record) => {
                pos = record.end;
                records.push(record);
            }
            Err(wrong) => return (records, Some(wrong)),
        }
    }
    (records, None)
}

/// Frames: the reader over bytes, the reader over a stream, reading at a position, and the model above give the same
/// records and the same error at the same byte. Re-encoding an accepted record gives the same bytes.
pub fn frame(data: &[u8]) {
    let (want, error) = model_all(data);
    bounded(data.len(), EXTRA, || compare(RecordReader::over(data), &want, error));
    bounded(data.len(), EXTRA, || compare(RecordReader::new(Chunked::new(data)), &want, error));
    let stop = want.last().map_or(0, |record| record.end);
    for record in &want {
        for read in [frame::read_strict, frame::read_record] {
            let joined = bounded(data.len(), EXTRA, || read(data, record.at, 0)).unwrap();
            assert_eq!(
                (&joined.payload[..], joined.splits, joined.next),
                (&record.payload[..], record.splits, record.end)
            );
        }
        let mut again = Vec::new();
        frame::write_record(&mut again, &record.payload).unwrap();
        assert_eq!(again, data[record.at..record.end], "written again, the record at {} differs", record.at);
    }
    // At the error, and at the three bytes behind it, where no frame can begin.
    for pos in (stop..=data.len()).take(4) {
        for (strict, read) in [(true, frame::read_strict as fn(_, _, _) -> _), (false, frame::read_record)] {
            let read: Result<frame::JoinedRecord<'_>> = bounded(data.len(), EXTRA, || read(data, pos, 0));
            match (read, model(data, pos, strict)) {
                (Ok(read), Ok(want)) => {
                    assert_eq!((&read.payload[..], read.splits, read.next), (&want.payload[..], want.splits, want.end));
                }
                (read, want) => assert_eq!(read.err().as_ref().map(wrong), want.err(), "at {pos}, strict: {strict}"),
            }
        }
    }
}

fn compare(mut reader: RecordReader<impl Input>, want: &[Plain], error: Option<Wrong>) {
    for want in want {
        let read = reader.next().unwrap().unwrap();
        assert_eq!((read.at as usize, read.end as usize, read.splits), (want.at, want.end, want.splits));
        assert_eq!(read.payload, want.payload);
        assert_eq!(reader.position() as usize, want.end);
    }
    let stop = want.last().map_or(0, |record| record.end as u64);
    for _ in 0..2 {
        match reader.next() {
            Ok(None) => assert_eq!(error, None),
            Ok(Some(record)) => assert_eq!(error, None, "a record at {}", record.at),
            Err(found) => assert_eq!(Some(wrong(&found)), error),
        }
        assert_eq!(reader.position(), stop, "the reader does not stay at the error");
    }
}

/// A record, or a skipped region with the error at its beginning.
#[derive(Debug)]
enum Piece {
    Record(Plain),
    Skipped(usize, usize, Wrong),
}

/// Resync in its simplest form: tries to read a record at each multiple of four behind an error.
fn model_resync(data: &[u8]) -> Vec<Piece> {
    let (mut pieces, mut pos) = (Vec::new(), 0);
    while pos < data.len() {
        match model(data, pos, true) {
            Ok(record) => {
                pos = record.end;
                pieces.push(Piece::Record(record));
            }
            Err(wrong) => {
                let begin = pos;
                let is_magic = |pos: &usize| data[*pos..].len() >= 4 && LE::read_u32(&data[*pos..]) == MAGIC;
                let mut places = (begin + 4..data.len()).step_by(4).filter(is_magic);
                pos = places.find(|pos| model(data, *pos, true).is_ok()).unwrap_or(data.len());
                pieces.push(Piece::Skipped(begin, pos, wrong));
            }
        }
    }
    pieces
}

/// Resync: records and skipped regions cover the input, in order and without overlap; they equal those of the model,
/// from memory and from a stream; and if strict reading finds no error, nothing is skipped.
pub fn resync(data: &[u8]) {
    let want = model_resync(data);
    bounded(data.len(), EXTRA, || compare_resync(ResyncReader::over(data), data, &want));
    bounded(data.len(), EXTRA, || compare_resync(ResyncReader::new(Chunked::new(data)), data, &want));
    let skips = want.iter().filter(|piece| matches!(piece, Piece::Skipped(..))).count();
    let (records, error) = model_all(data);
    assert_eq!(error.is_none(), skips == 0);
    assert!(error.is_some() || records.len() == want.len());
}

fn compare_resync(mut reader: ResyncReader<impl Input>, data: &[u8], want: &[Piece]) {
    let (mut pos, mut skipped) = (0, false);
    for want in want {
        assert_eq!(reader.position(), pos);
        match (reader.next().unwrap().unwrap(), want) {
            (ResyncItem::Record(read), Piece::Record(want)) => {
                assert_eq!((read.at, &read.payload, read.splits), (pos, &&want.payload[..], want.splits));
                let strict = frame::read_strict(data, read.at as usize, 0).unwrap();
                assert_eq!((&strict.payload[..], strict.next as u64), (read.payload, read.end));
                (pos, skipped) = (read.end, false);
            }
            (ResyncItem::Skipped(region), Piece::Skipped(begin, end, why)) => {
                assert!(region.begin < region.end && !skipped, "{region:?}");
                assert!(region.end.is_multiple_of(4) || region.end == data.len() as u64, "{region:?}");
                assert_eq!((region.begin, *begin as u64, region.end), (pos, pos, *end as u64));
                assert_eq!(wrong(&region.why), *why);
                (pos, skipped) = (region.end, true);
            }
            (found, want) => unreachable!("{found:?} where {want:?} is"),
        }
    }
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none());
    assert_eq!(pos, data.len() as u64, "not all of the input is covered");
}
