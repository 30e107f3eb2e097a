//! The processes that `benches/system.py` measures: generators that write the same sample repeatedly, readers that read
//! every byte, and a copy of the same bytes through plain files. Each prints one line of JSON when it ends.
//!
//! | role | arguments |
//! |---|---|
//! | `generate` | config, samples, bytes of a part, samples per second (0: full speed), file for times |
//! | `read` | config, samples, rank, world, file for times |
//! | `copy` | directory, files, bytes: written by write(2), then read back |
//! | `fill` | config, samples, bytes of a part: writes and promotes them; `first` opens the result |
//! | `first` | config: from `Reader::open` to the first sample, several times |
//! | `many` | config, generators, samples of each, bytes of a part: threads, each with a separate view of the ring |
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use ringreel::format::{DType, Meta};
use ringreel::read::shard::Share;
use ringreel::read::stream::{Item, Stream, StreamOptions};
use ringreel::{Config, Generator, NamedPart, Reader};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long a reader waits for the first sample, and for further ones.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_MORE: Duration = Duration::from_secs(4);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let told = match args[..] {
        ["generate", config, samples, bytes, rate, times] => {
            generate(&load(config), number(samples), number(bytes), number(rate), times)
        }
        ["read", config, samples, rank, world, times] => {
            read(&load(config), number(samples), Share::new(number(rank), number(world)).unwrap(), times)
        }
        ["copy", dir, files, bytes] => copy(Path::new(dir), number(files), number(bytes)),
        ["fill", config, samples, bytes] => fill(&load(config), number(samples), number(bytes)),
        ["first", config] => first(&load(config)),
        ["many", config, generators, samples, bytes] => {
            many(&load(config), number(generators), number(samples), number(bytes))
        }
        _ => panic!("benches/system.py runs this program; role or arguments are missing: {args:?}"),
    };
    println!("{told}");
}

fn number<T: FromStr>(text: &str) -> T {
    text.parse().ok().unwrap_or_else(|| panic!("{text:?} is not a number"))
}

fn load(path: &str) -> Config {
    Config::load(Path::new(path)).unwrap()
}

/// Nanoseconds since 1970; all processes run on one machine.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64
}

/// A line of /proc/self/status, in bytes.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).unwrap_or("0 kB");
    number::<u64>(value.trim().trim_end_matches(" kB")) << 10
}

/// CPU seconds of this process, including ended threads. (The clock ticks 100 times per second.)
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(number::<f64>).sum::<f64>();
    ticks / 100.0
}

fn bytes_of(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn add_up(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word.first_chunk().unwrap())))
}

fn tell(role: &str, more: Value) -> Value {
    let mut told = json!({ "role": role, "cpu_seconds": cpu_seconds(), "peak_bytes": memory("VmHWM"),
        "anonymous_bytes": memory("RssAnon"), "mapped_bytes": memory("RssFile") + memory("RssShmem") });
    told.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    told
}

/// Writes the same sample repeatedly. The file for times gets each sample's id, and when it was finished. Reports the
/// calls that waited for a swap or noticed one: number of the sample, milliseconds.
fn generate(config: &Config, samples: u64, bytes: usize, rate: f64, times: &str) -> Value {
    let names = config.sample.clone().unwrap();
    let data: Vec<Vec<u8>> = names.iter().map(|_| bytes_of(bytes)).collect();
    let shape = [bytes as u64];
    let before = memory("VmRSS");
    let mut generator = Generator::open(config).unwrap();
    let parts: Vec<_> =
        names.iter().zip(&data).map(|(name, data)| NamedPart::new(name, DType::U8, &shape, data)).collect();
    let (begin, started) = (now(), Instant::now());
    let (mut lines, mut swapped, mut usual) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = generator.summary();
    for n in 0..samples {
        if rate > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(n as f64 / rate).saturating_sub(started.elapsed()));
        }
        let called = Instant::now();
        let ids = generator.write(&parts, &Meta::new(), &|| false).unwrap();
        let took = called.elapsed().as_secs_f64() * 1e3;
        let finished = now();
        let summary = generator.summary();
        let swap = summary.delivered > seen.delivered || summary.waited_seconds > seen.waited_seconds;
        if swap {
            swapped.push((n, took))
        } else {
            usual.push(took)
        };
        seen = summary;
        lines.extend(ids.iter().map(|id| format!("{id} {finished}\n")));
    }
    let end = now();
    let ids = generator.seal(&|| false).unwrap();
    lines.extend(ids.iter().map(|id| format!("{id} {}\n", now())));
    let summary = generator.finish(false, &|| false).unwrap();
    std::fs::write(times, lines.concat()).unwrap();
    usual.sort_by(f64::total_cmp);
    tell(
        "generate",
        json!({ "begin": begin, "end": end, "samples": summary.finished, "bytes": summary.bytes,
        "waited_seconds": summary.waited_seconds, "swaps": summary.swaps, "swap_calls_ms": swapped, "other_calls_ms": usual.get(usual.len() / 2),
        "beyond_bytes": memory("VmHWM").saturating_sub(before) }),
    )
}

