//! A segment: the file `<index>.rec`, with a header, samples, a footer and a trailer, which are all RecordIO records.
//!
//! | file | contents |
//! |---|---|
//! | [`header`] | the writer of the segment, its generation, the schema of its samples |
//! | [`head`] | the head record of a sample: small parts, and lengths and checksums of large ones |
//! | [`footer`] | the offsets of the samples; the trailer, which locates the footer from the end |
//! | [`writer`] | writes samples |
//! | [`sink`] | the destination of a writer, which can be overwritten behind its end |
//! | [`pieces`] | where the records of a large part are |
//! | [`part`] | decodes one part from its stored bytes |
//! | [`mod@slice`] | reads samples by position |
//! | [`view`] | reads samples without copies, one at a time |
//! | [`walk`] | reads samples in order and checks every byte |
//! | [`salvage`] | reads what is left of a damaged or unfinished segment |

pub mod footer;
pub mod head;
pub mod header;
pub mod part;
pub mod pieces;
pub mod salvage;
pub mod sink;
pub mod slice;
pub mod view;
pub mod walk;
pub mod writer;

use crate::error::{FormatError, Result};
use byteorder::{ByteOrder, LE};
use std::fmt;
use std::str::FromStr;

/// Major version that is written. Other major versions are refused.
pub const FORMAT_MAJOR: u8 = 1;
/// Minor version that is written. Any minor version of this major version is read.
pub const FORMAT_MINOR: u8 = 0;

/// Tensors in separate records begin at multiples of this, in bytes.
pub const ALIGNMENT: u64 = 64;
/// Most bytes of a large part in one record. A larger part is stored in several records.
pub const CHUNK: u64 = 1 << 28;

pub(crate) const TYPE_SAMPLE: u8 = b'S';
pub(crate) const TYPE_FOOTER: u8 = b'F';

/// 128 random bits that identify a segment permanently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(
    /// The bits.
    pub [u8; 16],
);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A manifest has one id per segment, so this formats it at once and not byte by byte.
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SegmentId {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<SegmentId> {
        let bad = || FormatError::Input(format!("{text:?} is not a segment id (32 hexadecimal digits)"));
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return Err(bad());
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| bad())?;
        Ok(SegmentId(bits.to_be_bytes()))
    }
}

/// Bytes of the checksum and the type with which heads, footers, and records of later minor versions begin.
pub(crate) const ENVELOPE: u64 = 5;

/// Computes CRC-32s that bind a record to its place: over the segment's id, the frame's offset, and the record's
/// bytes after the checksum. A copy of a record at another place has a wrong checksum.
#[derive(Debug, Clone)]
pub(crate) struct BoundCrc {
    after_id: crc32fast::Hasher,
}

impl BoundCrc {
    pub(crate) fn new(id: SegmentId) -> BoundCrc {
        let mut after_id = crc32fast::Hasher::new();
        after_id.update(&id.0);
        BoundCrc { after_id }
    }

    #[inline]
    pub(crate) fn of(&self, at: u64, body: &[u8]) -> u32 {
        let mut crc = self.after_id.clone();
        crc.update(&at.to_le_bytes());
        crc.update(body);
        crc.finalize()
    }

    /// Computes the same checksum of a body that follows its offset in memory.
    #[inline]
    pub(crate) fn of_placed(&self, placed: &[u8]) -> u32 {
        let mut crc = self.after_id.clone();
        crc.update(placed);
        crc.finalize()
    }

    /// Verifies the checksum at the start of the record at file offset `at`. Returns it with the record's type.
    #[inline]
    pub(crate) fn check(&self, payload: &[u8], at: u64, what: &'static str) -> Result<(u32, u8)> {
        let have = payload.len() as u64;
        if have < ENVELOPE {
            return Err(FormatError::Truncated { at, what, need: ENVELOPE, have });
        }
        let stored = LE::read_u32(&payload[..4]);
        let computed = self.of(at, &payload[4..]);
        if stored == computed {
            Ok((stored, payload[4]))
        } else {
            Err(FormatError::Checksum { at, what, stored, computed })
        }
    }
}

/// Returns the type of the record in `payload` at file offset `at`: `S`, `F`, or one of a later minor version
/// (section 10 of SPEC.md).
///
/// # Errors
/// A wrong checksum: the record is not typed, belongs to another segment, or is damaged.
pub fn record_type(payload: &[u8], at: u64, id: SegmentId) -> Result<u8> {
    BoundCrc::new(id).check(payload, at, "a record").map(|(_, kind)| kind)
}

/// The checksum over the heads' checksums, computed in batches.
#[derive(Debug, Default)]
pub(crate) struct HeadsCrc {
    crc: crc32fast::Hasher,
    batch: Vec<[u8; 4]>,
}

impl HeadsCrc {
    #[inline]
    pub(crate) fn push(&mut self, crc: u32) {
        self.batch.push(crc.to_le_bytes());
        if self.batch.len() >= 1024 {
            self.finish();
        }
    }

    pub(crate) fn finish(&mut self) -> u32 {
        self.crc.update(self.batch.as_flattened());
        self.batch.clear();
        self.crc.clone().finalize()
    }
}
