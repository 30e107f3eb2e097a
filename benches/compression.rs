//! The cost and the gain of compressing parts, by level, compared with a plain write and a mapped read in the same run.
//!
//!     cargo bench --no-default-features --bench compression [-- --quick] [--sizes 256,32] [--levels -5,1,3,6,9]
//!         [--rounds 5] [--dir DIR] [--write docs/how-to/compression.md]
//!
//! Samples have one part of n x n x n elements, and are written to and read from the page cache. Times are CPU times,
//! so that neither the disk nor other programs count; only the two threads at the end are measured in wall time.
//! Figures are medians of alternating rounds. `--write` replaces the tables between the two marks of that file.
//! Segments are written to `DIR` (default: the temporary directory).
#![allow(clippy::panic, clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout, missing_docs)]

use ringreel::format::{
    Codec, DType, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter, WriteOptions,
};
use ringreel::fs::Posix;
use ringreel::segment::reader::{Access, SegmentReader};
use ringreel::{Config, Generator, NamedPart};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Throughputs of disks, in MB/s for one reader or one generator.
const DISKS: [f64; 3] = [100.0, 500.0, 2000.0];
const MARKS: [&str; 2] = ["<!-- figures -->\n", "<!-- end of the figures -->\n"];

struct Options {
    sizes: Vec<usize>,
    levels: Vec<i32>,
    rounds: usize,
    dir: PathBuf,
    write: Option<PathBuf>,
}

impl Options {
    fn parse() -> Options {
        let all = [-5, 1, 3, 6, 9];
        let dir = std::env::temp_dir();
        let mut options = Options { sizes: vec![256, 32], levels: all.to_vec(), rounds: 5, dir, write: None };
        let mut args = std::env::args().skip(1);
        fn list<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Vec<T> {
            text.split(',').map(|n| n.parse().unwrap()).collect()
        }
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => (options.sizes, options.rounds) = (vec![96, 32], 3),
                "--sizes" => options.sizes = list(&value()),
                "--levels" => options.levels = list(&value()),
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--dir" => options.dir = value().into(),
                "--write" => options.write = Some(value().into()),
                "--bench" => {} // cargo's own
                other => panic!("unknown argument {other}"),
            }
        }
        options
    }
}

/// Pseudo-random numbers between 0 and 1, always the same.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn next(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1 << 24) as f32
    }

    /// Approximately normal, with mean 0 and standard deviation 1.
    fn normal(&mut self) -> f32 {
        ((0..4).map(|_| self.next()).sum::<f32>() - 2.0) * 1.73
    }
}

/// A label map of n x n x n: 40 regions with curved borders in an ellipsoid, and 0 outside of it.
fn labels(n: usize) -> Vec<u8> {
    let mut random = Random(7);
    let seeds: Vec<[f32; 3]> = (0..40).map(|_| [random.next(), random.next(), random.next()]).collect();
    let bend = |a: f32, b: f32| a + 0.04 * (b * 9.0).sin();
    let label = |at: usize| {
        let [z, y, x] = [at / n / n, at / n % n, at % n].map(|i| (i as f32 + 0.5) / n as f32);
        if (z - 0.5).powi(2) / 0.23 + (y - 0.5).powi(2) / 0.2 + (x - 0.5).powi(2) / 0.16 > 1.0 {
            return 0;
        }
        let point = [bend(z, y), bend(y, x), bend(x, z)];
        let far = |seed: &[f32; 3]| (0..3).map(|i| (seed[i] - point[i]).powi(2)).sum::<f32>();
        let nearest = seeds.iter().enumerate().min_by(|a, b| far(a.1).total_cmp(&far(b.1))).unwrap();
        nearest.0 as u8 + 1
    };
    (0..n * n * n).map(label).collect()
}

/// An image of these regions, 0 to 255: a brightness per region, a slowly varying field, and noise. With `empty`, all
/// is 0 outside of them.
fn image(labels: &[u8], n: usize, empty: bool) -> Vec<f32> {
    let mut random = Random(11);
    let value = |(at, label): (usize, &u8)| {
        let [z, x] = [at / n / n, at % n].map(|i| i as f32 / n as f32);
        let bright = if *label == 0 { 12.0 } else { 40.0 + f32::from(*label) * 37.0 % 160.0 };
        let noisy = bright * (1.0 + 0.15 * (z * 4.0).sin() * (x * 3.0).cos()) + 4.0 * random.normal();
        if empty && *label == 0 { 0.0 } else { noisy.clamp(0.0, 255.0) }
    };
    labels.iter().enumerate().map(value).collect()
}

/// A kind of data to compress: its name, type, shape and bytes.
struct Kind {
    name: &'static str,
    dtype: DType,
    shape: [u64; 3],
    data: Vec<u8>,
}

