//! The duration of a swap, by the number of segments in a generation.
//!
//! Times in milliseconds, medians of several swaps: *look*, the time to find the generation full by listing it, when
//! all segments but one were known (as a manager does if the system does not report new names); *swap*, from closing a
//! generation until the next one is open, while no generator commits; *readable*, from closing it until its manifest is
//! published; and, for scale, a bare mkdir and rename of a directory with as many files on the same disk, in the same
//! run. `TMPDIR` selects the disk. `benches/system.py --only stall` measures the effect on a generator with a manager.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use ringreel::format::{DType, Meta};
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Generator, NamedPart};
use std::fs;
use std::time::Instant;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn swaps(cap: u64, rounds: usize) -> [f64; 3] {
    let dir = tempfile::tempdir().unwrap();
    // The generator has a much higher cap, so that this program makes and times the swap.
    let yaml = format!("DBNAME: t\nSWAP_CAP: {}\nSAMPLE: [x]\nKEEP: 0\n", cap * 64);
    let config = Config::parse(&yaml, "bench", dir.path(), true).unwrap();
    let mut generator = Generator::open(&config).unwrap();
    let ring = generator.ring().clone();
    let [mut looks, mut swaps, mut readable] = [(); 3].map(|()| Vec::new());
    for _ in 0..rounds {
        let next = ring.manifests.newest().unwrap() + 1;
        for n in 0..cap {
            if n + 1 == cap {
                ring.count_samples(next).unwrap(); // like the manager, which examines segments as they arrive
            }
            generator.write(&[NamedPart::new("x", DType::U8, &[8], &[1; 8])], &Meta::new(), &|| false).unwrap();
        }
        let started = Instant::now();
        assert_eq!(ring.count_samples(next).unwrap(), cap);
        looks.push(started.elapsed().as_secs_f64() * 1e3);
        let promotion = ring.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
        assert_eq!(promotion.manifest.summary.samples, cap);
        swaps.push(promotion.swap_ms);
        readable.push(promotion.readable_ms);
        ring.reclaim().unwrap();
    }
    generator.finish(false, &|| false).unwrap();
    [looks, swaps, readable].map(median)
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
    println!("{:>8} {:>10} {:>10} {:>12} {:>18}", "files", "look", "swap", "readable", "bare mkdir+rename");
    for (cap, rounds) in [(10, 31), (100, 31), (1000, 15), (10_000, 5)] {
        let [look, swap, readable] = swaps(cap, rounds);
        let bare = bare_rename(cap, rounds);
        println!("{cap:>8} {look:>10.3} {swap:>10.3} {readable:>12.3} {bare:>18.3}");
    }
}
