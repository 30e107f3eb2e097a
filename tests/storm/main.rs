//! The storm: real processes of all roles are killed, stopped and asked to end at random, while the disk fills up,
//! inodes run out, the index is removed or damaged, and staging is cleaned. Every sample that a ledger calls finished
//! must be listed by exactly one manifest, and readers must see nothing torn, mixed or foreign.
//!
//! `RINGREEL_STORM_SECONDS=600 cargo test --release --test storm -- --nocapture` runs for ten minutes and prints a
//! table. RINGREEL_STORM_SEED repeats a plan. RINGREEL_STORM_DIRS=a:b are mounts of one filesystem, over which the
//! processes are distributed. With RINGREEL_TEST_INDEX, the index is in that MongoDB.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::duplicate_mod, missing_docs)]

mod blows;
mod cast;
mod judge;
mod plan;

use blows::Disk;
use cast::{CAP, Cast, LEASE, Role};
use judge::{Watcher, check_seen, ledgers, litter};
use plan::{Blow, Event, Plan};
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
const CALM: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

/// Fields are dropped in this order.
struct Storm {
    cast: Cast,
    _kept: Kept,
    disk: Disk,
    watcher: Watcher,
    config: ringreel::Config,
    /// How often each fault happened. (A full disk cannot be filled again.)
    blows: BTreeMap<Blow, u64>,
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
        let mut cast = Cast::new(dir.path(), rings);
        (0..2).for_each(|_| cast.start(Role::Manager));
        (0..5).for_each(|n| cast.start(Role::Generator(n)));
        (0..4).for_each(|n| cast.start(Role::Reader(n)));
        let (watcher, config) = (Watcher::new(&disk.ring), cast.config());
        let _kept = Kept(Some(dir), disk.ring.clone());
        Storm { cast, _kept, disk, watcher, config, blows: BTreeMap::new(), kills: 0 }
    }

    fn rage(&mut self, seed: u64, time: Duration) {
        let (begun, mut plan) = (Instant::now(), Plan::of(seed));
        let (mut event, mut due) = (plan.next(), Duration::ZERO);
        while begun.elapsed() < time {
            std::thread::sleep(TICK);
            self.look_after(false);
            while due + event.after <= begun.elapsed() {
                due += event.after;
                self.strike(&event);
                event = plan.next();
            }
        }
    }

    fn look_after(&mut self, it_is_over: bool) {
        self.cast.look_after(it_is_over);
        self.disk.look_after(it_is_over);
        self.watcher.look(!self.cast.generates() || self.disk.full_until.is_some());
    }

    fn strike(&mut self, event: &Event) {
        let Event { blow, whom, which, much, .. } = *event;
        let for_leases = |n: f64| Duration::from_secs_f64(LEASE * n * much);
        let done = match blow {
            Blow::Kill => self.cast.kill(whom),
            Blow::KillAll => self.cast.kill_all(),
            Blow::Stop => self.cast.stop(whom, for_leases(if OUTRUN { 60.0 } else { 10.0 })),
            Blow::Terminate => self.cast.terminate(whom),
            Blow::FullDisk => self.disk.fill(which % (1 << 20), for_leases(5.0)),
            Blow::NoInodes => self.disk.take_inodes(which as usize % 6, for_leases(5.0)),
            Blow::LoseIndex => self.disk.lose_index(&self.config),
            Blow::SpoilIndex => self.disk.spoil_index(&self.config, which, much),
            Blow::SweepStaging => self.disk.sweep(&self.cast.pids()),
            Blow::Passer => self.cast.start_passer(which),
        };
        *self.blows.entry(blow).or_default() += u64::from(done > 0);
        self.kills += if matches!(blow, Blow::Kill | Blow::KillAll) { done as u64 } else { 0 };
    }

    /// Ends all faults and all processes but managers; returns the times until all of `wanted` is listed, and until the
    /// litter of dead processes is gone. Promotes the last generation, which is not full.
    fn calm_down(&mut self, wanted: &HashSet<String>) -> (Duration, Duration) {
        let ring = ring::another(&self.config);
        let (begun, mut listed) = (Instant::now(), None);
        loop {
            self.look_after(true);
            if self.watcher.lost(wanted).is_empty() {
                listed.get_or_insert_with(|| begun.elapsed());
                if litter(&self.disk.ring, &self.cast).is_empty() {
                    break;
                }
            }
            if begun.elapsed() > CALM {
                break;
            }
            ring.promote(PromoteWhen::NotEmpty).unwrap();
            std::thread::sleep(TICK * 5);
        }
        (listed.unwrap_or(CALM), begun.elapsed())
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
    storm.rage(seed, Duration::from_secs(seconds));
    storm.look_after(true);
    storm.cast.only_managers();
    let wanted = ledgers(&dir_path);
    let (until_listed, until_clean) = storm.calm_down(&wanted);

    let seen = check_seen(&dir_path, &storm.watcher.listed);
    let (lost, twice) = (storm.watcher.lost(&wanted), storm.watcher.twice());
    let litter = litter(&storm.disk.ring, &storm.cast);
    let quarantined = blows::names(&storm.disk.ring.join("quarantine"));
    let verified = Command::new(testkit::binary()).arg("verify").arg(&storm.disk.ring).output().unwrap();
    let rows = [
        ("faults", format!("{:?}", storm.blows)),
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
        ("ended with an error", format!("{:#?}", storm.cast.failed)),
        ("one-off commands (exit status)", format!("{:#?}", storm.cast.passed)),
    ];
    rows.iter().for_each(|(what, value)| println!("{what:>40}  {value}"));
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, duplicated {twice:?}");
    assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    assert!(storm.watcher.changed() == 0 && quarantined.is_empty() && litter.is_empty(), "{quarantined:?} {litter:?}");
    assert!(storm.disk.ring.join("read.1").exists(), "held-out samples were removed");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    assert!(storm.cast.failed.is_empty(), "{:#?}", storm.cast.failed);
    assert!(!storm.cast.passed.keys().any(|said| said.starts_with("verify RING: 1")), "verify found damage");
    assert!(wanted.len() as u64 > CAP && seen.samples > 0 && storm.kills > seconds);
}

