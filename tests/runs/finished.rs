//! A finished run is one note in `index/notes/logs`, whatever fails while it is retired. A run that is resumed
//! continues from that note.

use ringreel::Ring;
use ringreel::run_log::{Epoch, Turn};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::ring::{Action, EIO, HookFs};
use testkit::stream::{World, decide, eventually};

/// A ring at generation 8. At every eighth generation, a reclaim retires finished runs.
fn place() -> World {
    place_of(8)
}

fn place_of(generations: u64) -> World {
    let place = World::new("SWAP_CAP: 2\nKEEP: 0\nLEASE_SECONDS: 5\n");
    (0..generations).for_each(|n| place.generation(n * 2..n * 2 + 2));
    place
}

/// Run `r` has read generations 1 to 3, which are reclaimed, and its worker has left.
fn read_and_leave(ring: &Ring) {
    decide(ring, "r", &[1, 2, 3], 1);
    let log = ring.run("r").unwrap();
    log.arrive(0, 3, "somebody", 1).unwrap();
    log.leave(0, 3, 1).unwrap();
}

fn generations(ring: &Ring) -> Vec<(u64, u64)> {
    let epochs = ring.run("r").unwrap().epochs().unwrap();
    epochs.iter().map(|(k, epoch)| (*k, epoch.generation)).collect()
}

/// Returns the numbers of active runs' notes and of finished runs' logs.
fn notes(ring: &Ring) -> (usize, usize) {
    let count = |folder: &str| ring.coordination.note_names(folder).unwrap().len();
    (count("epochs.r") + count("run.r") + count("runs"), count("logs"))
}

fn is_note(path: &Path) -> bool {
    path.components().any(|name| name.as_os_str() == "notes")
}

#[test]
fn finished_run_is_one_note() {
    let place = place();
    let ring = place.ring();
    read_and_leave(&ring);
    assert_eq!(notes(&ring), (5, 0), "three epochs, a place, a name");
    ring.reclaim().unwrap();
    assert_eq!(notes(&ring), (0, 1));
    for folder in ["epochs.r", "run.r"] {
        assert!(!place.path().join("index/notes").join(folder).exists(), "{folder}");
    }
    let seen = place.ring();
    assert_eq!(generations(&seen), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!(seen.run_names().unwrap(), ["r"]);
    assert_eq!(seen.reads().unwrap().get(&2), Some(&1), "its passes are counted");
}

/// Each call to the index fails once, before or after its effect. The next reclaim continues.
#[test]
fn retired_run_keeps_its_log_whichever_call_fails() {
    for lost in [false, true] {
        for at in 0.. {
            let place = place();
            read_and_leave(&place.ring());
            let (fs, calls) = (HookFs::default(), Arc::new(AtomicUsize::new(0)));
            let ring = place.with_fs(fs.clone());
            let counted = calls.clone();
            fs.hook(move |_, op, path| {
                let fails = is_note(path) && op != "size" && counted.fetch_add(1, Ordering::SeqCst) == at;
                match (fails, lost) {
                    (false, _) => Action::Pass,
                    (true, false) => Action::Refuse(EIO),
                    (true, true) => Action::LoseReply(EIO),
                }
            });
            let reached = ring.reclaim().is_err() || calls.load(Ordering::SeqCst) > at;
            assert_eq!(generations(&place.ring()), [(0, 1), (1, 2), (2, 3)], "call {at}, lost {lost}");
            fs.hook(|_, _, _| Action::Pass);
            let next = place.ring();
            eventually("the run is retired", || {
                next.reclaim().unwrap();
                notes(&next).0 == 0
            });
            assert_eq!(notes(&next).1, 1, "call {at}, lost {lost}");
            assert_eq!(generations(&next), [(0, 1), (1, 2), (2, 3)], "call {at}, lost {lost}");
            if !reached {
                assert!(at > 10, "only {at} calls");
                break;
            }
        }
    }
}

#[test]
fn resumed_run_changes_no_epoch() {
    let place = place();
    // This process opened the run before a manager retired it, like a worker that was suspended.
    let before = place.ring();
    let known = before.run("r").unwrap();
    assert_eq!(known.epoch(1).unwrap(), None);
    read_and_leave(&place.ring());
    place.ring().reclaim().unwrap();
    let late = Epoch { generation: 8, samples: 2, workers: 1, shuffle: false, seed: 0, repeats: 0, unix_ms: 0 };
    for log in [&known, &place.ring().run("r").unwrap()] {
        assert_eq!(log.decide(1, &late).unwrap().generation, 2);
    }
    assert!(place.ring().run("r").unwrap().was_read_by(0).unwrap());
    // All workers continue behind the epochs of the log.
    let turn = Turn { rank: 0, token: "again".into() };
    assert_eq!(place.ring().run("r").unwrap().join_pass(0, 1, &turn, 7, None).unwrap(), 3);
    // When the run finishes again, its log has the epochs of both times.
    let (ring, old) = (place.ring(), Epoch { generation: 4, ..late });
    let log = ring.run("r").unwrap();
    assert_eq!(log.decide(3, &old).unwrap().generation, 4);
    log.arrive(0, 4, "somebody", 2).unwrap();
    log.leave(0, 4, 2).unwrap();
    ring.reclaim().unwrap();
    assert_eq!(notes(&place.ring()), (0, 1));
    assert_eq!(generations(&place.ring()), [(0, 1), (1, 2), (2, 3), (3, 4)]);
}

/// Two processes retire the run at the same time: the slower one has listed the notes before the other one removes
/// them. The run's generations are so old that their passes are not counted, so the notes are read for the log only.
#[test]
fn log_is_complete_after_two_processes_wrote_it() {
    let place = place_of(72);
    read_and_leave(&place.ring());
    let fs = HookFs::default();
    let slow = place.with_fs(fs.clone());
    let (config, calls) = (place.config(), AtomicUsize::new(0));
    fs.hook(move |_, op, path| {
        if op == "open" && path.ends_with("epochs.r/0") && calls.fetch_add(1, Ordering::SeqCst) == 0 {
            Ring::find(Arc::new(ringreel::fs::Posix), &config).unwrap().reclaim().unwrap();
        }
        Action::Pass
    });
    slow.reclaim().unwrap();
    fs.hook(|_, _, _| Action::Pass);
    let ring = place.ring();
    eventually("the run is retired", || {
        ring.reclaim().unwrap();
        notes(&ring).0 == 0
    });
    assert_eq!(generations(&place.ring()), [(0, 1), (1, 2), (2, 3)]);
}

#[test]
fn planted_log_cannot_claim_an_epoch_that_no_run_reaches() {
    let place = place();
    let ring = place.ring();
    let epoch = Epoch { generation: 1, samples: 2, workers: 1, shuffle: false, seed: 0, repeats: u64::MAX, unix_ms: 0 };
    let text = serde_json::to_string(&[(u64::MAX, &epoch), (7, &epoch)]).unwrap();
    ring.coordination.add_note("logs", "1.r", &text).unwrap();
    assert_eq!(generations(&ring), [(7, 1)]);
    let turn = Turn { rank: 0, token: "t".into() };
    assert_eq!(ring.run("r").unwrap().join_pass(0, 1, &turn, 7, None).unwrap(), 8);
}
