//! What names and contents do in the place of the ring, judged by what the ring relies upon (`docs/design.md`).

use super::config::{Known, against_lease};
use super::mount;
use super::{ANOTHER, CannotLook, Doctor, NO_LINKS, Outcome, Verdict};
use crate::probe::contents::{self, Mapped};
use crate::probe::delays::{self, Delays};
use crate::probe::names::{self, Race, Removed, Way};
use ringreel::config::{Config, Durability, ReadMode};
use ringreel::fs::FsResult;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const GROUP: &str = "filesystem";
/// Time for measurements that are repeated.
const A_WHILE: Duration = Duration::from_millis(1000);
/// Names that are raced for, and by how many.
const ROUNDS: usize = 50;
const RACERS: usize = 4;
/// For so long a name is looked for, and inotify waited for.
const LOOK_FOR: Duration = Duration::from_secs(2);
const TELLS_WITHIN: Duration = Duration::from_secs(1);
const MOUNTS: &str = "/proc/self/mountinfo";
/// Names of a ring are not longer.
const NAME_NEEDED: usize = 200;
/// A sync that takes so long is felt.
const SLOW_SYNC: Duration = Duration::from_millis(100);

/// Measures all of it. False: a step hangs, and others would too.
pub(super) fn examine(
    doctor: &mut Doctor<'_>,
    config: &Config,
    known: &Known,
    scratch: &Path,
) -> Result<bool, CannotLook> {
    let sort = if known.kind.local { "used by this machine alone" } else { "shared by machines, or not known" };
    let kind = Outcome::ok(format!("{} ({sort}), at {}", known.kind.name, known.place.display()));
    doctor.say(GROUP, "kind", "it decides whether files are mapped or read, and how often to look", kind);
    Ok(mounted(doctor, &known.place)?
        && promises(doctor, scratch)?
        && races(doctor, scratch)?
        && lesser(doctor, known, scratch)?
        && { contents(doctor, config, known, scratch)? && times(doctor, config, scratch)? })
}

/// How it is mounted.
fn mounted(doctor: &mut Doctor<'_>, place: &Path) -> Result<bool, CannotLook> {
    let place = place.to_owned();
    let look = move || {
        let found = std::fs::canonicalize(place).and_then(|place| Ok((std::fs::read(MOUNTS)?, place)));
        match found.map(|(mounts, place)| mount::find(&mounts, &place)) {
            Ok(Some(mount)) => mount.judge(),
            Ok(None) => Outcome::ok(format!("{MOUNTS} does not name it")),
            Err(error) => Outcome::ok(format!("not known ({error})")),
        }
    };
    doctor.check(GROUP, "mount", "its options decide what other nodes see, and when", look)
}

/// A measurement on the filesystem, in `dir`.
fn on<T>(
    doctor: &Doctor<'_>,
    dir: &Path,
    otherwise: &'static str,
    measure: impl FnOnce(&super::Subject, &Path) -> FsResult<T> + Send + 'static,
    judge: impl FnOnce(T) -> Outcome + Send + 'static,
) -> impl FnOnce() -> Outcome + Send + 'static {
    let (subject, dir): (_, PathBuf) = (doctor.subject.clone(), dir.to_owned());
    move || match measure(&subject, &dir) {
        Ok(measured) => judge(measured),
        Err(error) => Outcome::refused(&error, otherwise),
    }
}

fn kept(what: &'static str) -> impl FnOnce(Vec<String>) -> Outcome {
    move |wrong| match wrong.is_empty() {
        true => Outcome::ok(what),
        false => Outcome::failure(wrong.join("; "), ANOTHER),
    }
}

/// What a ring cannot do without.
fn promises(doctor: &mut Doctor<'_>, dir: &Path) -> Result<bool, CannotLook> {
    let renames = on(doctor, dir, ANOTHER, |s, dir| names::rename_with_open_files(&*s.fs, dir), {
        kept("write.1 became read.1; files that were open in it go on")
    });
    let onto = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| names::refuses_to_replace(&*s.fs, dir),
        |refused| match refused {
            true => Outcome::ok("refused, and both are as they were"),
            false => Outcome::failure("a directory that is not empty was replaced", ANOTHER),
        },
    );
    let links = on(doctor, dir, NO_LINKS, |s, dir| names::hard_link(&*s.fs, dir), {
        kept("a file gets a second name in another directory; a name that is taken is refused")
    });
    Ok(doctor.check(GROUP, "rename of a directory", "a generation is promoted by one rename", renames)?
        && doctor.check(GROUP, "rename onto a full one", "of two who promote, the second one changes nothing", onto)?
        && doctor.check(GROUP, "hard link", "a finished segment is linked into its generation", links)?)
}

