//! Group commit (`SEGMENT_SAMPLES: auto`): fast generators group samples in files, slow ones do not, and a generation
//! ends at SWAP_CAP.

use ringreel::config::Durability;
use ringreel::heartbeat::Heartbeat;
use ringreel::manifest::Manifest;
use ringreel::segment::SampleId;
use ringreel::{Config, Generator, Ring, Role};
use ringreel_ops::status::status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::ring::{self, Action, HookFs, assert_delivered_once, config, never, scratch, write};
use testkit::wait::{PATIENCE, eventually};

fn manifests(config: &Config) -> Vec<Arc<Manifest>> {
    let ring = Ring::find(Arc::new(ringreel::fs::Posix), config).unwrap();
    let newest = ring.manifests.newest().unwrap();
    (1..=newest).map(|n| ring.manifests.get(n).unwrap().unwrap()).collect()
}

/// The number of samples and of files in each generation.
fn sizes(config: &Config) -> Vec<(u64, usize)> {
    manifests(config).iter().map(|manifest| (manifest.summary.samples, manifest.segments.len())).collect()
}

/// Writes `count` samples as fast as possible. Returns the ids of the finished ones.
fn write_many(generator: &mut Generator, count: u64) -> Vec<SampleId> {
    (0..count).flat_map(|n| write(generator, n).unwrap()).collect()
}

/// `seconds` is much longer than the test, so no segment is sealed because of its age.
fn auto(dir: &std::path::Path, cap: u64, seconds: &str) -> Config {
    config(dir, cap, &format!("SEGMENT_SAMPLES: auto\nSEGMENT_SECONDS: {seconds}\nKEEP: 1000\n"))
}

#[test]
fn fast_generator_fills_whole_generations_with_few_files() {
    let dir = scratch();
    let config = auto(dir.path(), 400, "3600");
    let mut generator = Generator::open(&config).unwrap();
    let mut ids = write_many(&mut generator, 1200);
    ids.extend(generator.seal(&never).unwrap());
    assert_eq!(ids.len(), 1200, "every id must be returned");
    let summary = generator.finish(true, &never).unwrap();
    assert_eq!((summary.finished, summary.delivered), (1200, 1200));
    let sizes = sizes(&config);
    assert!(sizes.iter().all(|(samples, files)| *samples == 400 && *files <= 40), "{sizes:?}");
    assert_eq!(sizes.len(), 3);
    assert_delivered_once(&config.ring, &ids, "in groups");
}

#[test]
fn generators_of_different_pace_fill_generations_together() {
    let dir = scratch();
    // A segment that is too large for the rest of a generation waits two polls for other segments to fill it.
    let poll = Some(Duration::from_millis(100));
    let config = Config { poll, ..auto(dir.path(), 64, "0.05") };
    let fixed = Config { poll, ..ring::config(dir.path(), 64, "KEEP: 1000\n") };
    let ids: Vec<SampleId> = std::thread::scope(|scope| {
        let run = |config: Config, count: u64, pause: u64| {
            move || {
                let mut generator = Generator::open(&config).unwrap();
                let mut ids = Vec::new();
                for n in 0..count {
                    ids.extend(write(&mut generator, n).unwrap());
                    std::thread::sleep(Duration::from_millis(pause));
                }
                ids.extend(generator.seal(&never).unwrap());
                generator.finish(false, &never).unwrap();
                ids
            }
        };
        let runs = [(&config, 600, 0), (&config, 150, 3), (&config, 20, 60), (&fixed, 100, 2)];
        let threads = runs.map(|(config, count, pause)| scope.spawn(run(config.clone(), count, pause)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 870);
    let rest = Generator::open(&fixed).unwrap();
    ring::bring_in(rest.ring());
    rest.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &ids, "generators of different pace");
    // A segment that does not fit waits for the next generation. It has at most an eighth of SWAP_CAP.
    let mut sizes = sizes(&config);
    sizes.pop();
    assert!(sizes.iter().all(|(samples, _)| (57..=64).contains(samples)), "{sizes:?}");
}

#[test]
fn samples_of_a_stalled_generator_become_readable() {
    let dir = scratch();
    let config = auto(dir.path(), 40, "0.3");
    let mut generator = Generator::open(&config).unwrap();
    // A segment has up to five samples, so only its age completes it.
    let mut ids = write_many(&mut generator, 3);
    let ring = generator.ring().clone();
    eventually("three samples are finished", || status(&ring).unwrap().samples_waiting == 3);
    eventually("the samples are linked", || status(&ring).unwrap().writing.samples == 3);
    assert_eq!(generator.summary().finished, 3);
    ids.extend(write(&mut generator, 3).unwrap());
    assert!(ids.len() >= 3, "the next call returns the ids that the thread finished: {ids:?}");
    ids.extend(generator.seal(&never).unwrap());
    assert_eq!(ids.len(), 4);
    generator.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &ids, "stalled");
}

#[test]
fn slow_generator_seals_each_sample_at_once() {
    let dir = scratch();
    let config = auto(dir.path(), 80, "0.001");
    let mut generator = Generator::open(&config).unwrap();
    for n in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(write(&mut generator, n).unwrap().len(), 1, "sample {n}");
    }
}

