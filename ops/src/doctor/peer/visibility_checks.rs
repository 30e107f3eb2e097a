//! Measures when B sees A's changes.

use super::super::config::against_lease;
use super::super::facts::Fact;
use super::super::{Outcome, Verdict};
use super::session::{Attempt, Session, Trouble};
use crate::probe::delays::Delays;
use ringreel::fs::surely;
use ringreel::unix_ms;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 10;
/// B's replies on whether it saw a change.
const SEEN: &str = "seen";
const NEVER: &str = "never";
/// Time for which B looks up a name before A creates it.
const LOOK_BEFORE: Duration = Duration::from_millis(100);
/// After a longer delay, B's client is considered to have cached the absence of the name.
const HIDDEN: Duration = Duration::from_secs(1);
/// Longest time to wait for inotify.
const TELLS_WITHIN: Duration = Duration::from_millis(1500);
/// Clocks that differ by more milliseconds make times misleading.
const OFF_MS: u64 = 5000;

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub fn nodes_a(session: &mut Session) -> Attempt<Outcome> {
    let here = format!("{}:{}", host(), std::process::id());
    session.say(&here)?;
    let there = session.hear()?;
    let node = |name: &str| name.rsplit_once(':').map(|(node, _)| node.to_owned());
    let are_one = node(&here) == node(&there);
    Ok(Outcome::ok_if(!are_one, Fact::Nodes { a: here, b: there, are_one }))
}

pub fn nodes_b(session: &mut Session) -> Attempt<()> {
    session.hear()?;
    session.say(&format!("{}:{}", host(), std::process::id()))
}

pub fn echo_a(session: &mut Session) -> Attempt<Outcome> {
    let (mut trips, begun) = (Delays::default(), Instant::now());
    loop {
        let asked = Instant::now();
        if !session.goes_on(begun, trips.seen.len(), ROUNDS)? {
            break;
        }
        session.expect("pong")?;
        trips.add(Some(asked.elapsed()));
    }
    session.trip = trips.median();
    Ok(Outcome::ok(Fact::Answers((&trips).into())))
}

pub fn echo_b(session: &mut Session) -> Attempt<()> {
    while session.goes_on_there()? {
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
    let clock = Fact::PeerClock { ahead_ms: there as f64 - here as f64, within: half };
    Ok(Outcome::ok_if(there.abs_diff(here) <= OFF_MS, clock))
}

pub fn clocks_b(session: &mut Session) -> Attempt<()> {
    session.expect("time")?;
    session.say(&unix_ms().to_string())
}

/// Calls `act` in each round, after B has looked. Returns the delays until B's replies. Stops after the first round in which
/// B does not see the change.
fn rounds(session: &mut Session, mut act: impl FnMut(&Session, usize) -> Attempt<()>) -> Attempt<Delays> {
    let (mut delays, begun) = (Delays::default(), Instant::now());
    loop {
        let round = if delays.never > 0 { ROUNDS } else { delays.seen.len() };
        if !session.goes_on(begun, round, ROUNDS)? {
            return Ok(delays);
        }
        session.expect("ready")?;
        act(session, round)?;
        let done = Instant::now();
        delays.add(hear_of(session, done)?);
    }
}

/// Returns the time from `done` until B's reply; `None` if B did not see the change.
fn hear_of(session: &mut Session, done: Instant) -> Attempt<Option<Duration>> {
    match session.hear()?.as_str() {
        SEEN => Ok(Some(done.elapsed())),
        NEVER => Ok(None),
        other => Err(Trouble::Nonsense(other.to_owned())),
    }
}

/// Looks once per round before A's change, and then until the change is seen.
fn look(session: &mut Session, mut sees: impl FnMut(&Session, usize) -> bool) -> Attempt<()> {
    let mut round = 0;
    while session.goes_on_there()? {
        sees(session, round);
        session.say("ready")?;
        let seen = session.until(session.times.look, || sees(session, round))?;
        session.say(if seen { SEEN } else { NEVER })?;
        round += 1;
    }
    Ok(())
}

fn at_most(session: &Session, delays: &Delays) -> Outcome {
    let (verdict, lease) = against_lease(delays, session.times.lease);
    Outcome { verdict, fact: Fact::SeenByPeer { delays: delays.into(), look: session.times.look, lease } }
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
        opens("write"); // so that the client caches it
        let path = dir.join(format!("read.{round}")).join("file");
        surely(&**fs, &path, || fs.open(&path)).is_ok()
    })
}