fn races(doctor: &mut Doctor<'_>, dir: &Path) -> Result<bool, CannotLook> {
    for way in Way::ALL {
        let race = on(
            doctor,
            dir,
            ANOTHER,
            move |s, dir| names::race(&s.fs, dir, way, RACERS, ROUNDS, A_WHILE),
            |race| judge_race(race, &format!("{RACERS} threads")),
        );
        let check = format!("{} has one winner", way.name());
        let why = "everything is decided by who gets a name first, and by no lock";
        if !doctor.check(GROUP, &check, why, race)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How a race came out.
pub(super) fn judge_race(race: Race, by: &str) -> Outcome {
    let Race { rounds, several, nobody } = race;
    if several > 0 {
        let what = format!("{several} of {rounds} names had two winners ({by})");
        return Outcome::failure(
            what,
            "samples would be lost or doubled: choose a directory on another filesystem for RING",
        );
    }
    if nobody > 0 {
        let what = format!("{rounds} names, one winner at most; nobody got {nobody} of them ({by})");
        return Outcome::warning(what, "nothing: the ring tries the next name");
    }
    Outcome::ok(format!("{rounds} names, {by}: one winner each"))
}

/// What a ring can live with.
fn lesser(doctor: &mut Doctor<'_>, known: &Known, dir: &Path) -> Result<bool, CannotLook> {
    let removed = on(doctor, dir, ANOTHER, |s, dir| names::remove_open(&*s.fs, dir), judge_removed);
    let case = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| names::is_case_sensitive(&*s.fs, dir),
        |sensitive| match sensitive {
            true => Outcome::ok("it counts"),
            false => Outcome::warning("it does not count", "give hosts names that differ in more than case"),
        },
    );
    let short = "names are too short for a ring: choose a directory on another filesystem for RING";
    let length = on(
        doctor,
        dir,
        short,
        |s, dir| names::longest_name(&*s.fs, dir),
        |longest| match longest {
            255.. => Outcome::ok("255 bytes"),
            NAME_NEEDED.. => Outcome::ok(format!("{longest} bytes at least")),
            _ => Outcome::warning(format!("{longest} bytes at least, not {NAME_NEEDED}"), "keep host names short"),
        },
    );
    let (subject, at, local) = (doctor.subject.clone(), dir.to_owned(), known.kind.local);
    let inotify = move || judge_inotify(delays::inotify(&subject, &at, TELLS_WITHIN), local);
    const LOCKS: &str = "nothing for the ring, which takes no locks; keep databases and caches off this filesystem";
    let (subject, at) = (doctor.subject.clone(), dir.to_owned());
    let flock = move || match contents::count_under_lock(&subject, &at, A_WHILE) {
        Ok((expected, counted)) if expected == counted => Outcome::ok(format!("{counted} of {expected} increments")),
        Ok((expected, counted)) => Outcome::warning(
            format!("{counted} of {expected} increments: locks, or contents under them, do not hold"),
            LOCKS,
        ),
        Err(error) => Outcome::warning(format!("not to be had ({error})"), LOCKS),
    };
    Ok(doctor.check(GROUP, "removal of an open file", "old generations are reclaimed under slow readers", removed)?
        && doctor.check(GROUP, "upper and lower case", "names hold host names and numbers", case)?
        && doctor.check(GROUP, "length of names", "names hold host, pid and a random number", length)?
        && doctor.check(
            GROUP,
            "inotify",
            "readers wake at once, where it fires; else they look every POLL_SECONDS",
            inotify,
        )?
        && doctor.check(GROUP, "flock", "for your own use: a ring takes no locks", flock)?)
}

fn judge_removed(removed: Removed) -> Outcome {
    match removed {
        Removed { unreadable: Some(why), .. } => Outcome::warning(
            format!("it cannot be read any more ({why})"),
            "raise KEEP, so that slow readers are done before their generation goes",
        ),
        Removed { dir_goes: false, .. } => Outcome::warning(
            "its directory cannot be removed after it was closed",
            "look into trash/ now and then, and remove what lies there",
        ),
        Removed { leftovers, .. } if leftovers.is_empty() => Outcome::ok("it can be read on, and is gone when closed"),
        Removed { leftovers, .. } => Outcome::ok(format!(
            "it can be read on under a name of the system's ({}), which goes when it is closed",
            leftovers.join(", ")
        )),
    }
}

fn judge_inotify(told: Result<Option<Duration>, String>, local: bool) -> Outcome {
    match told {
        Ok(Some(after)) => Outcome::ok(format!("fires on this node, after {}", millis(after))),
        Ok(None) if local => Outcome::warning(
            "silent, on a local filesystem",
            "readers look every POLL_SECONDS: lower it where that is too slow",
        ),
        Ok(None) => Outcome::ok("silent: readers look every POLL_SECONDS"),
        Err(why) => Outcome::warning(
            format!("not to be had ({why})"),
            "readers look every POLL_SECONDS; raise fs.inotify.max_user_instances and max_user_watches for more",
        ),
    }
}

fn contents(doctor: &mut Doctor<'_>, config: &Config, known: &Known, dir: &Path) -> Result<bool, CannotLook> {
    let pread = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| contents::reads_back(&*s.fs, dir),
        |right| match right {
            true => Outcome::ok("a new file gives its own bytes"),
            false => Outcome::failure("a new file gives other bytes, or another length", ANOTHER),
        },
    );
    let mode = config.read;
    let wanted = mode == ReadMode::Mmap || (mode == ReadMode::Auto && known.kind.local);
    let maps = on(doctor, dir, ANOTHER, |s, dir| contents::maps(&*s.fs, dir), move |maps| judge_maps(&maps, wanted));
    Ok(doctor.check(GROUP, "reading (pread)", "samples are read from sealed files", pread)?
        && doctor.check(GROUP, "mapping (mmap)", "sealed files are mapped where READ says so", maps)?)
}

