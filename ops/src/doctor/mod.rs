//! Whether a ring can live in a place, looked at before a job is queued: the configuration, the filesystem as it really
//! behaves, the index, this machine, and a pair of nodes.
//!
//! Each check says what was measured ([`facts`]), with a verdict. Everything is measured in a scratch directory that is
//! removed in every way out; nothing of the ring is changed. A step that takes too long is named, and no step
//! is waited for longer than [`LIMIT`]: on a server that hangs, the doctor does not.
//!
//! | file | looks at |
//! |---|---|
//! | [`config`] | the configuration, and the ring that it names |
//! | [`filesystem`], [`space`] | what names and contents do there (measured by [`crate::probe`]); room and permissions |
//! | [`index`] | the index in files, or in a MongoDB |
//! | `mount` | how the filesystem is mounted |
//! | [`machine`] | limits, memory, clock of this machine |
//! | [`peer`] | what two nodes see of each other |

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
/// Time between two questions whether to stop.
const SLICE: Duration = Duration::from_millis(20);

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be, or without harm.
    Ok,
    /// It works, and not as well as it could; or something is known to surprise people.
    Warning,
    /// A ring cannot live here, or not as it is configured.
    Failure,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `configuration`, `filesystem`, `index`, `machine` or `peer`.
    pub group: String,
    /// Its name.
    pub check: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was measured.
    pub fact: Fact,
}

/// What a measurement comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// What was measured.
    pub fact: Fact,
}

impl Outcome {
    /// As it should be.
    pub fn ok(fact: Fact) -> Outcome {
        Outcome { verdict: Verdict::Ok, fact }
    }

    /// Worth knowing.
    pub fn warning(fact: Fact) -> Outcome {
        Outcome { verdict: Verdict::Warning, fact }
    }

    /// No good.
    pub fn failure(fact: Fact) -> Outcome {
        Outcome { verdict: Verdict::Failure, fact }
    }

    /// As it should be if `good`, else worth knowing.
    pub(crate) fn ok_if(good: bool, fact: Fact) -> Outcome {
        if good { Outcome::ok(fact) } else { Outcome::warning(fact) }
    }

    /// What the filesystem refused.
    pub fn refused(error: &FsError, otherwise: Cure) -> Outcome {
        Outcome::failure(Fact::Refused { error: error.to_string(), cure: Cure::of(error, otherwise) })
    }
}

/// Asked whether to stop.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Why nothing more can be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotMeasure(pub String);

/// Runs checks, tells each at once, and remembers the worst.
pub struct Doctor<'a> {
    /// What is measured.
    pub subject: Subject,
    /// Longest time for a step.
    pub limit: Duration,
    stop: Stop,
    tell: Box<dyn FnMut(Check) + 'a>,
    worst: Verdict,
}

impl<'a> Doctor<'a> {
    /// One that tells `tell`, and ends early when `stop` says so.
    pub fn new(subject: Subject, stop: Stop, tell: impl FnMut(Check) + 'a) -> Doctor<'a> {
        Doctor { subject, limit: LIMIT, stop, tell: Box::new(tell), worst: Verdict::Ok }
    }

    /// The worst that was told so far.
    pub fn worst(&self) -> Verdict {
        self.worst
    }

    /// Tells a check that is done already.
    pub fn told(&mut self, check: Check) {
        self.worst = self.worst.max(check.verdict);
        (self.tell)(check);
    }

    /// Tells how `check` came out.
    pub fn say(&mut self, group: &str, check: &str, outcome: Outcome) {
        let Outcome { verdict, fact } = outcome;
        self.told(Check { group: group.to_owned(), check: check.to_owned(), verdict, fact });
    }

    /// Measures in a thread of its own. None: it takes too long, which was told; the thread is left to itself.
    ///
    /// # Errors
    /// Somebody asked to stop.
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

    /// Measures and tells. False: it takes too long.
    ///
    /// # Errors
    /// Somebody asked to stop.
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

    /// Does `work` with a scratch directory in `place`, and removes that however it ended. None: there is none, which
    /// was told.
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
            // It may have been made.
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

/// Does `work` in a thread, and waits for it for so long. Who is asked to stop waits for a step that is short, so that
/// nothing is made behind the back of whoever cleans up.
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

/// Where a pair measures: in the ring where it is, else where it is to be.
///
/// # Errors
/// The filesystem does not answer; somebody asked to stop.
pub fn place(doctor: &Doctor<'_>, config: &Config) -> Result<PathBuf, CannotMeasure> {
    let (subject, ring) = (doctor.subject.clone(), config.ring.clone());
    match within(doctor.limit, &doctor.stop, move || place_of(&subject, &ring)) {
        Within::Done(place) => Ok(place),
        Within::Stopped => Err(CannotMeasure("interrupted".to_owned())),
        Within::TooLong => {
            let (ring, limit) = (config.ring.display(), doctor.limit.as_secs_f64());
            Err(CannotMeasure(format!("the filesystem of {ring} hangs: no answer within {limit:.0} s")))
        }
        Within::Broken(why) => Err(CannotMeasure(why)),
    }
}

pub(crate) fn place_of(subject: &Subject, ring: &Path) -> PathBuf {
    // An empty directory, too: it may be a filesystem of its own.
    match subject.fs.list(ring) {
        Ok(_) => ring.to_owned(),
        Err(_) => match ring.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        },
    }
}

/// Looks at everything but a pair of nodes.
///
/// # Errors
/// Somebody asked to stop.
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
