//! Reads what is left of a damaged or unfinished segment: section 16 of SPEC.md.

use super::footer::{Footer, Trailer};
use super::head::{Head, PartPlace};
use super::header::SegmentInfo;
use super::part::{PART, Part, ReadOptions, decode_part, decoded_room, joined_room, stored_in};
use super::pieces::{Piece, pad_frames};
use super::slice::SegmentSlice;
use super::walk::read_pad;
use super::{BoundCrc, TYPE_FOOTER, TYPE_SAMPLE};
use crate::error::{FormatError, Result};
use crate::frame::{magics, read_strict, truncated_header};
use crate::input::SliceInput;
use crate::meta::Meta;
use crate::recordio::{RecordReader, Region};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;

/// A sample with an intact head. Each of its parts is intact or an error.
#[derive(Debug)]
pub struct SalvagedSample {
    /// File offset of its head.
    pub at: u64,
    /// Position in its segment.
    pub ordinal: u64,
    /// When it was finished, in milliseconds since 1970 by its writer's clock.
    pub unix_ms: u64,
    /// The user's meta.
    pub meta: Meta,
    /// Its parts, in the schema's order.
    pub parts: Vec<Result<Part>>,
}

/// An item found by a [`Salvage`], in the order of the file.
#[derive(Debug)]
pub enum SalvageItem {
    /// A sample.
    Sample(SalvagedSample),
    /// A region of the file that could not be read.
    Skipped(Region),
}

/// Reads a segment from front to back, returns what is intact, and reports the rest.
///
/// The parts of one sample that are compressed or split, and therefore copied, may take [`ReadOptions::max_part`]
/// bytes together.
///
/// It loses at most the samples that the damage touches, and of a sample with an intact head at most the touched
/// parts. The time is proportional to the length of the file.
///
/// ```no_run
/// use bytes::Bytes;
/// use ringreel_format::segment::salvage::{Salvage, SalvageItem};
/// use ringreel_format::{PartRef, ReadOptions, SampleRef, SegmentId, SegmentInfo, SegmentWriter, WriteOptions};
///
/// let bytes = Bytes::from(std::fs::read("damaged.rec")?); // a huge file: Bytes::from_owner(a map of it)
/// let mut salvage = Salvage::new(bytes, ReadOptions::default());
/// let Some(info) = salvage.info().cloned() else { return Ok(()) };
/// let info = SegmentInfo { id: SegmentId(*b"another 16 bytes"), ..info };
/// let mut file = std::fs::File::create("salvaged.rec")?;
/// let mut writer = SegmentWriter::begin(&mut file, info, WriteOptions::default())?;
/// for found in &mut salvage {
///     match found {
///         SalvageItem::Sample(sample) => {
///             let Ok(parts) = sample.parts.iter().map(|part| {
///                 let part = part.as_ref().map_err(Clone::clone)?;
///                 Ok::<_, ringreel_format::FormatError>(PartRef::new(part.dtype.clone(), &part.shape, part.data()?))
///             }).collect::<Result<Vec<_>, _>>() else { continue };
///             writer.sample(&mut file, &SampleRef { parts: &parts, meta: &sample.meta, unix_ms: sample.unix_ms })?;
///         }
///         SalvageItem::Skipped(region) => eprintln!("bytes {} to {}: {}", region.begin, region.end, region.why),
///     }
/// }
/// writer.finish(&mut file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Salvage {
    bytes: Bytes,
    /// `None` if neither header nor footer is left. Then nothing can be read.
    info: Option<SegmentInfo>,
    options: ReadOptions,
    pos: usize,
    /// Ordinal of the last sample that was found.
    last: Option<u64>,
    /// Items that were found and not returned yet.
    found: VecDeque<SalvageItem>,
    finished: bool,
}

/// The record at a position, and where it ends.
enum Standing {
    Sample {
        head: Head,
        payload: Bytes,
        end: usize,
    },
    Footer {
        end: usize,
    },
    /// A record of a later minor version.
    Other {
        end: usize,
    },
}

impl Salvage {
    /// Finds the header, or a footer in its place. `bytes` are a whole file, in memory or mapped.
    pub fn new(bytes: Bytes, options: ReadOptions) -> Salvage {
        let header =
            read_strict(&bytes, 0, 0).and_then(|first| Ok((SegmentInfo::decode_header(&first.payload)?, first.next)));
        let mut salvage =
            Salvage { bytes, info: None, options, pos: 0, last: None, found: VecDeque::new(), finished: false };
        match header {
            Ok((info, end)) => (salvage.info, salvage.pos) = (Some(info), end),
            Err(why) => {
                salvage.info = salvage.info_from_footer();
                salvage.search(why);
            }
        }
        salvage
    }

    /// Returns the segment's description, if it is left.
    pub fn info(&self) -> Option<&SegmentInfo> {
        self.info.as_ref()
    }

    fn info_from_footer(&self) -> Option<SegmentInfo> {
        if let Ok(segment) = SegmentSlice::open(self.bytes.clone()) {
            return Some(segment.footer().info.clone());
        }
        candidates(&self.bytes, 0).find_map(|pos| {
            let record = read_strict(&self.bytes, pos, 0).ok()?;
            let footer = record.payload.get(4) == Some(&TYPE_FOOTER);
            let decode = || Footer::decode(&Bytes::from(record.payload.into_owned()), pos as u64).ok();
            footer.then(decode).flatten().map(|footer| footer.info)
        })
    }

