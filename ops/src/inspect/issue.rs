//! What is not as it should be in a ring, a generation or a file.

use super::records::Damage;
use ringreel::value_stats::Range;
use serde::Serialize;
use std::path::PathBuf;

/// A problem, or a note that explains something unexpected. `why` is the text of an error.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "issue")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Issue {
    /// There is no `ring.json`.
    NoDescriptor,
    /// `ring.json` cannot be used.
    BadDescriptor { why: String },
    /// `ring.json` has another version.
    OtherVersion { why: String },
    /// There is no manifest.
    NoManifest,
    /// The newest manifest cannot be used.
    BadManifest { why: String },
    /// A generation could not be looked at.
    Denied { why: String },
    /// The directory of a generation is missing, and an older one is there.
    Gap { generation: u64 },
    /// The directory of the newest generation is missing.
    NewestMissing { generation: u64, samples: u64 },
    /// Files whose footers cannot be read: how many, and why the first cannot.
    NoFooter { files: u64, why: String },
    /// A promotion that is not finished.
    Promoting { generation: u64 },
    /// A generation whose manifest cannot be used.
    Unlisted { generation: u64 },
    /// A directory that belongs to no manifest.
    Litter { path: PathBuf },
    /// Segments in quarantine.
    Quarantined { segments: u64 },
    /// No sample could be looked at.
    NoSample { why: String },
    /// Samples that could not be read, of those looked at.
    Unreadable { looked_at: u64, unreadable: u64, why: String },
    /// A part with elements that are not finite.
    NotFinite { part: String, values: Range },
    /// A stretch of a file that is no record.
    Bytes { begin: u64, end: u64, why: Damage },
    /// A file without a byte.
    Empty,
    /// A file without a record; the kind of image that it looks like.
    NoRecords { kind: Option<&'static str> },
}

impl Issue {
    /// Whether samples are lost, or cannot be read.
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
