//! The footer record, which lists where the samples begin, and the trailer, which locates the footer, at the end of a
//! segment.
//!
//! Footer: `CRC-32 [4], as in a head | type 'F' | major | minor | zero | count u64 | CRC-32 of the heads' CRCs [4] |
//! zero [4] | offsets u64 × count | segment info`. The heads' checksums cover the parts, and the footer's checksum
//! covers the heads'. So the footer's checksum, which the manifest contains, covers the whole file.
//!
//! Trailer, the last 32 bytes: `magic | length 24 | footer's offset u64 | salt u32 | CRC-32 of the offset and the
//! salt | REELTAIL`. The salt is 0, or the next number for which the checksum is not the magic, so that a trailer is never
//! split.

use super::header::SegmentInfo;
use super::{BoundCrc, FORMAT_MAJOR, FORMAT_MINOR, SegmentId, TYPE_FOOTER};
use crate::describe::FieldKind;
use crate::error::{FormatError, Result};
use crate::frame;
use crate::wire::{Cursor, Trace};
use byteorder::{ByteOrder, LE};
use bytes::Bytes;
use std::ops::Range;

/// Bytes of the trailer, including its frame.
pub const TRAILER_LEN: u64 = 32;
pub(crate) const TAG: &[u8; 8] = b"REELTAIL";
const FIXED: u64 = 24;

/// The footer, decoded. Its table of offsets is a slice of the record, not a copy.
#[derive(Clone, Debug)]
pub struct Footer {
    /// The segment's description.
    pub info: SegmentInfo,
    /// Number of samples.
    pub count: u64,
    /// Checksum over the heads' checksums, in order.
    pub heads_crc: u32,
    /// Checksum of this record, which covers the whole file.
    pub check: u32,
    /// File offset of the footer, where the last sample ends.
    pub at: u64,
    offsets: Bytes,
}

impl Footer {
    pub(crate) fn encode(info: &SegmentInfo, offsets: &[u64], heads_crc: u32, at: u64) -> Result<(Vec<u8>, u32)> {
        let mut out = vec![0, 0, 0, 0, TYPE_FOOTER, FORMAT_MAJOR, FORMAT_MINOR, 0];
        out.extend_from_slice(&(offsets.len() as u64).to_le_bytes());
        out.extend_from_slice(&heads_crc.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        info.encode(&mut out)?;
        let check = BoundCrc::new(info.id).of(at, &out[4..]);
        LE::write_u32(&mut out[..4], check);
        Ok((out, check))
    }

    /// Decodes the footer in `payload`, whose first frame is at file offset `at`.
    ///
    /// # Errors
    /// A wrong checksum; fields that do not decode.
    pub fn decode(payload: &Bytes, at: u64) -> Result<Footer> {
        Footer::decode_fields(&mut Cursor::new(payload, at), payload, at)
    }

    /// Decodes a footer as [`Footer::decode`] does, with a cursor over `payload`.
    pub(crate) fn decode_fields<T: Trace>(cursor: &mut Cursor<'_, T>, payload: &Bytes, at: u64) -> Result<Footer> {
        let (need, have) = (FIXED, payload.len() as u64);
        if have < need {
            cursor.refuse(FieldKind::Crc, FormatError::Truncated { at, what: "the footer", need, have })?;
        }
        cursor.u32(FieldKind::Crc)?;
        cursor.u8(FieldKind::Type)?;
        let (major, minor) = (cursor.u8(FieldKind::Major)?, cursor.u8(FieldKind::Minor)?);
        let zero = cursor.take(1, FieldKind::Zero)?;
        let (count, heads_crc) = (cursor.u64(FieldKind::Count)?, cursor.u32(FieldKind::HeadsCrc)?);
        let zeros = cursor.take(4, FieldKind::Zero)?;
        let begin = cursor.position();
        cursor.take(count.saturating_mul(8), FieldKind::Table)?;
        let offsets = payload.slice(begin..cursor.position());
        let id = peek_id(payload, cursor.position(), at)?;
        let (check, kind) = match BoundCrc::new(id).check(payload, at, "the footer") {
            Ok(checked) => checked,
            Err(error) => cursor.refuse(FieldKind::Crc, error).map(|()| (0, TYPE_FOOTER))?,
        };
        if kind != TYPE_FOOTER {
            return Err(FormatError::Malformed { at, what: "the record is not a footer" });
        }
        if major != FORMAT_MAJOR {
            cursor.refuse(FieldKind::Major, FormatError::Version { major, minor })?;
        }
        if zero != [0] || zeros != [0; 4] {
            cursor.refuse(FieldKind::Zero, FormatError::DirtyPadding { at })?;
        }
        let info = SegmentInfo::decode(cursor, at)?;
        if minor == FORMAT_MINOR {
            cursor.end("the footer has bytes left over")?; // a later minor version may add fields at the end
        }
        Ok(Footer { info, count, heads_crc, check, at, offsets })
    }

    /// Returns the file offsets of the first bytes of the samples, in order.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        self.offsets.chunks_exact(8).map(LE::read_u64)
    }

    /// Returns the file offsets of sample `ordinal`; `None` for an ordinal beyond the last.
    ///
    /// # Errors
    /// Offsets in the table that are not ascending.
    pub fn extent(&self, ordinal: u64) -> Result<Option<Range<u64>>> {
        let offset = |n: u64| self.offsets.get(n as usize * 8..n as usize * 8 + 8).map(LE::read_u64);
        if ordinal >= self.count {
            return Ok(None);
        }
        let begin = offset(ordinal);
        let end = if ordinal + 1 == self.count { Some(self.at) } else { offset(ordinal + 1) };
        match (begin, end) {
            (Some(begin), Some(end)) if begin < end && end <= self.at && begin % 4 == 0 => Ok(Some(begin..end)),
            _ => Err(FormatError::Malformed { at: self.at, what: "the footer's offsets do not ascend" }),
        }
    }
}

