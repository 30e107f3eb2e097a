//! The ring's steps under lost replies, late calls, crashes and concurrent processes, at every call to the filesystem.

use ringreel::config::IndexPlace;
use ringreel::layout::segment_name;
use ringreel::manifest::store::Lookup;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Generator, SampleId};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::ring::{
    Action, CHANGES, EACCES, EIO, ESTALE, HookFs, a_manager_seems_to_live, another, assert_delivered_once, bring_in,
    config, listed, never, scratch, write,
};

const CAP: u64 = 4;
const SAMPLES: u64 = 10;

/// A generator on a filesystem with a hook writes ten samples into a ring of four; returns the finished ids.
fn generate(fs: &Arc<HookFs>, config: &Config) -> Vec<SampleId> {
    let mut finished = Vec::new();
    let Ok(mut generator) = Generator::open_on(fs.clone(), config) else { return finished };
    for n in 0..SAMPLES {
        match write(&mut generator, n) {
            Ok(ids) => finished.extend(ids),
            Err(_) => return finished,
        }
    }
    finished.extend(generator.seal(&never).unwrap_or_default());
    let _ = generator.finish(true, &never);
    finished
}

/// Counts the calls of an undisturbed run.
fn calls_of_a_run() -> usize {
    let dir = scratch();
    let fs = Arc::new(HookFs::default());
    let config = config(dir.path(), CAP, "");
    assert_eq!(generate(&fs, &config).len() as u64, SAMPLES);
    assert_eq!(listed(&config.ring).len() as u64, SAMPLES);
    fs.calls()
}

/// From call `at` on, no call has an effect; call `at` itself has one if `happened`.
fn dies_at(fs: &HookFs, at: usize, happened: bool) {
    fs.hook(move |n, _, _| match n {
        n if n < at => Action::Pass,
        n if n == at && happened => Action::LoseReply(EACCES),
        _ => Action::Refuse(EACCES),
    });
}

#[test]
fn lost_reply_of_any_change_loses_or_duplicates_no_sample() {
    let calls = calls_of_a_run();
    let mut lost_replies = 0;
    for at in 0..calls + 20 {
        let dir = scratch();
        let fs = Arc::new(HookFs::default());
        let config = config(dir.path(), CAP, "");
        another(&config); // creates the ring, which has a separate test
        let hit = Arc::new(AtomicBool::new(false));
        let seen = hit.clone();
        fs.hook(move |n, op, _| {
            if n >= at && CHANGES.contains(&op) && !seen.swap(true, Ordering::SeqCst) {
                return Action::LoseReply(EIO);
            }
            Action::Pass
        });
        let finished = generate(&fs, &config);
        lost_replies += usize::from(hit.load(Ordering::SeqCst));
        bring_in(&another(&config));
        assert_eq!(finished.len() as u64, SAMPLES, "lost reply at call {at}: the generator gave up");
        assert_delivered_once(&config.ring, &finished, &format!("lost reply at call {at}"));
    }
    assert!(lost_replies > calls / 3, "{lost_replies} of {calls}");
}

#[test]
fn single_failing_call_loses_or_duplicates_no_sample() {
    let calls = calls_of_a_run();
    for errno in [EIO, ESTALE] {
        for at in 0..calls {
            let dir = scratch();
            let fs = Arc::new(HookFs::default());
            let config = config(dir.path(), CAP, "");
            another(&config);
            fs.hook(move |n, _, _| if n == at { Action::Refuse(errno) } else { Action::Pass });
            let finished = generate(&fs, &config);
            bring_in(&another(&config));
            assert_delivered_once(&config.ring, &finished, &format!("errno {errno} at call {at}"));
        }
    }
}

