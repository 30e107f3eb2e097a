//! The state of the model: the names in the filesystem, the followed segment, and the next step of each process. It is
//! compact, so that tens of millions of states fit in memory.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Generations in a state, including 0 and the one that is created ahead.
pub const ROOM: usize = 8;

/// Bits of a generation's directory under one of its paths: it exists; other segments fill it; the names of the
/// followed segment in it (two owners make at most two).
pub const THERE: u8 = 0x80;
/// See [`THERE`].
pub const FULL: u8 = 0x40;
/// See [`THERE`]; of a manifest: the names that it lists.
pub const NAMES: u8 = 0x03;
/// Bit of a published manifest.
pub const OUT: u8 = 0x80;
/// Bit of a manifest that was published and is pruned, so that no process can read it.
pub const PRUNED: u8 = 0x40;

/// The followed segment in `staging/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Staged {
    /// No name: not begun, or removed.
    #[default]
    Gone,
    /// `<id>.part`
    Part,
    /// `<id>.rec`
    Sealed,
}

/// The state of a committer: its next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Commit {
    /// Begins the segment.
    #[default]
    Begin,
    /// Syncs the file.
    Sync,
    /// Renames it to its sealed name.
    Seal,
    /// Syncs the staging directory.
    SyncName,
    /// Reads the manifests, and chooses the generation.
    Look,
    /// Links it.
    Link,
    /// Found no such name, and checks again.
    Afresh,
    /// Creates `write.<t>`.
    MakeDir,
    /// Syncs the directory of manifests before it relies on them.
    SyncManifests,
    /// Removes the staging name of the listed segment.
    Tidy,
    /// Knows that it is delivered.
    Done,
}

/// A process that commits the followed segment: its owner, or one that considers the owner dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committer {
    /// What it does next.
    pub at: Commit,
    /// Whether it is not the owner.
    pub adopts: bool,
    /// The generation into which it links the segment, while that matters.
    pub target: u8,
    /// The generation into which it linked the segment last; 0: none.
    pub linked: u8,
}

/// The state of a manager: its next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Manage {
    /// Looks for work.
    #[default]
    Idle,
    /// Creates `write.<n+1>`.
    MakeNext,
    /// Renames `write.<n>` to `read.<n>`.
    Rename,
    /// Syncs the ring's directory.
    SyncRing,
    /// Lists `read.<n>` and chooses.
    List,
    /// Removes staging names too early; only if that rule is omitted.
    TooSoon,
    /// Syncs `read.<n>`.
    SyncRead,
    /// Syncs `manifests/` before it publishes another one.
    SyncEarlier,
    /// Publishes the manifest.
    Publish,
    /// Syncs `manifests/`.
    SyncManifests,
    /// Removes the staging name of a listed segment.
    Unstage,
    /// Removes unlisted links.
    Unlink,
    /// Syncs `manifests/` before it removes old generations.
    SyncBefore,
    /// Moves `read.<n>` to `trash/`.
    RetireRead,
    /// Moves `write.<n>` to `trash/`.
    RetireWrite,
    /// Removes the staging name of a segment in an old manifest.
    Strike,
    /// Syncs the staging directories before it prunes a manifest.
    SyncStaging,
    /// Prunes an old manifest.
    Prune,
}

/// A process that promotes, reclaims and cleans up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manager {
    /// What it does next.
    pub at: Manage,
    /// The generation that this concerns.
    pub n: u8,
    /// Names of the followed segment that it saw there.
    pub seen: u8,
    /// The names that it would list.
    pub mine: u8,
}

/// The names and contents that reached the disk, which a power cut leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Like [`State::staged`].
    pub staged: Staged,
    /// The segment's bytes.
    pub bytes: bool,
    /// Like [`State::write`].
    pub write: [u8; ROOM],
    /// Like [`State::read`].
    pub read: [u8; ROOM],
    /// Like [`State::manifest`].
    pub manifest: [u8; ROOM],
}

/// Violations that the present names do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// A published manifest has changed.
    pub changed: bool,
    /// A reader got a segment that no manifest listed there.
    pub unlisted: bool,
}

