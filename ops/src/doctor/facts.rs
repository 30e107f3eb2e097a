//! The results of the doctor's checks. `why` and `error` are texts of errors.

use crate::probe::contents::Mapped;
use crate::probe::delays::Delays;
use crate::probe::names::{Broken, Race};
use ringreel::error::FsError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The error of link(2) on a filesystem without hard links.
const EPERM: i32 = 1;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Fact {
    /// No response within this time.
    Hangs { limit: Duration },
    /// The measurement could not be made.
    NotMeasured { why: String },
    /// The filesystem, or the index on it, refused something.
    Refused { error: String, cure: Cure },
    /// A scratch directory that could not be removed, and why; `None` if the filesystem does not respond.
    Leftover { dir: PathBuf, why: Option<String> },

    /// The configuration loads, with these notes.
    Loads { notes: Vec<String> },
    /// The configuration does not load.
    DoesNotLoad { why: String },
    /// The parent directory of the ring cannot be used.
    NoPlace { place: PathBuf, why: String },
    /// The ring cannot be used.
    UnusableRing { why: String },
    /// The ring does not match the configuration.
    Mismatch { why: String },
    /// The ring exists.
    Ring { path: PathBuf, version: u32, swap_cap: u64, sample: Vec<String> },
    /// The ring does not exist, and keys to create it are missing.
    NoRingKeys { path: PathBuf },
    /// The ring does not exist yet.
    RingNotFound { path: PathBuf },
    /// The directory is not a ring and has this entry.
    NotEmpty { path: PathBuf, name: String },
    /// The directory is empty.
    EmptyDirectory { path: PathBuf },
    /// How files are read on this kind of filesystem.
    Reading { way: Reading, kind: String },
    /// POLL_SECONDS, if configured, and LEASE_SECONDS.
    Poll { poll: Option<f64>, lease: f64 },
    /// LEASE_SECONDS here, and the shortest and longest of the members.
    Leases { ours: f64, shortest: f64, longest: f64 },

    /// The kind of filesystem, and whether it is local to this machine.
    Kind { name: String, is_local: bool, place: PathBuf },
    /// The mount with its options.
    Mounted { mount: String, note: MountNote },
    /// The system's list of mounts does not have it.
    NoMount,
    /// The list of mounts could not be read.
    MountUnknown { why: String },
    /// What a rename of a directory broke.
    Rename(Vec<Broken>),
    /// Whether a rename onto a directory that is not empty was refused.
    RenameOnto { is_refused: bool },
    /// What a hard link broke.
    Link(Vec<Broken>),
    /// Races for names, each with its participants.
    Races(Vec<(Race, Runners)>),
    /// An open file cannot be read after its removal.
    RemovedUnreadable { why: String },
    /// The directory of a file that was removed while open cannot be removed.
    DirectoryStays,
    /// A removed open file remains readable, under these temporary names.
    RemovedReadable { leftovers: Vec<String> },
    /// Whether names are case-sensitive.
    Case { is_sensitive: bool },
    /// Length of the longest possible name in bytes.
    NameLength { bytes: usize, needed: usize },
    /// The delay until inotify fired.
    Inotify { after: Option<Duration>, is_local: bool },
    /// inotify is not available.
    NoInotify { why: String },
    /// Expected and counted increments under a lock.
    Locks { expected: u64, counted: u64 },
    /// Locks are not available.
    NoLocks { why: String },
    /// Whether a new file reads back correctly.
    ReadsBack { is_right: bool },
    /// The results of a shared and a private map, and whether maps are used.
    Maps { maps: [Mapped; 2], is_wanted: bool },
    /// The delays until another process can open and list a new name.
    Seen { opened: Spread, listed: Spread, lease: LeaseNote },
    /// Durations of syncs.
    Syncs { files: Spread, directories: Spread },

    /// Too little free space.
    NoRoom(Free),
    /// Free space; the size of a generation is unknown.
    FreeRoom(Free),
    /// Free space; bytes and files of a generation, and those that the ring needs besides what it has.
    Room { free: Free, generation: (u64, u64), needed: (u64, u64) },
    /// MAX_BYTES and MAX_FILES; bytes and files of a generation, if they are known.
    Limits { max_bytes: Option<u64>, max_files: Option<u64>, generation: Option<(u64, u64)> },
    /// Too little free space to measure.
    NothingWritten,
    /// Bytes that were written and synced.
    Written { bytes: u64, time: Duration },
    /// A directory on another device than the scratch directory.
    OtherDevice { dir: PathBuf, scratch: PathBuf },
    /// All directories are on one device; whether the ring exists.
    OneDevice { has_ring: bool },
    /// Directories of the ring that this user cannot write to.
    Closed { dirs: Vec<String> },
    /// Modes of new directories of this user, and of the ring's directory.
    Rights { made: u32, place: u32, note: RightsNote },
    /// The ring's directory has lost the setgid bit.
    SetgidLost { ring: PathBuf, gid: u32, mode: u32 },
    /// Whether a new directory keeps the setgid bit.
    Setgid { gid: u32, mode: u32, is_kept: bool },

    /// Numbers and leases that were claimed in an index in files.
    Claims { threads: usize, distinct: usize, asked: usize, each: Duration, holders: usize },
    /// This build has no support for MongoDB.
    NoMongoDb,
    /// The server does not respond.
    ServerAway { why: String },
    /// The server refused an operation.
    ServerRefused { why: String },
    /// The server responds.
    Server { place: String, version: String, whose: String },
    /// Round trips to the server.
    ServerTrips(Spread),
    /// Numbers that the server handed out.
    Numbers { distinct: usize, asked: usize },
    /// The write concern, and whether writes are acknowledged.
    WriteConcern { words: Option<String>, is_acknowledged: bool },
    /// Seconds by which the server's clock is ahead, and the uncertainty.
    ServerClock { ahead: Option<f64>, within: Duration },

    /// Limit of open files; the segments that a reader keeps open, and the least that it needs.
    OpenFiles { limit: Option<u64>, held: u64, least: u64 },
    /// Limit of processes of this user.
    Processes { limit: Option<u64>, wanted: u64 },
    /// Limit of mapped bytes.
    AddressSpace { limit: Option<u64> },
    /// Limit of locked bytes.
    Locked { limit: Option<u64> },
    /// Free bytes in /dev/shm.
    Shm { free: Option<u64> },
    /// Available memory, and the limit of the control group.
    Memory { available: Option<u64>, limit: Option<u64> },
    /// Usable processors, and all.
    Processors { usable: usize, all: usize },
    /// The clock.
    Clock { unix_seconds: u64 },
    /// The directory of temporary files.
    Temp { path: PathBuf, is_writable: bool },
    /// Rank and size of the job, and the variables that are set.
    Job { rank: Option<(u64, u64)>, seen: String },
    /// Variables that contradict each other.
    JobMismatch { rank: String, size: String, seen: String },
    /// Python is missing.
    NoPython,
    /// Python does not find the package.
    NoPackage,
    /// Importing the package takes longer than this.
    PackageHangs { limit: Duration },
    /// Versions of the package and of this command.
    Package { version: String, ours: String },

    /// Node and process of each side.
    Nodes { a: String, b: String, are_one: bool },
    /// Times of a message and its reply.
    Answers(Spread),
    /// Milliseconds by which B's clock is ahead, and the uncertainty.
    PeerClock { ahead_ms: f64, within: Duration },
    /// The delays until B sees A's changes; B looks for `look`.
    SeenByPeer { delays: Spread, look: Duration, lease: LeaseNote },
    /// The delays until B sees a name that it looked up before: after opening the directory, and by the name alone.
    Missing { surely: Spread, plainly: Spread, look: Duration, lease: LeaseNote, is_hidden: bool },
    /// Whether inotify on B fires for A's changes.
    PeerInotify(String),
    /// Names that B tried to create by the old path, those that landed in the new directory, those that are lost, and the
    /// longest time.
    LateNames { tried: usize, landed: usize, lost: usize, longest: Duration },
    /// What B saw of replaced and of rewritten files, and how often.
    ReplacedFiles { replaced: BTreeMap<String, usize>, rewritten: BTreeMap<String, usize> },
    /// What B saw of sealed files, and how often.
    SealedFiles { files: usize, seen: BTreeMap<String, usize> },
    /// Both nodes completed all steps.
    End,
}

