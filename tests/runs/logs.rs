//! The logs of runs: the first decision holds for all workers, departed workers are not awaited, finished runs retire.

use ringreel::coordination::CoordinationStore;
use ringreel::run_log::{Epoch, RunLog, Turn};
use ringreel::runs::MAX_PINNED;
use ringreel::{Error, StreamOptions};
use ringreel_ops::status::status;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use testkit::memory_store::MemoryStore;
use testkit::ring::{Action, HookFs};
use testkit::stream::{self, World, decide, drain, eventually, one, take, turn, worker};

const ENOTCONN: i32 = 107;

fn epoch(generation: u64) -> Epoch {
    Epoch { generation, samples: 8, workers: 2, shuffle: false, seed: 0, repeats: 0, unix_ms: generation * 1000 }
}

#[test]
fn run_name_that_could_escape_its_folder_is_refused() {
    let index: Arc<dyn CoordinationStore> = Arc::new(MemoryStore::default());
    let long = "x".repeat(100);
    for name in ["r", "job-1.2_3", "7", &long] {
        assert_eq!(RunLog::new(index.clone(), name).unwrap().name(), name);
    }
    let longer = "x".repeat(101);
    for name in ["", ".", "..", ".hidden", "a/b", "../r", "a b", "r\n", "ü", "a\\b", "r:1", &longer] {
        let error = RunLog::new(index.clone(), name).unwrap_err();
        assert!(matches!(error, Error::Sample(_)) && error.to_string().contains("name of a run"), "{name:?}: {error}");
    }
}

