//! The head record: the first record of each sample. It alone determines where every part of the sample is.
//!
//! | field | bytes | |
//! |---|---|---|
//! | CRC-32 | 4 | over segment id, file offset of this frame (u64), the rest of this record |
//! | type | 1 | `S` |
//! | ordinal | varint | position in the segment, from 0 |
//! | time | varint | milliseconds after the segment's time |
//! | meta length, meta | varint, ... | 0: no meta |
//! | parts | | in the schema's order, each: flags, then the fields that the flags announce |
//!
//! Flags of a part: bit 0: its dtype and shape follow; bit 1: the part is large, and its bytes are in separate
//! records after this one, else they follow here; bits 2-3: codec (0 none, 1 zstd); bit 4: the framing has split the
//! large part. In this order: `dtype, shape` (bit 0) · `stored length varint` (codec not 0) · `CRC-32` (bit 1) ·
//! `number of splits varint`, one for each record of the part (bits 1 and 4) · the bytes (bit 1 clear).

use super::header::SegmentInfo;
use super::pieces::{self, Pieces};
use super::{BoundCrc, ENVELOPE, TYPE_SAMPLE};
use crate::describe::FieldKind;
use crate::dtype::{DType, Schema, Shape, decode_shape};
use crate::error::{FormatError, Result};
use crate::meta::{MAX_META, Meta};
use crate::wire::{Cursor, Trace, quick_varint};
use std::ops::Range;

pub(crate) const OWN_SHAPE: u8 = 1;
pub(crate) const LARGE: u8 = 2;
pub(crate) const CODEC_SHIFT: u8 = 2;
pub(crate) const SPLIT: u8 = 16;
const KNOWN: u8 = OWN_SHAPE | LARGE | 3 << CODEC_SHIFT | SPLIT;

/// How a part's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    Plain,
    /// One zstd frame.
    Zstd,
    /// A codec of a later version.
    Unknown(u8),
}

/// Where a part's stored bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartPlace {
    /// In the payload of the head record, at this range.
    Inline(Range<usize>),
    /// In separate records.
    Large {
        /// CRC-32 of the stored bytes.
        crc: u32,
        /// The records.
        records: Pieces,
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
    /// Where it is stored.
    pub place: PartPlace,
    /// Whether dtype and shape are the schema's.
    is_schemas: bool,
}

impl Default for PartHead {
    fn default() -> PartHead {
        let (dtype, codec, place) = (DType::Bytes, Codec::Plain, PartPlace::Inline(0..0));
        PartHead { dtype, shape: Shape::new(), codec, stored_len: 0, place, is_schemas: false }
    }
}

impl PartHead {
    /// Returns the file offset of its first record, if it has separate records.
    pub(super) fn first_record(&self) -> Option<u64> {
        match &self.place {
            PartPlace::Inline(_) => None,
            PartPlace::Large { records, .. } => Some(records.frames().start),
        }
    }

    /// Returns the bytes of the decoded tensor.
    ///
    /// # Errors
    /// None for a head that was decoded, which includes a check of the size.
    pub fn decoded_len(&self) -> Result<u64> {
        self.dtype.byte_len(&self.shape)
    }
}

/// A decoded head record of a sample. The bytes of inline parts stay in the record's payload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// File offset of its first frame.
    pub at: u64,
    /// Position in the segment.
    pub ordinal: u64,
    /// When the sample was finished, in milliseconds since 1970 by its writer's clock.
    pub unix_ms: u64,
    /// The user's meta.
    pub meta: Meta,
    /// Its parts, in the schema's order.
    pub parts: Vec<PartHead>,
    /// File offset of the first byte after the sample.
    pub end: u64,
    /// The head's checksum.
    pub crc: u32,
}

