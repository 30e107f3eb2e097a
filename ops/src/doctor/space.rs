//! Checks of free space, write speed, device numbers and permissions.

use super::config::{Size, Surroundings};
use super::facts::{Cure, Fact, Free, RightsNote};
use super::filesystem::GROUP;
use super::{CannotMeasure, Doctor, Outcome, Subject};
use crate::probe::Facts;
use crate::probe::contents::throughput;
use ringreel::config::Config;
use ringreel::fs::{FsResult, Modes, Space};
use ringreel::layout::{DIRECTORIES, GenerationDir, Layout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes to write, and longest time.
const MOST: u64 = 64 << 20;
const WHILE: Duration = Duration::from_millis(1500);
/// Bytes per second below which a filesystem is slow.
const SLOW: f64 = 20e6;
/// Less free space than this is a failure.
const LEAST: Space = Space { bytes: 1 << 20, inodes: Some(64) };
const ANOTHER: Cure = Cure::OtherFilesystem;
const STICKY: u32 = 0o1000;
const SETGID: u32 = 0o2000;
const GROUP_WRITES: u32 = 0o020;

/// Checks the free space. Returns false if there is too little to measure anything else, or if the check hangs.
pub(super) fn has_room(doctor: &mut Doctor<'_>, config: &Config, known: &Surroundings) -> Result<bool, CannotMeasure> {
    let (subject, place, size, keep) = (doctor.subject.clone(), known.place.clone(), known.size, config.keep);
    let outcome = doctor.measure(GROUP, "room", move || match subject.fs.space(&place) {
        Ok(space) => room(space, size, keep),
        Err(error) => Outcome::refused(&error, ANOTHER),
    })?;
    let has_room = outcome.as_ref().is_some_and(|outcome| !matches!(outcome.fact, Fact::NoRoom(_)));
    outcome.into_iter().for_each(|outcome| doctor.say(GROUP, "room", outcome));
    Ok(has_room)
}

/// Runs all checks of limits, write speed and permissions.
pub(super) fn examine(
    doctor: &mut Doctor<'_>,
    config: &Config,
    known: &Surroundings,
    scratch: &Path,
) -> Result<(), CannotMeasure> {
    doctor.say(GROUP, "MAX_BYTES, MAX_FILES", budget(config, known.size));
    let (subject, dir) = (doctor.subject.clone(), scratch.to_owned());
    doctor.check(GROUP, "writing", move || writing(&subject, &dir))?;
    let (subject, known, dir) = (doctor.subject.clone(), known.clone(), scratch.to_owned());
    let (of_mount, root) = (subject.clone(), config.ring.clone());
    let has_ring = known.descriptor.is_some();
    let at = dir.clone();
    doctor.check(GROUP, "one mount", move || mount(&of_mount, has_ring.then_some(&*root), &at))?;
    let hardlinks = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    let protected = hardlinks.trim() != "0";
    let modes = config.modes;
    doctor.check(GROUP, "permissions", move || permissions(&subject, &known, &dir, modes, protected))?;
    if let Some(modes) = config.modes.filter(|modes| modes.has_setgid()) {
        let (subject, dir) = (doctor.subject.clone(), scratch.join("setgid"));
        let ring = has_ring.then(|| config.ring.clone());
        doctor.check(GROUP, "RING_MODE", move || {
            setgid(&subject, ring.as_deref(), &dir, modes).unwrap_or_else(|error| Outcome::refused(&error, ANOTHER))
        })?;
    }
    Ok(())
}

/// Checks the setgid bit of the ring's directory, and of one that is created as in a ring, because chmod(2) may drop the
/// bit without an error.
fn setgid(subject: &Subject, ring: Option<&Path>, dir: &Path, modes: Modes) -> FsResult<Outcome> {
    if let Some(ring) = ring {
        let Facts { mode, gid, .. } = subject.extra.facts(ring)?;
        if mode & SETGID == 0 {
            return Ok(Outcome::warning(Fact::SetgidLost { ring: ring.to_owned(), gid, mode }));
        }
    }
    subject.extra.make_dir_with(dir, modes)?;
    let Facts { mode, gid, .. } = subject.extra.facts(dir)?;
    let is_kept = mode & SETGID != 0;
    Ok(Outcome::ok_if(is_kept, Fact::Setgid { gid, mode, is_kept }))
}

/// Returns the bytes and inodes that this number of generations needs besides what the ring has.
fn needed(size: Size, generations: u64) -> (u64, u64) {
    let more = |generation: u64, has: u64| generation.saturating_mul(generations).saturating_sub(has);
    (more(size.generation.0, size.ring.0), more(size.generation.1, size.ring.1))
}

/// Judges the free space for a ring of this size.
pub fn room(space: Space, size: Option<Size>, keep: u64) -> Outcome {
    let free = Free { bytes: space.bytes, inodes: space.inodes };
    let lacks = |(bytes, inodes): (u64, u64)| space.bytes < bytes || space.inodes.is_some_and(|free| free < inodes);
    if lacks((LEAST.bytes, LEAST.inodes.unwrap_or_default())) {
        return Outcome::failure(Fact::NoRoom(free));
    }
    let Some(size) = size else { return Outcome::ok(Fact::FreeRoom(free)) };
    let (least, needed) = (needed(size, keep + 2), needed(size, keep + 3));
    let fact = Fact::Room { free, generation: size.generation, needed };
    match (lacks(least), lacks(needed)) {
        (true, _) => Outcome::failure(fact),
        (_, true) => Outcome::warning(fact),
        _ => Outcome::ok(fact),
    }
}

/// Judges the configured limits for a ring of this size.
pub fn budget(config: &Config, size: Option<Size>) -> Outcome {
    let (max_bytes, max_files) = (config.max_bytes, config.max_files);
    let generation = size.map(|size| size.generation);
    let passed = |generations: u64| {
        let is_over = |max: Option<u64>, each: u64| max.is_some_and(|max| each.saturating_mul(generations) > max);
        generation.is_some_and(|(bytes, files)| is_over(max_bytes, bytes) || is_over(max_files, files))
    };
    let fact = Fact::Limits { max_bytes, max_files, generation };
    match (passed(config.keep + 2), passed(config.keep + 3)) {
        (true, _) => Outcome::failure(fact),
        (_, true) => Outcome::warning(fact),
        _ => Outcome::ok(fact),
    }
}

fn writing(subject: &Subject, dir: &Path) -> Outcome {
    let written = subject.fs.space(dir).and_then(|free| {
        // At most a quarter of the free space.
        throughput(&*subject.fs, dir, MOST.min(free.bytes / 4), WHILE)
    });
    let written = match written {
        Ok(written) => written,
        Err(error) => return Outcome::refused(&error, ANOTHER),
    };
    if written.bytes == 0 {
        return Outcome::warning(Fact::NothingWritten);
    }
    let rate = written.bytes as f64 / written.time.as_secs_f64().max(1e-6);
    Outcome::ok_if(rate >= SLOW, Fact::Written { bytes: written.bytes, time: written.time })
}

/// Checks that the ring's directories and the scratch directory are on one device.
fn mount(subject: &Subject, ring: Option<&Path>, scratch: &Path) -> Outcome {
    let mut dirs: Vec<PathBuf> = vec![scratch.to_owned()];
    if let Some(root) = ring {
        dirs.push(root.to_owned());
        dirs.extend(DIRECTORIES.iter().map(|name| root.join(name)));
        dirs.extend(generations(subject, root));
    }
    let mut device = None;
    for dir in &dirs {
        let found = match subject.fs.identity(dir) {
            Ok(found) => found.inode.0,
            Err(error) if error.is_gone() => continue,
            Err(error) => return Outcome::refused(&error, ANOTHER),
        };
        if *device.get_or_insert(found) != found {
            return Outcome::failure(Fact::OtherDevice { dir: dir.clone(), scratch: scratch.to_owned() });
        }
    }
    Outcome::ok(Fact::OneDevice { has_ring: ring.is_some() })
}

fn generations(subject: &Subject, root: &Path) -> Vec<PathBuf> {
    let names = subject.fs.list(root).unwrap_or_default();
    names.iter().filter(|name| GenerationDir::parse(name).is_some()).map(|name| root.join(name)).collect()
}

fn permissions(
    subject: &Subject,
    known: &Surroundings,
    scratch: &Path,
    modes: Option<Modes>,
    protected: bool,
) -> Outcome {
    match look(subject, known, scratch, modes) {
        // Where RING_MODE lets the group write, its files may be linked by the group as well.
        Ok(seen) => judge(&seen, protected && modes.is_none()),
        Err(error) => Outcome::refused(&error, ANOTHER),
    }
}

/// Permissions in the ring's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Facts about the directory to measure in.
    pub place: Facts,
    /// Facts about a directory that was just created there.
    pub made: Facts,
    /// Whether `place` is a ring.
    pub is_ring: bool,
    /// Directories of the ring that this user cannot write to.
    pub closed: Vec<String>,
}

