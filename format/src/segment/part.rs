//! Decodes one part of a sample from its stored bytes.

use super::head::{Codec, PartHead, PartPlace};
use super::pieces::{Piece, Pieces};
use crate::dtype::{DType, Shape};
use crate::error::{FormatError, Result};
use crate::frame::{FrameHeader, HEADER_LEN, check_padding, framed_len, read_expected, unexpected_len};
use crate::input::{RangeRead, ReadAt, StreamInput};
use crate::recordio::RecordReader;
use bytes::Bytes;
use std::borrow::Cow;
use std::io::Cursor;
use std::ops::Range;

/// zstd cannot compress further than this. A part that claims a higher ratio is refused before memory is allocated.
const MAX_RATIO: u64 = 1 << 16;
/// Alignment of tensors in memory, as in the file.
const ALIGNMENT: usize = 64;

/// The subject of a [`FormatError::TooLarge`] of a part.
pub const PART: &str = "bytes of a part";

/// Options for decoding parts.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Whether the checksums of large parts are verified (heads always are).
    pub verify: bool,
    /// Most bytes that a compressed part may decode to.
    pub max_part: u64,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { verify: true, max_part: 1 << 40 }
    }
}

/// A decoded part of a sample. If its dtype or codec is unknown to this version, it has no data.
#[derive(Clone, Debug)]
pub struct Part {
    /// Type of its elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Shape,
    /// File offset of its bytes if they are contiguous there; `None` if they are compressed, split by the framing, or
    /// in a head.
    pub file_offset: Option<u64>,
    data: std::result::Result<Bytes, Unknown>,
}

/// The dtype or codec that is only known to a later version.
#[derive(Clone, Debug)]
struct Unknown {
    part: String,
    code: u8,
    is_codec: bool,
}

impl Part {
    /// Creates a part from its elements: little endian, row-major.
    ///
    /// # Errors
    /// `data` has a different number of bytes than dtype and shape require.
    pub fn new(dtype: DType, shape: Shape, data: Bytes) -> Result<Part> {
        let (have, want) = (data.len() as u64, dtype.byte_len(&shape)?);
        if have != want {
            return Err(FormatError::Input(format!("a part of {want} bytes was given {have} bytes")));
        }
        Ok(Part { dtype, shape, file_offset: None, data: Ok(data) })
    }

    /// Returns the elements: little endian, row-major. They are a slice of the input if possible.
    ///
    /// # Errors
    /// A dtype or a codec of a later version: [`FormatError::UnknownDType`], [`FormatError::UnknownCodec`].
    pub fn data(&self) -> Result<&Bytes> {
        self.data.as_ref().map_err(|unknown| match unknown.clone() {
            Unknown { part, code, is_codec: true } => FormatError::UnknownCodec { part, code },
            Unknown { part, code, .. } => FormatError::UnknownDType { part, code },
        })
    }

    /// Creates a part of the same dtype and shape with other elements.
    ///
    /// # Errors
    /// `data` has a different number of bytes.
    pub fn with_data(&self, data: Bytes) -> Result<Part> {
        Part::new(self.dtype.clone(), self.shape.clone(), data)
    }

