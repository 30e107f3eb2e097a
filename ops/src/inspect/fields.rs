//! The bytes of a record in the file, field by field: its frames, and what the payload in them is.

use super::records::{Content, Damage, Record, What};
use ringreel::error::Result;
use ringreel::fs::FileReader;
use ringreel_format::SegmentInfo;
use ringreel_format::describe::{self, FieldKind, describe, describe_image};
use ringreel_format::frame::{FrameHeader, HEADER_LEN, MAGIC};
use std::ops::Range;

/// Bytes of one field that are shown, at most.
pub const SHOWN: u64 = 4096;
/// Frames of one record that are shown, and that are looked at, at most.
const FRAMES: (usize, usize) = (100, 100_000);
/// Largest record that is read as a whole, to name what is in it.
const READ_AT_MOST: u64 = 1 << 30;

/// Bytes of a file, and what they are.
#[derive(Clone, Debug)]
pub struct Field {
    /// File offset of the first.
    pub at: u64,
    /// The bytes, or the first [`SHOWN`] of them.
    pub bytes: Vec<u8>,
    /// Bytes behind these that belong to it and are not shown.
    pub left_out: u64,
    /// What they are.
    pub what: FieldFact,
}

/// What some bytes of a file are.
#[derive(Clone, Debug)]
pub enum FieldFact {
    /// The magic of a frame. Of all but the first, four equal bytes of the payload were left out: what they belong to.
    Magic(Option<Vec<Payload>>),
    /// Flag and length of a frame, and how many bytes of it are there.
    FrameHeader(FrameHeader, u64),
    /// Zeros behind a payload.
    Padding,
    /// Bytes of the payload.
    Payload(Payload),
    /// More frames of the record than are shown.
    MoreFrames,
    /// More frames of the record than were looked at.
    TooManyFrames,
    /// Damage.
    Damage(Damage),
    /// No frame begins where one should.
    NoFrame,
}

/// Bytes of a payload.
#[derive(Clone, Debug)]
pub struct Payload {
    /// What they are.
    pub what: PayloadFact,
    /// Whether the field began in an earlier frame.
    pub goes_on: bool,
}

/// What some bytes of a payload are.
#[derive(Clone, Debug)]
pub enum PayloadFact {
    /// A field of a record of the format.
    Field(describe::Field),
    /// What follows MXNet's image header.
    Image(&'static str),
    /// Stored bytes of the part with this name.
    Stored(String),
    /// Zeros before a tensor.
    Pad,
    /// A record of a RecordIO file.
    Plain(Content),
    /// A record of this type, which only a later version knows.
    Later(u8),
    /// Nothing says what it is.
    Unknown,
}

/// A payload's field: its length, and what it is.
type Named = (u64, PayloadFact);

/// The fields of a record. `info`: what the segment says of itself, where that is known.
///
/// # Errors
/// What the filesystem says.
pub fn fields(file: &dyn FileReader, record: &Record, info: Option<&SegmentInfo>) -> Result<Vec<Field>> {
    let (frames, more) = frames(file, record)?;
    let named = match &record.what {
        What::Tensor { part, .. } => vec![(record.len, PayloadFact::Stored(part.clone()))],
        What::Pad => vec![(record.len, PayloadFact::Pad)],
        What::Plain(content) if content.labels.is_none() => vec![(record.len, PayloadFact::Plain(content.clone()))],
        what => {
            let payload = payload(file, &frames)?;
            let len = payload.len() as u64;
            match what {
                What::Plain(content) => image(describe_image(&payload), content.kind.unwrap_or("bytes")),
                What::Later(kind) => vec![(len, PayloadFact::Later(*kind))],
                _ => match describe(&payload, record.at..record.end, info) {
                    Some(fields) => fields.into_iter().map(named).collect(),
                    None => vec![(len, PayloadFact::Unknown)],
                },
            }
        }
    };
    let mut out = Out { file, fields: Vec::new() };
    let end = out.frames(&frames, &named)?.max(record.at);
    if end < record.end {
        let what = match &record.what {
            _ if more => FieldFact::TooManyFrames,
            What::Damage(why) => FieldFact::Damage(why.clone()),
            _ => FieldFact::NoFrame,
        };
        out.put(end, record.end - end, 256, what)?;
    }
    Ok(out.fields)
}

fn named(field: describe::Field) -> Named {
    (field.bytes.len() as u64, PayloadFact::Field(field))
}

/// Returns the fields of an image; its content is an image file of this `kind`.
fn image(mut fields: Vec<describe::Field>, kind: &'static str) -> Vec<Named> {
    let content = fields.pop_if(|last| last.kind == FieldKind::ImageContent);
    let content = content.map(|last| (last.bytes.len() as u64, PayloadFact::Image(kind)));
    fields.into_iter().map(named).chain(content).collect()
}

/// A frame: where it begins, its header, the bytes of payload that are there, and where it ends.
struct Frame {
    at: u64,
    header: FrameHeader,
    len: u64,
    end: u64,
}

/// The frames of a record, as far as they are frames, and whether more may follow.
fn frames(file: &dyn FileReader, record: &Record) -> Result<(Vec<Frame>, bool)> {
    let (mut frames, mut at) = (Vec::new(), record.at);
    while at + HEADER_LEN <= record.end && frames.len() < FRAMES.1 {
        let mut bytes = [0; HEADER_LEN as usize];
        file.read_exact_at(&mut bytes, at)?;
        let Ok(header) = FrameHeader::parse(&bytes, at) else { break };
        let (begin, end) = (at + HEADER_LEN, record.end.min(at + header.framed_len()));
        frames.push(Frame { at, header, len: header.len.min(end - begin), end });
        at = end;
        if matches!(header.flag, 0 | 3) {
            break;
        }
    }
    let more = frames.len() == FRAMES.1;
    Ok((frames, more))
}

/// The payload of all frames, the magics that were left out put back.
fn payload(file: &dyn FileReader, frames: &[Frame]) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    for (n, Frame { at, len, .. }) in frames.iter().enumerate() {
        if payload.len() as u64 + len > READ_AT_MOST {
            break;
        }
        if n > 0 {
            payload.extend_from_slice(&MAGIC.to_le_bytes());
        }
        let begin = payload.len();
        payload.resize(begin + *len as usize, 0);
        file.read_exact_at(&mut payload[begin..], at + HEADER_LEN)?;
    }
    Ok(payload)
}

