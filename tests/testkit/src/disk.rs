//! A disk in memory that can lose its power.
//!
//! It keeps a journal of its operations. Synced data survives a power cut; of the rest, any subset may survive: POSIX
//! promises no order between names in directories, and none between names and contents. A rename is atomic. For real
//! filesystems, see <https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai>.
//!
//! It is a separate implementation and not a [fault](crate::fault) on another filesystem, because a fault changes what
//! one call does, and a power cut changes what all earlier calls did.

use crate::fault::{EEXIST, EIO, ENOENT, ENOTDIR, ENOTEMPTY};
use ringreel::SampleId;
use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Space};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};

type Ino = u64;
const ROOT: Ino = 0;

#[derive(Clone, Debug)]
enum Node {
    File(Arc<Vec<u8>>),
    Dir(BTreeMap<String, Ino>),
}

/// A name in a directory, and what it refers to afterwards.
#[derive(Clone, Debug)]
struct Put {
    dir: Ino,
    name: String,
    /// None: the name is removed.
    leads_to: Option<Ino>,
}

/// An operation.
#[derive(Clone, Debug)]
enum Op {
    /// A name was added, removed or moved (two at once).
    Names(Vec<Put>),
    Write(Ino, Arc<Vec<u8>>),
    /// Bytes were overwritten.
    WriteOver(Ino, u64, Arc<Vec<u8>>),
    Cut(Ino, u64),
    SyncFile(Ino),
    SyncDir(Ino),
    /// These samples were reported as finished.
    Told(Vec<SampleId>),
}

/// Syncs that the disk omits while it reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    None,
    /// Syncs of files.
    Files,
    /// Syncs of directories whose name begins with this.
    Dirs(&'static str),
    /// Syncs of the owners' directories in `staging/`.
    Owners,
}

#[derive(Debug)]
struct State {
    nodes: HashMap<Ino, Node>,
    next: Ino,
    journal: Vec<Op>,
    dirs: HashSet<Ino>,
    /// The directories of the index, whose names are hints: they survive or disappear together.
    hints: HashSet<Ino>,
    lie: Lie,
}

