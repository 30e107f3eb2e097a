//! `COMPRESS: auto` compresses parts if it pays, leaves others unchanged, and does not change what readers get.

use ringreel::fs::Posix;
use ringreel::segment::reader::{Access, SegmentReader};
use ringreel::{Generator, NamedPart, Reader};
use ringreel_format::{Codec, DType, Meta, ReadOptions, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use testkit::cli::{self, PATIENCE, Place};

const SIDE: u64 = 48;
/// Something may disturb the clock at the first trial of a part; two more trials correct that.
const MISTAKEN: u64 = 3;
const SHAPE: [u64; 3] = [SIDE; 3];

/// Blocks of equal numbers, as in a label map.
fn labels(n: u64) -> Vec<u8> {
    let label = |at: u64| (at / SIDE / SIDE / 12 + at / SIDE % SIDE / 12 + at % SIDE / 12 + n) % 40;
    (0..SIDE.pow(3)).map(|at| label(at) as u8).collect()
}

/// Bytes whose eighth bit is all that compression can save.
fn noise(n: u64) -> Vec<u8> {
    let mut state = n << 1 | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 57) as u8
    };
    (0..SIDE.pow(3)).map(|_| next()).collect()
}

fn meta(n: u64) -> Meta {
    let mut meta = Meta::new();
    meta.set("n", n);
    meta
}

fn number(meta: &Meta) -> u64 {
    let Some(Value::Int(n)) = meta.get("n") else { panic!("no number: {meta:?}") };
    *n as u64
}

/// The parts of each sample, by its number, and whether each is compressed.
type Found = BTreeMap<u64, Vec<(Vec<u8>, bool)>>;

/// Returns the contents of all segments in `dir`.
fn found(dir: &Path, parts: usize) -> Found {
    let mut found = Found::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let segment = SegmentReader::open(&Posix, &entry.unwrap().path(), Access::Copy).unwrap();
        for ordinal in 0..segment.tail().footer.count {
            let (head, sample) =
                (segment.head(ordinal).unwrap(), segment.sample(ordinal, ReadOptions::default()).unwrap());
            let n = number(&sample.meta);
            let one =
                |part: usize| (sample.parts[part].data().unwrap().to_vec(), head.parts[part].codec == Codec::Zstd);
            assert!(found.insert(n, (0..parts).map(one).collect()).is_none(), "sample {n} twice");
        }
    }
    found
}

#[test]
fn label_maps_are_compressed_and_noise_is_not() {
    for (compress, segment_samples, want) in [
        ("auto", 1, [false, true]),
        ("auto", 4, [false, true]),
        ("{label: auto, image: none}", 1, [false, true]),
        ("{image: auto}", 2, [false, false]),
        ("{image: auto, label: 3}", 2, [false, true]),
    ] {
        let yaml =
            format!("SWAP_CAP: 12\nSAMPLE: [image, label]\nSEGMENT_SAMPLES: {segment_samples}\nCOMPRESS: {compress}\n");
        let place = Place::new(&yaml);
        let mut generator = Generator::open(&place.config()).unwrap();
        for n in 0..12 {
            let (image, label) = (noise(n), labels(n));
            let parts = [
                NamedPart::new("label", DType::U8, &SHAPE, &label),
                NamedPart::new("image", DType::U8, &SHAPE, &image),
            ];
            generator.write(&parts, &meta(n), &|| false).unwrap();
        }
        generator.finish(true, &|| false).unwrap();
        let found = found(&place.ring().join("read.1"), 2);
        assert_eq!(found.len(), 12);
        for (n, parts) in found {
            let how = [parts[0].1, parts[1].1];
            assert!(parts[0].0 == noise(n) && parts[1].0 == labels(n), "{compress}: sample {n}");
            assert!(how == want || n < MISTAKEN, "{compress}: sample {n}: {how:?}");
        }
        for read in ["READ: mmap", "READ: pread"] {
            let reader = Reader::open(&place.with(read)).unwrap();
            let newest = reader.newest().unwrap();
            for position in 0..12 {
                let sample = reader.sample(&newest, position).unwrap();
                let n = number(&sample.meta);
                assert!(sample.parts[0].data().unwrap() == &noise(n) && sample.parts[1].data().unwrap() == &labels(n));
            }
        }
    }
}