#[test]
fn first_of_many_concurrent_decisions_holds_for_all() {
    let place = World::new("SWAP_CAP: 2\n");
    place.generation(0..2);
    let (ring, memory) = (place.ring(), Arc::new(MemoryStore::default()));
    for index in [ring.coordination.clone(), memory as Arc<dyn CoordinationStore>] {
        for k in 0..10 {
            let begin = Barrier::new(16);
            let stand: Vec<Epoch> = std::thread::scope(|scope| {
                let decide = |n| {
                    let log = RunLog::new(index.clone(), "r").unwrap();
                    begin.wait();
                    let stands = log.decide(k, &epoch(n)).unwrap();
                    assert_eq!(log.epoch(k).unwrap().as_ref(), Some(&stands));
                    stands
                };
                let threads: Vec<_> = (1..=16).map(|n| scope.spawn(move || decide(n))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(stand.iter().all(|epoch| *epoch == stand[0]), "{stand:?}");
            let late = RunLog::new(index.clone(), "r").unwrap();
            assert_eq!(late.decide(k, &epoch(99)).unwrap(), stand[0]);
        }
        assert_eq!(RunLog::new(index.clone(), "r").unwrap().epochs().unwrap().len(), 10);
        assert_eq!(RunLog::new(index.clone(), "another").unwrap().epoch(0).unwrap(), None);
    }
}

#[test]
fn restarted_workers_join_the_same_epochs() {
    let place = World::new("SWAP_CAP: 8\n");
    place.generation(0..8);
    let begin = Barrier::new(4);
    let rank = |rank| -> Vec<u64> {
        let reader = place.reader();
        let pass = |_| {
            begin.wait();
            let options = StreamOptions { run: Some("r".into()), goes_on: turn(rank), ..worker(rank, 4) };
            let options = StreamOptions { epochs: Some(2), ..options };
            let mut stream = ringreel::Stream::new(reader.clone(), options).unwrap();
            let got = if rank == 3 { take(&mut stream, 1) } else { drain(&mut stream) }; // one worker leaves early
            got[0].epoch
        };
        (0..6).map(pass).collect()
    };
    let met: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn({
                    let rank = &rank;
                    move || rank(n)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(met.iter().all(|epochs| *epochs == met[0]), "{met:?}");
    assert!(met[0].windows(2).all(|two| two[0] < two[1]), "no epoch repeats: {met:?}");
}

#[test]
fn ended_streams_do_not_count_for_their_successors() {
    let place = World::new("SWAP_CAP: 4\nKEEP: 0\n");
    place.generation(0..4);
    let reader = place.reader();
    let options = StreamOptions { run: Some("r".into()), ..worker(0, 1) };
    let mut first = ringreel::Stream::new(reader.clone(), options.clone()).unwrap();
    one(&mut first);
    let mut second = ringreel::Stream::new(reader, options).unwrap();
    second.load(&first.state()).unwrap();
    assert_eq!(one(&mut second).position, 1);
    drop(first);
    assert_eq!(place.ring().pinned().unwrap(), BTreeSet::from([1]));
    drop(second);
    assert!(place.ring().pinned().unwrap().is_empty());
}

#[test]
fn generations_are_kept_for_slow_workers_up_to_a_limit() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 0\n");
    place.generation(0..2);
    let mut slow = place.stream(StreamOptions { run: Some("r".into()), ..worker(0, 2) });
    one(&mut slow);
    let mut fast = place.stream(StreamOptions { run: Some("r".into()), ..worker(1, 2) });
    for n in 1..=MAX_PINNED as u64 + 4 {
        one(&mut fast);
        place.generation(n * 2..n * 2 + 2);
    }
    let kept: Vec<u64> = (1..40).filter(|g| place.has(*g)).collect();
    assert_eq!(kept, (5..=MAX_PINNED as u64 + 5).collect::<Vec<_>>());
    // The released generation is skipped.
    assert_eq!(one(&mut slow).generation, 5);
}

#[test]
fn finished_runs_are_retired_and_100_of_their_logs_are_kept() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 1\nLEASE_SECONDS: 5\n");
    place.generation(0..2);
    let ring = place.ring();
    let name = |n: u64| format!("run-{n:03}");
    for n in 0..110 {
        decide(&ring, &name(n), &[1], 1);
        let log = ring.run(&name(n)).unwrap();
        log.arrive(0, 1, "somebody", n).unwrap();
        if n != 50 {
            log.leave(0, 1, n).unwrap(); // the other worker is not known to have left
        }
    }
    let mut reading = place.stream(StreamOptions { run: Some("reading".into()), ..worker(0, 1) });
    one(&mut reading);
    assert_eq!(ring.run_names().unwrap().len(), 111);
    (1..8).for_each(|n| place.generation(n * 2..n * 2 + 2));
    // Each round retires as many runs as it has time for.
    eventually("all runs are retired", || {
        ring.reclaim().unwrap();
        let mut active = ring.coordination.note_names("runs").unwrap();
        active.sort();
        active == ["reading", "run-050"] && ring.run_names().unwrap().len() == 102
    });
    let names = ring.run_names().unwrap();
    let (fs, _) = hooked(&place);
    let seen = place.with_fs(fs.clone());
    fs.hook(|_, _, path| {
        assert!(
            !path.to_string_lossy().contains("/epochs.run-0") || path.to_string_lossy().contains("050"),
            "{path:?}"
        );
        Action::Pass
    });
    assert_eq!(status(&seen).unwrap().reuse.iter().map(|bar| bar.passes).max(), Some(110), "logs are not opened");
    drop(seen);
    let kept = (0..110).map(name).filter(|name| names.contains(name));
    assert_eq!(kept.clone().count(), 101);
    for n in (0..110).map(name) {
        let log = place.ring().run(&n).unwrap().epochs().unwrap();
        assert_eq!(log.len(), usize::from(names.contains(&n)), "{n}");
        assert!(names.contains(&n) || ring.coordination.note_names(&format!("run.{n}")).unwrap().is_empty());
    }
    // A resumed run takes part again.
    let again = names.iter().find(|name| name.starts_with("run-")).unwrap();
    let mut stream = place.stream(StreamOptions { run: Some(again.clone()), ..worker(0, 1) });
    assert_eq!((one(&mut stream).epoch, one(&mut reading).epoch), (0, 0));
    assert!(ring.coordination.note_names("runs").unwrap().contains(again));
}

/// A separate reader of the ring at `place`, on a filesystem with a hook.
fn hooked(place: &World) -> (HookFs, Arc<ringreel::Reader>) {
    let fs = HookFs::default();
    let reader = ringreel::Reader::open_on(Arc::new(fs.clone()), &place.config()).unwrap();
    (fs, Arc::new(reader))
}

#[test]
fn ranks_stay_in_step_whichever_call_fails_while_they_join() {
    let is_note = |path: &std::path::Path| path.components().any(|name| name.as_os_str() == "notes");
    let mut failed = 0;
    for lost in [false, true] {
        for at in 0.. {
            let place = World::new("SWAP_CAP: 4\n");
            place.generation(0..4);
            let (fs, reader) = hooked(&place);
            let other = place.reader();
            let begin = |reader: &Arc<ringreel::Reader>, rank, token: &str| {
                let goes_on = Some(Turn { rank, token: token.to_owned() });
                let options = StreamOptions { run: Some("r".into()), goes_on, epochs: Some(1), ..worker(rank, 2) };
                ringreel::Stream::new(reader.clone(), options).unwrap()
            };
            let refused = Arc::new(AtomicBool::new(false));
            let epochs = ["first", "second", "third"].map(|token| {
                let (mut ours, mut theirs) = (begin(&reader, 0, token), begin(&other, 1, token));
                let calls = AtomicUsize::new(0);
                let hit = refused.clone();
                fs.hook(move |_, op, path| {
                    let counts = is_note(path) && op != "exists" && !hit.load(Ordering::SeqCst);
                    if !counts || calls.fetch_add(1, Ordering::SeqCst) != at {
                        return Action::Pass;
                    }
                    hit.store(true, Ordering::SeqCst);
                    if lost { Action::LoseReply(ENOTCONN) } else { Action::Refuse(ENOTCONN) }
                });
                let epochs = (one(&mut ours).epoch, one(&mut theirs).epoch);
                fs.unhook();
                drain(&mut ours);
                drain(&mut theirs);
                epochs
            });
            assert_eq!(epochs, [(0, 0), (1, 1), (2, 2)], "call {at}, lost: {lost}");
            if !refused.load(Ordering::SeqCst) {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed > 10, "{failed} calls failed");
}

#[test]
fn unreadable_notes_stop_neither_the_run_nor_the_ring() {
    let place = World::new("SWAP_CAP: 4\nKEEP: 0\n");
    place.generation(0..4);
    let options = || StreamOptions { run: Some("r".into()), goes_on: turn(0), epochs: Some(1), ..worker(0, 1) };
    for k in 0..3 {
        let mut stream = ringreel::Stream::new(place.reader(), options()).unwrap();
        assert_eq!((one(&mut stream).epoch, drain(&mut stream).len()), (k, 3));
        drop(stream);
        let ring = place.ring();
        let note = (format!("epochs.{}", "r"), k.to_string());
        assert!(!ring.coordination.read_note(&note.0, &note.1).unwrap().unwrap().is_empty());
        for name in [&*note.1, &(k + 1).to_string()] {
            ring.coordination.remove_note(&note.0, name).unwrap();
            assert_eq!(ring.coordination.add_note(&note.0, name, "").unwrap(), "", "as after a power cut");
        }
        place.generation(4..8);
        let ring = place.ring();
        ring.reclaim().unwrap();
        ring.reads().unwrap();
        assert_eq!(ring.manifests.newest().unwrap(), k + 2);
    }
}

#[test]
fn loops_leave_a_bounded_number_of_notes() {
    let place = World::new("SWAP_CAP: 4\n");
    place.generation(0..4);
    for _ in 0..100 {
        // Each time like a separate process.
        for rank in 0..2 {
            let options =
                StreamOptions { run: Some("r".into()), goes_on: turn(rank), epochs: Some(1), ..worker(rank, 2) };
            let mut stream = ringreel::Stream::new(place.reader(), options).unwrap();
            assert_eq!(drain(&mut stream).len(), 2);
        }
    }
    let names = place.ring().coordination.note_names("run.r").unwrap();
    let left = names.iter().filter(|name| name.ends_with("_left")).count();
    assert!(left <= 4, "{left} of {}: {names:?}", names.len());
}

/// All notes in the index of `place`, with their folders.
fn notes(place: &World) -> Vec<String> {
    let root = place.path().join("index/notes");
    let list = |dir: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let mut all = Vec::new();
    for folder in list(&root) {
        all.extend(list(&root.join(&folder)).into_iter().map(|name| format!("{folder}/{name}")));
    }
    all.sort();
    all
}

#[test]
fn unnamed_streams_leave_a_single_pass_counter() {
    let place = World::new("SWAP_CAP: 4\nREUSE: {min: 1}\n");
    place.generation(0..4);
    let options = || StreamOptions { epochs: Some(1), ..worker(0, 1) };
    let ring = place.ring();
    for n in 1..=20 {
        // Each stream is like a separate process; the last one does not reach the end.
        let mut stream = place.stream(options());
        one(&mut stream);
        assert_eq!((ring.pinned().unwrap(), notes(&place).len() >= 3), ([1].into(), true), "the stream is reading");
        if n < 20 {
            assert_eq!(drain(&mut stream).len(), 3);
        }
        drop(stream);
        assert_eq!(notes(&place), [format!("passes/1.{}", n.min(19))]);
    }
    assert_eq!((ring.passes(1).unwrap(), ring.reads().unwrap()), (19, [(1, 19)].into()));
    // If another stream may continue, the log is kept.
    let mut saved = place.stream(options());
    one(&mut saved);
    let state = saved.state();
    drop(saved);
    assert_eq!(ring.run_names().unwrap().concat(), state.run);
    let mut next = place.stream(options());
    next.load(&state).unwrap();
    assert_eq!(drain(&mut next).len(), 3);
    drop(next);
    assert_eq!((ring.run_names().unwrap().concat(), ring.passes(1).unwrap()), (state.run, 20));
}

#[test]
fn notes_of_killed_and_saved_unnamed_streams_are_removed() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 0\nLEASE_SECONDS: 0.1\n");
    place.generation(0..2);
    let ring = place.ring();
    for n in 0..120 {
        let own = RunLog::own_name();
        decide(&ring, &own, &[1], 1);
        ring.run(&own).unwrap().arrive(0, 1, "victim", n).unwrap();
    }
    let mut saved = place.stream(worker(0, 1));
    take(&mut saved, 3);
    saved.state();
    drop(saved);
    assert!(notes(&place).len() > 360);
    (1..8).for_each(|n| place.generation(2 * n..2 * n + 2));
    eventually("the notes are removed", || {
        ring.reclaim().unwrap();
        notes(&place) == ["passes/1.121"]
    });
}

/// Both restarts read generations 1 and 2, although the second one begins after generation 3 was promoted.
#[test]
fn unnamed_stream_restarts_twice_from_the_same_state() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 9\n");
    place.generation(0..2);
    let mut stream = place.stream(worker(0, 1));
    one(&mut stream);
    let state = stream.state();
    drop(stream);
    let restart = |more: &dyn Fn()| {
        let mut stream = place.stream(worker(0, 1));
        stream.load(&state).unwrap();
        let first = one(&mut stream);
        more();
        let rest = take(&mut stream, 2);
        [first.generation, rest[0].generation, rest[1].generation]
    };
    assert_eq!(restart(&|| place.generation(2..4)), [1, 2, 2]);
    place.generation(4..6);
    assert_eq!(restart(&|| ()), [1, 2, 2]);
}

/// A ring of three generations of two samples.
fn of_three_generations() -> World {
    let place = World::new("SWAP_CAP: 2\nKEEP: 9\n");
    (0..3).for_each(|n| place.generation(n * 2..n * 2 + 2));
    place
}

#[test]
fn generation_counts_as_read_when_all_workers_end_or_leave() {
    let place = of_three_generations();
    let mut ring = place.ring();
    assert_eq!((ring.passes(1).unwrap(), ring.has_readers().unwrap()), (0, false));
    decide(&ring, "r", &[1, 1, 2], 2);
    let log = ring.run("r").unwrap();
    let passes = |of: [u64; 2], what: &str| assert_eq!([1, 2].map(|n| ring.passes(n).unwrap()), of, "{what}");
    let pinned = |of: &[u64]| assert_eq!(ring.pinned().unwrap(), of.iter().copied().collect());
    log.arrive(0, 1, "zero", 1).unwrap();
    passes([0, 0], "the other worker may still begin");
    assert!(ring.has_readers().unwrap() && log.was_read_by(0).unwrap());
    log.arrive(1, 0, "one", 2).unwrap();
    passes([0, 0], "the other worker has begun");
    assert!(!log.was_read_by(1).unwrap() && !log.was_read_by(2).unwrap());
    pinned(&[1, 2]);
    log.arrive(1, 1, "one", 2).unwrap();
    passes([1, 0], "both have finished one epoch");
    // An epoch that was abandoned for another one counts as read.
    assert_eq!(ring.reads().unwrap(), [(1, 2), (2, 0)].into());
    (0..2).for_each(|worker| log.arrive(worker, 2, ["zero", "one"][worker as usize], worker + 1).unwrap());
    passes([2, 0], "both have finished two epochs");
    pinned(&[2]);
    log.arrive(0, 3, "zero", 1).unwrap();
    passes([2, 0], "one live worker has not finished the third epoch");
    log.leave(1, 2, 1).unwrap(); // of another token
    passes([2, 0], "another stream has left");
    log.leave(1, 2, 2).unwrap();
    passes([2, 1], "the worker has left");
    assert_eq!(ring.reads().unwrap(), [(1, 2), (2, 1)].into());
    pinned(&[]);
    assert_eq!(ring.run_names().unwrap(), ["r"]);

    let held = |min: u64, ring: &mut ringreel::Ring| {
        ring.settings.reuse.min = min;
        ring.held_back().unwrap().is_some_and(|why| why.contains("generation 3 to be read"))
    };
    assert_eq!([0, 1].map(|min| held(min, &mut ring)), [false, true]);
    log.decide(3, &Epoch { workers: 2, ..epoch(3) }).unwrap();
    log.arrive(0, 4, "zero", 1).unwrap();
    assert_eq!([0, 1, 2].map(|min| held(min, &mut ring)), [false, false, true]);
    log.leave(0, 4, 1).unwrap();
    assert!(!ring.has_readers().unwrap());
}

#[test]
fn absent_workers_are_named_and_awaited_for_one_lease() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 9\nREUSE: {min: 1}\nLEASE_SECONDS: 0.5\n");
    place.generation(0..2);
    let ring = place.ring();
    let of_run = StreamOptions { run: Some("r".to_owned()), ..worker(0, 2) };
    let mut streams = [of_run, worker(0, 3)].map(|options| {
        let mut stream = place.stream(StreamOptions { epochs: Some(1), ..options });
        drain(&mut stream);
        stream
    });
    let why = ring.held_back().unwrap().unwrap();
    for missing in ["worker 1 of 2 of run r has not begun", "worker 1 of 3 (and 1 more)"] {
        assert!(why.contains(missing), "{missing}: {why}");
    }
    eventually("absent workers are no longer counted", || ring.passes(1).unwrap() == 2);
    assert_eq!(ring.held_back().unwrap(), None);
    // A worker that begins late counts again.
    let log = ring.run("r").unwrap();
    log.arrive(1, 0, "late", 9).unwrap();
    assert_eq!(ring.passes(1).unwrap(), 1);
    streams.reverse(); // keeps the streams alive until here
}

#[test]
fn readers_name_the_worker_that_blocks_the_next_generation() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 9\nREUSE: {min: 1}\nLEASE_SECONDS: 5\n");
    place.generation(0..2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut generator = ringreel::Generator::open(&place.config()).unwrap();
            (2..4).for_each(|n| stream::put(&mut generator, n));
            stream::eventually("the test is over", || stop.load(Ordering::SeqCst));
        });
        let ring = place.ring();
        eventually("the next generation is full", || ring.count_samples(2).unwrap_or(0) == 2);
        let mut stream = place.stream(StreamOptions { run: Some("r".to_owned()), ..worker(0, 2) });
        one(&mut stream);
        let heard = std::sync::Mutex::new(String::new());
        let is_told = || heard.lock().unwrap().contains("worker 1 of 2 of run r has not begun");
        let next = stream.next(&is_told, &mut |what| heard.lock().unwrap().push_str(what));
        stop.store(true, Ordering::SeqCst);
        assert!(is_told(), "{next:?}, {}", heard.lock().unwrap());
    });
}

