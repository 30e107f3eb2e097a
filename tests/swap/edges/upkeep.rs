//! Reclaim, recovery, pruning and their counts, and what an index is restored from.

use super::{generations, keeping, promote_only, write_manifests};
use ringreel::config::Config;
use ringreel::coordination::{CoordinationStore, Counter, Leases, Report, SwapStatus};
use ringreel::layout::segment_name;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::adopt::Recovered;
use ringreel::swap::promote::PromoteWhen;
use ringreel::swap::reclaim::Reclaimed;
use ringreel_ops::promote_partial::promote_partial;
use ringreel_ops::repair::{Liveness, Repair};
use ringreel_ops::{gc, repair};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::memory_store::MemoryStore;
use testkit::ring::{
    Action, EACCES, EIO, ESTALE, another, assert_delivered_once, config, hooked, linked, listed, scratch, staged,
};

const EBUSY: i32 = 16;
const ENOTEMPTY: i32 = 39;

#[test]
fn reclaim_counts_removals_and_keeps_the_rest() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 3");
    generations(&config, 4);
    let ring = keeping(another(&config), 1);
    fs::create_dir(ring.layout.write(3)).unwrap();
    fs::write(ring.layout.trash().join("stray"), "x").unwrap();
    fs::create_dir_all(ring.layout.trash().join("taken/apart")).unwrap();
    let garbage = gc::garbage(&ring).unwrap();
    let brief = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let names: Vec<_> = garbage.iter().map(|found| (brief(&found.path), found.files, found.stays.is_some())).collect();
    let name = |name: &str, files| (name.to_owned(), files, false);
    let mut first = names[..3].to_vec();
    first.sort();
    assert_eq!(first, [name("read.1", 2), name("read.2", 2), name("write.3", 0)]);
    assert_eq!(names[3..], [name("stray", 0), name("taken", 1)]);
    let bytes = |n: u64| ring.manifests.get(n).unwrap().unwrap().summary.bytes;
    let found = garbage.iter().find(|found| found.path.ends_with("read.1")).unwrap();
    assert!(found.bytes == bytes(1) && found.why == gc::Unneeded::BeyondKeep(1), "{found:?}");

    assert_eq!(ring.reclaim().unwrap(), Reclaimed { generations: 2, samples: 4, more: true });
    // A foreign directory in the trash stays, and the next call examines it again.
    assert_eq!(ring.reclaim().unwrap(), Reclaimed { more: true, ..Reclaimed::default() });
    let there = |dir: PathBuf| dir.exists();
    assert_eq!([1, 2, 3, 4].map(|n| there(ring.layout.read(n))), [false, false, true, true]);
    assert_eq!([3, 4, 5].map(|n| there(ring.layout.write(n))), [false, false, true]);
    assert!(ring.layout.trash().join("taken/apart").exists() && ring.layout.manifest(1).exists());
    assert_eq!(fs::read_dir(ring.layout.trash()).unwrap().count(), 1);
}

