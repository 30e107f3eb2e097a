//! Checks of this machine: limits, memory, processors, clock and Python package.

use super::facts::Fact;
use super::{CannotMeasure, Doctor, Outcome};
use ringreel::memory::group_limit;
use ringreel::read::OPEN_SEGMENTS;
use ringreel::unix_ms;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const GROUP: &str = "machine";
/// Number of files that a process opens besides segments: libraries, sockets, pipes to workers.
const OTHER_FILES: u64 = 64;
/// Number of files for a loader with workers, which passes data through files.
pub const ROOMY_FILES: u64 = 1024;
/// Number of threads and processes of a training job with workers.
const PROCESSES: u64 = 256;
const MIB: u64 = 1 << 20;
/// 2020-01-01, in milliseconds since 1970.
const YEAR_2020_MS: u64 = 1_577_836_800_000;
/// Longest time for Python to import a package.
const PYTHON: Duration = Duration::from_secs(5);

/// Facts about a machine. `None` means no limit, or unknown.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Maximum number of open files per process.
    pub open_files: Option<u64>,
    /// Maximum number of processes and threads of this user.
    pub processes: Option<u64>,
    /// Maximum number of mapped bytes per process.
    pub address_space: Option<u64>,
    /// Maximum number of locked bytes per process.
    pub locked: Option<u64>,
    /// Free bytes in /dev/shm.
    pub shm: Option<u64>,
    /// Available memory in bytes.
    pub memory: Option<u64>,
    /// Memory limit of this control group in bytes.
    pub memory_limit: Option<u64>,
    /// Number of processors that this process may use, by affinity and control group, and of all processors.
    pub processors: (usize, usize),
    /// Unix time in milliseconds.
    pub unix_ms: u64,
    /// The directory of temporary files, and whether it is writable.
    pub temp: (PathBuf, bool),
    /// Names and values of environment variables of SLURM and other launchers.
    pub job: Vec<(&'static str, String)>,
}

/// Environment variables that name the job and the rank of a process.
const JOB: [&str; 8] = [
    "RANK",
    "WORLD_SIZE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
];

impl Machine {
    /// Collects the facts about this machine.
    pub fn look(doctor: &super::Subject) -> Machine {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let may = std::thread::available_parallelism().map_or(1, Into::into);
        let temp = std::env::temp_dir();
        let writable = doctor.extra.may_write(&temp);
        Machine {
            open_files: getrlimit(Resource::Nofile).current,
            processes: getrlimit(Resource::Nproc).current,
            address_space: getrlimit(Resource::As).current,
            locked: getrlimit(Resource::Memlock).current,
            shm: doctor.fs.space(Path::new("/dev/shm")).ok().map(|space| space.bytes),
            memory: available(&meminfo),
            memory_limit: group_limit(),
            processors: (may, in_list(&online).max(may)),
            unix_ms: unix_ms(),
            temp: (temp, writable),
            job: JOB.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?))).collect(),
        }
    }

    /// Returns each check: its name and outcome.
    pub fn judge(&self) -> Vec<(&'static str, Outcome)> {
        vec![
            ("open files (ulimit -n)", self.files()),
            ("processes (ulimit -u)", {
                let limit = self.processes;
                let is_enough = limit.is_none_or(|n| n >= PROCESSES);
                Outcome::ok_if(is_enough, Fact::Processes { limit, wanted: PROCESSES })
            }),
            ("address space (ulimit -v)", {
                let limit = self.address_space;
                Outcome::ok_if(limit.is_none(), Fact::AddressSpace { limit })
            }),
            ("locked memory (ulimit -l)", Outcome::ok(Fact::Locked { limit: self.locked })),
            ("/dev/shm", {
                let is_enough = self.shm.is_some_and(|free| free >= 64 * MIB);
                Outcome::ok_if(is_enough, Fact::Shm { free: self.shm })
            }),
            ("memory", {
                let (available, limit) = (self.memory, self.memory_limit);
                let is_enough = [available, limit].into_iter().flatten().all(|bytes| bytes >= 1024 * MIB);
                Outcome::ok_if(is_enough, Fact::Memory { available, limit })
            }),
            ("processors", {
                let (usable, all) = self.processors;
                Outcome::ok_if(usable != 1 || all <= 1, Fact::Processors { usable, all })
            }),
            ("clock", {
                let clock = Fact::Clock { unix_seconds: self.unix_ms / 1000 };
                Outcome::ok_if(self.unix_ms >= YEAR_2020_MS, clock)
            }),
            ("TMPDIR", {
                let (path, is_writable) = self.temp.clone();
                Outcome::ok_if(is_writable, Fact::Temp { path, is_writable })
            }),
            ("job", self.of_job()),
        ]
    }

    fn files(&self) -> Outcome {
        let (limit, held) = (self.open_files, OPEN_SEGMENTS as u64);
        let least = held + OTHER_FILES;
        let fact = Fact::OpenFiles { limit, held, least };
        match limit {
            Some(n) if n < least => Outcome::failure(fact),
            Some(n) if n < ROOMY_FILES => Outcome::warning(fact),
            _ => Outcome::ok(fact),
        }
    }

    fn of_job(&self) -> Outcome {
        let of = |wanted: &str| self.job.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let seen = self.job.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
        let pairs = [
            ("RANK", "WORLD_SIZE"),
            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ];
        for (rank, size) in pairs {
            let number = |name| of(name).and_then(|value| value.trim().parse::<u64>().ok());
            match (of(rank), of(size), number(rank), number(size)) {
                (None, None, ..) => {}
                (_, _, Some(rank), Some(size)) if rank < size => {
                    return Outcome::ok(Fact::Job { rank: Some((rank, size)), seen });
                }
                // A batch script has a rank, and its size belongs to steps.
                (Some(_), None, ..) if rank == "SLURM_PROCID" => {}
                _ => {
                    let (rank, size) = (rank.to_owned(), size.to_owned());
                    return Outcome::warning(Fact::JobMismatch { rank, size, seen });
                }
            }
        }
        Outcome::ok(Fact::Job { rank: None, seen })
    }
}