/// A generator that joins late makes no segment larger than the remaining space.
#[test]
fn generator_that_joins_a_nearly_full_generation_fits_in() {
    let dir = scratch();
    let config = auto(dir.path(), 100, "3600");
    let mut first = Generator::open(&ring::config(dir.path(), 100, "KEEP: 1000\n")).unwrap();
    (0..97).for_each(|n| drop(write(&mut first, n).unwrap()));
    let mut late = Generator::open(&config).unwrap();
    let ids = write_many(&mut late, 3);
    assert_eq!(ids.len(), 3, "each sample is sealed separately");
    late.finish(false, &never).unwrap();
    eventually("the generation is readable", || {
        first.flush(&never).unwrap();
        let ring = ring::another(&config);
        ring.promote(ringreel::swap::promote::PromoteWhen::Full).unwrap();
        ring.manifests.newest().unwrap() == 1
    });
    assert_eq!(sizes(&config)[0].0, 100);
}

/// A group that is too large for the rest of its generation is linked after two polls, also while its owner waits for
/// MAX_FILES. Otherwise the generation, which lacks two samples, would never become readable.
#[test]
fn group_of_a_generator_over_budget_is_linked() {
    let dir = scratch();
    let config = config(dir.path(), 64, "SEGMENT_SAMPLES: auto\nSEGMENT_SECONDS: 3600\nMAX_FILES: 55\n");
    let mut grouping = Generator::open(&config).unwrap();
    assert_eq!(write_many(&mut grouping, 12).len(), 9, "three samples are in an open segment");
    let mut single = Generator::open(&ring::config(dir.path(), 64, "")).unwrap();
    (0..53).for_each(|n| assert_eq!(write(&mut single, n).unwrap().len(), 1));
    let ring = ring::another(&config);
    let begun = Instant::now();
    let is_readable = || ring.manifests.newest_listed().unwrap() == 1 || begun.elapsed() > PATIENCE;
    std::thread::sleep(Duration::from_millis(20)); // the generator polls the ring and the disk again
    let stopped = ring::write_until(&mut grouping, 12, &is_readable);
    assert!(matches!(stopped, Err(ringreel::Error::Interrupted { .. })), "{stopped:?}");
    assert_eq!(ring.manifests.newest_listed().unwrap(), 1);
    assert_eq!(grouping.summary().finished, 12);
}

#[test]
fn generator_that_is_dropped_finishes_its_open_segment() {
    let dir = scratch();
    let config = auto(dir.path(), 80, "3600");
    let mut generator = Generator::open(&config).unwrap();
    assert_eq!(write_many(&mut generator, 4).len(), 1, "three samples are in an open segment");
    drop(generator);
    let next = Generator::open(&config).unwrap();
    ring::bring_in(next.ring());
    next.finish(true, &never).unwrap();
    assert_eq!(ring::listed(&config.ring).len(), 4);
}

/// A failed sync leaves a file with unknown contents, and an observer that considered this generator dead may have
/// removed its file.
#[test]
fn discarded_samples_are_counted_and_the_generator_continues() {
    const ENOENT: i32 = 2;
    const ENOSPC: i32 = 28;
    for (failing, errno) in [("sync", ENOSPC), ("rename", ENOENT)] {
        let dir = scratch();
        let config = Config { durability: Durability::Node, ..auto(dir.path(), 80, "0.05") };
        let fs = HookFs::default();
        let mut generator = Generator::open_on(Arc::new(fs.clone()), &config).unwrap();
        let mut ids = write_many(&mut generator, 1);
        let (failed, owner) = (AtomicBool::new(false), generator.ring().me.clone());
        fs.hook(move |_, op, path| {
            let is_segment = path.parent().is_some_and(|dir| dir.ends_with(&owner));
            let hit = op == failing && is_segment && !failed.swap(true, Ordering::SeqCst);
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        ids.extend(write_many(&mut generator, 3));
        eventually("the thread discards the samples", || generator.summary().discarded == 3);
        assert_eq!((generator.written(), generator.summary().finished), (1, 1));
        ids.extend(write_many(&mut generator, 2));
        ids.extend(generator.flush(&never).unwrap());
        assert_eq!(ids.len(), 3);
        assert_eq!(generator.finish(true, &never).unwrap().delivered, 3);
        assert_delivered_once(&config.ring, &ids, "with discarded samples");
    }
}

/// Readers are members of the ring, but do not write into it.
#[test]
fn readers_do_not_make_segments_smaller() {
    let dir = scratch();
    let config = auto(dir.path(), 80, "3600");
    let mut generator = Generator::open(&config).unwrap();
    let index = generator.ring().coordination.clone();
    let lease = Duration::from_secs(60);
    let readers: Vec<_> =
        (0..40).map(|n| Heartbeat::start(index.clone(), &format!("reader-{n}-1"), Role::Reader, lease)).collect();
    eventually("the readers are members", || index.members().unwrap().len() > readers.len());
    write_many(&mut generator, 80);
    generator.finish(true, &never).unwrap();
    let sizes = sizes(&config);
    assert!(sizes[0].0 == 80 && sizes[0].1 <= 20, "{sizes:?}");
}
