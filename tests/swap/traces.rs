//! Counter-examples that the model finds when a rule is omitted (`docs/internals/model.md`), replayed on the
//! implementation: because the rule is kept, every finished sample is listed once.

use ringreel::layout::segment_name;
use ringreel::manifest::Manifest;
use ringreel::manifest::store::MANIFESTS_KEPT;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::promote::{PromoteWhen, Promoted};
use ringreel::{Config, Generator, SampleId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::ring::{
    self, Action, EACCES, EIO, HookFs, a_manager_seems_to_live, another, assert_delivered_once, bring_in, config,
    hooked, linked, listed, never, scratch, staged, write,
};
use testkit::wait::eventually;

const CAP: u64 = 4;

/// Samples of one generation, numbered from 10.
fn full(config: &Config) -> Vec<(SampleId, PathBuf)> {
    (10..10 + CAP).map(|index| linked(config, index)).collect()
}

fn ids(samples: &[(SampleId, PathBuf)]) -> Vec<SampleId> {
    samples.iter().map(|(id, _)| *id).collect()
}

/// Checks that all segments of kept generations exist, and that every sample is delivered once in the end.
fn all_is_well(config: &Config, samples: &[SampleId], what: &str) {
    let ring = another(config);
    let newest = ring.manifests.newest().unwrap();
    for n in newest.saturating_sub(config.keep)..=newest {
        for entry in &ring.manifests.get(n).unwrap().unwrap().segments {
            assert!(ring.layout.read(n).join(entry.file()).exists(), "{what}: {} of generation {n}", entry.file());
        }
    }
    bring_in(&ring);
    assert_delivered_once(&config.ring, samples, what);
}

#[test]
fn second_publisher_uses_the_first_ones_manifest() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let late = staged(&config, 99);
    let mut samples = full(&config);
    samples.push(late.clone());
    let (slow, hooks) = hooked(&config);
    let (other, first) = (another(&config), Arc::new(Mutex::new(Vec::new())));
    let seen = first.clone();
    hooks.hook(move |_, op, path| {
        // A late link makes the two lists differ; and the other process is faster.
        if op == "link" && path.ends_with("manifests/1") {
            fs::hard_link(&late.1, other.layout.read(1).join(segment_name(0, 1))).unwrap();
            assert!(other.promote(PromoteWhen::Full).unwrap().done().unwrap().ours);
            *seen.lock().unwrap() = fs::read(other.layout.manifest(1)).unwrap();
        }
        Action::Pass
    });
    assert!(!slow.promote(PromoteWhen::Full).unwrap().done().unwrap().ours);
    assert_eq!(fs::read(slow.layout.manifest(1)).unwrap(), *first.lock().unwrap(), "a manifest was changed");
    assert!(samples[3].1.exists(), "the segment that only the slower process lists stays staged");
    all_is_well(&config, &ids(&samples), "two promoters");
}

#[test]
fn promoters_that_die_early_remove_no_staging_name() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let late = staged(&config, 99);
    let mut samples = full(&config);
    let (dying, hooks) = hooked(&config);
    hooks.hook(|_, op, path| {
        let dead = op == "link" && path.ends_with("manifests/1");
        if dead { Action::Refuse(EACCES) } else { Action::Pass }
    });
    dying.promote(PromoteWhen::Full).unwrap_err();
    // The next process makes another list, which omits a segment that the dead process had chosen.
    fs::hard_link(&late.1, dying.layout.read(1).join(segment_name(0, 1))).unwrap();
    samples.push(late);
    another(&config).promote(PromoteWhen::Full).unwrap().done().unwrap();
    assert!(!listed(&config.ring).contains_key(&samples[3].0));
    all_is_well(&config, &ids(&samples), "a promoter that died");
}

