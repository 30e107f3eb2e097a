//! The storm: real processes of all roles are killed, stopped and asked to end at random, while the disk fills up,
//! inodes run out, the index is removed or damaged, and staging is cleaned. Every sample that a ledger calls finished
//! must be listed by exactly one manifest, and readers must see nothing torn, mixed or foreign.
//!
//! `RINGREEL_STORM_SECONDS=600 cargo test --release --test storm -- --nocapture` runs for ten minutes and prints a
//! table. RINGREEL_STORM_SEED repeats a plan. RINGREEL_STORM_DIRS=a:b are mounts of one filesystem, over which the
//! processes are distributed. With RINGREEL_TEST_INDEX, the index is in that MongoDB.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::duplicate_mod, missing_docs)]

mod faults;
mod judge;
mod members;
mod plan;

use faults::Disk;
use judge::{Watcher, check_seen, ledgers, litter};
use members::{CAP, LEASE, Members, Role};
use plan::{Event, Fault, Plan};
use ringreel::manifest::store::MANIFESTS_KEPT;
use ringreel::swap::promote::PromoteWhen;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::cli::{self, loudly};
use testkit::ring;

/// After the storm, all finished samples must be listed, and the litter of dead processes removed, within this time.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

/// Fields are dropped in this order.
struct Storm {
    members: Members,
    _kept: Kept,
    disk: Disk,
    watcher: Watcher,
    config: ringreel::Config,
    /// How often each fault happened. (A full disk cannot be filled again.)
    faults: BTreeMap<Fault, u64>,
    kills: u64,
}

/// The number in an environment variable.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Processes may be stopped for longer than manifests are kept.
const OUTRUN: bool = MANIFESTS_KEPT < 100;

/// The ring's path on each mount: those of RINGREEL_STORM_DIRS, or one temporary mount.
fn place(dir: &Path) -> (Disk, Vec<PathBuf>) {
    let Ok(mounts) = std::env::var("RINGREEL_STORM_DIRS") else {
        let disk = Disk::new(dir);
        let rings = vec![disk.ring.clone()];
        return (disk, rings);
    };
    let name = format!("storm-{}.ring", std::process::id());
    let rings: Vec<PathBuf> = mounts.split(':').map(|mount| Path::new(mount).join(&name)).collect();
    (Disk::of(rings[0].clone()), rings)
}

impl Storm {
    fn begin(dir: TempDir) -> Storm {
        let (disk, rings) = place(dir.path());
        let mut members = Members::new(dir.path(), rings);
        (0..2).for_each(|_| members.start(Role::Manager));
        (0..5).for_each(|n| members.start(Role::Generator(n)));
        (0..4).for_each(|n| members.start(Role::Reader(n)));
        let (watcher, config) = (Watcher::new(&disk.ring), members.config());
        let _kept = Kept(Some(dir), disk.ring.clone());
        Storm { members, _kept, disk, watcher, config, faults: BTreeMap::new(), kills: 0 }
    }

    fn run(&mut self, seed: u64, time: Duration) {
        let (begun, mut plan) = (Instant::now(), Plan::of(seed));
        let (mut event, mut due) = (plan.next(), Duration::ZERO);
        while begun.elapsed() < time {
            std::thread::sleep(TICK);
            self.tend(false);
            while due + event.after <= begun.elapsed() {
                due += event.after;
                self.inject(&event);
                event = plan.next();
            }
        }
    }

    fn tend(&mut self, it_is_over: bool) {
        self.members.tend(it_is_over);
        self.disk.tend(it_is_over);
        self.watcher.look(!self.members.generates() || self.disk.full_until.is_some());
    }

    fn inject(&mut self, event: &Event) {
        let Event { fault, target, which, much, .. } = *event;
        let for_leases = |n: f64| Duration::from_secs_f64(LEASE * n * much);
        let done = match fault {
            Fault::Kill => self.members.kill(target),
            Fault::KillAll => self.members.kill_all(),
            Fault::Stop => self.members.stop(target, for_leases(if OUTRUN { 60.0 } else { 10.0 })),
            Fault::Terminate => self.members.terminate(target),
            Fault::FullDisk => self.disk.fill(which % (1 << 20), for_leases(5.0)),
            Fault::NoInodes => self.disk.take_inodes(which as usize % 6, for_leases(5.0)),
            Fault::LoseIndex => self.disk.lose_index(&self.config),
            Fault::CorruptIndex => self.disk.corrupt_index(&self.config, which, much),
            Fault::SweepStaging => self.disk.sweep(&self.members.pids()),
            Fault::OneOff => self.members.start_one_off(which),
        };
        *self.faults.entry(fault).or_default() += u64::from(done > 0);
        self.kills += if matches!(fault, Fault::Kill | Fault::KillAll) { done as u64 } else { 0 };
    }

    /// Ends all faults and all processes but managers; returns the times until all of `wanted` is listed, and until the
    /// litter of dead processes is gone. Promotes the last generation, which is not full.
    fn settle(&mut self, wanted: &HashSet<String>) -> (Duration, Duration) {
        let ring = ring::another(&self.config);
        let (begun, mut listed) = (Instant::now(), None);
        loop {
            self.tend(true);
            if self.watcher.lost(wanted).is_empty() {
                listed.get_or_insert_with(|| begun.elapsed());
                if litter(&self.disk.ring, &self.members).is_empty() {
                    break;
                }
            }
            if begun.elapsed() > SETTLE_LIMIT {
                break;
            }
            ring.promote(PromoteWhen::NotEmpty).unwrap();
            std::thread::sleep(TICK * 5);
        }
        (listed.unwrap_or(SETTLE_LIMIT), begun.elapsed())
    }
}

