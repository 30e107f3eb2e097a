//! RecordIO framing, byte for byte as dmlc-core and MXNet write it (`dmlc/recordio.h`).
//!
//! `magic 0xced7230a (LE u32) | cflag << 29 | length (LE u32) | payload | zero padding to 4`. A payload that contains
//! the magic at a multiple of four is split there into parts with cflag 1 (first), 2 (middle) and 3 (last). Those
//! four bytes are dropped, and the reader puts them back. An unsplit record has cflag 0.

use crate::error::{FormatError, Result};
use byteorder::{ByteOrder, LE};
use std::borrow::Cow;
use std::io::Write;

/// First four bytes of every frame, as a little-endian number.
pub const MAGIC: u32 = 0xced7_230a;
/// Bytes before a frame's payload.
pub const HEADER_LEN: u64 = 8;
/// Most bytes in one frame, and in one record.
pub const MAX_LEN: u64 = (1 << 29) - 1;

/// Returns the bytes of zero padding after `len` bytes.
#[inline]
pub fn padding(len: u64) -> u64 {
    len.wrapping_neg() & 3
}

/// Returns the bytes that a record of `len` payload bytes takes if it is split `splits` times.
#[inline]
pub fn framed_len(len: u64, splits: u64) -> u64 {
    HEADER_LEN + len + padding(len) + 4 * splits
}

/// Returns the offset of the first magic in `bytes` at a multiple of four, from `from` on. `from` is a multiple of
/// four.
pub fn next_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let words = bytes.get(from..)?.as_chunks::<4>().0;
    // Has no branch in the inner loop, so that the compiler can vectorise it.
    let holds = |block: &[[u8; 4]]| block.iter().fold(false, |any, word| any | (u32::from_le_bytes(*word) == MAGIC));
    let block = words.chunks(256).position(holds)? * 256;
    let word = words[block..].iter().position(|word| u32::from_le_bytes(*word) == MAGIC)?;
    Some(from + (block + word) * 4)
}

/// Returns the offsets of the magic in `payload` at multiples of four, ascending: where the record is to be split.
pub fn split_points(payload: &[u8]) -> impl Iterator<Item = usize> {
    magics(payload, 0)
}

/// Returns the offsets of the magic in `bytes` at multiples of four from `from` on, ascending. `from` is a multiple
/// of four.
pub(crate) fn magics(bytes: &[u8], mut from: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let found = next_magic(bytes, from)?;
        from = found + 4;
        Some(found)
    })
}

fn header(flag: u32, len: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    LE::write_u32(&mut bytes[..4], MAGIC);
    LE::write_u32(&mut bytes[4..], flag << 29 | len as u32);
    bytes
}

/// Writes one record, split where necessary. Returns the number of bytes written.
///
/// # Errors
/// A payload over [`MAX_LEN`]; errors of the sink.
pub fn write_record(sink: &mut (impl Write + ?Sized), payload: &[u8]) -> Result<u64> {
    write_split(sink, payload, split_points(payload))
}

/// Writes a record as [`write_record`] does. Its payload follows [`HEADER_LEN`] bytes of `framed`, which receive the
/// header. Needs one write, unless the record has to be split.
pub(crate) fn write_framed(sink: &mut (impl Write + ?Sized), framed: &mut Vec<u8>) -> Result<u64> {
    if !frame_whole(framed) {
        return write_record(sink, &framed[HEADER_LEN as usize..]);
    }
    sink.write_all(framed)?;
    Ok(framed.len() as u64)
}

/// Turns the payload that follows [`HEADER_LEN`] bytes of `framed` into one whole frame. Returns false, and changes
/// nothing, if the record has to be split or is too long.
pub(crate) fn frame_whole(framed: &mut Vec<u8>) -> bool {
    let payload = &framed[HEADER_LEN as usize..];
    let len = payload.len();
    if len as u64 > MAX_LEN || next_magic(payload, 0).is_some() {
        return false;
    }
    framed[..HEADER_LEN as usize].copy_from_slice(&header(0, len));
    framed.resize(framed.len() + padding(len as u64) as usize, 0);
    true
}

