//! The ratio between generating and reading (REUSE), and what readers do without new samples (ON_STALE, STALE_AFTER).

use ringreel::config::Reuse;
use ringreel::read::stream::Item;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::{PromoteWhen, Promoted};
use ringreel::write::generator::Summary;
use ringreel::{Error, Generator, Reader, Stream, StreamOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use testkit::log::warnings as told;
use testkit::process::is_watched;
use testkit::ring::{self, Action, HookFs, manage};
use testkit::stream::{World, drain, eventually, next, one, patience, patiently, put, take, turn, worker};

const SAMPLES: u64 = 6;

fn of_run(rank: u64, world: u64) -> StreamOptions {
    StreamOptions { run: Some("r".into()), ..worker(rank, world) }
}

/// Writes as fast as the ring accepts samples.
fn generate(place: &World, numbers: std::ops::Range<u64>, seal: bool) -> Summary {
    let mut generator = Generator::open(&place.config()).unwrap();
    for n in numbers {
        put(&mut generator, n);
    }
    let stop = patience();
    let summary = generator.finish(seal, &stop).unwrap();
    assert!(!stop(), "the generator hangs: {summary:?}");
    summary
}

/// Positions read by any stream, by generation.
type Seen = Mutex<BTreeMap<u64, BTreeSet<u64>>>;

/// Reads up to the first sample of generation `last`. At the first sample of each generation, checks that all samples
/// of the previous one were read.
fn read_up_to(stream: &mut Stream, last: u64, seen: &Seen) {
    let (mut first, late) = (None, patience());
    loop {
        assert!(!late(), "the stream never reaches generation {last}");
        let got = one(stream);
        let mut seen = seen.lock().unwrap();
        seen.entry(got.generation).or_default().insert(got.position);
        let first = *first.get_or_insert(got.generation);
        sleep(Duration::from_millis(2)); // reads more slowly than generators write
        for (generation, positions) in seen.range(first..got.generation) {
            assert_eq!(positions.len() as u64, SAMPLES, "generation {generation} was not read: {positions:?}");
        }
        assert_eq!(seen.len() as u64, *seen.keys().last().unwrap(), "no generation is skipped");
        if got.generation == last {
            return;
        }
    }
}

#[test]
fn reuse_min_reads_every_sample_before_the_next_generation() {
    for (workers, named) in [(1, true), (3, true), (1, false), (3, false)] {
        let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1}}\nLEASE_SECONDS: 5\n"));
        drop(Generator::open(&place.config()).unwrap());
        let (seen, generations) = (Seen::default(), 8);
        let mut streams: Vec<Stream> = (0..workers)
            .map(|rank| place.stream(if named { of_run(rank, workers) } else { worker(rank, workers) }))
            .collect();
        let summary = scope(|scope| {
            let generator = scope.spawn(|| generate(&place, 0..SAMPLES * generations, false));
            for stream in &mut streams {
                scope.spawn(|| read_up_to(stream, generations, &seen));
            }
            generator.join().unwrap()
        });
        assert_eq!((summary.finished, summary.quarantined), (SAMPLES * generations, 0));
        assert_eq!(ring::listed(&place.path()).len() as u64, SAMPLES * generations);
        assert_eq!(summary.delivered + summary.waiting, summary.finished);
    }
}

#[test]
fn reuse_min_2_lets_each_generation_be_read_twice() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 2, max: 2}}\n"));
    drop(Generator::open(&place.config()).unwrap());
    let mut stream = place.stream(of_run(0, 1));
    scope(|scope| {
        scope.spawn(|| generate(&place, 0..SAMPLES * 6, false));
        let got = take(&mut stream, SAMPLES as usize * 10);
        let generations: Vec<u64> = got.iter().step_by(SAMPLES as usize).map(|got| got.generation).collect();
        assert_eq!(generations, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    });
}

