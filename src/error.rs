//! What can go wrong, in one enum: each variant says what happened, to which path, and what to do.

use ringreel_format::FormatError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Short for a result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What a filesystem refused, and on which path.
#[derive(Debug, Error)]
#[error("{op} {path}: {source}", path = .path.display())]
pub struct FsError {
    /// What was asked for: "create", "link", ...
    pub op: &'static str,
    /// Of which path; of two, the one that should come into being.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl FsError {
    /// An error of `op` on `path`.
    pub fn new(op: &'static str, path: &Path, source: io::Error) -> FsError {
        FsError { op, path: path.to_owned(), source }
    }

    /// The name is not there (or no longer: a stale handle means the same to us).
    pub fn is_gone(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound || self.is_stale()
    }

    /// What the server gave us is none of its any more: it was started anew, say, or the name was replaced. That the name
    /// is not there is not said.
    pub fn is_stale(&self) -> bool {
        self.source.kind() == io::ErrorKind::StaleNetworkFileHandle
    }

    /// The name is there already.
    pub fn is_taken(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
    }

    /// The system forbids it to this user.
    pub fn is_denied(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }

    /// The disk, the quota or the table of inodes is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// The server does not answer.
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
        // GlusterFS says of a handle that outlived its connection that it is in a bad state; Lustre, of a client that the
        // server had struck off, that the endpoint was shut down. A handle that is opened anew works.
        const EBADFD: i32 = 77;
        const ESHUTDOWN: i32 = 108;
        const EHOSTDOWN: i32 = 112;
        away.contains(&self.source.kind()) || matches!(self.source.raw_os_error(), Some(EBADFD | ESHUTDOWN | EHOSTDOWN))
    }

    /// Too many files are open, in this process or on this machine: the call did nothing.
    pub fn is_out_of_files(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(ENFILE | EMFILE))
    }

    /// The system grants this process no further map.
    pub fn is_out_of_maps(&self) -> bool {
        self.op == "map" && self.source.raw_os_error() == Some(ENOMEM)
    }

    /// This process or machine has no file, map or memory left for the call. It may succeed after
    /// something was closed or freed.
    pub fn is_exhausted(&self) -> bool {
        match self.source.raw_os_error() {
            Some(errno) => errno == ENOMEM || self.is_out_of_files(),
            // The memory budget has no errno.
            None => self.source.kind() == io::ErrorKind::ResourceBusy,
        }
    }

    /// The error says nothing about the contents of the file.
    pub fn is_no_damage(&self) -> bool {
        let is_busy = self.source.kind() == io::ErrorKind::ResourceBusy;
        self.is_away() || self.is_denied() || self.is_exhausted() || is_busy
    }

    /// Trying again later may help: a full disk, a server that is away, an interrupted call, a
    /// limit of the system's.
    pub fn is_retryable(&self) -> bool {
        use io::ErrorKind as K;
        let passing = [K::Interrupted, K::StaleNetworkFileHandle, K::ResourceBusy, K::WouldBlock];
        const EIO: i32 = 5;
        let kind = self.source.kind();
        let is_passing = passing.contains(&kind) || self.source.raw_os_error() == Some(EIO);
        self.is_full() || self.is_away() || self.is_exhausted() || is_passing
    }
}

