//! How a lost manifest is rebuilt, and which files stay unchanged.

use super::{generations, promote_only};
use ringreel::config::Config;
use ringreel::fs::Posix;
use ringreel::layout::segment_name;
use ringreel::manifest::Manifest;
use ringreel::ring::Ring;
use ringreel::segment::reader::read_tail;
use ringreel_ops::repair::facts::{Blocker, Cause, Rebuilding, Remedy};
use ringreel_ops::repair::{Liveness, RepairAction, State};
use ringreel_ops::{gc, repair};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::ring::{
    Action, EACCES, EIO, ESTALE, another, assert_delivered_once, bring_in, config, hooked, linked, listed, scratch,
    staged,
};

pub(crate) fn living(names: &[&str]) -> Liveness {
    Liveness::Living(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>())
}

/// Returns how the manifest is rebuilt.
fn rebuilding(action: &RepairAction) -> &Rebuilding {
    let Remedy::RebuildFrom(rebuilding) = &action.action else { panic!("{action:?}") };
    rebuilding
}

fn mend_of(ring: &Ring, n: u64, life: &Liveness) -> RepairAction {
    let plan = repair::plan_repair(ring, life).unwrap();
    let found: Vec<_> = plan.open().filter(|action| action.path == ring.layout.manifest(n)).cloned().collect();
    assert_eq!((found.len(), found[0].what), (1, "manifest"), "{:?}", plan.actions);
    found[0].clone()
}

fn apply(ring: &Ring, life: &Liveness) {
    repair::apply_repair(ring, &repair::plan_repair(ring, life).unwrap(), life).unwrap();
}

fn rewrite(path: &Path, this: &str, that: &str) {
    let text = fs::read_to_string(path).unwrap();
    let body = text[..text[..text.len() - 1].rfind('\n').unwrap() + 1].replacen(this, that, 1);
    let last = text[..text.len() - 1].rsplit('\n').next().unwrap().to_owned();
    let old = &last[last.find("crc32\":\"").unwrap() + 8..][..8];
    let last = last.replace(old, &format!("{:08x}", crc32fast::hash(body.as_bytes())));
    fs::write(path, format!("{body}{last}\n")).unwrap();
}

#[test]
fn lost_manifest_is_rebuilt_while_processes_live() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    let ids = generations(&config, 3);
    let was = another(&config).manifests.get(2).unwrap().unwrap();
    // It was linked too late for generation 2, and its owner will link it again.
    let (late, file) = staged(&config, 99);
    let ring = another(&config);
    fs::hard_link(&file, ring.layout.read(2).join(segment_name(50, 1))).unwrap();
    fs::remove_file(ring.layout.manifest(2)).unwrap();
    let ring = another(&config);
    let life = living(&["somebody-1-a"]);
    let action = mend_of(&ring, 2, &life);
    assert_eq!(action.state, State::ToDo);
    let found = rebuilding(&action);
    assert_eq!((found.samples, found.segments, found.listed), (2, 2, Some(2)), "{action:?}");
    assert_eq!((found.damaged, found.unclear), (0, 0), "{action:?}");
    apply(&ring, &life);
    let is = another(&config).manifests.get(2).unwrap().unwrap();
    assert_eq!(is.segments, was.segments);
    assert_eq!(
        (is.summary.total_samples, is.summary.total_bytes, is.summary.lost, is.summary.generation),
        (4, was.summary.total_bytes, 0, 2)
    );
    assert!(file.exists() && ring.fs.list(&ring.layout.quarantine()).unwrap().is_empty());
    bring_in(&another(&config));
    assert_delivered_once(&config.ring, &[&ids[..], &[late]].concat(), "one late link");
}