impl Head {
    /// Decodes the head in `payload`, whose frames are at the file offsets `frames`.
    ///
    /// # Errors
    /// A wrong checksum (damage, or a head of another segment or place); fields that do not decode.
    pub fn decode(payload: &[u8], frames: Range<u64>, info: &SegmentInfo) -> Result<Head> {
        let (crc, kind) = BoundCrc::new(info.id).check(payload, frames.start, "a sample's head")?;
        if kind != TYPE_SAMPLE {
            return Err(FormatError::Malformed { at: frames.start, what: "the record is not a sample's head" });
        }
        let mut head = Head::default();
        head.decode_checked(payload, frames, info, crc)?;
        Ok(head)
    }

    /// Decodes a head as [`Head::decode`] does, after [`BoundCrc::check`] has returned `crc` and the type of a head.
    /// Reuses the memory of this head, which must be new or of the same segment. After an error its fields are
    /// meaningless.
    #[inline]
    pub(super) fn decode_checked(
        &mut self,
        payload: &[u8],
        frames: Range<u64>,
        info: &SegmentInfo,
        crc: u32,
    ) -> Result<()> {
        if self.decode_usual(payload, frames.clone(), info, crc).is_some() {
            return Ok(());
        }
        let done = self.decode_closely(payload, frames, info, crc);
        if done.is_err() {
            self.parts.clear(); // the next head cannot be compared with this one
        }
        done
    }

    #[inline(never)]
    fn decode_closely(&mut self, payload: &[u8], frames: Range<u64>, info: &SegmentInfo, crc: u32) -> Result<()> {
        self.crc = crc;
        self.decode_fields(&mut Cursor::new(payload, frames.start), frames, info)
    }

    /// Decodes all fields, including the envelope, whose checksum the caller verifies.
    pub(crate) fn decode_fields<T: Trace>(
        &mut self,
        cursor: &mut Cursor<'_, T>,
        frames: Range<u64>,
        info: &SegmentInfo,
    ) -> Result<()> {
        (self.at, self.end) = (frames.start, frames.end);
        cursor.u32(FieldKind::Crc)?;
        cursor.u8(FieldKind::Type)?;
        self.ordinal = cursor.varint(FieldKind::Ordinal)?;
        self.unix_ms = info.created_unix_ms.saturating_add(cursor.varint(FieldKind::Time)?);
        self.meta = decode_meta(cursor, frames.start)?;
        self.decode_parts(cursor, &info.schema)?;
        cursor.end("a sample's head has bytes left over")
    }

    /// Decodes a usual head, which resembles the last one: no meta, and each part plain, with the schema's dtype and
    /// shape, and stored as before (inline, or in one record that was not split). Returns `None` if
    /// [`Head::decode_closely`] has to decide.
    #[inline]
    pub(super) fn decode_usual(
        &mut self,
        payload: &[u8],
        frames: Range<u64>,
        info: &SegmentInfo,
        crc: u32,
    ) -> Option<()> {
        if self.parts.len() != info.schema.parts.len() {
            return None; // there is no last head
        }
        let mut rest = payload.get(ENVELOPE as usize..)?;
        self.ordinal = quick_varint(&mut rest)?;
        self.unix_ms = info.created_unix_ms.saturating_add(quick_varint(&mut rest)?);
        rest = rest.strip_prefix(&[0])?;
        let mut end = frames.end;
        for part in &mut self.parts {
            if !part.is_schemas || part.codec != Codec::Plain {
                return None;
            }
            match (rest.split_first()?, &mut part.place) {
                ((0, behind), PartPlace::Inline(range)) => {
                    let begin = payload.len() - behind.len();
                    rest = behind.get(usize::try_from(part.stored_len).ok()?..)?;
                    *range = begin..payload.len() - rest.len();
                }
                ((&LARGE, behind), PartPlace::Large { crc, records }) => {
                    let (checksum, behind) = behind.split_first_chunk()?;
                    *crc = u32::from_le_bytes(*checksum);
                    end = records.follow(end)?;
                    rest = behind;
                }
                _ => return None,
            }
        }
        if !self.meta.is_empty() {
            self.meta = Meta::new();
        }
        (self.at, self.crc, self.end) = (frames.start, crc, end);
        rest.is_empty().then_some(())
    }