/// Returns `MemAvailable` of /proc/meminfo in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Counts the numbers in a list such as `0-3,8`.
fn in_list(list: &str) -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let count = |range: &str| match range.split_once('-') {
        Some((first, last)) => Some(number(last)?.checked_sub(number(first)?)?.saturating_add(1)),
        None => number(range).map(|_| 1),
    };
    list.split(',').filter_map(count).fold(0, usize::saturating_add)
}

/// Checks this machine and the Python package.
pub(super) fn examine(doctor: &mut Doctor<'_>) -> Result<(), CannotMeasure> {
    let subject = doctor.subject.clone();
    let looked = doctor.measure(GROUP, "limits", move || Machine::look(&subject))?;
    for (check, outcome) in looked.into_iter().flat_map(|machine| machine.judge()) {
        doctor.say(GROUP, check, outcome);
    }
    doctor.check(GROUP, "Python package", || python(Command::new("python3"))).map(drop)
}

/// Compares the version of the package that `python` imports with this one.
pub fn python(mut python: Command) -> Outcome {
    const ASK: &str = "import ringreel; print(ringreel.__version__)";
    let command = python.args(["-c", ASK]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Outcome::ok(Fact::NoPython) };
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begun.elapsed() < PYTHON => std::thread::sleep(Duration::from_millis(10)),
            _ => break None,
        }
    };
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
        return Outcome::warning(Fact::PackageHangs { limit: PYTHON });
    }
    let said = child.wait_with_output().map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
    let (ours, version) = (env!("CARGO_PKG_VERSION").to_owned(), said.unwrap_or_default());
    if version.is_empty() {
        return Outcome::ok(Fact::NoPackage);
    }
    Outcome::ok_if(version == ours, Fact::Package { version, ours })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn healthy() -> Machine {
        Machine {
            shm: Some(1 << 30),
            processors: (2, 2),
            unix_ms: YEAR_2020_MS + 1,
            temp: ("/tmp".into(), true),
            ..Machine::default()
        }
    }

    fn verdict(machine: &Machine, check: &str) -> Verdict {
        machine.judge().into_iter().find(|(name, ..)| name.starts_with(check)).unwrap().1.verdict
    }

    #[test]
    fn each_limit_that_is_too_small_is_named_and_nothing_else() {
        assert!(healthy().judge().iter().all(|(_, outcome)| outcome.verdict == Verdict::Ok));
        let job =
            |rank: &str, size: &str| vec![("SLURM_PROCID", rank.to_owned()), ("SLURM_STEP_NUM_TASKS", size.to_owned())];
        let (bad, low) = (Verdict::Failure, Verdict::Warning);
        let cases = [
            ("open files", bad, Machine { open_files: Some(100), ..healthy() }),
            ("open files", low, Machine { open_files: Some(1023), ..healthy() }),
            ("processes", low, Machine { processes: Some(100), ..healthy() }),
            ("address", low, Machine { address_space: Some(1 << 32), ..healthy() }),
            ("/dev/shm", low, Machine { shm: Some(64 * MIB - 1), ..healthy() }),
            ("/dev/shm", low, Machine { shm: None, ..healthy() }),
            ("memory", low, Machine { memory: Some(1 << 29), ..healthy() }),
            ("memory", low, Machine { memory_limit: Some(1 << 29), memory: Some(1 << 40), ..healthy() }),
            ("processors", low, Machine { processors: (1, 64), ..healthy() }),
            ("clock", low, Machine { unix_ms: 1000, ..healthy() }),
            ("TMPDIR", low, Machine { temp: ("/nowhere".into(), false), ..healthy() }),
            ("job", low, Machine { job: job("2", "2"), ..healthy() }),
            ("job", low, Machine { job: job("x", "2"), ..healthy() }),
        ];
        for (check, expected, machine) in cases {
            assert_eq!(verdict(&machine, check), expected, "{machine:?}");
            let others = machine.judge().into_iter().filter(|(_, outcome)| outcome.verdict != Verdict::Ok);
            assert_eq!(others.count(), 1, "{machine:?}");
        }
        assert_eq!(verdict(&Machine { job: job("1", "2"), ..healthy() }, "job"), Verdict::Ok);
        let script = Machine { job: vec![("SLURM_PROCID", "0".to_owned())], ..healthy() };
        assert_eq!(verdict(&script, "job"), Verdict::Ok, "a batch script");
    }

    #[test]
    fn kernel_files_are_parsed_and_invalid_lines_ignored() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12_288));
        assert_eq!(available("MemAvailable: 99999999999999999999 kB"), None);
        assert_eq!((in_list("0-3,8\n"), in_list("0"), in_list("5-2"), in_list("")), (5, 1, 0, 0));
        assert_eq!(in_list(&format!("0-{},0-{}", usize::MAX, usize::MAX)), usize::MAX);
    }

    #[test]
    fn another_version_of_the_python_package_is_named() {
        let shell = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            python(command)
        };
        assert_eq!(shell("echo 0.0.0").verdict, Verdict::Warning);
        assert_eq!(shell(concat!("echo ", env!("CARGO_PKG_VERSION"))).verdict, Verdict::Ok);
        assert_eq!(shell("exit 1").verdict, Verdict::Ok);
        assert_eq!(python(Command::new("/nowhere/python3")).verdict, Verdict::Ok);
    }
}