#[test]
fn unremovable_files_are_left_for_the_next_pass() {
    // The failing call, its errno, whether it is an error, and whether the generation has left its place.
    for (op, errno, is_error, moved) in [
        ("rename", EACCES, false, false),
        ("rename", EIO, true, false),
        ("rename", ESTALE, false, false),
        ("remove_file", EBUSY, false, true),
        ("remove_file", EACCES, false, true),
        ("remove_file", ESTALE, false, true),
        ("remove_file", EIO, true, true),
        ("remove_dir", ENOTEMPTY, false, true),
        ("remove_dir", EBUSY, false, true),
        ("remove_dir", EACCES, false, true),
        ("remove_dir", EIO, true, true),
    ] {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 3");
        let ids = generations(&config, 3);
        let (ring, hooks) = hooked(&config);
        let ring = keeping(ring, 1);
        hooks.hook(move |_, called, path| {
            let hit = called == op && path.to_string_lossy().contains("trash/read.1");
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        let done = ring.reclaim();
        assert_eq!(done.is_err(), is_error, "{op} {errno}: {done:?}");
        assert_eq!(ring.layout.read(1).exists(), !moved, "{op} {errno}");
        hooks.unhook();
        ring.reclaim().unwrap();
        assert!(!ring.layout.read(1).exists() && fs::read_dir(ring.layout.trash()).unwrap().next().is_none());
        assert_delivered_once(&config.ring, &ids, op);
    }
}

#[test]
fn unlistable_generations_are_not_reclaimed() {
    for op in ["identity", "list", "open"] {
        for errno in [EIO, ESTALE] {
            let dir = scratch();
            let config = config(dir.path(), 2, "KEEP: 3");
            generations(&config, 3);
            let (ring, hooks) = hooked(&config);
            let ring = keeping(ring, 1);
            // The segment would have its last name here if another process had removed the other one.
            let last = ring.layout.read(1).join(segment_name(50, 1));
            fs::rename(staged(&config, 7).1, &last).unwrap();
            let of = if op == "open" { last.clone() } else { ring.layout.read(1) };
            hooks.hook(
                move |_, called, path| {
                    if called == op && path == of { Action::Refuse(errno) } else { Action::Pass }
                },
            );
            ring.reclaim().unwrap();
            assert!(last.exists(), "{op} {errno}");
            hooks.unhook();
            ring.reclaim().unwrap();
            assert!(last.exists());
        }
    }
}

/// The second name was made by hand, and does not give the number of samples in the segment.
#[test]
fn last_name_of_an_undelivered_segment_keeps_its_generation() {
    for samples in [1, 3] {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 3");
        generations(&config, 3);
        let ring = keeping(another(&config), 1);
        let last = ring.layout.read(1).join(segment_name(50, samples));
        fs::rename(staged(&config, 7).1, &last).unwrap();
        ring.reclaim().unwrap();
        assert!(last.exists(), "named as one of {samples}");
    }
}

#[test]
fn removed_trash_and_quarantine_are_recreated() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 3");
    generations(&config, 3);
    let (_, damaged) = staged(&config, 7);
    fs::write(&damaged, "damaged").unwrap();
    let ring = keeping(another(&config), 1);
    let dirs = [ring.layout.trash(), ring.layout.quarantine()];
    dirs.iter().for_each(|dir| fs::remove_dir(dir).unwrap());
    assert_eq!(keeping(another(&config), 3).reclaim().unwrap(), Reclaimed::default(), "the directory is not needed");
    assert_eq!(ring.reclaim().unwrap(), Reclaimed { generations: 1, samples: 2, more: true });
    assert!(!ring.layout.read(1).exists() && dirs[0].exists());
    assert_eq!(ringreel_ops::status::status(&ring).unwrap().quarantined, 0);
    let nobody = Liveness::Living(BTreeSet::new());
    repair::apply_repair(&ring, &repair::plan_repair(&ring, &nobody).unwrap(), &nobody).unwrap();
    assert!(!damaged.exists() && fs::read_dir(&dirs[1]).unwrap().count() == 2, "the segment and the reason");
}

#[test]
fn recovery_counts_its_actions() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(10), ..config(dir.path(), 2, "") };
    let (delivered, file) = linked(&config, 0);
    linked(&config, 1);
    let kept = dir.path().join("kept");
    fs::hard_link(&file, &kept).unwrap();
    promote_only(&another(&config));
    fs::hard_link(&kept, &file)
        .or_else(|_| fs::create_dir_all(file.parent().unwrap()).and_then(|()| fs::hard_link(&kept, &file)))
        .unwrap();
    let adopted = staged(&config, 5).0;
    let (damaged, broken) = staged(&config, 6);
    let mut bytes = fs::read(&broken).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&broken, bytes).unwrap();
    fs::write(broken.with_extension("part"), "begun").unwrap();

    let ring = another(&config);
    let mut watch = FailureDetector::new(Duration::ZERO);
    ring.recover(&mut watch).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut all = Recovered::default();
    for _ in 0..2 {
        let done = ring.recover(&mut watch).unwrap();
        all.adopted += done.adopted;
        all.delivered += done.delivered;
        all.quarantined += done.quarantined;
        all.litter += done.litter;
    }
    assert_eq!((all.delivered, all.quarantined, all.litter), (1, 0, 1), "{all:?}");
    assert!(all.adopted >= 1 && !file.exists(), "{all:?}");
    ring.promote(PromoteWhen::NotEmpty).unwrap();
    let listed = listed(&config.ring);
    assert!(listed[&delivered] == [1] && listed[&adopted] == [2] && !broken.with_extension("part").exists());
    let _ = damaged;
}

