//! One sample after the other, in place: heads are decoded into memory that is used again, and parts are lent. For many
//! small samples, where a [`Sample`](super::slice::Sample) of its own for each would cost more than its bytes.

use super::head::{Codec, Head, PartPlace};
use super::header::SegmentInfo;
use super::part::{check_crc, piece_in};
use super::pieces::Pieces;
use super::{BoundCrc, TYPE_SAMPLE};
use crate::error::{FormatError, Result};
use crate::frame::read_record;
use std::borrow::Cow;

/// Decodes samples of one segment.
#[derive(Debug)]
pub struct SampleDecoder {
    bound: BoundCrc,
    head: Head,
    /// The payload of a head that the framing had split.
    joined: Vec<u8>,
}

/// A sample, lent.
#[derive(Clone, Copy, Debug)]
pub struct SampleView<'a> {
    /// Its head.
    pub head: &'a Head,
    payload: &'a [u8],
    bytes: &'a [u8],
    base: u64,
}

impl SampleDecoder {
    /// For samples of the segment that `info` describes.
    pub fn new(info: &SegmentInfo) -> SampleDecoder {
        SampleDecoder { bound: BoundCrc::new(info.id), head: Head::default(), joined: Vec::new() }
    }

    /// The sample in `bytes`, which begin at file offset `base` with its head. The head's checksum is compared; for those
    /// of large parts there is [`SampleView::check`].
    ///
    /// # Errors
    /// Damage of the head.
    #[inline]
    pub fn decode<'a>(&'a mut self, bytes: &'a [u8], base: u64, info: &SegmentInfo) -> Result<SampleView<'a>> {
        let record = read_record(bytes, 0, base)?;
        let payload = match record.payload {
            Cow::Borrowed(payload) => payload,
            Cow::Owned(joined) => {
                self.joined = joined;
                &self.joined
            }
        };
        let (crc, kind) = self.bound.check(payload, base, "a sample's head")?;
        if kind != TYPE_SAMPLE {
            let what = "a record of another type, no sample's head";
            return Err(FormatError::Malformed { at: base, what });
        }
        self.head.decode_checked(payload, base..base + record.next as u64, info, crc)?;
        Ok(SampleView { head: &self.head, payload, bytes, base })
    }
}

impl<'a> SampleView<'a> {
    /// Whether each part can be lent: it is stored as it is, in one record at most.
    pub fn is_plain(&self) -> bool {
        let one = |records: &Pieces| records.count() == 1;
        let is_plain = |place: &PartPlace| match place {
            PartPlace::Inline(_) => true,
            PartPlace::Large { records, .. } => one(records),
        };
        self.head.parts.iter().all(|part| part.codec == Codec::Plain && is_plain(&part.place))
    }

    /// Compares the checksums of the large parts.
    ///
    /// # Errors
    /// A checksum that does not match; frames that are not those which the head foretells.
    #[inline]
    pub fn check(&self) -> Result<()> {
        for (n, part) in self.head.parts.iter().enumerate() {
            if matches!(part.place, PartPlace::Large { .. }) {
                let stored = self.stored(n)?;
                check_crc(part, || crc32fast::hash(&stored))?;
            }
        }
        Ok(())
    }

    /// Whether the large parts stand where the head says. Their checksums are not compared.
    ///
    /// # Errors
    /// Frames that are not those which the head foretells.
    #[inline]
    pub fn check_frames(&self) -> Result<()> {
        (0..self.head.parts.len()).try_for_each(|n| self.stored(n).map(drop))
    }

    /// The stored bytes of part `n` of the schema: a slice of what was given, but where the framing has split them.
    ///
    /// # Errors
    /// Frames that are not those which the head foretells; a part in several records.
    ///
    /// # Panics
    /// Where the schema has no part `n`.
    #[inline]
    pub fn stored(&self, n: usize) -> Result<Cow<'a, [u8]>> {
        match &self.head.parts[n].place {
            PartPlace::Inline(range) => Ok(Cow::Borrowed(&self.payload[range.clone()])),
            PartPlace::Large { records, .. } => {
                let mut pieces = records.iter().map(|piece| piece_in(self.bytes, self.base, piece));
                match (pieces.next(), pieces.next()) {
                    (Some(piece), None) => piece,
                    _ => Err(FormatError::Input("a part in several records cannot be lent".to_owned())),
                }
            }
        }
    }
}
