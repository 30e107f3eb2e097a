//! What the tests of the ring share: a filesystem with a hook before each call, and a look at what was delivered.

use crate::index;
use bytes::Bytes;
use ringreel::format::{DType, Meta};
use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Posix, Space};
use ringreel::layout::{Layout, segment_name};
use ringreel::manager::{Manager, until};
use ringreel::ring::Ring;
use ringreel::ring::liveness::Watch;
use ringreel::ring::manifests::Manifests;
use ringreel::ring::promote::When;
use ringreel::{Config, Generator, NamedPart, SampleId};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

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
            Action::Pass | Action::Elsewhere(_) => self.inner.write(bytes),
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
            Action::Pass | Action::Short | Action::Elsewhere(_) => self.inner.write_over(at, bytes),
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

/// A ring for a test: `cap` samples in a generation, parts `data`, short times.
pub fn config(dir: &Path, cap: u64, more: &str) -> Config {
    let yaml = format!("DBNAME: t\nSWAP_CAP: {cap}\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 60\n{more}");
    let yaml = format!("{yaml}\n{}", coordination::lines(dir));
    // A test that says nothing of segments follows each sample by itself.
    let segments = if more.contains("SEGMENT_SAMPLES") { "" } else { "SEGMENT_SAMPLES: 1\n" };
    Config::parse(&format!("{segments}{yaml}"), "test", dir, true).unwrap()
}

pub fn never() -> bool {
    false
}

/// Runs a manager until `stop` says so.
pub fn manage(manager: Manager, stop: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(manager.run(until(stop), |_| ())).unwrap();
}

/// Writes sample `n`; its one part holds `n`.
pub fn write(generator: &mut Generator, n: u64) -> ringreel::Result<Vec<SampleId>> {
    write_until(generator, n, &never)
}

/// The same; when `stop` says so, it waits no longer.
pub fn write_until(generator: &mut Generator, n: u64, stop: &dyn Fn() -> bool) -> ringreel::Result<Vec<SampleId>> {
    let data = n.to_le_bytes();
    let mut meta = Meta::new();
    meta.set("n", n);
    generator.write(&[NamedPart::new("data", DType::U64, &[1], &data)], &meta, stop)
}

/// From now on generators leave promotion to it, for a lease.
pub fn a_manager_seems_to_live(config: &Config) {
    assert!(another(config).coordination.claim_lease("manager", 1, "somebody-1-abc").unwrap());
}

/// Every listed sample, and the generations that list it.
pub fn listed(root: &Path) -> BTreeMap<SampleId, Vec<u64>> {
    listed_on(Arc::new(Posix), root)
}

/// The same on another filesystem.
pub fn listed_on(fs: Arc<dyn Fs>, root: &Path) -> BTreeMap<SampleId, Vec<u64>> {
    let manifests = Manifests::new(fs, Layout::new(root));
    let mut numbers = manifests.numbers().unwrap();
    numbers.sort_unstable();
    let mut found: BTreeMap<SampleId, Vec<u64>> = BTreeMap::new();
    for n in numbers {
        // Who lost one lost what it lists.
        let Ok(Some(manifest)) = manifests.get(n) else { continue };
        for segment in &manifest.segments {
            for ordinal in 0..segment.samples {
                found.entry(SampleId { segment: segment.id, ordinal }).or_default().push(n);
            }
        }
    }
    found
}

/// Panics unless each of `ids` is listed by exactly one manifest, and nothing is listed twice.
pub fn assert_delivered_once(root: &Path, ids: &[SampleId], what: &str) {
    assert_delivered_once_on(Arc::new(Posix), root, ids, what);
}

/// The same on another filesystem.
pub fn assert_delivered_once_on(fs: Arc<dyn Fs>, root: &Path, ids: &[SampleId], what: &str) {
    let listed = listed_on(fs, root);
    let lost: Vec<_> = ids.iter().filter(|id| !listed.contains_key(id)).collect();
    let twice: Vec<_> = listed.iter().filter(|(_, generations)| generations.len() > 1).collect();
    assert!(lost.is_empty() && twice.is_empty(), "{what}: lost {lost:?}, twice {twice:?}");
}

/// Another process's view of the same ring, on the plain filesystem.
pub fn another(config: &Config) -> Ring {
    Ring::find_or_make(Arc::new(Posix), config).unwrap()
}

/// A finished sample of an owner that died before it linked it; and its staged file.
pub fn staged(config: &Config, n: u64) -> (SampleId, PathBuf) {
    let fs = Arc::new(HookFs::default());
    let mut generator = Generator::open_on(fs.clone(), config).unwrap();
    let no_commit = |path: &Path| path.extension().is_some_and(|end| end == "rec");
    fs.hook(move |_, op, path| if op == "link" && no_commit(path) { Action::Refuse(EACCES) } else { Action::Pass });
    let id = write(&mut generator, n).unwrap()[0];
    let ring = generator.ring();
    (id, ring.layout.sealed(&ring.me, id.segment))
}

/// The same, linked as number `index` of the generation that fills.
pub fn linked(config: &Config, index: u64) -> (SampleId, PathBuf) {
    let (id, file) = staged(config, index);
    let ring = another(config);
    let filling = ring.layout.write(ring.manifests.newest().unwrap() + 1);
    std::fs::hard_link(&file, filling.join(segment_name(index, 1))).unwrap();
    (id, file)
}

/// A ring on a filesystem with a hook.
pub fn hooked(config: &Config) -> (Ring, Arc<HookFs>) {
    let fs = Arc::new(HookFs::default());
    (Ring::find_or_make(fs.clone(), config).unwrap(), fs)
}

/// Brings in what dead owners left, and makes everything visible.
pub fn bring_in(ring: &Ring) {
    try_bring_in(ring).unwrap();
}

/// The same, as far as it can be done.
pub fn try_bring_in(ring: &Ring) -> ringreel::Result<()> {
    let mut watch = Watch::new(Duration::ZERO);
    for _ in 0..20 {
        ring.recover(&mut watch)?;
        ring.promote(When::NotEmpty)?;
        ring.reclaim()?;
        let owners = ring.fs.list(&ring.layout.staging())?;
        let names = owners.iter().flat_map(|owner| ring.fs.list(&ring.layout.staging_of(owner)).unwrap_or_default());
        if !names.into_iter().any(|name| name.ends_with(".rec")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A directory in memory where there is one: these tests make thousands of rings, each with its own syncs.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The next number of a row: SplitMix64 (Steele, Lea, Flood 2014; <https://prng.di.unimi.it/splitmix64.c>).
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