#[test]
fn changing_data_soon_changes_the_decision() {
    let place = Place::new("SWAP_CAP: 400\nSAMPLE: [x]\nSEGMENT_SAMPLES: 400\nCOMPRESS: auto\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    let is_label = |n: u64| !(100..250).contains(&n);
    let contents = |n: u64| if is_label(n) { labels(n) } else { noise(n) };
    for n in 0..400 {
        generator.write(&[NamedPart::new("x", DType::U8, &SHAPE, &contents(n))], &meta(n), &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
    let found = found(&place.ring().join("read.1"), 1);
    assert_eq!(found.len(), 400);
    let mut late = [0, 0];
    for (n, parts) in &found {
        let (data, compressed) = &parts[0];
        assert!(*data == contents(*n), "sample {n}");
        if *compressed != is_label(*n) {
            late[usize::from(is_label(*n))] += 1;
            let changed = if is_label(*n) { 250 } else { 100 };
            assert!(
                *n < MISTAKEN || (changed..changed + 66).contains(n),
                "sample {n} has a kind of data that was measured long before"
            );
        }
    }
    assert!(late[0] > 0 && late[1] > 0, "{late:?}: a trial at every sample costs too much");
}

#[test]
fn short_parts_are_stored_without_a_compression_trial() {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [x]\nCOMPRESS: auto\n");
    for (elements, tried) in [("1023", false), ("1024", true)] {
        let mut command = place.command(&["generate", "-c", "config.yaml", "--samples", "5", "--shape", elements]);
        command.env("RINGREEL_LOG", "info");
        let said = cli::Running::start(command).finish();
        assert_eq!((said.code, said.err.contains("COMPRESS: auto")), (Some(0), tried), "{}", said.err);
    }
}

#[test]
fn decisions_are_logged_once_and_shown_by_the_command() {
    let place = Place::new("SWAP_CAP: 10\nSAMPLE: [image, label]\nCOMPRESS: {image: auto, label: auto}\n");
    let mut command = place.command(&["generate", "-c", "config.yaml", "--samples", "3"]);
    command.env("RINGREEL_LOG", "info");
    let said = cli::Running::start(command).finish();
    for part in ["image", "label"] {
        let told: Vec<&str> = said.err.lines().filter(|line| line.contains(&format!("part=\"{part}\""))).collect();
        assert_eq!(told.len(), 1, "{}", said.err);
        for word in ["COMPRESS: auto", "not compressed", "ratio=1.0", "compress_mb_per_second=", "bytes=262144"] {
            assert!(told[0].contains(word), "{told:?}: {word}");
        }
    }

    let mut generator = Generator::open(&place.config()).unwrap();
    for n in 3..10 {
        let (image, label) = (noise(n), labels(n));
        let parts =
            [NamedPart::new("image", DType::U8, &SHAPE, &image), NamedPart::new("label", DType::U8, &SHAPE, &label)];
        generator.write(&parts, &meta(n), &|| false).unwrap();
    }
    let begun = Instant::now();
    let (member, text) = loop {
        let json = place.run(&["status", "-c", "config.yaml", "--json"]).json().remove(0);
        let text = place.run(&["status", "-c", "config.yaml"]).out;
        let member = json["generators"].as_array().unwrap().iter().find(|member| member["stored"].is_array()).cloned();
        match member {
            Some(member) if text.contains("label compressed") => break (member, text),
            _ => assert!(begun.elapsed() < PATIENCE, "{text}"),
        }
    };
    assert!(text.contains("image not compressed (1.1 to 1), label compressed ("), "{text}");
    let stored = |n: usize, key: &str| member["stored"][n][key].clone();
    assert_eq!((stored(0, "part"), stored(0, "compressed")), ("image".into(), false.into()));
    assert_eq!((stored(1, "part"), stored(1, "compressed")), ("label".into(), true.into()));
    assert!(stored(1, "ratio").as_f64().unwrap() > 20.0, "{member}");
    generator.finish(true, &|| false).unwrap();

    let inspected = place.run(&["inspect", "demo.ring"]).out;
    assert!(inspected.contains(", compressed in ") && inspected.contains(" of 10 samples, "), "{inspected}");
    let config = place.run(&["config", "-c", "config.yaml"]).out;
    assert!(config.contains(r#"{"image":"auto","label":"auto"}"#), "{config}");
}
