//! A segment: the file `<index>.rec`. A header, samples, a footer, a trailer, all of them RecordIO records.
//!
//! | file | what it holds |
//! |---|---|
//! | [`header`] | who wrote the segment, when it was born, what its samples look like |
//! | [`head`] | one sample's head record: small parts inside, the large ones' lengths and checksums |
//! | [`footer`] | where the samples begin; the trailer that finds the footer from the end |
//! | [`writer`] | samples to bytes |
//! | [`sink`] | where these go, when heads are written last |
//! | [`pieces`] | where the records of a large part lie |
//! | [`part`] | one part, from its stored bytes |
//! | [`mod@slice`] | bytes to samples, by position |
//! | [`view`] | the same, lent and not given |
//! | [`walk`] | bytes to samples, from front to back, every byte checked |
//! | [`salvage`] | what is left of a damaged or unfinished segment |

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

/// Major version that is written and read; another one is refused.
pub const FORMAT_MAJOR: u8 = 1;
/// Minor version that is written; any minor version of this major is read.
pub const FORMAT_MINOR: u8 = 0;

/// Tensors in records of their own begin at multiples of this, in bytes.
pub const ALIGNMENT: u64 = 64;
/// Most bytes of a large part in one record; a larger part is cut into several.
pub const CHUNK: u64 = 1 << 28;

pub(crate) const TYPE_SAMPLE: u8 = b'S';
pub(crate) const TYPE_FOOTER: u8 = b'F';

/// Random 128 bits that name a segment for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(
    /// The bits.
    pub [u8; 16],
);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A manifest has one for each segment: at once, not byte by byte.
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
        let bad = || FormatError::Input(format!("{text:?} is no segment id (32 hexadecimal digits)"));
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return Err(bad());
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| bad())?;
        Ok(SegmentId(bits.to_be_bytes()))
    }
}

/// Bytes of checksum and type, with which heads, footers and records of later minor versions begin.
pub(crate) const ENVELOPE: u64 = 5;

/// CRC-32s of records that are bound to their place: over the segment's id, the frame's offset, then the record's bytes
/// behind the checksum. A record that was copied elsewhere does not pass.
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

    /// As [`BoundCrc::of`], of a body that follows its offset.
    #[inline]
    pub(crate) fn of_placed(&self, placed: &[u8]) -> u32 {
        let mut crc = self.after_id.clone();
        crc.update(placed);
        crc.finalize()
    }

    /// Compares the checksum with which the record at file offset `at` begins. Returns it, and the record's type.
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

/// The type of the record in `payload` at file offset `at`: `S`, `F`, or one of a later minor version (section 10 of
/// SPEC.md).
///
/// # Errors
/// A checksum that does not match: no typed record, one of another segment, or a damaged one.
pub fn record_type(payload: &[u8], at: u64, id: SegmentId) -> Result<u8> {
    BoundCrc::new(id).check(payload, at, "a record").map(|(_, kind)| kind)
}

/// The checksum over the heads' checksums, taken in batches.
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