/// Writes one record for which [`split_points`] finds no split.
///
/// # Errors
/// As [`write_record`].
pub(crate) fn write_unsplit(sink: &mut (impl Write + ?Sized), payload: &[u8]) -> Result<u64> {
    write_split(sink, payload, std::iter::empty())
}

fn write_split(sink: &mut (impl Write + ?Sized), payload: &[u8], points: impl Iterator<Item = usize>) -> Result<u64> {
    let len = payload.len() as u64;
    if len > MAX_LEN {
        return Err(FormatError::TooLarge { what: "bytes of a record", value: len, limit: MAX_LEN });
    }
    let (mut begin, mut splits) = (0, 0);
    for end in points {
        sink.write_all(&header(if splits == 0 { 1 } else { 2 }, end - begin))?;
        sink.write_all(&payload[begin..end])?;
        begin = end + 4;
        splits += 1;
    }
    sink.write_all(&header(if splits == 0 { 0 } else { 3 }, payload.len() - begin))?;
    sink.write_all(&payload[begin..])?;
    if padding(len) > 0 {
        sink.write_all(&[0; 3][..padding(len) as usize])?;
    }
    Ok(framed_len(len, splits))
}

/// Writes a record of `len` zeros. `len` is less than 64 and a multiple of 4.
///
/// # Errors
/// Errors of the sink.
pub(crate) fn write_zeros(sink: &mut (impl Write + ?Sized), len: usize) -> Result<u64> {
    let mut framed = [0; 72];
    framed[..8].copy_from_slice(&header(0, len));
    sink.write_all(&framed[..8 + len])?;
    Ok(8 + len as u64)
}

/// The header of a frame, checked as far as possible without the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// 0 whole, 1 first, 2 middle, 3 last.
    pub flag: u8,
    /// Bytes of payload.
    pub len: u64,
}

impl FrameHeader {
    /// Parses the header in the eight `bytes` at file offset `at`.
    ///
    /// # Errors
    /// No magic; a flag over 3; a part other than the last whose length is not a multiple of four.
    #[inline]
    pub fn parse(bytes: &[u8; 8], at: u64) -> Result<FrameHeader> {
        let found = LE::read_u32(&bytes[..4]);
        if found != MAGIC {
            return Err(FormatError::BadMagic { at, found });
        }
        let lrec = LE::read_u32(&bytes[4..]);
        let (flag, len) = ((lrec >> 29) as u8, u64::from(lrec) & MAX_LEN);
        match flag {
            0 | 3 => Ok(FrameHeader { flag, len }),
            1 | 2 if len % 4 == 0 => Ok(FrameHeader { flag, len }),
            1 | 2 => Err(FormatError::UnalignedPart { at, len }),
            _ => Err(FormatError::BadFlag { at, found: flag, expected: "0, 1, 2 or 3" }),
        }
    }

    /// Returns the bytes of header, payload and padding.
    #[inline]
    pub fn framed_len(self) -> u64 {
        framed_len(self.len, 0)
    }
}

/// Checks the order of the frames of one record: 0, or 1, any number of 2, 3.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence {
    splits: u64,
    /// Bytes of the record so far; `None` before its first frame.
    len: Option<u64>,
    complete: bool,
}

impl Sequence {
    /// Takes the next frame of the record, which begins at file offset `at`.
    ///
    /// # Errors
    /// A flag out of order; a record over [`MAX_LEN`].
    #[inline]
    pub fn take(&mut self, frame: FrameHeader, at: u64) -> Result<()> {
        let FrameHeader { flag, len } = frame;
        let value = match self.len {
            None if flag < 2 => len,
            None => return Err(FormatError::BadFlag { at, found: flag, expected: "0 or 1" }),
            Some(_) if flag < 2 => return Err(FormatError::BadFlag { at, found: flag, expected: "2 or 3" }),
            Some(before) => {
                self.splits += 1;
                before + 4 + len
            }
        };
        if value > MAX_LEN {
            return Err(FormatError::TooLarge { what: "bytes of a record", value, limit: MAX_LEN });
        }
        self.len = Some(value);
        self.complete = flag == 0 || flag == 3;
        Ok(())
    }

