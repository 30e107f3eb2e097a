//! Checks whether a directory and a machine are suitable for a ring, before a job is queued: the configuration, the
//! behaviour of the filesystem, the index, this machine, and a pair of nodes.
//!
//! Each check returns what was measured ([`facts`]) and a verdict. The doctor measures in a scratch directory, which it
//! removes on every exit path; it changes nothing in the ring. A step that takes longer than [`LIMIT`] is reported and
//! abandoned, so that the doctor does not hang on an unresponsive server.
//!
//! | file | checks |
//! |---|---|
//! | [`config`] | the configuration and its ring |
//! | [`filesystem`], [`space`] | names and contents (measured by [`crate::probe`]); free space and permissions |
//! | [`index`] | the index, in files or in MongoDB |
//! | `mount` | mount options |
//! | [`machine`] | limits, memory and clock of this machine |
//! | [`peer`] | how two nodes see each other's changes |

pub mod config;
pub mod facts;
pub mod filesystem;
pub mod index;
pub mod machine;
mod mount;
pub mod peer;
pub mod space;

use crate::probe::{Subject, remove_tree, scratch_name};
use facts::{Cure, Fact};
use ringreel::config::Config;
use ringreel::error::FsError;

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest time for a step.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Interval at which `stop` is called.
const SLICE: Duration = Duration::from_millis(20);

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The ring works.
    Ok,
    /// The ring works, but slower than possible or with surprises.
    Warning,
    /// The ring does not work here, or not as configured.
    Failure,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `configuration`, `filesystem`, `index`, `machine` or `peer`.
    pub group: String,
    /// Its name.
    pub check: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// What was measured.
    pub fact: Fact,
}

/// The outcome of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// What was measured.
    pub fact: Fact,
}

impl Outcome {
    /// Creates an outcome that is ok.
    pub fn ok(fact: Fact) -> Outcome {
        Outcome { verdict: Verdict::Ok, fact }
    }

    /// Creates a warning.
    pub fn warning(fact: Fact) -> Outcome {
        Outcome { verdict: Verdict::Warning, fact }
    }

    /// Creates a failure.
    pub fn failure(fact: Fact) -> Outcome {
        Outcome { verdict: Verdict::Failure, fact }
    }

    /// Creates an outcome that is ok if `good`, else a warning.
    pub(crate) fn ok_if(good: bool, fact: Fact) -> Outcome {
        if good { Outcome::ok(fact) } else { Outcome::warning(fact) }
    }

    /// Creates a failure from an error of the filesystem.
    pub fn refused(error: &FsError, otherwise: Cure) -> Outcome {
        Outcome::failure(Fact::Refused { error: error.to_string(), cure: Cure::of(error, otherwise) })
    }
}

/// Returns true if the doctor is to stop.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Why no more checks can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotMeasure(pub String);

/// Runs checks, reports each one at once, and remembers the worst verdict.
pub struct Doctor<'a> {
    /// The filesystem to measure.
    pub subject: Subject,
    /// Longest time for a step.
    pub limit: Duration,
    stop: Stop,
    tell: Box<dyn FnMut(Check) + 'a>,
    worst: Verdict,
}

