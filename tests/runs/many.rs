//! The cost of finished runs: the time of a cold `status`, of a query of pins and of a reclaim pass, the notes in the
//! index, and memory.
//!
//! RINGREEL_RUNS sets the number of runs (default: 200). To measure:
//!
//! ```text
//! RINGREEL_RUNS=20000 cargo test --release --test main -- runs::many:: --nocapture
//! ```

use ringreel::run_log::{Epoch, RunLog};
use ringreel_ops::status::status;
use std::path::Path;
use std::time::Instant;
use testkit::stream::{World, eventually};

fn files_under(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_under(&path) } else { 1 }).sum()
}

/// Peak memory of this process, in MiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn measure(place: &World, ring: &ringreel::Ring, what: &str) {
    let seconds = |work: &dyn Fn()| {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64()
    };
    let cold = seconds(&|| _ = status(&place.ring()).unwrap());
    let pins = seconds(&|| _ = ring.pinned().unwrap());
    let reclaim = seconds(&|| _ = ring.reclaim().unwrap());
    let notes = files_under(&place.path().join("index/notes"));
    println!(
        "{what}: cold status {cold:.3} s, pins {pins:.3} s, reclaim {reclaim:.3} s, {notes} notes, {} MiB at most",
        peak_memory()
    );
}

/// Half of the runs are named. Half of each kind were killed, the others left in order.
#[test]
fn finished_runs_cost_bounded_work() {
    let runs: u64 = std::env::var("RINGREEL_RUNS").map_or(200, |runs| runs.parse().unwrap());
    let place = World::new("SWAP_CAP: 2\nKEEP: 0\nLEASE_SECONDS: 0.5\nRUN_GRACE: 1\n");
    place.generation(0..2);
    let ring = place.ring();
    let epoch = Epoch { generation: 1, samples: 2, workers: 1, shuffle: false, seed: 0, repeats: 0, unix_ms: 0 };
    let maker = place.ring(); // like the processes that read
    for n in 0..runs {
        let name = if n % 2 == 0 { RunLog::own_name() } else { format!("run-{n:06}") };
        let log = RunLog::new(maker.coordination.clone(), &name).unwrap();
        log.decide(0, &epoch).unwrap();
        log.arrive(0, 1, "victim", n).unwrap();
        if n % 4 < 2 {
            log.leave(0, 1, n).unwrap();
        }
    }
    measure(&place, &ring, &format!("{runs} runs, active"));
    (1..8).for_each(|n| place.generation(2 * n..2 * n + 2));
    measure(&place, &ring, "after 7 promotions");
    let (begun, mut passes) = (Instant::now(), 0);
    let until = |runs_left: usize| ring.coordination.note_names("runs").unwrap().len() <= runs_left;
    eventually("all runs are retired", || {
        ring.reclaim().unwrap();
        passes += 1;
        until(0)
    });
    println!("retired after {passes} reclaim passes, {:.1} s", begun.elapsed().as_secs_f64());
    measure(&place, &ring, "retired");
    assert_eq!(ring.reads().unwrap().get(&1), Some(&runs), "every pass is counted");
}