fn link(session: &Session, dir: &Path, name: &Path) -> Attempt<()> {
    Ok(session.subject.fs.link(&dir.join("staged"), &dir.join(name))?)
}

fn name(round: usize) -> String {
    format!("{round:06}.rec")
}

pub fn listing_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("listed")?;
    session.write(&dir.join("staged"), b"x")?;
    session.say("made")?;
    let delays = rounds(session, |session, round| link(session, &dir, name(round).as_ref()))?;
    Ok(at_most(session, &delays))
}

pub fn listing_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    look(session, |session, round| {
        let names = session.subject.fs.list(&session.dir.join("listed"));
        names.is_ok_and(|names| names.contains(&name(round)))
    })
}

/// Directories for looking up by the name alone, and after opening the directory. They are separate, because requests of
/// the second kind would refresh the cache for the first.
const PLAINLY: &str = "plainly";
const SURELY: &str = "surely";

/// B looks up a name, A creates it, and B reports when it finds the name in either way.
pub fn missing_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("missing")?;
    session.write(&dir.join("staged"), b"x")?;
    for way in [PLAINLY, SURELY] {
        session.subject.fs.make_dir(&dir.join(way))?;
    }
    session.say("made")?;
    let (mut plainly, mut surely, begun) = (Delays::default(), Delays::default(), Instant::now());
    loop {
        let round = if plainly.never + surely.never > 0 { ROUNDS } else { plainly.seen.len() };
        if !session.goes_on(begun, round, ROUNDS)? {
            return Ok(judge_missing(session, &plainly, &surely));
        }
        session.expect("ready")?;
        for way in [PLAINLY, SURELY] {
            link(session, &dir, &Path::new(way).join(name(round)))?;
        }
        let done = Instant::now();
        surely.add(hear_of(session, done)?);
        plainly.add(hear_of(session, done)?);
    }
}

pub fn missing_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    let (mut round, fs, dir) = (0, session.subject.fs.clone(), session.dir.join("missing"));
    while session.goes_on_there()? {
        let (plain, sure) = (dir.join(PLAINLY).join(name(round)), dir.join(SURELY).join(name(round)));
        let sees_plainly = || fs.open(&plain).is_ok();
        let sees_surely = || surely(&*fs, &sure, || fs.open(&sure)).is_ok();
        session.until(LOOK_BEFORE, || sees_plainly() && sees_surely())?;
        session.say("ready")?;
        for sees in [&sees_surely as &dyn Fn() -> bool, &sees_plainly] {
            let seen = session.until(session.times.look, sees)?;
            session.say(if seen { SEEN } else { NEVER })?;
        }
        round += 1;
    }
    Ok(())
}

/// Judges the delays. A ring opens the directory first, so only that delay is compared with the lease.
fn judge_missing(session: &Session, plainly: &Delays, surely: &Delays) -> Outcome {
    let (verdict, lease) = against_lease(surely, session.times.lease);
    let is_hidden = verdict == Verdict::Ok && (plainly.never > 0 || plainly.max() > HIDDEN);
    let (surely, plainly, look) = (surely.into(), plainly.into(), session.times.look);
    Outcome { verdict, fact: Fact::Missing { surely, plainly, look, lease, is_hidden } }
}

pub fn inotify_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("watched")?;
    session.say("made")?;
    session.expect("ready")?;
    session.write(&dir.join("file"), b"x")?;
    Ok(Outcome::ok(Fact::PeerInotify(session.hear()?)))
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
    Ok(Outcome::ok(Fact::End))
}

pub fn end_b(session: &mut Session) -> Attempt<()> {
    session.expect("end")?;
    session.say("end")
}
