//! SIGKILL before and after every system call of a generator and of a manager on the ring, SIGSTOP there for longer
//! than the lease, and a second kill at every step of a promotion that a killed manager had begun. strace counts the
//! calls of an undisturbed run, and kills or stops another run at each of them. Every sample in the ledger must be
//! listed once afterwards.
//!
//! `RINGREEL_ALL_CALLS=1 cargo test --test syscalls -- --nocapture` tests all calls, which takes minutes; by default a
//! few of each kind are tested. The tests print a table.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::duplicate_mod, missing_docs)]

mod rescue;
mod scene;
mod traced;

use rescue::{Rescue, ledger, sealed};
use ringreel::fs::Posix;
use ringreel::swap::adopt::UNFINISHED_GRACE_LEASES;
use ringreel_ops::inspect::verify_file::check_whole;
use rustix::process::Signal;
use scene::{LEASE, POLL, Role, Scene};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testkit::cli::there_is_strace;
use traced::{Call, Fate, Strike, Traced, calls_in};

/// Only a hang takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Concurrent cases, which mostly wait for leases.
const WORKERS: usize = 2;
/// The number of calls of each kind that are tested by default.
const FEW: usize = 4;

/// The result of a case.
#[derive(Clone, Default)]
struct Outcome {
    /// Whether it was killed or stopped; and whether at the intended call. (Another thread may reach that count first.)
    struck: bool,
    as_meant: bool,
    lost: usize,
    twice: usize,
    damaged: usize,
    recovery: Duration,
}

/// Kills or stops one run at this call, and recovers what it left.
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
            Strike::LongStop => UNFINISHED_GRACE_LEASES + 2,
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
                traced.signal(Signal::CONT); // another thread may stop at such a call, too
                assert!(begun.elapsed() < PATIENCE, "stopped at {call:?} and continued, the process does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
            wanted.extend(ledger(dir.path(), "ledger.first"));
            rescue.list_all(wanted);
        }
    });
    (outcome.as_meant, outcome.struck) = (as_meant, fate != Fate::Ended);
    outcome
}

/// Other processes recover `dir`; then `afterwards` runs. Checks that every finished sample is listed once, and intact.
fn rescue(scene: &Scene, dir: &Path, afterwards: impl FnOnce(&mut HashSet<String>, &Rescue<'_>)) -> Outcome {
    let mut wanted = scene.finished.clone();
    wanted.extend(ledger(dir, "ledger.first"));
    wanted.extend(sealed(dir));
    if scene.role != Role::Manager {
        // The victim publishes a long lease. Without its heartbeat file, the other processes judge it by their own
        // lease.
        let _ = fs::remove_dir_all(dir.join("t.ring/index/members"));
    }
    let mut rescue = Rescue::start(dir);
    let recovery = rescue.list_all(&wanted);
    rescue.generator_ends();
    wanted.extend(ledger(dir, "ledger.second"));
    rescue.list_all(&wanted);
    afterwards(&mut wanted, &rescue);
    let listed = rescue.listed();
    let lost = wanted.iter().filter(|id| !listed.contains_key(*id)).count();
    let twice = listed.values().filter(|generations| generations.len() > 1).count();
    // Every kept sample can be read.
    let newest = rescue.ring.manifests.newest().unwrap();
    let manifest = rescue.ring.manifests.get(newest).unwrap().unwrap();
    let read = rescue.ring.layout.read(newest);
    let damaged =
        manifest.segments.iter().filter(|entry| check_whole(&Posix, &read.join(entry.file())).is_err()).count();
    Outcome { lost, twice, damaged, recovery, ..Outcome::default() }
}

/// Prints a row for the cases of one kind.
fn tell(what: &str, of: usize, outcomes: &[Outcome]) {
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    let mut recovery: Vec<f64> = outcomes.iter().map(|outcome| outcome.recovery.as_secs_f64()).collect();
    recovery.sort_by(f64::total_cmp);
    println!(
        "{what:<48} {of:>5} {:>5} {:>6} {:>8} {:>4} {:>5} {:>7} {:>4.2} s {:>5.2} s {:>4}",
        outcomes.len(),
        count(|outcome| outcome.struck),
        count(|outcome| outcome.as_meant),
        sum(|outcome| outcome.lost),
        sum(|outcome| outcome.twice),
        sum(|outcome| outcome.damaged),
        recovery.get(recovery.len() / 2).copied().unwrap_or_default(),
        recovery.last().copied().unwrap_or_default(),
        count(|outcome| outcome.recovery > LEASE + POLL * 2),
    );
}

/// Prints the columns; "late" counts recoveries that took longer than a lease and two polls.
fn head() {
    let columns = ["calls", "cases", "   hit", "intended", "lost", "twice", "damaged", "median", "longest", "late"];
    println!("{:<48} {}", "role and fault", columns.join(" "));
}

/// All cases, or by default a few of them, evenly spread.
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
    // Among a few cases, a larger share may hit another thread.
    let (meant, all) = (outcomes.iter().filter(|outcome| outcome.as_meant).count(), outcomes.len());
    assert!(if all > 100 { meant * 2 > all } else { meant > 0 }, "too few intended hits: {meant} of {all}");
}

/// Tests all calls of this role, with each kind of signal.
fn strike(role: Role) {
    if !there_is_strace("kills at each system call") {
        return;
    }
    head();
    let scene = Scene::new(role);
    let calls = calls_in(&scene);
    assert!(calls.len() > 60, "{calls:#?}");
    for strike in [Strike::KillBefore, Strike::KillAfter, Strike::Stop, Strike::LongStop] {
        let taken = calls.iter().filter(|call| strike != Strike::LongStop || call.is_step());
        let cases: Vec<_> = taken.map(|call| (&scene, call.clone(), strike)).collect();
        run_all(&format!("{role:?}, {strike:?}"), &cases);
    }
}

#[test]
fn killed_or_stopped_generator_loses_no_sample() {
    strike(Role::Generator);
}

#[test]
fn killed_or_stopped_durable_generator_loses_no_sample() {
    strike(Role::DurableGenerator);
}

#[test]
fn killed_or_stopped_manager_loses_no_sample() {
    strike(Role::Manager);
}

/// A manager is killed after each step, and the process that takes over its work after each of its own steps.
#[test]
fn killed_manager_and_killed_successor_lose_no_sample() {
    if !there_is_strace("kills at each system call") {
        return;
    }
    head();
    let scene = &Scene::new(Role::Manager);
    let steps: Vec<Call> = calls_in(scene).into_iter().filter(Call::is_step).collect();
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