#[test]
fn independent_workers_each_count_their_share_as_read() {
    let place = of_three_generations();
    let ring = place.ring();
    let logs = [0, 1].map(|_| {
        let name = RunLog::own_name();
        decide(&ring, &name, &[1, 1], 2);
        ring.run(&name).unwrap()
    });
    assert_ne!(logs[0].name(), logs[1].name());
    let passes = |of: u64, what: &str| assert_eq!(ring.passes(1).unwrap(), of, "{what}");
    logs[0].arrive(0, 1, "zero", 1).unwrap();
    passes(0, "one of two has begun");
    logs[1].arrive(1, 1, "one", 1).unwrap();
    passes(1, "each once");
    logs[0].arrive(0, 2, "zero", 1).unwrap();
    passes(1, "one of them has read twice");
    logs[1].leave(1, 1, 1).unwrap();
    passes(2, "a departed worker is not awaited");
    logs[0].leave(0, 2, 1).unwrap();
    passes(1, "after all have left, each one counts");
    let alone = RunLog::own_name();
    decide(&ring, &alone, &[1, 1, 2], 1);
    ring.run(&alone).unwrap().arrive(0, 2, "alone", 1).unwrap();
    passes(3, "a worker that reads alone counts too");
}

#[test]
fn repeated_epochs_are_written_once_and_counted() {
    let place = of_three_generations();
    let ring = place.ring();
    let log = ring.run("r").unwrap();
    let repeated = Epoch { repeats: 2, workers: 1, ..epoch(1) };
    log.decide(5, &repeated).unwrap();
    log.decide(6, &Epoch { workers: 1, ..epoch(2) }).unwrap();
    log.arrive(0, 6, "zero", 1).unwrap();
    assert_eq!(ring.reads().unwrap(), [(1, 3), (2, 0)].into());
    let text = |k: &str| ring.coordination.read_note("epochs.r", k).unwrap().unwrap();
    assert!(text("5").contains("\"repeats\":2") && !text("6").contains("repeats"));

    let other = place.ring().run("r").unwrap();
    assert_eq!(other.epoch(4).unwrap(), None);
    assert_eq!(other.epochs().unwrap().iter().map(|(k, _)| *k).collect::<Vec<_>>(), [5, 6]);
    assert_eq!([2, 3, 4, 5].map(|k| other.epoch(k).unwrap().is_some()), [false, true, true, true]);
    assert_eq!(other.epoch(3).unwrap(), Some(repeated));
}

