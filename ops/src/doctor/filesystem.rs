//! Checks of the filesystem of the ring, judged by what the ring relies on (`docs/internals/overview.md`).

use super::config::{Surroundings, against_lease};
use super::facts::{Cure, Fact, Runners};
use super::{CannotMeasure, Doctor, Outcome, Verdict, mount, space};
use crate::probe::contents::{self, Mapped};
use crate::probe::delays::{self, Delays};
use crate::probe::names::{self, Broken, NamingCall, Race, Removed};
use ringreel::config::{Config, Durability, ReadMode};
use ringreel::fs::FsResult;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const GROUP: &str = "filesystem";
/// Longest time for a repeated measurement.
const A_WHILE: Duration = Duration::from_millis(1000);
/// Number of names to race for, and of threads.
const ROUNDS: usize = 50;
const RACERS: usize = 4;
/// Longest time to wait for a name, and for inotify.
const LOOK_FOR: Duration = Duration::from_secs(2);
const TELLS_WITHIN: Duration = Duration::from_secs(1);
const MOUNTS: &str = "/proc/self/mountinfo";
/// Length of the longest name in a ring.
const NAME_NEEDED: usize = 200;
/// A slower sync is a warning.
const SLOW_SYNC: Duration = Duration::from_millis(100);

/// Runs all checks. Returns false if one hangs, because others would hang too, or if the disk is full.
pub(super) fn examine(
    doctor: &mut Doctor<'_>,
    config: &Config,
    known: &Surroundings,
    scratch: &Path,
) -> Result<bool, CannotMeasure> {
    let (name, is_local, place) = (known.kind.name.to_owned(), known.kind.local, known.place.clone());
    doctor.say(GROUP, "kind", Outcome::ok(Fact::Kind { name, is_local, place }));
    Ok(mounted(doctor, &known.place)?
        && space::has_room(doctor, config, known)?
        && promises(doctor, scratch)?
        && races(doctor, scratch)?
        && lesser(doctor, known, scratch)?
        && { contents(doctor, config, known, scratch)? && times(doctor, config, scratch)? })
}

/// Checks the mount options.
fn mounted(doctor: &mut Doctor<'_>, place: &Path) -> Result<bool, CannotMeasure> {
    let place = place.to_owned();
    let look = move || {
        let found = std::fs::canonicalize(place).and_then(|place| Ok((std::fs::read(MOUNTS)?, place)));
        match found.map(|(mounts, place)| mount::find(&mounts, &place)) {
            Ok(Some(mount)) => mount.judge(),
            Ok(None) => Outcome::ok(Fact::NoMount),
            Err(error) => Outcome::ok(Fact::MountUnknown { why: error.to_string() }),
        }
    };
    doctor.check(GROUP, "mount", look)
}

/// Returns a closure that measures in `dir` and judges the result.
fn on<T>(
    doctor: &Doctor<'_>,
    dir: &Path,
    otherwise: Cure,
    measure: impl FnOnce(&super::Subject, &Path) -> FsResult<T> + Send + 'static,
    judge: impl FnOnce(T) -> Outcome + Send + 'static,
) -> impl FnOnce() -> Outcome + Send + 'static {
    let (subject, dir): (_, PathBuf) = (doctor.subject.clone(), dir.to_owned());
    move || match measure(&subject, &dir) {
        Ok(measured) => judge(measured),
        Err(error) => Outcome::refused(&error, otherwise),
    }
}

fn kept(fact: fn(Vec<Broken>) -> Fact) -> impl FnOnce(Vec<Broken>) -> Outcome {
    move |wrong| if wrong.is_empty() { Outcome::ok(fact(wrong)) } else { Outcome::failure(fact(wrong)) }
}

fn needed(is_right: bool, fact: Fact) -> Outcome {
    if is_right { Outcome::ok(fact) } else { Outcome::failure(fact) }
}

/// Checks what a ring requires.
fn promises(doctor: &mut Doctor<'_>, dir: &Path) -> Result<bool, CannotMeasure> {
    const ANOTHER: Cure = Cure::OtherFilesystem;
    let renames = on(doctor, dir, ANOTHER, |s, dir| names::rename_with_open_files(&*s.fs, dir), kept(Fact::Rename));
    let onto = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| names::refuses_to_replace(&*s.fs, dir),
        |is_refused| needed(is_refused, Fact::RenameOnto { is_refused }),
    );
    let links = on(doctor, dir, Cure::NoLinks, |s, dir| names::hard_link(&*s.fs, dir), kept(Fact::Link));
    Ok(doctor.check(GROUP, "rename of a directory", renames)?
        && doctor.check(GROUP, "rename onto a full one", onto)?
        && doctor.check(GROUP, "hard link", links)?)
}

