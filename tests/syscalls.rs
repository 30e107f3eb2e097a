//! SIGKILL before and after every system call of a generator and of a manager that touches the ring, SIGSTOP there past
//! the lease, and a second kill at every step of a promotion that a killed manager had begun. strace counts the calls of an
//! undisturbed run, and kills or stops another run at each of them. What the ledger has is listed once afterwards.
//!
//! `RINGREEL_ALL_CALLS=1 cargo test --test syscalls -- --nocapture` takes all calls, which takes minutes; otherwise a few of
//! each kind are taken. A table is printed.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "cli_support/mod.rs"]
mod cli_support;
#[path = "common/mod.rs"]
mod common;

use cli_support::loudly;
use common::{Action, EACCES, HookFs, another, listed, scratch, write};
use ringreel::fs::{Fs, Posix};
use ringreel::layout::{Layout, sealed_id};
use ringreel::ring::Ring;
use ringreel::ring::promote::When;
use ringreel::ring::recover::GRACE;
use ringreel::segment::reader::{check_whole, read_tail};
use ringreel::{Config, Generator, SampleId};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Calls that may touch a ring; those that a machine does not have are left out (`?`).
const CALLS: &str = "openat,?link,linkat,?rename,renameat,?renameat2,?mkdir,mkdirat,?unlink,unlinkat,?rmdir,write,pwrite64,\
                     ftruncate,fsync,fdatasync,close";
const CAP: u64 = 2;
const LEASE: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(50);
/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Cases at a time: they mostly wait for leases.
const WORKERS: usize = 3;
/// How many of each kind are taken where not all are.
const FEW: usize = 4;

/// Who is killed or stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// One that makes the ring and promotes what it fills.
    Generator,
    /// The same, with several samples in a segment, and a sync at each step.
    DurableGenerator,
    /// One that finds a full generation, an old one, and what dead generators finished and began.
    Manager,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strike {
    KillBefore,
    KillAfter,
    /// Until the others take it for dead.
    Stop,
    /// Until they remove what it had begun.
    LongStop,
}

/// A system call of a run: the `count`-th one of this name.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    count: usize,
    line: String,
}

impl Call {
    /// Whether it changes anything in the ring but signs of life and the lease.
    fn is_step(&self) -> bool {
        let beside =
            ["/index/members", "/index/leases", "/index/tmp", "/reserve"].iter().any(|it| self.line.contains(it));
        let looks = self.name == "openat" && !self.line.contains("O_CREAT") || self.name == "close";
        !beside && !looks
    }
}

/// Where a case begins: a directory to be copied, what is finished in it, and who works there.
struct Scene {
    role: Role,
    before: TempDir,
    finished: HashSet<String>,
}

fn yaml(lease: Duration, more: &str) -> String {
    format!(
        "DBNAME: t\nSWAP_CAP: {CAP}\nSAMPLE: [data]\nPOLL_SECONDS: {}\nLEASE_SECONDS: {}\nKEEP: 0\n{more}\n",
        POLL.as_secs_f64(),
        lease.as_secs_f64()
    )
}

fn load(dir: &Path, name: &str) -> Config {
    Config::load(&dir.join(name)).unwrap()
}

impl Scene {
    fn new(role: Role) -> Scene {
        let before = scratch();
        let long = Duration::from_secs(60); // its own signs of life do not come in between
        let (lease, more) = match role {
            Role::Generator => (long, ""),
            Role::DurableGenerator => (long, "SEGMENT_SAMPLES: 2\nDURABILITY: node"),
            Role::Manager => (LEASE, ""),
        };
        fs::write(before.path().join("config.yaml"), yaml(lease, more)).unwrap();
        fs::write(before.path().join("rescue.yaml"), yaml(LEASE, "")).unwrap();
        fs::write(before.path().join("long.yaml"), yaml(long, "SEGMENT_SAMPLES: 1")).unwrap();
        let finished = if role == Role::Manager { work_for_a_manager(before.path()) } else { HashSet::new() };
        Scene { role, before, finished }
    }

