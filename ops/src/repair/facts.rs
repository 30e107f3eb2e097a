//! Causes, remedies and blockers of repairs. `why` is the text of an error.

use super::Repair;
use crate::held_out::DamagedSample;
use serde::Serialize;
use std::path::PathBuf;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Cause {
    /// `ring.json` is missing.
    NoDescriptor,
    /// `ring.json` cannot be used.
    BadDescriptor { why: String },
    /// A manifest is missing.
    NoManifest,
    /// A manifest beyond the newest is missing, although its generation was readable.
    NoManifestOfReadable,
    /// A manifest cannot be used, or the index does not answer.
    Refused { why: String },
    /// A manifest of another ring.
    OtherRing { ring: String },
    /// A generation too far beyond the newest manifest.
    TooManyManifestsLost,
    /// A promotion that is not finished.
    Promoting { generation: u64 },
    /// A full generation without a process that promotes it.
    Full { generation: u64, samples: u64 },
    /// Finished segments of a dead owner that are in no generation.
    Finished { segments: u64, samples: u64 },
    /// A staged segment is damaged.
    DamagedSegment { why: String },
    /// The last name of samples that no manifest lists.
    LastName { samples: u64 },
    /// A directory whose generation is already promoted.
    PromotedAlready,
    /// A name in the trash.
    Trash,
    /// The index contradicts the directory.
    Coordination(Repair),
    /// A held-out sample is damaged.
    HeldOut {
        #[serde(serialize_with = "sample_text")]
        sample: DamagedSample,
    },
}

fn sample_text<S: serde::Serializer>(sample: &DamagedSample, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&sample.id)
}

/// What repair does about a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Remedy {
    /// Recreate `ring.json`.
    RemakeDescriptor,
    /// Rebuild the manifest, from evidence that is known later.
    Rebuild,
    /// Recreate the manifest of generation 0.
    RemakeEmpty,
    /// Rebuild the manifest from the segments in the directory.
    RebuildFrom(Rebuilding),
    /// None, because the correct manifest is unknown.
    NothingIsKnown,
    /// None, because the manifest is intact.
    LeaveWhole,
    /// The user restores the manifests, or exports the samples.
    RestoreManifests,
    /// Finish the promotion.
    FinishPromotion,
    /// Promote the generation.
    Promote,
    /// Link the segments into the filling generation.
    Link,
    /// Stage the segment again, and link it.
    StageAgain,
    /// Move the segment to quarantine.
    Quarantine,
    /// Move a damaged segment with its last name to quarantine.
    QuarantineDamaged { why: String },
    /// A manager removes it.
    Reclaim,
    /// Update the index from the directory.
    UpdateIndex,
    /// The user restores the file.
    RestoreFile,
}

/// How a manifest is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rebuilding {
    /// The generation.
    pub generation: u64,
    /// Whether its directory exists. If not, the rebuilt manifest is empty.
    pub is_there: bool,
    /// Number of samples in the rebuilt manifest.
    pub samples: u64,
    /// Number of segments in the rebuilt manifest.
    pub segments: usize,
    /// Number of samples in the lost manifest, if the adjacent manifests tell it.
    pub listed: Option<u64>,
    /// Number of damaged files in the directory.
    pub damaged: usize,
    /// Number of staged segments that go to quarantine, because they may have been delivered already.
    pub unclear: usize,
}

/// Why a repair cannot be made now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Blocker {
    /// The manifest of this generation must be repaired first.
    ManifestFirst { generation: u64 },
    /// Lost manifests must be repaired first.
    ManifestsFirst,
    /// The user must restore the correct manifest.
    RestoreManifest,
    /// A manifest has another version.
    OtherVersion,
    /// The manifest of this directory and others are lost.
    ManifestsLost { path: PathBuf },
    /// A manifest that may list the segment cannot be read.
    UnreadableManifest,
    /// The promotion waits for this.
    HeldBack { by: String },
    /// The index is unreachable.
    IndexAway,
    /// Heartbeats have not been watched yet.
    NotWatched,
    /// The index is unreachable, so heartbeats cannot be seen.
    Unheard,
    /// The number of live managers and generators, and the name of one.
    Living { count: usize, one: String },
    /// The ring has no second copy of a sample.
    NoCopy,
}
