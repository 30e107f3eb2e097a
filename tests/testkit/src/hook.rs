//! A filesystem with a hook before each call. A fault is a closure.

use bytes::Bytes;
use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Posix, Space};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::SystemTime;

/// What shall become of a call.
pub enum Action {
    Pass,
    /// It is refused with this errno, and does not happen.
    Refuse(i32),
    /// It happens, and says that it failed with this errno: a lost reply.
    LoseReply(i32),
    /// It happens to another path: a client that looks a directory up by an old name.
    Elsewhere(PathBuf),
    /// Of a write, half happens, and it says so.
    Short,
    /// It happens, and this after it, before the caller has the answer.
    Then(Box<dyn FnOnce() + Send>),
}

pub const EINTR: i32 = 4;
pub const EIO: i32 = 5;
pub const EACCES: i32 = 13;
pub const ESTALE: i32 = 116;

/// Calls that change something, and calls that look.
pub const CHANGES: [&str; 10] =
    ["create", "make_dir", "link", "rename", "remove_file", "remove_dir", "write", "write_over", "sync", "close"];

type Hook = dyn Fn(usize, &str, &Path) -> Action + Send + Sync;

/// A filesystem with a hook before each call: its number, its name, the path that it is about. Calls to a file that is
/// being written ("write", "write_over", "cut", "sync", "close") or read ("size", "read", "map") are calls like the others.
#[derive(Clone)]
pub struct HookFs(Arc<Shared>);

struct Shared {
    inner: Box<dyn Fs>,
    /// Whether it says that other machines share it.
    shared: bool,
    calls: AtomicUsize,
    hook: RwLock<Option<Box<Hook>>>,
}

impl Default for HookFs {
    /// On the real one.
    fn default() -> HookFs {
        HookFs::on(Posix)
    }
}

impl std::fmt::Debug for HookFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookFs")
    }
}

impl HookFs {
    /// On another one.
    pub fn on(inner: impl Fs + 'static) -> HookFs {
        HookFs::new(inner, false)
    }

    /// On the real one, as if other machines shared it.
    pub fn on_a_network() -> HookFs {
        HookFs::new(Posix, true)
    }

    fn new(inner: impl Fs + 'static, shared: bool) -> HookFs {
        let (calls, hook) = (AtomicUsize::new(0), RwLock::default());
        HookFs(Arc::new(Shared { inner: Box::new(inner), shared, calls, hook }))
    }

    /// From now on, calls are numbered from 0, and `hook` decides about them.
    pub fn hook(&self, hook: impl Fn(usize, &str, &Path) -> Action + Send + Sync + 'static) {
        self.0.calls.store(0, Ordering::SeqCst);
        *self.0.hook.write().unwrap() = Some(Box::new(hook));
    }

    pub fn unhook(&self) {
        *self.0.hook.write().unwrap() = None;
    }

    pub fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    fn ask(&self, op: &str, path: &Path) -> Action {
        let n = self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.0.hook.read().unwrap().as_ref().map_or(Action::Pass, |hook| hook(n, op, path))
    }

    fn through<T>(&self, op: &'static str, path: &Path, call: impl FnOnce(&Path) -> FsResult<T>) -> FsResult<T> {
        let error = |errno| FsError::new(op, path, io::Error::from_raw_os_error(errno));
        match self.ask(op, path) {
            Action::Pass | Action::Short => call(path),
            Action::Refuse(errno) => Err(error(errno)),
            Action::LoseReply(errno) => call(path).and_then(|_| Err(error(errno))),
            Action::Elsewhere(other) => call(&other),
            Action::Then(then) => {
                let answer = call(path);
                then();
                answer
            }
        }
    }
}

struct HookWriter {
    inner: Box<dyn FileWriter>,
    fs: HookFs,
    path: PathBuf,
}

