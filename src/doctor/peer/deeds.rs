//! What both do at once, or one after the other, and what becomes of it.

use super::super::filesystem::{judge_race, millis};
use super::super::{ANOTHER, Outcome, Verdict};
use super::session::{Attempt, Session, Trouble};
use crate::fs::MapMode;
use crate::fs::probe::contents::{Mapped, mapped, pattern};
use crate::fs::probe::delays::until;
use crate::fs::probe::names::{Race, Way};
use crate::fs::watch::jittered;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Renames after which B makes a name by the old path.
const LATE_ROUNDS: usize = 20;
/// For so long B goes on making them.
const LATE_FOR: Duration = Duration::from_secs(3);
/// Files that are replaced, and rewritten.
const REPLACED: u64 = 10;
/// Files that are sealed, and their bytes.
const SEALED: u64 = 3;
const SEALED_LEN: usize = 1 << 20;
/// Names that both want, of each kind: so many at a time, so often.
const BURST: usize = 4;
const BURSTS: usize = 30;
const NAMES: usize = BURST * BURSTS;

pub fn late_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("late")?;
    let (mut landed, mut lost, mut longest) = (0, 0, None);
    for round in 0..LATE_ROUNDS {
        let (old, new) = (dir.join(format!("write.{round}")), dir.join(format!("read.{round}")));
        session.subject.fs.make_dir(&old)?;
        session.say("made")?;
        session.expect("ready")?;
        session.subject.fs.rename(&old, &new)?;
        session.say("renamed")?;
        let said = session.hear()?;
        if let Some(for_ms) = said.strip_prefix("made-") {
            landed += 1;
            longest = longest.max(for_ms.parse::<u64>().ok());
            let found = || session.subject.fs.list(&new).is_ok_and(|names| names.iter().any(|name| name == "late"));
            lost += usize::from(until(session.times.look, found).is_none());
        }
    }
    if lost > 0 {
        let what = format!("{lost} of {LATE_ROUNDS} names that B made by the old path are nowhere");
        return Ok(Outcome::failure(what, ANOTHER));
    }
    let most = longest.map_or(String::new(), |ms| format!(", for {} at least", millis(Duration::from_millis(ms))));
    Ok(Outcome::ok(match landed {
        0 => format!("{LATE_ROUNDS} renames: no name by the old path afterwards"),
        n => format!(
            "{n} of {LATE_ROUNDS} names by the old path landed in the promoted directory{most}: harmless, such a segment is linked once more"
        ),
    }))
}

pub fn late_b(session: &mut Session) -> Attempt<()> {
    for round in 0..LATE_ROUNDS {
        let dir = session.dir.join("late").join(format!("write.{round}"));
        let fs = session.subject.fs.clone();
        let make = |name: &str| fs.create_new(&dir.join(name)).and_then(|file| file.close());
        session.expect("made")?;
        make("early")?;
        session.say("ready")?;
        session.expect("renamed")?;
        let begun = Instant::now();
        if make("late").is_err() {
            session.say("refused")?;
            continue;
        }
        // How long it goes on is looked at once.
        let mut n = 0;
        let refused = round == 0 && {
            let again = || {
                n += 1;
                make(&format!("late-{n}")).is_err()
            };
            until(LATE_FOR, again).is_some()
        };
        let for_ms = if refused || round == 0 { begun.elapsed().as_millis() } else { 0 };
        session.say(&format!("made-{for_ms}"))?;
    }
    Ok(())
}

/// What B saw, and how often.
fn tally(seen: &BTreeMap<String, usize>) -> String {
    let words: Vec<String> = seen.iter().map(|(what, n)| format!("{what} {n}")).collect();
    words.join(", ")
}

pub fn replaced_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("replaced")?;
    let (mut replaced, mut rewritten) = (BTreeMap::new(), BTreeMap::new());
    for n in 0..REPLACED {
        let (path, temp) = (dir.join(n.to_string()), dir.join(format!("{n}.new")));
        session.write(&path, &pattern(n, 4096))?;
        session.say("made")?;
        session.expect("read")?;
        session.write(&temp, &pattern(n + 100, 4096))?;
        session.subject.fs.rename(&temp, &path)?;
        session.say("changed")?;
        *replaced.entry(session.hear()?).or_default() += 1;
        session.subject.extra.overwrite(&path, &pattern(n + 200, 4096))?;
        session.say("changed")?;
        *rewritten.entry(session.hear()?).or_default() += 1;
    }
    Ok(Outcome::ok(format!(
        "B opens one at once: replaced by rename: {}; rewritten: {}",
        tally(&replaced),
        tally(&rewritten)
    )))
}

pub fn replaced_b(session: &mut Session) -> Attempt<()> {
    for n in 0..REPLACED {
        let path = session.dir.join("replaced").join(n.to_string());
        let fs = session.subject.fs.clone();
        session.expect("made")?;
        let _ = fs.read(&path, 1 << 16);
        session.say("read")?;
        for seed in [n + 100, n + 200] {
            session.expect("changed")?;
            let saw = match fs.read(&path, 1 << 16) {
                Ok(bytes) if bytes == pattern(seed, 4096) => "new".to_owned(),
                Ok(bytes) if bytes.len() == 4096 => "stale".to_owned(),
                Ok(bytes) => format!("short ({} bytes)", bytes.len()),
                Err(error) => error.source.to_string(),
            };
            session.say(&saw)?;
        }
    }
    Ok(())
}

