//! The head record: the first record of each sample. From it alone one knows where every part of the sample lies.
//!
//! | field | bytes | |
//! |---|---|---|
//! | CRC-32 | 4 | over segment id, file offset of this frame (u64), the rest of this record |
//! | type | 1 | `S` |
//! | ordinal | varint | position in the segment, from 0 |
//! | time | varint | milliseconds after the segment's time |
//! | meta length, meta | varint, ... | 0: no meta |
//! | parts | | in the schema's order, each: flags, then what the flags announce |
//!
//! Flags of a part: bit 0 own dtype and shape follow; bit 1 the part is large (its bytes are records of their own after
//! this one), else its bytes follow right here; bits 2-3 codec (0 none, 1 zstd); bit 4 the large part was split by the
//! framing. In this order: `dtype, shape` (bit 0) · `stored length varint` (codec not 0) · `CRC-32` (bit 1) · `number of
//! splits varint`, one for each record of the part (bits 1 and 4) · the bytes (bit 1 clear).

use super::{SegmentId, TYPE_SAMPLE, bound_crc, chunks, header::SegmentInfo, pad_before};
use crate::dtype::{DType, Schema, Shape, decode_shape};
use crate::error::{FormatError, Result};
use crate::frame;
use crate::meta::{MAX_META, Meta};
use crate::wire::Cursor;
use byteorder::{ByteOrder, LE};
use bytes::Bytes;
use std::ops::Range;

pub(crate) const OWN_SHAPE: u8 = 1;
pub(crate) const LARGE: u8 = 2;
pub(crate) const CODEC_SHIFT: u8 = 2;
pub(crate) const SPLIT: u8 = 16;
const KNOWN: u8 = OWN_SHAPE | LARGE | 3 << CODEC_SHIFT | SPLIT;

/// How a part's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    Plain,
    /// One zstd frame.
    Zstd,
    /// A codec of a later version.
    Unknown(u8),
}

/// Where a part's stored bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartPlace {
    /// In the head record.
    Inline(Bytes),
    /// In records of their own.
    Large {
        /// CRC-32 of the stored bytes.
        crc: u32,
        /// Each record: file offsets of its frames, first to last, and its payload's length in bytes.
        records: Vec<(Range<u64>, u64)>,
    },
}

/// One part as a head describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartHead {
    /// Type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// How it is stored.
    pub codec: Codec,
    /// Bytes stored.
    pub stored_len: u64,
    /// Where.
    pub place: PartPlace,
}

impl PartHead {
    /// Bytes of the tensor, decoded.
    ///
    /// # Errors
    /// None in a head that was decoded: the size was checked then.
    pub fn decoded_len(&self) -> Result<u64> {
        self.dtype.byte_len(&self.shape)
    }
}

/// A sample's head record, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// File offset of its first frame.
    pub at: u64,
    /// Position in the segment.
    pub ordinal: u64,
    /// When the sample was finished, by its writer's clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// The user's meta.
    pub meta: Meta,
    /// Its parts, in the schema's order.
    pub parts: Vec<PartHead>,
    /// File offset of the first byte after the sample.
    pub end: u64,
    /// Its checksum.
    pub crc: u32,
}

impl Head {
    /// The head in `payload`, whose frames lie at the file offsets `frames`.
    ///
    /// # Errors
    /// A checksum that does not match (damage, or a head of another segment or place); fields that do not decode.
    pub fn decode(payload: &Bytes, frames: Range<u64>, info: &SegmentInfo) -> Result<Head> {
        let at = frames.start;
        let crc = check_envelope(payload, at, info.id, TYPE_SAMPLE, "a sample's head")?;
        let mut cursor = Cursor::new(payload, at);
        cursor.take(5, "a sample's head")?;
        let ordinal = cursor.varint("ordinal")?;
        let unix_ms = info.created_unix_ms.saturating_add(cursor.varint("time")?);
        let len = cursor.varint("length of meta")?;
        if len > MAX_META {
            return Err(FormatError::TooLarge { what: "bytes of meta", value: len, limit: MAX_META });
        }
        let meta = cursor.take(len, "meta")?;
        let meta = if meta.is_empty() { Meta::new() } else { Meta::decode(meta, at)? };
        let mut end = frames.end;
        let parts = decode_parts(payload, &mut cursor, &info.schema, &mut end, at)?;
        cursor.end("a sample's head has bytes left over")?;
        Ok(Head { at, ordinal, unix_ms, meta, parts, end, crc })
    }
}

