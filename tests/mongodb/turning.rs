//! Runs a ring: generators, a manager and readers in threads, until a number of samples is finished.

use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::read::shard::Share;
use ringreel::read::stream::Item;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Error, Generator, Reader, SampleId, Stream, StreamOptions};
use ringreel_format::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::ring::{self, assert_delivered_once, listed, manage, write};

/// Indices from here on are random, drawn when the index store gave none.
const STRAY: u64 = 1 << 40;

/// The result of a run.
#[derive(Debug)]
pub struct Turned {
    pub finished: u64,
    #[allow(dead_code, reason = "printed")]
    pub read: u64,
    /// Segments with an index from the counter, and with a random index.
    pub counted: u64,
    pub stray: u64,
    pub generations: u64,
    pub seconds: f64,
    /// The longest time in which no sample was finished.
    #[allow(dead_code, reason = "printed")]
    pub longest: Duration,
}

/// Runs `generators` threads that finish `samples` each, and continue until `meanwhile`, which is called repeatedly
/// with the number of finished samples, returns true. Checks that no finished sample is lost or listed twice, and that
/// readers read what was written.
pub fn turn(config: &Config, generators: u64, samples: u64, mut meanwhile: impl FnMut(u64) -> bool) -> Turned {
    let (finished, may_end) = (AtomicU64::new(0), AtomicBool::new(false));
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let (mut last, mut moved, mut longest) = (0, begun, Duration::ZERO);
    drop(Generator::open(config).unwrap()); // creates the ring, for the readers
    let ids: Vec<SampleId> = thread::scope(|scope| {
        let manager = scope.spawn(|| manage(Manager::open(config).unwrap(), || stop.load(Ordering::SeqCst)));
        let readers =
            [scope.spawn(|| read_on(config, 0, &stop, &read)), scope.spawn(|| read_on(config, 1, &stop, &read))];
        let threads: Vec<_> = (0..generators)
            .map(|n| {
                let (finished, may_end) = (&finished, &may_end);
                scope.spawn(move || generate(config, n, samples, finished, may_end))
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            let now = finished.load(Ordering::SeqCst);
            may_end.store(meanwhile(now), Ordering::SeqCst);
            if now > last {
                longest = longest.max(moved.elapsed());
                (last, moved) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let ids: Vec<SampleId> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        stop.store(true, Ordering::SeqCst);
        manager.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        ids
    });
    let seconds = begun.elapsed().as_secs_f64();
    let wanted: HashSet<String> = ids.iter().map(SampleId::to_string).collect();
    assert!(wanted.len() as u64 >= generators * samples);
    drain(config, &wanted);
    assert_delivered_once(&config.ring, &ids, "the ring");
    let (counted, stray, generations) = names(config);
    Turned { finished: ids.len() as u64, read: read.into_inner(), counted, stray, generations, seconds, longest }
}

fn generate(config: &Config, n: u64, samples: u64, finished: &AtomicU64, may_end: &AtomicBool) -> Vec<SampleId> {
    let mut generator = Generator::open(config).unwrap();
    let mut ids = Vec::new();
    for sample in (0..).take_while(|sample| *sample < samples || !may_end.load(Ordering::SeqCst)) {
        ids.extend(write(&mut generator, n << 32 | sample).unwrap());
        finished.fetch_add(1, Ordering::SeqCst);
    }
    ids.extend(generator.flush(&|| false).unwrap());
    generator.finish(false, &|| false).unwrap();
    ids
}

fn read_on(config: &Config, rank: u64, stop: &AtomicBool, read: &AtomicU64) {
    let share = Share::new(rank, 2).unwrap();
    let mut stream =
        Stream::new(Arc::new(Reader::open(config).unwrap()), StreamOptions { share, ..Default::default() }).unwrap();
    let stopped = || stop.load(Ordering::SeqCst);
    loop {
        match stream.next(&stopped, &mut |_| {}) {
            Ok(Some(Item::Sample(sample))) => {
                let n = u64::from_le_bytes(sample.parts[0].data().unwrap()[..].try_into().unwrap());
                assert_eq!(sample.meta.get("n"), Some(&Value::Int(i128::from(n))));
                read.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1)); // leaves the processor to the other threads
            }
            Err(Error::Interrupted { .. }) => return,
            other => panic!("{other:?}"),
        }
        if stopped() {
            return;
        }
    }
}

/// Commits and promotes the staged segments of departed generators until all of `wanted` are listed; returns all
/// listed.
pub fn drain(config: &Config, wanted: &HashSet<String>) -> Vec<SampleId> {
    let soon = Config { lease: Duration::from_millis(500), ..config.clone() };
    let ring = ring::another(&soon);
    let mut watch = FailureDetector::new(soon.lease);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let there: Vec<SampleId> = listed(&config.ring).into_keys().collect();
        let found = there.iter().filter(|id| wanted.contains(&id.to_string())).count();
        if found == wanted.len() {
            return there;
        }
        assert!(Instant::now() < deadline, "{found} of {} are listed", wanted.len());
        ring.recover(&mut watch).unwrap();
        ring.promote(PromoteWhen::NotEmpty).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
}

fn names(config: &Config) -> (u64, u64, u64) {
    let manifests = Manifests::new(Arc::new(Posix), Layout::new(&config.ring));
    let numbers = manifests.numbers().unwrap();
    let (mut counted, mut stray) = (0, 0);
    for n in &numbers {
        for segment in &manifests.get(*n).unwrap().unwrap().segments {
            *(if segment.index < STRAY { &mut counted } else { &mut stray }) += 1;
        }
    }
    (counted, stray, numbers.len() as u64 - 1)
}
