//! Lists the records of a file. Frames and heads are read; the bytes of tensors are skipped, so that the time depends on
//! the number of records, not on the file's size. (`verify` reads every byte.)

use super::verify_file;
use ringreel::error::{Error, Result};
use ringreel::fs::{FileReader, Fs};
use ringreel::segment::reader::{largest_record, read_tail};
use ringreel_format::frame::{FrameHeader, HEADER_LEN, Sequence, framed_len, read_strict};
use ringreel_format::input::{RangeRead, StreamInput};
use ringreel_format::recordio::image::{self, Image};
use ringreel_format::recordio::{ResyncItem, ResyncReader};
use ringreel_format::segment::pieces::Piece;
use ringreel_format::segment::record_type;
use ringreel_format::{Footer, FormatError, Head, PartPlace, SegmentInfo, TRAILER_LEN, Trailer};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Bytes to read at once after a jump, and in sequence.
const NEAR: usize = 4096;
const AHEAD: usize = 256 << 10;

/// One record, or a byte range that is not a record.
#[derive(Debug)]
pub struct Record {
    /// Its number in the file, from 0, counting damaged ranges.
    pub number: u64,
    /// File offset of its first frame.
    pub at: u64,
    /// File offset of its end (exclusive).
    pub end: u64,
    /// Size of its payload in bytes; of a damaged range, its size.
    pub len: u64,
    /// How often the framing splits it.
    pub splits: u64,
    /// Its type and contents.
    pub what: What,
}

/// Types of records.
#[derive(Debug)]
pub enum What {
    /// The header of a segment.
    Header(Box<SegmentInfo>),
    /// The head of a sample.
    Head(Box<Head>),
    /// Zeros before a tensor.
    Pad,
    /// Stored bytes of a large part, or a piece of them.
    Tensor {
        /// The sample's ordinal in the segment.
        ordinal: u64,
        /// The part.
        part: String,
        /// Index of the piece, from 0, and number of pieces.
        piece: (u64, u64),
    },
    /// The footer of a segment.
    Footer(Box<Footer>),
    /// The trailer of a segment: its last 32 bytes.
    Trailer,
    /// A record of an unknown type, from a later version of the format.
    Later(u8),
    /// A record of a RecordIO file.
    Plain(Content),
    /// A damaged range.
    Damage(Damage),
}

/// Why a byte range is not a record.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// It cannot be decoded.
    Refused(#[serde(serialize_with = "error_text")] FormatError),
    /// The file ends without a footer.
    NoFooter,
    /// A piece of a part that the head announces is missing.
    NoPiece {
        /// The sample's ordinal in the segment.
        ordinal: u64,
        /// The part.
        part: String,
        /// Size of the piece in bytes.
        len: u64,
    },
    /// A padding record is missing.
    NoPad,
    /// The trailer is missing.
    NoTrailer,
    /// Bytes after the trailer.
    BehindTrailer,
}

fn error_text<S: serde::Serializer>(error: &FormatError, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

/// The apparent content of a plain record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// First label and number of labels, if it has MXNet's image header.
    pub labels: Option<(f32, u64)>,
    /// The image's number in that header.
    pub id: u64,
    /// The kind of image file, after that header or at the beginning.
    pub kind: Option<&'static str>,
}

impl Content {
    /// Guesses the content of a payload of `len` bytes that begins with `bytes`. MXNet's image header counts as one if an
    /// image follows it, or its unused field is 0 and its values are plausible.
    pub fn of(bytes: &[u8], len: u64) -> Content {
        if let Some(kind) = image_kind(bytes) {
            return Content { kind: Some(kind), ..Content::default() };
        }
        let Some((header, _)) = bytes.split_at_checked(image::LEN) else { return Content::default() };
        let count = u64::from(u32::from_le_bytes([header[0], header[1], header[2], header[3]]));
        let content = image::LEN as u64 + 4 * count;
        if content > len {
            return Content::default();
        }
        let kind = bytes.get(content as usize..).and_then(image_kind);
        let Ok(found) = Image::decode(&bytes[..bytes.len().min(content as usize)]) else { return Content::default() };
        let plausible = kind.is_some() || (found.id2 == 0 && count < 1 << 16 && found.label.abs() < 1e9);
        let first = found.labels().next().unwrap_or(found.label);
        let labels = plausible.then_some((first, count.max(1)));
        Content { labels, id: if plausible { found.id } else { 0 }, kind }
    }
}