    /// The scene as somebody left it.
    fn left(&self, dir: TempDir) -> Scene {
        Scene { role: self.role, before: dir, finished: self.finished.clone() }
    }

    fn copy(&self) -> TempDir {
        let dir = scratch();
        let done = Command::new("cp").args(["-a", "-T"]).arg(self.before.path()).arg(dir.path()).status().unwrap();
        assert!(done.success());
        dir
    }

    /// A manager has done what there was to do.
    fn is_done(&self, dir: &Path) -> bool {
        let ring = dir.join("t.ring");
        let count = |name: &str| fs::read_dir(ring.join(name)).map_or(0, |names| names.count());
        self.role == Role::Manager && ring.join("manifests/3").exists() && count("write.4") + count("read.4") >= 2
    }

    fn command(&self, dir: &Path) -> Vec<String> {
        let words = match self.role {
            Role::Manager => "manager",
            _ => "generate --samples 5 --shape 4 --ledger ledger.first --seal",
        };
        assert!(dir.join("config.yaml").exists());
        words.split(' ').map(str::to_owned).collect()
    }
}

/// Generations 1 and 2 are promoted, 3 is full, two segments of a dead generator are sealed and not linked, a third one
/// is begun. The lease is free.
fn work_for_a_manager(dir: &Path) -> HashSet<String> {
    let config = load(dir, "long.yaml");
    let mut generator = Generator::open(&config).unwrap();
    let mut ids: Vec<SampleId> = (0..2 * CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let ring = another(&config);
    assert!(ring.index.claim_lease("manager", 1, "somebody-1-abc").unwrap());
    let mut generator = Generator::open(&config).unwrap(); // one that sees that lease
    ids.extend((0..CAP).flat_map(|n| write(&mut generator, n).unwrap()));
    for n in 0..2 {
        let fs = Arc::new(HookFs::default());
        let mut dying = Generator::open_on(fs.clone(), &config).unwrap();
        fs.hook(|_, op, path| {
            let commit = op == "link" && path.extension().is_some_and(|end| end == "rec");
            if commit { Action::Refuse(EACCES) } else { Action::Pass }
        });
        ids.extend(write(&mut dying, n).unwrap());
    }
    let begun = Config { segment_samples: 9, ..config.clone() };
    let mut begun = Generator::open(&begun).unwrap();
    assert!(write(&mut begun, 0).unwrap().is_empty());
    ring.index.release_lease("manager", 1).unwrap();
    assert_eq!(ring.manifests.newest().unwrap(), 2);
    ids.iter().map(SampleId::to_string).collect()
}

/// A process under strace, which is not its parent.
struct Traced<'a> {
    scene: &'a Scene,
    dir: &'a Path,
    child: Child,
    log: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Killed,
    Stopped,
    Ended,
}

