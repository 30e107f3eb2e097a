//! Text: manifests, `.idx` and `.lst` files, the configuration; and the header of labelled images.

use crate::alloc::bounded;
use ringreel::Config;
use ringreel::manifest::Manifest;
use ringreel_format::FormatError;
use ringreel_format::recordio::{image, index, list};
use std::path::Path;

/// Largest allocation of the decoders of lines and of images: nothing but some bytes for an error's text.
const LINE_EXTRA: usize = 4 << 10;
/// Largest allocation of the decoder of manifests, in addition to twice the input's length: a segment takes as many
/// bytes in memory as its line has, and a full list of them doubles.
const MANIFEST_EXTRA: usize = 16 << 10;
/// Largest allocation of the configuration, for text of up to 4 KiB: the search for the nearest known key uses a table
/// of the two words' lengths.
const CONFIG_EXTRA: usize = 1 << 20;

/// Manifests. The last line's checksum is made to match first. Accepted input is equal after a round trip, and exactly
/// the samples of its lines can be looked up.
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
    assert_eq!((&again.summary, &again.segments), (&read.summary, &read.segments), "changed by a round trip");
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
        assert!(!segment.file().contains('/') && !segment.owner.contains('/'), "{segment:?}");
    }
    assert_eq!(start, total);
}

/// The lines of a file, each as text if it can be: UTF-8, and no CR except before the LF.
fn model_lines(data: &[u8]) -> Vec<Option<&str>> {
    data.split_inclusive(|byte| *byte == b'\n').map(model_line).collect()
}

/// The beginning of each line.
fn begins(data: &[u8]) -> Vec<usize> {
    let ends = data.split_inclusive(|byte| *byte == b'\n').scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

fn model_line(line: &[u8]) -> Option<&str> {
    let text = line.strip_suffix(b"\r\n").or(line.strip_suffix(b"\n")).unwrap_or(line);
    std::str::from_utf8(text).ok().filter(|text| !text.contains('\r'))
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// `.idx` files: each line is accepted or refused as by a simple model, with the same contents. Accepted input is equal
/// after a round trip; each error names its line and the line's offset.
pub fn idx(data: &[u8]) {
    let model = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        let [key, offset] = fields[..] else { return None };
        Some((key.to_owned(), number(offset)?)).filter(|entry| !entry.0.is_empty())
    };
    let want: Vec<_> = model_lines(data).into_iter().map(|line| line.and_then(model)).collect();
    let begins = begins(data);
    let mut written = Vec::new();
    let mut accepted = Vec::new();
    for (n, entry) in bounded(data.len(), LINE_EXTRA, || index::entries(data)).enumerate() {
        assert_eq!(entry.as_ref().ok().map(|entry| (entry.key.to_owned(), entry.offset)), want[n]);
        match entry {
            Ok(entry) => {
                index::write_entry(&mut written, entry).unwrap();
                accepted.push(entry);
            }
            Err(error) => assert_line(begins[n], n, &error),
        }
    }
    let again = index::entries(&written).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(again, accepted);
    assert_eq!(index::entries(data).count(), want.len());
}

/// `.lst` files: each line is accepted or refused as by a simple model, with the same contents. Accepted input is equal
/// after a round trip; each error names its line and the line's offset.
pub fn lst(data: &[u8]) {
    type Plain = (u64, Vec<u32>, String);
    let model = |line: &str| -> Option<Plain> {
        let fields: Vec<_> = line.split('\t').collect();
        let [index, labels @ .., path] = &fields[..] else { return None };
        let bits: Option<Vec<_>> = labels.iter().map(|label| label.parse().ok().map(bits_of)).collect();
        Some((number(index)?, bits.filter(|bits| !bits.is_empty())?, (*path).to_owned()))
            .filter(|item| !item.2.is_empty())
    };
    let plain = |item: &list::Item<'_>| (item.index, item.labels().map(bits_of).collect(), item.path.to_owned());
    let want: Vec<_> = model_lines(data).into_iter().map(|line| line.and_then(model)).collect();
    let begins = begins(data);
    let mut written = Vec::new();
    for (n, item) in bounded(data.len(), LINE_EXTRA, || list::items(data)).enumerate() {
        assert_eq!(item.as_ref().ok().map(plain), want[n]);
        match item {
            Ok(item) => {
                let labels = item.labels().collect::<Vec<_>>();
                list::write_item(&mut written, item.index, &labels, item.path).unwrap();
            }
            Err(error) => assert_line(begins[n], n, &error),
        }
    }
    let again = list::items(&written).map(|item| plain(&item.unwrap()));
    assert!(again.eq(want.iter().flatten().cloned()), "changed by a round trip");
    assert_eq!(list::items(data).count(), want.len());
}

/// A float's bits, except for the bits of a NaN, which text does not preserve.
fn bits_of(label: f32) -> u32 {
    if label.is_nan() { f32::NAN.to_bits() } else { label.to_bits() }
}

/// Checks that the error names line `n`, from 0, and the offset of its first byte.
fn assert_line(begin: usize, n: usize, error: &FormatError) {
    assert_eq!(error.at(), Some(begin as u64));
    let message = error.to_string();
    assert!(message.starts_with(&format!("line {} (byte {begin}) ", n + 1)), "{message}");
}

/// Headers of labelled images: labels and content cover the payload; a round trip is bit-identical, also for labels.
pub fn image(data: &[u8]) {
    let Ok(read) = bounded(data.len(), LINE_EXTRA, || image::Image::decode(data)) else {
        assert!(data.len() < image::LEN || data.len() - image::LEN < 4 * flag(data));
        return;
    };
    let labels: Vec<f32> = read.labels().collect();
    assert_eq!(labels.len(), flag(data).max(1));
    assert_eq!(image::LEN + 4 * flag(data) + read.content.len(), data.len());
    let written = image::encode(read.id, read.id2, &labels, read.content);
    let again = image::Image::decode(&written).unwrap();
    assert_eq!((again.id, again.content), (read.id, read.content));
    assert!(again.labels().map(f32::to_bits).eq(labels.iter().map(|label| label.to_bits())));
}

fn flag(data: &[u8]) -> usize {
    let bytes = data.first_chunk().copied();
    bytes.map_or(0, u32::from_le_bytes) as usize
}

/// The configuration: each error names the file. Accepted input obeys the limits of its keys.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match bounded(data.len(), CONFIG_EXTRA, || Config::parse(text, "config.yaml", Path::new("/base"), true)) {
        Err(error) => assert!(error.to_string().starts_with("config.yaml:"), "{error}"),
        Ok(config) => {
            assert!(config.swap_cap.is_none_or(|cap| cap >= 1) && config.keep <= 1000);
            assert!(config.segment_samples != Some(0) && config.max_part >= 1 && config.write_buffer >= 1 << 20);
            assert!(config.lease.as_micros() >= 1000 && config.poll.is_none_or(|poll| poll.as_micros() >= 1000));
            let all = config.compress.values().chain([&config.compress_all]);
            assert!(all.into_iter().all(|how| match how {
                ringreel::config::Compress::Level(level) => (-7..=19).contains(level),
                _ => true,
            }));
            let names = config.sample.unwrap_or_default();
            assert!(names.iter().all(|name| (1..=255).contains(&name.len())));
            assert_eq!(config.effective.len(), 35);
            let lines = text.lines().count().max(1);
            for row in &config.effective {
                let line = row.origin.strip_prefix("config.yaml:").map(|line| line.parse::<usize>().unwrap());
                assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{row:?}");
            }
        }
    }
}