fn kinds(n: usize) -> Vec<Kind> {
    let labels = labels(n);
    let bytes = |image: &[f32]| image.iter().map(|value| *value as u8).collect::<Vec<_>>();
    let floats = |image: &[f32]| image.iter().flat_map(|value| (value / 255.0).to_le_bytes()).collect::<Vec<_>>();
    let (full, empty) = (image(&labels, n, false), image(&labels, n, true));
    let mut random = Random(13);
    let noise = (0..n * n * n).map(|_| random.word() as u8).collect();
    let kind = |name, dtype, data| Kind { name, dtype, shape: [n as u64; 3], data };
    vec![
        kind("labels, uint8", DType::U8, labels),
        kind("image, uint8", DType::U8, bytes(&full)),
        kind("image, uint8, 0 outside", DType::U8, bytes(&empty)),
        kind("image, float32", DType::F32, floats(&full)),
        kind("random bytes", DType::U8, noise),
    ]
}

/// CPU seconds of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn write_segment(kind: &Kind, level: Option<i32>, sink: &mut dyn Write) -> u64 {
    let schema = Schema::new([("data", kind.dtype.clone(), kind.shape.to_vec())]).unwrap();
    let id = SegmentId([5; 16]);
    let info = SegmentInfo { id, born: 1, created_unix_ms: 0, first_number: 0, schema, provenance: Meta::new() };
    let options = WriteOptions { compress: vec![level], ..WriteOptions::default() };
    let mut writer = SegmentWriter::begin(sink, info, options).unwrap();
    let parts = [PartRef::new(kind.dtype.clone(), &kind.shape, &kind.data)];
    writer.sample(sink, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 0 }).unwrap();
    writer.finish(sink).unwrap().len
}

fn add_up(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word.first_chunk().unwrap())))
}

/// The times of one round, in seconds.
#[derive(Default)]
struct Seconds {
    compress: Vec<f64>,
    decode: Vec<f64>,
    write: Vec<f64>,
    read: Vec<f64>,
}

struct Row {
    level: Option<i32>,
    /// Size of the segment in bytes.
    stored: u64,
    seconds: Seconds,
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(kind: &Kind, row: &mut Row, dir: &Path, count: bool) {
    let rec = dir.join("sample.rec");
    let begun = processor_seconds();
    let mut file = File::create(&rec).unwrap();
    row.stored = write_segment(kind, row.level, &mut file);
    drop(file);
    let write = processor_seconds() - begun;

    let begun = processor_seconds();
    let reader = SegmentReader::open(&Posix, &rec, Access::Shared).unwrap();
    let sample = reader.sample(0, ReadOptions::default()).unwrap();
    let sum = add_up(sample.parts[0].data().unwrap());
    let read = processor_seconds() - begun;
    assert_eq!(sum, add_up(&kind.data));
    assert!(count || sample.parts[0].data().unwrap() == &kind.data);
    drop(sample);

    let begun = processor_seconds();
    write_segment(kind, row.level, &mut io::sink());
    let compress = processor_seconds() - begun;
    let begun = processor_seconds();
    drop(reader.sample(0, ReadOptions { verify: false, ..ReadOptions::default() }).unwrap());
    let decode = processor_seconds() - begun;
    std::fs::remove_file(&rec).unwrap();
    if count {
        let Seconds { compress: a, decode: b, write: c, read: d } = &mut row.seconds;
        for (all, one) in [(a, compress), (b, decode), (c, write), (d, read)] {
            all.push(one);
        }
    }
}

/// Whether `COMPRESS: auto` compresses this kind.
fn is_compressed_by_auto(kind: &Kind) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let yaml = "DBNAME: t\nSWAP_CAP: 1\nSAMPLE: [data]\nCOMPRESS: auto\n";
    let config = Config::parse(yaml, "bench", dir.path(), true).unwrap();
    let mut generator = Generator::open(&config).unwrap();
    let part = NamedPart::new("data", kind.dtype.clone(), &kind.shape, &kind.data);
    generator.write(&[part], &Meta::new(), &|| false).unwrap();
    generator.finish(true, &|| false).unwrap();
    let files = std::fs::read_dir(dir.path().join("t.ring/read.1")).unwrap();
    let path = files.map(|entry| entry.unwrap().path()).next().unwrap();
    let head = SegmentReader::open(&Posix, &path, Access::Copy).unwrap().head(0).unwrap();
    head.parts[0].codec == Codec::Zstd
}

/// Three tables: the measurements, the gain of readers, the gain of generators.
struct Tables([String; 3]);

impl Tables {
    fn new() -> Tables {
        let disks = DISKS.map(|disk| format!("disk of {disk} MB/s")).join(" | ");
        let gain = format!("| | elements | level | pays below, MB/s | {disks} |\n|---|---|---|---|---|---|---|\n");
        let measured = "| | elements | level | ratio | compress, MB/s | decode, MB/s | write a segment, MB/s | read it, \
                        MB/s | `auto` |\n|---|---|---|---|---|---|---|---|---|\n";
        Tables([measured.to_owned(), gain.clone(), gain])
    }

