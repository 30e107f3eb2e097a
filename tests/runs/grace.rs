//! RUN_GRACE: how long the generations of a killed run are kept.

use ringreel::StreamOptions;
use ringreel::coordination::Report;
use ringreel::run_log::{Epoch, RunLog};
use ringreel::runs::MAX_PINNED;
use testkit::stream::{World, decide, eventually, take, worker};

/// An epoch of one worker that reads `generation`.
fn epoch(generation: u64) -> Epoch {
    Epoch { generation, samples: 2, workers: 1, shuffle: false, seed: 0, repeats: 0, unix_ms: 0 }
}

/// A ring with KEEP 0 whose run "killed" was killed in its first epoch, of generation 1; and a process that has noticed
/// it.
fn of_a_killed_run(yaml: &str) -> (World, ringreel::Ring) {
    let place = World::new(&format!("SWAP_CAP: 2\nKEEP: 0\nLEASE_SECONDS: 0.1\n{yaml}"));
    place.generation(0..2);
    let ring = place.ring();
    decide(&ring, "killed", &[1], 1);
    ring.run("killed").unwrap().arrive(0, 0, "victim", 1).unwrap();
    eventually("the worker counts as dead", || !ring.has_readers().unwrap());
    (place, ring)
}

/// Returns which of the first generations exist after `ring` has reclaimed.
fn reclaimed(place: &World, ring: &ringreel::Ring) -> Vec<u64> {
    ring.reclaim().unwrap();
    (1..100).filter(|g| place.has(*g)).collect()
}

/// The note that records when the worker of run "killed" died.
fn death(ring: &ringreel::Ring) -> Option<String> {
    ring.coordination.note_names("run.killed").unwrap().into_iter().find(|name| name.starts_with("dead."))
}

/// Records that the worker of run "killed" died this long ago; negative: in the future.
fn set_death(ring: &ringreel::Ring, seconds_ago: i64) {
    let before = death(ring).unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    ring.coordination.add_note("run.killed", &format!("dead.0.{}.victim", now - seconds_ago * 1000), "").unwrap();
    ring.coordination.remove_note("run.killed", &before).unwrap();
}

#[test]
fn killed_named_run_keeps_its_generation_for_run_grace() {
    let (place, mut ring) = of_a_killed_run("");
    ring.settings.reuse.min = 1;
    assert!(ring.held_back().unwrap().is_some());
    let reading = ring.run("reading").unwrap();
    for n in 1..20 {
        // Generators do not wait for the run that was killed.
        reading.decide(n - 1, &epoch(n)).unwrap();
        reading.arrive(0, n, "reader", 2).unwrap();
        assert_eq!(ring.held_back().unwrap(), None);
        place.generation(2 * n..2 * n + 2);
        reclaimed(&place, &ring);
    }
    reading.leave(0, 19, 2).unwrap();
    assert_eq!(reclaimed(&place, &ring), [1, 20]);
    assert!(!ring.has_readers().unwrap() && death(&ring).is_some());
    for (ago, kept) in [(3590, vec![1, 20]), (-3590, vec![1, 20]), (3601, vec![20])] {
        set_death(&ring, ago);
        assert_eq!(reclaimed(&place, &ring), kept, "{ago} s ago");
    }
    // The run is finished: it takes no further part.
    (20..24).for_each(|n| place.generation(2 * n..2 * n + 2));
    eventually("the run is retired", || {
        ring.reclaim().unwrap();
        !ring.coordination.note_names("runs").unwrap().contains(&"killed".to_owned())
    });
}

#[test]
fn death_far_in_the_future_ends_the_grace() {
    let (place, ring) = of_a_killed_run("");
    (1..3).for_each(|n| place.generation(2 * n..2 * n + 2));
    assert_eq!(reclaimed(&place, &ring), [1, 3]);
    set_death(&ring, -3700);
    assert_eq!(reclaimed(&place, &ring), [3]);
}

#[test]
fn run_grace_of_zero_keeps_nothing_for_dead_workers() {
    let (place, ring) = of_a_killed_run("RUN_GRACE: 0\n");
    (1..3).for_each(|n| place.generation(2 * n..2 * n + 2));
    assert_eq!((reclaimed(&place, &ring), death(&ring)), (vec![3], None));
}

