//! What names do: renames, links, who wins a name.

use ringreel::fs::atomic_publish::write_new;
use ringreel::fs::{Fs, FsResult};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// A file's contents in these measurements.
const BYTES: &[u8] = b"0123456789abcdef";
/// Links to one file. (GlusterFS has room for 46; a ring needs 2.)
const LINKS: usize = 20;

/// A promise that a filesystem does not keep. The texts are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Broken {
    /// After a rename of its directory, a file that was open gives other bytes.
    OpenFileDiffers,
    /// It cannot be read.
    OpenFileUnreadable(String),
    /// It cannot be written to.
    OpenFileUnwritable(String),
    /// It cannot be closed.
    OpenFileUnclosable(String),
    /// A file has other bytes under the new name of its directory.
    RenamedFileDiffers,
    /// It cannot be opened by that.
    RenamedFileUnreadable(String),
    /// The old name of the directory is still there.
    OldNameStays,
    /// A link has another inode than its file.
    LinkIsCopy,
    /// A link replaces a name that is taken.
    LinkReplaces,
    /// It is refused with an unexpected error.
    LinkRefusedAs(String),
    /// A link holds other bytes than its file.
    LinkDiffers,
    /// It cannot be read once the first name is gone.
    LinkUnreadable(String),
}

/// Renames a directory with open files in it, as a promotion does. Returns what did not go on working.
///
/// # Errors
/// What the system says of the rename and what comes before it.
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

/// Renames a directory onto one that is not empty. Whether that was refused and both are as they were.
///
/// # Errors
/// What the system says of what comes before.
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

/// Links a file into another directory, as a commit does, and onto a name that is taken. Returns what is wrong.
///
/// # Errors
/// What the system says of the first link and what comes before it.
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

/// A call that gives a name to one of several who want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingCall {
    /// A hard link.
    Link,
    /// A file, created exclusively.
    Create,
    /// A directory.
    MakeDir,
}

impl NamingCall {
    /// All of them.
    pub const ALL: [NamingCall; 3] = [NamingCall::Link, NamingCall::Create, NamingCall::MakeDir];

    /// As the system calls it.
    pub fn name(self) -> &'static str {
        match self {
            NamingCall::Link => "link",
            NamingCall::Create => "O_EXCL",
            NamingCall::MakeDir => "mkdir",
        }
    }

    /// What `me` needs in `dir` before it takes part in a race for `rounds` names.
    ///
    /// # Errors
    /// What the system says.
    pub fn prepare(self, fs: &dyn Fs, dir: &Path, me: &str, rounds: usize) -> FsResult<()> {
        let sources = if self == NamingCall::Link { rounds.div_ceil(LINKS) } else { 0 };
        (0..sources).try_for_each(|n| write_new(fs, &dir.join(format!("of-{me}-{n}")), me.as_bytes(), false))
    }

    /// Tries to get name number `round` in `dir`. Whether `me` got it.
    ///
    /// # Errors
    /// What the system says but that somebody else has it.
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

/// How a race for names went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Race {
    /// Names that were raced for.
    pub rounds: usize,
    /// Names that several got.
    pub several: usize,
    /// Names that nobody got.
    pub nobody: usize,
}

/// `threads` threads race for each of `rounds` names; fewer, when `limit` is over.
///
/// # Errors
/// What the system says but that somebody else has it.
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

/// Whether names that differ in case only are different names.
///
/// # Errors
/// What the system says.
pub fn is_case_sensitive(fs: &dyn Fs, dir: &Path) -> FsResult<bool> {
    write_new(fs, &dir.join("case"), BYTES, false)?;
    Ok(!fs.exists(&dir.join("CASE"))?)
}

/// The longest of some names that can be made, in bytes; none: not even 128.
///
/// # Errors
/// What the system says of the shortest.
pub fn longest_name(fs: &dyn Fs, dir: &Path) -> FsResult<usize> {
    let make = |len: usize| write_new(fs, &dir.join("n".repeat(len)), BYTES, false).map(|()| len);
    [255, 200, 143].into_iter().find_map(|len| make(len).ok()).map_or_else(|| make(128), Ok)
}

/// What became of a file that was removed while it was open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Why it could not be read any more; none: it could.
    pub unreadable: Option<String>,
    /// Names that stood for it as long as it was open (`.nfs...`, `.fuse_hidden...`).
    pub leftovers: Vec<String>,
    /// Whether its directory could be removed once it was closed.
    pub dir_goes: bool,
}

/// Removes a file that is open, as a reclaim does under a reader.
///
/// # Errors
/// What the system says of the removal and what comes before it.
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
        Ok(()) => Some("it gives other bytes".to_owned()),
        Err(error) => Some(error.source.to_string()),
    };
    let leftovers = fs.list(&dir)?;
    drop(reader);
    Ok(Removed { unreadable, leftovers, dir_goes: super::remove_tree(fs, &dir).is_ok() })
}
