//! Private maps are used again: for whoever reads the same sample next, but not where somebody holds it or has written
//! into it, and not for more than there is room.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Action, HookFs, config, never, scratch};
use ringreel::format::{DType, Meta};
use ringreel::reader::{ReadSample, Reader};
use ringreel::ring::manifest::Manifest;
use ringreel::{Config, Generator, NamedPart};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LEN: u64 = 300_000;

/// Writes a generation of `count` samples of `len` bytes, each of which is its number.
fn write(config: &Config, count: u64, len: u64) {
    let mut generator = Generator::open(config).unwrap();
    for n in 0..count {
        let data = vec![n as u8 + 1; len as usize];
        generator.write(&[NamedPart::new("data", DType::U8, &[len], &data)], &Meta::new(), &never).unwrap();
    }
    generator.finish(true, &never).unwrap();
}

fn is_whole(sample: &ReadSample) -> bool {
    sample.parts[0].data().unwrap().iter().all(|byte| u64::from(*byte) == sample.position % 4 + 1)
}

fn address(sample: &ReadSample) -> usize {
    sample.parts[0].data().unwrap().as_ptr() as usize
}

/// Maps of segments in this directory.
fn maps_of(dir: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(dir.to_str().unwrap()) && line.contains(".rec")).count()
}

/// Writes into memory that was lent for reading, as a careless user does.
fn scribble(address: usize) {
    OpenOptions::new().write(true).open("/proc/self/mem").unwrap().write_all_at(b"\xff", address as u64).unwrap();
}

struct Opened {
    dir: TempDir,
    config: Config,
    reader: Reader,
    newest: Arc<Manifest>,
    /// How many maps the reader has made.
    made: Arc<AtomicUsize>,
}

impl Opened {
    /// A ring of four samples, so many to a file, and a reader with private maps.
    fn of(segment_samples: u64) -> Opened {
        Opened::of_len(segment_samples, LEN)
    }

    fn of_len(segment_samples: u64, len: u64) -> Opened {
        let (dir, fs, made) = (scratch(), HookFs::default(), Arc::new(AtomicUsize::new(0)));
        let config = config(dir.path(), 4, &format!("READ: mmap\nKEEP: 0\nSEGMENT_SAMPLES: {segment_samples}"));
        write(&config, 4, len);
        let counter = made.clone();
        fs.hook(move |_, op, _| {
            counter.fetch_add(usize::from(op == "map"), Ordering::SeqCst);
            Action::Pass
        });
        let reader = Reader::open_on(Arc::new(fs), &config).unwrap().with_private_maps();
        let newest = reader.newest().unwrap();
        Opened { dir, config, reader, newest, made }
    }