#[test]
fn generators_without_readers_fill_one_generation_ahead() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1, max: 0}}\nLEASE_SECONDS: 5\n"));
    drop(Generator::open(&place.config()).unwrap());
    let ring = place.ring();
    scope(|scope| {
        let generator = scope.spawn(|| generate(&place, 0..SAMPLES * 4, false));
        eventually("the second generation is full", || ring.count_samples(2).is_ok_and(|fill| fill == SAMPLES));
        sleep(Duration::from_millis(200));
        assert_eq!(ring.manifests.newest_listed().unwrap(), 1);
        assert!(!generator.is_finished() && !place.path().join("write.3").exists());
        // Reading has to be complete, not only begun.
        let mut stream = place.stream(of_run(0, 1));
        take(&mut stream, SAMPLES as usize - 1);
        sleep(Duration::from_millis(100));
        assert_eq!(ring.manifests.newest_listed().unwrap(), 1);
        read_up_to(&mut stream, 4, &Seen::new(BTreeMap::from([(1, (0..SAMPLES).collect())])));
    });
}

#[test]
fn waiting_managers_notice_the_last_sample_at_once() {
    for options in [of_run(0, 1), worker(0, 1)] {
        let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1, max: 1}}\nLEASE_SECONDS: 300\n"));
        let mut config = place.config();
        config.poll = Some(Duration::from_secs(300));
        let (manager, stop) = (Manager::open(&config).unwrap(), AtomicBool::new(false));
        let (ring, notes) = (manager.ring().clone(), place.path().join("index/notes"));
        scope(|scope| {
            scope.spawn(|| {
                let late = patience();
                manage(manager, || stop.load(SeqCst) || late());
            });
            eventually("a manager holds the lease", || ring.coordination.lease("manager").unwrap().is_some());
            let mut generator = Generator::open(&place.config()).unwrap();
            (0..SAMPLES).for_each(|n| put(&mut generator, n));
            let mut stream = place.stream(options.clone());
            take(&mut stream, 1);
            (SAMPLES..2 * SAMPLES).for_each(|n| put(&mut generator, n));
            // The manager watches only while a full generation waits.
            eventually("the manager waits", || notes.exists() && is_watched(&notes));
            take(&mut stream, SAMPLES as usize - 1);
            let asked = stream.next(&patience(), &mut |_| {}); // asking for it finishes the previous sample
            assert!(matches!(asked, Ok(Some(Item::Sample(sample))) if sample.generation == 2), "polled too late");
            stop.store(true, SeqCst);
        });
    }
}

#[test]
fn generations_promoted_elsewhere_no_longer_wait() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1}}\n"));
    place.generation(0..SAMPLES);
    let mut generator = Generator::open(&place.config()).unwrap();
    ring::a_manager_seems_to_live(&place.config());
    (SAMPLES..2 * SAMPLES).for_each(|n| put(&mut generator, n));
    let ring = place.ring();
    assert!(matches!(ring.promote(PromoteWhen::Full).unwrap(), Promoted::Blocked { .. }));
    let mut hasty = place.config();
    hasty.reuse = Reuse { min: 0, max: 0 };
    assert!(ring::another(&hasty).promote(PromoteWhen::Full).unwrap().done().is_some());
    let empty = matches!(ring.promote(PromoteWhen::Full).unwrap(), Promoted::Filling { samples: 0 });
    assert!(empty, "generation 3 must be empty");
}

#[test]
fn dead_and_absent_workers_are_not_awaited() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1}}\nLEASE_SECONDS: 3\n"));
    drop(Generator::open(&place.config()).unwrap());
    let ring = place.ring();
    let newest = || ring.manifests.newest_listed().unwrap();
    scope(|scope| {
        let generator = scope.spawn(|| generate(&place, 0..SAMPLES * 4, false));
        eventually("generation 1 is readable", || newest() == 1);
        let begun = Instant::now();
        ring.run("r").unwrap().arrive(2, 0, "who-died", 1).unwrap();
        let mut ranks = [0, 1].map(|rank| place.stream(StreamOptions { epochs: Some(1), ..of_run(rank, 3) }));
        assert_eq!(drain(&mut ranks[0]).len(), 2);
        assert_eq!(drain(&mut ranks[1]).len(), 2);
        eventually("the dead worker is no longer awaited", || newest() == 2);
        assert!(begun.elapsed() > Duration::from_secs(3), "a live worker was abandoned: {:?}", begun.elapsed());
        drop(ranks);
        let mut ranks = [0, 1].map(|rank| place.stream(StreamOptions { goes_on: turn(rank), ..of_run(rank, 3) }));
        take(&mut ranks[0], 2);
        take(&mut ranks[1], 1);
        // The stream waits a lease for the promotion, and continues with the readable generations.
        assert_eq!((one(&mut ranks[0]).generation, newest()), (2, 2), "one live worker has not finished its share");
        let [mut first, second] = ranks;
        drop(second);
        eventually("the worker that left is no longer awaited", || {
            one(&mut first);
            generator.is_finished() && newest() >= 3
        });
    });
}

