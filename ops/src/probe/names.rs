//! Measurements of names: renames, links, races.

use ringreel::fs::atomic_publish::write_new;
use ringreel::fs::{Fs, FsResult};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// A file's contents in these measurements.
const BYTES: &[u8] = b"0123456789abcdef";
/// Links to one file. (GlusterFS supports 46; a ring needs 2.)
const LINKS: usize = 20;

/// A guarantee that a filesystem breaks. The texts are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Broken {
    /// After a rename of its directory, an open file reads wrong bytes.
    OpenFileDiffers,
    /// After a rename of its directory, an open file cannot be read.
    OpenFileUnreadable(String),
    /// After a rename of its directory, an open file cannot be written.
    OpenFileUnwritable(String),
    /// After a rename of its directory, an open file cannot be closed.
    OpenFileUnclosable(String),
    /// A file has wrong bytes under the new name of its directory.
    RenamedFileDiffers,
    /// A file cannot be opened under the new name of its directory.
    RenamedFileUnreadable(String),
    /// The old name of the directory still exists.
    OldNameStays,
    /// A link has a different inode from its file.
    LinkIsCopy,
    /// A link replaces an existing name.
    LinkReplaces,
    /// A link to an existing name fails with an unexpected error.
    LinkRefusedAs(String),
    /// A link has different bytes from its file.
    LinkDiffers,
    /// A link cannot be read after the first name is removed.
    LinkUnreadable(String),
}

/// Renames a directory with open files in it, as a promotion does. Returns the broken guarantees.
///
/// # Errors
/// The rename or its preparation fails.
pub fn rename_with_open_files(fs: &dyn Fs, dir: &Path) -> FsResult<Vec<Broken>> {
    let (old, new) = (dir.join("write.1"), dir.join("read.1"));
    fs.make_dir(&old)?;
    write_new(fs, &old.join("000000.rec"), BYTES, false)?;
    let reader = fs.open(&old.join("000000.rec"))?;
    let mut writer = fs.create_new(&old.join("000001.rec"))?;
    fs.rename(&old, &new)?;
    let mut wrong = Vec::new();
    let mut buffer = [0; BYTES.len()];
    match reader.read_exact_at(&mut buffer, 0) {
        Ok(()) if buffer == BYTES => {}
        Ok(()) => wrong.push(Broken::OpenFileDiffers),
        Err(error) => wrong.push(Broken::OpenFileUnreadable(error.source.to_string())),
    }
    if let Err(error) = writer.write_all(BYTES) {
        wrong.push(Broken::OpenFileUnwritable(error.to_string()));
    }
    if let Err(error) = writer.close() {
        wrong.push(Broken::OpenFileUnclosable(error.source.to_string()));
    }
    match fs.read(&new.join("000000.rec"), 1 << 10) {
        Ok(bytes) if bytes == BYTES => {}
        Ok(_) => wrong.push(Broken::RenamedFileDiffers),
        Err(error) => wrong.push(Broken::RenamedFileUnreadable(error.source.to_string())),
    }
    if fs.exists(&old)? {
        wrong.push(Broken::OldNameStays);
    }
    Ok(wrong)
}

/// Renames a directory onto one that is not empty. Returns whether that was refused and both are unchanged.
///
/// # Errors
/// The preparation fails.
pub fn refuses_to_replace(fs: &dyn Fs, dir: &Path) -> FsResult<bool> {
    let (from, onto) = (dir.join("write.2"), dir.join("read.2"));
    for full in [&from, &onto] {
        fs.make_dir(full)?;
        write_new(fs, &full.join("file"), BYTES, false)?;
    }
    let before = fs.identity(&onto)?.inode;
    let refused = fs.rename(&from, &onto).is_err();
    Ok(refused && fs.exists(&from)? && fs.identity(&onto)?.inode == before)
}

/// Links a file into another directory, as a commit does, and onto an existing name. Returns the broken guarantees.
///
/// # Errors
/// The first link or its preparation fails.
pub fn hard_link(fs: &dyn Fs, dir: &Path) -> FsResult<Vec<Broken>> {
    let (staged, other) = (dir.join("staged"), dir.join("other"));
    let target = dir.join("generation");
    fs.make_dir(&target)?;
    write_new(fs, &staged, BYTES, false)?;
    write_new(fs, &other, b"other", false)?;
    let linked = target.join("000000.rec");
    fs.link(&staged, &linked)?;
    let mut wrong = Vec::new();
    if fs.identity(&staged)?.inode != fs.identity(&linked)?.inode {
        wrong.push(Broken::LinkIsCopy);
    }
    match fs.link(&other, &linked) {
        Ok(()) => wrong.push(Broken::LinkReplaces),
        Err(error) if error.is_taken() => {}
        Err(error) => wrong.push(Broken::LinkRefusedAs(error.source.to_string())),
    }
    fs.remove_file(&staged)?;
    match fs.read(&linked, 1 << 10) {
        Ok(bytes) if bytes == BYTES => {}
        Ok(_) => wrong.push(Broken::LinkDiffers),
        Err(error) => wrong.push(Broken::LinkUnreadable(error.source.to_string())),
    }
    Ok(wrong)
}

/// A call by which exactly one of several processes gets a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingCall {
    /// Create a hard link.
    Link,
    /// Create a file exclusively.
    Create,
    /// Create a directory.
    MakeDir,
}