    fn sample(&self, position: u64) -> ReadSample {
        self.reader.sample(&self.newest, position).unwrap()
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    fn maps(&self) -> usize {
        maps_of(self.dir.path())
    }
}

#[test]
fn a_sample_is_mapped_once_however_often_it_is_read() {
    for segment_samples in [1, 4] {
        let opened = Opened::of(segment_samples);
        let mut before = [0; 4];
        for pass in 0..5 {
            for position in 0..4 {
                let sample = opened.sample(position);
                assert!(is_whole(&sample));
                let known = std::mem::replace(&mut before[position as usize], address(&sample));
                assert!(pass == 0 || known == address(&sample), "its pages are where they were");
            }
        }
        assert_eq!(opened.made(), 4);
    }
}

#[test]
fn nobody_is_given_what_somebody_holds() {
    let opened = Opened::of(1);
    for _ in 0..2 {
        let held: Vec<_> = (0..3).map(|_| opened.sample(2)).collect();
        let part = held[0].parts[0].data().unwrap().slice(100_000..);
        drop(held);
        let others: Vec<_> = (0..2).map(|_| opened.sample(2)).collect();
        let lent = part.as_ptr() as usize - 100_000;
        assert!(others.iter().all(|other| is_whole(other) && address(other) != lent), "a part of it is still held");
    }
    assert_eq!(opened.made(), 3);
}

#[test]
fn what_somebody_wrote_into_a_sample_is_not_what_is_read_next() {
    let opened = Opened::of(4);
    for (n, at) in [0, LEN as usize / 2, LEN as usize - 1].into_iter().enumerate() {
        let sample = opened.sample(1);
        assert!(is_whole(&sample));
        scribble(address(&sample) + at);
        assert!(!is_whole(&sample), "whoever writes sees it");
        drop(sample);
        assert_eq!(opened.maps(), 0, "memory that is like no file is not kept");
        assert!(is_whole(&opened.sample(1)), "byte {at}");
        assert_eq!(opened.made(), n + 2);
    }
}

#[test]
fn a_segment_that_is_closed_keeps_no_maps() {
    let opened = Opened::of(1);
    (0..4).for_each(|position| drop(opened.sample(position)));
    assert_eq!(opened.maps(), 4);
    let held = opened.sample(0);
    write(&opened.config, 4, LEN);
    let second = opened.reader.newest().unwrap();
    drop(opened.reader.sample(&second, 0).unwrap());
    assert_eq!(opened.maps(), 2, "one that is held, and one of the generation that is read");
    assert!(is_whole(&held));
    drop(held);
    assert_eq!(opened.maps(), 1);
    let Opened { dir, reader, .. } = opened;
    drop(reader);
    assert_eq!(maps_of(dir.path()), 0);
}

#[test]
fn a_generation_that_is_left_for_a_newer_one_keeps_no_maps() {
    let opened = Opened::of(1);
    let config = Config { keep: 3, ..opened.config.clone() };
    let reader = Reader::open(&config).unwrap().with_private_maps();
    (0..4).for_each(|position| drop(reader.sample(&opened.newest, position).unwrap()));
    assert_eq!(opened.maps(), 4);
    write(&config, 4, LEN);
    let second = reader.newest().unwrap();
    (0..4).for_each(|position| drop(reader.sample(&second, position).unwrap()));
    assert_eq!(opened.maps(), 4, "those of the second one");
    assert!(is_whole(&reader.sample(&opened.newest, 3).unwrap()), "it is there still");
}

#[test]
fn of_more_files_than_are_held_open_no_maps_are_kept() {
    for (files, kept) in [(128, 128), (129, 0)] {
        let dir = scratch();
        let config = config(dir.path(), files, "READ: mmap\nKEEP: 0");
        write(&config, files, 70_000);
        let reader = Reader::open(&config).unwrap().with_private_maps();
        let newest = reader.newest().unwrap();
        (0..files).for_each(|position| drop(reader.sample(&newest, position).unwrap()));
        assert_eq!(maps_of(dir.path()), kept, "{files}");
    }
}

/// Maps of this length or more are looked at by a thread.
const LARGE: u64 = 1 << 20;

#[test]
fn large_maps_are_used_again_whether_they_were_looked_at_or_not() {
    let opened = Opened::of_len(1, LARGE);
    for pass in 0..50 {
        let addresses = [0, 0, 1, 0, 1].map(|position| address(&opened.sample(position)));
        assert_eq!(addresses[0], addresses[1], "pass {pass}");
        assert_eq!((addresses[0], addresses[2]), (addresses[3], addresses[4]), "pass {pass}");
        if pass % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert_eq!(opened.made(), 2);
}

#[test]
fn what_somebody_wrote_into_a_large_sample_is_not_what_is_read_next() {
    let opened = Opened::of_len(1, LARGE);
    for n in 0..200 {
        let sample = opened.sample(1);
        scribble(address(&sample) + n * 5000 % LARGE as usize);
        drop(sample);
        if n % 20 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(is_whole(&opened.sample(1)), "{n}");
    }
}

#[test]
fn a_large_map_that_somebody_wrote_into_is_taken_down_though_nobody_reads_it_again() {
    let opened = Opened::of_len(1, LARGE);
    for position in 0..4 {
        let sample = opened.sample(position);
        scribble(address(&sample));
    }
    let until = Instant::now() + Duration::from_secs(60);
    while opened.maps() > 0 {
        assert!(Instant::now() < until, "{} maps are left", opened.maps());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Addresses that a process may have: not enough for maps of all samples.
const ADDRESSES: u64 = 240 << 20;
const SAMPLES: u64 = 25;

/// In a process that may have few addresses.
fn read_all(dir: &Path) {
    let hard = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(ADDRESSES), maximum: hard }).unwrap();
    let reader = Reader::open(&config(dir, SAMPLES, "READ: mmap")).unwrap().with_private_maps();
    let newest = reader.newest().unwrap();
    for position in (0..SAMPLES).chain(0..SAMPLES) {
        drop(reader.sample(&newest, position).unwrap());
    }
    assert_eq!(maps_of(dir), 1, "a sixteenth of the memory is for them");
}

#[test]
fn maps_are_kept_for_a_part_of_the_memory_only() {
    if let Ok(dir) = std::env::var("RINGREEL_KEPT_MAPS") {
        return read_all(Path::new(&dir));
    }
    let dir = scratch();
    write(&config(dir.path(), SAMPLES, "READ: mmap"), SAMPLES, 10 << 20);
    let mut command = Command::new("timeout");
    command.arg("60").arg(std::env::current_exe().unwrap());
    command.args(["--exact", "maps_are_kept_for_a_part_of_the_memory_only"]);
    command.env("RINGREEL_KEPT_MAPS", dir.path()).env("MALLOC_ARENA_MAX", "1");
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{:?}: {said}", done.status);
}