fn judge_maps(maps: &[Mapped; 2], wanted: bool) -> Outcome {
    let mut wrong = Vec::new();
    for (map, sort) in maps.iter().zip(["shared", "private"]) {
        match map {
            Mapped::Right => {}
            Mapped::Wrong => wrong.push(format!("a {sort} map shows other bytes")),
            Mapped::None(why) => wrong.push(format!("no {sort} map ({why})")),
        }
    }
    match (wrong.is_empty(), wanted) {
        (true, _) => Outcome::ok("shared and private maps show the file's bytes"),
        (false, true) => Outcome::failure(wrong.join("; "), "set READ: pread"),
        (false, false) => Outcome::ok(format!("{}: nothing is mapped here, as READ is", wrong.join("; "))),
    }
}

fn times(doctor: &mut Doctor<'_>, config: &Config, dir: &Path) -> Result<bool, CannotLook> {
    let lease = config.lease;
    let seen = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| delays::visibility(&s.fs, dir, 20, LOOK_FOR),
        move |[listed, opened]| {
            let seen = [&listed.seen[..], &opened.seen[..]].concat();
            let (verdict, advice) = against_lease(&Delays { seen, never: listed.never + opened.never }, lease);
            let measured = format!("opened after {}, listed after {}", spread(&opened), spread(&listed));
            Outcome { verdict, measured, advice }
        },
    );
    let node = config.durability == Durability::Node;
    let sync = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| contents::syncs(&*s.fs, dir, A_WHILE),
        move |[files, dirs]| {
            let measured = format!("a file {}, a directory {}", spread(&files), spread(&dirs));
            match files.median() > SLOW_SYNC || (node && dirs.median() > SLOW_SYNC) {
                false => Outcome::ok(measured),
                true => Outcome::warning(measured, "raise SEGMENT_SAMPLES: each segment is synced once"),
            }
        },
    );
    Ok(doctor.check(GROUP, "when names are seen", "by another process of this node", seen)?
        && doctor.check(GROUP, "fsync", "segments are synced on a network, and where DURABILITY is node", sync)?)
}

/// Median and longest, in words.
pub(super) fn spread(delays: &Delays) -> String {
    let times =
        || format!("{} (median of {}), {} at most", millis(delays.median()), delays.seen.len(), millis(delays.max()));
    match (delays.seen.is_empty(), delays.never) {
        (true, 0) => "not measured".to_owned(),
        (true, _) => "never".to_owned(),
        (false, 0) => times(),
        (false, never) => format!("{}; never {never} times", times()),
    }
}

/// A time in words.
pub(super) fn millis(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 1000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}

/// The verdict of delays that two nodes see.
pub(super) fn late(delays: &Delays, lease: Duration) -> Outcome {
    let (verdict, advice) = against_lease(delays, lease);
    let measured = spread(delays);
    match verdict {
        Verdict::Ok => Outcome::ok(measured),
        _ => Outcome { verdict, measured, advice },
    }
}