impl<'a> Traced<'a> {
    fn start(scene: &'a Scene, dir: &'a Path, log: &'static str, strike: Option<(&Call, Strike)>) -> Traced<'a> {
        let _ = fs::remove_file(dir.join(log)); // of the one before
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-y", "-o", log, "-e", &format!("trace={CALLS}")]);
        if let Some((Call { name, count, .. }, strike)) = strike {
            // A SIGKILL arrives before the call is done, a SIGSTOP after it.
            let signal = if strike == Strike::KillBefore { "SIGKILL" } else { "SIGSTOP" };
            command.args(["-e", &format!("inject={name}:signal={signal}:when={count}")]);
        }
        command.arg(env!("CARGO_BIN_EXE_ringreel")).args(scene.command(dir)).current_dir(dir);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Traced { scene, dir, child, log }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.join(self.log)).unwrap_or_default()).into_owned()
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal); // it may have ended
    }

    /// Waits until it is killed, stopped or done. A manager that is done is asked to end.
    fn fate(&mut self, strike: Option<Strike>) -> Fate {
        let (begun, mut asked) = (Instant::now(), false);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return if status.signal() == Some(Signal::KILL.as_raw()) { Fate::Killed } else { Fate::Ended };
            }
            if strike.is_some_and(|strike| strike != Strike::KillBefore)
                && self.log().contains("--- stopped by SIGSTOP")
            {
                return Fate::Stopped;
            }
            if !asked && self.scene.is_done(self.dir) {
                std::thread::sleep(LEASE * 2); // it recovers now and then, and may have to take the lease over first
                self.signal(Signal::TERM);
                asked = true;
            }
            assert!(begun.elapsed() < PATIENCE, "it hangs: {}", self.log());
            std::thread::sleep(Duration::from_millis(4));
        }
    }

    /// Whether it was struck at the call that was meant: by its main thread. (Each thread has counts of its own.)
    fn was_hit_at(&self, call: &Call) -> bool {
        let calls = calls_of(&self.log(), self.child.id());
        calls.iter().filter(|made| made.name == call.name).count() == call.count
    }
}

impl Drop for Traced<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All calls that thread `pid` began, as strace tells them.
fn calls_of(log: &str, pid: u32) -> Vec<Call> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((thread, line)) = line.split_once(' ') else { continue };
        let Some((name, _)) = line.trim_start().split_once('(') else { continue };
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if thread == pid.to_string() && plain {
            let count = counts.entry(name).or_default();
            *count += 1;
            calls.push(Call { name: name.to_owned(), count: *count, line: line.to_owned() });
        }
    }
    calls
}

/// The calls that an undisturbed run of its main thread makes, of those that touch the ring.
fn calls_in(scene: &Scene) -> Vec<Call> {
    let dir = scene.copy();
    let mut traced = Traced::start(scene, dir.path(), "trace", None);
    assert_eq!(traced.fate(None), Fate::Ended);
    let calls = calls_of(&traced.log(), traced.child.id());
    calls.into_iter().filter(|call| call.line.contains("t.ring")).collect()
}

/// What is finished: sealed, although nobody may have been told yet.
fn sealed(dir: &Path) -> HashSet<String> {
    let layout = Layout::new(&dir.join("t.ring"));
    let mut ids = HashSet::new();
    for owner in Posix.list(&layout.staging()).unwrap_or_default() {
        for id in Posix.list(&layout.staging_of(&owner)).unwrap_or_default().iter().filter_map(|name| sealed_id(name)) {
            let samples = read_tail(&Posix, &layout.sealed(&owner, id)).unwrap().footer.count;
            ids.extend((0..samples).map(|ordinal| SampleId { segment: id, ordinal }.to_string()));
        }
    }
    ids
}

/// What a ledger has, whole lines only.
fn ledger(dir: &Path, name: &str) -> HashSet<String> {
    let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| Some(line.strip_suffix('\n')?.to_owned())).collect()
}

/// Others who go on: a manager and a generator.
struct Rescue<'a> {
    dir: &'a Path,
    begun: Instant,
    ring: Ring,
    manager: Child,
    generator: Child,
}