#[test]
fn long_runs_keep_4096_epochs_and_the_last_positions() {
    let index: Arc<dyn CoordinationStore> = Arc::new(MemoryStore::default());
    let log = RunLog::new(index.clone(), "r").unwrap();
    (0..6).for_each(|k| assert_eq!(log.decide(k, &epoch(k)).unwrap(), epoch(k)));
    let left = || {
        let mut names = index.note_names("epochs.r").unwrap();
        names.sort();
        let known = (0..6).filter(|k| log.epoch(*k).unwrap().is_some()).map(|k| k.to_string()).collect::<Vec<_>>();
        assert_eq!(known, names);
        names
    };
    log.arrive(0, 4096, "m", 1).unwrap();
    assert_eq!(left(), ["0", "1", "2", "3", "4", "5"]);
    log.arrive(0, 4097, "m", 1).unwrap();
    assert_eq!(left(), ["1", "2", "3", "4", "5"]);
    log.arrive(0, 4100, "m", 1).unwrap();
    assert_eq!(left(), ["4", "5"]);
    // A worker that did not record the epochs does not know the previous one.
    let other = RunLog::new(index.clone(), "r").unwrap();
    other.arrive(1, 4101, "n", 1).unwrap();
    assert_eq!(index.note_names("epochs.r").unwrap(), ["5"]);
    log.arrive(0, 4100, "m", 1).unwrap();
    let mut places = index.note_names("run.r").unwrap();
    places.sort();
    assert_eq!(places, ["at.0.4100.m", "at.1.4101.n"]);
    assert_eq!(index.note_names("runs").unwrap(), ["r"]);
}

