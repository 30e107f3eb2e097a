//! Runs every target on the vectors of the format, on the corpora, and on a little noise, without libFuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use ringreel_format::recordio::RecordReader;
use ringreel_fuzz::seeds::{parts_of, segments, widest};
use ringreel_fuzz::source::Noise;
use ringreel_fuzz::{TARGETS, Target};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Files up to this size are also truncated at every byte.
const CUT: usize = 2048;

fn files(dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths: BTreeSet<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.0 == name).unwrap()
}

fn run(target: Target, data: &[u8], from: &dyn std::fmt::Display) {
    catch_unwind(|| target.1(data)).unwrap_or_else(|_| panic!("{} fails on {from}, {} bytes", target.0, data.len()));
}

/// Runs a target on the bytes; and, for a small file, on its prefixes of the lengths `first`, `first + step`, ...
fn run_cut(name: &str, data: &[u8], from: &dyn std::fmt::Display, first: usize, step: usize) {
    let target = target(name);
    run(target, data, from);
    if data.len() <= CUT {
        (first..data.len()).step_by(step).for_each(|len| run(target, &data[..len], from));
    }
}

/// Runs the targets on a `.rec` file, and on its parts.
fn run_rec(file: &[u8], from: &dyn std::fmt::Display, first: usize, step: usize) {
    for name in ["frame", "resync", "segment"] {
        run_cut(name, file, from, first, step);
    }
    let parts = parts_of(file);
    for (name, data) in &parts[..parts.len().min(20)] {
        run(target(name), data, from);
    }
    let mut records = RecordReader::over(file);
    while let Ok(Some(record)) = records.next() {
        run(target("image"), record.payload, from);
    }
}

/// Runs all vectors in a directory. Similar vectors are truncated at different lengths.
fn run_vectors(dir: &str, step: usize) {
    let mut count = 0;
    for (path, data) in files(dir) {
        let from = path.display();
        match path.extension().and_then(|end| end.to_str()) {
            Some("rec") => run_rec(&data, &from, count % step, step),
            Some(name @ ("idx" | "lst")) => run_cut(name, &data, &from, 0, 1),
            _ => continue,
        }
        count += 1;
    }
    assert!(count > 0, "{dir} is empty");
}

#[test]
fn valid_vectors_keep_all_properties() {
    run_vectors("../format/vectors/ok", 1);
}

#[test]
fn invalid_vectors_keep_all_properties() {
    run_vectors("../format/vectors/bad", 2);
}

#[test]
fn truncated_segments_keep_all_properties_at_any_length() {
    for (n, file) in segments().iter().enumerate() {
        run_rec(file, &format!("segment {n}"), 0, 1);
        parts_of(file).iter().for_each(|(name, data)| run_cut(name, data, &format!("a part of segment {n}"), 0, 1));
    }
}

#[test]
fn corpus_files_keep_all_properties() {
    let mut count = 0;
    for (name, _) in TARGETS {
        for (path, data) in files(&format!("corpus/{name}")) {
            if name.ends_with("damage") {
                run(target(name), &data, &path.display())
            } else {
                run_cut(name, &data, &path.display(), 0, 1)
            }
            count += 1;
        }
    }
    assert!(count >= TARGETS.len(), "only {count} files");
}

#[test]
fn every_target_has_a_program_and_a_corpus() {
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.0.to_owned()).collect();
    let programs =
        files("fuzz_targets").into_iter().map(|file| file.0.file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(programs.collect::<BTreeSet<_>>(), names);
    for name in names {
        let files = files(&format!("corpus/{name}"));
        assert!(!files.is_empty(), "{name}");
        assert!(files.iter().all(|file| file.1.len() <= 1 << 16), "{name} has a large file");
    }
}

fn noise(name: &str, cases: u64) {
    for seed in 0..cases {
        let mut noise = Noise::new(seed);
        let len = noise.below(1500);
        run(target(name), &noise.bytes(len), &format!("noise {seed}"));
    }
}

#[test]
fn damaged_segments_keep_all_properties() {
    noise("segment_damage", 2000);
}

#[test]
fn damaged_record_files_keep_all_properties() {
    noise("record_damage", 2000);
}

#[test]
fn records_full_of_magic_numbers_keep_all_properties() {
    for seed in 0..2000 {
        let mut noise = Noise::new(seed);
        let len = noise.below(200);
        let data = noise.magics(len);
        run(target("frame"), &data, &format!("magics {seed}"));
        run(target("resync"), &data, &format!("magics {seed}"));
    }
}

/// Metas of 65,536 values and one more; samples of 4,096 parts with 64 axes each: beyond a fuzzer's short inputs.
#[test]
fn inputs_at_and_above_the_limits_keep_all_properties() {
    for count in [65_535u32, 65_536, 65_537] {
        let map: Vec<u8> =
            (0..count).flat_map(|n| [&[0x68][..], format!("{n:08x}").as_bytes(), &[0xf6]].concat()).collect();
        run(target("meta"), &[&[0xba][..], &count.to_be_bytes(), &map].concat(), &"a map");
        let array = [&[0xa1, 0x60, 0x9a][..], &(count - 1).to_be_bytes(), &vec![0xf6; count as usize - 1]].concat();
        run(target("meta"), &array, &"an array");
    }
    run_rec(&widest(), &"4,096 parts", 0, 1);
}

/// The input is longer than a stream's buffer, so that the next allocation follows the bytes that arrived.
#[test]
fn false_length_allocates_no_memory() {
    for flag in [0x00, 0x20] {
        let lie = [&[0x0a, 0x23, 0xd7, 0xce, 0xf0, 0xff, 0xff, 0x1f | flag][..], &vec![7; 600_000]].concat();
        let whole = segments().concat();
        for file in [lie.clone(), [whole, lie].concat()] {
            run_rec(&file, &"a lie", 0, 1);
        }
    }
}

/// Writes the initial files of the corpora. Run it once, and when a target's input format changes.
#[test]
#[ignore = "writes into the source tree"]
fn write_seeds() {
    let put = |name: &str, n: usize, data: &[u8]| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("seed-{n}")), data).unwrap();
    };
    let mut counts = std::collections::BTreeMap::new();
    for (n, file) in segments().iter().enumerate() {
        put("segment", n, file);
        for (name, data) in parts_of(file) {
            let count = counts.entry(name).or_insert(0);
            put(name, *count, &data);
            *count += 1;
        }
    }
}