    /// Returns whether the record's last frame was taken.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns how often the record was split so far.
    pub fn splits(&self) -> u64 {
        self.splits
    }

    /// Returns the bytes of the record so far.
    pub fn payload_len(&self) -> u64 {
        self.len.unwrap_or(0)
    }
}

/// One record, with its frames joined.
#[derive(Clone, Debug)]
pub struct JoinedRecord<'a> {
    /// The payload: borrowed if the record was not split, else a copy.
    pub payload: Cow<'a, [u8]>,
    /// How often it was split.
    pub splits: u64,
    /// Offset in the input at which the next frame begins.
    pub next: usize,
}

/// Reads the record at `pos` in `input`, whose first byte is byte `base` of the file. Does not search for magics
/// inside the payload: see [`read_strict`].
///
/// # Errors
/// Any other violation of the framing: see [`FormatError`]. Frames are never joined across an error.
pub fn read_record(input: &[u8], pos: usize, base: u64) -> Result<JoinedRecord<'_>> {
    read_joined(input, pos, base, false, None)
}

/// Returns the payload of the record at the start of `bytes`, and the bytes that the record takes. Returns `None` if
/// [`read_record`] has to decide, because the record is split or malformed.
#[inline(always)]
pub(crate) fn quick_record(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (header, rest) = bytes.split_first_chunk::<{ HEADER_LEN as usize }>()?;
    let header = u64::from_le_bytes(*header);
    let (magic, len) = (header as u32, (header >> 32) as usize);
    if magic != MAGIC || len as u64 > MAX_LEN {
        return None; // this includes any flag other than 0
    }
    let (payload, behind) = rest.split_at_checked(len)?;
    let padding = behind.get(..padding(len as u64) as usize)?;
    let is_clean = padding.iter().fold(0, |any, byte| any | byte) == 0;
    is_clean.then_some((payload, HEADER_LEN as usize + len + padding.len()))
}

/// Reads a record as [`read_record`] does. The record must have `len` bytes and end at `end` in the input: any other
/// record is refused before bytes of it are copied, and frames behind `end` are not read.
pub(crate) fn read_expected(input: &[u8], pos: usize, base: u64, len: u64, end: usize) -> Result<JoinedRecord<'_>> {
    read_joined(input, pos, base, false, Some((len, end)))
}

/// Reads a record as [`read_record`] does, but also refuses a magic at a multiple of four inside a payload. So an
/// accepted record ends before the next magic that could begin a record.
///
/// # Errors
/// Any violation of the framing.
pub fn read_strict(input: &[u8], pos: usize, base: u64) -> Result<JoinedRecord<'_>> {
    read_joined(input, pos, base, true, None)
}

fn read_joined(
    input: &[u8],
    pos: usize,
    base: u64,
    strict: bool,
    expected: Option<(u64, usize)>,
) -> Result<JoinedRecord<'_>> {
    let mut sequence = Sequence::default();
    let mut next = pos;
    while !sequence.is_complete() {
        let (frame, payload, after) = read_frame(input, next, base, &mut sequence)?;
        let fits = |(len, end)| match sequence.is_complete() {
            true => after == end && sequence.payload_len() == len,
            false => after < end,
        };
        if !expected.is_none_or(fits) {
            return Err(unexpected_len(base + pos as u64));
        }
        if strict {
            check_escaped(payload, base + next as u64 + HEADER_LEN)?;
        }
        next = after;
        if frame.flag == 0 {
            return Ok(JoinedRecord { payload: Cow::Borrowed(payload), splits: 0, next });
        }
    }
    // All frames are valid, so a buffer of this size is justified.
    let mut joined = Vec::with_capacity(sequence.payload_len() as usize);
    let (mut from, mut again) = (pos, Sequence::default());
    while from < next {
        if from > pos {
            joined.extend_from_slice(&MAGIC.to_le_bytes());
        }
        let (_, payload, after) = read_frame(input, from, base, &mut again)?;
        joined.extend_from_slice(payload);
        from = after;
    }
    Ok(JoinedRecord { payload: Cow::Owned(joined), splits: sequence.splits(), next })
}