#[test]
fn irreversible_writes_damage_no_finished_sample() {
    for more in ["", "SEGMENT_SAMPLES: 3\nDURABILITY: node"] {
        for at in 0..40 {
            let dir = scratch();
            let fs = Arc::new(HookFs::default());
            let config = config(dir.path(), CAP, more);
            another(&config);
            let seen = AtomicBool::new(false);
            fs.hook(move |n, op, path| {
                let staged = path.extension().is_some_and(|end| end == "part");
                let hit = staged && n >= at && op == "write" && !seen.swap(true, Ordering::SeqCst);
                if hit || (op == "cut" && staged) { Action::Refuse(EIO) } else { Action::Pass }
            });
            let finished = generate(&fs, &config);
            bring_in(&another(&config));
            assert_delivered_once(&config.ring, &finished, &format!("a write that failed at call {at}"));
            assert!(finished.len() as u64 >= SAMPLES - 3, "at call {at}: only {} of {SAMPLES}", finished.len());
            assert_eq!(std::fs::read_dir(config.ring.join("quarantine")).unwrap().count(), 0);
        }
    }
}

#[test]
fn generator_death_at_any_call_loses_no_finished_sample() {
    let calls = calls_of_a_run();
    for happened in [false, true] {
        for at in 0..calls {
            let dir = scratch();
            let fs = Arc::new(HookFs::default());
            let config = config(dir.path(), CAP, "");
            dies_at(&fs, at, happened);
            let finished = generate(&fs, &config);
            bring_in(&another(&config));
            assert_delivered_once(&config.ring, &finished, &format!("crash at call {at}, with effect: {happened}"));
        }
    }
}

/// Runs `rival` at every call of a generator, and checks the results.
fn interrupted_by(rival: impl Fn(&Arc<Ring>, &Config) + Send + Sync + 'static) {
    let rival = Arc::new(rival);
    for at in 0..calls_of_a_run() {
        let dir = scratch();
        let fs = Arc::new(HookFs::default());
        let config = config(dir.path(), CAP, "KEEP: 100");
        let (other, of_rival) = (Mutex::new(Arc::new(another(&config))), config.clone());
        let rival: Arc<_> = rival.clone();
        let published = Arc::new(Mutex::new(Vec::new()));
        let seen = published.clone();
        fs.hook(move |n, _, _| {
            if n == at {
                let other = other.lock().unwrap();
                rival(&other, &of_rival);
                let manifests = other.manifests.numbers().unwrap().into_iter().map(|n| other.layout.manifest(n));
                *seen.lock().unwrap() = manifests.map(|path| (std::fs::read(&path).unwrap(), path)).collect();
            }
            Action::Pass
        });
        let finished = generate(&fs, &config);
        for (bytes, path) in published.lock().unwrap().iter() {
            assert_eq!(&std::fs::read(path).unwrap(), bytes, "a manifest was changed, rival at call {at}");
        }
        assert_eq!(finished.len() as u64, SAMPLES);
        let ring = another(&config);
        bring_in(&ring);
        assert_delivered_once(&config.ring, &finished, &format!("a rival at call {at}"));
        for n in 1..=ring.manifests.newest().unwrap() {
            assert!(ring.layout.read(n).exists(), "a rival at call {at}: kept generation {n} is gone");
        }
    }
}

#[test]
fn concurrent_promotion_is_harmless_at_every_call() {
    interrupted_by(|ring, _| {
        ring.promote(PromoteWhen::NotEmpty).unwrap();
        ring.reclaim().unwrap();
    });
}

#[test]
fn concurrent_adoption_and_promotion_are_harmless() {
    interrupted_by(|ring, _| {
        let mut watch = FailureDetector::new(Duration::ZERO);
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(1));
            ring.recover(&mut watch).unwrap();
            ring.promote(PromoteWhen::NotEmpty).unwrap();
        }
    });
}

