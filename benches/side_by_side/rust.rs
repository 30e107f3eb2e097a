//! ringreel from Rust, and its baselines: the same bytes written by write(2) and read from a map; and a bare loop over
//! samples behind 16-byte headers with a CRC-32.
//!
//! `benches/side_by_side/peers/rust.py` runs it with a JSON request as its argument; the answer is JSON on stdout. Each
//! process handles one request.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use bytes::Bytes;
use ringreel::format::{DType, Meta};
use ringreel::fs::{Fs, MapMode, Posix};
use ringreel::manifest::Manifest;
use ringreel::read::ReadSample;
use ringreel::read::batch::BorrowedSample;
use ringreel::{Config, Generator, NamedPart, Reader};
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const POOL: usize = 128 << 20;
const SHIFT: usize = 64;
const SLACK: usize = 1 << 20;
const BLOCK: usize = 1 << 20;
const HEADER: usize = 16;

#[derive(Deserialize)]
struct Request {
    way: String,
    phase: String,
    variant: String,
    workload: String,
    directory: PathBuf,
    pool: PathBuf,
    count: usize,
    later: usize,
    seed: u64,
}

/// Samples as `samples.py` cuts them from the pool.
struct Samples {
    pool: Vec<u8>,
    parts: &'static [&'static str],
    shape: &'static [u64],
    part: usize,
    count: usize,
}

impl Samples {
    fn of(request: &Request) -> Samples {
        let (parts, shape): (&[&str], &[u64]) = match &*request.workload {
            "large" => (&["data", "label"], &[256, 256, 256]),
            "medium" => (&["data", "label"], &[128, 128, 128]),
            "small" => (&["data", "label"], &[64, 64, 64]),
            "page" => (&["data"], &[4096]),
            _ => (&["data"], &[100]),
        };
        let part = shape.iter().product::<u64>() as usize;
        Samples { pool: Vec::new(), parts, shape, part, count: request.count }
    }

    fn size(&self) -> usize {
        self.part * self.parts.len()
    }

    fn start(&self, index: usize) -> usize {
        let lap = POOL / self.size();
        index % lap * self.size() + index / lap * SHIFT
    }

    fn sample(&self, index: usize) -> &[u8] {
        let start = self.start(index);
        &self.pool[start..start + self.size()]
    }

    /// All samples, in blocks: one part, or about 1 MiB of adjacent small samples.
    fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        let lap = POOL / self.size();
        (0..self.count).step_by(lap).flat_map(move |begin| {
            let start = self.start(begin);
            let end = start + lap.min(self.count - begin) * self.size();
            self.pool[start..end].chunks(if self.parts.len() > 1 { self.part } else { BLOCK / self.part * self.part })
        })
    }
}

/// Reads every byte.
fn touch(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u64 = words.remainder().iter().map(|byte| u64::from(*byte)).sum();
    words.fold(rest, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word.first_chunk().unwrap())))
}

/// Written samples, open for reading. `pass` reads them one after the other in this order, part by part.
trait Opened {
    fn pass(&self, order: Option<&[usize]>, take: &mut dyn FnMut(&[u8]));
}

fn map(path: &Path) -> Bytes {
    let file = Posix.open(path).unwrap();
    let len = file.size().unwrap();
    file.map(0..len, MapMode::Shared).unwrap().unwrap()
}

/// Calls `each` with 0 to `count`, or with the numbers in `order`.
fn in_order(count: usize, order: Option<&[usize]>, each: impl FnMut(usize)) {
    match order {
        Some(order) => order.iter().copied().for_each(each),
        None => (0..count).for_each(each),
    }
}

struct Plain {
    path: PathBuf,
    kept: Option<Bytes>,
    part: usize,
    size: usize,
    count: usize,
}

impl Opened for Plain {
    fn pass(&self, order: Option<&[usize]>, take: &mut dyn FnMut(&[u8])) {
        let bytes = self.kept.clone().unwrap_or_else(|| map(&self.path));
        in_order(self.count, order, |n| {
            bytes[n * self.size..(n + 1) * self.size].chunks_exact(self.part).for_each(&mut *take);
        });
    }
}

