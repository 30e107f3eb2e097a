//! Room for the ring, how fast it is written, whether it is one filesystem, and who may do what in it.

use super::config::{Known, Size};
use super::filesystem::GROUP;
use super::{ANOTHER, CannotLook, Doctor, Outcome, Subject};
use crate::probe::Facts;
use crate::probe::contents::throughput;
use ringreel::config::Config;
use ringreel::fs::{FsResult, Modes, SETGID_CURE, Space};
use ringreel::layout::{DIRECTORIES, GenerationDir, Layout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most that is written, and for how long.
const MOST: u64 = 64 << 20;
const WHILE: Duration = Duration::from_millis(1500);
/// Bytes a second below which a filesystem is slow.
const SLOW: f64 = 20e6;
/// Less room than this is none.
const LEAST: Space = Space { bytes: 1 << 20, inodes: Some(64) };
const STICKY: u32 = 0o1000;
const SETGID: u32 = 0o2000;
const GROUP_WRITES: u32 = 0o020;

/// Looks at all of it.
pub(super) fn examine(
    doctor: &mut Doctor<'_>,
    config: &Config,
    known: &Known,
    scratch: &Path,
) -> Result<(), CannotLook> {
    let (subject, place) = (doctor.subject.clone(), known.place.clone());
    let why = "a full disk stops generators; a ring takes up to KEEP + 3 generations";
    let Some(space) = doctor.measure(GROUP, "room", why, move || subject.fs.space(&place))? else { return Ok(()) };
    match space {
        Ok(space) => {
            doctor.say(GROUP, "room", why, room(space, known.size, config.keep));
            let why = "generators wait rather than pass them";
            doctor.say(GROUP, "MAX_BYTES, MAX_FILES", why, budget(config, known.size));
            let (subject, dir) = (doctor.subject.clone(), scratch.to_owned());
            let why = "it bounds samples per second; and a quota shows in nothing but a write that fails";
            doctor.check(GROUP, "writing", why, move || writing(&subject, &dir, space.bytes))?;
        }
        Err(error) => doctor.say(GROUP, "room", why, Outcome::refused(&error, ANOTHER)),
    }
    let (subject, known, dir) = (doctor.subject.clone(), known.clone(), scratch.to_owned());
    let (of_mount, root) = (subject.clone(), config.ring.clone());
    let has_ring = known.descriptor.is_some();
    let mount_why = "links and renames do not cross filesystems";
    let at = dir.clone();
    doctor.check(GROUP, "one mount", mount_why, move || mount(&of_mount, has_ring.then_some(&*root), &at))?;
    let why = "generators, managers and readers of other users link, rename and remove each other's files";
    let hardlinks = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    let protected = hardlinks.trim() != "0";
    doctor.check(GROUP, "permissions", why, move || permissions(&subject, &known, &dir, protected))?;
    if let Some(modes) = config.modes.filter(|modes| modes.has_setgid()) {
        let (subject, dir) = (doctor.subject.clone(), scratch.join("setgid"));
        let ring = has_ring.then(|| config.ring.clone());
        let why = "by the setgid bit, what each user makes in the ring belongs to the ring's group";
        doctor.check(GROUP, "RING_MODE", why, move || {
            setgid(&subject, ring.as_deref(), &dir, modes).unwrap_or_else(|error| Outcome::refused(&error, ANOTHER))
        })?;
    }
    Ok(())
}

/// Looks at the ring's own directory, and at one that is made as a ring makes it: chmod(2) may drop
/// the setgid bit without an error.
fn setgid(subject: &Subject, ring: Option<&Path>, dir: &Path, modes: Modes) -> FsResult<Outcome> {
    if let Some(ring) = ring {
        let Facts { mode, gid, .. } = subject.extra.facts(ring)?;
        if mode & SETGID == 0 {
            let what = format!("the ring's directory, of group {gid}, has lost the setgid bit (mode {mode:o})");
            let path = ring.display();
            let advice = format!(
                "have its owner run `chgrp -R GROUP {path}` and `find {path} -type d -exec chmod g+s {{}} +`; for a new \
                 ring, {SETGID_CURE}"
            );
            return Ok(Outcome::warning(what, advice));
        }
    }
    subject.extra.make_dir_with(dir, modes)?;
    let Facts { mode, gid, .. } = subject.extra.facts(dir)?;
    if mode & SETGID != 0 {
        return Ok(Outcome::ok(format!("a directory of group {gid} keeps the setgid bit")));
    }
    let what = format!(
        "a directory of group {gid} loses the setgid bit without an error (mode {mode:o}): you are not in that group, or \
         the filesystem drops the bit"
    );
    Ok(Outcome::warning(what, SETGID_CURE))
}

/// What KEEP + `more` generations need besides what the ring has: bytes, inodes.
fn needed(size: Size, generations: u64) -> (u64, u64) {
    let more = |generation: u64, has: u64| generation.saturating_mul(generations).saturating_sub(has);
    (more(size.generation.0, size.ring.0), more(size.generation.1, size.ring.1))
}

/// Whether there is room for a ring of this size.
pub fn room(space: Space, size: Option<Size>, keep: u64) -> Outcome {
    let inodes = space.inodes.map_or(String::new(), |inodes| format!(" and {inodes} inodes"));
    let free = format!("{}{inodes} free", bytes(space.bytes));
    let lacks = |(bytes, inodes): (u64, u64)| space.bytes < bytes || space.inodes.is_some_and(|free| free < inodes);
    if lacks((LEAST.bytes, LEAST.inodes.unwrap_or_default())) {
        return Outcome::failure(
            free,
            "free space or inodes (files of any size), or choose another directory for RING",
        );
    }
    let Some(size) = size else {
        return Outcome::ok(format!("{free}; how much a generation takes shows when there is one"));
    };
    let (least, full) = (needed(size, keep + 2), needed(size, keep + 3));
    let (generation, files) = size.generation;
    let need = format!(
        "{free}; a generation takes {} in {files} files, KEEP + 3 of them need {} and {} files more than the ring has",
        bytes(generation),
        bytes(full.0),
        full.1
    );
    let advice = "free space or inodes, or lower KEEP or SWAP_CAP (in a new ring)";
    match (lacks(least), lacks(full)) {
        (true, _) => Outcome::failure(need, format!("the ring will stand still: {advice}")),
        (_, true) => Outcome::warning(need, format!("generators will wait at times: {advice}")),
        _ => Outcome::ok(need),
    }
}

/// Whether the configured limits leave room for the ring.
pub fn budget(config: &Config, size: Option<Size>) -> Outcome {
    let (max_bytes, max_files) = (config.max_bytes, config.max_files);
    if max_bytes.is_none() && max_files.is_none() {
        return Outcome::ok("no limits");
    }
    let limits =
        [max_bytes.map(|max| format!("MAX_BYTES {}", bytes(max))), max_files.map(|max| format!("MAX_FILES {max}"))];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let Some(Size { generation, .. }) = size else {
        return Outcome::ok(format!("{limits}; how much a generation takes shows when there is one"));
    };
    let passed = |generations: u64| {
        max_bytes.is_some_and(|max| generation.0.saturating_mul(generations) > max)
            || max_files.is_some_and(|max| generation.1.saturating_mul(generations) > max)
    };
    let measured = format!("{limits}; a generation takes {} in {} files", bytes(generation.0), generation.1);
    match (passed(config.keep + 2), passed(config.keep + 3)) {
        (true, _) => Outcome::failure(
            measured,
            "KEEP + 2 generations pass it, and the ring will stand still: raise the limit, or lower KEEP",
        ),
        (_, true) => Outcome::warning(measured, "KEEP + 3 generations pass it, and generators will wait: raise it"),
        _ => Outcome::ok(measured),
    }
}

fn writing(subject: &Subject, dir: &Path, free: u64) -> Outcome {
    let written = match throughput(&*subject.fs, dir, MOST.min(free / 4), WHILE) {
        Ok(written) => written,
        Err(error) => return Outcome::refused(&error, ANOTHER),
    };
    if written.bytes == 0 {
        return Outcome::warning("not measured: there is no room", "free some space");
    }
    let rate = written.bytes as f64 / written.time.as_secs_f64().max(1e-6);
    let measured =
        format!("{}/s ({} in {:.2} s, synced)", bytes(rate as u64), bytes(written.bytes), written.time.as_secs_f64());
    match rate < SLOW {
        false => Outcome::ok(measured),
        true => Outcome::warning(measured, "generators will wait for the disk: see COMPRESS, or choose a faster one"),
    }
}

/// The ring's own directories and the scratch directory lie on one device.
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
            let what = format!("{} lies on another device than {}", dir.display(), scratch.display());
            return Outcome::failure(what, "a ring needs to lie in one filesystem whole: mount nothing inside of it");
        }
    }
    match ring {
        Some(_) => Outcome::ok("all directories of the ring have one device number"),
        None => Outcome::ok("one device number; links into another directory work, see hard link"),
    }
}

