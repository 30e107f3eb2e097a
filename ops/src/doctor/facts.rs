//! What the checks of the doctor measure. `why` and `error` are texts of errors.

use crate::probe::contents::Mapped;
use crate::probe::delays::Delays;
use crate::probe::names::{Broken, Race};
use ringreel::error::FsError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What link(2) says on a filesystem without hard links, whoever made the file.
const EPERM: i32 = 1;

/// What a check measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Fact {
    /// No answer came in this time.
    Hangs { limit: Duration },
    /// The measurement could not be made.
    NotMeasured { why: String },
    /// The filesystem, or the index on it, refused something.
    Refused { error: String, cure: Cure },
    /// A scratch directory that could not be removed; no reason where the filesystem does not answer.
    Leftover { dir: PathBuf, why: Option<String> },

    /// The configuration loads, with these notes.
    Loads { notes: Vec<String> },
    /// It does not.
    DoesNotLoad { why: String },
    /// The directory that is to hold the ring is missing.
    NoPlace { place: PathBuf, why: String },
    /// A ring that cannot be used.
    UnusableRing { why: String },
    /// A ring that does not match the configuration.
    Mismatch { why: String },
    /// A ring.
    Ring { path: PathBuf, version: u32, swap_cap: u64, sample: Vec<String> },
    /// No ring, and keys are missing to make one.
    NoRingKeys { path: PathBuf },
    /// No ring yet.
    RingNotFound { path: PathBuf },
    /// A directory that is no ring, and something in it.
    NotEmpty { path: PathBuf, name: String },
    /// An empty directory.
    EmptyDirectory { path: PathBuf },
    /// How files are read, on this kind of filesystem.
    Reading { way: Reading, kind: String },
    /// POLL_SECONDS, where it is configured, and LEASE_SECONDS.
    Poll { poll: Option<f64>, lease: f64 },
    /// LEASE_SECONDS here, and the shortest and longest of the members.
    Leases { ours: f64, shortest: f64, longest: f64 },

    /// The kind of filesystem, and whether it is this machine's alone.
    Kind { name: String, is_local: bool, place: PathBuf },
    /// How it is mounted.
    Mounted { mount: String, note: MountNote },
    /// The system's list of mounts does not name it.
    NoMount,
    /// That list could not be read.
    MountUnknown { why: String },
    /// What a rename of a directory broke.
    Rename(Vec<Broken>),
    /// Whether a rename onto a directory that is not empty was refused.
    RenameOnto { is_refused: bool },
    /// What a hard link broke.
    Link(Vec<Broken>),
    /// Races for names, each with its runners.
    Races(Vec<(Race, Runners)>),
    /// An open file that was removed cannot be read: why.
    RemovedUnreadable { why: String },
    /// The directory of a file that was removed while open cannot be removed.
    DirectoryStays,
    /// A removed file can be read on; under these names of the system's.
    RemovedReadable { leftovers: Vec<String> },
    /// Whether upper and lower case count.
    Case { is_sensitive: bool },
    /// Bytes of the longest name.
    NameLength { bytes: usize, needed: usize },
    /// When inotify fired.
    Inotify { after: Option<Duration>, is_local: bool },
    /// There is no inotify.
    NoInotify { why: String },
    /// Increments under a lock that should have been counted, and were.
    Locks { expected: u64, counted: u64 },
    /// There are no locks.
    NoLocks { why: String },
    /// Whether a new file gives its own bytes.
    ReadsBack { is_right: bool },
    /// What came of a shared and a private map, and whether maps are wanted.
    Maps { maps: [Mapped; 2], is_wanted: bool },
    /// When another process opens and lists a new name.
    Seen { opened: Spread, listed: Spread, lease: LeaseNote },
    /// Times of syncs.
    Syncs { files: Spread, directories: Spread },

    /// Too little room for anything.
    NoRoom(Free),
    /// Room, where it is not known how much a generation takes.
    FreeRoom(Free),
    /// Room; bytes and files of a generation, and those that the ring needs besides what it has.
    Room { free: Free, generation: (u64, u64), needed: (u64, u64) },
    /// MAX_BYTES and MAX_FILES; bytes and files of a generation, where they are known.
    Limits { max_bytes: Option<u64>, max_files: Option<u64>, generation: Option<(u64, u64)> },
    /// There was no room to write.
    NothingWritten,
    /// Bytes that were written and synced.
    Written { bytes: u64, time: Duration },
    /// A directory on another device than the scratch directory.
    OtherDevice { dir: PathBuf, scratch: PathBuf },
    /// All is on one device; whether there is a ring.
    OneDevice { has_ring: bool },
    /// Directories of the ring that this user may not write to.
    Closed { dirs: Vec<String> },
    /// Modes of directories that this user makes, and of the place.
    Rights { made: u32, place: u32, note: RightsNote },
    /// The ring's directory has lost the setgid bit.
    SetgidLost { ring: PathBuf, gid: u32, mode: u32 },
    /// Whether a new directory keeps the setgid bit.
    Setgid { gid: u32, mode: u32, is_kept: bool },

    /// Numbers and leases that were claimed in an index in files.
    Claims { threads: usize, distinct: usize, asked: usize, each: Duration, holders: usize },
    /// This build has no MongoDB.
    NoMongoDb,
    /// The server does not answer.
    ServerAway { why: String },
    /// The server refused something.
    ServerRefused { why: String },
    /// The server.
    Server { place: String, version: String, whose: String },
    /// Round trips to it.
    ServerTrips(Spread),
    /// Numbers that it gave.
    Numbers { distinct: usize, asked: usize },
    /// Its write concern, and whether writes are acknowledged.
    WriteConcern { words: Option<String>, is_acknowledged: bool },
    /// Seconds by which its clock is ahead, and how exact that is.
    ServerClock { ahead: Option<f64>, within: Duration },

    /// Files that a process may open; those that a reader holds open, and needs.
    OpenFiles { limit: Option<u64>, held: u64, least: u64 },
    /// Processes of this user.
    Processes { limit: Option<u64>, wanted: u64 },
    /// Bytes that a process may map.
    AddressSpace { limit: Option<u64> },
    /// Bytes that a process may lock.
    Locked { limit: Option<u64> },
    /// Bytes free in /dev/shm.
    Shm { free: Option<u64> },
    /// Memory that is available, and that the control group may use.
    Memory { available: Option<u64>, limit: Option<u64> },
    /// Processors that may be used, and all.
    Processors { usable: usize, all: usize },
    /// The clock.
    Clock { unix_seconds: u64 },
    /// Where temporary files go.
    Temp { path: PathBuf, is_writable: bool },
    /// Rank and size of the job, and the variables that were seen.
    Job { rank: Option<(u64, u64)>, seen: String },
    /// Variables that contradict each other.
    JobMismatch { rank: String, size: String, seen: String },
    /// There is no Python.
    NoPython,
    /// Python does not find the package.
    NoPackage,
    /// Importing the package takes longer than this.
    PackageHangs { limit: Duration },
    /// Versions of the package and of this command.
    Package { version: String, ours: String },

    /// Node and process of either side.
    Nodes { a: String, b: String, are_one: bool },
    /// Times of a name and its answer.
    Answers(Spread),
    /// Milliseconds by which B's clock is ahead, and how exact that is.
    PeerClock { ahead_ms: f64, within: Duration },
    /// When B sees what A did, of what it looks for so long.
    SeenByPeer { delays: Spread, look: Duration, lease: LeaseNote },
    /// When B sees a name that it looked for before: when it opens the directory, and by the name alone.
    Missing { surely: Spread, plainly: Spread, look: Duration, lease: LeaseNote, is_hidden: bool },
    /// What inotify tells B of A.
    PeerInotify(String),
    /// Names that B tried to make by the old path, that landed in the new one, and that are nowhere; for how long.
    LateNames { tried: usize, landed: usize, lost: usize, longest: Duration },
    /// What B saw of replaced and of rewritten files, and how often.
    ReplacedFiles { replaced: BTreeMap<String, usize>, rewritten: BTreeMap<String, usize> },
    /// What B saw of sealed files, and how often.
    SealedFiles { files: usize, seen: BTreeMap<String, usize> },
    /// Both sides did all of it.
    End,
}