#[test]
fn unnamed_runs_and_workers_that_left_get_no_grace() {
    let (place, ring) = of_a_killed_run("");
    place.generation(2..4);
    let own = RunLog::own_name();
    decide(&ring, &own, &[2], 1);
    ring.run(&own).unwrap().arrive(0, 0, "victim", 1).unwrap();
    (2..4).for_each(|n| place.generation(2 * n..2 * n + 2));
    eventually("the workers count as dead", || !ring.has_readers().unwrap());
    assert_eq!(reclaimed(&place, &ring), [1, 4]);
    // The worker returns as another member, and leaves.
    let log = place.ring().run("killed").unwrap();
    let report = Report { lease_seconds: 3600.0, ..Report::default() };
    ring.coordination.beat("successor", 1, &report).unwrap();
    log.arrive(0, 0, "successor", 2).unwrap();
    assert_eq!(ring.pinned().unwrap(), [1].into());
    assert_eq!(reclaimed(&place, &ring), [1, 4]);
    assert_eq!((death(&ring), ring.coordination.note_names("run.killed").unwrap().len()), (None, 1));
    log.leave(0, 0, 2).unwrap();
    assert_eq!(reclaimed(&place, &ring), [4]);
}

#[test]
fn grace_keeps_16_generations_and_yields_to_living_readers() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 99\nLEASE_SECONDS: 0.1\n");
    (0..23).for_each(|n| place.generation(2 * n..2 * n + 2));
    let mut ring = place.ring();
    ring.settings.keep = 0;
    decide(&ring, "killed", &(1..23).collect::<Vec<_>>(), 1);
    ring.run("killed").unwrap().arrive(0, 0, "victim", 1).unwrap();
    eventually("the worker counts as dead", || !ring.has_readers().unwrap());
    // A live stream with a lease of an hour reads generations 2 and 3.
    let report = Report { lease_seconds: 3600.0, ..Report::default() };
    ring.coordination.beat("reader", 1, &report).unwrap();
    decide(&ring, "lives", &[2, 3], 1);
    ring.run("lives").unwrap().arrive(0, 0, "reader", 2).unwrap();
    let kept: Vec<u64> = [2, 3].into_iter().chain(9..=23).collect();
    assert_eq!(kept.len(), MAX_PINNED + 1);
    assert_eq!(reclaimed(&place, &ring), kept);
    // Space for the next generation is freed, for the same size and for a slightly larger one.
    ring.settings.max_bytes = Some(1);
    let left = reclaimed(&place, &ring);
    assert!(left.starts_with(&[2, 3]) && [15, 16].contains(&left.len()), "{left:?}");
}

/// A stream that is suspended leaves its generations for the stream that resumes from its state, as a killed one does;
/// a stream that is dropped does not.
#[test]
fn suspended_run_resumes_exactly_after_promotions() {
    for suspends in [true, false] {
        let place = World::new("SWAP_CAP: 8\nKEEP: 0\nLEASE_SECONDS: 0.1\n");
        place.generation(0..8);
        let of = |run: &str| StreamOptions { run: Some(run.to_owned()), shuffle: true, seed: 7, ..worker(0, 1) };
        let whole = take(&mut place.stream(of("other")), 8);
        let mut stream = place.stream(of("training"));
        assert_eq!(take(&mut stream, 3), whole[..3]);
        let (ring, state) = (place.ring(), stream.state());
        assert!(ring.has_readers().unwrap());
        if suspends {
            stream.suspend();
        } else {
            drop(stream);
        }
        assert_eq!(ring.coordination.members().unwrap(), [], "no process is reported as silent");
        eventually("the reader counts as gone", || !ring.has_readers().unwrap());
        for n in 1..5 {
            place.generation(8 * n..8 * n + 8);
            ring.reclaim().unwrap();
        }
        assert_eq!((2..5).filter(|g| place.has(*g)).count(), 0);
        assert_eq!(place.has(1), suspends);
        if suspends {
            let mut resumed = place.stream(of("training"));
            resumed.load(&state).unwrap();
            assert_eq!(take(&mut resumed, 5), whole[3..]);
            assert_eq!(take(&mut resumed, 8)[0].generation, 5);
        }
    }
}
