//! Disks that are small, that lose their power, and clocks that are wrong: with real processes on real filesystems.
//!
//! `RINGREEL_POWER_CUTS=30 cargo test --test disks -- --nocapture` cuts the power so often for each filesystem.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::cli::{Mount, Place, Running, eventually, ledger, loudly, there_is_strace};

/// What the generators told to be finished: their ledgers lie beside the configuration, on another disk.
fn told(place: &Place) -> BTreeSet<String> {
    let files = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let ledgers = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ledger"));
    ledgers.flat_map(|path| ledger(&path)).collect()
}

/// A ring at `ring`, configured in a directory elsewhere, with all generations kept.
fn place_of(ring: &Path, more: &str) -> Place {
    Place::new(&format!("RING: {}\nSWAP_CAP: 10\nSAMPLE: [data]\nKEEP: 500\n{more}", ring.display()))
}

/// Brings everything in, and compares with the ledgers.
fn assert_nothing_lost(place: &Place, what: &str) -> usize {
    let manager = place.start(&["manager"]);
    eventually("all is delivered", || {
        place.run(&["promote"]); // there may be nothing to promote
        place.run(&["status", "--json"]).ok().json()[0]["samples_waiting"] == 0
    });
    manager.terminate();
    manager.finish().ok();
    let delivered = place.run(&["read", "--all", "--json"]).ok().values("sample_id");
    let once: BTreeSet<String> = delivered.iter().cloned().collect();
    assert_eq!(once.len(), delivered.len(), "{what}: something was delivered twice");
    let told = told(place);
    let lost: Vec<_> = told.difference(&once).collect();
    assert!(lost.is_empty(), "{what}: lost {} of {}: {lost:?}", lost.len(), told.len());
    told.len()
}

/// Two generators and a manager work until the disk has no more room; then it has, and they go on.
fn fills_up(mount: &Mount, waits_for: &str, give_room: &dyn Fn()) {
    let place = place_of(&mount.path().join("ring"), "");
    let manager = place.start(&["manager"]);
    let generator = |n: &str| {
        place.start(&["generate", "--shape", "6000", "--seed", n, "--ledger", &format!("ledger.{n}"), "--rate", "300"])
    };
    let mut generators = [generator("1"), generator("2")];
    generators.iter_mut().for_each(|one| one.await_err(waits_for));
    let before = told(&place).len();
    give_room();
    eventually("they go on", || told(&place).len() >= before + 20);
    for mut one in generators {
        assert!(one.is_running(), "it ended: {}", one.err());
        one.terminate();
        one.finish().ok();
    }
    manager.terminate();
    manager.finish().ok();
    assert_nothing_lost(&place, waits_for);
}

#[test]
fn a_disk_of_four_megabytes_fills_up_and_is_enlarged() {
    let Some(mount) = Mount::tmpfs("a disk of four megabytes", "size=4m") else { return };
    fills_up(&mount, "waiting for room on the disk", &|| mount.remount("size=64m"));
}

#[test]
fn a_disk_runs_out_of_inodes_and_gets_more() {
    let Some(mount) = Mount::tmpfs("a disk with few inodes", "size=64m,nr_inodes=60") else { return };
    fills_up(&mount, "inodes", &|| mount.remount("size=64m,nr_inodes=20000"));
}

#[test]
fn births_with_twenty_inodes_succeed_or_name_what_is_missing() {
    let Some(mount) = Mount::tmpfs("twenty inodes", "size=4m,nr_inodes=20") else { return };
    let place = place_of(&mount.path().join("ring"), "");
    let mut generator = place.start(&["generate", "--shape", "8", "--ledger", "ledger.1", "--samples", "40"]);
    generator.await_err("inodes");
    mount.remount("size=4m,nr_inodes=2000");
    generator.finish().ok();
    assert_eq!(assert_nothing_lost(&place, "twenty inodes"), 40);
}

#[test]
fn a_full_ext4_fills_up_and_somebody_else_makes_room() {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::disk("a full ext4", "ext4", 16, home.path()) else { return };
    let others = mount.path().join("others");
    fs::write(&others, vec![7; 8 << 20]).unwrap();
    fills_up(&mount, "waiting for room on the disk", &|| fs::remove_file(&others).unwrap());
}

/// The command here; with `late`, each fsync begins 20 ms later than it would, so that many a cut comes just before one.
fn syncing(place: &Place, late: bool, args: &[&str]) -> Running {
    let command = place.command(args);
    if !late {
        return Running::start(command);
    }
    let mut traced = Command::new("strace");
    traced.args("-D -f -qq -o /dev/null -e trace=fsync -e inject=fsync:delay_enter=20000".split(' '));
    traced.arg(command.get_program()).args(args).current_dir(place.path()).env_remove("RINGREEL_LOG");
    Running::start(traced)
}

