//! Generators during a swap: after the rename, they do not wait for the manifest.

use ringreel::layout::segment_name;
use ringreel::ring::Ring;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Generator, SampleId};
use ringreel_ops::repair;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::ring::{
    self, Action, EIO, HookFs, a_manager_seems_to_live, another, assert_delivered_once, bring_in, config, listed,
    scratch, write, write_until,
};

const CAP: u64 = 4;
/// The longest wait in these tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process renames the full generation, and cannot publish its manifest.
fn begin_a_promotion(config: &Config) {
    let fs = Arc::new(HookFs::default());
    let ring = Ring::find_or_make(fs.clone(), config).unwrap();
    fs.hook(|_, op, path| {
        let publishes = op == "link" && path.parent().is_some_and(|dir| dir.ends_with("manifests"));
        if publishes { Action::Refuse(EIO) } else { Action::Pass }
    });
    ring.promote(PromoteWhen::Full).unwrap_err();
}

fn names(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Writes sample `n`, and gives up after `time`.
fn write_for_a_while(generator: &mut Generator, n: u64, time: Duration) -> ringreel::Result<Vec<SampleId>> {
    let begun = Instant::now();
    write_until(generator, n, &|| begun.elapsed() > time)
}

#[test]
fn generators_fill_ahead_while_a_manifest_is_missing() {
    go_on_while_one_waits(1);
}

#[test]
fn generators_of_two_sample_segments_fill_ahead_too() {
    go_on_while_one_waits(2);
}

fn go_on_while_one_waits(size: u64) {
    let dir = scratch();
    let config = config(dir.path(), CAP, &format!("SEGMENT_SAMPLES: {size}"));
    let files = (CAP / size) as usize;
    a_manager_seems_to_live(&config);
    let mut generator = Generator::open(&config).unwrap();
    let mut finished: Vec<_> = (0..CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    begin_a_promotion(&config);
    for n in CAP..2 * CAP {
        finished.extend(write_for_a_while(&mut generator, n, PATIENCE).unwrap());
    }
    let both = || (names(&config.ring.join("read.1")), names(&config.ring.join("write.2")));
    assert_eq!(both(), (files, files));
    assert!(listed(&config.ring).is_empty());
    // Both generations count as used space.
    let (bytes, found) = another(&config).usage().unwrap();
    let len = fs::metadata(config.ring.join("read.1").join(segment_name(0, size))).unwrap().len();
    let few = found * len - len..found * len + len;
    assert!(found == 2 * files as u64 && few.contains(&bytes), "{found} files, {bytes} bytes, {len} each");
    // But not the generation after it, so the disk's bound holds: the call after the one without space waits.
    for n in 2 * CAP..3 * CAP {
        match write_for_a_while(&mut generator, n, Duration::from_millis(100)) {
            Ok(ids) => finished.extend(ids),
            Err(_) => break,
        }
    }
    assert_eq!(both(), (files, files));
    assert!(!config.ring.join("write.3").exists() && !config.ring.join("read.2").exists());
    drop(generator);
    bring_in(&another(&config));
    assert!(finished.len() as u64 > 2 * CAP);
    assert_delivered_once(&config.ring, &finished, "a late manifest");
}

#[test]
fn segments_count_once_and_only_if_a_manifest_would_list_them() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    a_manager_seems_to_live(&config);
    let ring = another(&config);
    let promoted =
        || ring.promote(PromoteWhen::Full).unwrap().done().map(|promotion| promotion.manifest.summary.samples);
    let mut generator = Generator::open(&config).unwrap();
    let write_all = |generator: &mut Generator, from: u64, to: u64| {
        (from..to).flat_map(|n| write(generator, n).unwrap()).collect::<Vec<_>>()
    };
    let mut finished = write_all(&mut generator, 0, 1);
    assert_eq!(promoted(), None);
    finished.extend(write_all(&mut generator, 1, 3));
    let write = config.ring.join("write.1");
    fs::hard_link(write.join(segment_name(1, 1)), write.join(segment_name(9, 1))).unwrap();
    fs::write(write.join(segment_name(10, 1)), "no segment").unwrap();
    assert_eq!(promoted(), None, "one segment has a second name, and one is damaged");
    (9..11).for_each(|n| fs::remove_file(write.join(segment_name(n, 1))).unwrap()); // makes space for their owners
    finished.extend(write_all(&mut generator, 3, 4));
    assert_eq!(promoted(), Some(CAP));
    // Segments that the previous generation lists do not count in the next one, and an unknown directory is listed
    // again.
    finished.extend(write_all(&mut generator, 4, 7));
    assert_eq!(promoted(), None);
    fs::hard_link(config.ring.join("read.1").join(segment_name(0, 1)), config.ring.join("write.2/000009.rec")).unwrap();
    assert_eq!(promoted(), None);
    fs::remove_file(config.ring.join("write.2/000009.rec")).unwrap();
    finished.extend(write_all(&mut generator, 7, 8));
    fs::rename(config.ring.join("write.2"), config.ring.join("w")).unwrap();
    fs::create_dir(config.ring.join("write.2")).unwrap();
    for entry in fs::read_dir(config.ring.join("w")).unwrap().map(Result::unwrap) {
        fs::rename(entry.path(), config.ring.join("write.2").join(entry.file_name())).unwrap();
    }
    assert_eq!(promoted(), Some(CAP), "a recreated directory is listed again");
    assert_delivered_once(&config.ring, &finished, "generations with repeated names");
}

#[test]
fn generator_promotes_without_reading_the_previous_manifest() {
    const MANY: u64 = 500;
    let dir = scratch();
    let config = config(dir.path(), MANY, "");
    let fs = Arc::new(HookFs::default());
    let mut last = Generator::open_on(fs.clone(), &config).unwrap();
    assert_eq!(last.ring().manifests.newest().unwrap(), 0);
    let mut others = Generator::open(&config).unwrap();
    let mut finished: Vec<_> = (0..2 * MANY - 1).flat_map(|n| write(&mut others, n).unwrap()).collect();
    assert_eq!(listed(&config.ring).len() as u64, MANY);
    fs.hook(|_, op, path| {
        if op == "read" && path.ends_with("manifests/1") {
            std::thread::sleep(Duration::from_millis(500));
        }
        Action::Pass
    });
    finished.extend(write(&mut last, 2 * MANY - 1).unwrap());
    assert_eq!(listed(&config.ring).len() as u64, 2 * MANY, "no other process would promote it");
    drop((last, others));
    assert_delivered_once(&config.ring, &finished, "promoted by its generator");
}

#[test]
fn linked_samples_of_dead_owners_are_recovered_once() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    a_manager_seems_to_live(&config);
    let mut generator = Generator::open(&config).unwrap();
    let mut finished: Vec<_> = (0..CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    begin_a_promotion(&config);
    finished.extend(write_for_a_while(&mut generator, CAP, PATIENCE).unwrap());
    std::mem::forget(generator); // as if the generator was killed
    let ring = another(&config);
    let mut watch = ringreel::ring::failure_detector::FailureDetector::new(Duration::ZERO);
    for _ in 0..3 {
        watch.look(&*ring.coordination).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        ring.recover(&mut watch).unwrap();
    }
    assert_eq!((names(&config.ring.join("write.2")), names(&config.ring.join("read.1"))), (1, 4));
    bring_in(&ring);
    assert_delivered_once(&config.ring, &finished, "a generator that died before the manifest");
}

#[test]
fn generations_promoted_before_a_power_cut_are_not_refilled() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let mut generator = Generator::open(&config).unwrap();
    let staging = generator.ring().layout.staging_of(&generator.ring().me);
    let mut finished = Vec::new();
    let mut kept = Vec::new();
    for n in 0..2 * CAP {
        finished.extend(write(&mut generator, n).unwrap());
        // Names that would still be on the disk: only those of synced manifests are removed.
        for entry in fs::read_dir(&staging).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_owned();
            if entry.extension().is_some_and(|kind| kind == "rec")
                && fs::hard_link(&entry, dir.path().join(&name)).is_ok()
            {
                kept.push(name);
            }
        }
    }
    generator.finish(false, &ring::never).unwrap();
    assert_eq!(listed(&config.ring).len() as u64, 2 * CAP);
    for n in 1..=2 {
        fs::remove_file(config.ring.join(format!("manifests/{n}"))).unwrap();
    }
    fs::create_dir_all(&staging).unwrap();
    kept.iter().for_each(|name| drop(fs::rename(dir.path().join(name), staging.join(name))));
    // A process continued the promotion of generation 1, and died.
    fs::create_dir(config.ring.join("write.2")).unwrap();

    a_manager_seems_to_live(&config);
    let mut generator = Generator::open(&config).unwrap();
    finished.extend(write_for_a_while(&mut generator, 2 * CAP, Duration::from_millis(200)).unwrap());
    // The next call waits.
    finished.extend(write_for_a_while(&mut generator, 2 * CAP + 1, Duration::from_millis(200)).unwrap_or_default());
    assert_eq!(names(&config.ring.join("write.2")), 0, "the disk would exceed its bound by a generation");
    std::mem::forget(generator);
    bring_in(&another(&config));
    assert_delivered_once(&config.ring, &finished, "after a power cut");
}

