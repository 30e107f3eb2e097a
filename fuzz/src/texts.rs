//! Text: manifests, `.idx` and `.lst` files, the configuration; and the header of labelled images.

use crate::alloc::bounded;
use ringreel::Config;
use ringreel::ring::manifest::Manifest;
use ringreel_format::recordio::{image, index, list};
use std::path::Path;

/// What the decoders of lines and of images may ask for at once: nothing. (A number of bytes for an error's text.)
const LINE_EXTRA: usize = 4 << 10;
/// What the decoder of manifests may ask for at once, beside twice the length of the input: a segment takes as many bytes
/// in memory as its line has, and the list of them doubles when it is full.
const MANIFEST_EXTRA: usize = 16 << 10;
/// What the configuration may ask for at once, for text of up to 4 KiB: to find the nearest known key, a table of the two
/// words' lengths is made.
const CONFIG_EXTRA: usize = 1 << 20;

/// Manifests. The last line's checksum is made to match first. What is accepted, written again and read again, is equal;
/// and each sample that its lines add up to is found, and none beyond.
pub fn manifest(data: &[u8]) {
    let _ = bounded(2 * data.len(), MANIFEST_EXTRA, || Manifest::decode(data));
    let body = data.strip_suffix(b"\n").unwrap_or(data);
    let lines = &body[..body.iter().rposition(|byte| *byte == b'\n').map_or(0, |n| n + 1)];
    let count = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let generation = std::str::from_utf8(lines).ok().and_then(|text| {
        let digits = text.split_once("\"generation\":")?.1.trim_start();
        digits[..digits.bytes().take_while(u8::is_ascii_digit).count()].parse::<u64>().ok()
    });
    let end = format!(
        "{{\"end\":{},\"lines\":{count},\"crc32\":\"{:08x}\"}}\n",
        generation.unwrap_or(0),
        crc32fast::hash(lines)
    );
    let data = [lines, end.as_bytes()].concat();
    let Ok(read) = bounded(2 * data.len(), MANIFEST_EXTRA, || Manifest::decode(&data)) else { return };
    let written = read.encode().unwrap();
    let again = Manifest::decode(&written).unwrap();
    assert_eq!((&again.summary, &again.segments), (&read.summary, &read.segments), "written again and read again");
    let total = read.summary.samples;
    assert!(read.locate(total).is_none() && read.locate(u64::MAX).is_none());
    let mut start = 0;
    for segment in &read.segments {
        assert!(read.lists(segment.id) && read.locate_id(segment.id).is_some());
        if segment.samples > 0 {
            assert_eq!(read.locate(start), Some((segment, 0)));
            start += segment.samples;
            assert_eq!(read.locate(start - 1), Some((segment, segment.samples - 1)));
        }
        assert!(!segment.file.contains('/') && !segment.owner.contains('/'), "{segment:?}");
    }
    assert_eq!(start, total);
}

/// `.idx` files: what is accepted, written again and read again, is equal; each error names its line and the line's offset.
pub fn idx(data: &[u8]) {
    let mut written = Vec::new();
    let mut accepted = Vec::new();
    for (n, entry) in bounded(data.len(), LINE_EXTRA, || index::entries(data)).enumerate() {
        match entry {
            Ok(entry) => {
                index::write_entry(&mut written, entry).unwrap();
                accepted.push(entry);
            }
            Err(error) => assert_line(data, n, &error.to_string(), error.at()),
        }
    }
    let again = index::entries(&written).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(again, accepted);
    assert_eq!(index::entries(data).count(), data.split_inclusive(|byte| *byte == b'\n').count());
}

/// `.lst` files: what is accepted, written again and read again, is equal; each error names its line and the line's offset.
pub fn lst(data: &[u8]) {
    let bits = |item: &list::Item<'_>| item.labels().map(bits_of).collect::<Vec<_>>();
    let mut written = Vec::new();
    let mut accepted = Vec::new();
    for (n, item) in bounded(data.len(), LINE_EXTRA, || list::items(data)).enumerate() {
        match item {
            Ok(item) => {
                let labels = item.labels().collect::<Vec<_>>();
                assert!(!labels.is_empty());
                list::write_item(&mut written, item.index, &labels, item.path).unwrap();
                accepted.push(item);
            }
            Err(error) => assert_line(data, n, &error.to_string(), error.at()),
        }
    }
    let again = list::items(&written).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(again.len(), accepted.len());
    for (again, first) in again.iter().zip(&accepted) {
        assert_eq!((again.index, bits(again), again.path), (first.index, bits(first), first.path));
    }
}

/// A float's bits, but for those of a NaN, which text does not keep.
fn bits_of(label: f32) -> u32 {
    if label.is_nan() { f32::NAN.to_bits() } else { label.to_bits() }
}

/// Line `n`, from 0, is the one that the error names, and its offset is that of the line's first byte.
fn assert_line(data: &[u8], n: usize, message: &str, at: Option<u64>) {
    let begin: usize = data.split_inclusive(|byte| *byte == b'\n').take(n).map(<[u8]>::len).sum();
    assert_eq!(at, Some(begin as u64));
    assert!(message.starts_with(&format!("line {} (byte {begin}) ", n + 1)), "{message}");
}

/// Headers of labelled images: labels and content lie in the payload and take all of it; written again and read again, all
/// is equal, each label bit for bit.
pub fn image(data: &[u8]) {
    let Ok(read) = bounded(data.len(), LINE_EXTRA, || image::Image::decode(data)) else {
        assert!(data.len() < image::LEN || data.len() - image::LEN < 4 * flag(data));
        return;
    };
    let labels: Vec<f32> = read.labels().collect();
    assert_eq!(labels.len(), flag(data).max(1));
    assert_eq!(image::LEN + 4 * flag(data) + read.content.len(), data.len());
    let written = image::encode(read.id, &labels, read.content);
    let again = image::Image::decode(&written).unwrap();
    assert_eq!((again.id, again.content), (read.id, read.content));
    assert!(again.labels().map(f32::to_bits).eq(labels.iter().map(|label| label.to_bits())));
}

fn flag(data: &[u8]) -> usize {
    let bytes = data.first_chunk().copied();
    bytes.map_or(0, u32::from_le_bytes) as usize
}

/// The configuration: each error names the file. What is accepted holds to the limits of its keys.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match bounded(data.len(), CONFIG_EXTRA, || Config::parse(text, "config.yaml", Path::new("/base"), true)) {
        Err(error) => assert!(error.to_string().starts_with("config.yaml:"), "{error}"),
        Ok(config) => {
            assert!(config.swap_cap.is_none_or(|cap| cap >= 1) && config.keep <= 1000);
            assert!(config.segment_samples >= 1 && config.max_part >= 1 && config.write_buffer >= 1 << 20);
            assert!(config.lease.as_micros() >= 1000 && config.poll.is_none_or(|poll| poll.as_micros() >= 1000));
            assert!(config.compress.values().chain(&config.compress_all).all(|level| (-7..=19).contains(level)));
            let names = config.sample.unwrap_or_default();
            assert!(names.iter().all(|name| (1..=255).contains(&name.len())));
            assert_eq!(config.effective.len(), 30);
            let lines = text.lines().count().max(1);
            for row in &config.effective {
                let line = row.origin.strip_prefix("config.yaml:").map(|line| line.parse::<usize>().unwrap());
                assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{row:?}");
            }
        }
    }
}
