//! Inputs and the helpers of plain files, each compared with a simple model.

use ringreel_format::input::{Input, RangeRead, STEP, SliceInput, StreamInput};
use ringreel_format::recordio::{RecordWriter, ResyncItem, ResyncReader, image, index, list};
use ringreel_format::segment::SegmentId;
use ringreel_format::{FormatError, frame};
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Counts the bytes read, and records the largest request.
struct Counted<'a> {
    bytes: &'a [u8],
    read: Rc<Cell<(usize, usize)>>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.bytes.read(buffer)?;
        let (all, most) = self.read.get();
        self.read.set((all + len, most.max(buffer.len())));
        Ok(len)
    }
}

#[test]
fn inputs_return_all_bytes_and_read_ahead_at_most_a_step() {
    let bytes: Vec<u8> = (0..3 * STEP + 77).map(|n| (n * 7 % 251) as u8).collect();
    let read = Rc::new(Cell::new((0, 0)));
    let mut stream = StreamInput::new(Counted { bytes: &bytes, read: read.clone() }, 1000);
    let mut slice = SliceInput::new(&bytes, 1000);
    let mut pos = 0;
    // (peek, consume); peeked bytes stay available.
    for (peek, consume) in [
        (8, 0),
        (8, 8),
        (0, 0),
        (STEP, 3),
        (STEP + 1, STEP),
        (100, 7),
        (2, 1),
        (2 * STEP, STEP / 2),
        (3 * STEP, STEP),
        (5 * STEP, 10),
        (4 * STEP, 4 * STEP),
        (1, 1),
    ] {
        let want = &bytes[pos..bytes.len().min(pos + peek)];
        assert!(slice.peek(peek).unwrap() == want && stream.peek(peek).unwrap() == want, "at {pos}");
        let (all, most) = read.get();
        assert!(all <= pos + peek + STEP && most <= STEP, "{all} bytes were read at {pos}, {most} at a time");
        slice.consume(consume);
        stream.consume(consume);
        pos = bytes.len().min(pos + consume);
        assert_eq!((slice.position(), stream.position()), (1000 + pos as u64, 1000 + pos as u64));
    }
    assert_eq!(pos, bytes.len());
    assert!(stream.into_inner().bytes.is_empty());
}

#[test]
fn stream_buffers_at_most_the_request_and_a_step() {
    let bytes = vec![7; 40 * STEP];
    let read = Rc::new(Cell::new((0, 0)));
    let mut stream = StreamInput::new(Counted { bytes: &bytes, read: read.clone() }, 0);
    while !stream.peek(1000).unwrap().is_empty() {
        stream.consume(1000);
        let ahead = read.get().0 as u64 - stream.position();
        assert!(ahead <= 1000 + STEP as u64, "{ahead} bytes");
    }
    assert_eq!(stream.position(), bytes.len() as u64);
}

#[test]
fn range_read_returns_exactly_its_range() {
    let bytes: Vec<u8> = (0..200).collect();
    let mut read_at = |out: &mut [u8], at: u64| {
        out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
        Ok(())
    };
    let mut out = Vec::new();
    RangeRead::new(&mut read_at, 20..130).read_to_end(&mut out).unwrap();
    assert_eq!(out, &bytes[20..130]);
}

#[test]
fn writer_returns_the_offset_of_each_record() {
    let mut writer = RecordWriter::at(Vec::new(), 100);
    let split = frame::MAGIC.to_le_bytes();
    let begins = [&b"abcde"[..], &split, b"", b"x"].map(|payload| writer.write(payload).unwrap());
    assert_eq!((begins, writer.position()), ([100, 116, 132, 140], 152));
    assert_eq!((writer.get_mut().len(), writer.into_inner().len()), (52, 52));
}

#[test]
fn resync_reader_reports_its_position_after_damage() {
    let mut writer = RecordWriter::new(Vec::new());
    for payload in [&b"one"[..], b"two", b"three"] {
        writer.write(payload).unwrap();
    }
    let mut file = writer.into_inner();
    file[12] ^= 1; // the second record's magic
    let mut reader = ResyncReader::over(&file);
    let mut seen = vec![reader.position()];
    while let Some(found) = reader.next().unwrap() {
        let end = match found {
            ResyncItem::Record(record) => record.end,
            ResyncItem::Skipped(region) => {
                assert!(matches!(region.why, FormatError::BadMagic { at: 12, .. }) && region.why.name() == "BadMagic");
                region.end
            }
        };
        seen.push(end);
        assert_eq!(reader.position(), end);
    }
    assert_eq!(seen, [0, 12, 24, 40]);
}

#[test]
fn bad_lines_are_reported_with_number_and_offset() {
    let text = b"a\t0\r\nb\t1\nc\t2\r\nd\n";
    let read: Vec<_> = index::entries(text).collect();
    assert!(read[..3].iter().all(Result::is_ok) && read.len() == 4);
    assert!(matches!(read[3], Err(FormatError::BadLine { at: 14, line: 4, .. })), "{:?}", read[3]);
    for key in ["", "a\tb", "a\n", "\r"] {
        assert!(index::write_entry(&mut Vec::new(), index::Entry { key, offset: 0 }).is_err(), "{key:?}");
    }
    for (labels, path) in [(&[][..], "x"), (&[1.0], ""), (&[1.0], "a\tb"), (&[1.0], "a\nb")] {
        assert!(list::write_item(&mut Vec::new(), 1, labels, path).is_err(), "{labels:?} {path:?}");
    }
}

#[test]
fn image_without_labels_reads_back_as_label_zero() {
    for labels in [&[][..], &[4.0], &[1.0, 2.0]] {
        let bytes = image::encode(3, 4, labels, b"content");
        let image = image::Image::decode(&bytes).unwrap();
        let want = if labels.is_empty() { &[0.0][..] } else { labels };
        assert_eq!((image.labels().collect::<Vec<_>>(), image.content), (want.to_vec(), &b"content"[..]));
        assert_eq!(bytes.len(), image::LEN + 7 + if labels.len() > 1 { 4 * labels.len() } else { 0 });
    }
}

#[test]
fn segment_id_has_32_lowercase_hexadecimal_digits() {
    let text = "000102030405060708090a0b0c0d0eff";
    let id: SegmentId = text.parse().unwrap();
    assert_eq!((id.to_string(), format!("{id:?}"), id.0[15]), (text.to_owned(), text.to_owned(), 255));
    for bad in [
        "",
        "0",
        &text[1..],
        &text.to_uppercase(),
        &format!("{text}0"),
        &text.replace('f', "g"),
        &text.replace("00", "+0"),
    ] {
        assert!(bad.parse::<SegmentId>().is_err(), "{bad}");
    }
}