    fn decode_parts<T: Trace>(&mut self, cursor: &mut Cursor<'_, T>, schema: &Schema) -> Result<()> {
        let at = self.at;
        let mut count = 0;
        self.parts.truncate(schema.parts.len());
        for (n, named) in schema.parts.iter().enumerate() {
            cursor.trace.part(Some((n, &named.name)));
            let flags = cursor.u8(FieldKind::Flags)?;
            if flags & !KNOWN != 0 {
                let what = "a part has flags that this version does not know";
                cursor.refuse(FieldKind::Flags, FormatError::Malformed { at, what })?;
            }
            if n == self.parts.len() {
                self.parts.push(PartHead::default());
            }
            let part = &mut self.parts[n];
            if flags & OWN_SHAPE != 0 {
                part.is_schemas = false;
                part.dtype = DType::decode(cursor, at)?;
                part.shape = decode_shape(cursor)?;
            } else if !part.is_schemas {
                part.is_schemas = true;
                part.dtype.clone_from(&named.dtype);
                part.shape.clone_from(&named.shape);
            }
            part.codec = match flags >> CODEC_SHIFT & 3 {
                0 => Codec::Plain,
                1 => Codec::Zstd,
                other => Codec::Unknown(other),
            };
            let len = part.decoded_len()?;
            part.stored_len = if part.codec == Codec::Plain { len } else { cursor.varint(FieldKind::StoredLength)? };
            if part.stored_len > MAX_OFFSET {
                let what = "stored length of a part";
                return Err(FormatError::TooLarge { what, value: part.stored_len, limit: MAX_OFFSET });
            }
            part.place = if flags & LARGE == 0 {
                let begin = cursor.position();
                cursor.take(part.stored_len, FieldKind::InlineBytes)?;
                PartPlace::Inline(begin..cursor.position())
            } else {
                let crc = cursor.u32(FieldKind::PartCrc)?;
                count += pieces::count(part.stored_len);
                if count > MAX_PIECES {
                    let what = "pieces of a sample's parts";
                    return Err(FormatError::TooLarge { what, value: count, limit: MAX_PIECES });
                }
                let records = place_records(cursor, part.stored_len, flags & SPLIT != 0, self.end, at)?;
                self.end = records.frames().end;
                PartPlace::Large { crc, records }
            };
        }
        Ok(())
    }
}

fn decode_meta<T: Trace>(cursor: &mut Cursor<'_, T>, at: u64) -> Result<Meta> {
    let len = cursor.varint(FieldKind::MetaLength)?;
    match len {
        0 => Ok(Meta::new()),
        1..=MAX_META => Meta::decode(cursor.take(len, FieldKind::Meta)?, at),
        _ => Err(FormatError::TooLarge { what: "bytes of meta", value: len, limit: MAX_META }),
    }
}

/// Returns where the records of a large part of `len` bytes are. The part follows the record that ends at `after`.
fn place_records<T: Trace>(cursor: &mut Cursor<'_, T>, len: u64, split: bool, after: u64, at: u64) -> Result<Pieces> {
    let mut splits = Vec::new();
    for (n, len) in pieces::lengths(len).take(if split { usize::MAX } else { 0 }).enumerate() {
        let count = cursor.varint(FieldKind::Splits(n))?;
        if count > len / 4 {
            return Err(FormatError::Malformed { at, what: "a part claims more splits than it has words" });
        }
        splits.push(count);
    }
    let beyond = FormatError::TooLarge { what: "offset of a part's end", value: u64::MAX, limit: MAX_OFFSET };
    Pieces::place(after, len, splits).ok_or(beyond)
}

/// Largest offset and largest length.
const MAX_OFFSET: u64 = i64::MAX as u64;
/// Most records of all large parts of a sample: 16 TiB.
const MAX_PIECES: u64 = 1 << 16;
