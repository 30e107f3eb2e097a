//! Decodes the bytes of a record field by field: its frames, and the payload in them.

use super::records::{Content, Damage, Record, What};
use ringreel::error::Result;
use ringreel::fs::FileReader;
use ringreel_format::SegmentInfo;
use ringreel_format::describe::{self, FieldKind, describe, describe_image};
use ringreel_format::frame::{FrameHeader, HEADER_LEN, MAGIC};
use std::ops::Range;

/// Most bytes of one field that are shown.
pub const SHOWN: u64 = 4096;
/// Most frames of one record that are shown, and that are read.
const FRAMES: (usize, usize) = (100, 100_000);
/// Largest payload that is read as a whole for decoding.
const READ_AT_MOST: u64 = 1 << 30;

/// Bytes of a file, and their meaning.
#[derive(Clone, Debug)]
pub struct Field {
    /// File offset of the first byte.
    pub at: u64,
    /// The bytes, at most [`SHOWN`].
    pub bytes: Vec<u8>,
    /// Number of further bytes of the field, which are not shown.
    pub left_out: u64,
    /// Their meaning.
    pub what: FieldFact,
}

/// The meaning of some bytes of a file.
#[derive(Clone, Debug)]
pub enum FieldFact {
    /// The magic of a frame. Each one after the first replaces four equal bytes of the payload, which belong to these
    /// fields.
    Magic(Option<Vec<Payload>>),
    /// Flag and length of a frame, and the number of its bytes that exist.
    FrameHeader(FrameHeader, u64),
    /// Zeros after a payload.
    Padding,
    /// Bytes of the payload.
    Payload(Payload),
    /// Further frames of the record, which are not shown.
    MoreFrames,
    /// Further frames of the record, which were not read.
    TooManyFrames,
    /// Damage.
    Damage(Damage),
    /// Bytes that should be a frame.
    NoFrame,
}

/// Bytes of a payload.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Their meaning.
    pub what: PayloadFact,
    /// Whether the field began in an earlier frame.
    pub goes_on: bool,
}

/// The meaning of some bytes of a payload.
#[derive(Clone, Debug)]
pub enum PayloadFact {
    /// A field of a record of the format.
    Field(describe::Field),
    /// The content after MXNet's image header.
    Image(&'static str),
    /// Stored bytes of the part with this name.
    Stored(String),
    /// Zeros before a tensor.
    Pad,
    /// A record of a RecordIO file.
    Plain(Content),
    /// A record of an unknown type, from a later version of the format.
    Later(u8),
    /// Bytes that cannot be decoded.
    Unknown,
}

/// A field of a payload: its length and its meaning.
type Named = (u64, PayloadFact);

/// Returns the fields of a record. `info` is the segment's header, if it is known.
///
/// # Errors
/// The filesystem's errors.
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

/// Returns the fields of an image record whose content is an image file of this `kind`.
fn image(mut fields: Vec<describe::Field>, kind: &'static str) -> Vec<Named> {
    let content = fields.pop_if(|last| last.kind == FieldKind::ImageContent);
    let content = content.map(|last| (last.bytes.len() as u64, PayloadFact::Image(kind)));
    fields.into_iter().map(named).chain(content).collect()
}

/// A frame: its offset, its header, the bytes of payload that exist, and its end.
struct Frame {
    at: u64,
    header: FrameHeader,
    len: u64,
    end: u64,
}

/// Returns the valid frames of a record, and whether more may follow.
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

/// Returns the payload of all frames, with the replaced magics restored.
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

/// Returns the fields that the bytes `gap` of the payload belong to. `fields` begin at `begun`.
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
    /// Adds a field of `len` bytes at file offset `at`, of which at most `shown` are shown.
    fn put(&mut self, at: u64, len: u64, shown: u64, what: FieldFact) -> Result<()> {
        let mut bytes = vec![0; len.min(shown) as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let left_out = len - bytes.len() as u64;
        self.fields.push(Field { at, bytes, left_out, what });
        Ok(())
    }

    /// Adds the frames, and in them the fields of the payload, which may continue in the next frame. Returns the end.
    fn frames(&mut self, frames: &[Frame], named: &[Named]) -> Result<u64> {
        // `begun` is where the current field begins in the payload, `room` how many bytes of it may still be shown.
        let (mut fields, mut begun, mut logical, mut room) = (named.iter().peekable(), 0, 0, SHOWN);
        let mut end = 0;
        for (n, Frame { at, header, len, end: close_at }) in frames.iter().enumerate() {
            if n == FRAMES.0 {
                let left = frames.last().map_or(0, |last| last.end) - at;
                self.put(*at, left, 0, FieldFact::MoreFrames)?;
                return Ok(at + left);
            }
            // The bytes of the payload that the magic replaces: fields in them are shown nowhere else.
            let gap = logical..logical + if n > 0 { 4 } else { 0 };
            let stands_for = (n > 0).then(|| within(&gap, begun, fields.clone()));
            self.put(*at, 4, 4, FieldFact::Magic(stands_for))?;
            self.put(at + 4, 4, 4, FieldFact::FrameHeader(*header, *len))?;
            logical = gap.end;
            let (begin, close) = (at + HEADER_LEN, logical + len);
            while let Some((field_len, what)) = fields.peek() {
                // The part of the field that is in this frame.
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
