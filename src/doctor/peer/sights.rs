//! What B sees of what A did, and when.

use super::super::filesystem::{late, millis, spread};
use super::super::{Outcome, Verdict};
use super::session::{Attempt, Session, Trouble};
use crate::fs::probe::delays::{Delays, until};
use crate::unix_ms;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 10;
/// For so long B waits for inotify.
const TELLS_WITHIN: Duration = Duration::from_millis(1500);
/// Clocks that differ so much make times misleading.
const OFF_MS: u64 = 5000;

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub fn nodes_a(session: &mut Session) -> Attempt<Outcome> {
    let here = format!("{}:{}", host(), std::process::id());
    session.say(&here)?;
    let there = session.hear()?;
    let measured = format!("A is {here} (it acts), B is {there} (it looks)");
    let node = |name: &str| name.rsplit_once(':').map(|(node, _)| node.to_owned());
    Ok(match node(&here) == node(&there) {
        false => Outcome::ok(measured),
        true => Outcome::warning(
            format!("{measured}: one node"),
            "start it on two nodes (srun -N2 --ntasks-per-node=1 ...): what follows tells nothing about two",
        ),
    })
}

pub fn nodes_b(session: &mut Session) -> Attempt<()> {
    session.hear()?;
    session.say(&format!("{}:{}", host(), std::process::id()))
}

pub fn echo_a(session: &mut Session) -> Attempt<Outcome> {
    let mut trips = Delays::default();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        session.say("ping")?;
        session.expect("pong")?;
        trips.add(Some(begun.elapsed()));
    }
    session.trip = trips.median();
    Ok(Outcome::ok(format!("a name and its answer: {}", spread(&trips))))
}

pub fn echo_b(session: &mut Session) -> Attempt<()> {
    for _ in 0..ROUNDS {
        session.expect("ping")?;
        session.say("pong")?;
    }
    Ok(())
}

pub fn clocks_a(session: &mut Session) -> Attempt<Outcome> {
    let (before, begun) = (unix_ms(), Instant::now());
    session.say("time")?;
    let heard = session.hear()?;
    let there: u64 = heard.parse().map_err(|_| Trouble::Nonsense(heard))?;
    let half = begun.elapsed() / 2;
    let here = before + half.as_millis() as u64;
    let off = there as f64 - here as f64;
    let measured = format!("B's is {:+.3} s off A's (± {})", off / 1e3, millis(half));
    Ok(match there.abs_diff(here) > OFF_MS {
        false => Outcome::ok(measured),
        true => Outcome::warning(measured, "let NTP set both: ages in `ringreel status` are of the clock that looks"),
    })
}

pub fn clocks_b(session: &mut Session) -> Attempt<()> {
    session.expect("time")?;
    session.say(&unix_ms().to_string())
}

/// A does `act` each round once B looked; the time until B says that it saw that.
fn rounds(session: &mut Session, mut act: impl FnMut(&Session, usize) -> Attempt<()>) -> Attempt<Delays> {
    let mut delays = Delays::default();
    for round in 0..ROUNDS {
        session.expect("ready")?;
        act(session, round)?;
        let done = Instant::now();
        match session.hear()?.as_str() {
            "seen" => delays.add(Some(done.elapsed())),
            "never" => delays.add(None),
            other => return Err(Trouble::Nonsense(other.to_owned())),
        }
        let more = delays.never == 0 && round + 1 < ROUNDS;
        session.say(if more { "more" } else { "enough" })?;
        if !more {
            break;
        }
    }
    Ok(delays)
}

/// B looks each round, and then until it sees.
fn look(session: &mut Session, mut sees: impl FnMut(&Session, usize) -> bool) -> Attempt<()> {
    for round in 0.. {
        sees(session, round);
        session.say("ready")?;
        let seen = until(session.times.look, || sees(session, round)).is_some();
        session.say(if seen { "seen" } else { "never" })?;
        if session.hear()? == "enough" {
            break;
        }
    }
    Ok(())
}

fn at_most(session: &Session, delays: &Delays) -> Outcome {
    let outcome = late(delays, session.times.lease);
    let measured = match outcome.verdict {
        _ if delays.seen.is_empty() => format!("not within {}", millis(session.times.look)),
        Verdict::Ok => format!("{} (bounds from above: B's answer is in them)", outcome.measured),
        _ => outcome.measured.clone(),
    };
    Outcome { measured, ..outcome }
}

pub fn rename_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("renames")?;
    for round in 0..ROUNDS {
        let old = dir.join(format!("write.{round}"));
        session.subject.fs.make_dir(&old)?;
        session.write(&old.join("file"), b"x")?;
    }
    session.say("made")?;
    let delays = rounds(session, |session, round| {
        let name = |kind: &str| dir.join(format!("{kind}.{round}"));
        Ok(session.subject.fs.rename(&name("write"), &name("read"))?)
    })?;
    Ok(at_most(session, &delays))
}

pub fn rename_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    look(session, |session, round| {
        let (fs, dir) = (&session.subject.fs, session.dir.join("renames"));
        let opens = |kind: &str| fs.open(&dir.join(format!("{kind}.{round}")).join("file")).is_ok();
        opens("write"); // so that it is remembered
        opens("read")
    })
}

fn link(session: &Session, dir: &Path, round: usize) -> Attempt<()> {
    Ok(session.subject.fs.link(&dir.join("staged"), &dir.join(format!("{round:06}.rec")))?)
}

fn names_a(session: &mut Session, name: &str) -> Attempt<Outcome> {
    let dir = session.make_dir(name)?;
    session.write(&dir.join("staged"), b"x")?;
    session.say("made")?;
    let delays = rounds(session, |session, round| link(session, &dir, round))?;
    Ok(at_most(session, &delays))
}

pub fn listing_a(session: &mut Session) -> Attempt<Outcome> {
    names_a(session, "listed")
}

pub fn listing_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    look(session, |session, round| {
        let names = session.subject.fs.list(&session.dir.join("listed"));
        names.is_ok_and(|names| names.contains(&format!("{round:06}.rec")))
    })
}

pub fn missing_a(session: &mut Session) -> Attempt<Outcome> {
    names_a(session, "missing")
}

pub fn missing_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    look(session, |session, round| {
        let path = session.dir.join("missing").join(format!("{round:06}.rec"));
        session.subject.fs.open(&path).is_ok()
    })
}

pub fn inotify_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("watched")?;
    session.say("made")?;
    session.expect("ready")?;
    session.write(&dir.join("file"), b"x")?;
    let said = session.hear()?;
    Ok(match said.as_str() {
        "fires" => Outcome::ok("B is told of what A does"),
        "silent" => Outcome::ok("silent on B for what A does: readers look every POLL_SECONDS"),
        why => Outcome::ok(format!("not to be had on B ({why}): readers look every POLL_SECONDS")),
    })
}

pub fn inotify_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    let (rings, bell) = mpsc::channel();
    let watch =
        session.subject.extra.watch(&session.dir.join("watched"), Box::new(move || rings.send(()).unwrap_or_default()));
    session.say("ready")?;
    let said = match watch {
        Err(why) => why,
        Ok(_watch) => match bell.recv_timeout(TELLS_WITHIN) {
            Ok(()) => "fires".to_owned(),
            Err(_) => "silent".to_owned(),
        },
    };
    session.say(&said)
}

pub fn end_a(session: &mut Session) -> Attempt<Outcome> {
    session.say("end")?;
    session.expect("end")?;
    Ok(Outcome::ok("both sides went through all of it"))
}

pub fn end_b(session: &mut Session) -> Attempt<()> {
    session.expect("end")?;
    session.say("end")
}
