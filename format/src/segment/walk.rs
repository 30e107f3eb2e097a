//! Reads samples in order, from memory, a map or any `Read`, and checks every frame, all padding and every checksum.
//! Any single flipped bit is detected. Reading needs memory for one sample; checking needs much less.

use super::footer::{Footer, TRAILER_LEN, Trailer};
use super::head::{Codec, Head, PartPlace};
use super::header::SegmentInfo;
use super::part::{PART, Part, ReadOptions, check_crc, decode_part};
use super::pieces::{Piece, pad_before};
use super::slice::Sample;
use super::{BoundCrc, HeadsCrc, TYPE_FOOTER, TYPE_SAMPLE};
use crate::error::{FormatError, Result};
use crate::frame::truncated_header;
use crate::input::{Input, StreamInput};
use crate::recordio::RecordReader;
use bytes::Bytes;
use std::io::Read;

/// Bytes by which the memory for a part grows at a time: with the bytes that arrived, not with the claimed length.
const GROWTH: usize = 4 << 20;

/// Reads a whole, finished segment and checks all of it. Returns its footer. A compressed part may decode to at most
/// `max_part` bytes.
///
/// # Errors
/// The first damage found; errors of the source.
pub fn check(input: impl Input, max_part: u64) -> Result<Footer> {
    let mut walk = SegmentWalk::begin(input, max_part)?;
    walk.keep = Keep::Compressed;
    while let Some(sample) = walk.next()? {
        for (n, part) in sample.head.parts.iter().enumerate() {
            if part.codec == Codec::Zstd {
                sample.part(n)?;
            }
        }
    }
    walk.footer.ok_or(FormatError::NotASegment { why: "it has no footer" })
}

/// Checks a segment as [`check`] does but does not decompress, so it only shows whether the bytes are those that were
/// written. Needs little memory, whatever the segment claims.
///
/// # Errors
/// As [`check`].
pub fn check_stored(input: impl Input) -> Result<Footer> {
    let mut walk = SegmentWalk::begin(input, 0)?;
    walk.keep = Keep::Nothing;
    while walk.next()?.is_some() {}
    walk.footer.ok_or(FormatError::NotASegment { why: "it has no footer" })
}

/// Which bytes of large parts are kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    All,
    Compressed,
    Nothing,
}

/// Reads samples in order, and checks everything on the way.
#[derive(Debug)]
pub struct SegmentWalk<I> {
    records: RecordReader<I>,
    info: SegmentInfo,
    bound: BoundCrc,
    keep: Keep,
    max_part: u64,
    heads: HeadsCrc,
    offsets: Vec<u64>,
    head: Head,
    /// The head's payload, if records after it had to be read.
    payload: Vec<u8>,
    large: Vec<Bytes>,
    footer: Option<Footer>,
}

/// A sample whose checksums all match.
#[derive(Clone, Copy)]
pub struct WalkedSample<'a> {
    /// Its head.
    pub head: &'a Head,
    info: &'a SegmentInfo,
    payload: &'a [u8],
    large: &'a [Bytes],
    max_part: u64,
}

impl WalkedSample<'_> {
    /// Returns the stored bytes of part `n` of the schema.
    ///
    /// # Panics
    /// If the schema has no part `n`.
    #[inline]
    pub fn stored(&self, n: usize) -> &[u8] {
        match &self.head.parts[n].place {
            PartPlace::Inline(range) => &self.payload[range.clone()],
            PartPlace::Large { .. } => &self.large[n],
        }
    }

    /// Decodes part `n` of the schema.
    ///
    /// # Errors
    /// A compressed part that does not decode to its length.
    ///
    /// # Panics
    /// If the schema has no part `n`.
    pub fn part(&self, n: usize) -> Result<Part> {
        let stored = match &self.head.parts[n].place {
            PartPlace::Inline(range) => Bytes::copy_from_slice(&self.payload[range.clone()]),
            PartPlace::Large { .. } => self.large[n].clone(),
        };
        let options = ReadOptions { verify: false, max_part: self.max_part }; // the walk has verified it
        decode_part(stored, self.head.parts[n].clone(), &self.info.schema.parts[n].name, self.head.at, options)
    }

    /// Decodes the whole sample.
    ///
    /// # Errors
    /// As [`WalkedSample::part`].
    pub fn sample(&self) -> Result<Sample> {
        let Head { ordinal, unix_ms, meta, parts, .. } = self.head;
        let parts = (0..parts.len()).map(|n| self.part(n)).collect::<Result<_>>()?;
        Ok(Sample { ordinal: *ordinal, unix_ms: *unix_ms, meta: meta.clone(), parts })
    }
}

impl<R: Read> SegmentWalk<StreamInput<R>> {
    /// Reads the header of a file, a pipe, or any other source that begins with a segment.
    ///
    /// # Errors
    /// As [`SegmentWalk::begin`].
    pub fn new(source: R, max_part: u64) -> Result<SegmentWalk<StreamInput<R>>> {
        SegmentWalk::begin(StreamInput::new(source, 0), max_part)
    }
}

impl<I: Input> SegmentWalk<I> {
    /// Reads the header. A compressed part may decode to at most `max_part` bytes.
    ///
    /// # Errors
    /// The input is not a segment; a damaged header; errors of the source.
    pub fn begin(input: I, max_part: u64) -> Result<SegmentWalk<I>> {
        let mut records = RecordReader::with_input(input);
        let first = records.next()?.ok_or_else(|| truncated_header(0, 0))?;
        let info = SegmentInfo::decode_header(first.payload)?;
        Ok(SegmentWalk {
            bound: BoundCrc::new(info.id),
            info,
            records,
            keep: Keep::All,
            max_part,
            heads: HeadsCrc::default(),
            offsets: Vec::new(),
            head: Head::default(),
            payload: Vec::new(),
            large: Vec::new(),
            footer: None,
        })
    }