/// A disk in memory; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub fn new(lie: Lie) -> Disk {
        let nodes = HashMap::from([(ROOT, Node::Dir(BTreeMap::new()))]);
        Disk(Arc::new(Mutex::new(State::of(nodes, 1, lie))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Records that these samples were reported as finished.
    pub fn told(&self, ids: &[SampleId]) {
        self.lock().journal.push(Op::Told(ids.to_vec()));
    }

    /// The operations so far.
    pub fn history(&self) -> History {
        let state = self.lock();
        History { journal: state.journal.clone(), dirs: state.dirs.clone(), hints: state.hints.clone() }
    }
}

fn error(op: &'static str, path: &Path, errno: i32) -> FsError {
    FsError::new(op, path, io::Error::from_raw_os_error(errno))
}

impl State {
    fn of(nodes: HashMap<Ino, Node>, next: Ino, lie: Lie) -> State {
        State { nodes, next, journal: Vec::new(), dirs: HashSet::new(), hints: HashSet::new(), lie }
    }

    fn find(&self, path: &Path) -> Option<Ino> {
        path.components().filter(|part| matches!(part, Component::Normal(_))).try_fold(ROOT, |dir, part| {
            match self.nodes.get(&dir)? {
                Node::Dir(names) => names.get(part.as_os_str().to_str()?).copied(),
                Node::File(_) => None,
            }
        })
    }

    /// The directory that contains `path`, and the name in it.
    fn place(&self, op: &'static str, path: &Path) -> FsResult<(Ino, String)> {
        let dir = path.parent().and_then(|parent| self.find(parent)).ok_or_else(|| error(op, path, ENOENT))?;
        match self.nodes.get(&dir) {
            Some(Node::Dir(_)) => Ok((dir, path.file_name().unwrap().to_str().unwrap().to_owned())),
            _ => Err(error(op, path, ENOTDIR)),
        }
    }

    fn names(&mut self, puts: Vec<Put>) {
        let op = Op::Names(puts);
        apply(&mut self.nodes, &op);
        self.journal.push(op);
    }

    fn add(&mut self, op: &'static str, path: &Path, ino: Ino) -> FsResult<()> {
        let (dir, name) = self.place(op, path)?;
        if self.find(path).is_some() {
            return Err(error(op, path, EEXIST));
        }
        self.names(vec![Put { dir, name, leads_to: Some(ino) }]);
        Ok(())
    }

    fn make(&mut self, op: &'static str, path: &Path, node: Node) -> FsResult<Ino> {
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        self.add(op, path, ino).inspect_err(|_| drop(self.nodes.remove(&ino)))?;
        Ok(ino)
    }

    fn remove(&mut self, op: &'static str, path: &Path) -> FsResult<()> {
        let (dir, name) = self.place(op, path)?;
        let ino = self.find(path).ok_or_else(|| error(op, path, ENOENT))?;
        if matches!(&self.nodes[&ino], Node::Dir(names) if !names.is_empty()) {
            return Err(error(op, path, ENOTEMPTY));
        }
        self.names(vec![Put { dir, name, leads_to: None }]);
        Ok(())
    }
}

/// Applies an operation to a tree. A name that is taken must have been removed before.
fn apply(nodes: &mut HashMap<Ino, Node>, op: &Op) {
    match op {
        Op::Names(puts) => {
            for put in puts {
                let Some(Node::Dir(names)) = nodes.get_mut(&put.dir) else { continue };
                match put.leads_to {
                    Some(ino) => drop(names.insert(put.name.clone(), ino)),
                    None => drop(names.remove(&put.name)),
                }
            }
        }
        Op::Write(ino, bytes) => {
            if let Some(Node::File(file)) = nodes.get_mut(ino) {
                Arc::make_mut(file).extend_from_slice(bytes);
            }
        }
        Op::WriteOver(ino, at, bytes) => {
            if let Some(Node::File(file)) = nodes.get_mut(ino) {
                let (file, end) = (Arc::make_mut(file), *at as usize + bytes.len());
                file.resize(file.len().max(end), 0); // the bytes before may be lost
                file[*at as usize..end].copy_from_slice(bytes);
            }
        }
        Op::Cut(ino, len) => {
            if let Some(Node::File(file)) = nodes.get_mut(ino) {
                Arc::make_mut(file).truncate(*len as usize);
            }
        }
        Op::SyncFile(_) | Op::SyncDir(_) | Op::Told(_) => {}
    }
}

struct DiskWriter(Disk, Ino);

impl Write for DiskWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let op = Op::Write(self.1, Arc::new(bytes.to_vec()));
        apply(&mut state.nodes, &op);
        state.journal.push(op);
        Ok(bytes.len())
    }

    /// Makes one call of all slices, like a file.
    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.write(&slices.iter().map(|slice| &**slice).collect::<Vec<_>>().concat())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileWriter for DiskWriter {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()> {
        let mut state = self.0.lock();
        let op = Op::WriteOver(self.1, at, Arc::new(bytes.to_vec()));
        apply(&mut state.nodes, &op);
        state.journal.push(op);
        Ok(())
    }

    fn cut(&mut self, len: u64) -> FsResult<()> {
        let mut state = self.0.lock();
        let op = Op::Cut(self.1, len);
        apply(&mut state.nodes, &op);
        state.journal.push(op);
        Ok(())
    }

    fn sync(&mut self) -> FsResult<()> {
        let mut state = self.0.lock();
        if state.lie != Lie::Files {
            state.journal.push(Op::SyncFile(self.1));
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> FsResult<()> {
        Ok(())
    }
}

struct DiskReader(Arc<Vec<u8>>);

impl FileReader for DiskReader {
    fn size(&self) -> FsResult<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        let bytes = self.0.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        let early = || FsError::new("read", Path::new(""), io::ErrorKind::UnexpectedEof.into());
        buffer.copy_from_slice(bytes.ok_or_else(early)?);
        Ok(())
    }

    fn map(&self, _: Range<u64>, _: MapMode) -> FsResult<Option<bytes::Bytes>> {
        Ok(None)
    }
}

impl Fs for Disk {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        let ino = self.lock().make("create", path, Node::File(Arc::default()))?;
        Ok(Box::new(DiskWriter(self.clone(), ino)))
    }

    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        let state = self.lock();
        match state.find(path).map(|ino| &state.nodes[&ino]) {
            Some(Node::File(bytes)) => Ok(Box::new(DiskReader(bytes.clone()))),
            Some(Node::Dir(_)) => Err(error("open", path, EIO)),
            None => Err(error("open", path, ENOENT)),
        }
    }

    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        let state = self.lock();
        match state.find(dir).map(|ino| &state.nodes[&ino]) {
            Some(Node::Dir(names)) => Ok(names.keys().cloned().collect()),
            Some(Node::File(_)) => Err(error("list", dir, ENOTDIR)),
            None => Err(error("list", dir, ENOENT)),
        }
    }

    fn make_dir(&self, path: &Path) -> FsResult<()> {
        let mut state = self.lock();
        let ino = state.make("create directory", path, Node::Dir(BTreeMap::new()))?;
        state.dirs.insert(ino);
        if path.components().any(|part| part.as_os_str() == "index") {
            state.hints.insert(ino);
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        let mut state = self.lock();
        let ino = state.find(from).ok_or_else(|| error("link", from, ENOENT))?;
        state.add("link", to, ino)
    }

    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        let mut state = self.lock();
        let ino = state.find(from).ok_or_else(|| error("rename", from, ENOENT))?;
        let ((from_dir, from_name), (dir, name)) = (state.place("rename", from)?, state.place("rename", to)?);
        if let Some(there) = state.find(to)
            && matches!(&state.nodes[&there], Node::Dir(names) if !names.is_empty())
        {
            return Err(error("rename", to, ENOTEMPTY));
        }
        let gone = Put { dir: from_dir, name: from_name, leads_to: None };
        state.names(vec![gone, Put { dir, name, leads_to: Some(ino) }]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.lock().remove("remove", path)
    }

    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.lock().remove("remove directory", path)
    }

    fn identity(&self, path: &Path) -> FsResult<Identity> {
        let state = self.lock();
        let ino = state.find(path).ok_or_else(|| error("stat", path, ENOENT))?;
        Ok(match &state.nodes[&ino] {
            Node::File(bytes) => Identity { inode: (1, ino), len: bytes.len() as u64, is_dir: false },
            Node::Dir(_) => Identity { inode: (1, ino), len: 0, is_dir: true },
        })
    }

    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        let mut state = self.lock();
        let ino = state.find(path).ok_or_else(|| error("sync directory", path, ENOENT))?;
        let name = path.file_name().unwrap_or_default().to_str().unwrap();
        let is_owners = path.parent().and_then(Path::file_name).is_some_and(|above| above == "staging");
        let lies = match state.lie {
            Lie::Dirs(words) => name.starts_with(words),
            Lie::Owners => is_owners,
            Lie::None | Lie::Files => false,
        };
        if !lies {
            state.journal.push(Op::SyncDir(ino));
        }
        Ok(())
    }

    fn space(&self, _: &Path) -> FsResult<Space> {
        Ok(Space { bytes: 1 << 40, inodes: None })
    }

    fn kind(&self, _: &Path) -> FsResult<Kind> {
        Ok(Kind { name: "tmpfs", local: true })
    }
}