fn races(doctor: &mut Doctor<'_>, dir: &Path) -> Result<bool, CannotMeasure> {
    for way in NamingCall::ALL {
        let race = on(
            doctor,
            dir,
            Cure::OtherFilesystem,
            move |s, dir| names::race(&s.fs, dir, way, RACERS, ROUNDS, A_WHILE),
            |race| judge_races(vec![(race, Runners::Threads(RACERS))]),
        );
        let check = format!("{} has one winner", way.name());
        if !doctor.check(GROUP, &check, race)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Judges races for names.
pub(super) fn judge_races(races: Vec<(Race, Runners)>) -> Outcome {
    let verdict = |(race, _): &(Race, Runners)| match race {
        Race { several: 1.., .. } => Verdict::Failure,
        Race { nobody: 1.., .. } => Verdict::Warning,
        _ => Verdict::Ok,
    };
    Outcome { verdict: races.iter().map(verdict).max().unwrap_or(Verdict::Ok), fact: Fact::Races(races) }
}

/// Checks what a ring can do without.
fn lesser(doctor: &mut Doctor<'_>, known: &Surroundings, dir: &Path) -> Result<bool, CannotMeasure> {
    const ANOTHER: Cure = Cure::OtherFilesystem;
    let removed = on(doctor, dir, ANOTHER, |s, dir| names::remove_open(&*s.fs, dir), judge_removed);
    let case = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| names::is_case_sensitive(&*s.fs, dir),
        |is_sensitive| Outcome::ok_if(is_sensitive, Fact::Case { is_sensitive }),
    );
    let length = on(
        doctor,
        dir,
        Cure::ShortNames,
        |s, dir| names::longest_name(&*s.fs, dir),
        |bytes| Outcome::ok_if(bytes >= NAME_NEEDED, Fact::NameLength { bytes, needed: NAME_NEEDED }),
    );
    let (subject, at, is_local) = (doctor.subject.clone(), dir.to_owned(), known.kind.local);
    let inotify = move || match delays::inotify(&subject, &at, TELLS_WITHIN) {
        Ok(after) => Outcome::ok_if(after.is_some() || !is_local, Fact::Inotify { after, is_local }),
        Err(why) => Outcome::warning(Fact::NoInotify { why }),
    };
    let (subject, at) = (doctor.subject.clone(), dir.to_owned());
    let flock = move || match contents::count_under_lock(&subject, &at, A_WHILE) {
        Ok((expected, counted)) => Outcome::ok_if(expected == counted, Fact::Locks { expected, counted }),
        Err(error) => Outcome::warning(Fact::NoLocks { why: error.to_string() }),
    };
    Ok(doctor.check(GROUP, "removal of an open file", removed)?
        && doctor.check(GROUP, "upper and lower case", case)?
        && doctor.check(GROUP, "length of names", length)?
        && doctor.check(GROUP, "inotify", inotify)?
        && doctor.check(GROUP, "flock", flock)?)
}

fn judge_removed(removed: Removed) -> Outcome {
    match removed {
        Removed { unreadable: Some(why), .. } => Outcome::warning(Fact::RemovedUnreadable { why }),
        Removed { dir_goes: false, .. } => Outcome::warning(Fact::DirectoryStays),
        Removed { leftovers, .. } => Outcome::ok(Fact::RemovedReadable { leftovers }),
    }
}

fn contents(doctor: &mut Doctor<'_>, config: &Config, known: &Surroundings, dir: &Path) -> Result<bool, CannotMeasure> {
    const ANOTHER: Cure = Cure::OtherFilesystem;
    let pread = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| contents::reads_back(&*s.fs, dir),
        |is_right| needed(is_right, Fact::ReadsBack { is_right }),
    );
    let mode = config.read;
    let is_wanted = mode == ReadMode::Mmap || (mode == ReadMode::Auto && known.kind.local);
    let maps = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| contents::maps(&*s.fs, dir),
        move |maps| {
            let is_right = maps.iter().all(|map| *map == Mapped::Right);
            needed(is_right || !is_wanted, Fact::Maps { maps, is_wanted })
        },
    );
    Ok(doctor.check(GROUP, "reading (pread)", pread)? && doctor.check(GROUP, "mapping (mmap)", maps)?)
}

fn times(doctor: &mut Doctor<'_>, config: &Config, dir: &Path) -> Result<bool, CannotMeasure> {
    const ANOTHER: Cure = Cure::OtherFilesystem;
    let lease = config.lease;
    let seen = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| delays::visibility(&s.fs, dir, 20, LOOK_FOR),
        move |seen| {
            let [listed, opened] = &seen;
            let both =
                Delays { seen: [&listed.seen[..], &opened.seen[..]].concat(), never: listed.never + opened.never };
            let (verdict, lease) = against_lease(&both, lease);
            Outcome { verdict, fact: Fact::Seen { opened: opened.into(), listed: listed.into(), lease } }
        },
    );
    let node = config.durability == Durability::Node;
    let sync = on(
        doctor,
        dir,
        ANOTHER,
        |s, dir| contents::syncs(&*s.fs, dir, A_WHILE),
        move |[files, dirs]| {
            let is_slow = files.median() > SLOW_SYNC || (node && dirs.median() > SLOW_SYNC);
            Outcome::ok_if(!is_slow, Fact::Syncs { files: (&files).into(), directories: (&dirs).into() })
        },
    );
    Ok(doctor.check(GROUP, "when names are seen", seen)? && doctor.check(GROUP, "fsync", sync)?)
}