/// Samples behind headers of 16 bytes: length, CRC-32, and eight unused bytes.
struct Bare {
    bytes: Bytes,
    size: usize,
    count: usize,
}

impl Opened for Bare {
    fn pass(&self, order: Option<&[usize]>, take: &mut dyn FnMut(&[u8])) {
        in_order(self.count, order, |n| {
            let start = n * (self.size + HEADER);
            let header = &self.bytes[start..start + HEADER];
            let len = u32::from_le_bytes(*header.first_chunk().unwrap()) as usize;
            let crc = u32::from_le_bytes(*header[4..].first_chunk().unwrap());
            let data = &self.bytes[start + HEADER..start + HEADER + len];
            assert_eq!(crc32fast::hash(data), crc);
            take(data);
        });
    }
}

struct Ring {
    reader: Reader,
    generation: Arc<Manifest>,
    /// Parts of a small sample are passed as one; the last one passed is held until the next.
    last: RefCell<Option<ReadSample>>,
    /// Samples are borrowed by the thousand, and not read one by one.
    many: bool,
}

impl Opened for Ring {
    fn pass(&self, order: Option<&[usize]>, take: &mut dyn FnMut(&[u8])) {
        let count = self.generation.summary.samples;
        if self.many {
            let each = &mut |lent: &BorrowedSample<'_>| {
                for n in 0..lent.parts() {
                    take(&lent.part(n)?.data);
                }
                Ok(())
            };
            match order {
                Some(order) => self.reader.visit(&self.generation, order.iter().map(|n| *n as u64), each),
                None => self.reader.visit(&self.generation, 0..count, each),
            }
            .unwrap();
            return;
        }
        in_order(count as usize, order, |n| {
            let sample = self.reader.sample(&self.generation, n as u64).unwrap();
            for part in &sample.parts {
                take(part.data().unwrap());
            }
            *self.last.borrow_mut() = Some(sample);
        });
    }
}

fn config(request: &Request) -> Config {
    let parts = Samples::of(request).parts.join(", ");
    let verify = if request.variant == "unchecked" { "VERIFY: never\n" } else { "" };
    let yaml = format!("RING: ring\nSWAP_CAP: {}\nSAMPLE: [{parts}]\n{verify}", request.count);
    Config::parse(&yaml, "bench", &request.directory, true).unwrap()
}

fn open(request: &Request, samples: &Samples) -> Box<dyn Opened> {
    let path = request.directory.join("bytes");
    let (size, count) = (samples.size(), samples.count);
    match &*request.way {
        "plain" => {
            let kept = (request.variant == "kept").then(|| map(&path));
            Box::new(Plain { path, kept, part: samples.part, size, count })
        }
        "bare" => Box::new(Bare { bytes: map(&path), size, count }),
        _ => {
            let reader = Reader::open(&config(request)).unwrap();
            let generation = reader.newest().unwrap();
            let many = request.way == "ringreel, batches";
            Box::new(Ring { reader, generation, last: RefCell::default(), many })
        }
    }
}

fn write(request: &Request, samples: &Samples) -> f64 {
    let create = || File::create_new(request.directory.join("bytes")).unwrap();
    let no = || false;
    match &*request.way {
        "plain" => {
            let mut file = create();
            let begin = Instant::now();
            samples.blocks().for_each(|block| file.write_all(block).unwrap());
            drop(file);
            begin.elapsed().as_secs_f64()
        }
        "bare" => {
            let mut file = BufWriter::with_capacity(BLOCK, create());
            let begin = Instant::now();
            for n in 0..samples.count {
                let data = samples.sample(n);
                let mut header = [0; HEADER];
                header[..4].copy_from_slice(&(data.len() as u32).to_le_bytes());
                header[4..8].copy_from_slice(&crc32fast::hash(data).to_le_bytes());
                header[8..].copy_from_slice(&(n as u64).to_le_bytes());
                file.write_all(&header).unwrap();
                file.write_all(data).unwrap();
            }
            file.into_inner().unwrap();
            begin.elapsed().as_secs_f64()
        }
        _ => {
            let mut generator = Generator::open(&config(request)).unwrap();
            let begin = Instant::now();
            let meta = Meta::new();
            if request.way == "ringreel, batches" {
                for block in samples.blocks() {
                    let part = NamedPart::new(samples.parts[0], DType::U8, samples.shape, block);
                    generator.write_batch(&[part], block.len() / samples.part, &no).unwrap();
                }
            }
            let one_by_one = if request.way == "ringreel" { samples.count } else { 0 };
            for n in 0..one_by_one {
                let data = samples.sample(n).chunks_exact(samples.part);
                let named = samples.parts.iter().zip(data);
                let parts: Vec<_> =
                    named.map(|(name, data)| NamedPart::new(name, DType::U8, samples.shape, data)).collect();
                generator.write(&parts, &meta, &no).unwrap();
            }
            let summary = generator.finish(true, &no).unwrap();
            let seconds = begin.elapsed().as_secs_f64();
            assert_eq!(summary.delivered, samples.count as u64);
            seconds
        }
    }
}