/// All operations on a disk, from the beginning.
pub struct History {
    journal: Vec<Op>,
    dirs: HashSet<Ino>,
    hints: HashSet<Ino>,
}

/// A set of operations that a power cut may undo.
enum Doubt {
    /// Names that may be missing.
    Names,
    /// Contents of a file that may be complete, half, missing or zeros.
    Contents,
    /// All changes of the index since its last sync.
    Hints,
}

/// A disk after a power cut.
pub struct Image {
    pub disk: Disk,
    /// Samples that were reported as finished before the cut.
    pub told: Vec<SampleId>,
    /// A hash of the contents, to distinguish images.
    pub hash: u64,
    /// Names that were not added, or not removed.
    pub missing: Vec<String>,
}

impl History {
    /// The number of operations.
    pub fn operations(&self) -> usize {
        self.journal.len()
    }

    /// The disk after the first `cut` operations, as running processes saw it.
    pub fn living(&self, cut: usize) -> Disk {
        image(&self.journal[..cut], &self.dirs, &vec![None; cut], &Vec::new()).disk
    }

    /// Passes at most `most` images of a power cut after the first `cut` operations to `each`. `random` yields numbers.
    pub fn images(&self, cut: usize, most: usize, random: &mut dyn FnMut() -> u64, each: &mut dyn FnMut(Image)) {
        let done = &self.journal[..cut];
        let (mut file_synced, mut dir_synced) = (HashMap::<Ino, usize>::new(), HashMap::<Ino, usize>::new());
        for (at, op) in done.iter().enumerate() {
            match op {
                Op::SyncFile(ino) => drop(file_synced.insert(*ino, at)),
                Op::SyncDir(ino) => drop(dir_synced.insert(*ino, at)),
                _ => {}
            }
        }
        let synced = |at: usize, map: &HashMap<Ino, usize>, ino: &Ino| map.get(ino).is_some_and(|sync| *sync > at);
        let mut doubts = Vec::new();
        let mut doubt_of = vec![None; cut];
        let (mut files, mut hints) = (HashMap::<Ino, usize>::new(), None);
        for (at, op) in done.iter().enumerate() {
            doubt_of[at] = match op {
                // Syncing one of the two directories of a move suffices, because a move is atomic.
                Op::Names(puts) if puts.iter().any(|put| synced(at, &dir_synced, &put.dir)) => None,
                Op::Names(puts) if puts.iter().all(|put| self.hints.contains(&put.dir)) => {
                    Some(*hints.get_or_insert_with(|| push(&mut doubts, Doubt::Hints)))
                }
                Op::Names(_) => Some(push(&mut doubts, Doubt::Names)),
                Op::WriteOver(ino, ..) if !synced(at, &file_synced, ino) => Some(push(&mut doubts, Doubt::Contents)),
                Op::Write(ino, _) | Op::Cut(ino, _) if !synced(at, &file_synced, ino) => {
                    Some(*files.entry(*ino).or_insert_with(|| push(&mut doubts, Doubt::Contents)))
                }
                _ => None,
            };
        }
        for choice in choices(&doubts, most, random) {
            each(image(done, &self.dirs, &doubt_of, &choice));
        }
    }
}

