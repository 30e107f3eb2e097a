//! The cost of the codec and of the ways to read a segment, compared with the minimum in the same run: a bare loop over
//! the same payloads behind 16-byte headers with a CRC-32, and a map of the same bytes. Figures are medians of several
//! alternating rounds. (`benches/side_by_side` measures readers of whole rings and other formats.)
//!
//! Small samples are in memory. The large one is in a file in `/dev/shm` and in `TMPDIR` (a disk), both in the page
//! cache; "read" means that every byte is added up.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use bytes::Bytes;
use ringreel::format::recordio::{RecordReader, RecordWriter};
use ringreel::format::segment::walk::SegmentWalk;
use ringreel::format::{
    DType, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentId, SegmentInfo, SegmentSlice, SegmentWriter,
    WriteOptions, input::SliceInput,
};
use ringreel::fs::{Fs, MapMode, Posix};
use ringreel::segment::reader::{Access, SegmentReader};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 15;
const SMALL: usize = 100;
const COUNT: usize = 400_000;
const MAX_PART: u64 = 1 << 30;
const LARGE: usize = 32 << 20;

/// A way to read, and its name.
type Way<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Medians of the seconds that each of `ways` takes, in alternating rounds.
fn medians<const N: usize>(mut ways: [Way<'_>; N]) -> [(&'static str, f64); N] {
    let mut times = [(); N].map(|()| Vec::new());
    for round in 0..=ROUNDS {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let started = Instant::now();
            (way.1)();
            if round > 0 {
                times.push(started.elapsed().as_secs_f64()); // the first round warms up
            }
        }
    }
    std::array::from_fn(|n| {
        times[n].sort_by(f64::total_cmp);
        (ways[n].0, times[n][ROUNDS / 2])
    })
}

/// Prints a line per way; ratios are relative to the first.
fn tell(title: &str, bytes: usize, items: usize, ways: &[(&'static str, f64)]) {
    println!("{title}");
    for (name, seconds) in ways {
        let (each, rate) = (seconds * 1e9 / items as f64, bytes as f64 / seconds / 1e9);
        println!("  {name:<46} {each:>12.1} ns each {rate:>7.2} GB/s {:>6.2} x", ways[0].1 / seconds);
    }
}

fn payload(n: usize, out: &mut [u8]) {
    let mut state = n as u32 | 1;
    for byte in out {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
}

fn info(len: usize) -> SegmentInfo {
    let schema = Schema::new([("data", DType::U8, vec![len as u64])]).unwrap();
    let id = SegmentId([5; 16]);
    SegmentInfo { id, born: 1, created_unix_ms: 0, first_number: 0, schema, provenance: Meta::new() }
}

fn segment(len: usize, count: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(len), WriteOptions::default()).unwrap();
    let (mut data, shape) = (vec![0; len], [len as u64]);
    for n in 0..count {
        payload(n, &mut data);
        let parts = [PartRef::new(DType::U8, &shape, &data)];
        writer.sample(&mut file, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: n as u64 }).unwrap();
    }
    writer.finish(&mut file).unwrap();
    file
}

/// Payloads behind headers of 16 bytes: length, CRC-32, and eight more.
fn bare_file() -> Vec<u8> {
    let (mut file, mut data) = (Vec::new(), [0; SMALL]);
    for n in 0..COUNT {
        payload(n, &mut data);
        file.extend_from_slice(&(SMALL as u32).to_le_bytes());
        file.extend_from_slice(&crc32fast::hash(&data).to_le_bytes());
        file.extend_from_slice(&(n as u64).to_le_bytes());
        file.extend_from_slice(&data);
    }
    file
}

fn bare_loop(file: &[u8]) -> usize {
    let (mut pos, mut count) = (0, 0);
    while let Some(header) = file.get(pos..pos + 16) {
        let len = u32::from_le_bytes(*header.first_chunk().unwrap()) as usize;
        let crc = u32::from_le_bytes(*header[4..].first_chunk().unwrap());
        let data = &file[pos + 16..pos + 16 + len];
        assert_eq!(crc32fast::hash(data), crc);
        black_box(data);
        pos += 16 + len;
        count += 1;
    }
    count
}

fn small() {
    let bare = bare_file();
    let mut frames = RecordWriter::new(Vec::new());
    let mut data = [0; SMALL];
    for n in 0..COUNT {
        payload(n, &mut data);
        frames.write(&data).unwrap();
    }
    let frames = frames.into_inner();
    let samples = Bytes::from(segment(SMALL, COUNT));
    let slice = SegmentSlice::open(samples.clone()).unwrap();
    let ways = medians([
        ("bare loop, 16-byte header and CRC", Box::new(|| assert_eq!(bare_loop(black_box(&bare)), COUNT))),
        (
            "walking RecordIO frames",
            Box::new(|| {
                let (mut reader, mut count) = (RecordReader::over(black_box(&frames)), 0);
                while let Some(record) = reader.next().unwrap() {
                    black_box(record.payload);
                    count += 1;
                }
                assert_eq!(count, COUNT);
            }),
        ),
        (
            "samples front to back, CRC",
            Box::new(|| {
                let mut walk = SegmentWalk::begin(SliceInput::new(black_box(&samples), 0), MAX_PART).unwrap();
                let mut count = 0;
                while let Some(sample) = walk.next().unwrap() {
                    black_box(sample.stored(0));
                    count += 1;
                }
                assert_eq!(count, COUNT);
            }),
        ),
        (
            "samples by position, CRC",
            Box::new(|| {
                for n in 0..COUNT as u64 {
                    black_box(slice.sample(n).unwrap().parts[0].data().unwrap());
                }
            }),
        ),
    ]);
    tell(&format!("{COUNT} samples of {SMALL} bytes, in memory"), COUNT * SMALL, COUNT, &ways);
}

fn add_up(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word.first_chunk().unwrap())))
}

fn large(dir: &Path) {
    let dir = tempfile::tempdir_in(dir).unwrap();
    let (raw, rec) = (dir.path().join("raw"), dir.path().join("000000.rec"));
    let mut data = vec![0; LARGE];
    payload(0, &mut data);
    std::fs::write(&raw, &data).unwrap();
    std::fs::write(&rec, segment(LARGE, 1)).unwrap();
    let sum = add_up(&data);
    let read = |access| {
        let reader = SegmentReader::open(&Posix, &rec, access).unwrap();
        black_box(reader.sample(0, ReadOptions { verify: true, ..ReadOptions::default() }).unwrap());
    };
    let ways = medians([
        (
            "mapped, read",
            Box::new(|| {
                let map = Posix.open(&raw).unwrap().map(0..LARGE as u64, MapMode::Shared).unwrap().unwrap();
                assert_eq!(add_up(&map), sum);
            }),
        ),
        ("sample, mapped, CRC compared", Box::new(|| read(Access::Shared))),
        ("sample, private map, CRC compared", Box::new(|| read(Access::Private))),
        ("sample, pread, CRC compared", Box::new(|| read(Access::Copy))),
    ]);
    tell(&format!("one sample of {} MiB, in {}", LARGE >> 20, dir.path().display()), LARGE, 1, &ways);
}

fn main() {
    small();
    large(Path::new("/dev/shm"));
    large(&std::env::temp_dir());
}