/// What to do where something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cure {
    /// A quota is used up.
    Quota,
    /// There is no room.
    Full,
    /// There are no hard links.
    NoLinks,
    /// Permission is denied.
    Denied,
    /// The server does not answer.
    Away,
    /// Names are too short.
    ShortNames,
    /// Another filesystem.
    OtherFilesystem,
    /// Another directory.
    OtherDirectory,
}

impl Cure {
    /// What helps against `error`; `otherwise` where nothing is known of it.
    pub(super) fn of(error: &FsError, otherwise: Cure) -> Cure {
        if error.source.kind() == std::io::ErrorKind::QuotaExceeded {
            Cure::Quota
        } else if error.is_full() {
            Cure::Full
        } else if error.op == "link" && error.source.raw_os_error() == Some(EPERM) {
            Cure::NoLinks
        } else if error.is_denied() {
            Cure::Denied
        } else if error.is_away() {
            Cure::Away
        } else {
            otherwise
        }
    }
}

/// How files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Mapped, although others may change them.
    MapsShared,
    /// Mapped.
    Maps,
    /// Mapped, as auto decides.
    AutoMaps,
    /// Read, as auto decides.
    AutoReads,
    /// Read.
    Reads,
}

/// What the options of a mount mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountNote {
    /// Nothing.
    Nothing,
    /// A container's own layers.
    Overlay,
    /// This node's memory.
    Memory,
    /// An open does not ask the server.
    NoCto,
    /// Calls fail while the server is away.
    Soft,
    /// Every look asks the server.
    NoCache,
    /// The same, because directories are remembered for no time.
    NoDirectoryCache,
    /// A name that was looked for stays invisible for so many seconds.
    AbsenceCached(String),
}

/// What permissions mean for a ring of several users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RightsNote {
    /// Nothing.
    Nothing,
    /// The place has a sticky bit.
    Sticky,
    /// It is meant for a group, which cannot write.
    GroupCannotWrite,
    /// fs.protected_hardlinks is 1.
    ProtectedHardlinks,
}

/// What a delay means for LEASE_SECONDS.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseNote {
    /// It is long enough.
    LongEnough,
    /// The delay is longer.
    TooShort,
    /// It should be so many seconds at least.
    Raise(f64),
}

/// Who raced for names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Runners {
    /// So many threads.
    Threads(usize),
    /// Two nodes, by this call; what A won, and how many errors there were.
    Nodes { way: String, won_by_a: usize, errors: usize },
}

/// Room on a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// Bytes.
    pub bytes: u64,
    /// Inodes, where they are counted.
    pub inodes: Option<u64>,
}

/// Times, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// How many were measured.
    pub count: usize,
    /// Half of them are not longer.
    pub median: Duration,
    /// The longest.
    pub longest: Duration,
    /// How often nothing was seen.
    pub never: usize,
}

impl From<&Delays> for Spread {
    fn from(delays: &Delays) -> Spread {
        Spread { count: delays.seen.len(), median: delays.median(), longest: delays.max(), never: delays.never }
    }
}
