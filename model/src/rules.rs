//! The rules. Each can be omitted, to find its counter-example.

use std::fmt;

/// A property that must hold in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// A finished segment that no manifest lists has a name from which a process will list it.
    NotLost,
    /// A segment is listed once.
    Once,
    /// A manifest never changes.
    ManifestStays,
    /// No manifest is published before the one of the previous generation.
    InOrder,
    /// Only finished segments are listed.
    SealedOnly,
    /// Every segment in a kept generation's manifest exists under its name.
    ListedIsThere,
    /// Readers get only segments that a manifest lists.
    ListedOnly,
    /// At most KEEP + 3 generations use space on the disk.
    DiskBound,
    /// Without further faults, finished segments are listed, and generations continue.
    Delivered,
    /// All processes of a ring agree on its descriptor.
    OneRing,
    /// A reader skips no existing generation, and none that KEEP covers.
    NotLeftOut,
    /// A generation that a run pinned before a manager queried pins is not reclaimed by that manager.
    PinnedStays,
}

impl Promise {
    /// The name for output.
    pub const fn name(self) -> &'static str {
        match self {
            Promise::NotLost => "not lost",
            Promise::Once => "listed once",
            Promise::ManifestStays => "manifests stay",
            Promise::InOrder => "in order",
            Promise::SealedOnly => "sealed only",
            Promise::ListedIsThere => "listed exists",
            Promise::ListedOnly => "listed only",
            Promise::DiskBound => "disk bound",
            Promise::Delivered => "delivered finally",
            Promise::OneRing => "one ring",
            Promise::NotLeftOut => "not skipped",
            Promise::PinnedStays => "pinned stays",
        }
    }
}

macro_rules! rules {
    ($($name:ident: $says:literal, $broken:ident, ($committers:literal, $managers:literal, $power:literal);)*) => {
        /// A rule of the ring.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $(#[doc = $says] $name,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$name),*];

            /// Whether it concerns pruned manifests.
            pub const fn is_of_pruning(self) -> bool {
                matches!(
                    self,
                    Rule::StruckFirst
                        | Rule::StagingAsked
                        | Rule::StruckSynced
                        | Rule::StagedAskedAgain
                        | Rule::ManifestAskedAgain
                )
            }

            /// The property that is violated without it, and the number of committers and managers that this takes, and
            /// whether it takes a power cut.
            pub const fn breaks(self) -> (Promise, usize, usize, bool) {
                match self {
                    $(Rule::$name => (Promise::$broken, $committers, $managers, $power),)*
                }
            }
        }

        impl fmt::Display for Rule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Rule::$name => $says,)*
                })
            }
        }
    };
}

rules! {
    StagingNameStays: "the staging name stays until a manifest lists the segment", NotLost, (1, 1, false);
    EarlierManifests: "linking and listing check the earlier manifests", Once, (1, 1, false);
    NextOnly: "only generation newest + 1 is promoted", InOrder, (1, 1, false);
    NextOnlyOnce: "only generation newest + 1 is promoted (duplicates)", Once, (1, 1, false);
    EachIdOnce: "a manifest lists each id once, however often it was linked", Once, (1, 1, false);
    LinkedAgain: "a segment that a manifest omits is linked again", Delivered, (1, 1, false);
    ManifestJudges: "a link that finds no directory checks the manifests", NotLost, (1, 1, false);
    SealedAdopted: "a .part of a dead owner is litter", SealedOnly, (2, 1, false);
    RemovedAfterwards: "staging names are removed after the manifest is published", NotLost, (1, 1, false);
    RemovedAsListed: "staging names are removed of listed segments, not of found ones", NotLost, (1, 1, false);
    NoNameTwice: "no name is used twice", NotLost, (1, 1, false);
    FirstWins: "the first manifest wins (a link, not a rename)", ManifestStays, (1, 2, false);
    FirstWinsOnce: "the first manifest wins (duplicates)", Once, (1, 2, false);
    WinnersList: "the second publisher uses the first one's manifest", ListedIsThere, (1, 2, false);
    NoWaiting: "a generation waits for no process", Delivered, (1, 1, false);
    ReadersAsk: "readers use no directory without a manifest", ListedOnly, (1, 1, false);
    NothingOnAStaleView: "a segment that fails its check stays in its place", NotLost, (1, 1, false);
    NextIsNoLitter: "the generation newest + 1 is not litter", ListedIsThere, (1, 2, false);
    TooNewStays: "nothing is removed for being too new", ListedIsThere, (1, 2, false);
    KeptStays: "KEEP older generations stay", ListedIsThere, (1, 1, false);
    ReclaimFirst: "no generation is promoted before the old ones are reclaimed", DiskBound, (1, 1, false);
    PromotedIsFull: "a promoted generation is not filled again, even without its manifest", DiskBound, (1, 1, true);
    BytesFirst: "a file is synced before it is sealed", NotLost, (1, 1, true);
    SealedSynced: "a sealed name is synced before its ids are returned", NotLost, (1, 1, true);
    RenameSynced: "the rename to read.<n> is synced before the manifest", ListedIsThere, (1, 1, true);
    LinksSynced: "read.<n> is synced before its manifest", ListedIsThere, (1, 1, true);
    ManifestSynced: "the manifest is synced before staging names are removed", NotLost, (1, 1, true);
    SeenSynced: "a listed owner syncs the manifests before it removes its staging name", NotLost, (1, 1, true);
    EarlierSynced: "the earlier manifests are synced before the next one is published", InOrder, (1, 1, true);
    NewestSynced: "a reclaim syncs the manifests first", ListedIsThere, (1, 1, true);
    StruckFirst: "a manifest is pruned only if none of its segments is staged", Once, (1, 1, false);
    StagingAsked: "if a manifest is pruned, the staging name decides", Delivered, (1, 1, false);
    StruckSynced: "staging directories are synced before a manifest is pruned", Once, (1, 1, true);
    PromotedAskedAgain: "read.<n+2> is absent only after the ring's directory was opened", DiskBound, (1, 1, true);
    StagedAskedAgain: "a staging name is gone only after its directory was opened", Delivered, (1, 1, false);
    ManifestAskedAgain: "a manifest is absent only after manifests/ was opened", Once, (1, 1, false);
    LastNameAskedAgain: "reclaim opens a staging directory before it considers a name there absent", DiskBound, (1, 1, false);
}
