//! Filesystems that lie, and what the doctor says of them.

use crate::layer::{Layer, Layered};
use bytes::Bytes;
use ringreel::config::Config;
use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Modes, Posix, Space};
use ringreel_ops::doctor::{Check, Doctor, Verdict, examine};
use ringreel_ops::probe::{Extra, Facts, Subject, System};
use std::any::Any;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What is not true of a filesystem. Words are directories in which it is not.
#[derive(Clone, Debug, PartialEq)]
pub enum Lie {
    None,
    /// It is shared, which is true or not.
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
    /// The other side ends, and removes the pair's directory, just before the verdict is written, or just after.
    PairEnds(&'static str),
    /// Names made by a path that was renamed land in the directory of its new name.
    LateNamesLand,
    /// And nowhere at all.
    LateNamesVanish,
    /// They land as long as the client has no reason to ask the server about the path again: no
    /// directory above the renamed one has changed since.
    LateNamesLandUntilRefreshed,
    /// A name that was absent stays so to a plain lookup, until its directory is opened.
    AbsenceIsRemembered,
    /// Each name takes so long to create.
    Slow(Duration),
    /// A directory loses its setgid bit when its mode is set.
    SetgidIsDropped,
    /// What was read once is read again, whatever is there now.
    ReadsStale,
    /// A rename fails, and the other side is slow to read what came of it.
    VerdictIsReadLate,
}

/// A real filesystem that lies.
#[derive(Clone, Debug)]
pub struct Liar(pub Lie);

fn errno<T>(op: &'static str, path: &Path, errno: i32) -> FsResult<T> {
    Err(FsError::new(op, path, io::Error::from_raw_os_error(errno)))
}

/// Whether `path` lies in a directory of this name.
fn is_in(path: &Path, dir: &str) -> bool {
    path.parent().is_some_and(|parent| parent.components().any(|part| part.as_os_str() == dir))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Liar {
    pub fn subject(self) -> Subject {
        Subject { fs: Arc::new(Layered(self.clone())), extra: Arc::new(self) }
    }

    fn two_win(&self, path: &Path) -> bool {
        matches!(self.0, Lie::TwoWin(dir) if is_in(path, dir))
    }
}

struct Writer {
    inner: Box<dyn FileWriter>,
    lie: Lie,
    path: PathBuf,
    written: usize,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        if self.lie == Lie::Quota && self.written > 3 << 20 {
            return Err(io::Error::from_raw_os_error(122));
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl FileWriter for Writer {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()> {
        self.inner.write_over(at, bytes)
    }

    fn cut(&mut self, len: u64) -> FsResult<()> {
        self.inner.cut(len)
    }

    fn sync(&mut self) -> FsResult<()> {
        match self.lie {
            Lie::SyncFails(code) => return errno("sync", &self.path, code),
            Lie::SyncIsSlow if name(&self.path).starts_with("sync-") => std::thread::sleep(Duration::from_millis(120)),
            _ => {}
        }
        self.inner.sync()
    }

    fn close(self: Box<Self>) -> FsResult<()> {
        self.inner.close()
    }
}

struct Reader {
    inner: Box<dyn FileReader>,
    lie: Lie,
    path: PathBuf,
}

impl FileReader for Reader {
    fn size(&self) -> FsResult<u64> {
        self.inner.size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        let ends = match self.lie {
            Lie::OpenFilesEndAtRename => is_in(&self.path, "write.1"),
            Lie::RemovedFilesEnd => is_in(&self.path, "trash"),
            _ => false,
        };
        if ends && !self.path.exists() {
            return errno("read", &self.path, 116);
        }
        self.inner.read_exact_at(buffer, offset)?;
        let other = match self.lie {
            Lie::ReadsOther => name(&self.path) == "pread" || is_in(&self.path, "sealed"),
            _ => false,
        };
        if let (true, Some(byte)) = (other, buffer.last_mut()) {
            *byte ^= 1;
        }
        Ok(())
    }

    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>> {
        match self.lie {
            Lie::MapsNothing => errno("map", &self.path, 19),
            Lie::MapsOther => Ok(Some(Bytes::from(vec![0; (range.end - range.start) as usize]))),
            _ => self.inner.map(range, mode),
        }
    }
}

/// How long a call hangs: longer than the limit of any test, even on a busy machine.
const HANG: Duration = Duration::from_secs(20);

impl Layer for Liar {
    fn inner(&self) -> &dyn Fs {
        &Posix
    }

    fn writing(&self, path: &Path, inner: Box<dyn FileWriter>) -> Box<dyn FileWriter> {
        Box::new(Writer { inner, lie: self.0.clone(), path: path.to_owned(), written: 0 })
    }

    fn reading(&self, path: &Path, inner: Box<dyn FileReader>) -> Box<dyn FileReader> {
        Box::new(Reader { inner, lie: self.0.clone(), path: path.to_owned() })
    }

    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        match self.0 {
            Lie::Slow(time) => std::thread::sleep(time),
            Lie::LongestName(most) if name(path).len() > most => return errno("create", path, 36),
            Lie::NobodyWins(dir) if is_in(path, dir) && name(path) == "name-0" => return errno("create", path, 17),
            Lie::HangsAt(dir) if is_in(path, dir) => std::thread::sleep(HANG),
            Lie::LateNamesLand if name(path).starts_with("late") => {
                let parent = path.parent().unwrap();
                let promoted = name(parent).replace("write", "read");
                return Posix.create_new(&parent.with_file_name(promoted).join(name(path)));
            }
            Lie::LateNamesLandUntilRefreshed if name(path).starts_with("late") => {
                let old = path.parent().unwrap();
                let changed = |dir: &Path| std::fs::metadata(dir).unwrap().modified().unwrap();
                let above: Vec<&Path> = old.ancestors().skip(1).take(3).collect();
                let renamed = changed(above[0]);
                if above.iter().any(|dir| changed(dir) > renamed) {
                    return errno("create", path, 2);
                }
                return Posix.create_new(&old.with_file_name("read").join(name(path)));
            }
            Lie::LateNamesVanish if name(path).starts_with("late") => {
                let elsewhere = path.ancestors().nth(3).unwrap().join(format!("gone-{}", rand(path)));
                return Posix.create_new(&elsewhere);
            }
            _ => {}
        }
        if self.0 == Lie::PairEnds("write") && name(path) == "verdict.new" {
            std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        }
        let made = Posix.create_new(path);
        if self.two_win(path) && made.as_ref().is_err_and(FsError::is_taken) {
            let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
            return Posix.create_new(&path.with_file_name(format!("{}-{thread}", name(path))));
        }
        made.map(|inner| self.writing(path, inner))
    }

    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        let late = is_in(path, "seen") || is_in(path, "missing");
        if self.0 == Lie::OpensLate && late && name(path).ends_with(".rec") {
            return errno("open", path, 2);
        }
        if self.0 == Lie::AbsenceIsRemembered && is_in(path, "missing") && !listed(path.parent().unwrap()).exists() {
            return errno("open", path, 2);
        }
        Posix.open(path).map(|inner| self.reading(path, inner))
    }

    fn read(&self, path: &Path, limit: u64) -> FsResult<Vec<u8>> {
        if self.0 == Lie::VerdictIsReadLate && name(path) == "verdict" {
            std::thread::sleep(Duration::from_secs(1));
        }
        let bytes = Posix.read(path, limit)?;
        if self.0 == Lie::ReadsStale && is_in(path, "replaced") {
            let kept = path.with_file_name(format!("kept-{}", name(path)));
            if !kept.exists() {
                std::fs::write(&kept, &bytes).unwrap();
            }
            return Ok(std::fs::read(&kept).unwrap());
        }
        Ok(bytes)
    }

    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        if matches!(self.0, Lie::HangsAt(at) if name(dir) == at) {
            std::thread::sleep(HANG);
        }
        if self.0 == Lie::AbsenceIsRemembered && is_in(dir, "missing") {
            std::fs::write(listed(dir), "").unwrap();
        }
        let mut names = Posix.list(dir)?;
        if self.0 == Lie::ListsLate && (name(dir) == "seen" || name(dir) == "listed") {
            let age =
                std::fs::metadata(dir.join("staged")).and_then(|meta| meta.modified()).map(|at| at.elapsed().unwrap());
            if age.is_ok_and(|age| age < Duration::from_secs(4)) {
                names.retain(|name| !name.ends_with(".rec"));
            }
        }
        Ok(names)
    }

    /// Opens the directory, as [`Layer::list`] does.
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.list(dir).map(drop)
    }