fn decode_parts(
    payload: &Bytes,
    cursor: &mut Cursor<'_>,
    schema: &Schema,
    end: &mut u64,
    at: u64,
) -> Result<Vec<PartHead>> {
    let overflow = || FormatError::Malformed { at, what: "a part's length leads beyond 2^63" };
    let mut parts = Vec::with_capacity(schema.parts.len());
    for part in &schema.parts {
        let flags = cursor.u8("flags of a part")?;
        if flags & !KNOWN != 0 {
            return Err(FormatError::Malformed { at, what: "a part has flags that this version does not know" });
        }
        let (dtype, shape) = if flags & OWN_SHAPE != 0 {
            (DType::decode(cursor, at)?, decode_shape(cursor)?)
        } else {
            (part.dtype.clone(), part.shape.clone())
        };
        let codec = match flags >> CODEC_SHIFT & 3 {
            0 => Codec::Plain,
            1 => Codec::Zstd,
            other => Codec::Unknown(other),
        };
        let decoded_len = dtype.byte_len(&shape)?;
        let stored_len = if codec == Codec::Plain { decoded_len } else { cursor.varint("stored length of a part")? };
        let place = if flags & LARGE == 0 {
            let begin = cursor.position();
            cursor.take(stored_len, "a part")?;
            PartPlace::Inline(payload.slice(begin..cursor.position()))
        } else {
            let crc = cursor.u32("checksum of a part")?;
            if stored_len > i64::MAX as u64 - *end {
                return Err(overflow());
            }
            let mut records = Vec::new();
            for len in chunks(stored_len) {
                let splits = if flags & SPLIT != 0 { cursor.varint("number of splits")? } else { 0 };
                if splits > len / 4 {
                    return Err(FormatError::Malformed { at, what: "a part claims more splits than it has words" });
                }
                let begin = *end + pad_before(*end).map_or(0, |pad| frame::framed_len(pad, 0));
                *end = begin.checked_add(frame::framed_len(len, splits)).ok_or_else(overflow)?;
                records.push((begin..*end, len));
                if records.len() > MAX_RECORDS {
                    return Err(FormatError::TooLarge {
                        what: "bytes of a part",
                        value: stored_len,
                        limit: MAX_RECORDS as u64 * super::CHUNK,
                    });
                }
            }
            PartPlace::Large { crc, records }
        };
        parts.push(PartHead { dtype, shape, codec, stored_len, place });
    }
    Ok(parts)
}

/// Most records that one part may take: 2^16 chunks, 16 TiB. It bounds what a hostile head can make us allocate.
const MAX_RECORDS: usize = 1 << 16;

/// Checks a record's checksum, bound to its place, and its type. Returns the checksum.
pub(crate) fn check_envelope(payload: &[u8], at: u64, id: SegmentId, kind: u8, what: &'static str) -> Result<u32> {
    if payload.len() < 5 {
        return Err(FormatError::Truncated { at, what, need: 5, have: payload.len() as u64 });
    }
    let stored = LE::read_u32(&payload[..4]);
    let computed = bound_crc(id, at, &payload[4..]);
    if stored != computed {
        return Err(FormatError::Checksum { at, what, stored, computed });
    }
    if payload[4] == kind { Ok(stored) } else { Err(FormatError::Malformed { at, what: "a record has another type" }) }
}