impl NamingCall {
    /// All calls.
    pub const ALL: [NamingCall; 3] = [NamingCall::Link, NamingCall::Create, NamingCall::MakeDir];

    /// Returns the system's name of the call.
    pub fn name(self) -> &'static str {
        match self {
            NamingCall::Link => "link",
            NamingCall::Create => "O_EXCL",
            NamingCall::MakeDir => "mkdir",
        }
    }

    /// Creates the files that `me` needs in `dir` for a race for `rounds` names.
    ///
    /// # Errors
    /// The system's error.
    pub fn prepare(self, fs: &dyn Fs, dir: &Path, me: &str, rounds: usize) -> FsResult<()> {
        let sources = if self == NamingCall::Link { rounds.div_ceil(LINKS) } else { 0 };
        (0..sources).try_for_each(|n| write_new(fs, &dir.join(format!("of-{me}-{n}")), me.as_bytes(), false))
    }

    /// Tries to claim name number `round` in `dir`. Returns whether `me` got it.
    ///
    /// # Errors
    /// Errors other than that the name exists.
    pub fn claim(self, fs: &dyn Fs, dir: &Path, me: &str, round: usize) -> FsResult<bool> {
        let path = dir.join(format!("name-{round}"));
        let done = match self {
            NamingCall::Link => fs.link(&dir.join(format!("of-{me}-{}", round / LINKS)), &path),
            NamingCall::Create => fs.create_new(&path).and_then(|file| file.close()),
            NamingCall::MakeDir => fs.make_dir(&path),
        };
        match done {
            Ok(()) => Ok(true),
            Err(error) if error.is_taken() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The result of a race for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Race {
    /// Number of names.
    pub rounds: usize,
    /// Number of names with several winners.
    pub several: usize,
    /// Number of names without a winner.
    pub nobody: usize,
}

/// Lets `threads` threads race for each of `rounds` names, or fewer if `limit` is over.
///
/// # Errors
/// Errors other than that a name exists.
pub fn race(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    way: NamingCall,
    threads: usize,
    rounds: usize,
    limit: Duration,
) -> FsResult<Race> {
    let dir = dir.join(format!("race-{}", way.name()));
    fs.make_dir(&dir)?;
    let names: Vec<String> = (0..threads).map(|n| n.to_string()).collect();
    names.iter().try_for_each(|me| way.prepare(&**fs, &dir, me, rounds))?;
    let (begun, mut race) = (Instant::now(), Race::default());
    while race.rounds < rounds && (race.rounds == 0 || begun.elapsed() < limit) {
        let (start, round) = (Barrier::new(threads), race.rounds);
        let won: Vec<FsResult<bool>> = std::thread::scope(|scope| {
            let (start, dir) = (&start, &dir);
            let one = move |me: &str| {
                start.wait();
                way.claim(&**fs, dir, me, round)
            };
            let all: Vec<_> = names.iter().map(|me| scope.spawn(move || one(me))).collect();
            all.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let won = won.into_iter().collect::<FsResult<Vec<bool>>>()?.into_iter().filter(|won| *won).count();
        race.rounds += 1;
        race.several += usize::from(won > 1);
        race.nobody += usize::from(won == 0);
    }
    Ok(race)
}

/// Returns whether names are case-sensitive.
///
/// # Errors
/// The system's error.
pub fn is_case_sensitive(fs: &dyn Fs, dir: &Path) -> FsResult<bool> {
    write_new(fs, &dir.join("case"), BYTES, false)?;
    Ok(!fs.exists(&dir.join("CASE"))?)
}

/// Returns the largest of 255, 200, 143 and 128 bytes that a name may have.
///
/// # Errors
/// A name of 128 bytes cannot be created.
pub fn longest_name(fs: &dyn Fs, dir: &Path) -> FsResult<usize> {
    let make = |len: usize| write_new(fs, &dir.join("n".repeat(len)), BYTES, false).map(|()| len);
    [255, 200, 143].into_iter().find_map(|len| make(len).ok()).map_or_else(|| make(128), Ok)
}

/// The result of removing an open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Why it could not be read any more; `None` if it could.
    pub unreadable: Option<String>,
    /// Temporary names of the open file (`.nfs...`, `.fuse_hidden...`).
    pub leftovers: Vec<String>,
    /// Whether its directory could be removed after the file was closed.
    pub dir_goes: bool,
}

/// Removes an open file, as a reclaim does while a reader reads.
///
/// # Errors
/// The removal or its preparation fails.
pub fn remove_open(fs: &dyn Fs, dir: &Path) -> FsResult<Removed> {
    let dir = dir.join("trash");
    fs.make_dir(&dir)?;
    let path = dir.join("000000.rec");
    write_new(fs, &path, BYTES, false)?;
    let reader = fs.open(&path)?;
    fs.remove_file(&path)?;
    let mut buffer = [0; BYTES.len()];
    let unreadable = match reader.read_exact_at(&mut buffer, 0) {
        Ok(()) if buffer == BYTES => None,
        Ok(()) => Some("wrong bytes".to_owned()),
        Err(error) => Some(error.source.to_string()),
    };
    let leftovers = fs.list(&dir)?;
    drop(reader);
    Ok(Removed { unreadable, leftovers, dir_goes: super::remove_tree(fs, &dir).is_ok() })
}