fn push(doubts: &mut Vec<Doubt>, doubt: Doubt) -> usize {
    doubts.push(doubt);
    doubts.len() - 1
}

/// The outcome of a doubt: 0 nothing survives, 1 everything; for contents also 2 half, 3 the same number of zeros.
type Choice = Vec<u8>;

/// All combinations if they are few; else all, none, each alone, each one missing, each prefix, and random ones.
fn choices(doubts: &[Doubt], most: usize, random: &mut dyn FnMut() -> u64) -> Vec<Choice> {
    let kinds: Vec<u8> = doubts.iter().map(|doubt| if matches!(doubt, Doubt::Contents) { 4 } else { 2 }).collect();
    let all = kinds.iter().try_fold(1usize, |product, kinds| product.checked_mul(usize::from(*kinds)));
    if let Some(all) = all.filter(|all| *all <= most) {
        return (0..all)
            .map(|mut n| {
                let digit = |kinds: &u8| {
                    let digit = n % usize::from(*kinds);
                    n /= usize::from(*kinds);
                    digit as u8
                };
                kinds.iter().map(digit).collect()
            })
            .collect();
    }
    let len = doubts.len();
    let mut all: Vec<Choice> = vec![vec![0; len], vec![1; len]];
    for at in 0..len {
        let mut alone = vec![0; len];
        alone[at] = 1;
        let mut missing = vec![1; len];
        missing[at] = 0;
        let prefix = (0..len).map(|n| u8::from(n < at)).collect();
        all.extend([alone, missing, prefix]);
        for torn in 2..kinds[at] {
            let mut choice = vec![1; len];
            choice[at] = torn;
            all.push(choice);
        }
    }
    // The ends of the list matter most; if there are too many, a random choice among them.
    while all.len() > most {
        let at = 2 + random() as usize % (all.len() - 2);
        all.swap_remove(at);
    }
    while all.len() < most {
        all.push(kinds.iter().map(|kinds| (random() >> 7) as u8 % kinds).collect());
    }
    all
}

