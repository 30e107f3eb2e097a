//! Repair is killed at every change, or fails at every call. A second run must reach the same result as an undisturbed
//! run, and no sample may be lost or duplicated.

use ringreel::coordination::Claim;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::ring::Ring;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Generator, SampleId};
use ringreel_ops::repair;
use ringreel_ops::repair::Liveness;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use testkit::ring::{Action, CHANGES, EACCES, EIO, HookFs, another, assert_delivered_once, scratch, write};

const CAP: u64 = 3;

fn config(dir: &Path) -> Config {
    let yaml = format!(
        "DBNAME: t\nINDEX: files\nSWAP_CAP: {CAP}\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 0.006\nKEEP: 9\n"
    );
    Config::parse(&yaml, "test", dir, true).unwrap()
}

/// A ring in which manifest 2 is missing, manifest 1 is damaged, the promotion of 4 is half done, the last name of a
/// segment is in a wrong place, a segment is staged and not linked, a staged segment is damaged, and the index is
/// empty.
fn damaged(dir: &Path) -> Vec<SampleId> {
    let config = config(dir);
    let mut generator = Generator::open(&config).unwrap();
    let mut ids: Vec<SampleId> = (0..3 * CAP + 2).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let ring = generator.ring().clone();
    drop(generator);
    let mut late = Generator::open(&config).unwrap();
    for n in 0..3 {
        ids.extend(write(&mut late, 50 + n).unwrap());
    }
    drop(late);
    // `n` is the generation that fills now; three of its segments lose their links.
    let n = ring.manifests.newest_listed().unwrap() + 1;
    let fills = ring.fs.list(&ring.layout.write(n)).unwrap();
    assert!(n >= 4 && fills.len() >= 2, "{n} {fills:?}");
    let (stray, unlinked) = (ring.layout.write(n).join(&fills[0]), ring.layout.write(n).join(&fills[1]));
    let staged = |path: &Path| {
        let tail = ringreel::segment::reader::read_tail(&*ring.fs, path).unwrap().footer;
        ring.layout.sealed(tail.info.owner(), tail.info.id)
    };
    std::fs::remove_file(staged(&stray)).unwrap();
    std::fs::create_dir(ring.layout.write(1)).unwrap();
    std::fs::rename(stray, ring.layout.write(1).join("000007.rec")).unwrap();
    std::fs::remove_file(unlinked).unwrap();
    std::fs::rename(ring.layout.write(n), ring.layout.read(n)).unwrap();
    std::fs::remove_file(ring.layout.manifest(2)).unwrap();
    std::fs::write(ring.layout.manifest(1), "nothing\n").unwrap();
    let dead = ring.layout.staging_of("dead-1-ab");
    std::fs::create_dir(&dead).unwrap();
    std::fs::write(dead.join(format!("{:032x}.rec", 7)), "no segment").unwrap();
    std::fs::remove_dir_all(ring.layout.index()).unwrap();
    ids
}

fn repair(fs: Arc<HookFs>, config: &Config) -> ringreel::Result<usize> {
    let (ring, _) = repair::ring_json::find_damaged(fs, config, Claim::IfUnowned, true)?;
    let (plan, life) = repair::plan_repair_watching(&ring, &|_| ())?;
    repair::apply_repair(&ring, &plan, &life)?;
    Ok(repair::plan_repair(&ring, &life)?.open().count())
}

/// Runs repair until no action remains, promotes everything, and checks that no sample is lost or duplicated.
fn check(dir: &Path, ids: &[SampleId], lists: &[(u64, BTreeSet<String>)], what: &str) {
    let config = config(dir);
    let staged = |ring: &Ring| {
        let owners = ring.fs.list(&ring.layout.staging()).unwrap();
        let names = owners.iter().flat_map(|owner| ring.fs.list(&ring.layout.staging_of(owner)).unwrap_or_default());
        names.filter(|name| name.ends_with(".rec")).count()
    };
    // With such short times, a dead owner may count as alive for a while.
    for round in 0.. {
        let left = repair(Arc::new(HookFs::default()), &config).unwrap();
        let ring = another(&config);
        if left == 0 && staged(&ring) > 0 {
            ring.promote(PromoteWhen::NotEmpty).unwrap();
        }
        if left == 0 && staged(&ring) == 0 {
            break;
        }
        assert!(round < 100, "{what}: {left} actions remain, {} segments are staged", staged(&ring));
    }
    let ring = another(&config);
    assert_delivered_once(&config.ring, ids, what);
    for (n, before) in lists {
        assert_eq!(&of(&config.ring, *n), before, "{what}: generation {n} changed");
    }
    let quarantine = ring.fs.list(&ring.layout.quarantine()).unwrap();
    assert!(quarantine.iter().any(|name| name.starts_with("manifest.1.")), "{what}: the damaged manifest is kept");
}

fn of(ring: &Path, n: u64) -> BTreeSet<String> {
    let manifest = Manifests::new(Arc::new(ringreel::fs::Posix), Layout::new(ring)).get(n).unwrap().unwrap();
    manifest.segments.iter().map(|entry| entry.id.to_string()).collect()
}

struct Case {
    dir: tempfile::TempDir,
    ids: Vec<SampleId>,
    lists: Vec<(u64, BTreeSet<String>)>,
}

