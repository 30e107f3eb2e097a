//! Issues of a ring, a generation or a file.

use super::records::Damage;
use ringreel::value_stats::Range;
use serde::Serialize;
use std::path::PathBuf;

/// A problem, or an explanation of something unexpected. `why` is the text of an error.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "issue")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Issue {
    /// `ring.json` is missing.
    NoDescriptor,
    /// `ring.json` cannot be used.
    BadDescriptor { why: String },
    /// `ring.json` has another version.
    OtherVersion { why: String },
    /// The ring has no manifest.
    NoManifest,
    /// The newest manifest cannot be used.
    BadManifest { why: String },
    /// A generation could not be examined.
    Denied { why: String },
    /// The directory of a generation is missing, but an older one exists.
    Gap { generation: u64 },
    /// The directory of the newest generation is missing.
    NewestMissing { generation: u64, samples: u64 },
    /// The number of files whose footers cannot be read, and why the first cannot.
    NoFooter { files: u64, why: String },
    /// A promotion that is not finished.
    Promoting { generation: u64 },
    /// A generation whose manifest cannot be used.
    Unlisted { generation: u64 },
    /// A directory that belongs to no manifest.
    Litter { path: PathBuf },
    /// The number of segments in quarantine.
    Quarantined { segments: u64 },
    /// No sample could be read.
    NoSample { why: String },
    /// The number of examined samples, and of those among them that could not be read.
    Unreadable { looked_at: u64, unreadable: u64, why: String },
    /// A part with elements that are not finite.
    NotFinite { part: String, values: Range },
    /// A byte range of a file that is not a record.
    Bytes { begin: u64, end: u64, why: Damage },
    /// An empty file.
    Empty,
    /// A file without a record, and the kind of image that it looks like.
    NoRecords { kind: Option<&'static str> },
}

impl Issue {
    /// Returns whether samples are lost or cannot be read.
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            Issue::OtherVersion { .. }
                | Issue::Gap { .. }
                | Issue::Promoting { .. }
                | Issue::Litter { .. }
                | Issue::Quarantined { .. }
                | Issue::NotFinite { .. }
        )
    }
}