#[test]
fn budget_releases_no_more_pinned_generations_than_needed() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 9\n");
    (0..6).for_each(|n| place.generation(n * 2..n * 2 + 2));
    let mut ring = place.ring();
    decide(&ring, "slow", &[1, 2, 3, 4, 5, 6], 1);
    ring.run("slow").unwrap().arrive(0, 0, "somebody", 1).unwrap();
    let bytes = |g| ring.manifests.get(g).unwrap().unwrap().summary.bytes;
    let (newest, used) = (bytes(6), bytes(1) + bytes(2) + bytes(3) + bytes(4) + bytes(5) + bytes(6));
    let oldest = bytes(1);
    ring.settings.keep = 0;
    let there = |ring: &ringreel::Ring| {
        ring.reclaim().unwrap();
        (1..=6).filter(|g| place.has(*g)).collect::<Vec<_>>()
    };
    for enough in [None, Some(used + newest)] {
        ring.settings.max_bytes = enough;
        assert_eq!(there(&ring), [1, 2, 3, 4, 5, 6]);
    }
    ring.settings.max_bytes = Some(used + newest - 1);
    assert_eq!(there(&ring), [2, 3, 4, 5, 6]);
    // Without any space, the space of the next generation is freed, whether sizes are equal or nearly so.
    ring.settings.max_bytes = Some(used - oldest);
    let left = there(&ring);
    assert!(left == [3, 4, 5, 6] || left == [4, 5, 6], "{left:?}");
}