#[test]
fn rename_delayed_by_generations_redelivers_nothing() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let samples = Arc::new(Mutex::new(full(&config)));
    let (slow, hooks) = hooked(&config);
    let (of_others, found) = (config.clone(), samples.clone());
    hooks.hook(move |_, op, path| {
        if op == "rename" && path.ends_with("read.1") {
            let other = another(&of_others);
            for _ in 1..=3 {
                other.promote(PromoteWhen::Full).unwrap().done().unwrap();
                other.reclaim().unwrap();
                found.lock().unwrap().extend(full(&of_others));
            }
            assert!(!other.layout.read(1).exists());
            // A stale view recreated write.1, and linked delivered and undelivered segments there.
            fs::create_dir(other.layout.write(1)).unwrap();
            let delivered = fs::read_dir(other.layout.read(3)).unwrap().next().unwrap().unwrap().path();
            fs::hard_link(delivered, other.layout.write(1).join(segment_name(0, 1))).unwrap();
            let waiting = &found.lock().unwrap().last().unwrap().1.clone();
            fs::hard_link(waiting, other.layout.write(1).join(segment_name(1, 1))).unwrap();
        }
        Action::Pass
    });
    slow.promote(PromoteWhen::Full).unwrap();
    assert_eq!(slow.manifests.newest_listed().unwrap(), 3);
    let samples = samples.lock().unwrap();
    all_is_well(&config, &ids(&samples), "a late rename");
    assert!(!slow.layout.read(1).exists(), "the late directory is reclaimed");
}

#[test]
fn damage_in_a_stale_view_is_left_alone() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let samples = full(&config);
    let early = dir.path().join("early");
    fs::write(&early, "an incomplete file").unwrap();
    let (ring, hooks) = hooked(&config);
    hooks.hook(move |_, op, path| {
        let stale = op == "open" && path.ends_with(segment_name(11, 1));
        if stale { Action::Elsewhere(early.clone()) } else { Action::Pass }
    });
    let promotion = ring.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
    assert_eq!(promotion.manifest.segments.len(), 3);
    assert!(samples[1].1.exists() && ring.layout.read(1).join(segment_name(11, 1)).exists());
    all_is_well(&config, &ids(&samples), "damage in a stale view");
}

#[test]
fn stale_views_of_manifests_reclaim_nothing_new() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "");
    let mut samples = Vec::new();
    let (behind, hooks) = hooked(&config);
    let old = dir.path().join("old");
    fs::create_dir(&old).unwrap();
    fs::copy(behind.layout.manifest(0), old.join("0")).unwrap();
    let manifests = behind.layout.manifests();
    hooks.hook(move |_, _, path| match path.strip_prefix(&manifests) {
        Ok(name) => Action::Elsewhere(old.join(name)),
        Err(_) => Action::Pass,
    });
    let other = another(&config);
    for _ in 1..=4 {
        samples.extend(full(&config));
        let (rival, at_publishing) = hooked(&config);
        let promotion = std::thread::scope(|scope| {
            let behind = &behind;
            let (go, turn) = std::sync::mpsc::channel::<()>();
            let (done, is_done) = std::sync::mpsc::channel::<()>();
            let (turn, is_done) = (Mutex::new(turn), Mutex::new(is_done));
            scope.spawn(move || {
                while turn.lock().unwrap().recv().is_ok() {
                    behind.reclaim().unwrap();
                    done.send(()).unwrap();
                }
            });
            at_publishing.hook(move |_, op, path| {
                if op == "link" && path.to_string_lossy().contains("manifests") {
                    go.send(()).unwrap();
                    is_done.lock().unwrap().recv().unwrap();
                }
                Action::Pass
            });
            let promotion = rival.promote(PromoteWhen::Full).unwrap().done().unwrap();
            at_publishing.unhook();
            promotion
        });
        assert_eq!(promotion.manifest.segments.len() as u64, CAP);
    }
    assert_eq!(behind.manifests.newest().unwrap(), 0);
    assert!(other.layout.read(4).exists() && other.layout.write(5).exists());
    all_is_well(&config, &ids(&samples), "a stale view");
}