impl io::Write for HookWriter {
    /// A write that is refused has written half; but for EINTR, which says that it has written nothing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.fs.ask("write", &self.path) {
            Action::Refuse(EINTR) => Err(io::Error::from_raw_os_error(EINTR)),
            Action::Refuse(errno) => {
                self.inner.write_all(&bytes[..bytes.len() / 2])?;
                Err(io::Error::from_raw_os_error(errno))
            }
            Action::LoseReply(errno) => {
                self.inner.write_all(bytes)?;
                Err(io::Error::from_raw_os_error(errno))
            }
            Action::Short => self.inner.write(&bytes[..bytes.len().div_ceil(2)]),
            Action::Pass | Action::Elsewhere(_) | Action::Then(_) => self.inner.write(bytes),
        }
    }

    /// One call, as it is of a file.
    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.write(&slices.iter().map(|slice| &**slice).collect::<Vec<_>>().concat())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl FileWriter for HookWriter {
    /// As a write: one that is refused, or short, has changed half.
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()> {
        let error = |errno| FsError::new("write", &self.path, io::Error::from_raw_os_error(errno));
        match self.fs.ask("write_over", &self.path) {
            Action::Refuse(errno) => {
                self.inner.write_over(at, &bytes[..bytes.len() / 2])?;
                Err(error(errno))
            }
            Action::LoseReply(errno) => {
                self.inner.write_over(at, bytes)?;
                Err(error(errno))
            }
            Action::Pass | Action::Short | Action::Elsewhere(_) | Action::Then(_) => self.inner.write_over(at, bytes),
        }
    }

    fn cut(&mut self, len: u64) -> FsResult<()> {
        let Self { inner, fs, path } = self;
        fs.through("cut", path, |_| inner.cut(len))
    }

    fn sync(&mut self) -> FsResult<()> {
        let Self { inner, fs, path } = self;
        fs.through("sync", path, |_| inner.sync())
    }

    fn close(self: Box<Self>) -> FsResult<()> {
        let Self { inner, fs, path } = *self;
        fs.through("close", &path, |_| inner.close())
    }
}

struct HookReader {
    inner: Box<dyn FileReader>,
    fs: HookFs,
    path: PathBuf,
}

impl FileReader for HookReader {
    fn size(&self) -> FsResult<u64> {
        self.fs.through("size", &self.path, |_| self.inner.size())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        self.fs.through("read", &self.path, |_| self.inner.read_exact_at(buffer, offset))
    }

    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>> {
        self.fs.through("map", &self.path, |_| self.inner.map(range, mode))
    }
}

impl Fs for HookFs {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        let inner = self.through("create", path, |path| self.0.inner.create_new(path))?;
        Ok(Box::new(HookWriter { inner, fs: self.clone(), path: path.to_owned() }))
    }
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        let inner = self.through("open", path, |path| self.0.inner.open(path))?;
        Ok(Box::new(HookReader { inner, fs: self.clone(), path: path.to_owned() }))
    }
    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        self.through("list", dir, |dir| self.0.inner.list(dir))
    }
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.through("refresh", dir, |dir| self.0.inner.refresh(dir))
    }
    fn make_dir(&self, path: &Path) -> FsResult<()> {
        self.through("make_dir", path, |path| self.0.inner.make_dir(path))
    }
    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.through("link", to, |to| self.0.inner.link(from, to))
    }
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.through("rename", to, |to| self.0.inner.rename(from, to))
    }
    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.through("remove_file", path, |path| self.0.inner.remove_file(path))
    }
    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.through("remove_dir", path, |path| self.0.inner.remove_dir(path))
    }
    fn identity(&self, path: &Path) -> FsResult<Identity> {
        self.through("identity", path, |path| self.0.inner.identity(path))
    }
    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        self.through("changed", path, |path| self.0.inner.changed(path))
    }
    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        self.through("sync_dir", path, |path| self.0.inner.sync_dir(path))
    }
    fn space(&self, path: &Path) -> FsResult<Space> {
        self.through("space", path, |path| self.0.inner.space(path))
    }
    fn kind(&self, path: &Path) -> FsResult<Kind> {
        let kind = self.through("kind", path, |path| self.0.inner.kind(path))?;
        Ok(if self.0.shared { Kind { name: "nfs", local: false } } else { kind })
    }
}
