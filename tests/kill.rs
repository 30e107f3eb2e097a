//! Real processes, killed at random: generators, the manager, readers. Everything that a ledger calls finished is
//! listed by exactly one manifest, and readers saw nothing torn, mixed or foreign.
//!
//! `RINGREEL_KILL_SECONDS=60 cargo test --release --test kill -- --nocapture` runs it for a minute and prints a table.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use common::{another, listed};
use ringreel::ring::promote::When;
use ringreel::{Config, SampleId};
use rustix::process::{Pid, Signal};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LEASE: f64 = 1.0;
const CAP: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Manager,
    Generator(usize),
    Reader(usize),
}

struct Cast {
    dir: PathBuf,
    members: Vec<(Role, Child)>,
    born: usize,
}

impl Cast {
    fn start(&mut self, role: Role) {
        self.born += 1;
        let log = File::create(self.dir.join(format!("{}.log", self.born))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringreel"));
        command.current_dir(&self.dir).stderr(log).stdin(Stdio::null()).stdout(Stdio::null());
        match role {
            Role::Manager => drop(command.arg("manager")),
            Role::Generator(n) => {
                let seed = (n * 1000 + self.born).to_string();
                let ledger = format!("ledger.{}", self.born);
                command.args(["generate", "--shape", "20,20,20", "--rate", "40", "--seed", &seed, "--ledger", &ledger]);
            }
            Role::Reader(rank) => {
                let seen = File::create(self.dir.join(format!("seen.{}", self.born))).unwrap();
                command.args(["read", "--json", "--world", "2", "--rank", &rank.to_string()]).stdout(seen);
            }
        }
        self.members.push((role, command.spawn().unwrap()));
    }

    fn kill(&mut self, n: usize) -> Role {
        let (role, mut child) = self.members.remove(n);
        child.kill().unwrap();
        child.wait().unwrap();
        role
    }

    fn ledger_lines(&self) -> Vec<String> {
        let names = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path());
        let ledgers = names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ledger."));
        let lines = ledgers.flat_map(|path| BufReader::new(File::open(path).unwrap()).lines().map_while(Result::ok));
        lines.filter(|line| line.len() > 33).collect()
    }
}

/// Every line that a reader printed: its sample is listed where it says, and holds what its generator put in.
fn check_seen(dir: &Path, listed: &BTreeMap<SampleId, Vec<u64>>) -> (u64, u64) {
    let by_name: BTreeMap<String, u64> =
        listed.iter().map(|(id, generations)| (id.to_string(), generations[0])).collect();
    let (mut seen, mut distinct) = (0, HashSet::new());
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if !path.file_name().unwrap().to_str().unwrap().starts_with("seen.") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(value.get("error").is_none(), "{line}");
            let id = value["sample_id"].as_str().unwrap().to_owned();
            assert_eq!(by_name.get(&id), value["generation"].as_u64().as_ref(), "{line}");
            for part in ["data", "label"] {
                assert_eq!(value["parts"][part]["crc32"], value["meta"]["crc32"][part], "{line}");
                assert_eq!(value["parts"][part]["shape"], serde_json::json!([20, 20, 20]));
            }
            seen += 1;
            distinct.insert(id);
        }
    }
    (seen, distinct.len() as u64)
}