pub fn sealed_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("sealed")?;
    let mut seen = BTreeMap::new();
    for n in 0..SEALED {
        let staged = dir.join(format!("{n}.part"));
        session.write(&staged, &pattern(n, SEALED_LEN))?;
        session.subject.fs.link(&staged, &dir.join(format!("{n}.rec")))?;
        session.say("sealed")?;
        *seen.entry(session.hear()?).or_default() += 1;
    }
    let measured = tally(&seen);
    Ok(match seen.keys().map(String::as_str).max_by_key(|what| severity(what)) {
        Some(worst) if severity(worst) == 2 => Outcome::failure(measured, ANOTHER),
        Some(worst) if severity(worst) == 1 => {
            Outcome::warning(measured, "set READ: pread (auto does so here, unless the filesystem is local)")
        }
        _ => Outcome::ok(format!("{SEALED} files of 1 MiB: {measured}")),
    })
}

fn severity(seen: &str) -> u8 {
    match seen {
        "read and mapped" | "read, no map to be had" => 0,
        _ if seen.starts_with("the map") => 1,
        _ => 2,
    }
}

pub fn sealed_b(session: &mut Session) -> Attempt<()> {
    for n in 0..SEALED {
        session.expect("sealed")?;
        let (path, bytes) = (session.dir.join("sealed").join(format!("{n}.rec")), pattern(n, SEALED_LEN));
        let fs = session.subject.fs.clone();
        let read = fs.open(&path).and_then(|file| {
            let mut buffer = vec![0; SEALED_LEN];
            file.read_exact_at(&mut buffer, 0).map(|()| buffer == bytes)
        });
        let map = |mode| mapped(&*fs, &path, &bytes, mode);
        let saw = match (read, map(MapMode::Shared), map(MapMode::Private)) {
            (Err(error), ..) => format!("cannot be read ({})", error.source),
            (Ok(false), ..) => "other bytes are read".to_owned(),
            (Ok(true), Mapped::Right, Mapped::Right) => "read and mapped".to_owned(),
            (Ok(true), Mapped::Wrong, _) | (Ok(true), _, Mapped::Wrong) => "the map shows other bytes".to_owned(),
            (Ok(true), ..) => "read, no map to be had".to_owned(),
        };
        session.say(&saw)?;
    }
    Ok(())
}

/// Tries to get the names of a burst, once both are about to: `1` got it, `0` somebody else has it, `e` another error.
fn burst(session: &Session, way: Way, me: &str, burst: usize) -> Attempt<String> {
    let dir = session.dir.join(way.name());
    let names = burst * BURST..(burst + 1) * BURST;
    let claims = names.map(|n| match way.claim(&*session.subject.fs, &dir, me, n) {
        Ok(true) => '1',
        Ok(false) => '0',
        Err(error) => {
            tracing::debug!(%error, "a name was neither got nor taken");
            'e'
        }
    });
    let claims = claims.collect();
    session.go_on().map(|()| claims)
}

pub fn race_a(session: &mut Session) -> Attempt<Outcome> {
    let mut worst = Outcome::ok(String::new());
    for way in Way::ALL {
        let dir = session.make_dir(way.name())?;
        way.prepare(&*session.subject.fs, &dir, "a", NAMES)?;
        session.say("made")?;
        let mut ours = String::new();
        for n in 0..BURSTS {
            session.expect("ready")?;
            session.say("start")?;
            // Until about then B hears of it: at times a little sooner, at times later.
            std::thread::sleep(jittered(session.trip / 2));
            ours += &burst(session, way, "a", n)?;
        }
        let theirs = session.hear()?;
        if theirs.len() != ours.len() {
            return Err(Trouble::Nonsense(theirs));
        }
        let both = || ours.bytes().zip(theirs.bytes());
        let race = Race {
            rounds: NAMES,
            several: both().filter(|pair| *pair == (b'1', b'1')).count(),
            nobody: both().filter(|(a, b)| *a != b'1' && *b != b'1').count(),
        };
        let won = ours.bytes().filter(|c| *c == b'1').count();
        let errors = both().filter(|(a, b)| *a == b'e' || *b == b'e').count();
        let errors = if errors > 0 { format!(", {errors} errors") } else { String::new() };
        worst = worse(worst, judge_race(race, &format!("{}; A won {won}{errors}", way.name())));
    }
    Ok(worst)
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    let texts = [one.measured, other.measured].into_iter().filter(|text| !text.is_empty());
    let measured = texts.collect::<Vec<_>>().join("; ");
    let (verdict, advice) = if other.verdict > one.verdict || one.verdict == Verdict::Ok {
        (other.verdict, other.advice)
    } else {
        (one.verdict, one.advice)
    };
    Outcome { verdict, measured, advice }
}

pub fn race_b(session: &mut Session) -> Attempt<()> {
    for way in Way::ALL {
        session.expect("made")?;
        let dir = session.dir.join(way.name());
        way.prepare(&*session.subject.fs, &dir, "b", NAMES)?;
        let mut ours = String::new();
        for n in 0..BURSTS {
            session.say("ready")?;
            session.expect("start")?;
            ours += &burst(session, way, "b", n)?;
        }
        session.say(&ours)?;
    }
    Ok(())
}