impl<'a> Doctor<'a> {
    /// Creates a doctor that passes checks to `tell`, and ends early when `stop` returns true.
    pub fn new(subject: Subject, stop: Stop, tell: impl FnMut(Check) + 'a) -> Doctor<'a> {
        Doctor { subject, limit: LIMIT, stop, tell: Box::new(tell), worst: Verdict::Ok }
    }

    /// Returns the worst verdict so far.
    pub fn worst(&self) -> Verdict {
        self.worst
    }

    /// Reports a check.
    pub fn told(&mut self, check: Check) {
        self.worst = self.worst.max(check.verdict);
        (self.tell)(check);
    }

    /// Reports the outcome of `check`.
    pub fn say(&mut self, group: &str, check: &str, outcome: Outcome) {
        let Outcome { verdict, fact } = outcome;
        self.told(Check { group: group.to_owned(), check: check.to_owned(), verdict, fact });
    }

    /// Measures in a separate thread. If it takes too long, reports that, abandons the thread and returns `None`.
    ///
    /// # Errors
    /// The doctor was stopped.
    pub fn measure<T: Send + 'static>(
        &mut self,
        group: &str,
        check: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, CannotMeasure> {
        let fact = match within(self.limit, &self.stop, work) {
            Within::Done(value) => return Ok(Some(value)),
            Within::Stopped => return Err(CannotMeasure("interrupted".to_owned())),
            Within::TooLong => Fact::Hangs { limit: self.limit },
            Within::Broken(why) => Fact::NotMeasured { why },
        };
        self.say(group, check, Outcome::failure(fact));
        Ok(None)
    }

    /// Measures and reports. Returns false if it takes too long.
    ///
    /// # Errors
    /// The doctor was stopped.
    pub fn check(
        &mut self,
        group: &str,
        check: &str,
        work: impl FnOnce() -> Outcome + Send + 'static,
    ) -> Result<bool, CannotMeasure> {
        let outcome = self.measure(group, check, work)?;
        let done = outcome.is_some();
        outcome.into_iter().for_each(|outcome| self.say(group, check, outcome));
        Ok(done)
    }

    /// Calls `work` with a scratch directory in `place`, and removes the directory afterwards in any case. If it cannot be
    /// created, reports that and returns `None`.
    ///
    /// # Errors
    /// As `work`.
    pub fn with_scratch<T>(
        &mut self,
        place: &Path,
        work: impl FnOnce(&mut Doctor<'a>, &Path) -> Result<T, CannotMeasure>,
    ) -> Result<Option<T>, CannotMeasure> {
        let scratch = scratch_name(place);
        let (subject, dir) = (self.subject.clone(), scratch.clone());
        let done = match self.measure("filesystem", "scratch", move || subject.make_scratch(&dir)) {
            Ok(Some(Err(error))) => {
                self.say("filesystem", "scratch", Outcome::refused(&error, Cure::OtherFilesystem));
                return Ok(None);
            }
            Ok(Some(Ok(()))) => work(self, &scratch).map(Some),
            // The directory may exist, so it is removed below.
            Ok(None) => Ok(None),
            Err(stopped) => Err(stopped),
        };
        let (fs, dir) = (self.subject.fs.clone(), scratch.clone());
        let never: Stop = Arc::new(|| false);
        let left = match within(self.limit, &never, move || remove_tree(&*fs, &dir)) {
            Within::Done(Ok(())) => None,
            Within::Done(Err(error)) => Some(Some(error.to_string())),
            _ => Some(None),
        };
        if let Some(why) = left {
            self.say("filesystem", "cleaning up", Outcome::warning(Fact::Leftover { dir: scratch, why }));
        }
        done
    }
}

enum Within<T> {
    Done(T),
    Stopped,
    TooLong,
    Broken(String),
}

/// Runs `work` in a thread, and waits for it up to `limit`. When stopped, still waits for a short step, so that it creates
/// nothing after the cleanup.
fn within<T: Send + 'static>(limit: Duration, stop: &Stop, work: impl FnOnce() -> T + Send + 'static) -> Within<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let begun = Instant::now();
    let thread = std::thread::Builder::new().name("ringreel-doctor".to_owned()).spawn(move || {
        let _ = sender.send(work());
    });
    if let Err(error) = thread {
        return Within::Broken(format!("no thread can be started ({error})"));
    }
    loop {
        match receiver.recv_timeout(SLICE) {
            Ok(_) if stop() => return Within::Stopped,
            Ok(value) => return Within::Done(value),
            Err(RecvTimeoutError::Disconnected) => return Within::Broken("the measurement failed".to_owned()),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < limit => {}
            Err(RecvTimeoutError::Timeout) if stop() => return Within::Stopped,
            Err(RecvTimeoutError::Timeout) => return Within::TooLong,
        }
    }
}

/// Returns the directory in which a pair measures: the ring, or its parent directory if it does not exist.
///
/// # Errors
/// The filesystem does not respond; the doctor was stopped.
pub fn place(doctor: &Doctor<'_>, config: &Config) -> Result<PathBuf, CannotMeasure> {
    let (subject, ring) = (doctor.subject.clone(), config.ring.clone());
    match within(doctor.limit, &doctor.stop, move || place_of(&subject, &ring)) {
        Within::Done(place) => Ok(place),
        Within::Stopped => Err(CannotMeasure("interrupted".to_owned())),
        Within::TooLong => {
            let (ring, limit) = (config.ring.display(), doctor.limit.as_secs_f64());
            Err(CannotMeasure(format!("the filesystem of {ring} hangs: no response within {limit:.0} s")))
        }
        Within::Broken(why) => Err(CannotMeasure(why)),
    }
}

pub(crate) fn place_of(subject: &Subject, ring: &Path) -> PathBuf {
    // An empty directory too, because it may be a mount point.
    match subject.fs.list(ring) {
        Ok(_) => ring.to_owned(),
        Err(_) => match ring.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        },
    }
}

/// Runs all checks except those of a pair of nodes.
///
/// # Errors
/// The doctor was stopped.
pub fn examine(doctor: &mut Doctor<'_>, config: &Config) -> Result<(), CannotMeasure> {
    let known = config::examine(doctor, config)?;
    if let Some(known) = known {
        doctor.with_scratch(&known.place.clone(), |doctor, scratch| {
            if filesystem::examine(doctor, config, &known, scratch)? {
                space::examine(doctor, config, &known, scratch)?;
                index::examine_files(doctor, config, scratch)?;
            }
            Ok(())
        })?;
        index::examine_server(doctor, config, &known)?;
    }
    machine::examine(doctor)
}