    /// Returns the segment's description.
    pub fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// Returns the footer after the last sample was read.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Returns the next sample, or `None` after the footer and the trailer were read and match all samples.
    ///
    /// # Errors
    /// The first damage found; errors of the source. Do not continue after an error.
    #[allow(clippy::should_implement_trait)] // the sample borrows from the walk
    pub fn next(&mut self) -> Result<Option<WalkedSample<'_>>> {
        if self.footer.is_some() {
            return Ok(None);
        }
        loop {
            let end = self.records.position();
            let span = self.records.advance()?.ok_or_else(|| truncated_header(end, 0))?;
            let record = self.records.lend(span)?;
            let frames = record.at..record.end;
            let (crc, kind) = self.bound.check(record.payload, record.at, "a record")?;
            match kind {
                TYPE_SAMPLE => {
                    self.head.decode_checked(record.payload, frames, &self.info, crc)?;
                    self.count_head()?;
                    let payload = if self.head.end == self.records.position() {
                        self.records.lend(span)?.payload
                    } else {
                        self.payload.clear();
                        self.payload.extend_from_slice(self.records.lend(span)?.payload);
                        self.read_parts()?;
                        &self.payload
                    };
                    return Ok(Some(WalkedSample {
                        head: &self.head,
                        info: &self.info,
                        payload,
                        large: &self.large,
                        max_part: self.max_part,
                    }));
                }
                TYPE_FOOTER => {
                    let footer = Footer::decode(&Bytes::copy_from_slice(record.payload), frames.start)?;
                    self.check_end(&footer, frames.end)?;
                    self.footer = Some(footer);
                    return Ok(None);
                }
                _ => {} // a type of a later minor version
            }
        }
    }

    /// Counts the head, for the comparison with the footer.
    fn count_head(&mut self) -> Result<()> {
        let Head { at, ordinal, crc, .. } = self.head;
        if ordinal != self.offsets.len() as u64 {
            return Err(FormatError::Malformed { at, what: "a sample has another ordinal" });
        }
        self.offsets.push(at);
        self.heads.push(crc);
        Ok(())
    }

    /// Reads the records of the large parts, which follow the head.
    fn read_parts(&mut self) -> Result<()> {
        self.large.clear();
        let mut compressed = 0u64;
        for part in &self.head.parts {
            let PartPlace::Large { records, .. } = &part.place else {
                self.large.push(Bytes::new());
                continue;
            };
            let keep = match self.keep {
                Keep::All => true,
                Keep::Compressed => part.codec == Codec::Zstd,
                Keep::Nothing => false,
            };
            // All parts of a sample are in memory at once, so a length that a file claims and backs with holes is
            // limited.
            compressed = compressed.saturating_add(if part.codec == Codec::Zstd { part.stored_len } else { 0 });
            if self.keep == Keep::Compressed && compressed > self.max_part {
                return Err(FormatError::TooLarge { what: PART, value: compressed, limit: self.max_part });
            }
            let (mut stored, mut crc) = (Vec::new(), crc32fast::Hasher::new());
            let mut memory = Ok(());
            for Piece { frames, len } in records.iter() {
                read_pad(&mut self.records)?;
                self.records.pass(frames, len, &mut |block| {
                    crc.update(block);
                    if keep && memory.is_ok() {
                        let left = part.stored_len as usize - stored.len();
                        if stored.capacity() - stored.len() < block.len() {
                            memory = stored.try_reserve_exact(left.min(GROWTH.max(block.len())));
                        }
                        if memory.is_ok() {
                            stored.extend_from_slice(block);
                        }
                    }
                })?;
                memory.clone().map_err(std::io::Error::from)?;
            }
            check_crc(part, || crc.finalize())?;
            self.large.push(stored.into());
        }
        Ok(())
    }

    fn check_end(&mut self, footer: &Footer, end: u64) -> Result<()> {
        let at = footer.at;
        let bytes = |info: &SegmentInfo| {
            let mut bytes = Vec::new();
            info.encode(&mut bytes).map(|()| bytes)
        };
        let contradict = FormatError::Malformed { at, what: "header, samples and footer contradict one another" };
        if footer.count != self.offsets.len() as u64 {
            return Err(contradict);
        }
        let computed = self.heads.finish();
        if footer.heads_crc != computed {
            let (what, stored) = ("the footer's list of heads", footer.heads_crc);
            return Err(FormatError::Checksum { at, what, stored, computed });
        }
        if !footer.offsets().eq(self.offsets.iter().copied()) || bytes(&footer.info)? != bytes(&self.info)? {
            return Err(contradict);
        }
        Trailer::check_behind(self.records.rest(TRAILER_LEN as usize + 1)?, end, at)
    }
}

/// Reads the pad needed at the reader's position, if any.
pub(super) fn read_pad(records: &mut RecordReader<impl Input>) -> Result<()> {
    let at = records.position();
    let Some(want) = pad_before(at) else { return Ok(()) };
    let record = records.next()?.ok_or_else(|| truncated_header(at, 0))?;
    let clean = record.payload.iter().all(|byte| *byte == 0);
    if clean && record.splits == 0 && record.payload.len() as u64 == want && record.end - record.at == want + 8 {
        Ok(())
    } else {
        Err(FormatError::DirtyPadding { at })
    }
}