impl Case {
    fn new() -> Case {
        let dir = scratch();
        let here = dir.path().join("0");
        std::fs::create_dir(&here).unwrap();
        // The manifests' contents are taken from an undamaged copy with the same names, whose segments are in read.<n>.
        let ids = damaged(&here);
        let root = config(&here).ring;
        let names =
            |n: u64| std::fs::read_dir(root.join(format!("read.{n}"))).unwrap().map(|entry| entry.unwrap().path());
        let id = |path: PathBuf| {
            ringreel::segment::reader::read_tail(&ringreel::fs::Posix, &path).unwrap().footer.info.id.to_string()
        };
        let lists = [1, 2, 3].map(|n| (n, names(n).map(id).collect())).to_vec();
        Case { dir, ids, lists }
    }

    /// A copy that preserves hard links.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.dir.path().join(name);
        let from = self.dir.path().join("0");
        assert!(Command::new("cp").arg("-a").arg(&from).arg(&to).status().unwrap().success());
        to
    }

    fn run(&self, name: &str, hook: impl Fn(usize, &str, &Path) -> Action + Send + Sync + 'static) {
        let dir = self.copy(name);
        let fs = Arc::new(HookFs::default());
        fs.hook(hook);
        let _ = repair(fs, &config(&dir));
        check(&dir, &self.ids, &self.lists, name);
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Counts the calls of an undisturbed run, and those that change something.
    fn calls(&self) -> (usize, usize) {
        for n in 0..100 {
            let dir = self.copy(&format!("undisturbed.{n}"));
            let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let (fs, seen) = (Arc::new(HookFs::default()), counts.clone());
            fs.hook(move |_, op, _| {
                seen[0].fetch_add(1, Ordering::SeqCst);
                seen[1].fetch_add(usize::from(CHANGES.contains(&op)), Ordering::SeqCst);
                Action::Pass
            });
            let left = repair(fs, &config(&dir)).unwrap();
            let [calls, changes] = [0, 1].map(|k| counts[k].load(Ordering::SeqCst));
            // Otherwise a dead owner counted as alive, because the times are short.
            if left == 0 && changes > 25 {
                return (calls, changes);
            }
        }
        panic!("repair never finishes in one run")
    }
}

#[test]
fn repair_survives_a_crash_before_every_change() {
    let case = Case::new();
    let (_, changes) = case.calls();
    // A crash after a change equals a crash before the next one.
    for at in 0..=changes {
        let count = AtomicUsize::new(0);
        case.run(&format!("crash before change {at}"), move |_, op, _| {
            let changes = CHANGES.contains(&op);
            let n = if changes { count.fetch_add(1, Ordering::SeqCst) } else { count.load(Ordering::SeqCst) };
            if n < at || (n == at && !changes) { Action::Pass } else { Action::Refuse(EACCES) }
        });
    }
}

#[test]
fn repair_survives_one_failure_of_every_call() {
    let case = Case::new();
    let (calls, _) = case.calls();
    for at in (0..calls).step_by(5) {
        case.run(&format!("call {at} fails"), move |n, _, _| if n == at { Action::Refuse(EIO) } else { Action::Pass });
    }
}

#[test]
fn repair_survives_a_lost_reply_of_every_change() {
    let case = Case::new();
    let (_, changes) = case.calls();
    for at in 0..changes {
        let count = AtomicUsize::new(0);
        case.run(&format!("lost reply of change {at}"), move |_, op, _| {
            let hit = CHANGES.contains(&op) && count.fetch_add(1, Ordering::SeqCst) == at;
            if hit { Action::LoseReply(EIO) } else { Action::Pass }
        });
    }
}

#[test]
fn repair_survives_a_second_repair_at_every_change() {
    let case = Case::new();
    let (_, changes) = case.calls();
    for at in 0..changes {
        let count = AtomicUsize::new(0);
        let name = format!("a second repair at change {at}");
        let dir = case.dir.path().join(&name);
        case.run(&name, move |_, op, _| {
            if CHANGES.contains(&op) && count.fetch_add(1, Ordering::SeqCst) == at {
                let _ = repair(Arc::new(HookFs::default()), &config(&dir));
                let ring = another(&config(&dir));
                let _ = ring.promote(PromoteWhen::NotEmpty);
                let _ = ring.reclaim();
            }
            Action::Pass
        });
    }
}

#[test]
fn repair_does_not_report_a_working_ring_as_damaged() {
    let mut at = 0;
    loop {
        let dir = scratch();
        let config = config(dir.path());
        let mut generator = Generator::open(&config).unwrap();
        (0..2 * CAP).for_each(|n| drop(write(&mut generator, n).unwrap()));
        let fs = Arc::new(HookFs::default());
        let (ring, _) = repair::ring_json::find_damaged(fs.clone(), &config, Claim::Never, false).unwrap();
        let generator = Mutex::new(generator);
        fs.hook(move |n, _, _| {
            if n == at {
                let mut generator = generator.lock().unwrap();
                (0..3 * CAP).for_each(|n| drop(write(&mut generator, n).unwrap()));
            }
            Action::Pass
        });
        let plan = repair::plan_repair(&ring, &Liveness::Unknown).unwrap();
        let wrong: Vec<_> = plan.open().filter(|action| ["manifest", "promotion"].contains(&action.what)).collect();
        assert!(wrong.is_empty(), "the ring was swapped at call {at}: {wrong:#?}");
        if fs.calls() <= at {
            break;
        }
        at += 1;
    }
    assert!(at > 20);
}
