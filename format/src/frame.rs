//! RecordIO framing, byte for byte as dmlc-core and MXNet write it (`dmlc/recordio.h`).
//!
//! `magic 0xced7230a (LE u32) | cflag << 29 | length (LE u32) | payload | zero padding to 4`. A payload that holds the
//! magic at a multiple of four is split there into parts with cflag 1 (first), 2 (middle) and 3 (last); the four bytes
//! are dropped, and put back by the reader. An unsplit record has cflag 0.

use crate::error::{FormatError, Result};
use byteorder::{ByteOrder, LE};
use bytes::Bytes;
use std::io::Write;

/// First four bytes of every frame, as a little-endian number.
pub const MAGIC: u32 = 0xced7_230a;
/// Bytes before a frame's payload.
pub const HEADER_LEN: u64 = 8;
/// Most bytes in one frame, and in one record.
pub const MAX_LEN: u64 = (1 << 29) - 1;

/// Bytes of zero padding after `len` bytes.
pub fn padding(len: u64) -> u64 {
    len.wrapping_neg() & 3
}

/// Bytes that a record of `len` payload bytes takes when it is split `splits` times.
pub fn framed_len(len: u64, splits: u64) -> u64 {
    HEADER_LEN + len + padding(len) + 4 * splits
}

/// Offsets of the magic in `payload`, those that are multiples of four, ascending: where the record is to be split.
pub fn split_points(payload: &[u8]) -> Vec<usize> {
    const BLOCK: usize = 4096;
    let mut found = Vec::new();
    for (block, bytes) in payload.chunks(BLOCK).enumerate() {
        // Without a branch in the loop, so that the compiler makes wide compares of it.
        let any = bytes.chunks_exact(4).fold(false, |any, word| any | (LE::read_u32(word) == MAGIC));
        if any {
            let hits = bytes.chunks_exact(4).enumerate().filter(|(_, word)| LE::read_u32(word) == MAGIC);
            found.extend(hits.map(|(word, _)| block * BLOCK + word * 4));
        }
    }
    found
}

fn header(flag: u32, len: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    LE::write_u32(&mut bytes[..4], MAGIC);
    LE::write_u32(&mut bytes[4..], flag << 29 | len as u32);
    bytes
}

/// Writes one record. `splits` is [`split_points`] of `payload`. Returns the bytes written.
///
/// # Errors
/// A payload over [`MAX_LEN`]; what the sink says.
pub fn write_record(sink: &mut dyn Write, payload: &[u8], splits: &[usize]) -> Result<u64> {
    if payload.len() as u64 > MAX_LEN {
        let value = payload.len() as u64;
        return Err(FormatError::TooLarge { what: "bytes of a record", value, limit: MAX_LEN });
    }
    let mut begin = 0;
    for (count, end) in splits.iter().enumerate() {
        sink.write_all(&header(if count == 0 { 1 } else { 2 }, end - begin))?;
        sink.write_all(&payload[begin..*end])?;
        begin = end + 4;
    }
    sink.write_all(&header(if splits.is_empty() { 0 } else { 3 }, payload.len() - begin))?;
    sink.write_all(&payload[begin..])?;
    sink.write_all(&[0; 3][..padding(payload.len() as u64) as usize])?;
    Ok(framed_len(payload.len() as u64, splits.len() as u64))
}

/// One frame's header, checked as far as it can be without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// 0 whole, 1 first, 2 middle, 3 last.
    pub flag: u8,
    /// Bytes of payload.
    pub len: u64,
}

impl FrameHeader {
    /// The header in the eight `bytes` at file offset `at`.
    ///
    /// # Errors
    /// No magic; a flag over 3; a part that is not the last and whose length is no multiple of four.
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
}

/// One record, its parts joined.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was written. A slice of the input where the record was not split, else a copy.
    pub payload: Bytes,
    /// How often it was split.
    pub splits: u64,
    /// Where the next frame begins: an offset in the input.
    pub next: usize,
}

/// Reads the record that begins at `pos` in `input`, whose first byte is byte `base` of the file.
///
/// # Errors
/// Whatever breaks the framing: see [`FormatError`]. Parts are never merged across a mistake.
pub fn read_record(input: &Bytes, pos: usize, base: u64) -> Result<Record> {
    let (frame, payload, mut next) = read_frame(input, pos, base)?;
    match frame.flag {
        0 => return Ok(Record { payload, splits: 0, next }),
        1 => {}
        found => return Err(FormatError::BadFlag { at: base + pos as u64, found, expected: "0 or 1" }),
    }
    let mut joined = payload.to_vec();
    let mut splits = 0;
    loop {
        let at = base + next as u64;
        let (frame, payload, after) = read_frame(input, next, base)?;
        if frame.flag != 2 && frame.flag != 3 {
            return Err(FormatError::BadFlag { at, found: frame.flag, expected: "2 or 3" });
        }
        joined.extend_from_slice(&MAGIC.to_le_bytes());
        joined.extend_from_slice(&payload);
        splits += 1;
        next = after;
        if frame.flag == 3 {
            return Ok(Record { payload: joined.into(), splits, next });
        }
    }
}

fn read_frame(input: &Bytes, pos: usize, base: u64) -> Result<(FrameHeader, Bytes, usize)> {
    let at = base + pos as u64;
    let left = input.get(pos..).unwrap_or_default();
    let truncated = |what, need| FormatError::Truncated { at, what, need, have: left.len() as u64 };
    let header: &[u8; 8] = left.first_chunk().ok_or_else(|| truncated("a frame's header", HEADER_LEN))?;
    let frame = FrameHeader::parse(header, at)?;
    let whole = HEADER_LEN + frame.len + padding(frame.len);
    if whole > left.len() as u64 {
        return Err(truncated("a frame", whole));
    }
    let begin = pos + HEADER_LEN as usize;
    let end = begin + frame.len as usize;
    let next = pos + whole as usize;
    if input[end..next].iter().any(|byte| *byte != 0) {
        return Err(FormatError::DirtyPadding { at: base + end as u64 });
    }
    Ok((frame, input.slice(begin..end), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let splits = split_points(payload);
        let len = write_record(&mut out, payload, &splits).unwrap_or(0);
        assert_eq!(len, out.len() as u64);
        out
    }

    #[test]
    fn a_payload_that_is_the_magic_is_framed_as_dmlc_frames_it() {
        let want = [0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0x20, 0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0x60];
        assert_eq!(framed(&MAGIC.to_le_bytes()), want);
    }

    #[test]
    fn payloads_full_of_the_magic_come_back_at_every_alignment_and_length() -> Result<()> {
        let magic = MAGIC.to_le_bytes();
        for lead in 0..9 {
            for magics in 0..4 {
                for tail in 0..9 {
                    let payload = [&vec![7; lead][..], &magic.repeat(magics), &vec![9; tail]].concat();
                    let file = Bytes::from([framed(&payload), framed(b"next")].concat());
                    let record = read_record(&file, 0, 0)?;
                    assert_eq!(record.payload, payload);
                    assert_eq!(record.splits as usize, if lead % 4 == 0 { magics } else { 0 });
                    assert_eq!(read_record(&file, record.next, 0)?.payload, &b"next"[..]);
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
            match read_record(&bytes.into(), 0, 100) {
                Err(FormatError::BadFlag { at, .. }) => assert_eq!(at, 100 + want),
                other => assert!(other.is_err(), "{other:?}"),
            }
        }
    }
}
