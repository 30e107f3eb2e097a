//! Clients of a filesystem that answer lookups from a cache, as NFS clients do.
//!
//! All clients of one root share the real filesystem below it, and a server that knows when each name was added and
//! removed. A client may answer that a name is absent if the name was absent at some moment within the last 60 s,
//! unless the client has opened the name's directory for reading since, or created the name. This is weaker than a real
//! client, which caches only names that one of its processes looked up. In the same way, a client may follow the old
//! path of a renamed directory. Creating, linking and renaming query the server; when the server answers that a name
//! exists, the client forgets that it was absent, as Linux does. [`advance`] moves the clock. client forgets that the
//! name was absent, as Linux does. [`advance`] moves the clock.

use crate::fault::{Answer, Call, Fault, FaultyFs, NETWORK, Next};
use crate::ring::splitmix;
use ringreel::fs::{Fs, FsError, FsResult, Posix};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

/// The lifetime of a cache entry.
const REMEMBERED_MS: u64 = 60_000;

/// Calls before which another process may run.
const PREEMPTIBLE: [&str; 10] =
    ["create", "open", "list", "refresh", "make_dir", "link", "rename", "remove_file", "remove_dir", "identity"];

/// A name: the inode of its directory, and the name in it.
type Name = (u64, OsString);

/// The time of an event: its number among all events, and the clock.
type Moment = (u64, u64);

/// The state that all clients of one root share.
#[derive(Debug, Default)]
struct Server {
    now_ms: AtomicU64,
    events: AtomicU64,
    came: Mutex<HashMap<Name, Moment>>,
    went: Mutex<HashMap<Name, Moment>>,
}

static SERVERS: LazyLock<Mutex<HashMap<PathBuf, Arc<Server>>>> = LazyLock::new(Mutex::default);

/// Probabilities of faults in this thread, out of 1000.
#[derive(Clone, Copy, Debug)]
pub struct Chances {
    /// A client caches a name as absent.
    pub absent: u64,
    /// A client follows the old path of a renamed directory.
    pub old_path: u64,
    /// A call takes effect, and its reply reports a failure.
    pub lost_reply: u64,
    /// Another process runs before a call.
    pub preempt: u64,
}

impl Chances {
    /// Every name that may be cached as absent is, and there are no other faults.
    pub const ABSENT: Chances = Chances { absent: 1000, old_path: 0, lost_reply: 0, preempt: 0 };
    /// No faults. Threads that a role starts have these.
    const NONE: Chances = Chances { absent: 0, old_path: 0, lost_reply: 0, preempt: 0 };
}

