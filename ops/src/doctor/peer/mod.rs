//! Measures how two nodes see each other's changes: `ringreel doctor --peer`, started on both.
//!
//! The two processes meet by names in a shared directory (`rendezvous`), exchange messages by names (`session`), and
//! measure in lockstep: A makes changes, B observes them. Delays are measured on A's clock alone, from the end of its call
//! to the arrival of B's reply. They are upper bounds, because they include the reply. At the end, A sends the verdict to
//! B.

mod conflict_checks;
mod rendezvous;
mod session;
mod visibility_checks;

use super::facts::{Cure, Fact};
use super::{CannotMeasure, Check, Doctor, Outcome, Stop, Verdict};
use crate::probe::{Subject, remove_tree_while};
use session::{Answer, Attempt, Session, Trouble};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

const GROUP: &str = "peer";

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Longest time for the other side to appear.
    pub meeting: Duration,
    /// Longest time for the other side to reply.
    pub answer: Duration,
    /// Longest time for a name to be seen.
    pub look: Duration,
    /// LEASE_SECONDS, to which delays are compared.
    pub lease: Duration,
}

impl Times {
    /// Creates limits with this time for the other side to appear.
    pub fn new(meeting: Duration, lease: Duration) -> Times {
        Times { meeting, answer: Duration::from_secs(20), look: Duration::from_secs(10), lease }
    }
}

/// A step: its name, and the functions of A and B.
struct Step {
    name: &'static str,
    a: fn(&mut Session) -> Attempt<Outcome>,
    b: fn(&mut Session) -> Attempt<()>,
}

const STEPS: [Step; 12] = [
    Step { name: "nodes", a: visibility_checks::nodes_a, b: visibility_checks::nodes_b },
    Step { name: "round trip", a: visibility_checks::echo_a, b: visibility_checks::echo_b },
    Step { name: "clocks", a: visibility_checks::clocks_a, b: visibility_checks::clocks_b },
    Step { name: "rename is seen", a: visibility_checks::rename_a, b: visibility_checks::rename_b },
    Step { name: "new name is listed", a: visibility_checks::listing_a, b: visibility_checks::listing_b },
    Step { name: "missing name appears", a: visibility_checks::missing_a, b: visibility_checks::missing_b },
    Step { name: "inotify", a: visibility_checks::inotify_a, b: visibility_checks::inotify_b },
    Step { name: "late names", a: conflict_checks::late_a, b: conflict_checks::late_b },
    Step { name: "replaced files", a: conflict_checks::replaced_a, b: conflict_checks::replaced_b },
    Step { name: "sealed files", a: conflict_checks::sealed_a, b: conflict_checks::sealed_b },
    Step { name: "one winner", a: conflict_checks::race_a, b: conflict_checks::race_b },
    Step { name: "end", a: visibility_checks::end_a, b: visibility_checks::end_b },
];

/// Meets another process that does the same in `place`, and measures. Both report the same checks.
///
/// # Errors
/// No other process appeared; the other side fell silent or ended early; the doctor was stopped; the filesystem does not
/// respond.
pub fn examine(doctor: &mut Doctor<'_>, place: &Path, times: Times, stop: &Stop) -> Result<(), CannotMeasure> {
    let alive = Arc::new(Mutex::new(Instant::now()));
    let (seen, asked) = (alive.clone(), stop.clone());
    // Called in every loop, so it also shows that no call hangs.
    let stop: Stop = Arc::new(move || {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        asked()
    });
    let (sender, receiver) = mpsc::sync_channel(1);
    let (subject, at) = (doctor.subject.clone(), place.to_owned());
    let pair = move || drop(sender.send(pair(&subject, &at, times, &stop)));
    let thread = std::thread::Builder::new().name("ringreel-doctor".to_owned()).spawn(pair);
    thread.map_err(|error| CannotMeasure(format!("cannot start a thread ({error})")))?;
    let checks = loop {
        match receiver.recv_timeout(super::SLICE) {
            Ok(checks) => break checks?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(CannotMeasure("the measurement failed".to_owned()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if alive.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > doctor.limit {
            return Err(CannotMeasure(format!(
                "the filesystem of {} hangs: no response within {:.0} s",
                place.display(),
                doctor.limit.as_secs_f64()
            )));
        }
    };
    checks.into_iter().for_each(|check| doctor.told(check));
    Ok(())
}

fn pair(subject: &Subject, place: &Path, times: Times, stop: &Stop) -> Result<Vec<Check>, CannotMeasure> {
    let met = rendezvous::meet(subject, place, times.meeting, stop)?;
    let mut session = Session::new(subject.clone(), &met, times, stop.clone());
    let partner = introduce(&mut session, &met.me);
    let known = partner.as_ref().ok().cloned();
    let done = partner.and_then(|_| if met.is_a { lead(&mut session) } else { follow(&mut session) });
    // If both completed, only A removes the directory. It calls `stop` before each name, so that a slow filesystem is not
    // mistaken for one that hangs.
    let left = if met.is_a || done.is_err() {
        remove_tree_while(&*subject.fs, &met.dir, &|| {
            stop();
        })
    } else {
        Ok(())
    };
    met.clean(&*subject.fs, known.as_deref());
    let mut checks = done.map_err(|trouble| CannotMeasure(session.in_words(trouble)))?;
    if let Err(error) = left {
        let fact = Fact::Leftover { dir: met.dir.clone(), why: Some(error.to_string()) };
        checks.push(line("cleaning up", Outcome::warning(fact)));
    }
    Ok(checks)
}

/// Exchanges tokens, so that each side can clean up after both.
fn introduce(session: &mut Session, me: &str) -> Attempt<String> {
    session.step = "meeting";
    session.begin()?;
    session.say(me)?;
    session.hear()
}

fn line(check: &str, outcome: Outcome) -> Check {
    let Outcome { verdict, fact } = outcome;
    Check { group: GROUP.to_owned(), check: check.to_owned(), verdict, fact }
}

/// Runs A's part of all steps.
fn lead(session: &mut Session) -> Attempt<Vec<Check>> {
    let mut checks = Vec::with_capacity(STEPS.len());
    for step in &STEPS {
        session.step = step.name;
        let begun = Instant::now();
        let outcome = match (step.a)(session) {
            Ok(outcome) => outcome,
            Err(Trouble::Refused(what)) => Outcome::failure(Fact::Refused { error: what, cure: Cure::OtherFilesystem }),
            Err(trouble) => return Err(trouble),
        };
        tracing::debug!(step = step.name, took = ?begun.elapsed(), "measured");
        let ends = outcome.verdict == Verdict::Failure;
        checks.push(line(step.name, outcome));
        if ends {
            break; // further steps would add nothing
        }
    }
    session.publish_verdict(&checks)?;
    Ok(checks)
}

/// Runs B's part of all steps.
fn follow(session: &mut Session) -> Attempt<Vec<Check>> {
    for step in &STEPS {
        session.step = step.name;
        match (step.b)(session) {
            Ok(()) => {}
            Err(Trouble::Refused(what)) => {
                session.send(Answer::Broken, &what)?;
                break;
            }
            Err(Trouble::Verdict) => return session.read_verdict(),
            Err(trouble) => return Err(trouble),
        }
    }
    session.await_verdict()
}
