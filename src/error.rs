//! The crate's errors. Each variant says what happened, to which path, and what to do.

use ringreel_format::FormatError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A filesystem call that failed, and the path it failed on.
#[derive(Debug, Error)]
#[error("{op} {path}: {source}", path = .path.display())]
pub struct FsError {
    /// The call: "create", "link", ...
    pub op: &'static str,
    /// Its path; of a call with two paths, the one to be created.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl FsError {
    /// Creates the error of `op` on `path`.
    pub fn new(op: &'static str, path: &Path, source: io::Error) -> FsError {
        FsError { op, path: path.to_owned(), source }
    }

    /// Returns whether the name does not exist. A stale handle counts as missing, too.
    pub fn is_gone(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound || self.is_stale()
    }

    /// Returns whether the file server no longer knows the handle, for instance after a restart of
    /// the server or after the name was replaced. This does not prove that the name is missing.
    pub fn is_stale(&self) -> bool {
        self.source.kind() == io::ErrorKind::StaleNetworkFileHandle
    }

    /// Returns whether the name exists already.
    pub fn is_taken(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
    }

    /// Returns whether this user has no permission, or the filesystem is read-only.
    pub fn is_denied(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Returns whether the disk, the quota or the inode table is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns whether the file server does not answer.
    pub fn is_away(&self) -> bool {
        use io::ErrorKind as K;
        let away = [
            K::NotConnected,
            K::HostUnreachable,
            K::NetworkUnreachable,
            K::NetworkDown,
            K::ConnectionReset,
            K::TimedOut,
        ];
        // GlusterFS reports EBADFD for a handle that outlived its connection; Lustre reports
        // ESHUTDOWN to a client that the server has evicted. A newly opened handle works.
        const EBADFD: i32 = 77;
        const ESHUTDOWN: i32 = 108;
        const EHOSTDOWN: i32 = 112;
        away.contains(&self.source.kind()) || matches!(self.source.raw_os_error(), Some(EBADFD | ESHUTDOWN | EHOSTDOWN))
    }

    /// Returns whether this process or machine has too many open files. The call had no effect.
    pub fn is_out_of_files(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(ENFILE | EMFILE))
    }

    /// Returns whether the system refused this process another memory map.
    pub fn is_out_of_maps(&self) -> bool {
        self.op == "map" && self.source.raw_os_error() == Some(ENOMEM)
    }

    /// Returns whether this process or machine has no file, map or memory left for the call. The
    /// call may succeed after something is closed or freed.
    pub fn is_exhausted(&self) -> bool {
        match self.source.raw_os_error() {
            Some(errno) => errno == ENOMEM || self.is_out_of_files(),
            // The memory budget has no errno.
            None => self.source.kind() == io::ErrorKind::ResourceBusy,
        }
    }

    /// Returns whether the error says nothing about the contents of the file.
    pub fn is_no_damage(&self) -> bool {
        let is_busy = self.source.kind() == io::ErrorKind::ResourceBusy;
        self.is_away() || self.is_denied() || self.is_exhausted() || is_busy
    }

    /// Returns whether a later retry may succeed: after a full disk, an unreachable server, an
    /// interrupted call, or a system limit.
    pub fn is_retryable(&self) -> bool {
        use io::ErrorKind as K;
        let passing = [K::Interrupted, K::StaleNetworkFileHandle, K::ResourceBusy, K::WouldBlock];
        const EIO: i32 = 5;
        let kind = self.source.kind();
        let is_passing = passing.contains(&kind) || self.source.raw_os_error() == Some(EIO);
        self.is_full() || self.is_away() || self.is_exhausted() || is_passing
    }
}