fn look(subject: &Subject, known: &Surroundings, scratch: &Path, modes: Option<Modes>) -> FsResult<Rights> {
    let probe = scratch.join("made");
    // With RING_MODE, the umask has no effect on the ring.
    match modes {
        Some(modes) => subject.extra.make_dir_with(&probe, modes)?,
        None => subject.fs.make_dir(&probe)?,
    }
    let (place, made) = (subject.extra.facts(&known.place)?, subject.extra.facts(&probe)?);
    let is_ring = known.descriptor.is_some();
    let mut closed = Vec::new();
    if is_ring {
        let layout = Layout::new(&known.place);
        let mut dirs: Vec<PathBuf> = DIRECTORIES.iter().map(|name| layout.root().join(name)).collect();
        let writing = |dir: &PathBuf| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("write."));
        dirs.extend(generations(subject, layout.root()).into_iter().filter(writing));
        let name = |dir: PathBuf| dir.file_name().map(|name| name.to_string_lossy().into_owned());
        closed = dirs.into_iter().filter(|dir| !subject.extra.may_write(dir)).filter_map(name).collect();
    }
    Ok(Rights { place, made, is_ring, closed })
}

/// Judges whether several users can share the ring, if that seems to be intended.
pub fn judge(rights: &Rights, protected_hardlinks: bool) -> Outcome {
    let Rights { place, made, is_ring, closed } = rights;
    let (me, mode) = (made.uid, made.mode);
    if !closed.is_empty() {
        return Outcome::failure(Fact::Closed { dirs: closed.clone() });
    }
    let rights = |note| Fact::Rights { made: mode, place: place.mode, note };
    if *is_ring && place.mode & STICKY != 0 && place.uid != me && me != 0 {
        return Outcome::failure(rights(RightsNote::Sticky));
    }
    let others = place.mode & SETGID != 0 || (*is_ring && (place.uid != me && me != 0));
    if others && mode & GROUP_WRITES == 0 {
        return Outcome::warning(rights(RightsNote::GroupCannotWrite));
    }
    if others && protected_hardlinks {
        return Outcome::warning(rights(RightsNote::ProtectedHardlinks));
    }
    Outcome::ok(rights(RightsNote::Nothing))
}