#[test]
fn unfinished_segments_of_dead_owners_are_never_listed() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "SEGMENT_SAMPLES: 3");
    let mut generator = Generator::open(&config).unwrap();
    for n in 0..2 {
        assert!(write(&mut generator, n).unwrap().is_empty());
    }
    drop(generator);
    let (ring, mut watch) = (another(&config), FailureDetector::new(Duration::ZERO));
    for _ in 0..2 {
        assert_eq!(ring.recover(&mut watch).unwrap().adopted, 0);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(ring.promote(PromoteWhen::NotEmpty).unwrap().done().is_none());
    assert!(ring.fs.list(&ring.layout.write(1)).unwrap().is_empty() && listed(&config.ring).is_empty());
}

#[test]
fn dying_managers_do_not_grow_the_ring_beyond_its_bound() {
    let dir = scratch();
    let config = config(dir.path(), CAP, "KEEP: 1");
    let mut samples = Vec::new();
    for n in 1..=6 {
        samples.extend(full(&config));
        let (dying, hooks) = hooked(&config);
        dying.promote(PromoteWhen::Full).unwrap().done().unwrap();
        drop((dying, hooks)); // the manager died before it reclaimed
        let names = fs::read_dir(&config.ring).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        let generations = names.iter().filter(|name| name.starts_with("read.") || name.starts_with("write.")).count();
        assert!(generations as u64 <= config.keep + 3, "after promotion {n}: {names:?}");
    }
    all_is_well(&config, &ids(&samples), "managers that died");
}

/// A ring whose last promoter died after it published manifest 1, and before it had synced it.
fn published_and_not_synced(config: &Config) -> Vec<(SampleId, PathBuf)> {
    let samples = full(config);
    let (dying, hooks) = hooked(config);
    let manifests = dying.layout.manifests();
    hooks.hook(
        move |_, op, path| {
            if op == "sync_dir" && path == manifests { Action::Refuse(EACCES) } else { Action::Pass }
        },
    );
    dying.promote(PromoteWhen::Full).unwrap_err();
    assert!(dying.layout.manifest(1).exists() && samples.iter().all(|(_, file)| file.exists()));
    samples
}

#[test]
fn manifests_after_a_failed_sync_are_never_continued() {
    for failing in ["manifests", "read.1", "t.ring"] {
        let dir = scratch();
        let config = ring::config(dir.path(), CAP, "DURABILITY: node");
        let samples = full(&config);
        let (ring, hooks) = hooked(&config);
        let failed = AtomicBool::new(false);
        hooks.hook(move |_, op, path| {
            let is_it = op == "sync_dir" && path.ends_with(failing);
            if is_it && !failed.swap(true, Ordering::SeqCst) { Action::Refuse(EIO) } else { Action::Pass }
        });
        let error = ring.promote(PromoteWhen::Full).unwrap_err();
        assert!(!error.is_retryable() && error.to_string().contains("Check the kernel log"), "{failing}: {error}");
        for _ in 0..3 {
            assert!(!matches!(ring.promote(PromoteWhen::Full), Ok(Promoted::Done(_))), "{failing}");
            let _ = ring.recover(&mut FailureDetector::new(Duration::ZERO));
            let _ = ring.reclaim();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(samples.iter().all(|(_, file)| file.exists()), "{failing}: staged files are kept");
        assert_eq!(ring.layout.manifest(1).exists(), failing == "manifests", "{failing}");
        all_is_well(&config, &ids(&samples), failing); // another process, after the disk was repaired
    }
}

/// Records the calls of a ring from now on, as "op name" with the last two components of the path.
fn recorded(hooks: &HookFs) -> Arc<Mutex<Vec<String>>> {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    hooks.hook(move |_, op, path| {
        let parts: Vec<_> = path.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy()).collect();
        seen.lock().unwrap().push(format!("{op} {}/{}", parts[1], parts[0]));
        Action::Pass
    });
    calls
}

fn assert_synced_before(calls: &[String], what: impl Fn(&str) -> bool) {
    let at = calls.iter().position(|call| what(call)).unwrap();
    assert!(calls[..at].iter().any(|call| call.starts_with("sync_dir") && call.ends_with("/manifests")), "{calls:#?}");
}