thread_local! {
    static CHANCES: Cell<Option<Chances>> = const { Cell::new(None) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    static OTHERS: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Sets the probabilities and the seed of this thread.
pub fn begin(seed: u64, chances: Chances) {
    RANDOM.set(seed);
    CHANCES.set(Some(chances));
}

/// The probabilities of this thread.
pub fn chances() -> Option<Chances> {
    CHANCES.get()
}

/// Sets what runs when a call of this thread is preempted.
pub fn preempt_by(others: Option<Rc<dyn Fn()>>) {
    OTHERS.set(others);
}

/// The next random number of this thread.
pub fn random() -> u64 {
    let mut state = RANDOM.get();
    let next = splitmix(&mut state);
    RANDOM.set(state);
    next
}

/// Advances the clock of all clients of `root`.
pub fn advance(root: &Path, seconds: u64) {
    let servers = SERVERS.lock().unwrap();
    servers[root].now_ms.fetch_add(seconds * 1000, Ordering::SeqCst);
}

/// One client.
pub type StaleClient = FaultyFs<StaleCache>;

/// The cache of one client.
pub struct StaleCache {
    root: PathBuf,
    root_inode: u64,
    server: Arc<Server>,
    memory: Mutex<Memory>,
    /// Probabilities where [`begin`] set none.
    chances: Chances,
    /// Lookups that the cache answered differently than the server would have.
    lies: AtomicU64,
}

#[derive(Debug, Default)]
struct Memory {
    /// When each directory was last opened for reading.
    opened: HashMap<u64, u64>,
    /// Cached names: whether absent, and which addition of the name this concerns.
    names: HashMap<Name, (bool, u64)>,
    /// Directories that it has seen, by their former names.
    dirs: HashMap<Name, Arc<File>>,
}

impl StaleClient {
    /// Caches every name as absent for as long as allowed.
    pub fn new(root: &Path) -> StaleClient {
        FaultyFs::with(Posix, StaleCache::new(root, Chances::ABSENT))
    }

    /// Caches according to [`begin`], in the thread that called it.
    pub fn random(root: &Path) -> StaleClient {
        FaultyFs::with(Posix, StaleCache::new(root, Chances::NONE))
    }
}

impl StaleCache {
    fn new(root: &Path, chances: Chances) -> StaleCache {
        let server = SERVERS.lock().unwrap().entry(root.to_owned()).or_default().clone();
        let root_inode = root.metadata().unwrap().ino();
        let memory = Mutex::default();
        StaleCache { root: root.to_owned(), root_inode, server, memory, chances, lies: AtomicU64::new(0) }
    }

    pub fn lies(&self) -> u64 {
        self.lies.load(Ordering::Relaxed)
    }

    fn chances(&self) -> Chances {
        CHANCES.get().unwrap_or(self.chances)
    }

    fn happens(&self, of: impl Fn(Chances) -> u64) -> bool {
        match of(self.chances()) {
            0 => false,
            1000.. => true,
            chance => random() % 1000 < chance,
        }
    }

    fn moment(&self) -> Moment {
        (self.server.events.fetch_add(1, Ordering::SeqCst) + 1, self.server.now_ms.load(Ordering::SeqCst))
    }

    /// Whether this client may still see the state of a name in `dir` from before that moment.
    fn may_predate(&self, memory: &Memory, dir: u64, moment: Option<&Moment>) -> bool {
        let now = self.server.now_ms.load(Ordering::SeqCst);
        let opened = memory.opened.get(&dir).copied().unwrap_or(0);
        moment.is_some_and(|(event, at)| *event > opened && at + REMEMBERED_MS > now)
    }

    /// Looks up each component of `path` below the root, as a kernel does. Returns the real path.
    fn walk(&self, path: &Path) -> FsResult<PathBuf> {
        let Ok(below) = path.strip_prefix(&self.root) else { return Ok(path.to_owned()) };
        let (mut here, mut dir) = (self.root.clone(), self.root_inode);
        for component in below.components() {
            let name = (dir, component.as_os_str().to_owned());
            (here, dir) = self.step(&here, &name).ok_or_else(|| absent(path))?;
        }
        Ok(here)
    }

    /// Looks up one component; returns its path and inode, or none if it is absent or cached as absent.
    fn step(&self, dir: &Path, name: &Name) -> Option<(PathBuf, u64)> {
        let (path, mut memory) = (dir.join(&name.1), self.memory.lock().unwrap());
        let Ok(found) = path.symlink_metadata() else {
            memory.names.remove(name);
            let went = self.server.went.lock().unwrap().get(name).copied();
            let seen = memory.dirs.get(name).cloned();
            let seen = seen.filter(|_| self.may_predate(&memory, name.0, went.as_ref()))?;
            if !self.happens(|chances| chances.old_path) {
                return None;
            }
            let now = std::fs::read_link(format!("/proc/self/fd/{}", seen.as_raw_fd())).ok()?;
            let inode = now.symlink_metadata().ok()?.ino();
            return Some((now, inode));
        };
        let came = self.server.came.lock().unwrap().get(name).copied();
        if let Some(moment) = came.filter(|moment| self.may_predate(&memory, name.0, Some(moment))) {
            let known = memory.names.get(name).filter(|(_, of)| *of == moment.0).map(|(absent, _)| *absent);
            let is_absent = known.unwrap_or_else(|| self.happens(|chances| chances.absent));
            memory.names.insert(name.clone(), (is_absent, moment.0));
            if is_absent {
                self.lies.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        if found.is_dir() && self.chances().old_path > 0 && !memory.dirs.contains_key(name) {
            memory.dirs.extend(File::open(&path).ok().map(|file| (name.clone(), Arc::new(file))));
        }
        Some((path, found.ino()))
    }

    /// The place of the last component of `path`; the directories above are looked up.
    fn place(&self, path: &Path) -> FsResult<PathBuf> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path.to_owned()) };
        Ok(if parent.starts_with(&self.root) { self.walk(parent)?.join(name) } else { path.to_owned() })
    }

    /// Lets the server create a name, after which this client knows that it exists. If the reply is lost, the request
    /// is repeated, and the server answers with `again`.
    fn make(&self, call: Call<'_>, again: Option<io::ErrorKind>, next: Next<'_>) -> FsResult<Answer> {
        let place = self.place(call.path)?;
        let made = next(call.at(&place));
        let Some(name) = name_of(&place) else { return made };
        let mut came = self.server.came.lock().unwrap();
        let mut event = came.get(&name).map_or(0, |(event, _)| *event);
        if made.is_ok() {
            let moment = self.moment();
            came.insert(name.clone(), moment);
            event = moment.0;
        }
        drop(came);
        let again = again.filter(|_| made.is_ok() && self.happens(|chances| chances.lost_reply));
        let made = again.map_or(made, |again| Err(FsError::new("make", call.path, again.into())));
        if made.as_ref().map_or_else(FsError::is_taken, |_| true) {
            self.memory.lock().unwrap().names.insert(name, (false, event));
        }
        made
    }

    /// Records that the name at `place` was removed.
    fn unmake(&self, name: Option<Name>) {
        if let Some(name) = name {
            let moment = self.moment();
            self.server.came.lock().unwrap().remove(&name);
            self.server.went.lock().unwrap().insert(name, moment);
        }
    }

    /// Opens a directory for reading: from now on this client knows its present names.
    fn open_dir(&self, dir: &Path) -> FsResult<PathBuf> {
        let place = self.walk(dir)?;
        Posix.refresh(&place)?;
        let event = self.server.events.load(Ordering::SeqCst);
        if let Ok(found) = place.metadata() {
            let mut memory = self.memory.lock().unwrap();
            memory.opened.insert(found.ino(), event);
            memory.names.retain(|(of, _), _| *of != found.ino());
        }
        Ok(place)
    }

    /// Lets other processes run before a call, at random.
    fn preempt(&self) {
        if self.happens(|chances| chances.preempt) {
            let others = OTHERS.with_borrow(|others| others.clone());
            if let Some(others) = others {
                others();
            }
        }
    }
}

fn name_of(path: &Path) -> Option<Name> {
    let dir = path.parent()?.metadata().ok()?;
    Some((dir.ino(), path.file_name()?.to_owned()))
}

fn absent(path: &Path) -> FsError {
    FsError::new("look up", path, io::ErrorKind::NotFound.into())
}

impl Fault for StaleCache {
    fn around(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        if PREEMPTIBLE.contains(&call.op) {
            self.preempt();
        }
        match call.op {
            "create" => self.make(call, None, next),
            "make_dir" => self.make(call, Some(io::ErrorKind::AlreadyExists), next),
            "link" => {
                let from = self.walk(call.from)?;
                self.make(Call { from: &from, ..call }, Some(io::ErrorKind::AlreadyExists), next)
            }
            "rename" => {
                let from = self.walk(call.from)?;
                let name = name_of(&from);
                let mut rename = |call: Call<'_>| next(call).inspect(|_| self.unmake(name.clone()));
                self.make(Call { from: &from, ..call }, Some(io::ErrorKind::NotFound), &mut rename)
            }
            "remove_file" | "remove_dir" => {
                let place = self.walk(call.path)?;
                let name = name_of(&place);
                next(call.at(&place)).inspect(|_| self.unmake(name))
            }
            "list" => next(call.at(&self.open_dir(call.path)?)),
            "refresh" => self.open_dir(call.path).map(|_| ().into()),
            "open" | "identity" | "changed" | "sync_dir" => next(call.at(&self.walk(call.path)?)),
            "kind" => Ok(NETWORK.into()),
            _ => next(call),
        }
    }
}