/// The whole state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The followed segment in staging.
    pub staged: Staged,
    /// Whether its ids were returned: from then on it must be delivered, once.
    pub finished: bool,
    /// `write.<n>`
    pub write: [u8; ROOM],
    /// `read.<n>`
    pub read: [u8; ROOM],
    /// `manifests/<n>`
    pub manifest: [u8; ROOM],
    /// Full generations in `trash/`.
    pub trash: u8,
    /// Processes that commit.
    pub committers: [Committer; 2],
    /// Processes that manage.
    pub managers: [Manager; 2],
    /// Violations so far.
    pub marks: Marks,
    /// What a power cut would leave.
    pub disk: Disk,
}

impl State {
    /// A new ring.
    pub fn born(power: bool) -> State {
        let mut state = State::default();
        state.manifest[0] = OUT;
        state.write[1] = THERE;
        state.committers[1] = Committer { at: Commit::Look, adopts: true, ..Committer::default() };
        if power {
            state.disk.manifest = state.manifest;
            state.disk.write = state.write;
        }
        state
    }

    /// The newest generation.
    pub fn newest(&self) -> u8 {
        self.manifest.iter().rposition(|manifest| manifest & OUT != 0).unwrap_or(0) as u8
    }

    /// The first generation up to `newest` whose manifest lists the segment.
    pub fn listed(&self, newest: u8) -> Option<u64> {
        let upto = &self.manifest[..=usize::from(newest)];
        upto.iter().position(|manifest| manifest & NAMES != 0).map(|n| n as u64)
    }

    /// The first generation up to `newest` whose manifest can be read and lists the segment.
    pub fn seen_listed(&self, newest: u8) -> Option<u64> {
        let upto = &self.manifest[..=usize::from(newest)];
        upto.iter().position(|manifest| manifest & PRUNED == 0 && manifest & NAMES != 0).map(|n| n as u64)
    }

    /// Whether a manifest up to `newest` is pruned.
    pub fn has_pruned(&self, newest: u8) -> bool {
        self.manifest[..=usize::from(newest)].iter().any(|manifest| manifest & PRUNED != 0)
    }

    /// Whether the segment has a name in any directory, so that a client that knows the file can link it.
    pub fn has_name(&self) -> bool {
        self.write.iter().chain(&self.read).any(|dir| dir & NAMES != 0)
    }

    fn words(&self) -> [u64; 9] {
        let word = u64::from_le_bytes;
        let committer = |c: &Committer| [c.at as u8, u8::from(c.adopts), c.target, c.linked];
        let manager = |m: &Manager| [m.at as u8, m.n, m.seen, m.mine];
        let pair = |a: [u8; 4], b: [u8; 4]| word([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]);
        let [c0, c1] = self.committers.each_ref().map(committer);
        let [m0, m1] = self.managers.each_ref().map(manager);
        let (disk, marks) = (&self.disk, &self.marks);
        let few = [self.staged as u8, u8::from(self.finished), self.trash, u8::from(marks.changed)];
        let more = [u8::from(marks.unlisted), disk.staged as u8, u8::from(disk.bytes), 0];
        [
            word(self.write),
            word(self.read),
            word(self.manifest),
            pair(c0, c1),
            pair(m0, m1),
            pair(few, more),
            word(disk.write),
            word(disk.read),
            word(disk.manifest),
        ]
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.words() {
            state.write_u64(word);
        }
    }
}

/// The existing directories and manifests, in one line.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |dir: u8| ["", ":a", ":b", ":ab"][usize::from(dir & NAMES)];
        match self.staged {
            Staged::Gone => write!(f, "staging -")?,
            Staged::Part => write!(f, "staging .part")?,
            Staged::Sealed => write!(f, "staging .rec")?,
        }
        for (dirs, name) in [(&self.write, "write"), (&self.read, "read")] {
            for (n, dir) in dirs.iter().enumerate().filter(|(_, dir)| **dir & THERE != 0) {
                write!(f, "  {name}.{n}{}", names(*dir))?;
            }
        }
        for (n, manifest) in self.manifest.iter().enumerate().filter(|(_, manifest)| **manifest & OUT != 0) {
            let pruned = if manifest & PRUNED != 0 { " (pruned)" } else { "" };
            write!(f, "  m{n}{}{pruned}", names(*manifest))?;
        }
        Ok(())
    }
}