#[test]
fn missing_segments_of_a_lost_manifest_are_counted_as_lost() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    let ids = generations(&config, 3);
    let ring = another(&config);
    let gone = ring.manifests.get(2).unwrap().unwrap().segments[1].clone();
    fs::remove_file(ring.layout.read(2).join(gone.file())).unwrap();
    fs::remove_file(ring.layout.manifest(2)).unwrap();
    let ring = another(&config);
    // Nothing is inferred, so no process has to be stopped.
    let life = living(&["somebody-1-a"]);
    let action = mend_of(&ring, 2, &life);
    assert_eq!(action.state, State::ToDo);
    let found = rebuilding(&action);
    assert_eq!((found.is_there, found.samples, found.segments, found.listed), (true, 1, 1, Some(2)), "{action:?}");
    apply(&ring, &life);
    let manifests = another(&config).manifests;
    let (second, third) = (manifests.get(2).unwrap().unwrap(), manifests.get(3).unwrap().unwrap());
    assert_eq!((second.summary.samples, second.summary.lost, second.summary.total_samples), (1, 1, 4));
    assert_eq!(third.summary.before(), second.summary.total_samples);
    assert_eq!(listed(&config.ring).len(), ids.len() - 1);
}

#[test]
fn foreign_manifests_are_kept_and_not_continued() {
    for (this, that, why) in [
        ("\"manifest\":1", "\"manifest\":2", Blocker::OtherVersion),
        ("\"ring\":\"", "\"ring\":\"another", Blocker::RestoreManifest),
    ] {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 9");
        generations(&config, 3);
        let layout = another(&config).layout;
        rewrite(&layout.manifest(1), this, that);
        let stands = fs::read(layout.manifest(1)).unwrap();
        let ring = another(&config);
        assert_eq!(mend_of(&ring, 1, &living(&[])).state, State::Blocked(why));
        apply(&ring, &living(&[]));
        assert!(fs::read(layout.manifest(1)).unwrap() == stands && !layout.manifest(7).exists());
        if this.contains("manifest") {
            fs::remove_file(layout.manifest(2)).unwrap();
            let ring = another(&config);
            let State::Blocked(first) = mend_of(&ring, 2, &living(&[])).state else { unreachable!() };
            assert_eq!(first, Blocker::ManifestFirst { generation: 1 });
            apply(&ring, &living(&[]));
            assert!(!layout.manifest(2).exists());
        }
    }
}

#[test]
fn finished_samples_of_dead_owners_are_recovered() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    generations(&config, 2);
    let mut ids = vec![linked(&config, 0).0];
    let ring = another(&config);
    let plan = repair::plan_repair(&ring, &living(&[])).unwrap();
    assert_eq!((plan.open().count(), plan.depends_on_life), (0, false), "{:?}", plan.actions);
    let (id, file) = staged(&config, 7);
    let owner = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let of = |life: &Liveness| {
        let plan = repair::plan_repair(&ring, life).unwrap();
        let found: Vec<_> = plan.open().map(|action| (action.what, action.state.clone())).collect();
        assert!(found.iter().all(|(what, _)| *what == "staged") && plan.depends_on_life != found.is_empty());
        found.into_iter().map(|(_, state)| state == State::ToDo).collect::<Vec<_>>()
    };
    assert_eq!(
        [Liveness::Unknown, Liveness::Unheard, living(&[]), living(&[owner])].map(|life| of(&life)),
        [vec![true], vec![false], vec![true], vec![]]
    );
    ids.push(id);
    bring_in(&another(&config));
    assert_delivered_once(&config.ring, &ids, "brought in");
}

