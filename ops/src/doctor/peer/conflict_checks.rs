//! Checks of concurrent changes by both nodes.

use super::super::Outcome;
use super::super::facts::{Fact, Runners};
use super::super::filesystem::judge_races;
use super::session::{Attempt, Session, Trouble};
use crate::probe::contents::{Mapped, mapped, pattern};
use crate::probe::names::{NamingCall, Race};
use ringreel::fs::MapMode;
use ringreel::fs::poll::jittered;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of renames after which B creates a name by the old path, and number per batch.
const LATE_ROUNDS: usize = 20;
const LATE_BATCH: usize = 5;
const OLD: &str = "write";
const NEW: &str = "read";
const LATE: &str = "late";
/// Longest time for which B creates names by the old path.
const LATE_FOR: Duration = Duration::from_secs(2);
/// Time between two attempts.
const LATE_PAUSE: Duration = Duration::from_millis(20);
/// Number of files that are replaced and rewritten.
const REPLACED: usize = 10;
/// Number of sealed files, and their size in bytes.
const SEALED: usize = 3;
const SEALED_LEN: usize = 1 << 20;
/// Names that both nodes race for, per call: names per burst, and number of bursts.
const BURST: usize = 4;
const BURSTS: usize = 30;
const NAMES: usize = BURST * BURSTS;

/// A renames directories in which B has created a name; then B creates another name by the old path.
///
/// B must not access the parent directory in between, neither by listing it nor by looking up a new name in it, because its
/// client would then learn of the rename from the server. So each directory has a separate parent, and all are created
/// before the first rename.
pub fn late_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("late")?;
    let fs = session.subject.fs.clone();
    let name = |n: usize, kind: &str| dir.join(n.to_string()).join(kind);
    for n in 0..LATE_ROUNDS {
        fs.make_dir(&dir.join(n.to_string()))?;
        fs.make_dir(&name(n, OLD))?;
    }
    session.say("made")?;
    session.expect("ready")?;
    let (mut tried, mut landed, mut lost, begun) = (0, 0, 0, Instant::now());
    while session.goes_on(begun, tried, LATE_ROUNDS)? {
        let batch = tried..tried + LATE_BATCH;
        for n in batch.clone() {
            fs.rename(&name(n, OLD), &name(n, NEW))?;
        }
        session.say("renamed")?;
        let made = session.hear()?;
        if made.len() != LATE_BATCH {
            return Err(Trouble::Nonsense(made));
        }
        for (n, _) in batch.zip(made.bytes()).filter(|(_, made)| *made == b'1') {
            landed += 1;
            let found = || fs.list(&name(n, NEW)).is_ok_and(|names| names.iter().any(|name| name == LATE));
            lost += usize::from(!session.until(session.times.look, found)?);
        }
        tried += LATE_BATCH;
    }
    let last = session.hear()?;
    let longest = last.parse().map(Duration::from_millis).map_err(|_| Trouble::Nonsense(last))?;
    let fact = Fact::LateNames { tried, landed, lost, longest };
    Ok(if lost > 0 { Outcome::failure(fact) } else { Outcome::ok(fact) })
}

pub fn late_b(session: &mut Session) -> Attempt<()> {
    session.expect("made")?;
    let (dir, fs) = (session.dir.join("late"), session.subject.fs.clone());
    let make = |n: usize, name: &str| {
        let path = dir.join(n.to_string()).join(OLD).join(name);
        fs.create_new(&path).and_then(|file| file.close())
    };
    (0..LATE_ROUNDS).try_for_each(|n| make(n, "early"))?;
    session.say("ready")?;
    let (mut tried, mut last) = (0, None);
    while session.goes_on_there()? {
        session.expect("renamed")?;
        let begun = Instant::now();
        let batch = tried..tried + LATE_BATCH;
        let made: String = batch
            .map(|n| match make(n, LATE) {
                Ok(()) => {
                    last = Some((n, begun));
                    '1'
                }
                Err(_) => '0',
            })
            .collect();
        session.say(&made)?;
        tried += LATE_BATCH;
    }
    // The longest time is measured once, for the last name.
    let mut longest = Duration::ZERO;
    if let Some((n, begun)) = last {
        let mut more = 0;
        session.until(LATE_FOR, || {
            more += 1;
            std::thread::sleep(LATE_PAUSE);
            let made = make(n, &format!("{LATE}-{more}"));
            longest = if made.is_ok() { begun.elapsed() } else { longest };
            made.is_err()
        })?;
    }
    session.say(&longest.as_millis().to_string())
}

pub fn replaced_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("replaced")?;
    let (mut replaced, mut rewritten) = (BTreeMap::new(), BTreeMap::new());
    let (mut n, begun) = (0u64, Instant::now());
    while session.goes_on(begun, n as usize, REPLACED)? {
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
        n += 1;
    }
    Ok(Outcome::ok(Fact::ReplacedFiles { replaced, rewritten }))
}

pub fn replaced_b(session: &mut Session) -> Attempt<()> {
    let mut n = 0;
    while session.goes_on_there()? {
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
        n += 1;
    }
    Ok(())
}

