//! What tests share that run the command or examine a ring from outside: a directory with a configuration, the binary
//! and its output, samples that are identified by a number, small filesystems, and listings with contents.

use crate::{coordination, lines};
use ringreel::read::ReadSample;
use ringreel::{Config, Generator, NamedPart};
use ringreel_format::recordio::RecordReader;
use ringreel_format::{DType, Meta, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub use crate::wait::{PATIENCE, eventually, loudly};

/// A directory with a `config.yaml`; its ring is `demo.ring` unless the configuration says otherwise.
pub struct Place {
    dir: TempDir,
}

impl Place {
    /// A new directory with this configuration, preceded by `DBNAME: demo` and short times.
    pub fn new(yaml: &str) -> Place {
        let place = Place::verbatim("");
        let index = coordination::lines(place.path());
        place.configure(&format!("DBNAME: demo\nPOLL_SECONDS: 0.02\nLEASE_SECONDS: 1\n{yaml}\n{index}"));
        place
    }

    /// A new directory with only this configuration.
    pub fn verbatim(yaml: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let place = Place { dir };
        place.configure(yaml);
        place
    }

    /// Replaces the configuration.
    pub fn configure(&self, yaml: &str) {
        fs::write(self.dir.path().join("config.yaml"), yaml).unwrap();
    }

    /// The same configuration with additional lines.
    pub fn with(&self, more: &str) -> Config {
        let text = fs::read_to_string(self.dir.path().join("config.yaml")).unwrap();
        Config::parse(&format!("{text}\n{more}"), "config.yaml", self.dir.path(), true).unwrap()
    }

    pub fn config(&self) -> Config {
        self.with("")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn ring(&self) -> PathBuf {
        self.dir.path().join("demo.ring")
    }

    /// The command with this directory as working directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(crate::binary());
        command.args(args).current_dir(self.dir.path()).env_remove("RINGREEL_LOG");
        command
    }

    /// Runs the command in this directory and waits for its end.
    pub fn run(&self, args: &[&str]) -> Said {
        Running::start(self.command(args)).finish()
    }

    /// Starts the command in this directory.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }
}

/// A running command. It is killed when it is dropped.
pub struct Running {
    child: Child,
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
    threads: Vec<JoinHandle<()>>,
}

/// The output and exit status of a command.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Running {
    pub fn start(command: Command) -> Running {
        Running::start_with(command, Stdio::null()).0
    }

    /// The same, with a pipe to its stdin.
    pub fn start_with_input(command: Command) -> (Running, ChildStdin) {
        let (running, input) = Running::start_with(command, Stdio::piped());
        (running, input.unwrap())
    }

    fn start_with(mut command: Command, input: Stdio) -> (Running, Option<ChildStdin>) {
        let piped = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let input = child.stdin.take();
        let (out, err) = (Arc::default(), Arc::default());
        let stdout = collect(child.stdout.take().unwrap(), &out);
        let stderr = collect(child.stderr.take().unwrap(), &err);
        (Running { child, out, err, threads: vec![stdout, stderr] }, input)
    }

    pub fn err(&self) -> String {
        String::from_utf8(self.err.lock().unwrap().clone()).unwrap()
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().unwrap()).into_owned()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until stderr holds `text`.
    pub fn await_err(&mut self, text: &str) {
        let begun = Instant::now();
        while !self.err().contains(text) {
            let said = self.err();
            assert!(self.is_running(), "the command ended without printing {text:?}: {said}");
            assert!(begun.elapsed() < PATIENCE, "the command never printed {text:?}: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the process catches SIGTERM by now, or has ended.
    pub fn catches_sigterm(&self) -> bool {
        let path = format!("/proc/{}/status", self.child.id());
        let Ok(status) = fs::read_to_string(path) else { return true }; // it has ended, and was reaped
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap();
        caught & (1 << (15 - 1)) != 0 || field("State:").starts_with('Z')
    }

    /// Sends SIGTERM, as a batch system does, once the process catches it. The process may have ended already.
    pub fn terminate(&self) {
        eventually("the process catches SIGTERM", || self.catches_sigterm());
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).stderr(Stdio::null()).status();
        kill.unwrap();
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Said {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "the command does not end: {}", self.err());
            std::thread::sleep(Duration::from_millis(2));
        };
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        let text = |bytes: &Mutex<Vec<u8>>| String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
        Said { code: status.code(), status, out: text(&self.out), err: text(&self.err) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let to = to.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            to.lock().unwrap().extend_from_slice(&buffer[..n]);
        }
    })
}