#[test]
fn concurrent_promotion_keeps_the_files_of_kept_generations() {
    interrupted_by(|ring, config| {
        let mut generator = Generator::on_ring(ring.clone(), config);
        for n in 0..CAP * 3 {
            write(&mut generator, n).unwrap();
        }
        generator.finish(true, &never).unwrap();
        for n in 1..=ring.manifests.newest().unwrap() {
            assert!(ring.layout.read(n).exists(), "kept generation {n} is gone");
        }
    });
}

/// The path that a client uses which still knows `write.<n>` as the directory that is `read.<n>` now.
fn by_the_old_name(path: &Path) -> Option<PathBuf> {
    let dir = path.parent()?;
    let number = dir.file_name()?.to_str()?.strip_prefix("write.")?;
    Some(dir.with_file_name(format!("read.{number}")).join(path.file_name()?))
}

#[test]
fn commits_into_a_promoted_directory_are_repeated() {
    let dir = scratch();
    let fs = Arc::new(HookFs::default());
    let config = config(dir.path(), CAP, "KEEP: 100");
    let other = another(&config);
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    let mut finished = write(&mut generator, 0).unwrap();
    let late = Arc::new(Mutex::new(Vec::new()));
    let seen = late.clone();
    fs.hook(move |_, op, path| {
        let mut seen = seen.lock().unwrap();
        if op == "link" && seen.is_empty() && path.extension().is_some_and(|end| end == "rec") {
            other.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
            let landed = by_the_old_name(path).unwrap();
            seen.push(landed.clone());
            return Action::Elsewhere(landed);
        }
        Action::Pass
    });
    for n in 1..3 {
        finished.extend(write(&mut generator, n).unwrap());
    }
    let landed = late.lock().unwrap().pop().unwrap();
    assert!(landed.exists(), "the late link is missing: {}", landed.display());
    generator.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &finished, "a late link");
    let listed = listed(&config.ring);
    assert_eq!((listed[&finished[0]][0], listed[&finished[1]][0]), (1, 2));
}

#[test]
fn manager_keeps_its_lease_after_one_failed_read() {
    let dir = scratch();
    let yaml = "DBNAME: t\nINDEX: files\nSWAP_CAP: 4\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 0.2\n";
    let config = Config::parse(yaml, "test", dir.path(), true).unwrap();
    let fs = Arc::new(HookFs::default());
    let mut manager = Manager::open_on(fs.clone(), &config).unwrap();
    let turns = |manager: &mut Manager| {
        (0..30)
            .filter(|_| {
                std::thread::sleep(Duration::from_millis(10));
                manager.turn().is_ok_and(|swap| swap.is_some())
            })
            .count()
    };
    assert_eq!(turns(&mut manager), 0);
    let of_lease = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("leases"));
    let once = AtomicBool::new(false);
    fs.hook(move |_, op, path| match op == "open" && of_lease(path) && !once.swap(true, Ordering::SeqCst) {
        true => Action::Refuse(ESTALE),
        false => Action::Pass,
    });
    turns(&mut manager);
    let mut generator = Generator::open(&config).unwrap();
    for n in 0..CAP - 1 {
        write(&mut generator, n).unwrap();
    }
    // Heartbeats continue, so that no other process takes over; then it must promote.
    let lease = manager.ring().coordination.lease("manager").unwrap().unwrap();
    assert_eq!(lease.holder, manager.ring().me);
    let promoting = std::thread::spawn(move || turns(&mut manager));
    write(&mut generator, CAP).unwrap();
    assert_eq!(promoting.join().unwrap(), 1, "the manager waits for its own lease");
}

#[test]
fn index_removed_during_its_recreation_ends_no_process() {
    const ENOENT: i32 = 2;
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let fs = Arc::new(HookFs::default());
    let ring = Ring::find_or_make(fs.clone(), &config).unwrap();
    let times = AtomicUsize::new(0);
    // The index's directories are created, and removed again before a name is created in them.
    let gone = move |op: &str, path: &Path| {
        op == "link"
            && path.ancestors().any(|above| above.ends_with("index"))
            && times.fetch_add(1, Ordering::SeqCst) < 4
    };
    fs.hook(move |_, op, path| if gone(op, path) { Action::Refuse(ENOENT) } else { Action::Pass });
    assert!(ring.coordination.claim_lease("somebody", 1, "me").unwrap());
}