    /// Returns the bytes of the tensor, even if they cannot be read.
    pub fn len(&self) -> u64 {
        self.data.as_ref().map_or_else(|_| self.dtype.byte_len(&self.shape).unwrap_or(0), |data| data.len() as u64)
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Decodes the part `head` from its stored bytes. The head of its sample begins at file offset `at`.
///
/// # Errors
/// A large part with a wrong checksum; a compressed part that does not decode to its length. A part whose dtype or
/// codec is only known to a later version is returned without data and is not an error.
pub fn decode_part(stored: Bytes, head: PartHead, name: &str, at: u64, options: ReadOptions) -> Result<Part> {
    let at = head.first_record().unwrap_or(at);
    if options.verify {
        check_crc(&head, || crc32fast::hash(&stored))?;
    }
    let file_offset = match (&head.place, head.codec) {
        (PartPlace::Large { records, .. }, Codec::Plain) if records.count() == 1 && records.splits() == 0 => {
            Some(records.frames().start + HEADER_LEN)
        }
        _ => None,
    };
    let unknown = |code, is_codec| Unknown { part: name.to_owned(), code, is_codec };
    let data = match (&head.dtype, head.codec) {
        (DType::Unknown { code, .. }, _) => Err(unknown(*code, false)),
        (_, Codec::Unknown(code)) => Err(unknown(code, true)),
        (_, Codec::Plain) => Ok(stored),
        (_, Codec::Zstd) => Ok(decompress(&stored, head.decoded_len()?, name, at, options.max_part)?),
    };
    Ok(Part { dtype: head.dtype, shape: head.shape, file_offset, data })
}

/// Returns the memory for decoding this part besides its stored bytes; 0 if it is not compressed or will be refused.
pub fn decoded_room(head: &PartHead, options: ReadOptions) -> u64 {
    let len = match head.codec {
        Codec::Zstd => head.decoded_len().unwrap_or(0),
        _ => 0,
    };
    if len > options.max_part.min(head.stored_len.saturating_mul(MAX_RATIO)) { 0 } else { len }
}

/// Returns the memory for joining the stored bytes of this part; 0 if they are contiguous.
pub fn joined_room(head: &PartHead) -> u64 {
    match &head.place {
        PartPlace::Large { records, .. } if records.count() > 1 || records.splits() > 0 => head.stored_len,
        _ => 0,
    }
}

/// Compares the checksum of a large part with that of its stored bytes.
pub(super) fn check_crc(head: &PartHead, computed: impl FnOnce() -> u32) -> Result<()> {
    let PartPlace::Large { crc: recorded, records } = &head.place else { return Ok(()) };
    let computed = computed();
    if computed == *recorded {
        return Ok(());
    }
    Err(FormatError::Checksum { at: records.frames().start, what: "a part", stored: *recorded, computed })
}

fn decompress(stored: &[u8], len: u64, name: &str, at: u64, limit: u64) -> Result<Bytes> {
    let bad = |why: String| FormatError::Decompress { at, part: name.to_owned(), why };
    if len > limit {
        return Err(FormatError::TooLarge { what: PART, value: len, limit });
    }
    if len > (stored.len() as u64).saturating_mul(MAX_RATIO) {
        return Err(bad(format!("{} stored bytes cannot decode to {len} bytes", stored.len())));
    }
    // libzstd would also read several frames and skippable frames; the format allows exactly one frame.
    let one = stored.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes())
        && zstd::zstd_safe::find_frame_compressed_size(stored) == Ok(stored.len());
    if !one {
        return Err(bad("it is not one zstd frame".to_owned()));
    }
    let mut data = Vec::<u8>::new();
    data.try_reserve_exact(len as usize + ALIGNMENT)
        .map_err(|_| bad(format!("the system has no memory for the {len} bytes that it claims")))?;
    let begin = data.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    // Decodes directly to the final place, without a copy and without initialising the memory.
    let mut data = Cursor::new(data);
    data.set_position(begin as u64);
    let mut decoder = zstd::bulk::Decompressor::new().map_err(|e| bad(e.to_string()))?;
    let found = decoder.decompress_to_buffer(stored, &mut data).map_err(|e| bad(e.to_string()))?;
    if found as u64 != len {
        return Err(bad(format!("it decodes to {found} bytes instead of {len}")));
    }
    Ok(Bytes::from(data.into_inner()).slice(begin..))
}

/// Returns the stored bytes of a large part in `bytes`, which begin at file offset `base`: a slice of them if the
/// part is one record that the framing did not split, else a copy.
///
/// # Errors
/// Frames that do not match the head.
pub fn stored_in(bytes: &Bytes, base: u64, records: &Pieces) -> Result<Bytes> {
    let one = |piece| piece_in(bytes, base, piece);
    if records.count() == 1 {
        let payload = records.iter().next().map(one).transpose()?;
        return Ok(match payload {
            Some(Cow::Borrowed(payload)) => bytes.slice_ref(payload),
            Some(Cow::Owned(payload)) => payload.into(),
            None => Bytes::new(),
        });
    }
    // All records are checked before memory is allocated, because a sparse file may claim any size.
    let len = records.iter().try_fold(0, |sum, piece| one(piece).map(|payload| sum + payload.len()))?;
    let mut joined = Vec::new();
    joined.try_reserve_exact(len).map_err(std::io::Error::from)?;
    for piece in records.iter() {
        joined.extend_from_slice(&one(piece)?);
    }
    Ok(joined.into())
}

/// Returns one record of a large part in `bytes`, which begin at file offset `base`.
#[inline]
pub(super) fn piece_in(bytes: &[u8], base: u64, Piece { frames, len }: Piece) -> Result<Cow<'_, [u8]>> {
    let at = frames.start;
    let pos = at.checked_sub(base).filter(|pos| *pos <= bytes.len() as u64).ok_or_else(|| beyond(at, &frames))?;
    Ok(read_expected(bytes, pos as usize, base, len, (frames.end - base) as usize)?.payload)
}

/// Reads the stored bytes of a large part into `out`, which has their length. `read_at` fills a buffer from a file
/// offset on. So a part in several records needs no other memory. [`decode_part`] verifies the checksum.
///
/// # Errors
/// Frames that do not match the head; errors of `read_at`.
pub fn gather(head: &PartHead, mut out: &mut [u8], read_at: &mut ReadAt<'_>) -> Result<()> {
    let PartPlace::Large { records, .. } = &head.place else { return Ok(()) };
    for Piece { frames, len } in records.iter() {
        let (piece, rest) = out.split_at_mut(len as usize);
        out = rest;
        if frames.end - frames.start == framed_len(len, 0) {
            gather_frame(&frames, piece, read_at)?;
            continue;
        }
        let source = RangeRead::new(read_at, frames.clone());
        let mut filled = 0;
        RecordReader::with_input(StreamInput::new(source, frames.start)).pass(frames, len, &mut |block| {
            piece[filled..filled + block.len()].copy_from_slice(block);
            filled += block.len();
        })?;
    }
    Ok(())
}

/// Reads a record that the framing did not split directly to its final place.
fn gather_frame(frames: &Range<u64>, piece: &mut [u8], read_at: &mut ReadAt<'_>) -> Result<()> {
    let (at, end) = (frames.start, frames.start + HEADER_LEN + piece.len() as u64);
    let mut header = [0; HEADER_LEN as usize];
    read_at(&mut header, at)?;
    let FrameHeader { flag, len } = FrameHeader::parse(&header, at)?;
    if flag != 0 {
        return Err(FormatError::BadFlag { at, found: flag, expected: "0" });
    }
    if len != piece.len() as u64 {
        return Err(unexpected_len(at));
    }
    read_at(piece, at + HEADER_LEN)?;
    let mut zeros = [0; 3];
    let zeros = &mut zeros[..(frames.end - end) as usize];
    read_at(zeros, end)?;
    check_padding(zeros, end)
}

fn beyond(at: u64, frames: &Range<u64>) -> FormatError {
    FormatError::Truncated { at, what: "a part", need: frames.end - frames.start, have: 0 }
}