#[test]
fn process_syncs_a_foreign_manifest_before_continuing_it() {
    // A process that removes the staging name of a listed segment.
    let dir = scratch();
    let config = config(dir.path(), CAP, "DURABILITY: node");
    let samples = published_and_not_synced(&config);
    let (ring, hooks) = hooked(&config);
    let calls = recorded(&hooks);
    let mut watch = FailureDetector::new(Duration::ZERO);
    for _ in 0..2 {
        ring.recover(&mut watch).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(samples.iter().all(|(_, file)| !file.exists()));
    let staged = |call: &str| call.starts_with("remove_file") && call.ends_with(".rec");
    assert_synced_before(&calls.lock().unwrap(), staged);

    // A process that publishes the next manifest.
    let dir = scratch();
    let config = ring::config(dir.path(), CAP, "DURABILITY: node");
    published_and_not_synced(&config);
    full(&config);
    let (ring, hooks) = hooked(&config);
    let calls = recorded(&hooks);
    ring.promote(PromoteWhen::Full).unwrap().done().unwrap();
    assert_synced_before(&calls.lock().unwrap(), |call| call == "link manifests/2");

    // A process that removes generations older than KEEP.
    let dir = scratch();
    let config = ring::config(dir.path(), CAP, "DURABILITY: node\nKEEP: 0");
    published_and_not_synced(&config);
    fs::create_dir(another(&config).layout.read(0)).unwrap();
    let (ring, hooks) = hooked(&config);
    let calls = recorded(&hooks);
    assert_eq!(ring.reclaim().unwrap().generations, 1);
    assert_synced_before(&calls.lock().unwrap(), |call| call.starts_with("rename trash/"));
}

/// Publishes empty manifests until generation `newest` is the newest, as if other processes had swapped the ring.
fn skip_to(ring: &Ring, newest: u64) {
    for n in ring.manifests.newest_listed().unwrap()..newest {
        let before = ring.manifests.get(n).unwrap().unwrap();
        let empty = Manifest::new(before.summary.next("others-1-0", &[], 0.0), Vec::new());
        fs::write(ring.layout.manifest(n + 1), empty.encode().unwrap()).unwrap();
        if (n + 1).is_multiple_of(8) {
            ring.reclaim().unwrap();
        }
    }
    ring.manifests.newest_listed().unwrap();
}

/// Generators sleep while more manifests are published than are kept. The manifest that listed their sample is pruned
/// when they resume: one generator has lost its staging name, another one has not, because the promoter could not
/// remove it; a third one had sealed its sample and died before it could link it.
#[test]
fn pruned_manifests_lose_or_duplicate_no_sample() {
    let dir = scratch();
    // The lease is so long that no generator's thread runs before the manifest is pruned.
    let config = Config { lease: Duration::from_secs(3600), ..config(dir.path(), CAP, "KEEP: 0") };
    let mut sleepers: Vec<Generator> = (0..2).map(|_| Generator::open(&config).unwrap()).collect();
    let delivered: Vec<_> = sleepers.iter_mut().enumerate().map(|(n, it)| write(it, n as u64).unwrap()[0]).collect();
    let (unlinked, _) = staged(&config, 9);
    (10..12).for_each(|index| drop(linked(&config, index)));
    let (promoter, hooks) = hooked(&config);
    let kept_name = sleepers[0].ring().layout.sealed(&sleepers[0].ring().me, delivered[0].segment);
    let refused = kept_name.clone();
    hooks.hook(
        move |_, op, path| {
            if op == "remove_file" && path == refused { Action::Refuse(EACCES) } else { Action::Pass }
        },
    );
    assert_eq!(promoter.promote(PromoteWhen::Full).unwrap().done().unwrap().manifest.summary.samples, CAP);
    hooks.unhook();
    assert!(kept_name.exists(), "as if the promoter had died before it removed this name");

    skip_to(&promoter, 3 * MANIFESTS_KEPT);
    assert!(!promoter.layout.manifest(1).exists() && !kept_name.exists());
    let mut finished = vec![unlinked];
    for (n, mut sleeper) in sleepers.into_iter().enumerate() {
        finished.extend(write(&mut sleeper, 20 + n as u64).unwrap());
        let summary = sleeper.finish(true, &never).unwrap();
        assert_eq!((summary.finished, summary.delivered, summary.quarantined), (2, 2, 0), "sleeper {n}");
    }
    bring_in(&promoter);
    assert_delivered_once(&config.ring, &finished, "after pruning");
    let again: Vec<_> = delivered.iter().filter(|id| listed(&config.ring).contains_key(id)).collect();
    assert!(again.is_empty(), "generation 1 delivered the samples: {again:?}");
    assert_eq!(fs::read_dir(promoter.layout.quarantine()).unwrap().count(), 0);
}

/// `ringreel repair` quarantines the segments of two owners. One sleeps until later manifests are pruned; the other one
/// checks while all of them exist.
#[test]
fn owner_learns_that_its_segment_was_quarantined() {
    for newest in [3 * MANIFESTS_KEPT, 1] {
        let dir = scratch();
        // The lease is so long that no generator's thread runs before the manifests are pruned.
        let lease = Duration::from_secs(if newest > 1 { 3600 } else { 1 });
        let config = Config { lease, ..config(dir.path(), CAP, "KEEP: 0") };
        let mut owner = Generator::open(&config).unwrap();
        let id = write(&mut owner, 0).unwrap()[0].segment;
        let ring = another(&config);
        let (layout, me) = (&ring.layout, &owner.ring().me);
        fs::rename(layout.sealed(me, id), layout.quarantine().join(format!("{me}.{id}.00000001.rec"))).unwrap();
        fs::write(layout.quarantine().join(format!("{me}.{id}.00000001.why")), "a bit flipped\n").unwrap();
        fs::remove_dir_all(layout.write(1)).unwrap();
        fs::create_dir(layout.write(1)).unwrap();
        skip_to(&ring, newest);
        let summary = owner.finish(true, &never).unwrap();
        assert_eq!((summary.delivered, summary.quarantined), (0, 1), "newest {newest}");
    }
}

/// Like [`pruned_manifests_lose_or_duplicate_no_sample`], except that the staging name is removed one pass before the
/// manifest.
#[test]
fn staging_names_are_removed_before_their_manifest() {
    let dir = scratch();
    let lease = Duration::from_secs(1); // the interval after which a failed removal is retried
    let config = Config { lease, ..config(dir.path(), 1, "KEEP: 0\nDURABILITY: node") };
    let (id, name) = linked(&config, 0);
    let (promoter, hooks) = hooked(&config);
    let refused = name.clone();
    hooks.hook(
        move |_, op, path| {
            if op == "remove_file" && path == refused { Action::Refuse(EACCES) } else { Action::Pass }
        },
    );
    promoter.promote(PromoteWhen::Full).unwrap().done().unwrap();
    skip_to(&promoter, 2 * MANIFESTS_KEPT + 64);
    assert!(name.exists() && promoter.layout.manifest(1).exists(), "an unremovable name keeps its manifest");
    let others = promoter.manifests.numbers().unwrap();
    assert!(others.iter().min() == Some(&1) && !others.contains(&2), "no other manifest is kept");

    let calls = recorded(&hooks);
    let mut newest = promoter.manifests.newest().unwrap();
    while name.exists() {
        newest += 8;
        skip_to(&promoter, newest);
    }
    assert!(promoter.layout.manifest(1).exists(), "the manifest goes in a later pass");
    skip_to(&promoter, newest + MANIFESTS_KEPT);
    assert!(!promoter.layout.manifest(1).exists());
    let calls = calls.lock().unwrap();
    let at = |what: &str| calls.iter().position(|call| call.starts_with(what)).unwrap();
    let owner = name.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let removed = at(&format!("remove_file {owner}/{}", id.segment));
    let pruned = calls.iter().position(|call| call == "remove_file manifests/1").unwrap();
    let synced = calls[removed..pruned].iter().any(|call| *call == format!("sync_dir staging/{owner}"));
    assert!(synced, "a power cut must not bring the staging name back");
}

#[test]
fn stuck_staging_name_keeps_its_manifest_alone() {
    const EBUSY: i32 = 16;
    for errno in [EACCES, EBUSY] {
        let dir = scratch();
        let config = Config { lease: Duration::from_secs(3600), ..config(dir.path(), 1, "KEEP: 0") };
        let (_, name) = linked(&config, 0);
        let (promoter, hooks) = hooked(&config);
        let tries = Arc::new(AtomicUsize::new(0));
        let refuse = |errno| {
            let (refused, tries) = (name.clone(), tries.clone());
            move |_: usize, op: &str, path: &Path| {
                let is_stuck = op == "remove_file" && path == refused;
                tries.fetch_add(usize::from(is_stuck), Ordering::SeqCst);
                if is_stuck { Action::Refuse(errno) } else { Action::Pass }
            }
        };
        hooks.hook(refuse(EACCES));
        promoter.promote(PromoteWhen::Full).unwrap().done().unwrap();
        hooks.hook(refuse(errno));
        tries.store(0, Ordering::SeqCst);
        skip_to(&promoter, 2 * MANIFESTS_KEPT + 64);
        assert!(name.exists() && promoter.layout.manifest(1).exists(), "errno {errno}");
        assert!(!promoter.layout.manifest(2).exists(), "errno {errno}: the other manifests are pruned");
        assert_eq!(tries.load(Ordering::SeqCst), 1, "errno {errno}: tries in a lease");
    }
}

/// The manager died without having reclaimed; the caller takes an hour for its next sample.
#[test]
fn finished_sample_is_linked_while_its_caller_is_busy() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let mut generator = Generator::open(&config).unwrap();
    a_manager_seems_to_live(&config);
    let ids: Vec<_> = (0..3).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let manager = another(&config);
    assert_eq!(manager.fs.list(&manager.layout.write(1)).unwrap().len(), 2, "no space for the third");
    manager.promote(PromoteWhen::Full).unwrap().done().unwrap();
    eventually("the third sample is linked", || manager.fs.list(&manager.layout.write(2)).unwrap().len() == 1);
    manager.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
    assert_delivered_once(&config.ring, &ids, "three samples");
}