#[test]
fn last_generation_is_promoted_after_reading_or_stays_staged() {
    scope(|scope| {
        // Waits for a reader however long it takes, beyond the time limit that otherwise applies at the end.
        scope.spawn(|| {
            let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1}}\nLEASE_SECONDS: 4\n"));
            place.generation(0..SAMPLES);
            let mut stream = place.stream(of_run(0, 1));
            one(&mut stream);
            let ring = place.ring();
            let summary = std::thread::scope(|scope| {
                let end = scope.spawn(|| generate(&place, SAMPLES..SAMPLES + 2, true));
                for _ in 1..SAMPLES {
                    sleep(Duration::from_millis(2300));
                    one(&mut stream);
                }
                assert!(!end.is_finished() && ring.manifests.newest_listed().unwrap() == 1);
                eventually("the generation is promoted", || one(&mut stream).generation == 2);
                end.join().unwrap()
            });
            assert_eq!((summary.delivered, summary.waiting, summary.swaps), (2, 0, 1));
        });
        scope.spawn(|| {
            let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1}}\nLEASE_SECONDS: 4\n"));
            place.generation(0..SAMPLES);
            let (summary, said) = told(|| generate(&place, SAMPLES..SAMPLES + 2, true));
            assert_eq!((summary.finished, summary.delivered, summary.waiting), (2, 0, 2));
            assert!(said.contains("2 samples") && said.contains("generation 1 to be read"), "{said}");
            // No sample is lost, because the next generator fills the generation.
            let mut stream = place.stream(of_run(0, 1));
            std::thread::scope(|scope| {
                scope.spawn(|| generate(&place, SAMPLES + 2..SAMPLES * 2, false));
                eventually("the generation is promoted", || one(&mut stream).generation == 2);
            });
            assert_eq!(ring::listed(&place.path()).len() as u64, SAMPLES * 2);
        });
    });
}

fn soon(options: StreamOptions) -> StreamOptions {
    StreamOptions { timeout: Some(Duration::from_millis(150)), ..options }
}

#[test]
fn streams_wait_after_reuse_max_passes_for_fresh_samples() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{max: 2}}\n"));
    place.generation(0..SAMPLES);
    for prefetch_bytes in [0, 1 << 20] {
        let newest = place.reader().newest().unwrap().summary.generation;
        let mut stream = place.stream(StreamOptions { prefetch_bytes, ..soon(worker(0, 1)) });
        assert!(take(&mut stream, SAMPLES as usize * 2).iter().all(|got| got.generation == newest));
        let mut said = Vec::new();
        let error = stream.next(&|| false, &mut |what| said.push(what.to_owned())).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Timeout { .. }), "{text}");
        for part in [
            format!("generation {newest} was read 2 times, and REUSE max is 2"),
            format!("generation {} holds 0 of {SAMPLES} samples", newest + 1),
            "no generator is alive".to_owned(),
        ] {
            assert!(text.contains(&part) && said.iter().any(|said| said.contains(&part)), "{part}: {text}");
        }
        let mut generator = Generator::open(&place.config()).unwrap();
        (0..SAMPLES - 1).for_each(|n| put(&mut generator, n));
        let text = next(&mut stream).unwrap_err().to_string();
        assert!(text.contains(&format!("holds {} of {SAMPLES} samples", SAMPLES - 1)), "{text}");
        scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(50));
                put(&mut generator, SAMPLES);
                generator.finish(true, &|| false).unwrap();
            });
            assert_eq!(patiently(&mut stream).unwrap().unwrap().generation, newest + 1);
        });
    }
}