/// What the bytes `gap` of the payload belong to. `fields` begin at `begun`.
fn within<'n>(gap: &Range<u64>, begun: u64, fields: impl Iterator<Item = &'n Named>) -> Vec<Payload> {
    let mut next = begun;
    let ranges = fields.map(|(len, what)| {
        next += len;
        (next - len..next, what)
    });
    let lost = ranges.take_while(|(range, _)| range.start < gap.end).filter(|(range, _)| range.end > gap.start);
    lost.map(|(range, what)| Payload { what: what.clone(), goes_on: range.start < gap.start }).collect()
}

struct Out<'a> {
    file: &'a dyn FileReader,
    fields: Vec<Field>,
}

impl Out<'_> {
    /// Shows `len` bytes from file offset `at` on, at most `shown` of them.
    fn put(&mut self, at: u64, len: u64, shown: u64, what: FieldFact) -> Result<()> {
        let mut bytes = vec![0; len.min(shown) as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let left_out = len - bytes.len() as u64;
        self.fields.push(Field { at, bytes, left_out, what });
        Ok(())
    }

    /// The frames, and in them the fields of the payload, which may go on from one frame to the next. Returns where they
    /// end.
    fn frames(&mut self, frames: &[Frame], named: &[Named]) -> Result<u64> {
        // Where in the payload the field begins that is shown, and how much of it was.
        let (mut fields, mut begun, mut logical, mut room) = (named.iter().peekable(), 0, 0, SHOWN);
        let mut end = 0;
        for (n, Frame { at, header, len, end: close_at }) in frames.iter().enumerate() {
            if n == FRAMES.0 {
                let left = frames.last().map_or(0, |last| last.end) - at;
                self.put(*at, left, 0, FieldFact::MoreFrames)?;
                return Ok(at + left);
            }
            // The bytes of the payload that are not in the file: fields in them have no other place.
            let gap = logical..logical + if n > 0 { 4 } else { 0 };
            let stands_for = (n > 0).then(|| within(&gap, begun, fields.clone()));
            self.put(*at, 4, 4, FieldFact::Magic(stands_for))?;
            self.put(at + 4, 4, 4, FieldFact::FrameHeader(*header, *len))?;
            logical = gap.end;
            let (begin, close) = (at + HEADER_LEN, logical + len);
            while let Some((field_len, what)) = fields.peek() {
                // What of the field lies in this frame.
                let (from, to) = (begun.max(logical), (begun + field_len).min(close));
                if begun > close || (begun == close && *field_len > 0) {
                    break;
                }
                if to > from || *field_len == 0 {
                    let len = to.saturating_sub(from);
                    let part = Payload { what: what.clone(), goes_on: from > begun };
                    self.put(begin + (from - logical), len, room, FieldFact::Payload(part))?;
                    room -= len.min(room);
                }
                if begun + field_len > close {
                    break;
                }
                (begun, room) = (begun + field_len, SHOWN);
                fields.next();
            }
            logical = close;
            end = *close_at;
            if end > begin + len {
                self.put(begin + len, end - begin - len, 4, FieldFact::Padding)?;
            }
        }
        Ok(end)
    }
}