#[test]
fn unnamed_segments_get_their_name_before_the_next_sample() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "SEGMENT_SAMPLES: 3");
    let fs = Arc::new(HookFs::default());
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    assert!(write(&mut generator, 0).unwrap().is_empty() && write(&mut generator, 1).unwrap().is_empty());
    let named = |path: &Path| path.extension().is_some_and(|end| end == "rec");
    fs.hook(move |_, op, path| if op == "rename" && named(path) { Action::Refuse(EIO) } else { Action::Pass });
    let tried = AtomicBool::new(false);
    let (data, meta) = (2u64.to_le_bytes(), ringreel::format::Meta::new());
    let parts = [ringreel::NamedPart::new("data", ringreel::format::DType::U64, &[1], &data)];
    let stopped = generator.write(&parts, &meta, &|| tried.swap(true, Ordering::SeqCst));
    assert!(matches!(stopped, Err(ringreel::Error::Interrupted { .. })), "{stopped:?}");
    fs.unhook();
    // The three samples were complete on the disk; the fourth begins a new segment.
    let mut finished = write(&mut generator, 3).unwrap();
    assert_eq!(finished.len(), 3);
    finished.extend(generator.seal(&never).unwrap());
    generator.finish(true, &never).unwrap();
    assert_eq!(finished.len(), 4);
    assert_delivered_once(&config.ring, &finished, "a late name");
}

#[test]
fn generations_do_not_wait_for_numbers_of_dead_generators() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let dead = another(&config);
    a_manager_seems_to_live(&config);
    for _ in 0..3 {
        dead.coordination.next_index(1).unwrap().unwrap();
    }
    let mut generator = Generator::open(&config).unwrap();
    let finished: Vec<_> = (0..CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    assert!(generator.ring().promote(PromoteWhen::Full).unwrap().done().is_some());
    assert_delivered_once(&config.ring, &finished, "gaps between the indices");
}

#[test]
fn generations_closed_by_a_dead_process_still_fill() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    another(&config).coordination.close_generation(1).unwrap();
    let mut generator = Generator::open(&config).unwrap();
    let mut finished: Vec<_> = (0..SAMPLES).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    finished.extend(generator.flush(&never).unwrap());
    assert!(generator.ring().manifests.newest().unwrap() >= 2);
    generator.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &finished, "closed by a dead process");
}

#[test]
fn large_segment_of_a_dead_generator_is_adopted() {
    let dir = scratch();
    let small = config(dir.path(), CAP, "");
    let large = config(dir.path(), CAP, "SEGMENT_SAMPLES: 3");
    let fs = Arc::new(HookFs::default());
    let mut dying = Generator::open_on(fs.clone(), &large).unwrap();
    fs.hook(|_, op, path| {
        let commit = op == "link" && path.extension().is_some_and(|end| end == "rec");
        if commit { Action::Refuse(EACCES) } else { Action::Pass }
    });
    let mut finished: Vec<_> = (0..3).flat_map(|n| write(&mut dying, n).unwrap()).collect();
    drop(dying);
    let mut generator = Generator::open(&small).unwrap();
    finished.extend((3..5).flat_map(|n| write(&mut generator, n).unwrap()));
    let (ring, mut watch) = (another(&small), FailureDetector::new(Duration::ZERO));
    let first = ring.recover(&mut watch).unwrap().adopted;
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(first + ring.recover(&mut watch).unwrap().adopted, 1);
    generator.finish(true, &never).unwrap();
    bring_in(&ring);
    assert_delivered_once(&small.ring, &finished, "a large segment among small ones");
}