#[test]
fn processes_stopped_beyond_their_leases_lose_no_sample() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let _kept = Kept(Some(dir), root.join("ring")); // dropped after the processes
    let mut cast = Cast::new(&root, vec![root.join("ring")]);
    let ring = ring::another(&cast.config());
    [Role::Manager, Role::Generator(0), Role::Reader(0), Role::Manager].into_iter().for_each(|role| cast.start(role));
    let mut watcher = Watcher::new(ring.layout.root());
    let mut holder_other_than = |cast: &mut Cast, last: u64| {
        let begun = Instant::now();
        loop {
            cast.look_after(false);
            watcher.look(false);
            let lease = ring.coordination.lease("manager").unwrap();
            match lease.filter(|lease| lease.token > last) {
                Some(lease) => return lease,
                None => assert!(begun.elapsed() < CALM, "no process took over the lease"),
            }
            std::thread::sleep(TICK);
        }
    };
    let mut lease = holder_other_than(&mut cast, 0);
    for _ in 0..3 {
        let is_holder = |member: &cast::Member| lease.holder.contains(&format!("-{}-", member.child.id()));
        let holder = cast.members.iter().position(is_holder).unwrap();
        let generator = cast.members.iter().position(|member| member.role == Role::Generator(0)).unwrap();
        [holder, generator].into_iter().for_each(|n| assert_eq!(cast.stop(n, CALM), 1));
        let stopped = Instant::now();
        lease = holder_other_than(&mut cast, lease.token);
        println!("taken over after {:?}", stopped.elapsed());
        cast.look_after(true); // continues the stopped processes
    }
    cast.look_after(true); // continues all processes
    cli::eventually("a generation is finished", || ledgers(&root).len() as u64 > CAP);
    cast.only_managers();
    let wanted = ledgers(&root);
    let begun = Instant::now();
    while !watcher.lost(&wanted).is_empty() && begun.elapsed() < CALM {
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