#[test]
fn passes_are_counted_per_run_over_all_streams() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{max: 2}}\n"));
    place.generation(0..SAMPLES);
    let mut states = Vec::new();
    for pass in 0..2 {
        for rank in 0..2 {
            let options = StreamOptions { goes_on: turn(rank), epochs: Some(1), ..soon(of_run(rank, 2)) };
            let mut stream = place.stream(options);
            let got = drain(&mut stream);
            assert_eq!((got.len() as u64, got[0].epoch), (SAMPLES / 2, pass));
            states.push(stream.state());
        }
    }
    let mut third = place.stream(StreamOptions { goes_on: turn(0), ..soon(of_run(0, 2)) });
    assert!(matches!(next(&mut third), Err(Error::Timeout { .. })));
    // A stream that resumes from a state counts no further pass.
    let mut again = place.stream(soon(of_run(1, 2)));
    again.load(&states[3]).unwrap();
    assert!(matches!(next(&mut again), Err(Error::Timeout { .. })));
    // Nor does a stream without a run.
    let mut alone = place.stream(soon(worker(0, 1)));
    take(&mut alone, SAMPLES as usize + 2);
    let state = alone.state();
    drop(alone);
    let mut alone = place.stream(soon(worker(0, 1)));
    alone.load(&state).unwrap();
    assert_eq!(take(&mut alone, SAMPLES as usize - 2).len() as u64, SAMPLES - 2);
    assert!(matches!(next(&mut alone), Err(Error::Timeout { .. })));
    // Another run counts its passes separately.
    let mut other = place.stream(StreamOptions { run: Some("other".into()), ..soon(worker(0, 1)) });
    assert_eq!(take(&mut other, SAMPLES as usize * 2).len() as u64, SAMPLES * 2);
    place.generation(0..SAMPLES);
    for stream in [&mut third, &mut again, &mut other] {
        assert_eq!(one(stream).generation, 2);
    }
}

#[test]
fn on_stale_stop_fails_and_warn_logs_once_and_continues() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{max: 1}}\n"));
    place.generation(0..SAMPLES);
    let open = |on_stale: &str| {
        let reader = Reader::open(&place.with(&format!("ON_STALE: {on_stale}\n"))).unwrap();
        Stream::new(Arc::new(reader), worker(0, 1)).unwrap()
    };
    let mut stopping = open("stop");
    take(&mut stopping, SAMPLES as usize);
    for _ in 0..2 {
        let error = next(&mut stopping).unwrap_err();
        assert!(matches!(error, Error::Stale { .. }) && error.to_string().contains("generation 1 was read 1 times"));
    }
    let mut warning = open("warn");
    let (got, said) = told(|| take(&mut warning, SAMPLES as usize * 4));
    assert_eq!(got.len() as u64, SAMPLES * 4);
    assert_eq!(said.matches("reading old samples again").count(), 1, "{said}");
    assert!(said.contains("generation 1 was read 1 times") && said.contains("no generator is alive"), "{said}");
    place.generation(0..SAMPLES);
    assert_eq!(one(&mut stopping).generation, 2);
    let (_, said) = told(|| take(&mut warning, SAMPLES as usize * 2));
    assert_eq!(said.matches("reading old samples again").count(), 1, "one warning for the next generation: {said}");
}

#[test]
fn samples_are_stale_when_no_generator_lives() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nSTALE_AFTER: 3\nLEASE_SECONDS: 3\n"));
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..SAMPLES).for_each(|n| put(&mut generator, n));
    let open = |on_stale: &str| {
        let reader = Reader::open(&place.with(&format!("ON_STALE: {on_stale}\n"))).unwrap();
        Stream::new(Arc::new(reader), soon(worker(0, 1))).unwrap()
    };
    let mut streams = ["wait", "stop", "warn"].map(open);
    // Reads for this time, or up to an error.
    let read = |stream: &mut Stream, seconds: f64| {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            next(stream)?.unwrap();
            sleep(Duration::from_millis(2));
        }
        Ok::<_, Error>(())
    };
    let (_, said) = told(|| streams.each_mut().map(|stream| read(stream, 3.5).unwrap()));
    assert_eq!(said, "", "a generator lives");
    drop(generator); // the generator leaves
    let [waiting, stopping, warning] = streams.each_mut();
    let error = read(waiting, 60.0).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("no generator has been alive for"), "{error}");
    assert!(matches!(read(stopping, 60.0), Err(Error::Stale { .. })));
    let (_, said) = told(|| read(warning, 0.5).unwrap());
    assert_eq!(said.matches("no generator has been alive for").count(), 1, "{said}");
    // One returning generator is enough, both for a waiting reader and for one that continues.
    let generator = Generator::open(&place.config()).unwrap();
    eventually("both streams resume", || {
        [&mut *waiting, &mut *stopping].into_iter().all(|stream| next(stream).is_ok())
    });
    drop(generator);
}