#[test]
fn unpublished_manifest_is_published_while_all_callers_are_busy() {
    let dir = scratch();
    let config = Config { lease: Duration::from_secs(4), ..config(dir.path(), 3, "") };
    let mut generator = Generator::open(&config).unwrap();
    let mut ids = write(&mut generator, 0).unwrap();
    ids.extend((1..3).map(|index| linked(&config, index).0));
    let (dying, hooks) = hooked(&config);
    hooks.hook(
        |_, op, path| {
            if op == "link" && path.ends_with("manifests/1") { Action::Refuse(EACCES) } else { Action::Pass }
        },
    );
    dying.promote(PromoteWhen::Full).unwrap_err();
    eventually("manifest 1 is published", || dying.layout.manifest(1).exists());
    eventually("its sample is delivered", || generator.summary().delivered == 1);
    drop(generator);
    all_is_well(&config, &ids, "a promoter that died");
}

/// The process that promoted the generation died after it had closed the counter.
#[test]
fn sample_of_a_busy_caller_is_linked_in_a_closed_generation() {
    let dir = scratch();
    let config = Config { lease: Duration::from_secs(4), ..config(dir.path(), 3, "") };
    let ring = another(&config);
    ring.coordination.close_generation(1).unwrap();
    let mut generator = Generator::open(&config).unwrap();
    let ids = write(&mut generator, 0).unwrap();
    assert!(ring.fs.list(&ring.layout.write(1)).unwrap().is_empty(), "the counter gives no index");
    eventually("its sample is linked", || ring.fs.list(&ring.layout.write(1)).unwrap().len() == 1);
    drop(generator);
    all_is_well(&config, &ids, "a promoter that died");
}