    fn make_dir(&self, path: &Path) -> FsResult<()> {
        match Posix.make_dir(path) {
            Err(error) if error.is_taken() && self.two_win(path) => Ok(()),
            other => other,
        }
    }

    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        match self.0 {
            Lie::LinkFails(code) => return errno("link", to, code),
            Lie::LinkIsCopy if is_in(to, "generation") => {
                if to.exists() {
                    return errno("link", to, 17);
                }
                std::fs::copy(from, to).unwrap();
                return Ok(());
            }
            _ => {}
        }
        match Posix.link(from, to) {
            Err(error) if error.is_taken() && self.two_win(to) => Ok(()),
            Err(error) if error.is_taken() && self.0 == Lie::LinkReplaces && is_in(to, "generation") => {
                std::fs::remove_file(to).unwrap();
                Posix.link(from, to)
            }
            other => other,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        match self.0 {
            Lie::RenameFails(code) if name(to).starts_with("read.") => return errno("rename", to, code),
            Lie::VerdictIsReadLate if name(to).starts_with("read.") => return errno("rename", to, 116),
            Lie::PairEnds("rename") if name(to) == "verdict" => std::fs::remove_dir_all(to.parent().unwrap()).unwrap(),
            Lie::RenameReplaces if to.is_dir() => std::fs::remove_dir_all(to).unwrap(),
            _ => {}
        }
        Posix.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> FsResult<()> {
        if self.0 == Lie::LeftoversStay && name(path).starts_with(".nfs") {
            // Busy at the first looks.
            let tries = path.ancestors().nth(3).unwrap().join("tries");
            let n = std::fs::read(&tries).map_or(0, |bytes| bytes.len());
            std::fs::write(&tries, vec![0; n + 1]).unwrap();
            if n < 3 {
                return errno("remove", path, 16);
            }
        }
        if self.0 == Lie::LeftoversStay && is_in(path, "trash") && !name(path).starts_with(".nfs") {
            return Posix.rename(path, &path.with_file_name(".nfs0001"));
        }
        Posix.remove_file(path)
    }

    fn identity(&self, path: &Path) -> FsResult<Identity> {
        if self.0 == Lie::CaseFolds && name(path) == "CASE" {
            return Posix.identity(&path.with_file_name("case"));
        }
        let found = Posix.identity(path)?;
        let device = if self.0 == Lie::TwoDevices && name(path) == "staging" { 1 } else { 0 };
        Ok(Identity { inode: (found.inode.0 + device, found.inode.1), ..found })
    }

    fn space(&self, path: &Path) -> FsResult<Space> {
        match self.0 {
            _ if path == Path::new("/dev/shm") => Posix.space(path), // the machine's
            Lie::Free(space) => Ok(space),
            _ => Ok(Space { bytes: 32 << 20, inodes: None }), // so that little is written
        }
    }

    fn kind(&self, path: &Path) -> FsResult<Kind> {
        match self.0 {
            Lie::Shared => Ok(Kind { name: "nfs", local: false }),
            _ => Posix.kind(path),
        }
    }
}

/// Stands for what a client knows once it has opened `dir`.
fn listed(dir: &Path) -> PathBuf {
    dir.with_file_name(format!("{}.listed", name(dir)))
}

fn rand(path: &Path) -> String {
    path.display().to_string().replace('/', "-")
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
            return errno("lock", path, why);
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

/// What the doctor says of a ring in `dir` on such a filesystem.
pub fn examined(dir: &Path, lie: Lie) -> Vec<Check> {
    examined_with(dir, lie, |_| ())
}

pub fn examined_with(dir: &Path, lie: Lie, change: impl FnOnce(&mut Doctor<'_>)) -> Vec<Check> {
    examine_config(dir, lie, "", change)
}

/// The same, with these lines in the configuration.
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

/// What is not in order, but for the machine that the tests run on, and how fast it is.
pub fn wrong(checks: &[Check]) -> Vec<(String, Verdict)> {
    let of_place = checks.iter().filter(|check| check.group != "machine" && check.verdict != Verdict::Ok);
    let of_place = of_place.filter(|check| check.check != "writing" || !check.measured.contains("/s ("));
    // Tests that run beside each other may use up this user's inotify instances (EMFILE).
    let of_place = of_place.filter(|check| check.check != "inotify" || !check.measured.contains("os error 24"));
    of_place.map(|check| (check.check.clone(), check.verdict)).collect()
}

/// Names of the doctor's own in a directory.
pub fn leftovers(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(".doctor-")).collect();
    names.sort();
    names
}
