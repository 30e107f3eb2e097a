//! A slow worker follows the others, and its generations are kept while it lives and the budget allows.

use ringreel::read::shard::Equal;
use ringreel::run_log::Epoch;
use ringreel::{Error, Generator, Stream, StreamOptions};
use std::time::{Duration, Instant};
use testkit::stream::{self, Got, World, drain, eventually, next, one, patiently, take, worker};

const SAMPLES: u64 = 8;

fn of_run(place: &World, rank: u64, world: u64, equal: Equal) -> Stream {
    place.stream(StreamOptions { run: Some("r".into()), equal, prefetch_bytes: 200, ..worker(rank, world) })
}

/// Epoch and generation of each sample.
fn epochs(got: &[Got]) -> Vec<(u64, u64)> {
    let mut all: Vec<_> = got.iter().map(|got| (got.epoch, got.generation)).collect();
    all.dedup();
    all
}

#[test]
fn slow_workers_follow_and_their_generations_are_kept() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nKEEP: 1\n"));
    let add = |n: u64| place.generation(n * SAMPLES..(n + 1) * SAMPLES);
    add(0);
    let mut ranks: Vec<Stream> = (0..3).map(|rank| of_run(&place, rank, 3, Equal::Wrap)).collect();
    let mut got: Vec<Vec<Got>> = ranks.iter_mut().map(|rank| take(rank, 1)).collect();
    for n in 1..=10 {
        add(n);
        for rank in 0..2 {
            got[rank].extend(take(&mut ranks[rank], 3));
        }
    }
    for g in 1..=11 {
        assert!(place.has(g), "generation {g} is not read yet");
    }
    got[2].extend(take(&mut ranks[2], 30));
    let wanted: Vec<_> = (0..11).map(|k| (k, k + 1)).collect();
    for got in &got {
        assert_eq!((epochs(got), got.len()), (wanted.clone(), 31));
        assert!(got.iter().all(|got| got.damaged.is_none() && !got.is_padding));
    }
    // Now no worker needs the old generations.
    for (rank, got) in ranks.iter_mut().zip(&mut got) {
        got.extend(take(rank, 2));
    }
    for rank in &mut ranks {
        one(rank);
    }
    add(11);
    assert_eq!((1..=10).filter(|g| place.has(*g)).collect::<Vec<_>>(), [0; 0]);
}

#[test]
fn generation_pinned_by_a_dead_worker_is_freed_with_its_lease() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nKEEP: 0\nLEASE_SECONDS: 3\nRUN_GRACE: 0\n"));
    let add = |n: u64| place.generation(n * SAMPLES..(n + 1) * SAMPLES);
    add(0);
    let mut living = of_run(&place, 0, 2, Equal::Drop);
    assert_eq!(one(&mut living).generation, 1);
    let ring = place.ring();
    ring.run("r").unwrap().arrive(1, 0, "who-died", 1).unwrap();
    add(1);
    assert_eq!(epochs(&take(&mut living, 4)), [(0, 1), (1, 2)]);
    ring.reclaim().unwrap();
    assert!(place.has(1), "the worker may still be alive");
    eventually("its lease expires", || {
        ring.reclaim().unwrap();
        !place.has(1)
    });
    assert!(place.has(2));
}

#[test]
fn generations_of_dropped_streams_are_reclaimed() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nKEEP: 0\n"));
    let add = |n: u64| place.generation(n * SAMPLES..(n + 1) * SAMPLES);
    add(0);
    let reader = place.reader();
    let stream = |run: Option<&str>| {
        let run = run.map(str::to_owned);
        Stream::new(reader.clone(), StreamOptions { run, ..worker(0, 1) }).unwrap()
    };
    let (mut other, mut left, mut alone) = (stream(Some("other")), stream(Some("r")), stream(None));
    for stream in [&mut other, &mut left, &mut alone] {
        assert_eq!(one(stream).generation, 1);
    }
    add(1);
    assert!(place.has(1));
    take(&mut other, 8);
    drop((left, alone));
    add(2);
    assert!(!place.has(1) && place.has(2), "generation 1 has no reader any more");
    assert_eq!(one(&mut other).generation, 2);
}

#[test]
fn resumed_states_keep_their_generation_during_the_epoch() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nKEEP: 0\nLEASE_SECONDS: 3\n"));
    let add = |n: u64| place.generation(n * SAMPLES..(n + 1) * SAMPLES);
    add(0);
    let mut first = of_run(&place, 0, 1, Equal::No);
    take(&mut first, 3);
    let state = first.state();
    drop(first);
    let mut second = of_run(&place, 0, 1, Equal::No);
    second.load(&state).unwrap();
    assert_eq!(one(&mut second).position, 3);
    let ring = place.ring();
    // The earlier worker counts as dead by now for this observer.
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_secs(4) {
        ring.pinned().unwrap();
        std::thread::sleep(Duration::from_millis(60));
    }
    add(1);
    ring.reclaim().unwrap();
    assert!(place.has(1));
    assert_eq!(epochs(&take(&mut second, 6)), [(0, 1), (1, 2)]);
}

