//! What `verify` finds.

use serde::Serialize;
use std::path::{Path, PathBuf};

/// Samples of one finding that are named.
pub const NAMED: usize = 100;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something is lost, or cannot be read.
    Damage,
    /// Somebody began something and did not finish it (yet); nothing is lost.
    Unfinished,
    /// Worth knowing.
    Note,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub kind: Kind,
    /// Where.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// The bytes of the file that it is about: from the first to behind the last.
    pub bytes: Option<(u64, u64)>,
    /// Ids of the samples that it touches, the first [`NAMED`] of them.
    pub samples: Vec<String>,
    /// What is wrong, or what it means.
    pub problem: Problem,
}

/// What was found. `why` is the text of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Problem {
    /// It cannot be read, or does not decode.
    Refused { why: String },
    /// It should be a directory.
    NotDirectory,
    /// A directory that could not be looked into.
    Denied { why: String },
    /// There is no `ring.json`.
    NoDescriptor,
    /// There is no manifest at all.
    NoManifest,
    /// The manifest of a generation is missing, and whether the directory of that is there.
    ManifestMissing { generation: u64, is_readable: bool },
    /// The same, where only that generation is looked at.
    Unlisted { generation: u64 },
    /// A manifest lists a segment that an earlier one lists.
    ListedTwice { id: String, before: u64 },
    /// A manifest of another ring.
    OtherRing { ring: String },
    /// A manifest counts other samples so far than were delivered.
    WrongTotal { says: u64, delivered: u64 },
    /// A rebuilt manifest, and how many samples of the one before are not there.
    Rebuilt { lost: u64 },
    /// A promotion that is not finished.
    Promoting { generation: u64 },
    /// A directory without a manifest.
    Litter,
    /// A directory of writers whose generation was promoted.
    PromotedAlready,
    /// The directory of a generation is missing.
    DirectoryMissing { generation: u64, samples: u64 },
    /// The same, where it may have been reclaimed.
    Gap,
    /// A name that the manifest does not list; or the number of further ones.
    NotListed { more: u64 },
    /// A name that is no segment's; or the number of further ones.
    NotSegment { more: u64 },
    /// A name in staging that is no owner's.
    NotOwner,
    /// Finished segments in staging.
    Waiting { segments: u64 },
    /// Other files of an owner.
    Begun { files: u64 },
    /// A segment in quarantine, and the reason, where it was noted.
    InQuarantine { why: Option<String> },
    /// A segment that is listed and not there.
    FileMissing { samples: u64 },
    /// Another segment than the one that is listed.
    OtherSegment,
    /// A part that claims to be too large to be decompressed here.
    LargePart { bytes: u64 },
    /// A segment without a footer, and how many samples can be salvaged.
    NoFooter { good: u64 },
    /// A file without a byte.
    Empty,
}

impl Problem {
    /// Something cannot be read because of `error`.
    pub(super) fn refused(error: impl ToString) -> Problem {
        Problem::Refused { why: error.to_string() }
    }
}

impl Finding {
    /// One about a whole file, or a whole directory.
    pub fn new(kind: Kind, path: &Path, problem: Problem) -> Finding {
        Finding { kind, path: path.to_owned(), bytes: None, samples: Vec::new(), problem }
    }
}