fn generations(subject: &Subject, root: &Path) -> Vec<PathBuf> {
    let names = subject.fs.list(root).unwrap_or_default();
    names.iter().filter(|name| GenerationDir::parse(name).is_some()).map(|name| root.join(name)).collect()
}

fn permissions(subject: &Subject, known: &Known, scratch: &Path, protected: bool) -> Outcome {
    match look(subject, known, scratch) {
        Ok(seen) => judge(&seen, protected),
        Err(error) => Outcome::refused(&error, ANOTHER),
    }
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Of the directory that is measured in.
    pub place: Facts,
    /// Of a directory that was just made there.
    pub made: Facts,
    /// Whether that directory is a ring already.
    pub is_ring: bool,
    /// Directories of the ring that this user may not write to.
    pub closed: Vec<String>,
}

fn look(subject: &Subject, known: &Known, scratch: &Path) -> FsResult<Rights> {
    let probe = scratch.join("made");
    subject.fs.make_dir(&probe)?;
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

/// Whether several users can share a ring here, where that seems to be meant.
pub fn judge(rights: &Rights, protected_hardlinks: bool) -> Outcome {
    let Rights { place, made, is_ring, closed } = rights;
    let (me, mode) = (made.uid, made.mode);
    let measured = format!("directories that you make have mode {mode:o}; the place has {:o}", place.mode);
    if !closed.is_empty() {
        let what = format!("you may not write to {}", closed.join(", "));
        return Outcome::failure(
            what,
            "to generate or manage: have their owner run `chmod -R g+w`, and share a group. To read, nothing",
        );
    }
    if *is_ring && place.mode & STICKY != 0 && place.uid != me && me != 0 {
        let what = format!("{measured}: its sticky bit lets nobody but owners rename and remove");
        return Outcome::failure(what, "have its owner run `chmod -t` on it: promotion renames directories of others");
    }
    let others = place.mode & SETGID != 0 || (*is_ring && (place.uid != me && me != 0));
    if others && mode & GROUP_WRITES == 0 {
        let what = format!("{measured}: it is meant for a group, and the group cannot write in yours");
        return Outcome::warning(
            what,
            "put `umask 002` before each role, or set a default ACL (`setfacl -d -m g::rwx`)",
        );
    }
    if others && protected_hardlinks {
        let what = format!("{measured}; fs.protected_hardlinks is 1");
        let advice =
            "with umask 002 nothing; else what dead generators of other users finished waits until they run again";
        return Outcome::warning(what, advice);
    }
    Outcome::ok(measured)
}

/// `bytes` in words.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1048576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
