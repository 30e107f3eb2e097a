//! The members: real processes, each with separate options, which are started again when they end.

use ringreel::Config;
use rustix::process::{Pid, Signal};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use testkit::coordination;

pub const LEASE: f64 = 0.3;
pub const CAP: u64 = 20;
/// Signals that mean a crash: SIGILL, SIGABRT, SIGBUS, SIGSEGV.
const CRASHES: [i32; 4] = [4, 6, 7, 11];
/// A process that was asked to end must end within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each generator's configuration lines and arguments.
const GENERATORS: [(&str, &[&str]); 5] = [
    ("SEGMENT_SAMPLES: 1", &["--rate", "25"]),
    ("SEGMENT_SAMPLES: 2\nCOMPRESS: 1", &["--rate", "40"]),
    ("SEGMENT_SAMPLES: auto\nCHUNKSIZE: 2", &["--rate", "80"]),
    ("SEGMENT_SAMPLES: 3\nDURABILITY: node", &["--rate", "30", "--samples", "50", "--promote"]),
    ("SEGMENT_SAMPLES: 4\nCOMPRESS: {label: 3}", &["--rate", "60", "--samples", "17", "--promote"]),
];
const READERS: [&[&str]; 4] = [
    &["--world-size", "2", "--rank", "0", "--generations", "40"],
    &["--world-size", "2", "--rank", "1", "--generations", "40"],
    &["--generations", "15", "--shuffle"],
    &["--run", "train", "--generations", "20", "--shuffle"],
];
/// Commands that run once. `verify` may run while the ring is in use, and must find no damage that does not exist.
const ONE_OFFS: [&[&str]; 8] = [
    &["status", "--json"],
    &["verify", "RING"],
    &["repair", "-c", "config.yaml", "--apply"],
    &["repair", "RING"],
    &["gc", "-c", "config.yaml", "--apply"],
    &["promote"],
    &["read", "--all", "--json"],
    &["inspect", "RING"],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Manager,
    Generator(usize),
    Reader(usize),
    OneOff(usize),
}

pub struct Member {
    pub role: Role,
    pub child: Child,
    number: usize,
    stopped_until: Option<Instant>,
    asked_to_end: Option<Instant>,
}

pub struct Members {
    /// The working directory: configurations, ledgers, logs, readers' output.
    dir: PathBuf,
    /// The ring's path on each of its mounts.
    rings: Vec<PathBuf>,
    pub members: Vec<Member>,
    born: usize,
    /// Counts of processes that ended with an error, by message; and the same for one-off commands, which may fail.
    pub failed: BTreeMap<String, u64>,
    pub one_offs: BTreeMap<String, u64>,
}

impl Members {
    pub fn new(dir: &Path, rings: Vec<PathBuf>) -> Members {
        // The storm drops its database, so no other ring may use it.
        let database: String = dir.file_name().unwrap().to_string_lossy().replace('.', "");
        for (mount, ring) in rings.iter().enumerate() {
            let base = format!(
                "DBNAME: storm{database}\nRING: {}\nSWAP_CAP: {CAP}\nSAMPLE: [data, label]\nLEASE_SECONDS: {LEASE}\nKEEP: 2\nVALIDATION: 7\n{}",
                ring.display(),
                coordination::lines(dir)
            );
            let write = |name: String, more: &str| {
                fs::create_dir_all(dir.join(&name)).unwrap();
                fs::write(dir.join(name).join("config.yaml"), format!("{base}\n{more}\n")).unwrap();
            };
            write(format!("{mount}"), "");
            GENERATORS.iter().enumerate().for_each(|(n, (more, _))| write(format!("{mount}.{n}"), more));
        }
        let dir = dir.to_owned();
        Members { dir, rings, members: Vec::new(), born: 0, failed: BTreeMap::new(), one_offs: BTreeMap::new() }
    }

    /// The manager's configuration, on the first mount.
    pub fn config(&self) -> Config {
        Config::load(&self.dir.join("0/config.yaml")).unwrap()
    }

