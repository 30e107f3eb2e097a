//! Small disks, disks that lose power, and wrong clocks: real processes on real filesystems.
//!
//! `RINGREEL_POWER_CUTS=30 cargo test --test disks -- --nocapture` sets the number of power cuts for each filesystem.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::cli::{Mount, Place, Running, eventually, ledger, loudly, there_is_strace};

/// The samples that generators reported as finished, from the ledgers beside the configuration, on another disk.
fn told(place: &Place) -> BTreeSet<String> {
    let files = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let ledgers = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ledger"));
    ledgers.flat_map(|path| ledger(&path)).collect()
}

/// A ring at `ring`, with its configuration in another directory; it keeps all generations.
fn place_of(ring: &Path, more: &str) -> Place {
    Place::new(&format!("RING: {}\nSWAP_CAP: 10\nSAMPLE: [data]\nKEEP: 500\n{more}", ring.display()))
}

/// Commits and promotes everything, and compares the ring with the ledgers.
fn assert_nothing_lost(place: &Place, what: &str) -> usize {
    let manager = place.start(&["manager"]);
    eventually("all samples are delivered", || {
        place.run(&["promote"]); // there may be nothing to promote
        place.run(&["status", "--json"]).ok().json()[0]["samples_waiting"] == 0
    });
    manager.terminate();
    manager.finish().ok();
    let delivered = place.run(&["read", "--all", "--json"]).ok().values("sample_id");
    let once: BTreeSet<String> = delivered.iter().cloned().collect();
    assert_eq!(once.len(), delivered.len(), "{what}: a sample was delivered twice");
    let told = told(place);
    let lost: Vec<_> = told.difference(&once).collect();
    assert!(lost.is_empty(), "{what}: lost {} of {}: {lost:?}", lost.len(), told.len());
    told.len()
}

/// Two generators and a manager work until the disk is full, and resume when `give_room` has freed space.
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
    eventually("the generators resume", || told(&place).len() >= before + 20);
    for mut one in generators {
        assert!(one.is_running(), "a generator ended: {}", one.err());
        one.terminate();
        one.finish().ok();
    }
    manager.terminate();
    manager.finish().ok();
    assert_nothing_lost(&place, waits_for);
}

#[test]
fn roles_wait_on_a_full_tmpfs_until_it_is_enlarged() {
    let Some(mount) = Mount::tmpfs("a disk of four megabytes", "size=4m") else { return };
    fills_up(&mount, "waiting for room on the disk", &|| mount.remount("size=64m"));
}

#[test]
fn roles_wait_without_inodes_until_more_are_added() {
    let Some(mount) = Mount::tmpfs("a disk with few inodes", "size=64m,nr_inodes=60") else { return };
    fills_up(&mount, "inodes", &|| mount.remount("size=64m,nr_inodes=20000"));
}

#[test]
fn ring_creation_with_few_inodes_succeeds_or_names_the_cause() {
    let Some(mount) = Mount::tmpfs("twenty inodes", "size=4m,nr_inodes=20") else { return };
    let place = place_of(&mount.path().join("ring"), "");
    let mut generator = place.start(&["generate", "--shape", "8", "--ledger", "ledger.1", "--samples", "40"]);
    generator.await_err("inodes");
    mount.remount("size=4m,nr_inodes=2000");
    generator.finish().ok();
    assert_eq!(assert_nothing_lost(&place, "twenty inodes"), 40);
}

#[test]
fn roles_wait_on_a_full_ext4_until_files_are_removed() {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::disk("a full ext4", "ext4", 16, home.path()) else { return };
    let others = mount.path().join("others");
    fs::write(&others, vec![7; 8 << 20]).unwrap();
    fills_up(&mount, "waiting for room on the disk", &|| fs::remove_file(&others).unwrap());
}

/// Starts the command. With `late`, each fsync is delayed by 20 ms, so that many power cuts come just before one.
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

/// Cuts the power of a disk many times while generators and a manager work.
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
        drop(all); // kills the processes
        mount.start_again();
    }
    let told = assert_nothing_lost(&place, &format!("{cuts} power cuts on {kind}"));
    println!("{kind}: {cuts} power cuts, {told} finished samples, 0 lost, 0 duplicated");
    assert!(told as u64 >= 30 * cuts);
}

#[test]
fn power_cuts_on_ext4_lose_no_finished_sample() {
    loses_its_power("ext4", 300, false);
}

#[test]
fn power_cuts_on_xfs_lose_no_finished_sample() {
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

/// Starts the command with a separate wall clock, which `file` sets. (Its monotonic clock is the machine's.)
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
fn clock_steps_lose_no_sample_and_stop_no_role() {
    let Some(library) = faketime() else {
        return loudly("SKIPPED: clocks that are set back and forth: libfaketime is missing");
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
    eventually("the ring exists", || place.ring().join("manifests/0").exists());
    let mut generations = 0;
    for (a, b) in [("-2d", "+1y"), ("+3y", "-4h"), ("-20y", "+0"), ("+1h", "-1h")] {
        set("clock.a", a);
        set("clock.b", b);
        let newest = || place.run(&["status", "--json"]).ok().json()[0]["newest"].as_u64().unwrap();
        eventually("new generations are promoted", || newest() >= generations + 4);
        generations = newest();
    }
    for one in &mut all {
        assert!(one.is_running(), "a process ended: {}", one.err());
        one.terminate();
    }
    for one in all {
        one.finish().ok();
    }
    assert!(assert_nothing_lost(&place, "clocks") >= 160);
}
