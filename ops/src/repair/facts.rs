//! What is wrong in a ring, what repair does about it, and what it waits for. `why` is the text of an error.

use super::Repair;
use ringreel::ring::validation_split::DamagedSample;
use serde::Serialize;
use std::path::PathBuf;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Cause {
    /// There is no `ring.json`.
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
    /// A directory whose generation was promoted.
    PromotedAlready,
    /// A name in the trash.
    Trash,
    /// The index says something else than the directory.
    Coordination(Repair),
    /// A sample that is held out is damaged.
    HeldOut {
        #[serde(serialize_with = "sample_text")]
        sample: DamagedSample,
    },
}

fn sample_text<S: serde::Serializer>(sample: &DamagedSample, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&sample.id)
}

/// What happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Remedy {
    /// `ring.json` is made again.
    RemakeDescriptor,
    /// The manifest is rebuilt; from what, is known later.
    Rebuild,
    /// The manifest of generation 0 is made again.
    RemakeEmpty,
    /// The manifest is rebuilt from the segments in the directory.
    RebuildFrom(Rebuilding),
    /// Nothing: nothing is known of the right manifest.
    NothingIsKnown,
    /// Nothing: the manifest is whole.
    LeaveWhole,
    /// The user puts the manifests back, or exports the samples.
    RestoreManifests,
    /// The promotion is finished.
    FinishPromotion,
    /// The generation is promoted.
    Promote,
    /// The segments are linked into the generation that fills.
    Link,
    /// The segment is staged again, and linked.
    StageAgain,
    /// The segment goes to quarantine.
    Quarantine,
    /// A segment with its last name goes to quarantine.
    QuarantineDamaged { why: String },
    /// A manager removes it.
    Reclaim,
    /// The index is updated from the directory.
    UpdateIndex,
    /// The user restores the file.
    RestoreFile,
}

/// How a manifest is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rebuilding {
    /// The generation.
    pub generation: u64,
    /// Whether its directory is there. Else a manifest that lists nothing takes the place.
    pub is_there: bool,
    /// Samples,
    pub samples: u64,
    /// and segments that are listed.
    pub segments: usize,
    /// Samples that the lost one listed, where its neighbours tell.
    pub listed: Option<u64>,
    /// Damaged files in the directory.
    pub damaged: usize,
    /// Staged segments that go to quarantine, because whether they were delivered cannot be told.
    pub unclear: usize,
}

/// Why a repair cannot be made now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Blocker {
    /// The manifest of this generation comes first.
    ManifestFirst { generation: u64 },
    /// Lost manifests come first.
    ManifestsFirst,
    /// The user puts the right manifest back.
    RestoreManifest,
    /// A manifest of another version.
    OtherVersion,
    /// The manifest of this directory and more are lost.
    ManifestsLost { path: PathBuf },
    /// A manifest that may list the segment cannot be read.
    UnreadableManifest,
    /// The promotion waits for this.
    HeldBack { by: String },
    /// The index does not answer.
    IndexAway,
    /// No heartbeats were watched yet.
    NotWatched,
    /// The index does not answer, so no heartbeats are seen.
    Unheard,
    /// The number of live managers and generators, and the name of one.
    Living { count: usize, one: String },
    /// There is no second copy of a sample.
    NoCopy,
}