#[test]
fn unfinished_files_are_removed_for_long_dead_owners_only() {
    type Round = fn(&Ring);
    let rounds: [Round; 2] =
        [|ring| gc::gc(ring).unwrap(), |ring| assert!(ring.recover(&mut ring.failure_detector()).is_ok())];
    for round in rounds {
        let dir = scratch();
        let config = Config { lease: Duration::from_millis(10), ..config(dir.path(), 8, "") };
        let ring = another(&config);
        let begun = |owner: &str| ring.layout.staging_of(owner).join("x.part");
        for owner in [ring.me.as_str(), "dead-1-a"] {
            fs::create_dir_all(ring.layout.staging_of(owner)).unwrap();
            fs::write(begun(owner), "begun").unwrap();
        }
        assert!(gc::has_begun_files(&ring).unwrap());
        let mut after = 0;
        for _ in 0..1000 {
            round(&ring);
            after += usize::from(!ring.layout.staging_of("dead-1-a").exists());
            if after > 5 {
                break;
            }
            std::thread::sleep(Duration::from_millis(4));
        }
        assert!(begun(&ring.me).exists() && !ring.layout.staging_of("dead-1-a").exists());
        assert!(!gc::has_begun_files(&ring).unwrap() && gc::garbage_of_the_dead(&ring).unwrap().is_empty());
    }
}

#[test]
fn foreign_files_in_staging_do_not_block_recovery() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(10), ..config(dir.path(), 8, "") };
    let ring = another(&config);
    fs::write(ring.layout.staging().join("file-1-a"), "x").unwrap();
    fs::create_dir(ring.layout.staging().join(".hidden")).unwrap();
    let (id, _) = staged(&config, 20);
    let mut watch = FailureDetector::new(Duration::ZERO);
    for _ in 0..2 {
        ring.recover(&mut watch).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    ring.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
    assert!(listed(&config.ring).contains_key(&id) && ring.layout.staging().join(".hidden").exists());
}

#[test]
fn old_manifests_are_pruned_a_bounded_number_in_each_pass() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = keeping(another(&config), 5000);
    let left = || {
        let mut numbers = ring.manifests.numbers().unwrap();
        numbers.sort();
        numbers
    };
    for newest in [2040, 2111] {
        write_manifests(&ring.layout, newest);
        ring.reclaim().unwrap();
        assert_eq!(left(), (0..=newest).collect::<Vec<_>>());
    }
    write_manifests(&ring.layout, 2112);
    fs::create_dir(ring.layout.read(7)).unwrap(); // the generation exists
    ring.reclaim().unwrap();
    assert_eq!(left(), [7].into_iter().chain(257..=2112).collect::<Vec<_>>());
}

#[test]
fn ring_size_counts_manifests_and_the_filling_generation() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 1");
    generations(&config, 3);
    let ring = another(&config);
    let bytes = |n: u64| ring.manifests.get(n).unwrap().unwrap().summary.bytes;
    let len = |path: PathBuf| fs::metadata(path).unwrap().len();
    // Generation 1 is older than KEEP, and still exists.
    let all = bytes(1) + bytes(2) + bytes(3);
    assert_eq!(ring.usage().unwrap(), (all, 6));
    linked(&config, 7);
    fs::write(ring.layout.write(4).join(segment_name(8, 1)), "damaged").unwrap();
    fs::create_dir(ring.layout.read(77)).unwrap(); // a foreign directory
    let filling = len(ring.layout.write(4).join(segment_name(7, 1)));
    assert_eq!(ring.usage().unwrap(), (all + filling, 8));
    fs::remove_dir_all(ring.layout.write(4)).unwrap();
    assert_eq!(ring.usage().unwrap(), (all, 6));
    fs::remove_dir_all(ring.layout.read(1)).unwrap();
    assert_eq!(ring.usage().unwrap(), (all - bytes(1), 4));
}

#[test]
fn empty_index_of_a_used_ring_is_detected() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let ring = another(&config);
    assert!(!repair::coordination::coordination_is_elsewhere(&ring).unwrap(), "no process has worked yet");
    linked(&config, 0);
    assert!(!repair::coordination::coordination_is_elsewhere(&ring).unwrap(), "a number was handed out");
    ring.coordination.clear().unwrap();
    assert!(repair::coordination::coordination_is_elsewhere(&ring).unwrap());
    ring.coordination.beat("somebody-1-a", 1, &Report::default()).unwrap();
    assert!(!repair::coordination::coordination_is_elsewhere(&ring).unwrap());
}