fn stored(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { stored(&path) } else { path.metadata().unwrap().blocks() * 512 }).sum()
}

/// 0 to `count` in an order that `seed` determines.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for n in (1..count).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(n, (state % (n as u64 + 1)) as usize);
    }
    order
}

fn read(request: &Request, samples: &Samples, random: bool) -> Value {
    let order = random.then(|| shuffled(samples.count, request.seed));
    let begin = Instant::now();
    let opened = open(request, samples);
    let took = begin.elapsed().as_secs_f64();
    let (mut passes, mut sums) = (Vec::new(), Vec::new());
    for _ in 0..=request.later {
        let begin = Instant::now();
        let mut sum = 0u64;
        opened.pass(order.as_deref(), &mut |part| sum = sum.wrapping_add(touch(part)));
        passes.push(begin.elapsed().as_secs_f64());
        sums.push(sum);
    }
    assert!(sums.iter().all(|sum| *sum == sums[0]), "two passes over the same samples gave different bytes");
    json!({"seconds": passes[0], "later": passes[1..], "opened": took})
}

/// Compares every byte with what was written.
fn verify(request: &Request, samples: &Samples) -> Value {
    let opened = open(request, samples);
    let order = shuffled(samples.count, 1);
    for order in [None, Some(&order[..])] {
        let (mut at, mut part) = (0, 0);
        opened.pass(order, &mut |bytes| {
            let sample = samples.sample(order.map_or(at, |order| order[at]));
            assert!(bytes == &sample[part..part + bytes.len()], "sample {at} differs from what was written");
            part += bytes.len();
            if part == samples.size() {
                (at, part) = (at + 1, 0);
            }
        });
        assert_eq!((at, part), (samples.count, 0));
    }
    json!({"bytes": samples.size() * samples.count})
}

fn first(request: &Request, samples: &Samples) -> Value {
    let begin = Instant::now();
    let opened = open(request, samples);
    opened.pass(Some(&[0]), &mut |part| {
        std::hint::black_box(touch(part));
    });
    json!({"seconds": begin.elapsed().as_secs_f64()})
}

fn main() {
    let Some(text) = std::env::args().nth(1).filter(|text| text.starts_with('{')) else {
        println!("`make bench` runs this program: see benches/side_by_side/");
        return;
    };
    let request: Request = serde_json::from_str(&text).unwrap();
    let needs_pool = matches!(&*request.phase, "write" | "verify");
    let mut samples = Samples::of(&request);
    if needs_pool {
        let bytes = (POOL / samples.size()).min(samples.count) * samples.size() + SLACK;
        samples.pool = vec![0; bytes];
        File::open(&request.pool).unwrap().read_exact(&mut samples.pool).unwrap();
    }
    let answer = match &*request.phase {
        "write" => {
            let seconds = write(&request, &samples);
            json!({"seconds": seconds, "stored": stored(&request.directory)})
        }
        "sequential" => read(&request, &samples, false),
        "random" => read(&request, &samples, true),
        "first" => first(&request, &samples),
        _ => verify(&request, &samples),
    };
    println!("{answer}");
}
