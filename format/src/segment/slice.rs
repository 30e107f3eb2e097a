//! Bytes to samples, by position. [`Sample::decode`] needs the bytes of one sample alone, so the same code serves a
//! mapped file and a buffer that was read.

use super::footer::{Footer, TRAILER_LEN, Trailer};
use super::head::{Codec, Head, PartHead, PartPlace};
use super::header::SegmentInfo;
use crate::dtype::{DType, Shape};
use crate::error::{FormatError, Result};
use crate::frame::read_record;
use crate::meta::Meta;
use bytes::Bytes;

/// zstd cannot shrink further than this: a smaller stored part that claims more is a lie, found before allocating.
const MAX_RATIO: u64 = 1 << 16;

/// How to decode parts.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Whether the checksums of large parts are compared (heads always are).
    pub verify: bool,
    /// Most bytes that a compressed part may decode to.
    pub max_part: u64,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { verify: true, max_part: 1 << 40 }
    }
}

/// One part of a sample, decoded.
#[derive(Clone, Debug)]
pub struct Part {
    /// Type of its elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Shape,
    /// The elements: little endian, row-major. A slice of the input wherever that is possible.
    pub data: Bytes,
}

/// One sample, decoded.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Position in its segment.
    pub ordinal: u64,
    /// When it was finished, by its writer's clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// The user's meta.
    pub meta: Meta,
    /// Its parts, in the schema's order.
    pub parts: Vec<Part>,
}

impl Sample {
    /// The sample in `bytes`, which begin at file offset `base` with the sample's head.
    ///
    /// # Errors
    /// Damage anywhere in what is looked at; a part of an unknown codec or dtype.
    pub fn decode(bytes: &Bytes, base: u64, info: &SegmentInfo, options: ReadOptions) -> Result<Sample> {
        let head = decode_head(bytes, base, info)?;
        let schema = &info.schema.parts;
        let parts =
            head.parts.iter().zip(schema).map(|(part, named)| decode_part(bytes, base, part, &named.name, options));
        let parts = parts.collect::<Result<_>>()?;
        Ok(Sample { ordinal: head.ordinal, unix_ms: head.unix_ms, meta: head.meta, parts })
    }
}

/// The head at the beginning of `bytes`.
///
/// # Errors
/// See [`Head::decode`].
pub fn decode_head(bytes: &Bytes, base: u64, info: &SegmentInfo) -> Result<Head> {
    let record = read_record(bytes, 0, base)?;
    Head::decode(&record.payload, base..base + record.next as u64, info)
}

/// One part of the sample in `bytes`.
///
/// # Errors
/// Damage; an unknown codec or dtype.
pub fn decode_part(bytes: &Bytes, base: u64, part: &PartHead, name: &str, options: ReadOptions) -> Result<Part> {
    if let DType::Unknown { code, .. } = part.dtype {
        return Err(FormatError::UnknownDType { part: name.to_owned(), code });
    }
    let stored = match &part.place {
        PartPlace::Inline(stored) => stored.clone(),
        PartPlace::Large { crc, records } => {
            let stored = join_records(bytes, base, records)?;
            if options.verify {
                let computed = crc32fast::hash(&stored);
                if computed != *crc {
                    let at = records.first().map_or(base, |record| record.0.start);
                    return Err(FormatError::Checksum { at, what: "a part", stored: *crc, computed });
                }
            }
            stored
        }
    };
    let data = unpack(stored, part, name, base, options)?;
    Ok(Part { dtype: part.dtype.clone(), shape: part.shape.clone(), data })
}

fn join_records(bytes: &Bytes, base: u64, records: &[(std::ops::Range<u64>, u64)]) -> Result<Bytes> {
    let one = |(frames, len): &(std::ops::Range<u64>, u64)| {
        let at = frames.start;
        let pos = at.checked_sub(base).filter(|pos| *pos <= bytes.len() as u64);
        let pos = pos.ok_or(FormatError::Malformed { at, what: "a part lies outside its sample" })?;
        let record = read_record(bytes, pos as usize, base)?;
        if record.payload.len() as u64 != *len || base + record.next as u64 != frames.end {
            return Err(FormatError::Malformed { at, what: "a part's record has another length than its head says" });
        }
        Ok(record.payload)
    };
    match records {
        [only] => one(only),
        many => {
            let mut joined = Vec::new();
            for record in many {
                joined.extend_from_slice(&one(record)?);
            }
            Ok(joined.into())
        }
    }
}

fn unpack(stored: Bytes, part: &PartHead, name: &str, at: u64, options: ReadOptions) -> Result<Bytes> {
    let len = part.decoded_len()?;
    let bad = |why: String| FormatError::Decompress { at, part: name.to_owned(), why };
    match part.codec {
        Codec::Plain => Ok(stored),
        Codec::Zstd => {
            if len > options.max_part {
                return Err(FormatError::TooLarge { what: "bytes of a part", value: len, limit: options.max_part });
            }
            if len > (stored.len() as u64).saturating_mul(MAX_RATIO) {
                return Err(bad(format!("{len} bytes cannot come out of {}", stored.len())));
            }
            let data = zstd::bulk::decompress(&stored, len as usize).map_err(|e| bad(e.to_string()))?;
            if data.len() as u64 != len {
                return Err(bad(format!("{} bytes came out, {len} were declared", data.len())));
            }
            Ok(data.into())
        }
        Codec::Unknown(code) => Err(bad(format!("codec {code} is unknown to this version"))),
    }
}

/// A whole segment in memory (or mapped).
pub struct SegmentSlice {
    bytes: Bytes,
    footer: Footer,
}

impl SegmentSlice {
    /// Finds trailer and footer.
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
        Ok(SegmentSlice { footer: Footer::decode(&record.payload, trailer.footer_at)?, bytes })
    }

    /// The footer.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Sample `ordinal`, everything checked.
    ///
    /// # Errors
    /// Damage; an ordinal beyond the last.
    pub fn sample(&self, ordinal: u64) -> Result<Sample> {
        let beyond = || FormatError::Input(format!("there is no sample {ordinal}: there are {}", self.footer.count));
        let extent = self.footer.extent(ordinal)?.ok_or_else(beyond)?;
        let bytes = self.bytes.slice(extent.start as usize..extent.end as usize);
        let sample = Sample::decode(&bytes, extent.start, &self.footer.info, ReadOptions::default())?;
        if sample.ordinal != ordinal {
            return Err(FormatError::Malformed { at: extent.start, what: "a sample has another ordinal" });
        }
        Ok(sample)
    }
}
