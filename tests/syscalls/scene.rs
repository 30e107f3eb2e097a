//! The start of a case: a ring, and the process that works in it.

use ringreel::coordination::Report;
use ringreel::ring::Ring;
use ringreel::{Config, Generator, SampleId};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use testkit::ring::{Action, EACCES, HookFs, another, scratch, write};

pub const CAP: u64 = 2;
pub const LEASE: Duration = Duration::from_millis(200);
pub const POLL: Duration = Duration::from_millis(50);

/// The process that is killed or stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// A generator that creates the ring and promotes the generations that it fills.
    Generator,
    /// The same with several samples per segment, so large that their heads are written last, and a sync at each step.
    DurableGenerator,
    /// A manager that finds a full generation, an old one, and finished and unfinished files of dead generators.
    Manager,
}

/// The start of a case: a directory to copy, its finished samples, and the role.
pub struct Scene {
    pub role: Role,
    pub before: TempDir,
    pub finished: HashSet<String>,
}

fn yaml(lease: Duration, more: &str) -> String {
    format!(
        "DBNAME: t\nSWAP_CAP: {CAP}\nSAMPLE: [data]\nPOLL_SECONDS: {}\nLEASE_SECONDS: {}\nKEEP: 0\n{more}\n",
        POLL.as_secs_f64(),
        lease.as_secs_f64()
    )
}

pub fn load(dir: &Path, name: &str) -> Config {
    Config::load(&dir.join(name)).unwrap()
}

impl Scene {
    pub fn new(role: Role) -> Scene {
        let before = scratch();
        let long = Duration::from_secs(60); // keeps heartbeats out of the run
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

    /// A scene that begins with the files in `dir`.
    pub fn left(&self, dir: TempDir) -> Scene {
        Scene { role: self.role, before: dir, finished: self.finished.clone() }
    }

    pub fn copy(&self) -> TempDir {
        let dir = scratch();
        let done = Command::new("cp").args(["-a", "-T"]).arg(self.before.path()).arg(dir.path()).status().unwrap();
        assert!(done.success());
        dir
    }

    /// Whether a manager has finished all work.
    pub fn is_done(&self, dir: &Path) -> bool {
        let ring = dir.join("t.ring");
        let count = |name: &str| fs::read_dir(ring.join(name)).map_or(0, |names| names.count());
        self.role == Role::Manager && ring.join("manifests/3").exists() && count("write.4") + count("read.4") >= 2
    }

    pub fn arguments(&self) -> std::str::Split<'static, char> {
        let words = match self.role {
            Role::Manager => "manager",
            Role::Generator => "generate --samples 5 --shape 4 --ledger ledger.first --promote",
            Role::DurableGenerator => "generate --samples 5 --shape 128,128,128 --ledger ledger.first --promote",
        };
        words.split(' ')
    }
}

/// Generations 1 and 2 are promoted, 3 is full, two segments of a dead generator are sealed and not linked, a third one
/// is begun. The lease is free.
fn work_for_a_manager(dir: &Path) -> HashSet<String> {
    let config = load(dir, "long.yaml");
    let mut generator = Generator::open(&config).unwrap();
    let mut ids: Vec<SampleId> = (0..2 * CAP).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let ring = another(&config);
    assert!(ring.coordination.claim_lease("manager", 1, "somebody-1-abc").unwrap());
    let mut generator = Generator::open(&config).unwrap(); // a generator that sees the lease
    ids.extend((0..CAP).flat_map(|n| write(&mut generator, n).unwrap()));
    for n in 0..2 {
        let fs = Arc::new(HookFs::default());
        let mut dying = Generator::open_on(fs.clone(), &config).unwrap();
        fs.hook(|_, op, path| {
            let commit = op == "link" && path.extension().is_some_and(|end| end == "rec");
            if commit { Action::Refuse(EACCES) } else { Action::Pass }
        });
        ids.extend(write(&mut dying, n).unwrap());
        fell_silent(&ring, dying);
    }
    let begun = Config { segment_samples: Some(9), ..config.clone() };
    let mut begun = Generator::open(&begun).unwrap();
    assert!(write(&mut begun, 0).unwrap().is_empty());
    fell_silent(&ring, begun);
    ring.coordination.release_lease("manager", 1).unwrap();
    assert_eq!(ring.manifests.newest().unwrap(), 2);
    ids.iter().map(SampleId::to_string).collect()
}

/// Makes a generator that has left look as if it had been killed.
fn fell_silent(ring: &Ring, generator: Generator) {
    let name = generator.ring().me.clone();
    drop(generator);
    ring.coordination.beat(&name, 9, &Report::default()).unwrap();
}
