//! Reads samples one at a time, in place: heads are decoded into reused memory, and parts are borrowed. For many
//! small samples, where a separate [`Sample`](super::slice::Sample) for each would cost more than its bytes.

use super::head::{Codec, Head, PartPlace};
use super::header::SegmentInfo;
use super::part::{check_crc, piece_in};
use super::pieces::Pieces;
use super::{BoundCrc, TYPE_SAMPLE};
use crate::error::{FormatError, Result};
use crate::frame::{HEADER_LEN, quick_record, read_record};
use std::borrow::Cow;

/// Decodes samples of one segment.
#[derive(Debug)]
pub struct SampleDecoder {
    bound: BoundCrc,
    head: Head,
    /// The payload of a head that the framing had split, else empty.
    joined: Vec<u8>,
    /// Whether each part is plain and, if it is large, in one record that was found to match the head.
    is_usual: bool,
}

/// A borrowed sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleView<'a> {
    decoder: &'a SampleDecoder,
    bytes: &'a [u8],
    base: u64,
}

impl SampleDecoder {
    /// Creates a decoder for samples of the segment that `info` describes.
    pub fn new(info: &SegmentInfo) -> SampleDecoder {
        let bound = BoundCrc::new(info.id);
        SampleDecoder { bound, head: Head::default(), joined: Vec::new(), is_usual: false }
    }

    /// Decodes the sample in `bytes`, which begin at file offset `base` with its head. Verifies the head's checksum;
    /// [`SampleView::check`] verifies those of large parts.
    ///
    /// # Errors
    /// A damaged head.
    #[inline]
    pub fn decode(&mut self, bytes: &[u8], base: u64, info: &SegmentInfo) -> Result<()> {
        self.is_usual = self.decode_usual(bytes, base, info).is_some();
        if self.is_usual { Ok(()) } else { self.decode_closely(bytes, base, info) }
    }

    /// Returns the sample that was last decoded successfully, from the same `bytes` at the same offset. (A separate
    /// call, because a `Result` that contains the view would be copied, which takes longer than all other work here.)
    #[inline]
    pub fn view<'a>(&'a self, bytes: &'a [u8], base: u64) -> SampleView<'a> {
        SampleView { decoder: self, bytes, base }
    }

    /// Decodes a sample that resembles the last one. Returns `None` if [`SampleDecoder::decode_closely`] has to
    /// decide.
    #[inline]
    fn decode_usual(&mut self, bytes: &[u8], base: u64, info: &SegmentInfo) -> Option<()> {
        let (payload, len) = quick_record(bytes)?;
        let (stored, body) = payload.split_first_chunk()?;
        let crc = u32::from_le_bytes(*stored);
        if self.bound.of(base, body) != crc || *body.first()? != TYPE_SAMPLE || !self.joined.is_empty() {
            return None;
        }
        self.head.decode_usual(payload, base..base + len as u64, info, crc)?;
        for part in &self.head.parts {
            if let PartPlace::Large { records, .. } = &part.place {
                let frames = records.frames();
                let record = bytes.get(usize::try_from(frames.start.checked_sub(base)?).ok()?..)?;
                let (payload, len) = quick_record(record)?;
                if payload.len() as u64 != part.stored_len || len as u64 != frames.end - frames.start {
                    return None;
                }
            }
        }
        Some(())
    }

    #[inline(never)]
    fn decode_closely(&mut self, bytes: &[u8], base: u64, info: &SegmentInfo) -> Result<()> {
        let record = read_record(bytes, 0, base)?;
        let (crc, kind) = self.bound.check(&record.payload, base, "a sample's head")?;
        if kind != TYPE_SAMPLE {
            let what = "the record is not a sample's head";
            return Err(FormatError::Malformed { at: base, what });
        }
        self.head.decode_checked(&record.payload, base..base + record.next as u64, info, crc)?;
        self.joined = match record.payload {
            Cow::Borrowed(_) => Vec::new(),
            Cow::Owned(joined) => joined,
        };
        Ok(())
    }
}