#[test]
fn damaged_segments_are_quarantined_when_the_owner_is_dead() {
    for damage in ["tail", "bytes"] {
        let dir = scratch();
        let config = config(dir.path(), 2, "");
        let (_, file) = staged(&config, 7);
        let mut bytes = fs::read(&file).unwrap();
        match damage {
            "tail" => bytes.truncate(bytes.len() - 1),
            _ => bytes[20] ^= 1, // the header; the tail is intact
        }
        fs::write(&file, bytes).unwrap();
        let ring = another(&config);
        let states = |life: &Liveness| {
            let plan = repair::plan_repair(&ring, life).unwrap();
            let damaged = plan.open().filter(|action| matches!(action.why, Cause::DamagedSegment { .. }));
            damaged.map(|action| (action.what, action.state == State::ToDo)).collect::<Vec<_>>()
        };
        assert_eq!(states(&Liveness::Unheard), [("staged", false)], "{damage}");
        let owner = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
        assert_eq!(states(&living(&[owner])), []);
        assert_eq!(states(&living(&[])), [("staged", true)], "{damage}");
        apply(&ring, &Liveness::Unheard);
        assert!(file.exists());
        apply(&ring, &living(&[]));
        assert!(!file.exists() && ring.fs.list(&ring.layout.quarantine()).unwrap().len() == 2, "{damage}");
        assert_eq!(repair::plan_repair(&ring, &living(&[])).unwrap().open().count(), 0);
    }
}

#[test]
fn last_names_are_found_in_any_generation_not_filling() {
    type Place = fn(&Ring) -> PathBuf;
    let places: [(Place, bool); 6] = [
        (|ring| ring.layout.read(1), true),
        (|ring| ring.layout.read(2), true),
        (|ring| ring.layout.write(1), true),
        (|ring| ring.layout.write(3), false),
        (|ring| ring.layout.write(4), false),
        (|ring| ring.layout.write(5), true),
    ];
    for (place, found) in places {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 9");
        let mut ids = generations(&config, 2);
        let (id, file) = staged(&config, 7);
        let ring = another(&config);
        let place = place(&ring);
        fs::create_dir_all(&place).unwrap();
        fs::rename(&file, place.join(segment_name(0, 1).replace('0', "1"))).unwrap();
        let plan = repair::plan_repair(&ring, &living(&[])).unwrap();
        let strays: Vec<_> =
            plan.open().filter(|action| action.what == "segment").map(|action| &action.state).collect();
        assert_eq!(strays, if found { vec![&State::ToDo] } else { vec![] }, "{}", place.display());
        apply(&ring, &living(&[]));
        ids.push(id);
        if !place.ends_with("write.4") {
            bring_in(&another(&config));
            assert_delivered_once(&config.ring, &ids, "a last name");
        }
    }
}

#[test]
fn late_links_of_listed_segments_are_not_last_names() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    generations(&config, 2);
    let ring = another(&config);
    let listed = &ring.manifests.get(2).unwrap().unwrap().segments[0];
    fs::hard_link(ring.layout.read(2).join(listed.file()), ring.layout.read(1).join(segment_name(50, 1))).unwrap();
    let plan = repair::plan_repair(&ring, &living(&[])).unwrap();
    assert!(listed.born == 2 && plan.open().count() == 0, "{:?}", plan.actions);
}

