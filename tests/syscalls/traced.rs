//! A process under strace: its calls, and a signal at one of them.

use crate::PATIENCE;
use crate::scene::{LEASE, Scene};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Calls that may touch a ring; `?` marks those that some machines lack.
const CALLS: &str = "openat,?link,linkat,?rename,renameat,?renameat2,?mkdir,mkdirat,?unlink,unlinkat,?rmdir,write,pwrite64,\
                     ftruncate,fsync,fdatasync,close";
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strike {
    KillBefore,
    KillAfter,
    /// Stopped until the other processes consider it dead.
    Stop,
    /// Stopped until its unfinished files are removed.
    LongStop,
}

/// A system call of a run: the `count`-th call of this name.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub count: usize,
    pub line: String,
}

impl Call {
    /// Whether it changes the ring other than by heartbeats and the lease.
    pub fn is_step(&self) -> bool {
        let beside =
            ["/index/members", "/index/leases", "/index/tmp", "/reserve"].iter().any(|it| self.line.contains(it));
        let looks = self.name == "openat" && !self.line.contains("O_CREAT") || self.name == "close";
        !beside && !looks
    }
}

/// A process under strace; strace is not its parent.
pub struct Traced<'a> {
    pub scene: &'a Scene,
    pub dir: &'a Path,
    pub child: Child,
    pub log: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Killed,
    Stopped,
    Ended,
}

impl<'a> Traced<'a> {
    pub fn start(scene: &'a Scene, dir: &'a Path, log: &'static str, strike: Option<(&Call, Strike)>) -> Traced<'a> {
        let _ = fs::remove_file(dir.join(log)); // of the previous run
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-y", "-o", log, "-e", &format!("trace={CALLS}")]);
        if let Some((Call { name, count, .. }, strike)) = strike {
            // A SIGKILL takes effect before the call, a SIGSTOP after it.
            let signal = if strike == Strike::KillBefore { "SIGKILL" } else { "SIGSTOP" };
            command.args(["-e", &format!("inject={name}:signal={signal}:when={count}")]);
        }
        command.arg(testkit::binary()).args(scene.arguments()).current_dir(dir);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Traced { scene, dir, child, log }
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.join(self.log)).unwrap_or_default()).into_owned()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal); // it may have ended
    }

    /// Waits until it is killed, stopped or done. Asks a manager that is done to end.
    pub fn fate(&mut self, strike: Option<Strike>) -> Fate {
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
                std::thread::sleep(LEASE * 2); // it recovers at intervals, maybe after taking over the lease
                self.signal(Signal::TERM);
                asked = true;
            }
            assert!(begun.elapsed() < PATIENCE, "the process hangs: {}", self.log());
            std::thread::sleep(Duration::from_millis(4));
        }
    }

    /// Whether its main thread was hit at the intended call. (Each thread has separate counts.)
    pub fn was_hit_at(&self, call: &Call) -> bool {
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

/// All calls that thread `pid` began, from strace's log.
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

/// The calls on the ring that the main thread of an undisturbed run makes. Opening and closing directories for a path
/// lookup (`O_PATH`) is omitted, because a death there equals a death before the next call.
pub fn calls_in(scene: &Scene) -> Vec<Call> {
    let dir = scene.copy();
    let mut traced = Traced::start(scene, dir.path(), "trace", None);
    assert_eq!(traced.fate(None), Fate::Ended);
    let mut open = HashSet::new();
    let mut touches = |call: &Call| {
        let result = || call.line.rsplit_once(" = ").and_then(|(_, fd)| fd.split('<').next()).map(str::to_owned);
        match call.name.as_str() {
            "openat" if call.line.contains("O_PATH") => false,
            "openat" => {
                open.extend(result());
                true
            }
            "close" => call.line["close(".len()..].split('<').next().is_some_and(|fd| open.remove(fd)),
            _ => true,
        }
    };
    let calls = calls_of(&traced.log(), traced.child.id());
    calls.into_iter().filter(|call| touches(call) && call.line.contains("t.ring")).collect()
}
