//! Compares `ringreel verify` with `cat FILES >/dev/null`, from the page cache: medians of alternating runs.
//!
//! `cargo bench --bench verify [-- DIR [RUNS]]`: DIR is on the disk to measure (default: the temporary directory).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const SAMPLES: usize = 20;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let runs: usize = args.next().map_or(7, |runs| runs.parse().unwrap());
    let dir = tempfile::tempdir_in(dir).unwrap();
    println!("{SAMPLES} samples of 32 MiB in {}, {runs} runs, medians", dir.path().display());
    for (what, per_segment) in [("one file per sample", 1), ("one file", SAMPLES)] {
        let ring = dir.path().join(format!("{per_segment}.ring"));
        let config = dir.path().join("config.yaml");
        let yaml = "SWAP_CAP: 20\nSAMPLE: [data, label]\n";
        std::fs::write(&config, format!("RING: {}\nSEGMENT_SAMPLES: {per_segment}\n{yaml}", ring.display())).unwrap();
        ringreel(&["generate", "--samples", "20", "--shape", "256,256,256", "--promote", "-c"], &config);
        let files: Vec<PathBuf> =
            std::fs::read_dir(ring.join("read.1")).unwrap().map(|entry| entry.unwrap().path()).collect();
        let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        let (mut cat, mut verify) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let started = Instant::now();
            let done = Command::new("cat").args(&files).stdout(File::create("/dev/null").unwrap()).status().unwrap();
            assert!(done.success());
            cat.push(started.elapsed().as_secs_f64());
            let started = Instant::now();
            ringreel(&["verify"], &ring);
            verify.push(started.elapsed().as_secs_f64());
        }
        let [cat, verify] = [cat, verify].map(|mut seconds| {
            seconds.sort_by(f64::total_cmp);
            bytes as f64 / 1e9 / seconds[runs / 2]
        });
        println!("{what}: verify {verify:.2} GB/s, cat {cat:.2} GB/s: {:.2} x cat", verify / cat);
        std::fs::remove_dir_all(&ring).unwrap();
    }
}

fn ringreel(args: &[&str], path: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringreel"));
    let quiet = command.args(args).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(quiet.status().unwrap().success());
}