impl<'a> Rescue<'a> {
    fn start(dir: &'a Path) -> Rescue<'a> {
        let begun = Instant::now();
        let start = |args: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ringreel"));
            command.args(args.split(' ')).args(["-c", "rescue.yaml"]).current_dir(dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let manager = start("manager");
        let generator = start("generate --samples 2 --shape 4 --ledger ledger.second --seal");
        Rescue { dir, begun, ring: another(&load(dir, "rescue.yaml")), manager, generator }
    }

    /// Until all of `wanted` is listed; the time since they started. A generation that is not full is promoted from here.
    fn list_all(&self, wanted: &HashSet<String>) -> Duration {
        loop {
            let there: HashSet<String> = self.listed().into_keys().collect();
            if wanted.is_subset(&there) || self.begun.elapsed() > PATIENCE {
                return self.begun.elapsed();
            }
            self.ring.promote(When::NotEmpty).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn listed(&self) -> BTreeMap<String, Vec<u64>> {
        listed(&self.dir.join("t.ring")).into_iter().map(|(id, generations)| (id.to_string(), generations)).collect()
    }

    fn generator_ends(&mut self) {
        let begun = Instant::now();
        while self.generator.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "the second generator does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ledger(self.dir, "ledger.second").len(), 2);
    }
}

impl Drop for Rescue<'_> {
    fn drop(&mut self) {
        for child in [&mut self.manager, &mut self.generator] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How a case went.
#[derive(Clone, Default)]
struct Outcome {
    /// It was struck; and at the call that was meant. (Another thread may come to its own call of that number first.)
    struck: bool,
    as_meant: bool,
    lost: usize,
    twice: usize,
    damaged: usize,
    recovery: Duration,
}

/// One run that is struck at this call, and what others make of what it left.
fn run(scene: &Scene, call: &Call, strike: Strike) -> Outcome {
    let dir = scene.copy();
    let mut traced = Traced::start(scene, dir.path(), "struck", Some((call, strike)));
    let fate = traced.fate(Some(strike));
    let as_meant = fate != Fate::Ended && traced.was_hit_at(call);
    if strike == Strike::KillAfter {
        traced.child.kill().unwrap();
        traced.child.wait().unwrap();
    }
    let mut outcome = rescue(scene, dir.path(), |wanted, rescue| {
        let leases = match strike {
            Strike::Stop => 2,
            Strike::LongStop => GRACE + 2,
            _ => 0,
        };
        if fate == Fate::Stopped && leases > 0 {
            std::thread::sleep((LEASE * leases).saturating_sub(rescue.begun.elapsed()));
            traced.signal(Signal::CONT);
            if scene.role == Role::Manager {
                traced.signal(Signal::TERM);
            }
            let begun = Instant::now();
            while traced.child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < PATIENCE, "it was stopped at {call:?}, goes on, and does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
            wanted.extend(ledger(dir.path(), "ledger.first"));
            rescue.list_all(wanted);
        }
    });
    (outcome.as_meant, outcome.struck) = (as_meant, fate != Fate::Ended);
    outcome
}

/// Others recover what is in `dir`; then comes `afterwards`. Everything that is finished is listed once, and whole.
fn rescue(scene: &Scene, dir: &Path, afterwards: impl FnOnce(&mut HashSet<String>, &Rescue<'_>)) -> Outcome {
    let mut wanted = scene.finished.clone();
    wanted.extend(ledger(dir, "ledger.first"));
    wanted.extend(sealed(dir));
    let mut rescue = Rescue::start(dir);
    let recovery = rescue.list_all(&wanted);
    rescue.generator_ends();
    wanted.extend(ledger(dir, "ledger.second"));
    rescue.list_all(&wanted);
    afterwards(&mut wanted, &rescue);
    let listed = rescue.listed();
    let lost = wanted.iter().filter(|id| !listed.contains_key(*id)).count();
    let twice = listed.values().filter(|generations| generations.len() > 1).count();
    // What is kept of it can be read.
    let newest = rescue.ring.manifests.newest().unwrap();
    let manifest = rescue.ring.manifests.get(newest).unwrap().unwrap();
    let read = rescue.ring.layout.read(newest);
    let damaged =
        manifest.segments.iter().filter(|entry| check_whole(&Posix, &read.join(&entry.file)).is_err()).count();
    Outcome { lost, twice, damaged, recovery, ..Outcome::default() }
}

/// Of many cases of one kind.
fn tell(what: &str, of: usize, outcomes: &[Outcome]) {
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    let mut recovery: Vec<f64> = outcomes.iter().map(|outcome| outcome.recovery.as_secs_f64()).collect();
    recovery.sort_by(f64::total_cmp);
    println!(
        "{what:<48} {of:>5} {:>5} {:>6} {:>8} {:>5} {:>5} {:>7} {:>7.2} {:>7.2}",
        outcomes.len(),
        count(|outcome| outcome.struck),
        count(|outcome| outcome.as_meant),
        sum(|outcome| outcome.lost),
        sum(|outcome| outcome.twice),
        sum(|outcome| outcome.damaged),
        recovery.get(recovery.len() / 2).copied().unwrap_or_default(),
        recovery.last().copied().unwrap_or_default(),
    );
}

/// All of them; where not all are wanted, a few, spread evenly.
fn some<T>(all: &[T]) -> Vec<&T> {
    let every = if std::env::var_os("RINGREEL_ALL_CALLS").is_some() { 1 } else { all.len() / FEW + 1 };
    all.iter().step_by(every).collect()
}

/// Runs the cases, a few at a time.
fn run_all(what: &str, cases: &[(&Scene, Call, Strike)]) {
    let (few, next, outcomes) = (some(cases), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((scene, call, strike)) = few.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let outcome = run(scene, call, *strike);
                    let Outcome { lost, twice, damaged, .. } = outcome;
                    assert_eq!((lost, twice, damaged), (0, 0, 0), "{:?}, {strike:?}: {call:?}", scene.role);
                    assert!(outcome.recovery < PATIENCE);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    tell(what, cases.len(), &outcomes);
    assert!(outcomes.iter().filter(|outcome| outcome.as_meant).count() * 2 > outcomes.len(), "hardly any was struck");
}

fn there_is_strace() -> bool {
    let there = || Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|done| done.success());
    if !there() && rustix::process::geteuid().is_root() {
        let _ = Command::new("apt-get").args(["install", "--yes", "strace"]).output();
    }
    there() || {
        loudly("SKIPPED: kills at each system call: there is no strace, or it may not trace");
        false
    }
}

#[test]
fn whoever_is_killed_or_stopped_at_any_system_call_loses_and_doubles_nothing() {
    if !there_is_strace() {
        return;
    }
    println!(
        "{:<48} {:>5} {:>5} {:>6} {:>8} {:>5} {:>5} {:>7} {:>7} {:>7}",
        "who, and what befell it",
        "calls",
        "taken",
        "struck",
        "as meant",
        "lost",
        "twice",
        "damaged",
        "median",
        "longest"
    );
    for role in [Role::Generator, Role::DurableGenerator, Role::Manager] {
        let scene = Scene::new(role);
        let calls = calls_in(&scene);
        assert!(calls.len() > 60, "{calls:#?}");
        for strike in [Strike::KillBefore, Strike::KillAfter, Strike::Stop, Strike::LongStop] {
            let taken = calls.iter().filter(|call| strike != Strike::LongStop || call.is_step());
            let cases: Vec<_> = taken.map(|call| (&scene, call.clone(), strike)).collect();
            run_all(&format!("{role:?}, {strike:?}"), &cases);
        }
        if role == Role::Manager {
            twice_killed(&scene, &calls);
        }
    }
}

/// A manager is killed after each step, and the one that takes its work over after each of its own.
fn twice_killed(scene: &Scene, calls: &[Call]) {
    let steps: Vec<&Call> = calls.iter().filter(|call| call.is_step()).collect();
    let left: Vec<Scene> = some(&steps)
        .into_iter()
        .map(|call| {
            let dir = scene.copy();
            let mut traced = Traced::start(scene, dir.path(), "struck", Some((call, Strike::KillAfter)));
            traced.fate(Some(Strike::KillAfter));
            drop(traced);
            scene.left(dir)
        })
        .collect();
    let mut cases = Vec::new();
    for scene in &left {
        cases.extend(calls_in(scene).into_iter().filter(Call::is_step).map(|call| (scene, call, Strike::KillAfter)));
    }
    run_all(&format!("Manager, KillAfter at {} steps, and its successor", left.len()), &cases);
}
