//! The bytes of a record in the file, field by field: its frames, and what the payload in them is.

use super::names::{self, Named};
use super::records::{Record, What, bound_crc};
use ringreel::error::Result;
use ringreel::fs::FileReader;
use ringreel_format::SegmentInfo;
use ringreel_format::frame::{FrameHeader, HEADER_LEN, MAGIC};
use serde::Serialize;
use std::ops::Range;

/// Bytes of one field that are shown, at most.
pub const SHOWN: u64 = 4096;
/// Frames of one record that are shown, and that are looked at, at most.
const FRAMES: (usize, usize) = (100, 100_000);
/// Largest record that is read as a whole, to name what is in it.
const READ_AT_MOST: u64 = 1 << 30;

/// Bytes of a file, and what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// File offset of the first.
    pub at: u64,
    /// The bytes, or the first [`SHOWN`] of them.
    pub bytes: Vec<u8>,
    /// Bytes behind these that belong to it and are not shown.
    pub left_out: u64,
    /// What they are called in format/SPEC.md.
    pub name: String,
    /// What they say.
    pub says: String,
}

/// The fields of a record. `info`: what the segment says of itself, where that is known.
///
/// # Errors
/// What the filesystem says.
pub fn fields(file: &dyn FileReader, record: &Record, info: Option<&SegmentInfo>) -> Result<Vec<Field>> {
    let (frames, more) = frames(file, record)?;
    let named = match &record.what {
        What::Tensor { part, .. } => names::whole(record.len, format!("{part}: its stored bytes"), "nothing but these"),
        What::Pad => names::whole(record.len, "pad", "zeros"),
        What::Plain(content) if content.labels.is_none() => names::whole(record.len, "payload", content),
        what => {
            let payload = payload(file, &frames)?;
            let matches = info.and_then(|info| bound_crc(&payload, record.at, info));
            match what {
                What::Header(_) => names::header(&payload),
                What::Head(_) => names::head(&payload, matches, info.map(|info| &info.schema)),
                What::Footer(_) => names::footer(&payload, matches),
                What::Trailer => names::trailer(&payload),
                What::Plain(content) => names::image(&payload, content.kind.unwrap_or("bytes")),
                What::Later(kind) => names::whole(payload.len() as u64, "?", format!("of type {kind:#04x}, not known")),
                _ => names::guess(&payload, matches, info),
            }
        }
    };
    let mut out = Out { file, fields: Vec::new() };
    let end = out.frames(&frames, &named)?.max(record.at);
    if end < record.end {
        let why = match &record.what {
            _ if more => "more frames of this record".to_owned(),
            What::Damage(why) => format!("understanding ends here: {why}"),
            _ => "understanding ends here: this is no frame".to_owned(),
        };
        out.put(end, record.end - end, 256, "?", &why)?;
    }
    Ok(out.fields)
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

/// What the bytes `gap` of the payload say. `fields` begin at `begun`.
fn within<'n>(gap: &Range<u64>, begun: u64, fields: impl Iterator<Item = &'n Named>) -> String {
    let mut next = begun;
    let ranges = fields.map(|field| {
        next += field.len;
        (next - field.len..next, field)
    });
    let lost = ranges.take_while(|(range, _)| range.start < gap.end).filter(|(range, _)| range.end > gap.start);
    let lost: Vec<String> = lost
        .map(|(range, field)| match range.start < gap.start {
            true => format!("{}, goes on", field.name),
            false => format!("{}: {}", field.name, field.says),
        })
        .collect();
    lost.join("; ")
}

struct Out<'a> {
    file: &'a dyn FileReader,
    fields: Vec<Field>,
}

impl Out<'_> {
    /// Shows `len` bytes from file offset `at` on, at most `shown` of them.
    fn put(&mut self, at: u64, len: u64, shown: u64, name: &str, says: &str) -> Result<()> {
        let mut bytes = vec![0; len.min(shown) as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let left_out = len - bytes.len() as u64;
        self.fields.push(Field { at, bytes, left_out, name: name.to_owned(), says: says.to_owned() });
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
                self.put(*at, left, 0, "...", "more frames of this record")?;
                return Ok(at + left);
            }
            // The bytes of the payload that are not in the file: fields in them have no other place.
            let gap = logical..logical + if n > 0 { 4 } else { 0 };
            let stands_for = match n {
                0 => String::new(),
                _ => format!(
                    "also the same four bytes of the payload, which were left out: {}",
                    within(&gap, begun, fields.clone())
                ),
            };
            self.put(*at, 4, 4, "magic", &stands_for)?;
            let kind = ["a whole record", "first part of a split record", "a middle part", "last part"];
            let kind = kind.get(usize::from(header.flag)).unwrap_or(&"?");
            let there = if *len < header.len { format!(", of which {len} are here") } else { String::new() };
            let says = format!("{} ({kind}), {} bytes{there}", header.flag, header.len);
            self.put(at + 4, 4, 4, "flag and length", &says)?;
            logical = gap.end;
            let (begin, close) = (at + HEADER_LEN, logical + len);
            while let Some(field) = fields.peek() {
                // What of the field lies in this frame.
                let (from, to) = (begun.max(logical), (begun + field.len).min(close));
                if begun > close || (begun == close && field.len > 0) {
                    break;
                }
                let says = if from > begun { "goes on" } else { &field.says };
                if to > from || field.len == 0 {
                    let len = to.saturating_sub(from);
                    self.put(begin + (from - logical), len, room, &field.name, says)?;
                    room -= len.min(room);
                }
                if begun + field.len > close {
                    break;
                }
                (begun, room) = (begun + field.len, SHOWN);
                fields.next();
            }
            logical = close;
            end = *close_at;
            if end > begin + len {
                self.put(begin + len, end - begin - len, 4, "padding", "")?;
            }
        }
        Ok(end)
    }
}