/// Reads until it has seen `samples` different samples, or until no new one arrives.
fn read(config: &Config, samples: u64, share: Share, times: &str) -> Value {
    let before = memory("VmRSS");
    let reader = Reader::wait_for(config, Some(PATIENCE), &|| false, &mut |_| ()).unwrap();
    let options = StreamOptions {
        share,
        repeat: false,
        timeout: Some(NO_MORE),
        prefetch_bytes: config.prefetch_bytes,
        ..StreamOptions::default()
    };
    let mut stream = Stream::new(Arc::new(reader), options).unwrap();
    let (mut lines, mut seen, mut bytes, mut sum) = (Vec::new(), HashSet::new(), 0, 0u64);
    let (mut first, mut last) = (0, 0);
    let mut anonymous = 0;
    while (seen.len() as u64) < samples {
        let sample = match stream.next(&|| false, &mut |_| ()) {
            Ok(Some(Item::Sample(sample))) => sample,
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) | Err(ringreel::Error::Timeout { .. }) => break,
            Err(error) => panic!("{error}"),
        };
        for part in &sample.parts {
            let data = part.data().unwrap();
            sum = sum.wrapping_add(add_up(data));
            bytes += data.len();
        }
        last = now();
        first = if first == 0 { last } else { first };
        if seen.insert(sample.id) {
            lines.push(format!("{} {last} {}\n", sample.id, sample.generation));
        }
        anonymous = anonymous.max(if seen.len() % 16 == 1 { memory("RssAnon") } else { 0 });
    }
    std::fs::write(times, lines.concat()).unwrap();
    tell(
        "read",
        json!({ "begin": first, "end": last, "samples": seen.len(), "bytes": bytes, "sum": sum,
        "most_anonymous_bytes": anonymous, "beyond_bytes": memory("VmHWM").saturating_sub(before) }),
    )
}

/// Copies through plain files: writes each file, and reads it back by read(2).
fn copy(dir: &Path, files: u64, bytes: usize) -> Value {
    let data = bytes_of(bytes);
    let mut buffer = vec![0; bytes];
    let begin = now();
    let path = |n: u64| dir.join(format!("copy.{}.{n}", std::process::id()));
    for n in 0..files {
        File::create_new(path(n)).unwrap().write_all(&data).unwrap();
    }
    let written = now();
    let mut sum = 0u64;
    for n in 0..files {
        File::open(path(n)).unwrap().read_exact(&mut buffer).unwrap();
        sum = sum.wrapping_add(add_up(&buffer));
    }
    let end = now();
    (0..files).for_each(|n| std::fs::remove_file(path(n)).unwrap());
    tell("copy", json!({ "begin": begin, "written": written, "end": end, "samples": files, "sum": sum }))
}

fn fill(config: &Config, samples: u64, bytes: usize) -> Value {
    let names = config.sample.clone().unwrap();
    let (data, shape) = (bytes_of(bytes), [bytes as u64]);
    let mut generator = Generator::open(config).unwrap();
    let parts: Vec<_> = names.iter().map(|name| NamedPart::new(name, DType::U8, &shape, &data)).collect();
    for _ in 0..samples {
        generator.write(&parts, &Meta::new(), &|| false).unwrap();
    }
    let summary = generator.finish(true, &|| false).unwrap();
    tell("fill", json!({ "samples": summary.finished, "bytes": summary.bytes }))
}

/// The first time is that of a new process; the others reuse its memory.
fn first(config: &Config) -> Value {
    let (mut opened, mut found, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..15 {
        let started = Instant::now();
        let reader = Reader::open(config).unwrap();
        opened.push(started.elapsed().as_secs_f64() * 1e3);
        let newest = reader.newest().unwrap();
        found.push(started.elapsed().as_secs_f64() * 1e3);
        let sample = reader.sample(&newest, 0).unwrap();
        std::hint::black_box(sample.parts[0].data().unwrap());
        firsts.push(started.elapsed().as_secs_f64() * 1e3);
    }
    tell("first", json!({ "open_ms": opened, "newest_ms": found, "first_ms": firsts }))
}

fn many(config: &Config, generators: u64, samples: u64, bytes: usize) -> Value {
    let begin = now();
    let work = || {
        let names = config.sample.clone().unwrap();
        let (data, shape) = (bytes_of(bytes), [bytes as u64]);
        let parts: Vec<_> = names.iter().map(|name| NamedPart::new(name, DType::U8, &shape, &data)).collect();
        let mut generator = Generator::open(config).unwrap();
        let mut longest = 0.0f64;
        for _ in 0..samples {
            let called = Instant::now();
            generator.write(&parts, &Meta::new(), &|| false).unwrap();
            longest = longest.max(called.elapsed().as_secs_f64());
        }
        (generator.finish(false, &|| false).unwrap(), longest)
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..generators).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let finished: u64 = done.iter().map(|(summary, _)| summary.finished).sum();
    let waited: f64 = done.iter().map(|(summary, _)| summary.waited_seconds).sum();
    let longest = done.iter().map(|(_, longest)| *longest).fold(0.0, f64::max);
    tell(
        "many",
        json!({ "begin": begin, "end": now(), "samples": finished, "waited_seconds": waited, "longest_seconds": longest }),
    )
}