impl Said {
    /// The lines of stdout, each a JSON object.
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The values of `key` in the lines that have it.
    pub fn values(&self, key: &str) -> Vec<String> {
        let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
        self.json().iter().filter_map(|line| line.get(key).map(text)).collect()
    }

    pub fn ok(self) -> Said {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }
}

/// Whether processes can be traced; if not, prints which test is skipped.
pub fn there_is_strace(for_what: &str) -> bool {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    let there = traced.is_ok_and(|done| done.status.success());
    if !there {
        loudly(&format!("SKIPPED: {for_what}: strace (Debian package strace) is missing or not permitted"));
    }
    there
}

/// The ids of finished samples in a ledger.
pub fn ledger(path: &Path) -> BTreeSet<String> {
    lines::whole_lines(path).into_iter().collect()
}

/// Everything below a directory: kind, mode, and contents (of a link: its target). Times and link counts of directories
/// are omitted.
pub fn listing(dir: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let (name, contents) = if kind.is_dir() {
                todo.push(path.clone());
                ("directory", Vec::new())
            } else if kind.is_symlink() {
                ("link", fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else if kind.is_file() {
                ("file", fs::read(&path).unwrap())
            } else {
                (if kind.is_fifo() { "fifo" } else { "other" }, Vec::new())
            };
            all.insert(path, (format!("{name} {:o} {}", meta.mode(), meta.uid()), contents));
        }
    }
    all
}

/// Runs the command as another user than root. Returns none, with a message, if this is not possible.
pub fn as_nobody(test: &str, place: &Place, args: &[&str]) -> Option<Said> {
    let am_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let other = |args: &[&str]| {
        let mut command = place.command(args);
        if am_root {
            command.uid(65534).gid(65534);
        }
        command
    };
    match other(&["--version"]).output() {
        Ok(done) if done.status.success() => Some(Running::start(other(args)).finish()),
        why => {
            loudly(&format!("SKIPPED: {test}: the command cannot be run as another user: {why:?}"));
            None
        }
    }
}