#[test]
fn heartbeats_continue_on_a_full_disk() {
    const ENOSPC: i32 = 28;
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let fs = Arc::new(HookFs::default());
    let ring = Ring::find_or_make(fs.clone(), &config).unwrap();
    ring.coordination.beat("me", 1, &Default::default()).unwrap();
    fs.hook(|_, op, _| if op == "create" { Action::Refuse(ENOSPC) } else { Action::Pass });
    ring.coordination.beat("me", 2, &Default::default()).unwrap();
    assert_eq!(another(&config).coordination.members().unwrap(), [("me".to_owned(), 2)]);
    fs.unhook();
    ring.coordination.beat("me", 3, &Default::default()).unwrap();
    assert_eq!(another(&config).coordination.members().unwrap(), [("me".to_owned(), 3)]);
}

#[test]
fn half_done_promotions_are_finished_by_the_next_process() {
    let dir = scratch();
    let fs = Arc::new(HookFs::default());
    let mut at = 0;
    loop {
        let config = config(&dir.path().join(at.to_string()), CAP, "");
        std::fs::create_dir(dir.path().join(at.to_string())).unwrap();
        a_manager_seems_to_live(&config);
        let mut generator = Generator::open(&config).unwrap();
        let finished: Vec<_> = (0..CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
        let dying = Ring::find_or_make(fs.clone(), &config).unwrap();
        fs.hook(move |n, _, _| if n < at { Action::Pass } else { Action::Refuse(EACCES) });
        let done = dying.promote(PromoteWhen::Full);
        fs.unhook();
        let published = config.ring.join("manifests/1").exists();
        let again = another(&config).promote(PromoteWhen::Full).unwrap().done();
        assert_eq!(again.is_some(), !published, "promotion left at call {at}");
        assert_delivered_once(&config.ring, &finished, &format!("promotion left at call {at}"));
        if done.is_ok_and(|promoted| promoted.done().is_some()) {
            break;
        }
        at += 1;
    }
    assert!(at > 20, "a promotion makes more calls than {at}");
}

#[test]
fn ring_creation_survives_a_crash_at_any_call() {
    for happened in [false, true] {
        for at in 0.. {
            let dir = scratch();
            let fs = Arc::new(HookFs::default());
            let config = config(dir.path(), CAP, "");
            dies_at(&fs, at, happened);
            let born = Ring::find_or_make(fs.clone(), &config).is_ok();
            let ring = another(&config);
            assert_eq!(ring.manifests.newest().unwrap(), 0, "crash at call {at}");
            assert!(config.ring.join("write.1").exists(), "crash at call {at}");
            if born {
                break;
            }
        }
    }
}

#[test]
fn full_generation_is_readable_at_once_without_a_manager() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let mut generator = Generator::open(&config).unwrap();
    let finished: Vec<_> = (0..CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    assert_delivered_once(&config.ring, &finished, "filled without a later sample");
}

#[test]
fn segment_that_was_linked_again_is_listed_once() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "KEEP: 100");
    let mut generator = Generator::open(&config).unwrap();
    let ring = generator.ring().clone();
    let mut finished = write(&mut generator, 0).unwrap();
    ring.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
    finished.extend(write(&mut generator, 1).unwrap());
    // Into generation 2: segments of generation 1 once more, and its own segments twice more.
    let listed_before = ring.layout.read(1).join(segment_name(0, 1));
    let there = ring.layout.write(2).join(ring.fs.list(&ring.layout.write(2)).unwrap().remove(0));
    std::fs::hard_link(listed_before, ring.layout.write(2).join(segment_name(97, 1))).unwrap();
    std::fs::hard_link(&there, ring.layout.write(2).join(segment_name(98, 1))).unwrap();
    std::fs::hard_link(&there, ring.layout.write(2).join(segment_name(99, 1))).unwrap();
    assert_eq!(ring.count_samples(2).unwrap(), 1, "only segments that would be listed count");
    ring.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
    assert_delivered_once(&config.ring, &finished, "repeated links");
    assert_eq!(ring.fs.list(&ring.layout.read(2)).unwrap().len(), 1, "the other links are removed");
}

