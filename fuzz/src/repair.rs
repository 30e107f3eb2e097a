//! Makes the checksums of a damaged segment match, so that a fuzzer reaches the checks behind them.

use byteorder::{ByteOrder, LE};
use bytes::Bytes;
use ringreel_format::frame;
use ringreel_format::segment::part::stored_in;
use ringreel_format::{Head, PartPlace, SegmentInfo, TRAILER_LEN, Trailer};
use std::ops::Range;

/// Corrects the checksums of header, heads, large parts, footer and trailer in `data`, if these records exist and the
/// framing did not split header, heads and footer; and makes the footer's table and the trailer refer to their
/// positions. Returns none if nothing changed.
pub fn repaired(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = data.to_vec();
    let header = next_record(&out, &mut 0).filter(|header| header.start == 8 && header.len() >= 16)?;
    let crc = crc32fast::hash(&[&out[header.start..][..12], &out[header.start + 16..header.end]].concat());
    LE::write_u32(&mut out[header.start + 12..], crc);
    let info = SegmentInfo::decode_header(&out[header.clone()]).ok()?;
    let (mut heads, mut offsets, mut pos) = (crc32fast::Hasher::new(), Vec::new(), next(&header));
    while let Some(record) = next_record(&out, &mut pos) {
        let at = record.start - 8;
        match out[record.clone()].get(4) {
            Some(b'S') => {
                bind(&mut out, &record, &info.id.0);
                let frames = at as u64..next(&record) as u64;
                if let Ok(head) = Head::decode(&out[record.clone()], frames, &info) {
                    repair_parts(&mut out, &record, &head);
                    pos = usize::try_from(head.end).unwrap_or(usize::MAX).min(out.len());
                }
                heads.update(&bind(&mut out, &record, &info.id.0).to_le_bytes());
                offsets.push(at as u64);
            }
            Some(b'F') if record.len() >= 24 + 16 && out[record.start + 5] == 1 => {
                repair_footer(&mut out, &record, &offsets, heads.clone().finalize());
                let end = next(&record);
                if out.len() - end == TRAILER_LEN as usize {
                    out[end..].copy_from_slice(&Trailer { footer_at: at as u64 }.encode());
                }
                break;
            }
            _ => {}
        }
    }
    (out != data).then_some(out)
}

/// Corrects the checksums of large parts in the head's record, if the parts' records agree with the head.
fn repair_parts(out: &mut [u8], record: &Range<usize>, head: &Head) {
    let file = Bytes::copy_from_slice(out);
    for part in &head.parts {
        if let PartPlace::Large { crc, records } = &part.place
            && let Ok(stored) = stored_in(&file, 0, records)
            && let Some(at) = file[record.clone()].windows(4).position(|bytes| bytes == crc.to_le_bytes())
        {
            LE::write_u32(&mut out[record.start + at..], crc32fast::hash(&stored));
        }
    }
}

/// The end of a record, its padding included.
fn next(record: &Range<usize>) -> usize {
    record.end.next_multiple_of(4)
}

/// The payload of the next record that is complete and not split.
fn next_record(data: &[u8], pos: &mut usize) -> Option<Range<usize>> {
    loop {
        let record = frame::read_strict(data, *pos, 0).ok()?;
        let begin = *pos;
        *pos = record.next;
        if record.splits == 0 {
            return Some(begin + 8..begin + 8 + record.payload.len());
        }
    }
}

fn bind(out: &mut [u8], record: &Range<usize>, id: &[u8]) -> u32 {
    let at = (record.start as u64 - 8).to_le_bytes();
    let crc = crc32fast::hash(&[id, &at, &out[record.start + 4..record.end]].concat());
    LE::write_u32(&mut out[record.start..], crc);
    crc
}

fn repair_footer(out: &mut [u8], record: &Range<usize>, offsets: &[u64], heads: u32) {
    let payload = &mut out[record.clone()];
    let count = LE::read_u64(&payload[8..]);
    if count == offsets.len() as u64 && payload.len() > 24 + 8 * offsets.len() {
        LE::write_u64_into(offsets, &mut payload[24..24 + 8 * offsets.len()]);
        LE::write_u32(&mut payload[16..], heads);
    }
    let id_at = (count.min(1 << 32) as usize) * 8 + 24;
    if let Some(id) = payload.get(id_at..id_at + 16).map(<[u8]>::to_vec) {
        bind(out, record, &id);
    }
}