    pub fn start(&mut self, role: Role) {
        self.born += 1;
        let (number, mount) = (self.born, self.born % self.rings.len());
        let mut command = Command::new(testkit::binary());
        let seed = number.to_string();
        let mut place = format!("{mount}");
        match role {
            Role::Manager => drop(command.arg("manager")),
            Role::Generator(n) => {
                place = format!("{mount}.{n}");
                let ledger = self.dir.join(format!("ledger.{number}"));
                command.args(["generate", "--shape", "20,20,20", "--seed", &seed, "--ledger"]).arg(ledger);
                command.args(GENERATORS[n].1);
            }
            Role::Reader(n) => drop(command.args(["read", "--json", "--seed", &seed]).args(READERS[n])),
            Role::OneOff(n) => {
                let ring = self.rings[mount].to_str().unwrap();
                command.args(ONE_OFFS[n].iter().map(|arg| if *arg == "RING" { ring } else { arg }));
            }
        }
        let reads = matches!(role, Role::Reader(_)) || matches!(role, Role::OneOff(n) if ONE_OFFS[n][0] == "read");
        let out = if reads { format!("seen.{number}") } else { format!("out.{number}") };
        let file = |name: &str| File::create(self.dir.join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&format!("log.{number}")));
        let child = command.current_dir(self.dir.join(place)).env_remove("RINGREEL_LOG").spawn().unwrap();
        self.members.push(Member { role, child, number, stopped_until: None, asked_to_end: None });
    }

    pub fn start_one_off(&mut self, which: u64) -> usize {
        self.start(Role::OneOff(which as usize % ONE_OFFS.len()));
        1
    }

    fn again(&mut self, role: Role) {
        if !matches!(role, Role::OneOff(_)) {
            self.start(role);
        }
    }

    /// Kills a process; a new one replaces it.
    pub fn kill(&mut self, target: usize) -> usize {
        let role = self.end(target % self.members.len());
        self.again(role);
        1
    }

    pub fn kill_all(&mut self) -> usize {
        let roles: Vec<Role> = (0..self.members.len()).map(|_| self.end(0)).collect();
        roles.iter().for_each(|role| self.again(*role));
        roles.len()
    }

    fn end(&mut self, n: usize) -> Role {
        let mut member = self.members.remove(n);
        member.child.kill().unwrap();
        member.child.wait().unwrap();
        member.role
    }

    pub fn stop(&mut self, target: usize, time: Duration) -> usize {
        let n = target % self.members.len();
        self.members[n].stopped_until = Some(Instant::now() + time);
        self.members[n].signal(Signal::STOP);
        1
    }

    pub fn terminate(&mut self, target: usize) -> usize {
        let n = target % self.members.len();
        self.members[n].asked_to_end.get_or_insert_with(Instant::now);
        self.members[n].signal(Signal::TERM);
        1
    }

    /// Continues stopped processes whose time is over, and restarts those that have ended.
    pub fn tend(&mut self, all: bool) {
        for member in &mut self.members {
            if member.stopped_until.is_some_and(|until| all || until <= Instant::now()) {
                member.stopped_until = None;
                member.signal(Signal::CONT);
                // The time for which it was stopped does not count.
                member.asked_to_end = member.asked_to_end.map(|_| Instant::now());
            }
            let idle = member.asked_to_end.filter(|_| member.stopped_until.is_none()).map(|asked| asked.elapsed());
            assert!(idle.is_none_or(|idle| idle < PATIENCE), "log.{}: it did not end when asked", member.number);
        }
        let mut n = 0;
        while n < self.members.len() {
            let Some(status) = self.members[n].child.try_wait().unwrap() else {
                n += 1;
                continue;
            };
            let member = self.members.remove(n);
            self.note(&member, status);
            self.again(member.role);
        }
    }

    fn note(&mut self, member: &Member, status: ExitStatus) {
        let said = || {
            let log = fs::read_to_string(self.dir.join(format!("log.{}", member.number))).unwrap_or_default();
            let last = log.lines().last().unwrap_or_default().to_owned();
            // Without the words that differ each time.
            last.split_whitespace().filter(|word| !word.contains(['/', ':'])).collect::<Vec<_>>().join(" ")
        };
        let crashed = status.code() == Some(101) || status.signal().is_some_and(|n| CRASHES.contains(&n));
        match (member.role, status.success()) {
            (Role::OneOff(_), _) if crashed => {
                let name = format!("{:?}, log.{}: {status}: {}", member.role, member.number, said());
                *self.failed.entry(name).or_default() += 1;
            }
            (Role::OneOff(n), ok) => {
                let (name, code) = (ONE_OFFS[n][..2.min(ONE_OFFS[n].len())].join(" "), status.code().unwrap_or(-1));
                let said = if ok || code == 1 { String::new() } else { format!(": {}", said()) };
                *self.one_offs.entry(format!("{name}: {code}{said}")).or_default() += 1;
            }
            (_, true) => {}
            // It was asked to end before it handled signals.
            _ if member.asked_to_end.is_some() && status.signal() == Some(Signal::TERM.as_raw()) => {}
            // The disk was full, so its open segment could not be sealed, which it reports.
            (Role::Generator(_), false) if member.asked_to_end.is_some() && said().contains("interrupted") => {}
            // Or its file was removed while it was stopped.
            (Role::Generator(_), false) if member.asked_to_end.is_some() && said().contains("rename No such file") => {}
            (role, false) => {
                let line = format!("{role:?} log.{} {status}: {}", member.number, said());
                *self.failed.entry(line).or_default() += 1;
            }
        }
    }

    /// Whether a generator works, that is, is neither stopped nor asked to end.
    pub fn generates(&self) -> bool {
        let works = |member: &Member| member.stopped_until.is_none() && member.asked_to_end.is_none();
        self.members.iter().any(|member| matches!(member.role, Role::Generator(_)) && works(member))
    }

    /// Kills all processes but managers.
    pub fn only_managers(&mut self) {
        while let Some(n) = self.members.iter().position(|member| member.role != Role::Manager) {
            self.end(n);
        }
    }

    pub fn pids(&self) -> HashMap<u32, Role> {
        self.members.iter().map(|member| (member.child.id(), member.role)).collect()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        while !self.members.is_empty() {
            self.end(0);
        }
    }
}

impl Member {
    pub fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }
}