/// Applies the operations that survive according to `choice`.
fn image(done: &[Op], dirs: &HashSet<Ino>, doubt_of: &[Option<usize>], choice: &Choice) -> Image {
    let (mut next, mut told) = (1, Vec::new());
    for op in done {
        match op {
            Op::Names(puts) => puts.iter().filter_map(|put| put.leads_to).for_each(|ino| next = next.max(ino + 1)),
            Op::Told(ids) => told.extend_from_slice(ids),
            _ => {}
        }
    }
    // Files and directories exist independently; names refer to them or not.
    let empty = |ino: Ino| match ino == ROOT || dirs.contains(&ino) {
        true => Node::Dir(BTreeMap::new()),
        false => Node::File(Arc::default()),
    };
    let mut nodes: HashMap<Ino, Node> = (ROOT..next).map(|ino| (ino, empty(ino))).collect();
    for (op, doubt) in done.iter().zip(doubt_of) {
        match (doubt.map_or(1, |doubt| choice[doubt]), op) {
            (0, _) => {}
            (2, Op::Write(ino, bytes)) => {
                apply(&mut nodes, &Op::Write(*ino, Arc::new(bytes[..bytes.len() / 2].to_vec())));
            }
            (2, Op::WriteOver(ino, at, bytes)) => {
                let half = Arc::new(bytes[..bytes.len() / 2].to_vec());
                apply(&mut nodes, &Op::WriteOver(*ino, *at, half));
            }
            (3, Op::WriteOver(ino, at, bytes)) => {
                apply(&mut nodes, &Op::WriteOver(*ino, *at, Arc::new(vec![0; bytes.len()])));
            }
            (3, Op::Write(ino, bytes)) => apply(&mut nodes, &Op::Write(*ino, Arc::new(vec![0; bytes.len()]))),
            _ => apply(&mut nodes, op),
        }
    }
    let mut hasher = DefaultHasher::new();
    hash(&nodes, ROOT, &mut hasher);
    told.hash(&mut hasher);
    let undone = done.iter().zip(doubt_of).filter(|(_, doubt)| doubt.is_some_and(|doubt| choice[doubt] == 0));
    let names = undone.filter_map(|(op, _)| if let Op::Names(puts) = op { Some(puts) } else { None });
    let missing = names.flatten().map(|put| format!("{}{}", if put.leads_to.is_some() { "+" } else { "-" }, put.name));
    let disk = Disk(Arc::new(Mutex::new(State::of(nodes, next, Lie::None))));
    Image { disk, told, hash: hasher.finish(), missing: missing.collect() }
}

/// Hashes what is reachable from `ino`.
fn hash(nodes: &HashMap<Ino, Node>, ino: Ino, hasher: &mut DefaultHasher) {
    match nodes.get(&ino) {
        Some(Node::Dir(names)) => {
            names.len().hash(hasher);
            for (name, ino) in names {
                name.hash(hasher);
                hash(nodes, *ino, hasher);
            }
        }
        Some(Node::File(bytes)) => (ino, bytes).hash(hasher),
        None => {}
    }
}