/// Returns the kind of image file that begins with these bytes.
pub fn image_kind(bytes: &[u8]) -> Option<&'static str> {
    let kinds: [(&[u8], &str); 7] = [
        (b"\xff\xd8\xff", "JPEG"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"GIF8", "GIF"),
        (b"BM", "BMP"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"\x93NUMPY", "NPY"),
    ];
    let webp = || bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    kinds.iter().find(|kind| bytes.starts_with(kind.0)).map(|kind| kind.1).or_else(|| webp().then_some("WebP"))
}

impl What {
    /// Returns a name in one word.
    pub fn name(&self) -> &'static str {
        match self {
            What::Header(_) => "header",
            What::Head(_) => "head",
            What::Pad => "pad",
            What::Tensor { .. } => "tensor",
            What::Footer(_) => "footer",
            What::Trailer => "trailer",
            What::Later(_) => "unknown",
            What::Plain(_) => "record",
            What::Damage(_) => "DAMAGE",
        }
    }
}

/// Calls `each` with the records of the file at `path`, until it returns false. Damage is no error, but passed to `each`.
///
/// # Errors
/// A segment of another major version; the filesystem's errors.
pub fn walk(fs: &dyn Fs, path: &Path, each: &mut dyn FnMut(Record) -> bool) -> Result<()> {
    let is_segment = verify_file::is_segment(fs, path)?;
    let file = fs.open(path)?;
    let len = file.size()?;
    let window = Window { file: &*file, path: path.to_owned(), len, at: 0, bytes: Vec::new() };
    let mut walk = Walk { window, pos: 0, number: 0, each, going: true };
    if is_segment {
        let info = match read_tail(fs, path) {
            Err(error @ Error::Format { source: FormatError::Version { .. }, .. }) => return Err(error),
            Err(Error::Fs { source }) => return Err(source.into()),
            other => other.ok().map(|tail| tail.footer.info),
        };
        walk.segment(info)
    } else {
        walk.plain()
    }
}

/// Part of a file in memory.
struct Window<'a> {
    file: &'a dyn FileReader,
    path: PathBuf,
    len: u64,
    at: u64,
    bytes: Vec<u8>,
}

/// A record in the window.
struct Whole {
    payload: Vec<u8>,
    splits: u64,
    end: u64,
}

impl Window<'_> {
    /// Returns the file's bytes from `at` on: at least `want`, or all that are left.
    fn from(&mut self, at: u64, want: usize) -> Result<&[u8]> {
        let have = self.at + self.bytes.len() as u64;
        let follows = (self.at..=have).contains(&at);
        let want = (want as u64).min(self.len.saturating_sub(at));
        if !follows || at + want > have {
            let step = if follows { AHEAD } else { NEAR } as u64;
            let size = want.max(step).min(self.len.saturating_sub(at)) as usize;
            self.bytes.resize(size, 0);
            self.at = at;
            self.file.read_exact_at(&mut self.bytes, at)?;
        }
        Ok(self.bytes.get((at - self.at) as usize..).unwrap_or_default())
    }

    /// Reads the record at `at`.
    fn record(&mut self, at: u64) -> Result<std::result::Result<Whole, FormatError>> {
        let (len, mut want) = (self.len, HEADER_LEN as usize);
        loop {
            let bytes = self.from(at, want)?;
            let reached = at + bytes.len() as u64;
            match read_strict(bytes, 0, at) {
                // The window does not contain all of it yet.
                Err(FormatError::Truncated { at: frame, need, .. }) if reached < len => {
                    // A record may have a million frames, so the window doubles each time.
                    want = frame.saturating_add(need).saturating_sub(at).max(2 * (reached - at)).min(len - at) as usize;
                }
                other => {
                    let whole = |joined: ringreel_format::frame::JoinedRecord<'_>| Whole {
                        splits: joined.splits,
                        end: at + joined.next as u64,
                        payload: joined.payload.into_owned(),
                    };
                    return Ok(other.map(whole));
                }
            }
        }
    }

    /// Returns payload length, number of splits and end of the record at `at`, from its frame headers alone.
    fn hop(&mut self, at: u64) -> Result<std::result::Result<(u64, u64, u64), FormatError>> {
        let (mut next, mut sequence) = (at, Sequence::default());
        while !sequence.is_complete() {
            let (len, have) = (self.len, self.len.saturating_sub(next));
            let bytes = self.from(next, HEADER_LEN as usize)?;
            let short = FormatError::Truncated { at: next, what: "a frame's header", need: HEADER_LEN, have };
            let Some(header) = bytes.first_chunk() else { return Ok(Err(short)) };
            let frame = match FrameHeader::parse(header, next) {
                Ok(frame) => frame,
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = sequence.take(frame, next) {
                return Ok(Err(error));
            }
            let need = frame.framed_len();
            if need > len - next {
                return Ok(Err(FormatError::Truncated { at: next, what: "a frame", need, have }));
            }
            next += need;
        }
        Ok(Ok((sequence.payload_len(), sequence.splits(), next)))
    }

    /// Returns the offset of the first record after `from`, behind damage, that `passes`; the file's end if there is none.
    fn search(&mut self, from: u64, passes: &mut dyn FnMut(&[u8], u64, u64) -> bool) -> Result<u64> {
        let mut read_at = |out: &mut [u8], at| self.file.read_exact_at(out, at).map_err(|error| error.source);
        let source = RangeRead::new(&mut read_at, from..self.len);
        let mut reader = ResyncReader::with_input(StreamInput::new(source, from).at_most(largest_record()));
        while let Some(found) = reader.next().map_err(Error::format("read", &self.path))? {
            if let ResyncItem::Record(record) = found
                && record.at > from
                && passes(record.payload, record.at, record.end)
            {
                return Ok(record.at);
            }
        }
        Ok(self.len)
    }
}