#[test]
fn new_streams_detect_that_all_generators_have_ended() {
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nSTALE_AFTER: 3\nLEASE_SECONDS: 3\nON_STALE: stop\n"));
    place.generation(0..SAMPLES); // written by a generator that has left
    let mut epochs = 0;
    let error = loop {
        let options = StreamOptions { goes_on: turn(0), epochs: Some(1), run: Some("r".into()), ..worker(0, 1) };
        let mut stream = Stream::new(place.reader(), soon(options)).unwrap();
        match next(&mut stream) {
            Ok(Some(_)) => drop(drain(&mut stream)),
            Ok(None) => panic!("no sample and no error"),
            Err(error) => break error,
        }
        epochs += 1;
        assert!(epochs < 3000, "no stream notices the end of the generators");
        sleep(Duration::from_millis(20));
    };
    assert!(
        matches!(error, Error::Stale { .. }) && error.to_string().contains("no generator has been alive for"),
        "{error}"
    );
    assert!(epochs > 2, "{epochs}");
}

/// Makes the index fail with `errno`, or work again.
fn index_away(fs: &HookFs, errno: Option<i32>) {
    match errno {
        Some(errno) => fs.hook(move |_, _, path| {
            let of_index = path.components().any(|part| part.as_os_str() == "index");
            if of_index { Action::Refuse(errno) } else { Action::Pass }
        }),
        None => fs.unhook(),
    }
}

const ENOTCONN: i32 = 107;

#[test]
fn streams_without_a_run_continue_without_an_index() {
    for errno in [ENOTCONN, ring::EACCES] {
        let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nINDEX: files\n"));
        place.generation(0..SAMPLES);
        let fs = HookFs::default();
        let open = |options| Stream::new(Arc::new(Reader::open_on(Arc::new(fs.clone()), &place.config())?), options);
        index_away(&fs, Some(errno));
        let mut from_the_beginning = open(worker(0, 1)).unwrap();
        index_away(&fs, None);
        let mut later = open(worker(0, 1)).unwrap();
        let mut named = open(StreamOptions { run: Some("one".into()), ..worker(0, 1) }).unwrap();
        let mut ranks = [0, 1].map(|rank| open(soon(of_run(rank, 2))).unwrap());
        take(&mut later, 2);
        take(&mut named, 4);
        ranks.iter_mut().for_each(|rank| drop(take(rank, SAMPLES as usize / 2)));
        index_away(&fs, Some(errno));
        for (stream, read) in [(&mut from_the_beginning, 0), (&mut later, 2), (&mut named, 4)] {
            let got = take(stream, SAMPLES as usize * 3);
            let wanted = (read..).map(|n| (n / SAMPLES, 1, n % SAMPLES));
            assert!(got.iter().map(|got| (got.epoch, got.generation, got.position)).eq(wanted.take(got.len())));
        }
        let error = next(&mut ranks[0]).unwrap_err();
        let refused = matches!(&error, Error::CoordinationDenied { message, .. } if message.contains("cannot write the log of run r"));
        assert!(matches!(error, Error::Timeout { .. }) && errno == ENOTCONN || refused, "{error}");
        index_away(&fs, None);
        for rank in &mut ranks {
            assert_eq!(one(rank).epoch, 1);
        }
        place.generation(0..SAMPLES);
        assert_eq!(take(&mut later, SAMPLES as usize + 1).last().unwrap().generation, 2);
    }
}
