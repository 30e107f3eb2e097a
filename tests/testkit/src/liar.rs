//! Filesystems that break a guarantee, and the doctor's findings on them.

use crate::fault::{
    Answer, Call, EBUSY, EDQUOT, EEXIST, ENAMETOOLONG, ENODEV, ENOENT, ESTALE, Fault, FaultyFs, NETWORK, Next,
};
use bytes::Bytes;
use ringreel::config::Config;
use ringreel::fs::{Fs, FsError, FsResult, Identity, Modes, Posix, Space};
use ringreel_ops::doctor::facts::Fact;
use ringreel_ops::doctor::{Check, Doctor, Verdict, examine};
use ringreel_ops::probe::{Extra, Facts, Subject, System};
use std::any::Any;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The broken guarantee. Words are the directories to which it applies.
#[derive(Clone, Debug, PartialEq)]
pub enum Lie {
    None,
    /// The filesystem reports whether it is shared.
    Shared,
    RenameFails(i32),
    RenameReplaces,
    OpenFilesEndAtRename,
    LinkFails(i32),
    LinkReplaces,
    LinkIsCopy,
    TwoWin(&'static str),
    NobodyWins(&'static str),
    RemovedFilesEnd,
    LeftoversStay,
    CaseFolds,
    LongestName(usize),
    InotifySilent,
    InotifyNotToBeHad,
    LocksDoNotHold,
    LocksRefused(i32),
    ReadsOther,
    MapsNothing,
    MapsOther,
    ListsLate,
    OpensLate,
    SyncFails(i32),
    SyncIsSlow,
    Free(Space),
    Quota,
    TwoDevices,
    HangsAt(&'static str),
    /// The other side exits and removes the pair's directory, just before or just after the verdict is written.
    PairEnds(&'static str),
    /// Names created by the path of a renamed directory appear under its new name.
    LateNamesLand,
    /// Such names appear nowhere.
    LateNamesVanish,
    /// Such names appear while the client has no reason to look up the path again, that is, while no directory above
    /// the renamed one has changed.
    LateNamesLandUntilRefreshed,
    /// A name that was absent stays absent for a plain lookup until its directory is opened.
    AbsenceIsRemembered,
    /// Creating a name takes this long.
    Slow(Duration),
    /// A directory loses its setgid bit when its mode is set.
    SetgidIsDropped,
    /// Reads return the bytes of the first read, even if they have changed.
    ReadsStale,
    /// A rename fails, and the other side reads the verdict late.
    VerdictIsReadLate,
}

/// A real filesystem that breaks a guarantee.
#[derive(Clone, Debug)]
pub struct Liar(pub Lie);

/// Whether `path` is in a directory of this name.
fn is_in(path: &Path, dir: &str) -> bool {
    path.parent().is_some_and(|parent| parent.components().any(|part| part.as_os_str() == dir))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Liar {
    pub fn subject(self) -> Subject {
        Subject { fs: Arc::new(FaultyFs::with(Posix, self.clone())), extra: Arc::new(self) }
    }

    fn two_win(&self, path: &Path) -> bool {
        matches!(self.0, Lie::TwoWin(dir) if is_in(path, dir))
    }
}

/// How long a call hangs: longer than the limit of any test, even on a busy machine.
const HANG: Duration = Duration::from_secs(20);

impl Fault for Liar {
    fn around(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        match call.op {
            "create" => self.create(call, next),
            "make_dir" | "link" | "rename" | "remove_file" => self.names(call, next),
            "write" | "sync" | "open" | "read" | "map" => self.contents(call, next),
            _ => self.look(call, next),
        }
    }
}

/// One arm for each broken guarantee.
impl Liar {
    fn create(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        let (path, is_late) = (call.path, name(call.path).starts_with("late"));
        match self.0 {
            Lie::LongestName(most) if name(path).len() > most => return Err(call.error(ENAMETOOLONG)),
            Lie::NobodyWins(dir) if is_in(path, dir) && name(path) == "name-0" => return Err(call.error(EEXIST)),
            Lie::Slow(time) => std::thread::sleep(time),
            Lie::HangsAt(dir) if is_in(path, dir) => std::thread::sleep(HANG),
            Lie::PairEnds("write") if name(path) == "verdict.new" => {
                std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
            }
            Lie::LateNamesLand if is_late => {
                let parent = path.parent().unwrap();
                let promoted = name(parent).replace("write", "read");
                return next(call.at(&parent.with_file_name(promoted).join(name(path))));
            }
            Lie::LateNamesLandUntilRefreshed if is_late => {
                let old = path.parent().unwrap();
                let changed = |dir: &Path| std::fs::metadata(dir).unwrap().modified().unwrap();
                let above: Vec<&Path> = old.ancestors().skip(1).take(3).collect();
                let renamed = changed(above[0]);
                if above.iter().any(|dir| changed(dir) > renamed) {
                    return Err(call.error(ENOENT));
                }
                return next(call.at(&old.with_file_name("read").join(name(path))));
            }
            Lie::LateNamesVanish if is_late => {
                let elsewhere = path.ancestors().nth(3).unwrap();
                return next(
                    call.at(&elsewhere.join(format!("gone-{}", path.display().to_string().replace('/', "-")))),
                );
            }
            _ => {}
        }
        match next(call) {
            Err(error) if error.is_taken() && self.two_win(path) => {
                let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
                next(call.at(&path.with_file_name(format!("{}-{thread}", name(path)))))
            }
            other => other,
        }
    }

    fn names(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        let (path, is_leftover) = (call.path, name(call.path).starts_with(".nfs"));
        match (&self.0, call.op) {
            (Lie::LinkFails(errno), "link") => return Err(call.error(*errno)),
            (Lie::LinkIsCopy, "link") if is_in(path, "generation") && !path.exists() => {
                std::fs::copy(call.from, path).unwrap();
                return Ok(().into());
            }
            (Lie::LinkReplaces, "link") if is_in(path, "generation") && path.exists() => {
                std::fs::remove_file(path).unwrap();
            }
            (Lie::RenameFails(errno), "rename") if name(path).starts_with("read.") => return Err(call.error(*errno)),
            (Lie::VerdictIsReadLate, "rename") if name(path).starts_with("read.") => return Err(call.error(ESTALE)),
            (Lie::PairEnds("rename"), "rename") if name(path) == "verdict" => {
                std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
            }
            (Lie::RenameReplaces, "rename") if path.is_dir() => std::fs::remove_dir_all(path).unwrap(),
            (Lie::LeftoversStay, "remove_file") if is_leftover => {
                // Busy at the first attempts.
                let tries = path.ancestors().nth(3).unwrap().join("tries");
                let n = std::fs::read(&tries).map_or(0, |bytes| bytes.len());
                std::fs::write(&tries, vec![0; n + 1]).unwrap();
                if n < 3 {
                    return Err(call.error(EBUSY));
                }
            }
            (Lie::LeftoversStay, "remove_file") if is_in(path, "trash") => {
                return Posix.rename(path, &path.with_file_name(".nfs0001")).map(Answer::from);
            }
            _ => {}
        }
        match next(call) {
            Err(error) if error.is_taken() && call.op != "rename" && self.two_win(path) => Ok(().into()),
            other => other,
        }
    }

    fn contents(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        let path = call.path;
        match (&self.0, call.op) {
            // The file that the doctor renames while it is open is small.
            (Lie::Quota, "write")
                if path.metadata().map_or(0, |meta| meta.len() as usize) + call.bytes.len() > 3 << 20 =>
            {
                return Err(call.error(EDQUOT));
            }
            (Lie::SyncFails(errno), "sync") => return Err(call.error(*errno)),
            (Lie::SyncIsSlow, "sync") if name(path).starts_with("sync-") => {
                std::thread::sleep(Duration::from_millis(120));
            }
            (Lie::OpensLate, "open") if is_in(path, "seen") && name(path).ends_with(".rec") => {
                return Err(call.error(ENOENT));
            }
            (Lie::OpensLate, "open") if is_in(path, "missing") && name(path).ends_with(".rec") => {
                return Err(call.error(ENOENT));
            }
            (Lie::AbsenceIsRemembered, "open")
                if is_in(path, "missing") && !listed(path.parent().unwrap()).exists() =>
            {
                return Err(call.error(ENOENT));
            }
            (Lie::VerdictIsReadLate, "open") if name(path) == "verdict" => std::thread::sleep(Duration::from_secs(1)),
            (Lie::ReadsStale, "open") if is_in(path, "replaced") && path.exists() => {
                let kept = path.with_file_name(format!("kept-{}", name(path)));
                if !kept.exists() {
                    std::fs::copy(path, &kept).unwrap();
                }
                return next(call.at(&kept));
            }
            (Lie::OpenFilesEndAtRename, "read") if is_in(path, "write.1") && !path.exists() => {
                return Err(call.error(ESTALE));
            }
            (Lie::RemovedFilesEnd, "read") if is_in(path, "trash") && !path.exists() => return Err(call.error(ESTALE)),
            (Lie::ReadsOther, "read") if name(path) == "pread" || is_in(path, "sealed") => {
                let mut bytes: Vec<u8> = next(call)?.into();
                bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
                return Ok(bytes.into());
            }
            (Lie::MapsNothing, "map") => return Err(call.error(ENODEV)),
            (Lie::MapsOther, "map") => {
                let map: Option<Bytes> = next(call)?.into();
                return Ok(map.map(|bytes| Bytes::from(vec![0; bytes.len()])).into());
            }
            _ => {}
        }
        next(call)
    }

    fn look(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        let path = call.path;
        match (&self.0, call.op) {
            (Lie::HangsAt(dir), "list" | "refresh") if name(path) == *dir => std::thread::sleep(HANG),
            (Lie::AbsenceIsRemembered, "list" | "refresh") if is_in(path, "missing") => {
                std::fs::write(listed(path), "").unwrap();
            }
            (Lie::ListsLate, "list") if name(path) == "seen" || name(path) == "listed" => {
                let mut names: Vec<String> = next(call)?.into();
                let made = std::fs::metadata(path.join("staged")).and_then(|meta| meta.modified());
                if made.is_ok_and(|at| at.elapsed().unwrap() < Duration::from_secs(4)) {
                    names.retain(|name| !name.ends_with(".rec"));
                }
                return Ok(names.into());
            }
            (Lie::CaseFolds, "identity") if name(path) == "CASE" => return next(call.at(&path.with_file_name("case"))),
            (Lie::TwoDevices, "identity") if name(path) == "staging" => {
                let found: Identity = next(call)?.into();
                return Ok(Identity { inode: (found.inode.0 + 1, found.inode.1), ..found }.into());
            }
            (_, "space") if path == Path::new("/dev/shm") => {} // the machine's own
            (Lie::Free(space), "space") => return Ok((*space).into()),
            (_, "space") => return Ok(Space { bytes: 32 << 20, inodes: None }.into()), // so that little is written
            (Lie::Shared, "kind") => return Ok(NETWORK.into()),
            _ => {}
        }
        next(call)
    }
}

/// A file that records that the client has opened `dir`.
fn listed(dir: &Path) -> PathBuf {
    dir.with_file_name(format!("{}.listed", name(dir)))
}

impl Extra for Liar {
    fn facts(&self, path: &Path) -> FsResult<Facts> {
        System.facts(path)
    }

    fn make_dir_with(&self, path: &Path, modes: Modes) -> FsResult<()> {
        System.make_dir_with(path, modes)?;
        if self.0 == Lie::SetgidIsDropped {
            let mode = System.facts(path)?.mode & 0o777;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Ok(())
    }

    fn may_write(&self, path: &Path) -> bool {
        System.may_write(path)
    }

    fn add_under_lock(&self, path: &Path) -> FsResult<()> {
        if let Lie::LocksRefused(why) = self.0 {
            return Err(FsError::new("lock", path, io::Error::from_raw_os_error(why)));
        }
        if self.0 == Lie::LocksDoNotHold {
            let seen: u64 = std::fs::read_to_string(path).unwrap().parse().unwrap_or(0);
            std::fs::write(path, (seen / 2).to_string()).unwrap();
            return Ok(());
        }
        System.add_under_lock(path)
    }

    fn watch(&self, dir: &Path, on_change: Box<dyn Fn() + Send>) -> Result<Box<dyn Any>, String> {
        match self.0 {
            Lie::InotifySilent => Ok(Box::new(on_change)),
            Lie::InotifyNotToBeHad => Err("too many open files".to_owned()),
            _ => System.watch(dir, on_change),
        }
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> FsResult<()> {
        System.overwrite(path, bytes)
    }
}

/// The doctor's findings on a ring in `dir` on such a filesystem.
pub fn examined(dir: &Path, lie: Lie) -> Vec<Check> {
    examined_with(dir, lie, |_| ())
}

pub fn examined_with(dir: &Path, lie: Lie, change: impl FnOnce(&mut Doctor<'_>)) -> Vec<Check> {
    examine_config(dir, lie, "", change)
}

/// The same with additional configuration lines.
pub fn examined_as(dir: &Path, lie: Lie, more: &str) -> Vec<Check> {
    examine_config(dir, lie, more, |_| ())
}

fn examine_config(dir: &Path, lie: Lie, more: &str, change: impl FnOnce(&mut Doctor<'_>)) -> Vec<Check> {
    let yaml = format!("DBNAME: demo\nSWAP_CAP: 10\nSAMPLE: [data, label]\nLEASE_SECONDS: 6\n{more}");
    let config = Config::parse(&yaml, "test", dir, true).unwrap();
    if lie == Lie::TwoDevices {
        crate::cli::generate(&config, 0..1);
    }
    let mut checks = Vec::new();
    let mut doctor = Doctor::new(Liar(lie).subject(), Arc::new(|| false), |check| checks.push(check));
    change(&mut doctor);
    examine(&mut doctor, &config).unwrap();
    drop(doctor);
    checks
}

/// The findings that are not ok, except for those on the test machine and its speed.
pub fn wrong(checks: &[Check]) -> Vec<(String, Verdict)> {
    let of_place = checks.iter().filter(|check| check.group != "machine" && check.verdict != Verdict::Ok);
    let of_place = of_place.filter(|check| check.check != "writing" || !matches!(check.fact, Fact::Written { .. }));
    // Concurrent tests may exhaust this user's inotify instances (EMFILE).
    let emfile = |fact: &Fact| matches!(fact, Fact::NoInotify { why } if why.contains("os error 24"));
    let of_place = of_place.filter(|check| check.check != "inotify" || !emfile(&check.fact));
    of_place.map(|check| (check.check.clone(), check.verdict)).collect()
}

/// The doctor's own files in a directory.
pub fn leftovers(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(".doctor-")).collect();
    names.sort();
    names
}