struct Walk<'a> {
    window: Window<'a>,
    pos: u64,
    number: u64,
    each: &'a mut dyn FnMut(Record) -> bool,
    /// Whether `each` has not returned false yet.
    going: bool,
}

impl Walk<'_> {
    /// Passes the range from the current position to `end` to `each`, and moves to `end`.
    fn tell(&mut self, end: u64, len: u64, splits: u64, what: What) {
        let record = Record { number: self.number, at: self.pos, end, len, splits, what };
        self.going = self.going && (self.each)(record);
        self.number += 1;
        self.pos = end;
    }

    fn damage(&mut self, end: u64, why: Damage) {
        self.tell(end, end.saturating_sub(self.pos), 0, What::Damage(why));
    }

    fn plain(&mut self) -> Result<()> {
        while self.going && self.pos < self.window.len {
            match self.window.hop(self.pos)? {
                Ok((len, splits, end)) => {
                    let begin = self.window.from(self.pos, 256)?;
                    let begin = &begin[HEADER_LEN as usize..];
                    let content = Content::of(&begin[..begin.len().min(len as usize)], len);
                    self.tell(end, len, splits, What::Plain(content));
                }
                Err(why) => {
                    let end = self.window.search(self.pos, &mut |_, _, _| true)?;
                    self.damage(end, Damage::Refused(why));
                }
            }
        }
        Ok(())
    }

    /// Walks a segment; `info` is from the footer, if that is intact.
    fn segment(&mut self, info: Option<SegmentInfo>) -> Result<()> {
        let header = self.window.record(0)?;
        let header = header.and_then(|whole| Ok((SegmentInfo::decode_header(&whole.payload)?, whole)));
        let info = match header {
            Ok((info, whole)) => {
                self.tell(whole.end, whole.payload.len() as u64, whole.splits, What::Header(Box::new(info.clone())));
                info
            }
            Err(why @ FormatError::Version { .. }) => return Err(Error::format("read", &self.window.path)(why)),
            Err(why) => {
                let Some(info) = info else {
                    self.damage(self.window.len, Damage::Refused(why));
                    return Ok(());
                };
                self.go_on(&info, why)?;
                info
            }
        };
        while self.going {
            match self.window.record(self.pos)? {
                Ok(whole) => {
                    if self.one(&info, &whole)? {
                        return Ok(());
                    }
                }
                Err(why) => self.go_on(&info, why)?,
            }
            if self.pos >= self.window.len {
                self.damage(self.window.len, Damage::NoFooter);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reports a damaged range, up to the next head or footer.
    fn go_on(&mut self, info: &SegmentInfo, why: FormatError) -> Result<()> {
        let mut passes = |payload: &[u8], at: u64, end: u64| {
            Head::decode(payload, at..end, info).is_ok() || footer(payload, at, info).is_ok()
        };
        let end = self.window.search(self.pos, &mut passes)?;
        self.damage(end, Damage::Refused(why));
        Ok(())
    }

    /// Handles the record at the current position. Returns whether it was the footer.
    fn one(&mut self, info: &SegmentInfo, whole: &Whole) -> Result<bool> {
        let (at, len) = (self.pos, whole.payload.len() as u64);
        if let Ok(footer) = footer(&whole.payload, at, info) {
            self.tell(whole.end, len, whole.splits, What::Footer(Box::new(footer)));
            self.trailer(at)?;
            return Ok(true);
        }
        match Head::decode(&whole.payload, at..whole.end, info) {
            Ok(head) => {
                self.tell(whole.end, len, whole.splits, What::Head(Box::new(head.clone())));
                self.parts(info, &head)?;
            }
            Err(why) => match later(&whole.payload, at, info) {
                Some(kind) => self.tell(whole.end, len, whole.splits, What::Later(kind)),
                None => self.go_on(info, why)?,
            },
        }
        Ok(false)
    }

    /// Handles the padding records and tensors after a head.
    fn parts(&mut self, info: &SegmentInfo, head: &Head) -> Result<()> {
        for (named, part) in info.schema.parts.iter().zip(&head.parts) {
            let PartPlace::Large { records, .. } = &part.place else { continue };
            let count = records.count();
            for (n, Piece { frames, len }) in records.iter().enumerate() {
                if !self.going || self.pos >= self.window.len {
                    return Ok(());
                }
                if frames.start > self.pos {
                    self.pad(frames.start)?;
                }
                let fits = match self.window.hop(frames.start)? {
                    Ok((found, _, end)) => found == len && end == frames.end,
                    Err(_) => false,
                };
                if fits {
                    let splits = (frames.end - frames.start - framed_len(len, 0)) / 4;
                    let (ordinal, part) = (head.ordinal, named.name.clone());
                    self.tell(frames.end, len, splits, What::Tensor { ordinal, part, piece: (n as u64, count) });
                } else {
                    let end = frames.end.min(self.window.len);
                    let (ordinal, part) = (head.ordinal, named.name.clone());
                    self.damage(end.max(self.pos), Damage::NoPiece { ordinal, part, len });
                }
            }
        }
        Ok(())
    }

    fn pad(&mut self, end: u64) -> Result<()> {
        let end = end.min(self.window.len);
        match self.window.record(self.pos)? {
            Ok(whole) if whole.end == end && whole.payload.iter().all(|byte| *byte == 0) => {
                self.tell(end, whole.payload.len() as u64, 0, What::Pad);
            }
            _ => self.damage(end, Damage::NoPad),
        }
        Ok(())
    }

    fn trailer(&mut self, footer_at: u64) -> Result<()> {
        let (pos, len) = (self.pos, self.window.len);
        let rest = self.window.from(pos, TRAILER_LEN as usize + 1)?;
        let decoded = rest.first_chunk().map(|bytes| Trailer::decode(bytes, pos + TRAILER_LEN));
        match decoded {
            Some(Ok(trailer)) if trailer.footer_at == footer_at => {
                self.tell(pos + TRAILER_LEN, TRAILER_LEN - HEADER_LEN, 0, What::Trailer);
            }
            Some(Err(why)) => self.damage(len, Damage::Refused(why)),
            _ => self.damage(len, Damage::NoTrailer),
        }
        if self.pos < len {
            self.damage(len, Damage::BehindTrailer);
        }
        Ok(())
    }
}

/// Decodes the footer in a payload, and checks that it belongs to this segment.
fn footer(payload: &[u8], at: u64, info: &SegmentInfo) -> std::result::Result<Footer, FormatError> {
    if payload.get(4) != Some(&b'F') {
        return Err(FormatError::Malformed { at, what: "the record is not a footer" });
    }
    let footer = Footer::decode(&payload.to_vec().into(), at)?;
    let another = FormatError::Malformed { at, what: "the footer of another segment" };
    if footer.info.id == info.id { Ok(footer) } else { Err(another) }
}

/// Returns the type of a record whose checksum matches but which is neither head nor footer.
fn later(payload: &[u8], at: u64, info: &SegmentInfo) -> Option<u8> {
    record_type(payload, at, info.id).ok().filter(|kind| !b"SF".contains(kind))
}
