//! The header record: the first record of a segment.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `RINGREEL` |
//! | 8 | 1, 1, 2 | major, minor, zero |
//! | 12 | 4 | CRC-32 of this record without these four bytes |
//! | 16 | | [`SegmentInfo`], see its `encode` |

use super::{FORMAT_MAJOR, FORMAT_MINOR, SegmentId};
use crate::describe::FieldKind;
use crate::dtype::Schema;
use crate::error::{FormatError, Result};
use crate::meta::{MAX_META, Meta};
use crate::wire::{Cursor, Trace, put_varint};
use byteorder::{ByteOrder, LE};

/// First bytes of a header record's payload.
pub const SIGNATURE: &[u8; 8] = b"RINGREEL";

/// The description of a segment, in its header and again in its footer.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentInfo {
    /// Its id.
    pub id: SegmentId,
    /// The generation that was filling when it was begun.
    pub born: u64,
    /// When it was begun, in milliseconds since 1970 by its writer's clock.
    pub created_unix_ms: u64,
    /// Sequence number, at its writer, of its first sample.
    pub first_number: u64,
    /// The parts of its samples.
    pub schema: Schema,
    /// Its writer: `generator` (the owner), `host`, `pid`.
    pub provenance: Meta,
}

impl SegmentInfo {
    /// Writes
    /// `id [16] | born u64 | created u64 | first number u64 | schema | provenance length varint | provenance (CBOR)`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.id.0);
        for field in [self.born, self.created_unix_ms, self.first_number] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        self.schema.encode(out);
        let provenance = self.provenance.encode()?;
        put_varint(out, provenance.len() as u64);
        out.extend_from_slice(&provenance);
        Ok(())
    }

    pub(crate) fn decode<T: Trace>(cursor: &mut Cursor<'_, T>, at: u64) -> Result<SegmentInfo> {
        let id = SegmentId(cursor.array(FieldKind::SegmentId)?);
        let born = cursor.u64(FieldKind::Born)?;
        let created_unix_ms = cursor.u64(FieldKind::Created)?;
        let first_number = cursor.u64(FieldKind::FirstNumber)?;
        let schema = Schema::decode(cursor, at)?;
        let len = cursor.varint(FieldKind::ProvenanceLength)?;
        if len > MAX_META {
            return Err(FormatError::TooLarge { what: "bytes of the provenance", value: len, limit: MAX_META });
        }
        let provenance = Meta::decode(cursor.take(len, FieldKind::Provenance)?, at)?;
        Ok(SegmentInfo { id, born, created_unix_ms, first_number, schema, provenance })
    }

    /// Returns the owner in the segment's provenance; empty if there is none.
    pub fn owner(&self) -> &str {
        self.provenance.text("generator").unwrap_or_default()
    }

    /// Encodes the header record's payload.
    ///
    /// # Errors
    /// Provenance that cannot be encoded.
    pub fn encode_header(&self) -> Result<Vec<u8>> {
        let mut out = [&SIGNATURE[..], &[FORMAT_MAJOR, FORMAT_MINOR, 0, 0], &[0; 4]].concat();
        self.encode(&mut out)?;
        let crc = header_crc(&out);
        LE::write_u32(&mut out[12..16], crc);
        Ok(out)
    }

    /// Decodes the header in the payload of the first record.
    ///
    /// # Errors
    /// No signature, another major version, a wrong checksum, fields that do not decode.
    pub fn decode_header(payload: &[u8]) -> Result<SegmentInfo> {
        SegmentInfo::decode_header_fields(&mut Cursor::new(payload, 0))
    }

    pub(crate) fn decode_header_fields<T: Trace>(cursor: &mut Cursor<'_, T>) -> Result<SegmentInfo> {
        let payload = cursor.payload();
        if payload.len() < 16 || &payload[..8] != SIGNATURE {
            let why = "its first record is not a ringreel header";
            cursor.refuse(FieldKind::Signature, FormatError::NotASegment { why })?;
        }
        cursor.take(8, FieldKind::Signature)?;
        let (major, minor) = (cursor.u8(FieldKind::Major)?, cursor.u8(FieldKind::Minor)?);
        if major != FORMAT_MAJOR {
            cursor.refuse(FieldKind::Major, FormatError::Version { major, minor })?;
        }
        let zeros = cursor.take(2, FieldKind::Zero)?;
        let (stored, computed) = (cursor.u32(FieldKind::Crc)?, header_crc(payload));
        if stored != computed {
            cursor.refuse(FieldKind::Crc, FormatError::Checksum { at: 0, what: "the header", stored, computed })?;
        }
        if zeros != [0; 2] {
            cursor.refuse(FieldKind::Zero, FormatError::DirtyPadding { at: 0 })?;
        }
        let info = SegmentInfo::decode(cursor, 0)?;
        if minor == FORMAT_MINOR {
            cursor.end("the header has bytes left over")?; // a later minor version may add fields at the end
        }
        Ok(info)
    }
}

fn header_crc(payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&payload[..12]);
    crc.update(&payload[16..]);
    crc.finalize()
}
