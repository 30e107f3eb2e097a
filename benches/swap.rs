//! How long a swap takes, against the number of segments in a generation.
//!
//! Two times, in milliseconds, medians of several swaps: *swap*, from closing a generation until its manifest is out, before
//! which no generator commits into the next one; and, for scale, a bare mkdir and rename of a directory of as many files on
//! the same disk, in the same run. `TMPDIR` chooses the disk. What a generator beside a manager notices of it, `benches/system.py --only stall` measures.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use ringreel::format::{DType, Meta};
use ringreel::ring::promote::When;
use ringreel::{Config, Generator, NamedPart};
use std::fs;
use std::time::Instant;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn swaps(cap: u64, rounds: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    // The generator thinks that the cap is far away, so that the swap is ours to do and to time.
    let yaml = format!("DBNAME: t\nSWAP_CAP: {}\nSAMPLE: [x]\nKEEP: 0\n", cap * 64);
    let config = Config::parse(&yaml, "bench", dir.path(), true).unwrap();
    let mut generator = Generator::open(&config).unwrap();
    let ring = generator.ring().clone();
    let mut swap = Vec::new();
    for _ in 0..rounds {
        for _ in 0..cap {
            generator.write(&[NamedPart::new("x", DType::U8, &[8], &[1; 8])], &Meta::new(), &|| false).unwrap();
        }
        // As the manager does: it looks at each segment as it comes.
        ring.fill_of(ring.manifests.newest().unwrap() + 1).unwrap();
        let promotion = ring.promote(When::NotEmpty).unwrap().unwrap();
        assert_eq!(promotion.manifest.summary.samples, cap);
        swap.push(promotion.swap_ms);
        ring.reclaim().unwrap();
    }
    generator.finish(false, &|| false).unwrap();
    median(swap)
}

fn bare_rename(files: u64, rounds: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    (0..files).for_each(|n| fs::write(from.join(format!("{n:06}.rec")), [0; 200]).unwrap());
    let times = (0..rounds).map(|n| {
        let started = Instant::now();
        fs::create_dir(dir.path().join(format!("next.{n}"))).unwrap();
        fs::rename(&from, dir.path().join("to")).unwrap();
        let took = started.elapsed().as_secs_f64() * 1e3;
        fs::rename(dir.path().join("to"), &from).unwrap();
        took
    });
    median(times.collect())
}

fn main() {
    println!("{:>8} {:>12} {:>22} {:>8}", "cap", "swap ms", "bare mkdir+rename ms", "ratio");
    let mut first = None;
    for (cap, rounds) in [(10, 31), (100, 31), (1000, 15), (10_000, 5)] {
        let swap = swaps(cap, rounds);
        let bare = bare_rename(cap, rounds);
        println!("{cap:>8} {swap:>12.3} {bare:>22.3} {:>8.1}", swap / bare);
        let ten = *first.get_or_insert(swap);
        println!("{:>8} {:.2} times the swap at 10", "", swap / ten);
    }
}