#[test]
fn unpublished_manifests_are_published_without_a_manager() {
    let dir = scratch();
    let config = config(dir.path(), 10, "");
    let mut generator = Generator::open(&config).unwrap();
    a_manager_seems_to_live(&config);
    let mut finished: Vec<_> = (0..10).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    begin_a_promotion(&config);
    finished.extend(write(&mut generator, 10).unwrap());
    assert!(listed(&config.ring).is_empty());
    another(&config).coordination.release_lease("manager", 1).unwrap();
    // The generator polls the lease only occasionally.
    drop(generator);
    let mut generator = Generator::open(&config).unwrap();
    for n in 11..15 {
        std::thread::sleep(Duration::from_millis(50));
        finished.extend(write(&mut generator, n).unwrap());
    }
    assert_eq!(listed(&config.ring).len(), 10, "readers would wait until another generation is full");
    generator.finish(false, &ring::never).unwrap();
    bring_in(&another(&config));
    assert_delivered_once(&config.ring, &finished, "a manifest that a generator published");
}

#[test]
fn rebuilt_manifests_list_what_was_linked_ahead() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let mut generator = Generator::open(&config).unwrap();
    let finished: Vec<_> = (0..CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    generator.finish(false, &ring::never).unwrap();
    assert_eq!(listed(&config.ring).len() as u64, CAP);
    // The owner missed the first link, and linked the segment again in the generation that filled ahead.
    fs::hard_link(config.ring.join("read.1/000001.rec"), config.ring.join("write.2/000009.rec")).unwrap();
    fs::remove_file(config.ring.join("manifests/1")).unwrap();
    let ring = another(&config);
    let life = ringreel_ops::repair::Liveness::Unheard;
    let plan = repair::plan_repair(&ring, &life).unwrap();
    repair::apply_repair(&ring, &plan, &life).unwrap();
    assert_eq!(listed(&config.ring).len() as u64, CAP);
    bring_in(&another(&config));
    assert_delivered_once(&config.ring, &finished, "a lost manifest");
}