/// Returns the segment id in the footer, which is needed to verify the footer itself.
fn peek_id(payload: &Bytes, pos: usize, at: u64) -> Result<SegmentId> {
    Ok(SegmentId(Cursor::new(&payload[pos..], at).array(FieldKind::SegmentId)?))
}

/// The last 32 bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// File offset of the footer's frame.
    pub footer_at: u64,
}

impl Trailer {
    /// Encodes the trailer as in the file, including its frame.
    pub fn encode(self) -> [u8; TRAILER_LEN as usize] {
        let mut out = [0; TRAILER_LEN as usize];
        LE::write_u32(&mut out[..4], frame::MAGIC);
        LE::write_u32(&mut out[4..8], TRAILER_LEN as u32 - 8);
        LE::write_u64(&mut out[8..16], self.footer_at);
        for salt in 0..2 {
            LE::write_u32(&mut out[16..20], salt);
            let crc = crc32fast::hash(&out[8..20]);
            LE::write_u32(&mut out[20..24], crc);
            if crc != frame::MAGIC {
                break;
            }
        }
        out[24..].copy_from_slice(TAG);
        out
    }

    /// Checks that `rest`, all bytes after the footer record, is its trailer. The footer's first frame is at
    /// `footer_at`, and its record ends at `end`. One byte more than a trailer is enough in `rest`.
    ///
    /// # Errors
    /// Fewer or more bytes; a trailer that [`Trailer::decode`] refuses, or that names another footer.
    /// Fewer or more bytes; a trailer that [`Trailer::decode`] refuses, or that names another footer.
    pub(super) fn check_behind(rest: &[u8], end: u64, footer_at: u64) -> Result<()> {
        let (need, have) = (TRAILER_LEN, rest.len() as u64);
        let short = || FormatError::Truncated { at: end, what: "the trailer", need, have };
        let tail = rest.first_chunk().ok_or_else(short)?;
        if have > need {
            return Err(FormatError::Malformed { at: end, what: "something follows the trailer" });
        }
        if Trailer::decode(tail, end + need)?.footer_at != footer_at {
            return Err(FormatError::Malformed { at: end, what: "the trailer names another footer" });
        }
        Ok(())
    }

    /// Decodes the trailer in the last bytes of a file of `file_len` bytes.
    ///
    /// # Errors
    /// No tag (the file is not a segment or has lost its end); a wrong checksum; an offset outside the file.
    pub fn decode(bytes: &[u8; TRAILER_LEN as usize], file_len: u64) -> Result<Trailer> {
        let at = file_len.saturating_sub(TRAILER_LEN);
        let (frame, payload) = bytes.split_at(frame::HEADER_LEN as usize);
        let trailer = Trailer::decode_fields(&mut Cursor::new(payload, at), at)?;
        if trailer.encode().starts_with(frame) { Ok(trailer) } else { Err(Trailer::malformed(at)) }
    }

    /// Decodes the trailer whose frame is at file offset `at` and whose payload `cursor` reads.
    pub(crate) fn decode_fields<T: Trace>(cursor: &mut Cursor<'_, T>, at: u64) -> Result<Trailer> {
        let payload = cursor.payload();
        let trailer = Trailer { footer_at: cursor.u64(FieldKind::FooterAt)? };
        cursor.u32(FieldKind::Salt)?;
        let stored = cursor.u32(FieldKind::Crc)?;
        let why = "it has no trailer at its end: it is unfinished or truncated (`ringreel repair --salvage` reads what \
                   is left)";
        if cursor.take(8, FieldKind::Tag)? != TAG {
            cursor.refuse(FieldKind::Tag, FormatError::NotASegment { why })?;
        }
        let computed = crc32fast::hash(&payload[..12]);
        if stored != computed {
            cursor.refuse(FieldKind::Crc, FormatError::Checksum { at, what: "the trailer", stored, computed })?;
        }
        let is_beyond = trailer.footer_at >= at || !trailer.footer_at.is_multiple_of(4);
        if is_beyond || !trailer.encode().ends_with(payload) {
            cursor.refuse(FieldKind::FooterAt, Trailer::malformed(at))?;
        }
        Ok(trailer)
    }

    fn malformed(at: u64) -> FormatError {
        FormatError::Malformed { at, what: "the trailer is malformed" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailer_never_contains_the_magic() -> Result<()> {
        // The only offset below 5 GiB whose checksum with the salt 0 would be the magic.
        let (trailer, len) = (Trailer { footer_at: 5_208_452_204 }, 5_208_452_204 + 200);
        let bytes = trailer.encode();
        assert_eq!(bytes[16..20], [1, 0, 0, 0]);
        assert_eq!(frame::next_magic(&bytes[8..], 0), None);
        assert_eq!(Trailer::decode(&bytes, len)?, trailer);
        let mut unsalted = bytes;
        unsalted[16] = 0;
        let crc = crc32fast::hash(&unsalted[8..20]);
        assert_eq!(crc, frame::MAGIC);
        LE::write_u32(&mut unsalted[20..24], crc);
        assert!(Trailer::decode(&unsalted, len).is_err());
        Ok(())
    }
}
