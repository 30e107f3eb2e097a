//! Bytes to samples, from front to back: every frame, every padding, every checksum is looked at. What it accepts is
//! exactly what the writer writes; any single flipped bit is found.

use super::footer::{Footer, TRAILER_LEN, Trailer};
use super::head::{Head, PartPlace};
use super::header::SegmentInfo;
use super::slice::{ReadOptions, decode_part};
use super::{TYPE_FOOTER, TYPE_SAMPLE, bound_crc, pad_before};
use crate::error::{FormatError, Result};
use crate::frame::{framed_len, read_record};
use byteorder::{ByteOrder, LE};
use bytes::Bytes;

/// Walks a whole, finished segment and checks all of it. `on_head` sees each sample's head. Returns the footer.
///
/// # Errors
/// The first damage found.
pub fn check(bytes: &Bytes, mut on_head: impl FnMut(&Head)) -> Result<Footer> {
    let first = read_record(bytes, 0, 0)?;
    let info = SegmentInfo::decode_header(&first.payload)?;
    let mut heads_crc = crc32fast::Hasher::new();
    let mut offsets = Vec::new();
    let mut pos = first.next;
    loop {
        let at = pos as u64;
        let record = read_record(bytes, pos, 0)?;
        match kind_of(&record.payload, at, &info)? {
            TYPE_SAMPLE => {
                let head = Head::decode(&record.payload, at..record.next as u64, &info)?;
                if head.ordinal != offsets.len() as u64 {
                    return Err(FormatError::Malformed { at, what: "a sample has another ordinal" });
                }
                check_parts(bytes, &head, record.next as u64, &info)?;
                heads_crc.update(&head.crc.to_le_bytes());
                offsets.push(at);
                pos = head.end as usize;
                on_head(&head);
            }
            TYPE_FOOTER => {
                let footer = Footer::decode(&record.payload, at)?;
                let (again, _) = Footer::encode(&info, &offsets, heads_crc.finalize(), at)?;
                if again != record.payload {
                    return Err(FormatError::Malformed {
                        at,
                        what: "header, samples and footer contradict one another",
                    });
                }
                let rest = &bytes[record.next..];
                let have = rest.len() as u64;
                let tail: &[u8; TRAILER_LEN as usize] = rest.try_into().map_err(|_| FormatError::Truncated {
                    at: record.next as u64,
                    what: "the trailer",
                    need: TRAILER_LEN,
                    have,
                })?;
                if Trailer::decode(tail, bytes.len() as u64)?.footer_at != at {
                    return Err(FormatError::Malformed { at, what: "the trailer names another footer" });
                }
                return Ok(footer);
            }
            _ => pos = record.next, // a kind of a later minor version
        }
    }
}

/// The type of a record that is neither the header nor a part, its checksum compared.
fn kind_of(payload: &[u8], at: u64, info: &SegmentInfo) -> Result<u8> {
    if payload.len() < 5 {
        return Err(FormatError::Malformed { at, what: "a record stands where none belongs" });
    }
    let (stored, computed) = (LE::read_u32(payload), bound_crc(info.id, at, &payload[4..]));
    if stored == computed {
        Ok(payload[4])
    } else {
        Err(FormatError::Checksum { at, what: "a record", stored, computed })
    }
}

fn check_parts(bytes: &Bytes, head: &Head, after_head: u64, info: &SegmentInfo) -> Result<()> {
    let mut pos = after_head;
    for (part, named) in head.parts.iter().zip(&info.schema.parts) {
        if let PartPlace::Large { records, .. } = &part.place {
            for (frames, _) in records {
                if let Some(pad) = pad_before(pos) {
                    let record = read_record(bytes, pos as usize, 0)?;
                    let dirty = record.payload.iter().any(|byte| *byte != 0);
                    if dirty || record.payload.len() as u64 != pad || framed_len(pad, 0) != record.next as u64 - pos {
                        return Err(FormatError::DirtyPadding { at: pos });
                    }
                }
                pos = frames.end;
            }
        }
        match decode_part(bytes, 0, part, &named.name, ReadOptions::default()) {
            Ok(_) | Err(FormatError::UnknownDType { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