/// Everything that this crate reports.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be used.
    #[error("{origin}: {message}")]
    Config {
        /// The file and, where known, the line.
        origin: String,
        /// The key, what is wrong, and what would be right.
        message: String,
    },
    /// There is no ring where one is expected.
    #[error("no ring at {path}: start `ringreel manager` or a generator first, or check RING and DBNAME", path = .path.display())]
    RingNotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The ring there is another one than the configuration describes.
    #[error("the ring at {path} does not fit: {message}", path = .path.display())]
    RingMismatch {
        /// The ring's directory.
        path: PathBuf,
        /// What differs and what to do.
        message: String,
    },
    /// The filesystem refused something.
    #[error("{source}{hint}", hint = advice(.source))]
    Fs {
        /// What and where.
        #[from]
        source: FsError,
    },
    /// A file's contents are not what they should be.
    #[error("{path}: {source}", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A manifest is damaged.
    #[error("{path}: this manifest cannot be used: {message}", path = .path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
        /// Whether it may only have been seen too early.
        passing: bool,
    },
    /// A sample that its generation's manifest lists cannot be read.
    #[error("sample {sample} (generation {generation}, position {position}) is damaged: {path}: {message}", path = .path.display())]
    Damaged {
        /// Its generation.
        generation: u64,
        /// Its position there.
        position: u64,
        /// Its id.
        sample: String,
        /// The segment's file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A generation was reclaimed while it was read: go on with the newest one.
    #[error("generation {generation} is gone (reclaimed); go on with the newest one")]
    Reclaimed {
        /// The generation.
        generation: u64,
    },
    /// What the caller gave does not fit the ring.
    #[error("{0}")]
    Sample(String),
    /// A position that is not there.
    #[error("there is no sample {position}: generation {generation} holds {samples}")]
    OutOfRange {
        /// The position asked for.
        position: u64,
        /// The generation.
        generation: u64,
        /// How many samples it holds.
        samples: u64,
    },
    /// It took too long.
    #[error("waited {seconds:.0} s for {what}")]
    Timeout {
        /// For how long.
        seconds: f64,
        /// For what, and what to look at.
        what: String,
    },
    /// Nothing new comes, and ON_STALE is stop.
    #[error("the samples are stale: {message}. (ON_STALE is stop: start generators, or set ON_STALE to wait or warn)")]
    Stale {
        /// What was read how often, who generates, and what they said last.
        message: String,
    },
    /// Somebody asked to stop (a signal).
    #[error("interrupted while waiting for {what}")]
    Interrupted {
        /// What was waited for.
        what: String,
    },
    /// A sealed segment vanished before a manifest listed it.
    #[error("segment {id} was sealed at {path} and is gone, and no manifest lists it: somebody removed it by hand?", path = .path.display())]
    Lost {
        /// The segment.
        id: String,
        /// Where it was.
        path: PathBuf,
    },
    /// The index (counter, status, leases) failed.
    #[error("index: {0}")]
    Coordination(String),
    /// The server that keeps the index does not answer, or not as it should. The ring goes on without it.
    #[error("the index, {place}: {message}")]
    CoordinationUnavailable {
        /// Where it is, without passwords.
        place: String,
        /// What happened, and what to look at.
        message: String,
    },
    /// The server that keeps the index will not serve this user, or not in this way, however often it is asked.
    #[error("the index, {place}: {message}")]
    CoordinationDenied {
        /// Where it is, without passwords.
        place: String,
        /// What happened, and what to change.
        message: String,
    },
}

/// The command that looks for structural damage, as messages name it.
pub const REPAIR: &str = "`ringreel repair -c config.yaml`";

fn advice(source: &FsError) -> String {
    if source.is_full() {
        " (no room: free some space or inodes, raise the quota, or lower KEEP or SWAP_CAP)".to_owned()
    } else if source.source.kind() == io::ErrorKind::PermissionDenied {
        let owner = owner_of(&source.path).map_or(String::new(), |owner| format!("{owner}; "));
        format!(" ({owner}its owner can share a ring with a group by RING_MODE)")
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

/// Names the owner and the mode of `path`, or of the nearest visible directory above it, and the user
/// of this process.
fn owner_of(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let (seen, meta) = path.ancestors().find_map(|path| Some((path, path.symlink_metadata().ok()?)))?;
    let (owner, mode, me) = (meta.uid(), meta.mode() & 0o7777, rustix::process::geteuid().as_raw());
    Some(format!("{} belongs to user {owner}, mode {mode:04o}; this process is user {me}", seen.display()))
}

impl Error {
    /// Whether the same call may work later without anybody doing anything but making room.
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

    /// Whether the filesystem says that something is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Fs { source } if source.is_gone())
    }

    /// What the format said of the file at `path`, in which the call `op` may have failed.
    pub fn format<'a>(op: &'static str, path: &'a Path) -> impl FnOnce(FormatError) -> Error + 'a {
        move |source| match source {
            FormatError::Io(source) => FsError::new(op, path, owned(&source)).into(),
            FormatError::Input(message) => Error::Sample(message),
            source => Error::Format { path: path.to_owned(), source },
        }
    }
}

/// The same error once more.
fn owned(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}