#[test]
fn damaged_segments_of_other_users_are_left_alone() {
    for (errno, is_told) in [(EACCES, false), (EIO, true)] {
        let dir = scratch();
        let config = config(dir.path(), 2, "");
        let (_, file) = staged(&config, 7);
        fs::write(&file, "damaged").unwrap();
        let (ring, hooks) = hooked(&config);
        let life = living(&[]);
        let plan = repair::plan_repair(&ring, &life).unwrap();
        hooks.hook(move |_, op, path| {
            let hit = op == "rename" && path.to_string_lossy().contains("quarantine");
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        assert_eq!(repair::apply_repair(&ring, &plan, &life).is_err(), is_told, "{errno}");
        assert!(file.exists());
    }
}

#[test]
fn unreadable_segments_do_not_count_as_damaged() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    generations(&config, 3);
    let layout = another(&config).layout;
    fs::write(layout.read(2).join(segment_name(40, 1)), "damaged").unwrap();
    fs::remove_file(layout.manifest(2)).unwrap();
    // A call that fails now may succeed later.
    for (errno, damaged) in [(0, Some(true)), (ESTALE, None), (EIO, None), (EACCES, None)] {
        let (ring, hooks) = hooked(&config);
        hooks.hook(move |_, op, path| {
            let hit = op == "open" && path.ends_with(segment_name(40, 1)) && errno != 0;
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        let plan = repair::plan_repair(&ring, &living(&[])).ok();
        let says = plan.map(|plan| rebuilding(plan.open().next().unwrap()).damaged == 1);
        assert_eq!(says, damaged, "{errno}");
    }
}

#[test]
fn one_of_two_lost_manifests_lists_a_segment_in_both() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    let ids = generations(&config, 4);
    let layout = another(&config).layout;
    let delivered = another(&config).manifests.get(2).unwrap().unwrap().segments[0].clone();
    fs::hard_link(layout.read(2).join(delivered.file()), layout.read(3).join(segment_name(50, 1))).unwrap();
    [2, 3].iter().for_each(|n| fs::remove_file(layout.manifest(*n)).unwrap());
    let ring = another(&config);
    assert!([2, 3].iter().all(|n| mend_of(&ring, *n, &living(&["a"])).state != State::ToDo), "a process is alive");
    apply(&ring, &living(&[]));
    let manifests = another(&config).manifests;
    let samples = [1, 2, 3, 4].map(|n| manifests.get(n).unwrap().unwrap().summary.samples);
    assert_eq!(samples, [2; 4]);
    assert_delivered_once(&config.ring, &ids, "two lost manifests");
}

#[test]
fn last_names_that_cannot_be_restaged_are_errors() {
    for (action, is_told) in [
        (Action::Refuse as fn(i32) -> Action, [(EIO, true), (ESTALE, false)]),
        (Action::LoseReply, [(EIO, false), (ESTALE, false)]),
    ] {
        for (errno, is_told) in is_told {
            let dir = scratch();
            let config = config(dir.path(), 2, "KEEP: 9");
            generations(&config, 2);
            let (_, file) = staged(&config, 7);
            let (ring, hooks) = hooked(&config);
            fs::rename(&file, ring.layout.read(1).join(segment_name(50, 1))).unwrap();
            let life = living(&[]);
            let plan = repair::plan_repair(&ring, &life).unwrap();
            hooks.hook(move |_, op, path| if op == "link" && path == file { action(errno) } else { Action::Pass });
            assert_eq!(repair::apply_repair(&ring, &plan, &life).is_err(), is_told, "{errno}");
        }
    }
}

#[test]
fn unlistable_directories_do_not_count_as_empty() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    generations(&config, 3);
    linked(&config, 7);
    let layout = another(&config).layout;
    fs::remove_file(layout.manifest(2)).unwrap();
    let dirs = [layout.read(2), layout.write(4)];
    let looks = dirs.iter().flat_map(|dir| [("identity", dir.clone()), ("list", dir.clone())]);
    for (call, dir) in looks.chain([("list", layout.quarantine())]) {
        for errno in [EIO, EACCES, ESTALE] {
            let (ring, hooks) = hooked(&config);
            let of = dir.clone();
            hooks.hook(move |_, op, path| if op == call && path == of { Action::Refuse(errno) } else { Action::Pass });
            let plan = repair::plan_repair(&ring, &living(&[]));
            assert!(plan.is_err(), "{call} {errno} of {}: {:?}", dir.display(), plan.unwrap().actions);
        }
    }
    // A missing directory and a file: they contain nothing.
    fs::remove_dir(layout.quarantine()).unwrap();
    fs::remove_dir(layout.trash()).unwrap();
    fs::write(layout.staging_of("file-1-a"), "x").unwrap();
    let ring = another(&config);
    assert_eq!(mend_of(&ring, 2, &living(&[])).state, State::ToDo);
    assert!(gc::garbage(&ring).unwrap().is_empty() && gc::garbage_of_the_dead(&ring).is_ok());
    fs::create_dir(layout.trash()).unwrap();
    gc::gc(&ring).unwrap();
}

/// Generations 1 to 4, the third of which is lost with its manifest; and a segment that was staged before it.
fn third_is_lost(config: &Config) -> (Ring, PathBuf) {
    generations(config, 2);
    let (_, file) = staged(config, 7);
    for _ in [3, 4] {
        [0, 1].iter().for_each(|index| drop(linked(config, *index)));
        promote_only(&another(config));
    }
    let ring = another(config);
    fs::remove_file(ring.layout.manifest(3)).unwrap();
    fs::remove_dir_all(ring.layout.read(3)).unwrap();
    (another(config), file)
}

#[test]
fn maybe_delivered_segments_are_quarantined_when_staged() {
    type Moved = fn(&Ring, &Path) -> PathBuf;
    let cases: [(&str, Moved, bool); 6] = [
        ("by its owner", |_, file| file.to_owned(), true),
        (
            "by another owner",
            |ring, file| {
                let elsewhere = ring.layout.staging_of("other-1-ab");
                fs::rename(file.parent().unwrap(), &elsewhere).unwrap();
                elsewhere.join(file.file_name().unwrap())
            },
            true,
        ),
        (
            "under another id",
            |_, file| {
                let other = file.with_file_name(format!("{:032x}.rec", 7));
                fs::rename(file, &other).unwrap();
                other
            },
            false,
        ),
        (
            "staged later",
            |ring, file| {
                fs::remove_file(file).unwrap();
                let config = config(ring.layout.root().parent().unwrap(), 2, "KEEP: 9");
                staged(&config, 8).1
            },
            false,
        ),
        (
            "staged and linked later",
            |ring, file| {
                fs::hard_link(file, ring.layout.write(5).join(segment_name(7, 1))).unwrap();
                file.to_owned()
            },
            false,
        ),
        (
            "delivered by the next generation",
            |ring, file| {
                let path = ring.layout.manifest(4);
                let manifest = ring.manifests.get(4).unwrap().unwrap();
                let tail = read_tail(&Posix, file).unwrap();
                let mut segments = manifest.segments.clone();
                segments[0].id = tail.footer.info.id;
                fs::write(path, Manifest::new(manifest.summary.clone(), segments).encode().unwrap()).unwrap();
                file.to_owned()
            },
            false,
        ),
    ];
    for (what, moved, goes) in cases {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 9");
        let (ring, file) = third_is_lost(&config);
        let file = moved(&ring, &file);
        let ring = another(&config);
        assert_eq!(rebuilding(&mend_of(&ring, 3, &living(&[]))).unclear == 1, goes, "{what}");
        assert_eq!(mend_of(&ring, 3, &living(&["a"])).state == State::ToDo, !goes, "{what}");
        // No process commits the remaining file.
        repair::apply_repair(&ring, &repair::plan_repair(&ring, &living(&[])).unwrap(), &Liveness::Unheard).unwrap();
        let kept = fs::read_dir(ring.layout.quarantine()).unwrap().count();
        assert_eq!((file.exists(), kept), (!goes, if goes { 2 } else { 0 }), "{what}");
    }
}

#[test]
fn unreadable_staged_files_stop_repair_of_a_lost_generation() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    let (_, file) = third_is_lost(&config);
    const ENOENT: i32 = 2;
    for (call, errno, is_told) in [
        ("list", EIO, true),
        ("list", EACCES, true),
        ("list", ESTALE, true),
        ("list", ENOENT, false),
        ("open", EIO, true),
        ("open", EACCES, true),
        ("open", ESTALE, true),
        ("open", ENOENT, false),
        ("read", EIO, true),
    ] {
        let (ring, hooks) = hooked(&config);
        let of = if call == "list" { file.parent().unwrap().to_owned() } else { file.clone() };
        // Fails once; later checks find the file.
        let met = AtomicBool::new(false);
        hooks.hook(move |_, op, path| {
            let hit = op == call && path == of && !met.swap(true, Ordering::SeqCst);
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        assert_eq!(repair::plan_repair(&ring, &living(&[])).is_err(), is_told, "{call} {errno}");
    }
    fs::write(&file, "damaged").unwrap();
    let ring = another(&config);
    assert!(rebuilding(&mend_of(&ring, 3, &living(&[]))).unclear == 0, "a damaged file is never committed");
}