    /// Reads the record at `pos`.
    fn standing(&self, pos: usize) -> Result<Standing> {
        let info = self.info.as_ref().ok_or(FormatError::NotASegment { why: "it has neither header nor footer" })?;
        let record = read_strict(&self.bytes, pos, 0)?;
        let (at, end) = (pos as u64, record.next);
        let (crc, kind) = BoundCrc::new(info.id).check(&record.payload, at, "a record")?;
        let payload = || Bytes::copy_from_slice(&record.payload);
        match kind {
            TYPE_SAMPLE => {
                let mut head = Head::default();
                head.decode_checked(&record.payload, at..end as u64, info, crc)?;
                if self.last.is_some_and(|last| head.ordinal <= last) {
                    return Err(FormatError::Malformed { at, what: "a sample has another ordinal" });
                }
                Ok(Standing::Sample { head, payload: payload(), end })
            }
            TYPE_FOOTER => Footer::decode(&payload(), at).map(|_| Standing::Footer { end }),
            _ => Ok(Standing::Other { end }),
        }
    }

    /// Moves to the next head or footer. Reports the bytes in between as skipped.
    fn search(&mut self, why: FormatError) {
        let begin = self.pos;
        let passes = |pos: &usize| matches!(self.standing(*pos), Ok(Standing::Sample { .. } | Standing::Footer { .. }));
        let found = candidates(&self.bytes, begin + 4).find(|pos| self.info.is_some() && passes(pos));
        self.finished |= found.is_none();
        self.pos = found.unwrap_or(self.bytes.len());
        self.skip(begin as u64..self.pos as u64, why);
    }

    fn skip(&mut self, stretch: Range<u64>, why: FormatError) {
        self.found.push_back(SalvageItem::Skipped(Region { begin: stretch.start, end: stretch.end, why }));
    }

    fn advance(&mut self) {
        let len = self.bytes.len();
        if self.pos == len {
            self.finished = true;
            return self.skip(len as u64..len as u64, truncated_header(len as u64, 0));
        }
        match self.standing(self.pos) {
            Ok(Standing::Sample { head, payload, end }) => self.take_sample(head, &payload, end as u64),
            Ok(Standing::Other { end }) => self.pos = end,
            Ok(Standing::Footer { end }) => {
                self.finished = true;
                if let Err(why) = Trailer::check_behind(&self.bytes[end..], end as u64, self.pos as u64) {
                    self.skip(end as u64..len as u64, why);
                }
            }
            Err(why) => self.search(why),
        }
    }

    fn take_sample(&mut self, head: Head, payload: &Bytes, mut pos: u64) {
        let Some(info) = &self.info else { return };
        let len = self.bytes.len() as u64;
        let (mut parts, mut stretches) = (Vec::new(), Vec::new());
        let mut held = 0u64;
        for (part, named) in head.parts.iter().zip(&info.schema.parts) {
            let stored = match &part.place {
                PartPlace::Inline(range) => Ok(payload.slice(range.clone())),
                PartPlace::Large { records, .. } => {
                    for Piece { frames, .. } in records.iter() {
                        if pos >= len {
                            break;
                        }
                        if let Err(why) = check_pad(&self.bytes, pos) {
                            stretches.push((pad_frames(pos), why));
                        }
                        pos = frames.end;
                    }
                    pos = records.frames().end;
                    let (value, limit) = (held.saturating_add(joined_room(part)), self.options.max_part);
                    if value > limit {
                        Err(FormatError::TooLarge { what: PART, value, limit })
                    } else {
                        stored_in(&self.bytes, 0, records)
                    }
                }
            };
            let options = ReadOptions { max_part: self.options.max_part.saturating_sub(held), ..self.options };
            let decoded = stored.and_then(|stored| decode_part(stored, part.clone(), &named.name, head.at, options));
            if decoded.is_ok() {
                held = held.saturating_add(joined_room(part)).saturating_add(decoded_room(part, options));
            }
            if let (Err(why), Some(begin)) = (&decoded, part.first_record()) {
                stretches.push((begin..pos, why.clone()));
            }
            parts.push(decoded);
        }
        self.pos = head.end.min(len) as usize;
        self.last = Some(head.ordinal);
        let (at, ordinal, unix_ms, meta) = (head.at, head.ordinal, head.unix_ms, head.meta);
        self.found.push_back(SalvageItem::Sample(SalvagedSample { at, ordinal, unix_ms, meta, parts }));
        stretches.sort_by_key(|stretch| stretch.0.start);
        let mut told = 0;
        for (stretch, why) in stretches {
            // A pad between the pieces of a refused part is in that part's region.
            if stretch.start < len && stretch.start >= told {
                told = stretch.end;
                self.finished |= stretch.end >= len;
                self.skip(stretch.start..stretch.end.min(len), why);
            }
        }
    }
}

impl Iterator for Salvage {
    type Item = SalvageItem;

    fn next(&mut self) -> Option<SalvageItem> {
        while self.found.is_empty() && !self.finished {
            self.advance();
        }
        self.found.pop_front()
    }
}

/// Checks the pad needed at file offset `pos`, if any.
fn check_pad(bytes: &[u8], pos: u64) -> Result<()> {
    let here = bytes.get(pos as usize..).unwrap_or_default();
    read_pad(&mut RecordReader::with_input(SliceInput::new(here, pos)))
}

/// Returns the offsets from `from` on, multiples of four, of a magic with the flag of a whole record or of a first
/// part.
fn candidates(bytes: &[u8], from: usize) -> impl Iterator<Item = usize> {
    magics(bytes, from).filter(|pos| bytes.get(pos + 7).is_some_and(|byte| byte >> 5 < 2))
}
