//! Segments are truncated, overwritten and deleted again and again while two processes and two threads of this process
//! read them. No reader dies. Each unreadable sample is reported, every time; with READ: pread and VERIFY: always, no
//! wrong byte is delivered. (A map shows later changes to its file, also after its checksum was compared, so with maps
//! wrong bytes are only counted and printed.)
//!
//! `RINGREEL_HOSTILE=1000 cargo test --test hostile -- --nocapture` damages files a thousand times, and prints counts.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use ringreel::{Config, Error, Generator, NamedPart, Reader};
use ringreel_format::{DType, Meta, Value};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::cli::{Place, eventually, loudly};

const SAMPLES: u64 = 16;
/// Large enough for a separate map.
const LEN: usize = 200_000;

fn bytes_of(n: u64) -> Vec<u8> {
    (0..LEN as u64).map(|i| (i * 31 + n * 7 + i / 251) as u8 | 1).collect()
}

/// Counts of what readers saw.
#[derive(Default)]
struct Seen {
    right: AtomicU64,
    wrong: AtomicU64,
    reported: AtomicU64,
}

impl Seen {
    fn count(&self, is_right: bool) {
        if is_right { &self.right } else { &self.wrong }.fetch_add(1, Relaxed);
    }

    fn all(&self) -> [u64; 3] {
        [&self.right, &self.wrong, &self.reported].map(|n| n.load(Relaxed))
    }
}

fn ring(how: &str) -> (Place, Vec<(PathBuf, Vec<u8>)>) {
    let place = Place::new(&format!("SWAP_CAP: {SAMPLES}\nSAMPLE: [data]\nSEGMENT_SAMPLES: 2\n{how}"));
    let mut generator = Generator::open(&place.config()).unwrap();
    for n in 0..SAMPLES {
        let mut meta = Meta::new();
        meta.set("n", n);
        let bytes = bytes_of(n);
        generator.write(&[NamedPart::new("data", DType::U8, &[LEN as u64], &bytes)], &meta, &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
    let files = fs::read_dir(place.ring().join("read.1")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    (place, files)
}

/// Starts a process that reads repeatedly, and a thread that checks each line of its output.
fn process(place: &Place, crcs: Arc<HashMap<u64, u64>>, seen: Arc<Seen>) -> (Child, JoinHandle<()>) {
    let mut command = place.command(&["read", "--json", "--shuffle"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let look = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line.get("error").is_some() {
                seen.reported.fetch_add(1, Relaxed);
                continue;
            }
            let n = line["meta"]["n"].as_u64().unwrap();
            seen.count(line["parts"]["data"]["crc32"].as_u64() == crcs.get(&n).copied());
        }
    });
    (child, look)
}

/// Reads every position repeatedly: each sample is right, wrong, or reported as damaged; no other error occurs.
fn thread(config: Config, stop: Arc<AtomicBool>, seen: Arc<Seen>, private: bool) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let reader = Reader::open(&config).unwrap();
        let reader = if private { reader.with_private_maps() } else { reader };
        let newest = reader.newest().unwrap();
        let mut reported = 0;
        while !stop.load(Relaxed) {
            for position in 0..SAMPLES {
                match reader.sample(&newest, position) {
                    Ok(sample) => {
                        let is_its_own = sample.meta.get("n") == Some(&Value::from(position));
                        let right = sample.parts[0].data().unwrap()[..] == bytes_of(position)[..] && is_its_own;
                        match sample.check_whole() {
                            Ok(()) => seen.count(right),
                            Err(_) => drop(seen.reported.fetch_add(1, Relaxed)),
                        }
                    }
                    Err(Error::Damaged { .. }) => {
                        reported += 1;
                        seen.reported.fetch_add(1, Relaxed);
                    }
                    Err(other) => panic!("neither right nor damaged: {other}"),
                }
            }
        }
        assert_eq!(reader.damaged(), reported, "each damaged sample is counted");
    })
}

/// A pseudo-random number, the same in each run.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn harm(path: &Path, len: u64, random: &mut u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let at = next(random) % len;
    match next(random) % 4 {
        0 => file.set_len(at).unwrap(),
        1 => file.write_all_at(&vec![next(random) as u8; (next(random) % 100_000) as usize], at).unwrap(),
        2 => {
            // Truncated, and extended to its old length.
            file.set_len(at).unwrap();
            file.set_len(len).unwrap();
        }
        _ => fs::remove_file(path).unwrap(),
    }
}

fn storm(how: &str, times: u64) -> [u64; 3] {
    let (place, files) = ring(how);
    let crcs = Arc::new((0..SAMPLES).map(|n| (n, u64::from(crc32fast::hash(&bytes_of(n))))).collect());
    let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let threads = [false, true].map(|private| thread(place.config(), stop.clone(), seen.clone(), private));
    let outside = Arc::new(Seen::default());
    let mut processes = [0, 1].map(|_| process(&place, Arc::clone(&crcs), outside.clone()));
    eventually("processes read", || outside.right.load(Relaxed) > 2 * SAMPLES);
    let mut random = 0x9e37_79b9_7f4a_7c15;
    for n in 0..times {
        let (path, bytes) = &files[(next(&mut random) % files.len() as u64) as usize];
        harm(path, bytes.len() as u64, &mut random);
        std::thread::sleep(Duration::from_millis(next(&mut random) % 40));
        for (child, _) in &mut processes {
            assert!(child.try_wait().unwrap().is_none(), "a reader died at damage {n}: {:?}", child.wait());
        }
        // Restored under the same name, by rename: a process that has the file open keeps the old contents.
        let whole = path.with_extension("whole");
        fs::write(&whole, bytes).unwrap();
        fs::rename(&whole, path).unwrap();
        std::thread::sleep(Duration::from_millis(next(&mut random) % 20));
    }
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for (mut child, look) in processes {
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.signal(), status.code().is_some_and(|code| code <= 1)), (None, true), "{status:?}");
        look.join().unwrap();
    }
    let (a, b) = (seen.all(), outside.all());
    let all = [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let told = how.replace('\n', " ");
    loudly(&format!(
        "{told}: {times} times: {} samples right, {} wrong, {} reported, 0 deaths",
        all[0], all[1], all[2]
    ));
    assert!(all[2] > 0, "no reader saw any damage");
    all
}

fn times() -> u64 {
    std::env::var("RINGREEL_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

#[test]
fn pread_with_verify_always_delivers_no_wrong_byte() {
    let [_, wrong, _] = storm("READ: pread\nVERIFY: always\n", times());
    assert_eq!(wrong, 0);
}

#[test]
fn mmap_readers_survive_any_change_to_the_files() {
    storm("READ: mmap\nVERIFY: first\n", times());
}

#[test]
fn mmap_readers_with_verify_always_survive_any_change() {
    storm("READ: mmap\nVERIFY: always\n", times());
}