#[test]
fn index_is_restored_from_the_directory_once() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 3");
    generations(&config, 2);
    linked(&config, 5);
    let ring = another(&config);
    let repair = |index: &MemoryStore, apply, nobody_works| {
        repair::coordination::repair_coordination(&ring, index, apply, nobody_works).unwrap()
    };
    let counter = Repair::Counter { generation: 3, handed_out: 0, free: 6 };
    let empty = MemoryStore::default();
    for apply in [false, false, true] {
        assert_eq!(repair(&empty, apply, true), [Repair::Status { says: None, newest: 2 }, counter.clone()]);
    }
    assert_eq!(repair(&empty, false, true), []);
    let status = empty.status().unwrap().unwrap();
    assert_eq!((status.generation, status.total_samples, empty.handed_out(3).unwrap()), (2, 4, 6));

    let says = |generation| {
        let index = MemoryStore::default();
        index.publish_status(&SwapStatus { generation, unix_ms: 0, total_samples: 0 }).unwrap();
        index.skip_to(3, 6).unwrap();
        index
    };
    let old = says(1);
    assert_eq!(repair(&old, true, false), [Repair::Status { says: Some(1), newest: 2 }]);
    assert_eq!(old.status().unwrap().unwrap().generation, 2);
    // An index that knows more is discarded only while no process works.
    let newer = says(9);
    assert_eq!(repair(&newer, true, false), [Repair::Future { says: 9, newest: 2 }]);
    assert_eq!(newer.status().unwrap().unwrap().generation, 9);
    assert_eq!(repair(&newer, true, true)[0], Repair::Future { says: 9, newest: 2 });
    assert_eq!((newer.status().unwrap().unwrap().generation, newer.handed_out(3).unwrap()), (2, 6));

    // The next manager's token exceeds the last one's, wherever the index is then.
    assert!(ring.coordination.claim_lease("manager", 7, "somebody-1-a").unwrap());
    let moved = MemoryStore::default();
    repair::coordination::move_coordination(&ring, &moved).unwrap();
    let lease = moved.lease("manager").unwrap().unwrap();
    assert_eq!((lease.token, lease.released, ring.coordination.handed_out(3).unwrap()), (7, true, 0));
}

#[test]
fn dead_owners_are_known_only_after_all_were_watched() {
    let living = |names: &[&str]| Liveness::Living(names.iter().map(|name| (*name).to_owned()).collect());
    for (life, in_the_way, dead) in [
        (Liveness::Unknown, true, true),
        (Liveness::Unheard, true, false),
        (living(&[]), false, true),
        (living(&["a"]), true, false),
        (living(&["b"]), true, true),
    ] {
        assert_eq!((life.is_in_the_way().is_some(), life.may_be_dead("a")), (in_the_way, dead), "{life:?}");
    }
}

#[test]
fn generations_with_held_out_samples_are_kept() {
    for (count, kept, held_out) in
        [(1, 2, vec![(1, 0..2)]), (2, 3, vec![(1, 0..2), (2, 0..1)]), (4, 3, vec![(1, 0..2), (2, 0..1)])]
    {
        let dir = scratch();
        let config = config(dir.path(), 2, "VALIDATION: 3\nKEEP: 0");
        generations(&config, count);
        let ring = another(&config);
        assert_eq!(ring.kept_for_ever().unwrap(), (0..kept).collect::<Vec<_>>());
        let samples = ring.held_out_samples().unwrap();
        let samples: Vec<_> =
            samples.into_iter().map(|(manifest, range)| (manifest.summary.generation, range)).collect();
        assert_eq!(samples, held_out, "{count}");
        ring.reclaim().unwrap();
        let there: Vec<_> = (1..=count).filter(|n| ring.layout.read(*n).exists()).collect();
        assert_eq!(there, (1..=count).filter(|n| *n < kept || *n == count).collect::<Vec<_>>());
    }
}

#[test]
fn half_promotion_and_later_samples_are_promoted_together() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let ways = [0, 1].map(|n| staged(&config, n));
    let ring = another(&config);
    let sealed = || {
        let sealed = promote_partial(&ring).unwrap();
        assert!(!sealed.by_another && sealed.held.is_none());
        sealed.promotions.iter().map(|promotion| promotion.manifest.summary.generation).collect::<Vec<_>>()
    };
    assert_eq!(sealed(), [0; 0]);
    fs::hard_link(&ways[0].1, ring.layout.write(1).join(segment_name(0, 1))).unwrap();
    fs::rename(ring.layout.write(1), ring.layout.read(1)).unwrap();
    fs::create_dir(ring.layout.write(2)).unwrap();
    fs::hard_link(&ways[1].1, ring.layout.write(2).join(segment_name(0, 1))).unwrap();
    assert_eq!(sealed(), [1, 2]);
    assert_eq!(sealed(), [0; 0]);
    assert_delivered_once(&config.ring, &ways.map(|(id, _)| id), "sealed");
}
