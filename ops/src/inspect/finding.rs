//! Findings of `verify`.

use serde::Serialize;
use std::path::{Path, PathBuf};

/// Most samples that a finding names.
pub const NAMED: usize = 100;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Data is lost or cannot be read.
    Damage,
    /// An operation is not finished (yet); nothing is lost.
    Unfinished,
    /// Information.
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub kind: Kind,
    /// The file or directory.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// The affected bytes of the file: begin and exclusive end.
    pub bytes: Option<(u64, u64)>,
    /// Ids of the affected samples, at most [`NAMED`].
    pub samples: Vec<String>,
    /// What was found.
    pub problem: Problem,
}

/// What was found. `why` is the text of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Problem {
    /// A file that cannot be read or decoded.
    Refused { why: String },
    /// A path that should be a directory.
    NotDirectory,
    /// A directory that could not be read.
    Denied { why: String },
    /// `ring.json` is missing.
    NoDescriptor,
    /// The ring has no manifest.
    NoManifest,
    /// The manifest of a generation is missing, and whether its directory exists.
    ManifestMissing { generation: u64, is_readable: bool },
    /// The manifest of the only examined generation is missing.
    Unlisted { generation: u64 },
    /// A manifest lists a segment that manifest `before` lists too.
    ListedTwice { id: String, before: u64 },
    /// A manifest of another ring.
    OtherRing { ring: String },
    /// The total of delivered samples in a manifest contradicts the manifests before.
    WrongTotal { says: u64, delivered: u64 },
    /// A rebuilt manifest, and the number of samples that only the lost one listed.
    Rebuilt { lost: u64 },
    /// A promotion that is not finished.
    Promoting { generation: u64 },
    /// A directory without a manifest.
    Litter,
    /// A directory `write.<n>` whose generation is already promoted.
    PromotedAlready,
    /// The directory of a generation is missing.
    DirectoryMissing { generation: u64, samples: u64 },
    /// The directory of a generation is missing, perhaps reclaimed.
    Gap,
    /// A name that the manifest does not list; or the number of further ones.
    NotListed { more: u64 },
    /// A name that is not a segment's; or the number of further ones.
    NotSegment { more: u64 },
    /// A name in staging that is not an owner's.
    NotOwner,
    /// The number of finished segments in staging.
    Waiting { segments: u64 },
    /// The number of unfinished files of an owner.
    Begun { files: u64 },
    /// A segment in quarantine, and the recorded reason.
    InQuarantine { why: Option<String> },
    /// A listed segment is missing.
    FileMissing { samples: u64 },
    /// A file is another segment than the manifest lists.
    OtherSegment,
    /// A part that claims to be too large to be decompressed on this machine.
    LargePart { bytes: u64 },
    /// A segment without a footer, and the number of samples that can be salvaged.
    NoFooter { good: u64 },
    /// An empty file.
    Empty,
}

impl Problem {
    /// Returns the problem that something cannot be read because of `error`.
    pub(super) fn refused(error: impl ToString) -> Problem {
        Problem::Refused { why: error.to_string() }
    }
}

impl Finding {
    /// Creates a finding about a whole file or directory.
    pub fn new(kind: Kind, path: &Path, problem: Problem) -> Finding {
        Finding { kind, path: path.to_owned(), bytes: None, samples: Vec::new(), problem }
    }
}