pub fn sealed_a(session: &mut Session) -> Attempt<Outcome> {
    let dir = session.make_dir("sealed")?;
    let (mut seen, mut n, begun) = (BTreeMap::new(), 0, Instant::now());
    while session.goes_on(begun, n, SEALED)? {
        let staged = dir.join(format!("{n}.part"));
        session.write(&staged, &pattern(n as u64, SEALED_LEN))?;
        session.subject.fs.link(&staged, &dir.join(format!("{n}.rec")))?;
        session.say("sealed")?;
        *seen.entry(session.hear()?).or_default() += 1;
        n += 1;
    }
    let worst = seen.keys().map(|what| severity(what)).max();
    let fact = Fact::SealedFiles { files: n, seen };
    Ok(match worst {
        Some(2..) => Outcome::failure(fact),
        Some(1) => Outcome::warning(fact),
        _ => Outcome::ok(fact),
    })
}

fn severity(seen: &str) -> u8 {
    match seen {
        "read and mapped" | "read, cannot be mapped" => 0,
        _ if seen.starts_with("the map") => 1,
        _ => 2,
    }
}

pub fn sealed_b(session: &mut Session) -> Attempt<()> {
    let mut n = 0;
    while session.goes_on_there()? {
        session.expect("sealed")?;
        let (path, bytes) = (session.dir.join("sealed").join(format!("{n}.rec")), pattern(n, SEALED_LEN));
        n += 1;
        let fs = session.subject.fs.clone();
        let read = fs.open(&path).and_then(|file| {
            let mut buffer = vec![0; SEALED_LEN];
            file.read_exact_at(&mut buffer, 0).map(|()| buffer == bytes)
        });
        let map = |mode| mapped(&*fs, &path, &bytes, mode);
        let saw = match (read, map(MapMode::Shared), map(MapMode::Private)) {
            (Err(error), ..) => format!("cannot be read ({})", error.source),
            (Ok(false), ..) => "wrong bytes are read".to_owned(),
            (Ok(true), Mapped::Right, Mapped::Right) => "read and mapped".to_owned(),
            (Ok(true), Mapped::Wrong, _) | (Ok(true), _, Mapped::Wrong) => "the map shows wrong bytes".to_owned(),
            (Ok(true), ..) => "read, cannot be mapped".to_owned(),
        };
        session.say(&saw)?;
    }
    Ok(())
}

/// Tries to claim the names of a burst. Returns one character per name: `1` claimed, `0` claimed by the other side, `e`
/// another error.
fn burst(session: &Session, way: NamingCall, me: &str, burst: usize) -> Attempt<String> {
    let dir = session.dir.join(way.name());
    let names = burst * BURST..(burst + 1) * BURST;
    let claims = names.map(|n| match way.claim(&*session.subject.fs, &dir, me, n) {
        Ok(true) => '1',
        Ok(false) => '0',
        Err(error) => {
            tracing::debug!(%error, "cannot claim a name");
            'e'
        }
    });
    let claims = claims.collect();
    session.go_on().map(|()| claims)
}

pub fn race_a(session: &mut Session) -> Attempt<Outcome> {
    let mut races = Vec::new();
    for way in NamingCall::ALL {
        let dir = session.make_dir(way.name())?;
        way.prepare(&*session.subject.fs, &dir, "a", NAMES)?;
        session.say("made")?;
        let (mut ours, mut n, mut begun) = (String::new(), 0, Instant::now());
        loop {
            session.expect("ready")?;
            if n == 0 {
                begun = Instant::now(); // B has its files now
            }
            if !session.goes_on(begun, n, BURSTS)? {
                break;
            }
            // About the time at which B gets the message, with jitter in both directions.
            std::thread::sleep(jittered(session.trip / 2));
            ours += &burst(session, way, "a", n)?;
            n += 1;
        }
        let theirs = session.hear()?;
        if theirs.len() != ours.len() {
            return Err(Trouble::Nonsense(theirs));
        }
        let both = || ours.bytes().zip(theirs.bytes());
        let race = Race {
            rounds: ours.len(),
            several: both().filter(|pair| *pair == (b'1', b'1')).count(),
            nobody: both().filter(|(a, b)| *a != b'1' && *b != b'1').count(),
        };
        let won = ours.bytes().filter(|c| *c == b'1').count();
        let errors = both().filter(|(a, b)| *a == b'e' || *b == b'e').count();
        races.push((race, Runners::Nodes { way: way.name().to_owned(), won_by_a: won, errors }));
    }
    Ok(judge_races(races))
}

pub fn race_b(session: &mut Session) -> Attempt<()> {
    for way in NamingCall::ALL {
        session.expect("made")?;
        let dir = session.dir.join(way.name());
        way.prepare(&*session.subject.fs, &dir, "b", NAMES)?;
        let mut ours = String::new();
        for n in 0.. {
            session.say("ready")?;
            if !session.goes_on_there()? {
                break;
            }
            ours += &burst(session, way, "b", n)?;
        }
        session.say(&ours)?;
    }
    Ok(())
}