#[inline]
fn read_frame<'a>(
    input: &'a [u8],
    pos: usize,
    base: u64,
    sequence: &mut Sequence,
) -> Result<(FrameHeader, &'a [u8], usize)> {
    let at = base + pos as u64;
    let left = input.get(pos..).unwrap_or_default();
    let have = left.len() as u64;
    let header = left.first_chunk().ok_or_else(|| truncated_header(at, have))?;
    let frame = FrameHeader::parse(header, at)?;
    sequence.take(frame, at)?;
    let whole = frame.framed_len();
    if whole > have {
        return Err(truncated_frame(at, whole, have));
    }
    let end = (HEADER_LEN + frame.len) as usize;
    check_padding(&left[end..whole as usize], at + end as u64)?;
    Ok((frame, &left[HEADER_LEN as usize..end], pos + whole as usize))
}

/// Returns the error of a record at file offset `at` that does not match its head.
pub(crate) fn unexpected_len(at: u64) -> FormatError {
    FormatError::Malformed { at, what: "the length of a part's record differs from its head" }
}

pub(crate) fn truncated_header(at: u64, have: u64) -> FormatError {
    FormatError::Truncated { at, what: "a frame's header", need: HEADER_LEN, have }
}

pub(crate) fn truncated_frame(at: u64, need: u64, have: u64) -> FormatError {
    FormatError::Truncated { at, what: "a frame", need, have }
}

#[inline]
pub(crate) fn check_padding(bytes: &[u8], at: u64) -> Result<()> {
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(FormatError::DirtyPadding { at }) }
}

/// Refuses a magic at a multiple of four in a frame's payload, or in `bytes`, a part of it, at file offset `at`.
#[inline]
pub(crate) fn check_escaped(bytes: &[u8], at: u64) -> Result<()> {
    match next_magic(bytes, 0) {
        None => Ok(()),
        Some(found) => Err(FormatError::UnescapedMagic { at: at + found as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let len = write_record(&mut out, payload).unwrap_or(0);
        assert_eq!(len, out.len() as u64);
        out
    }

    #[test]
    fn magic_as_payload_is_framed_as_in_dmlc() {
        let want = [0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0x20, 0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0x60];
        assert_eq!(framed(&MAGIC.to_le_bytes()), want);
    }

    /// Payloads full of magic words are read as they were written, at every alignment and length.
    #[test]
    fn payloads_with_magic_words_round_trip_at_any_alignment() -> Result<()> {
        let magic = MAGIC.to_le_bytes();
        for lead in 0..9 {
            for magics in 0..4 {
                for tail in 0..9 {
                    let payload = [&vec![7; lead][..], &magic.repeat(magics), &vec![9; tail]].concat();
                    let file = [framed(&payload), framed(b"next")].concat();
                    let record = read_record(&file, 0, 0)?;
                    assert_eq!(record.payload, payload);
                    assert_eq!(record.splits as usize, if lead % 4 == 0 { magics } else { 0 });
                    assert_eq!(*read_record(&file, record.next, 0)?.payload, b"next"[..]);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn parts_out_of_order_are_refused_at_their_offset() {
        let split = framed(&MAGIC.to_le_bytes());
        let whole = framed(b"abcd");
        for (bytes, want) in [
            (split[8..].to_vec(), 0),
            ([&split[..8], &whole[..]].concat(), 8),
            ([&split[..8], &split[..8]].concat(), 8),
        ] {
            match read_record(&bytes, 0, 100) {
                Err(FormatError::BadFlag { at, .. }) => assert_eq!(at, 100 + want),
                other => assert!(other.is_err(), "{other:?}"),
            }
        }
    }

    #[test]
    fn next_magic_finds_exactly_the_aligned_magics() {
        for len in [0, 3, 4, 1020, 1024, 1028, 5000] {
            for at in 0..len {
                let mut bytes = vec![7; len];
                let end = len.min(at + 4);
                bytes[at..end].copy_from_slice(&MAGIC.to_le_bytes()[..end - at]);
                let want = (at % 4 == 0 && at + 4 <= len).then_some(at);
                assert_eq!(next_magic(&bytes, 0), want, "{at} of {len}");
                assert_eq!(split_points(&bytes).collect::<Vec<_>>(), want.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