/// Bytes of all segments in generations that are kept or that fill.
fn bytes(place: &World) -> u64 {
    let dirs = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap());
    let generations = dirs.filter(|dir| {
        let name = dir.file_name().into_string().unwrap();
        name.starts_with("read.") || name.starts_with("write.")
    });
    let files = generations.flat_map(|dir| std::fs::read_dir(dir.path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn oldest_pinned_generation_is_released_over_budget() {
    for equal in [Equal::Drop, Equal::Wrap, Equal::Pad, Equal::No] {
        let (size, one_generation) = {
            let place = World::new(&format!("SWAP_CAP: {SAMPLES}\n"));
            place.generation(0..SAMPLES);
            (bytes(&place) / SAMPLES, bytes(&place))
        };
        let budget = one_generation * 5 + size;
        let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nKEEP: 1\nMAX_BYTES: {budget}\n"));
        let add = |n: u64| {
            let mut generator = Generator::open(&place.config()).unwrap();
            for n in n * SAMPLES..(n + 1) * SAMPLES {
                stream::put(&mut generator, n);
                assert!(bytes(&place) <= budget, "{} bytes of {budget}", bytes(&place));
            }
            generator.finish(true, &stream::patience()).unwrap();
        };
        add(0);
        let (mut fast, mut slow) = (of_run(&place, 0, 2, equal), of_run(&place, 1, 2, equal));
        let (mut ahead, mut behind) = (take(&mut fast, 1), take(&mut slow, 1));
        for n in 1..8 {
            add(n);
            ahead.extend(take(&mut fast, 4));
        }
        ahead.extend(take(&mut fast, 3));
        assert_eq!(epochs(&ahead), (0..8).map(|k| (k, k + 1)).collect::<Vec<_>>());
        let kept: Vec<u64> = (1..=8).filter(|g| place.has(*g)).collect();
        assert!(kept.len() < 6 && kept.len() >= 3 && kept.ends_with(&[7, 8]), "{equal:?}: {kept:?}");
        while slow.epoch() < 8 && (behind.len() as u64) < ahead.len() as u64 {
            let Some(got) = next(&mut slow).unwrap() else { break };
            behind.push(got);
        }
        for (k, generation) in (0..8).zip(1..) {
            let of: Vec<&Got> = behind.iter().filter(|got| got.epoch == k).collect();
            if kept.contains(&generation) {
                assert!(of.len() == 4 && of.iter().all(|got| got.generation == generation), "{equal:?}, {k}: {of:?}");
            } else if equal == Equal::No {
                assert!(of.len() < 4, "{of:?}"); // samples that were read or prefetched before the removal
            } else {
                let newest = of.iter().filter(|got| got.generation == 8).count();
                assert!(of.len() == 4 && newest >= if k == 0 { 0 } else { 4 }, "{equal:?}, {k}: {of:?}");
            }
        }
    }
}

#[test]
fn runs_whose_workers_left_are_retired_and_replayable() {
    let place = World::new("SWAP_CAP: 2\nKEEP: 9\nLEASE_SECONDS: 0.2\n");
    place.generation(0..2);
    let mut stream = place.stream(StreamOptions { run: Some("r".into()), epochs: Some(2), ..worker(0, 1) });
    assert_eq!(drain(&mut stream).len(), 4);
    let ring = place.ring();
    assert_eq!(ring.run_names().unwrap(), ["r"]);
    drop(stream);
    for n in 1..16 {
        place.generation(n * 2..n * 2 + 2);
    }
    eventually("the run is retired", || {
        ring.reclaim().unwrap();
        ring.coordination.note_names("runs").unwrap().is_empty()
    });
    assert_eq!(ring.run_names().unwrap(), ["r"], "its log is kept");
    assert!(ring.pinned().unwrap().is_empty());
}

#[test]
fn generations_not_visible_yet_are_awaited() {
    for equal in [Equal::No, Equal::Wrap] {
        let place = World::new(&format!("SWAP_CAP: {SAMPLES}\n"));
        place.generation(0..SAMPLES);
        let epoch =
            Epoch { generation: 2, samples: SAMPLES, workers: 1, shuffle: false, seed: 0, repeats: 0, unix_ms: 0 };
        place.ring().run("r").unwrap().decide(0, &epoch).unwrap();
        let timeout = Some(Duration::from_millis(100));
        let mut stream =
            place.stream(StreamOptions { run: Some("r".into()), equal, timeout, epochs: Some(1), ..worker(0, 1) });
        for _ in 0..2 {
            let error = next(&mut stream).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            assert!(error.to_string().contains("manifests/2") && error.to_string().contains("not visible yet"));
        }
        place.generation(SAMPLES..2 * SAMPLES);
        let got: Vec<_> = std::iter::from_fn(|| patiently(&mut stream).unwrap()).collect();
        assert_eq!((epochs(&got), got.len() as u64), (vec![(0, 2)], SAMPLES));
        assert_eq!(stream.epochs(), 1);
    }
}