impl<'a> SampleView<'a> {
    /// Returns its head.
    #[inline]
    pub fn head(&self) -> &'a Head {
        &self.decoder.head
    }

    /// Returns whether all parts can be borrowed, because each is uncompressed and in at most one record.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.decoder.is_usual || self.is_closely_plain()
    }

    fn is_closely_plain(&self) -> bool {
        let one = |records: &Pieces| records.count() == 1;
        let is_plain = |place: &PartPlace| match place {
            PartPlace::Inline(_) => true,
            PartPlace::Large { records, .. } => one(records),
        };
        self.head().parts.iter().all(|part| part.codec == Codec::Plain && is_plain(&part.place))
    }

    /// Verifies the checksums of the large parts.
    ///
    /// # Errors
    /// A wrong checksum; frames that do not match the head.
    #[inline]
    pub fn check(&self) -> Result<()> {
        for (n, part) in self.head().parts.iter().enumerate() {
            if matches!(part.place, PartPlace::Large { .. }) {
                let stored = self.stored(n)?;
                check_crc(part, || crc32fast::hash(&stored))?;
            }
        }
        Ok(())
    }

    /// Checks that the large parts are where the head says, without verifying their checksums.
    ///
    /// # Errors
    /// Frames that do not match the head.
    #[inline]
    pub fn check_frames(&self) -> Result<()> {
        match self.decoder.is_usual {
            true => Ok(()), // decoding has checked them
            false => (0..self.head().parts.len()).try_for_each(|n| self.stored(n).map(drop)),
        }
    }

    /// Returns the stored bytes of part `n` of the schema: a slice of the input unless the framing has split them.
    ///
    /// # Errors
    /// Frames that do not match the head; a part in several records.
    ///
    /// # Panics
    /// If the schema has no part `n`.
    #[inline]
    pub fn stored(&self, n: usize) -> Result<Cow<'a, [u8]>> {
        let part = &self.head().parts[n];
        match &part.place {
            PartPlace::Inline(range) if self.decoder.joined.is_empty() => {
                Ok(Cow::Borrowed(&self.bytes[HEADER_LEN as usize..][range.clone()]))
            }
            PartPlace::Inline(range) => Ok(Cow::Borrowed(&self.decoder.joined[range.clone()])),
            PartPlace::Large { records, .. } if self.decoder.is_usual => {
                let begin = (records.frames().start - self.base + HEADER_LEN) as usize;
                Ok(Cow::Borrowed(&self.bytes[begin..][..part.stored_len as usize]))
            }
            PartPlace::Large { records, .. } => {
                let mut pieces = records.iter().map(|piece| piece_in(self.bytes, self.base, piece));
                match (pieces.next(), pieces.next()) {
                    (Some(piece), None) => piece,
                    _ => Err(FormatError::Input("a part in several records cannot be borrowed".to_owned())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slice::SegmentSlice;
    use super::super::writer::{PartRef, SampleRef, SegmentWriter, WriteOptions};
    use super::*;
    use crate::dtype::{DType, Schema};
    use crate::frame::MAGIC;
    use crate::meta::Meta;

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 20) as usize % limit
        }

        /// Returns random bytes; with `split`, including a magic that must be escaped.
        fn bytes(&mut self, len: usize, split: bool) -> Vec<u8> {
            let mut bytes: Vec<u8> = (0..len).map(|_| self.below(8) as u8).collect();
            if split {
                // The offset of an inline part in the head is unknown, so one of several magics is at a multiple of
                // four.
                for (n, at) in (0..len.saturating_sub(8)).step_by(5).take(8).enumerate() {
                    bytes[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
                    bytes[at + 4] = n as u8;
                }
            }
            bytes
        }
    }

    /// Creates a segment of samples, most of which follow the schema and resemble the one before.
    fn segment(random: &mut Random) -> Result<SegmentSlice> {
        let schema = Schema::new([("small", DType::U8, vec![41]), ("large", DType::U16, vec![150])])?;
        let provenance = Meta::new();
        let id = super::super::SegmentId(*b"0123456789abcdef");
        let info = SegmentInfo { id, born: 1, created_unix_ms: 1_000, first_number: 0, schema, provenance };
        let mut file = Vec::new();
        let options = WriteOptions { inline_max: [100, 10_000][random.below(2)], compress: Vec::new() };
        let mut writer = SegmentWriter::begin(&mut file, info, options)?;
        let mut unix_ms = 1_000;
        for _ in 0..300 {
            let odd = |random: &mut Random| random.below(12) == 0;
            unix_ms += [0, 1, 40, 5_000][random.below(4)];
            let mut meta = Meta::new();
            if odd(random) {
                meta.set("seed", random.below(1000) as u64);
            }
            let [small, large] = [41, 150].map(|len| if odd(random) { random.below(2 * len) } else { len });
            let dtype = if odd(random) { DType::I8 } else { DType::U8 };
            let (split_small, split_large) = (odd(random), odd(random));
            let data = [random.bytes(small, split_small), random.bytes(2 * large, split_large)];
            writer.compress(if odd(random) { vec![Some(1), Some(1)] } else { Vec::new() });
            let shapes = [[small as u64], [large as u64]];
            let parts = [PartRef::new(dtype, &shapes[0], &data[0]), PartRef::new(DType::U16, &shapes[1], &data[1])];
            writer.sample(&mut file, &SampleRef { parts: &parts, meta: &meta, unix_ms })?;
        }
        writer.finish(&mut file)?;
        SegmentSlice::open(file.into())
    }

    /// Returns everything that `decoder` reports about a sample.
    fn said(decoder: &mut SampleDecoder, bytes: &[u8], base: u64, info: &SegmentInfo) -> String {
        if let Err(error) = decoder.decode(bytes, base, info) {
            return error.to_string();
        }
        let view = decoder.view(bytes, base);
        let stored: Vec<_> = (0..view.head().parts.len()).map(|n| view.stored(n)).collect();
        format!("{:?} {stored:?} {:?} {:?} {:?}", view.head(), view.is_plain(), view.check_frames(), view.check())
    }

    /// Damages a sample: cuts its end off, or changes one byte, or changes the head or its length and corrects the
    /// checksum.
    fn damaged(random: &mut Random, bytes: &[u8], base: u64, bound: &BoundCrc) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        match (random.below(4), quick_record(&bytes)) {
            (0, _) => bytes.truncate(random.below(bytes.len())),
            (1, _) | (_, None) => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            (kind, Some((payload, len))) => {
                let (mut payload, behind) = (payload.to_vec(), bytes[len..].to_vec());
                if kind == 2 {
                    payload.resize((payload.len() + random.below(16)).saturating_sub(12).max(5), 0);
                } else {
                    let at = 4 + random.below(payload.len().min(16) - 4);
                    payload[at] = [0, 1, 2, 4, 0x7f, 0x80, random.below(256) as u8][random.below(7)];
                }
                let crc = bound.of(base, &payload[4..]);
                payload[..4].copy_from_slice(&crc.to_le_bytes());
                let padding = [0; 3][..crate::frame::padding(payload.len() as u64) as usize].to_vec();
                let header = [MAGIC.to_le_bytes(), (payload.len() as u32).to_le_bytes()].concat();
                bytes = [header, payload, padding, behind].concat();
            }
        }
        bytes
    }

    /// A decoder that compares a head with the usual one returns what a fresh decoder returns, for intact and
    /// for damaged samples.
    #[test]
    fn decoder_with_a_usual_head_agrees_with_a_fresh_decoder() -> Result<()> {
        let mut random = Random(7);
        let (mut short, mut short_damaged, mut refused) = (0, 0, 0);
        for _ in 0..100 {
            let segment = segment(&mut random)?;
            let (footer, bound) = (segment.footer(), BoundCrc::new(segment.footer().info.id));
            let mut decoder = SampleDecoder::new(&footer.info);
            for ordinal in 0..footer.count {
                let extent = footer.extent(ordinal)?.unwrap_or_default();
                let base = extent.start;
                let whole = &segment.bytes()[extent.start as usize..extent.end as usize];
                let afresh =
                    |bytes: &[u8], base| said(&mut SampleDecoder::new(&footer.info), bytes, base, &footer.info);
                for _ in 0..random.below(4) {
                    let bytes = damaged(&mut random, whole, base, &bound);
                    let base = if random.below(9) == 0 { base + 64 } else { base };
                    let found = said(&mut decoder, &bytes, base, &footer.info);
                    assert_eq!(found, afresh(&bytes, base), "sample {ordinal}, damaged");
                    short_damaged += u32::from(decoder.is_usual);
                    refused += u32::from(!found.starts_with("Head"));
                }
                assert_eq!(said(&mut decoder, whole, base, &footer.info), afresh(whole, base), "sample {ordinal}");
                short += u32::from(decoder.is_usual);
            }
        }
        assert!(short > 1_000 && short_damaged > 300 && refused > 1_000, "{short}, {short_damaged}, {refused}");
        Ok(())
    }
}
