//! Reads samples by position. [`Sample::decode`] needs only the bytes of one sample, so the same code serves mapped
//! files and buffers.

use super::footer::{Footer, TRAILER_LEN, Trailer};
use super::head::{Head, PartHead, PartPlace};
use super::header::SegmentInfo;
use super::part::{Part, ReadOptions, decode_part, stored_in};
use super::pieces::Pieces;
use crate::error::{FormatError, Result};
use crate::frame::read_record;
use crate::meta::Meta;
use bytes::Bytes;
use std::borrow::Cow;

/// One sample, decoded.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Position in its segment.
    pub ordinal: u64,
    /// When it was finished, in milliseconds since 1970 by its writer's clock.
    pub unix_ms: u64,
    /// The user's meta.
    pub meta: Meta,
    /// Its parts, in the schema's order.
    pub parts: Vec<Part>,
}

impl Sample {
    /// Decodes the sample in `bytes`, which begin at file offset `base` with the sample's head.
    ///
    /// # Errors
    /// Damage in the bytes that are read.
    pub fn decode(bytes: &Bytes, base: u64, info: &SegmentInfo, options: ReadOptions) -> Result<Sample> {
        let (head, payload) = decode_head(bytes, base, info)?;
        Sample::assemble(head, &payload, base, info, options, |_, records| stored_in(bytes, base, records))
    }

    /// Creates the sample of `head`, whose record has the payload `payload`. `large` returns the stored bytes of a
    /// large part.
    ///
    /// # Errors
    /// Damage in the bytes that are read; errors of `large`.
    pub fn assemble(
        head: Head,
        payload: &Bytes,
        base: u64,
        info: &SegmentInfo,
        options: ReadOptions,
        mut large: impl FnMut(&PartHead, &Pieces) -> Result<Bytes>,
    ) -> Result<Sample> {
        let mut parts = Vec::with_capacity(head.parts.len());
        for (part, named) in head.parts.into_iter().zip(&info.schema.parts) {
            let stored = match &part.place {
                PartPlace::Inline(range) => payload.slice(range.clone()),
                PartPlace::Large { records, .. } => large(&part, records)?,
            };
            parts.push(decode_part(stored, part, &named.name, base, options)?);
        }
        Ok(Sample { ordinal: head.ordinal, unix_ms: head.unix_ms, meta: head.meta, parts })
    }
}

/// Decodes the head at the start of `bytes`. Returns it with its record's payload, which contains its inline parts.
///
/// # Errors
/// See [`Head::decode`].
pub fn decode_head(bytes: &Bytes, base: u64, info: &SegmentInfo) -> Result<(Head, Bytes)> {
    let record = read_record(bytes, 0, base)?;
    let head = Head::decode(&record.payload, base..base + record.next as u64, info)?;
    let payload = match record.payload {
        Cow::Borrowed(payload) => bytes.slice_ref(payload),
        Cow::Owned(joined) => joined.into(),
    };
    Ok((head, payload))
}

/// A whole segment in memory (or mapped).
#[derive(Debug)]
pub struct SegmentSlice {
    bytes: Bytes,
    footer: Footer,
}

impl SegmentSlice {
    /// Reads the trailer and the footer.
    ///
    /// # Errors
    /// No trailer or footer, or damaged ones.
    pub fn open(bytes: Bytes) -> Result<SegmentSlice> {
        let len = bytes.len() as u64;
        let why = "it is shorter than a trailer";
        let tail = bytes.last_chunk().ok_or(FormatError::NotASegment { why })?;
        let trailer = Trailer::decode(tail, len)?;
        let record = read_record(&bytes, trailer.footer_at as usize, 0)?;
        if record.next as u64 != len - TRAILER_LEN {
            let what = "the footer does not end at the trailer";
            return Err(FormatError::Malformed { at: trailer.footer_at, what });
        }
        let footer = Footer::decode(&Bytes::from(record.payload.into_owned()), trailer.footer_at)?;
        Ok(SegmentSlice { footer, bytes })
    }

    /// Returns the footer.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads sample `ordinal`, and verifies all of it.
    ///
    /// # Errors
    /// Damage; an ordinal beyond the last.
    pub fn sample(&self, ordinal: u64) -> Result<Sample> {
        let beyond =
            || FormatError::Input(format!("the segment has no sample {ordinal}: it has {}", self.footer.count));
        let extent = self.footer.extent(ordinal)?.ok_or_else(beyond)?;
        let bytes = self.bytes.slice(extent.start as usize..extent.end as usize);
        let sample = Sample::decode(&bytes, extent.start, &self.footer.info, ReadOptions::default())?;
        if sample.ordinal != ordinal {
            return Err(FormatError::Malformed { at: extent.start, what: "a sample has another ordinal" });
        }
        Ok(sample)
    }
}