#[test]
fn storm_loses_duplicates_or_tears_no_sample() {
    let seconds = given("RINGREEL_STORM_SECONDS").unwrap_or(30);
    let seed = given("RINGREEL_STORM_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let dir = tempfile::tempdir().unwrap();
    println!("a storm of {seconds} s: RINGREEL_STORM_SEED={seed}");
    let dir_path = dir.path().to_owned();
    let mut storm = Storm::begin(dir);
    storm.run(seed, Duration::from_secs(seconds));
    storm.tend(true);
    storm.members.only_managers();
    let wanted = ledgers(&dir_path);
    let (until_listed, until_clean) = storm.settle(&wanted);

    let seen = check_seen(&dir_path, &storm.watcher.listed);
    let (lost, twice) = (storm.watcher.lost(&wanted), storm.watcher.twice());
    let litter = litter(&storm.disk.ring, &storm.members);
    let quarantined = faults::names(&storm.disk.ring.join("quarantine"));
    let verified = Command::new(testkit::binary()).arg("verify").arg(&storm.disk.ring).output().unwrap();
    let rows = [
        ("faults", format!("{:?}", storm.faults)),
        ("kills", storm.kills.to_string()),
        ("samples finished", wanted.len().to_string()),
        (
            "samples listed",
            format!("{} in {} generations", storm.watcher.listed.len(), storm.watcher.newest().unwrap_or(0)),
        ),
        ("lost", lost.len().to_string()),
        ("listed twice", twice.len().to_string()),
        ("manifests changed", storm.watcher.changed().to_string()),
        ("samples read", format!("{} ({} different)", seen.samples, seen.different)),
        ("torn, mixed or foreign", seen.wrong.len().to_string()),
        ("in quarantine", quarantined.len().to_string()),
        (
            "longest time without a new manifest",
            format!(
                "{:.2} s; including full disks and idle times, {:.2} s",
                storm.watcher.longest.as_secs_f64(),
                storm.watcher.longest_of_all.as_secs_f64()
            ),
        ),
        ("after the storm, all listed after", format!("{:.2} s", until_listed.as_secs_f64())),
        ("litter of dead processes removed after", format!("{:.2} s", until_clean.as_secs_f64())),
        ("ended with an error", format!("{:#?}", storm.members.failed)),
        ("one-off commands (exit status)", format!("{:#?}", storm.members.one_offs)),
    ];
    rows.iter().for_each(|(what, value)| println!("{what:>40}  {value}"));
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, duplicated {twice:?}");
    assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    assert!(storm.watcher.changed() == 0 && quarantined.is_empty() && litter.is_empty(), "{quarantined:?} {litter:?}");
    assert!(storm.disk.ring.join("read.1").exists(), "held-out samples were removed");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    assert!(storm.members.failed.is_empty(), "{:#?}", storm.members.failed);
    assert!(!storm.members.one_offs.keys().any(|said| said.starts_with("verify RING: 1")), "verify found damage");
    assert!(wanted.len() as u64 > CAP && seen.samples > 0 && storm.kills > seconds);
}

#[test]
fn processes_stopped_beyond_their_leases_lose_no_sample() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let _kept = Kept(Some(dir), root.join("ring")); // dropped after the processes
    let mut members = Members::new(&root, vec![root.join("ring")]);
    let ring = ring::another(&members.config());
    [Role::Manager, Role::Generator(0), Role::Reader(0), Role::Manager]
        .into_iter()
        .for_each(|role| members.start(role));
    let mut watcher = Watcher::new(ring.layout.root());
    let mut holder_other_than = |members: &mut Members, last: u64| {
        let begun = Instant::now();
        loop {
            members.tend(false);
            watcher.look(false);
            let lease = ring.coordination.lease("manager").unwrap();
            match lease.filter(|lease| lease.token > last) {
                Some(lease) => return lease,
                None => assert!(begun.elapsed() < SETTLE_LIMIT, "no process took over the lease"),
            }
            std::thread::sleep(TICK);
        }
    };
    let mut lease = holder_other_than(&mut members, 0);
    for _ in 0..3 {
        let is_holder = |member: &members::Member| lease.holder.contains(&format!("-{}-", member.child.id()));
        let holder = members.members.iter().position(is_holder).unwrap();
        let generator = members.members.iter().position(|member| member.role == Role::Generator(0)).unwrap();
        [holder, generator].into_iter().for_each(|n| assert_eq!(members.stop(n, SETTLE_LIMIT), 1));
        let stopped = Instant::now();
        lease = holder_other_than(&mut members, lease.token);
        println!("taken over after {:?}", stopped.elapsed());
        members.tend(true); // continues the stopped processes
    }
    members.tend(true); // continues all processes
    cli::eventually("a generation is finished", || ledgers(&root).len() as u64 > CAP);
    members.only_managers();
    let wanted = ledgers(&root);
    let begun = Instant::now();
    while !watcher.lost(&wanted).is_empty() && begun.elapsed() < SETTLE_LIMIT {
        ring.promote(PromoteWhen::NotEmpty).unwrap();
        watcher.look(true);
        std::thread::sleep(TICK);
    }
    assert!(watcher.lost(&wanted).is_empty() && watcher.twice().is_empty());
    assert!(check_seen(&root, &watcher.listed).wrong.is_empty());
}

/// Keeps the files of a failed storm: logs, ledgers, and a copy of the ring.
struct Kept(Option<TempDir>, PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(dir) = self.0.take()
        {
            let dir = dir.keep();
            let _ = Command::new("cp").arg("-a").arg(&self.1).arg(&dir).status();
            loudly(&format!("the storm's files are kept in {}", dir.display()));
        }
        let _ = std::fs::remove_dir_all(&self.1);
    }
}