/// Until nothing finished waits any more. A real manager does the adopting; only the last generation, which is not
/// full, is promoted from here.
fn drain(config: &Config, wanted: &HashSet<String>) {
    let ring = another(config);
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let there: HashSet<String> = listed(&config.ring).keys().map(SampleId::to_string).collect();
        if wanted.is_subset(&there) {
            return;
        }
        ring.promote(When::NotEmpty).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn config_in(dir: &Path) -> Config {
    let yaml = format!("DBNAME: t\nSWAP_CAP: {CAP}\nSAMPLE: [data, label]\nLEASE_SECONDS: {LEASE}\nKEEP: 2\n");
    let yaml = format!("{yaml}{}", common::index::lines(dir));
    fs::write(dir.join("config.yaml"), &yaml).unwrap();
    Config::load(&dir.join("config.yaml")).unwrap()
}

fn signal(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_manager_and_a_generator_that_were_stopped_past_their_leases_and_go_on_harm_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_in(dir.path());
    let mut cast = Cast { dir: dir.path().to_owned(), members: Vec::new(), born: 0 };
    for role in [Role::Manager, Role::Generator(0), Role::Generator(1), Role::Manager, Role::Reader(0)] {
        cast.start(role);
    }
    std::thread::sleep(Duration::from_millis(800));
    let holder = |ring: &ringreel::Ring| ring.index.lease("manager").unwrap().unwrap();
    let ring = another(&config);
    let first = holder(&ring);
    let of_pid = |child: &Child| first.holder.contains(&format!("-{}-", child.id()));
    let n = cast.members.iter().position(|(role, child)| *role == Role::Manager && of_pid(child)).unwrap();
    for round in 0..3 {
        let generator = cast.members.iter().position(|(role, _)| *role == Role::Generator(round % 2)).unwrap();
        signal(&cast.members[n].1, Signal::STOP);
        signal(&cast.members[generator].1, Signal::STOP);
        std::thread::sleep(Duration::from_secs_f64(LEASE * 1.8));
        assert!(holder(&ring).token > first.token, "nobody took the lease over");
        signal(&cast.members[n].1, Signal::CONT);
        signal(&cast.members[generator].1, Signal::CONT);
        std::thread::sleep(Duration::from_millis(300));
    }
    while let Some(n) = cast.members.iter().position(|(role, _)| *role != Role::Manager) {
        cast.kill(n);
    }
    let wanted: HashSet<String> = cast.ledger_lines().into_iter().collect();
    drain(&config, &wanted);
    while !cast.members.is_empty() {
        cast.kill(0);
    }
    let listed = listed(&config.ring);
    let there: HashSet<String> = listed.keys().map(SampleId::to_string).collect();
    assert_eq!(wanted.difference(&there).count(), 0);
    assert!(listed.values().all(|generations| generations.len() == 1));
    check_seen(dir.path(), &listed);
    assert!(wanted.len() as u64 > CAP);
}

#[test]
fn nothing_finished_is_lost_or_doubled_when_anybody_is_killed_at_any_time() {
    let seconds: u64 = std::env::var("RINGREEL_KILL_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    let pause = if seconds < 30 { 0.35 } else { 1.0 };
    let dir = tempfile::tempdir().unwrap();
    let config = config_in(dir.path());
    let mut cast = Cast { dir: dir.path().to_owned(), members: Vec::new(), born: 0 };
    cast.start(Role::Manager);
    (0..4).for_each(|n| cast.start(Role::Generator(n)));
    (0..2).for_each(|rank| cast.start(Role::Reader(rank)));

    let (begun, mut next_kill, mut kills) = (Instant::now(), pause, BTreeMap::new());
    let (mut lines, mut moved, mut longest) = (0, Instant::now(), Duration::ZERO);
    let mut random = u64::from(std::process::id()) | 1;
    while begun.elapsed().as_secs() < seconds {
        std::thread::sleep(Duration::from_millis(20));
        let now = cast.ledger_lines().len();
        if now > lines {
            if lines > 0 {
                longest = longest.max(moved.elapsed());
            }
            (lines, moved) = (now, Instant::now());
        }
        if begun.elapsed().as_secs_f64() > next_kill {
            next_kill += pause;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let role = cast.kill((random % cast.members.len() as u64) as usize);
            *kills.entry(format!("{role:?}").split('(').next().unwrap().to_owned()).or_insert(0) += 1;
            cast.start(role);
        }
    }
    while let Some(n) = cast.members.iter().position(|(role, _)| *role != Role::Manager) {
        cast.kill(n);
    }
    let wanted: HashSet<String> = cast.ledger_lines().into_iter().collect();
    drain(&config, &wanted);
    let listed = listed(&config.ring);
    let there: HashSet<String> = listed.keys().map(SampleId::to_string).collect();
    let lost: Vec<_> = wanted.difference(&there).collect();
    let twice: Vec<_> = listed.iter().filter(|(_, generations)| generations.len() > 1).collect();
    let (seen, distinct) = check_seen(dir.path(), &listed);
    let generations = listed.values().map(|generations| generations[0]).max().unwrap_or(0);
    println!(
        "{seconds} s, kills {kills:?}: {} finished, {} listed in {generations} generations, {seen} read ({distinct} different); \
         lost {}, twice {}, longest time without a finished sample {:.2} s",
        wanted.len(),
        listed.len(),
        lost.len(),
        twice.len(),
        longest.as_secs_f64(),
    );
    cast.kill(0);
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, twice {twice:?}");
    assert!(wanted.len() as u64 > CAP && seen > 0 && generations > 1);
    // The lease, two polls (a quarter of the lease at most), and some slack for a busy machine.
    assert!(longest.as_secs_f64() < LEASE + 2.0 * 0.2 + 1.0, "{longest:?}");
}