/// Every error that this crate returns.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be used.
    #[error("{origin}: {message}")]
    Config {
        /// The file and, where known, the line.
        origin: String,
        /// The key, what is wrong with it, and which values are valid.
        message: String,
    },
    /// No ring exists at the expected path.
    #[error("no ring at {path}: start `ringreel manager` or a generator first, or check RING and DBNAME", path = .path.display())]
    RingNotFound {
        /// The path that was searched.
        path: PathBuf,
    },
    /// The ring does not match the configuration, was replaced, or is damaged.
    #[error("the ring at {path} cannot be used: {message}", path = .path.display())]
    RingMismatch {
        /// The ring's directory.
        path: PathBuf,
        /// What differs and what to do.
        message: String,
    },
    /// A filesystem call failed.
    #[error("{source}{hint}", hint = advice(.source))]
    Fs {
        /// The call, its path and its error.
        #[from]
        source: FsError,
    },
    /// The contents of a file are invalid.
    #[error("{path}: {source}", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A manifest is damaged, or not completely visible yet.
    #[error("{path}: the manifest cannot be used: {message}", path = .path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
        /// Whether a retry may succeed, because this client may only have read the file too early.
        passing: bool,
    },
    /// A sample that a manifest lists cannot be read.
    #[error("sample {sample} (generation {generation}, position {position}) is damaged: {path}: {message}", path = .path.display())]
    Damaged {
        /// The generation of the sample.
        generation: u64,
        /// The position of the sample in the generation.
        position: u64,
        /// The id of the sample.
        sample: String,
        /// The segment file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A generation was reclaimed while it was being read. The reader continues with the newest
    /// one.
    #[error("generation {generation} is not available (reclaimed or not created yet); use the newest one")]
    Reclaimed {
        /// The generation.
        generation: u64,
    },
    /// The caller's sample does not match the ring.
    #[error("{0}")]
    Sample(String),
    /// The generation has no sample at this position.
    #[error("position {position} is out of range: generation {generation} has {samples} samples")]
    OutOfRange {
        /// The requested position.
        position: u64,
        /// The generation.
        generation: u64,
        /// How many samples it holds.
        samples: u64,
    },
    /// A wait exceeded its limit.
    #[error("timed out after {seconds:.1} s waiting for {what}")]
    Timeout {
        /// How long the call waited.
        seconds: f64,
        /// What it waited for, and what to check.
        what: String,
    },
    /// No new samples arrive, and ON_STALE is stop.
    #[error("samples are stale: {message} (ON_STALE is stop: start generators, or set ON_STALE to wait or warn)")]
    Stale {
        /// What was read how often, which generators are alive, and the last errors they reported.
        message: String,
    },
    /// The caller requested a stop, for instance after a signal.
    #[error("interrupted while waiting for {what}")]
    Interrupted {
        /// What the call was waiting for.
        what: String,
    },
    /// A sealed segment disappeared before a manifest listed it.
    #[error("segment {id} is lost: its sealed file {path} is missing and no manifest lists it. Was the file removed by hand?", path = .path.display())]
    Lost {
        /// The segment.
        id: String,
        /// The path of the sealed file.
        path: PathBuf,
    },
    /// A call to the coordination store (counter, status, leases) failed.
    #[error("index: {0}")]
    Coordination(String),
    /// The server of the coordination store does not answer, or answers incorrectly. The ring
    /// continues without it.
    #[error("index at {place}: {message}")]
    CoordinationUnavailable {
        /// The address of the server, without passwords.
        place: String,
        /// What happened, and what to check.
        message: String,
    },
    /// The server of the coordination store refuses this user or this kind of access; a retry does
    /// not help.
    #[error("index at {place}: {message}")]
    CoordinationDenied {
        /// The address of the server, without passwords.
        place: String,
        /// What happened, and what to change.
        message: String,
    },
}

/// The command that checks for structural damage, as it is quoted in messages.
pub const REPAIR_COMMAND: &str = "`ringreel repair -c config.yaml`";

fn advice(source: &FsError) -> String {
    if source.is_full() {
        " (no room: free some space or inodes, raise the quota, or lower KEEP or SWAP_CAP)".to_owned()
    } else if source.source.kind() == io::ErrorKind::PermissionDenied {
        let owner = owner_of(&source.path).map_or(String::new(), |owner| format!("{owner}; "));
        format!(" ({owner}the owner of a ring can share it with a group, see RING_MODE)")
    } else if source.is_denied() {
        " (the filesystem is mounted read-only)".to_owned()
    } else {
        match source.source.raw_os_error() {
            Some(EMFILE) => " (this process may open no more files: raise `ulimit -n`)",
            Some(ENFILE) => " (this machine may open no more files: raise the sysctl fs.file-max)",
            Some(ENOMEM) if source.is_out_of_maps() => {
                " (no memory for another map: raise the sysctl vm.max_map_count or `ulimit -v`, \
                 hold fewer samples, or set READ: pread)"
            }
            Some(ENOMEM) => " (out of memory: raise `ulimit -v` or the memory limit of the job)",
            _ => "",
        }
        .to_owned()
    }
}

/// Describes the owner and mode of `path`, or of its nearest visible ancestor, and the user of this
/// process.
fn owner_of(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let (seen, meta) = path.ancestors().find_map(|path| Some((path, path.symlink_metadata().ok()?)))?;
    let (owner, mode, me) = (meta.uid(), meta.mode() & 0o7777, rustix::process::geteuid().as_raw());
    Some(format!("{} belongs to user {owner}, mode {mode:04o}; this process is user {me}", seen.display()))
}

impl Error {
    /// Returns whether a later retry of the same call may succeed without any change except freed
    /// space.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Fs { source } => source.is_retryable(),
            Error::Manifest { passing, .. } => *passing,
            Error::RingNotFound { .. }
            | Error::Reclaimed { .. }
            | Error::Timeout { .. }
            | Error::Coordination(_)
            | Error::CoordinationUnavailable { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the filesystem reports that the name does not exist.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Fs { source } if source.is_gone())
    }

    /// Converts an error of the format crate for the file at `path`, where an I/O error occurred in
    /// the call `op`.
    pub fn format<'a>(op: &'static str, path: &'a Path) -> impl FnOnce(FormatError) -> Error + 'a {
        move |source| match source {
            FormatError::Io(source) => FsError::new(op, path, owned(&source)).into(),
            FormatError::Input(message) => Error::Sample(message),
            source => Error::Format { path: path.to_owned(), source },
        }
    }
}

/// Copies an I/O error, which is not `Clone`.
fn owned(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}