#[test]
fn invisible_manifests_do_not_count_as_empty() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "KEEP: 100");
    let mut generator = Generator::open(&config).unwrap();
    let finished: Vec<_> = (0..CAP * 2).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let ring = generator.ring().clone();
    let fresh = another(&config);
    std::fs::rename(ring.layout.manifest(1), ring.layout.root().join("hidden")).unwrap();
    let newest = fresh.manifests.newest().unwrap();
    let hidden = fresh.manifests.find(finished[0].segment, 1, newest);
    assert!(hidden.as_ref().is_err_and(ringreel::Error::is_retryable), "{hidden:?}");
    std::fs::rename(ring.layout.root().join("hidden"), ring.layout.manifest(1)).unwrap();
    assert_eq!(fresh.manifests.find(finished[0].segment, 1, newest).unwrap(), Lookup::Listed(1));
}

#[test]
fn only_litter_of_late_calls_is_removed() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let mut generator = Generator::open(&config).unwrap();
    let finished: Vec<_> = (0..CAP * 3 + 1).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let ring = generator.ring().clone();
    let newest = ring.manifests.newest().unwrap();
    // A directory from an apparent future may be newer than a stale view of the manifests, so it stays.
    let future = ring.layout.read(newest + 5);
    for litter in [ring.layout.write(1), ring.layout.write(newest), ring.layout.read(0), future.clone()] {
        std::fs::create_dir(&litter).unwrap();
        std::fs::write(litter.join(segment_name(3, 1)), "late").unwrap();
    }
    std::fs::create_dir(dir.path().join("t.ring/mine")).unwrap();
    ring.reclaim().unwrap();
    assert!(future.exists());
    std::fs::remove_dir_all(future).unwrap();
    let mut left: Vec<_> = ring.fs.list(ring.layout.root()).unwrap();
    left.retain(|name| name.contains('.') || name == "mine");
    left.sort();
    let want = ["mine".to_owned(), format!("read.{}", newest - 1), format!("read.{newest}"), "ring.json".to_owned()];
    let write = format!("write.{}", newest + 1);
    assert_eq!(left, [&want[..], &[write]].concat());
    assert!(ring.fs.list(&ring.layout.trash()).unwrap().is_empty());
    generator.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &finished, "litter");
}

/// A generator that was stopped for long finds its unfinished file removed, and writes its current sample to a new one.
#[test]
fn generator_continues_after_its_unfinished_file_is_removed() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "SEGMENT_SAMPLES: 2");
    let mut generator = Generator::open(&config).unwrap();
    assert!(write(&mut generator, 0).unwrap().is_empty());
    let staging = generator.ring().layout.staging_of(&generator.ring().me);
    std::fs::remove_dir_all(staging).unwrap();
    assert!(write(&mut generator, 1).unwrap().is_empty(), "the sample is in a new file");
    let finished = write(&mut generator, 2).unwrap();
    assert_eq!(finished.len(), 2);
    generator.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &finished, "swept");
}

#[test]
fn truncated_manager_lease_is_taken_over() {
    let dir = scratch();
    // A lease on a server is never partially written.
    let index = IndexPlace::Files;
    let config = Config { lease: Duration::from_millis(50), index, ..config(dir.path(), CAP, "") };
    let ring = another(&config);
    assert!(ring.coordination.claim_lease("manager", 1, "somebody-1-abc").unwrap());
    std::fs::write(config.ring.join("index/leases/manager.1"), "").unwrap();
    let mut manager = Manager::open(&config).unwrap();
    let taken = (0..400).any(|_| {
        manager.turn().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        ring.coordination.lease("manager").unwrap().is_some_and(|lease| lease.holder == manager.ring().me)
    });
    assert!(taken);
}