    fn add(&mut self, kind: &Kind, n: usize, rows: &[Row], auto: bool) {
        let bytes = kind.data.len() as f64;
        for (place, row) in rows.iter().enumerate() {
            let rate = |seconds: &[f64]| bytes / median(seconds) / 1e6;
            let Seconds { compress, decode, write, read } = &row.seconds;
            let (ratio, compress, decode) = (bytes / row.stored as f64, rate(compress), rate(decode));
            let name = if place == 0 { format!("{} | {n}³", kind.name) } else { " | ".to_owned() };
            let auto = if place > 0 {
                ""
            } else if auto {
                "compressed"
            } else {
                "not compressed"
            };
            let (write, read) = (rate(write), rate(read));
            let Some(level) = row.level else {
                writeln!(self.0[0], "| {name} | none | 1 | | | {write:.0} | {read:.0} | {auto} |").unwrap();
                continue;
            };
            // Data that does not shrink is stored uncompressed.
            if row.stored >= rows[0].stored {
                writeln!(self.0[0], "| {name} | {level} | 1 | {compress:.0} | | {write:.0} | {read:.0} | |").unwrap();
                continue;
            }
            writeln!(
                self.0[0],
                "| {name} | {level} | {ratio:.1} | {compress:.0} | {decode:.0} | {write:.0} | {read:.0} | {auto} |"
            )
            .unwrap();
            let name = if rows[1..place].iter().all(|row| row.stored >= rows[0].stored) {
                format!("{} | {n}³", kind.name)
            } else {
                " | ".to_owned()
            };
            for (table, speed) in [(1, decode), (2, compress)] {
                let below = (speed * (1.0 - 1.0 / ratio)).max(0.0);
                let gains = DISKS.map(|disk| {
                    let with = 1.0 / (1.0 / (ratio * disk) + 1.0 / speed);
                    let times = with / disk;
                    let digits = if times < 0.95 { 2 } else { 1 };
                    format!("{with:.0} ({times:.digits$} x)")
                });
                writeln!(self.0[table], "| {name} | {level} | {below:.0} | {} |", gains.join(" | ")).unwrap();
            }
        }
    }
}

/// Milliseconds to compress labels and write an image uncompressed: one after the other, and with the compression in a
/// separate thread.
fn two_threads(kinds: &[Kind], rounds: usize, dir: &Path) -> (f64, f64) {
    let rec = dir.join("sample.rec");
    let (labels, image) = (&kinds[0], &kinds[1]);
    let compress = || drop(zstd::bulk::compress(&labels.data, 1).unwrap());
    let write = || assert!(write_segment(image, None, &mut File::create(&rec).unwrap()) > 0);
    let [mut serial, mut beside] = [Vec::new(), Vec::new()];
    for _ in 0..=rounds {
        let begun = Instant::now();
        compress();
        write();
        serial.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(compress);
            write();
        });
        beside.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    (median(&serial[1..]), median(&beside[1..]))
}

fn main() {
    let options = Options::parse();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let dir = tempfile::tempdir_in(&options.dir).unwrap();
    let mut tables = Tables::new();
    let mut threads = String::new();
    for n in &options.sizes {
        let kinds = kinds(*n);
        for kind in &kinds {
            let levels = std::iter::once(None).chain(options.levels.iter().copied().map(Some));
            let mut rows: Vec<Row> =
                levels.map(|level| Row { level, stored: 0, seconds: Seconds::default() }).collect();
            for round in 0..=options.rounds {
                rows.iter_mut().for_each(|row| measure(kind, row, dir.path(), round > 0)); // the first one warms up
            }
            tables.add(kind, *n, &rows, is_compressed_by_auto(kind));
            eprintln!("{}, {n}", kind.name);
        }
        let (serial, beside) = two_threads(&kinds, options.rounds, dir.path());
        writeln!(
            threads,
            "- {n}³: compressing the labels (level 1), then writing the image as it is: {serial:.2} ms; the first in a \
             thread beside the second: {beside:.2} ms."
        )
        .unwrap();
    }
    let Tables([measured, reading, writing]) = tables;
    let processors = std::thread::available_parallelism().unwrap();
    let text = format!(
        "Medians of {} rounds, on a machine of {processors} processors, whose load was {load} when it began. MB are \
         those of the tensor, not of what is stored.\n\n\
         {measured}\n### What a reader gains\n\n{reading}\n### What a generator gains\n\n{writing}\n### In two threads\n\n\
         {threads}",
        options.rounds
    );
    print!("{text}");
    if let Some(path) = options.write {
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(MARKS[0]).unwrap();
        let (_, after) = rest.split_once(MARKS[1]).unwrap();
        let [begin, end] = MARKS;
        std::fs::write(&path, format!("{before}{begin}\n{text}\n{end}{after}")).unwrap();
    }
}
