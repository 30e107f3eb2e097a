//! Pairs two processes that know only a common directory, by names that are created exclusively.
//!
//! ```text
//! .doctor-peers/invite.<token>   a process waits
//!               taken.<token>    the invitation is taken: by a partner, or by the process itself, which closes it
//!               pair.<token>/    the process has seen that, and is A; its partner is B
//! ```
//!
//! Of two waiting processes, the one with the larger token closes its own invitation and takes the other's. A taken
//! invitation that makes no pair was left by a process that died, and is removed.

use super::super::{CannotMeasure, Stop};
use crate::probe::{SCRATCH, Subject};
use ringreel::fs::poll::jittered;
use ringreel::fs::{Fs, FsError, FsResult};
use ringreel::random::random_bytes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two polls.
const LOOK: Duration = Duration::from_millis(30);
/// Longest time for a process whose invitation was taken to make a pair.
const GRACE: Duration = Duration::from_secs(10);

/// A pair of processes.
pub struct Pair {
    /// Their directory.
    pub dir: PathBuf,
    /// Whether this process is A, which makes the changes.
    pub is_a: bool,
    /// The prefix of this process's tokens.
    pub me: String,
    root: PathBuf,
}

impl Pair {
    /// Removes the names of the meeting: those of this process, and those of its partner if it is known.
    pub fn clean(&self, fs: &dyn Fs, partner: Option<&str>) {
        sweep(fs, &self.root, &self.me);
        partner.into_iter().for_each(|partner| sweep(fs, &self.root, partner));
    }
}

/// Removes the names with tokens of `whom`, and the directory if it is empty.
fn sweep(fs: &dyn Fs, root: &Path, whom: &str) {
    for name in fs.list(root).unwrap_or_default() {
        if name.split_once('.').is_some_and(|(_, token)| token.starts_with(whom)) {
            let _ = fs.forget_file(&root.join(name));
        }
    }
    let _ = fs.remove_dir(root);
}

struct Meeting<'a> {
    fs: &'a dyn Fs,
    root: PathBuf,
    end: Instant,
    grace: Duration,
    stop: &'a Stop,
    me: String,
    attempt: u32,
    dead: BTreeSet<String>,
}

/// The result of waiting.
enum Turn {
    A(PathBuf),
    B(PathBuf),
    Again,
}

/// Waits in `place` for another process.
///
/// # Errors
/// No other process appeared; the doctor was stopped; the filesystem's errors.
pub fn meet(subject: &Subject, place: &Path, limit: Duration, stop: &Stop) -> Result<Pair, CannotMeasure> {
    let root = place.join(format!("{SCRATCH}peers"));
    let (end, grace) = (Instant::now() + limit, GRACE.min(limit / 3));
    let me: String = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut meeting = Meeting { fs: &*subject.fs, root, end, grace, stop, me, attempt: 0, dead: BTreeSet::new() };
    let turn = loop {
        match meeting.wait() {
            Ok(Turn::Again) => {}
            Ok(turn) => break Ok(turn),
            // Another pair has just finished and removed the directory.
            Err(Some(error)) if error.is_gone() && error.path != meeting.root => {
                if meeting.over() {
                    break Err(None);
                }
            }
            Err(why) => break Err(why),
        }
    };
    let Meeting { root, me, .. } = meeting;
    let (dir, is_a) = match turn {
        Ok(Turn::A(dir)) => (dir, true),
        Ok(Turn::B(dir)) => (dir, false),
        Ok(Turn::Again) | Err(None) => {
            sweep(&*subject.fs, &root, &me);
            let place = place.display();
            return Err(CannotMeasure(if stop() {
                "interrupted while waiting for the other side".to_owned()
            } else {
                format!(
                    "no other process appeared in {place} within {:.0} s: start the same command on another node at the \
                     same time, and check that both see this directory (or raise --peer-timeout)",
                    limit.as_secs_f64()
                )
            }));
        }
        Err(Some(error)) => {
            sweep(&*subject.fs, &root, &me);
            return Err(CannotMeasure(format!("two nodes cannot meet here: {error}")));
        }
    };
    Ok(Pair { dir, is_a, me, root })
}

impl Meeting<'_> {
    fn name(&self, kind: &str, token: &str) -> PathBuf {
        self.root.join(format!("{kind}.{token}"))
    }

    /// Creates a name exclusively. Returns false if it exists.
    fn make(&self, path: &Path) -> FsResult<bool> {
        match self.fs.create_new(path) {
            Ok(file) => file.close().map(|()| true),
            Err(error) if error.is_taken() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn over(&self) -> bool {
        Instant::now() >= self.end || (self.stop)()
    }

    /// Invites and waits. Returns `Err(None)` when the time is over.
    fn wait(&mut self) -> Result<Turn, Option<FsError>> {
        self.attempt += 1;
        let me = format!("{}-{}", self.me, self.attempt);
        let (invite, taken) = (self.name("invite", &me), self.name("taken", &me));
        self.fs.ensure_dir(&self.root)?;
        self.make(&invite)?;
        loop {
            let names: BTreeSet<String> = self.look(&me)?.into_iter().collect();
            if names.contains(&format!("taken.{me}")) {
                return self.become_a(&me).map_err(Some);
            }
            if self.over() {
                // Closes the invitation, unless it was taken at the last moment.
                return if self.make(&taken)? { Err(None) } else { self.become_a(&me).map_err(Some) };
            }
            if !names.contains(&format!("invite.{me}")) {
                return Ok(Turn::Again); // another process considered this one dead
            }
            let free = |token: &&str| {
                **token < *me && !names.contains(&format!("taken.{token}")) && !self.dead.contains::<str>(token)
            };
            let other = names.iter().filter_map(|name| name.strip_prefix("invite.")).find(free).map(str::to_owned);
            if let Some(other) = other {
                if !self.make(&taken)? {
                    return self.become_a(&me).map_err(Some);
                }
                let _ = self.fs.forget_file(&invite);
                let mine = self.make(&self.name("taken", &other))?;
                return if mine { self.await_pair(&other) } else { Ok(Turn::Again) };
            }
            std::thread::sleep(jittered(LOOK));
        }
    }

    /// Lists the names. Creates and removes a name before, so that clients that cache listings refresh them.
    fn look(&self, me: &str) -> FsResult<Vec<String>> {
        let poke = self.name("look", me);
        self.make(&poke)?;
        let names = self.fs.list(&self.root);
        self.fs.forget_file(&poke)?;
        names
    }

    fn become_a(&self, me: &str) -> FsResult<Turn> {
        let dir = self.name("pair", me);
        self.fs.ensure_dir(&dir)?;
        Ok(Turn::A(dir))
    }

    fn await_pair(&mut self, other: &str) -> Result<Turn, Option<FsError>> {
        let (dir, begun) = (self.name("pair", other), Instant::now());
        while begun.elapsed() < self.grace && !(self.stop)() {
            let names = self.look(&format!("{}-{}", self.me, self.attempt))?;
            if names.contains(&format!("pair.{other}")) {
                return Ok(Turn::B(dir));
            }
            std::thread::sleep(jittered(LOOK));
        }
        tracing::debug!(other, "a process that waited here is dead");
        self.dead.insert(other.to_owned());
        for kind in ["invite", "taken"] {
            let _ = self.fs.forget_file(&self.name(kind, other));
        }
        if self.over() { Err(None) } else { Ok(Turn::Again) }
    }
}