/// The power of a disk is cut while generators and a manager work, and comes back, many times.
fn loses_its_power(kind: &str, mib: u64, late_syncs: bool) {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::disk(&format!("power cuts on {kind}"), kind, mib, home.path()) else { return };
    let cuts: u64 = std::env::var("RINGREEL_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let place = place_of(&mount.path().join("ring"), "DURABILITY: node\nSEGMENT_SAMPLES: 2\n");
    for cut in 0..cuts {
        let manager = place.start(&["manager"]);
        let generator = |n: u64| {
            let ledger = format!("ledger.{cut}.{n}");
            let seed = (10 * cut + n).to_string();
            let args = ["generate", "--shape", "500", "--rate", "300", "--seed", &seed, "--ledger", &ledger];
            syncing(&place, late_syncs, &args)
        };
        let all: Vec<Running> = [1, 2].map(generator).into_iter().chain([manager]).collect();
        let before = told(&place).len();
        eventually("samples are finished", || told(&place).len() >= before + 30);
        std::thread::sleep(Duration::from_millis(37 * cut % 200));
        mount.cut_power();
        drop(all); // killed
        mount.start_again();
    }
    let told = assert_nothing_lost(&place, &format!("{cuts} power cuts on {kind}"));
    println!("{kind}: {cuts} power cuts, {told} samples were told to be finished, lost 0, twice 0");
    assert!(told as u64 >= 30 * cuts);
}

#[test]
fn an_ext4_whose_power_is_cut_loses_nothing_that_was_finished() {
    loses_its_power("ext4", 300, false);
}

#[test]
fn an_xfs_whose_power_is_cut_loses_nothing_that_was_finished() {
    loses_its_power("xfs", 320, false);
}

#[test]
fn syncs_begun_after_a_power_cut_do_not_count() {
    if !there_is_strace("power cuts just before a sync") {
        return;
    }
    loses_its_power("xfs", 320, true);
    loses_its_power("ext4", 300, true);
}

/// The command with a clock of its own, as `file` sets it. (Its monotonic clock is the machine's.)
fn with_clock(place: &Place, library: &Path, file: &Path, args: &[&str]) -> Running {
    let mut command = place.command(args);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", file);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Running::start(command)
}

/// <https://github.com/wolfcw/libfaketime>
fn faketime() -> Option<PathBuf> {
    let places = fs::read_dir("/usr/lib").ok()?.map(|entry| entry.unwrap().path());
    places.map(|dir| dir.join("faketime/libfaketimeMT.so.1")).find(|library| library.exists())
}

#[test]
fn clocks_that_are_set_back_and_forth_cost_nothing() {
    let Some(library) = faketime() else {
        return loudly("SKIPPED: clocks that are set back and forth: there is no libfaketime");
    };
    let place = Place::new("SWAP_CAP: 10\nSAMPLE: [data]\nKEEP: 500\n");
    let clock = |name: &str| place.path().join(name);
    let set = |name: &str, offset: &str| fs::write(clock(name), offset).unwrap();
    set("clock.a", "-2d");
    set("clock.b", "+1y");
    let start = |name: &str, args: &[&str]| with_clock(&place, &library, &clock(name), args);
    let generate = |n: &str, name: &str| {
        let ledger = format!("ledger.{n}");
        start(name, &["generate", "--shape", "100", "--rate", "60", "--seed", n, "--ledger", &ledger])
    };
    let managers = [start("clock.a", &["manager"]), start("clock.b", &["manager"])];
    let mut all: Vec<_> = managers.into_iter().chain([generate("1", "clock.a"), generate("2", "clock.b")]).collect();
    eventually("there is a ring", || place.ring().join("manifests/0").exists());
    let mut generations = 0;
    for (a, b) in [("-2d", "+1y"), ("+3y", "-4h"), ("-20y", "+0"), ("+1h", "-1h")] {
        set("clock.a", a);
        set("clock.b", b);
        let newest = || place.run(&["status", "--json"]).ok().json()[0]["newest"].as_u64().unwrap();
        eventually("generations go on", || newest() >= generations + 4);
        generations = newest();
    }
    for one in &mut all {
        assert!(one.is_running(), "it ended: {}", one.err());
        one.terminate();
    }
    for one in all {
        one.finish().ok();
    }
    assert!(assert_nothing_lost(&place, "clocks") >= 160);
}
