//! Which files repair examines and which it skips, and how it replaces a damaged manifest.

use super::generations;
use super::repair::living;
use ringreel::layout::segment_name;
use ringreel::manifest::{Manifest, Summary};
use ringreel::ring::Ring;
use ringreel_ops::repair;
use ringreel_ops::repair::State;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::ring::{
    Action, EIO, ESTALE, HookFs, another, assert_delivered_once, bring_in, config, hooked, scratch, staged,
};

const ENOENT: i32 = 2;

/// Returns the paths to repair, and the litter.
fn planned(ring: &Ring) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let plan = repair::plan_repair(ring, &living(&[])).unwrap();
    let (litter, open): (Vec<_>, Vec<_>) = plan.actions.into_iter().partition(|action| action.state == State::Litter);
    let paths =
        |actions: Vec<ringreel_ops::repair::RepairAction>| actions.into_iter().map(|action| action.path).collect();
    (paths(open), paths(litter))
}

fn refuse(hooks: &HookFs, call: &'static str, of: &Path, errno: i32) {
    let of = of.to_owned();
    hooks.hook(move |_, op, path| if op == call && path == of { Action::Refuse(errno) } else { Action::Pass });
}

#[test]
fn damaged_manifests_are_replaced_whatever_the_reply_was() {
    for (action, is_told) in [(Action::Refuse as fn(i32) -> Action, true), (Action::LoseReply, false)] {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 9");
        generations(&config, 3);
        let (ring, hooks) = hooked(&config);
        let path = ring.layout.manifest(2);
        fs::write(&path, "damaged\n").unwrap();
        let plan = repair::plan_repair(&ring, &living(&[])).unwrap();
        let of = path.clone();
        hooks.hook(move |_, op, path| if op == "rename" && path == of { action(EIO) } else { Action::Pass });
        assert_eq!(repair::apply_repair(&ring, &plan, &living(&[])).is_err(), is_told);
        hooks.unhook();
        assert_eq!(fs::read(&path).unwrap() == b"damaged\n", is_told);
        let begun = fs::read_dir(ring.layout.staging_of(&ring.me)).map_or(0, Iterator::count);
        assert_eq!(begun, 0, "the begun manifest is removed");
    }
}

#[test]
fn missing_old_manifests_may_have_been_pruned() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    let mut summary = Summary::empty(&ring.descriptor.ring_id, "a");
    for (newest, first) in [(2047, 0), (2048, 1025)] {
        while summary.generation <= newest {
            fs::write(
                ring.layout.manifest(summary.generation),
                Manifest::new(summary.clone(), vec![]).encode().unwrap(),
            )
            .unwrap();
            summary = summary.next("a", &[], 0.0);
        }
        for n in [3, 1023, 1024, 1025] {
            let kept = ring.layout.root().join("kept");
            fs::rename(ring.layout.manifest(n), &kept).unwrap();
            let is_asked_for = planned(&another(&config)).0.contains(&ring.layout.manifest(n));
            assert_eq!(is_asked_for, n >= first, "{n} of {newest}");
            fs::rename(&kept, ring.layout.manifest(n)).unwrap();
        }
    }
}

#[test]
fn litter_is_what_a_manager_removes() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    generations(&config, 2);
    let (ring, hooks) = hooked(&config);
    [1, 2].iter().for_each(|n| fs::create_dir(ring.layout.write(*n)).unwrap());
    fs::create_dir(ring.layout.trash().join("read.0.1")).unwrap();
    let litter = vec![ring.layout.write(1), ring.layout.write(2), ring.layout.trash().join("read.0.1")];
    assert_eq!(planned(&ring), (vec![], litter.clone()));
    refuse(&hooks, "list", &ring.layout.trash(), ENOENT);
    assert_eq!(planned(&ring), (vec![], litter[..2].to_vec()));
    refuse(&hooks, "identity", &ring.layout.read(1), ENOENT);
    assert_eq!(planned(&ring), (vec![], litter));
    let looks = [("list", ring.layout.trash(), EIO), ("identity", ring.layout.read(1), EIO)];
    for (call, of, errno) in looks.into_iter().chain([("identity", ring.layout.read(1), ESTALE)]) {
        refuse(&hooks, call, &of, errno);
        assert!(repair::plan_repair(&ring, &living(&[])).is_err(), "{call} {errno}");
    }
}

#[test]
fn unrecoverable_samples_are_errors_unless_they_are_gone() {
    for (errno, is_told) in [(EIO, true), (ENOENT, false)] {
        let dir = scratch();
        let (ring, hooks) = hooked(&config(dir.path(), 2, ""));
        let plan = repair::plan_repair(&ring, &living(&[])).unwrap();
        refuse(&hooks, "list", &ring.layout.staging(), errno);
        assert_eq!(repair::apply_repair(&ring, &plan, &living(&[])).is_err(), is_told, "{errno}");
    }
}

#[test]
fn last_names_from_a_lost_manifest_are_recovered() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 9");
    let (id, file) = staged(&config, 7);
    let ids = generations(&config, 3);
    let ring = another(&config);
    fs::rename(&file, ring.layout.read(1).join(segment_name(50, 1))).unwrap();
    fs::write(ring.layout.manifest(2), "damaged\n").unwrap();
    let plan = repair::plan_repair(&ring, &living(&[])).unwrap();
    let states: Vec<_> = plan.open().map(|action| (action.what, &action.state)).collect();
    assert_eq!(states, [("manifest", &State::ToDo), ("segment", &State::ToDo)]);
    repair::apply_repair(&ring, &plan, &living(&[])).unwrap();
    bring_in(&another(&config));
    assert_delivered_once(&config.ring, &[&ids[..], &[id]].concat(), "the last name was recovered");
}