/// The advice for a refused operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cure {
    /// The quota is exhausted.
    Quota,
    /// The disk is full.
    Full,
    /// The filesystem has no hard links.
    NoLinks,
    /// The filesystem is mounted read-only.
    ReadOnly,
    /// Permission is denied.
    Denied,
    /// The server does not respond.
    Away,
    /// Long names are not possible.
    ShortNames,
    /// Use another filesystem.
    OtherFilesystem,
    /// Use another directory.
    OtherDirectory,
}

impl Cure {
    /// Returns the advice for `error`; `otherwise` for an unknown error.
    pub(super) fn of(error: &FsError, otherwise: Cure) -> Cure {
        if error.source.kind() == std::io::ErrorKind::QuotaExceeded {
            Cure::Quota
        } else if error.is_full() {
            Cure::Full
        } else if error.op == "link" && error.source.raw_os_error() == Some(EPERM) {
            Cure::NoLinks
        } else if error.source.kind() == std::io::ErrorKind::ReadOnlyFilesystem {
            Cure::ReadOnly
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
    /// Mapped by `mmap`, on a shared filesystem.
    MapsShared,
    /// Mapped by `mmap`.
    Maps,
    /// Mapped by `auto`.
    AutoMaps,
    /// Read by `auto`.
    AutoReads,
    /// Read by `pread`.
    Reads,
}

/// The effect of mount options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountNote {
    /// None.
    Nothing,
    /// Layers of a container.
    Overlay,
    /// Memory of this node.
    Memory,
    /// Opening a directory does not check on the server whether it changed.
    NoCto,
    /// Calls fail while the server is unreachable.
    Soft,
    /// Every lookup goes to the server.
    NoCache,
    /// Every lookup goes to the server, because directories are cached for 0 s.
    NoDirectoryCache,
    /// The absence of a name may be cached for this number of seconds.
    AbsenceCached(String),
}

/// The effect of permissions on a ring of several users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RightsNote {
    /// None.
    Nothing,
    /// The directory has a sticky bit.
    Sticky,
    /// The directory is for a group, but the group cannot write in new directories.
    GroupCannotWrite,
    /// fs.protected_hardlinks is 1.
    ProtectedHardlinks,
}

/// The relation of a delay to LEASE_SECONDS.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseNote {
    /// The lease is long enough.
    LongEnough,
    /// The delay is longer than the lease.
    TooShort,
    /// The lease should be at least this number of seconds.
    Raise(f64),
}

/// The participants of a race for names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Runners {
    /// This number of threads.
    Threads(usize),
    /// Two nodes: the call, the names that A won, and the number of errors.
    Nodes { way: String, won_by_a: usize, errors: usize },
}

/// Free space on a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes; `None` if the filesystem does not count them.
    pub inodes: Option<u64>,
}

/// A summary of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of measured delays.
    pub count: usize,
    /// Their median.
    pub median: Duration,
    /// The longest delay.
    pub longest: Duration,
    /// How often nothing was seen.
    pub never: usize,
}

impl From<&Delays> for Spread {
    fn from(delays: &Delays) -> Spread {
        Spread { count: delays.seen.len(), median: delays.median(), longest: delays.max(), never: delays.never }
    }
}