/// Runs a tool of the system. Returns false, with a message, if this is not possible, so that the test is skipped.
fn done_or_skipped(test: &str, command: &mut Command) -> bool {
    let tool = command.get_program().to_string_lossy().into_owned();
    let why = match command.output() {
        Ok(done) if done.status.success() => return true,
        Ok(done) => String::from_utf8_lossy(&done.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    loudly(&format!("SKIPPED: {test}: {tool} cannot be run: {why}"));
    false
}

/// A small filesystem, unmounted when this is dropped.
pub struct Mount {
    dir: TempDir,
    /// The disk under it, if any.
    image: Option<PathBuf>,
}

impl Mount {
    /// Mounts a tmpfs with these options. Returns none if this user must not mount.
    pub fn tmpfs(test: &str, options: &str) -> Option<Mount> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(dir.path());
        done_or_skipped(test, &mut mount).then_some(Mount { dir, image: None })
    }

    /// Mounts a filesystem of this kind (`ext4`, `xfs`) on a disk of `mib` MiB, which is a file in `home`. Returns none
    /// if this user must not mount, or if the tool that formats it is missing.
    pub fn disk(test: &str, kind: &str, mib: u64, home: &Path) -> Option<Mount> {
        let image = home.join(format!("disk.{kind}"));
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let mut make = Command::new(format!("mkfs.{kind}"));
        make.arg("-q").arg(&image);
        let mount = Mount { dir: tempfile::tempdir().unwrap(), image: Some(image) };
        (done_or_skipped(test, &mut make) && done_or_skipped(test, &mut mount.mounting())).then_some(mount)
    }

    fn mounting(&self) -> Command {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).args(&self.image).arg(self.path());
        mount
    }

    /// Cuts the power of its disk (FS_IOC_SHUTDOWN without flushing the journal, `linux/fs.h`), also while it is in
    /// use.
    pub fn cut_power(&self) {
        let cut = "import fcntl, os, struct, sys\n\
                   fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
        assert!(Command::new("python3").args(["-c", cut]).arg(self.path()).status().unwrap().success());
    }

    /// Restores the power: remounts the disk with what it contains.
    pub fn start_again(&self) {
        assert!(Command::new("umount").arg(self.path()).status().unwrap().success());
        assert!(self.mounting().status().unwrap().success());
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Changes its mount options.
    pub fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status();
        assert!(done.unwrap().success());
    }

    /// Fills all space except for this number of pages.
    pub fn fill_up(&self, but_pages: usize) {
        let path = self.path().join("filler");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len - 4096 * but_pages as u64).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.path()).output();
        if !done.is_ok_and(|done| done.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(self.path()).output();
        }
    }
}

/// Lengths of the part `data`, the large one, and of `label`, the small one.
pub const DATA: usize = 4096;
pub const LABEL: usize = 16;

/// The contents of part `part` of sample `n`. Mostly zeros, so that it can be compressed.
pub fn contents(n: u64, part: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| if i % 8 < 4 { 0 } else { (i / 8 * 31 + n * 7 + part * 101 + i % 8) as u8 }).collect()
}

/// Writes sample `n`.
pub fn put(generator: &mut Generator, n: u64) -> Vec<ringreel::SampleId> {
    try_put(generator, n, &|| false).unwrap()
}

/// Writes sample `n`, and returns an error if that fails or `stop` returns true.
pub fn try_put(
    generator: &mut Generator,
    n: u64,
    stop: &dyn Fn() -> bool,
) -> ringreel::Result<Vec<ringreel::SampleId>> {
    let (data, label) = (contents(n, 0, DATA), contents(n, 1, LABEL));
    let parts = [
        NamedPart::new("data", DType::U8, &[DATA as u64], &data),
        NamedPart::new("label", DType::U8, &[LABEL as u64], &label),
    ];
    let mut meta = Meta::new();
    meta.set("n", n);
    generator.write(&parts, &meta, stop)
}

/// Writes these samples, and promotes all of them.
pub fn generate(config: &Config, numbers: std::ops::Range<u64>) {
    let mut generator = Generator::open(config).unwrap();
    numbers.for_each(|n| drop(put(&mut generator, n)));
    let summary = generator.finish(true, &|| false).unwrap();
    assert_eq!(summary.waiting, 0, "{summary:?}");
}

/// Returns the number of a sample that [`put`] wrote, after comparing every byte.
pub fn checked(sample: &ReadSample) -> u64 {
    let Some(Value::Int(n)) = sample.meta.get("n") else { panic!("no number: {:?}", sample.meta) };
    let n = *n as u64;
    let names: Vec<_> = sample.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["data", "label"]);
    for (part, (which, len)) in sample.parts.iter().zip([(0, DATA), (1, LABEL)]) {
        assert_eq!(part.shape, [len as u64]);
        assert!(part.data().unwrap()[..] == contents(n, which, len)[..], "sample {n} has wrong bytes in {}", part.name);
    }
    n
}

/// The payloads in a RecordIO file.
pub fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut reader = RecordReader::new(&bytes[..]);
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        all.push(record.payload.to_vec());
    }
    all
}
