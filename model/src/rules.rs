//! The rules, each of which can be left out, so that its counter-example is found.

use std::fmt;

/// What must hold in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// A finished segment that no manifest lists has a name from which somebody will list it.
    NotLost,
    /// It is listed once.
    Once,
    /// A manifest never says anything else.
    ManifestStays,
    /// No manifest comes before the one of the generation before.
    InOrder,
    /// Only what is finished is listed.
    SealedOnly,
    /// What a kept generation's manifest lists is there, under its name.
    ListedIsThere,
    /// Readers are given what a manifest lists, and nothing else.
    ListedOnly,
    /// At most KEEP + 3 generations take room on the disk.
    DiskBound,
    /// When nothing more goes wrong, what is finished is listed, and generations go on.
    Delivered,
    /// All who work in a ring agree on what it is.
    OneRing,
    /// A reader leaves out no generation that is there, and none that KEEP keeps.
    NotLeftOut,
    /// A generation that a run pinned before a manager looked for pins is not reclaimed by that manager.
    PinnedStays,
}

impl Promise {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Promise::NotLost => "not lost",
            Promise::Once => "listed once",
            Promise::ManifestStays => "manifests stay",
            Promise::InOrder => "in order",
            Promise::SealedOnly => "sealed only",
            Promise::ListedIsThere => "listed is there",
            Promise::ListedOnly => "listed only",
            Promise::DiskBound => "disk bound",
            Promise::Delivered => "delivered in the end",
            Promise::OneRing => "one ring",
            Promise::NotLeftOut => "not left out",
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
            /// All of them.
            pub const ALL: &'static [Rule] = &[$(Rule::$name),*];

            /// Whether it is about manifests that are pruned.
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

            /// The promise that is broken without it, and how many committers and managers that takes, and whether a
            /// power cut.
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
    EarlierManifests: "who links and who lists asks the earlier manifests", Once, (1, 1, false);
    NextOnly: "no generation but newest + 1 is promoted", InOrder, (1, 1, false);
    NextOnlyOnce: "no generation but newest + 1 is promoted (and what it doubles)", Once, (1, 1, false);
    EachIdOnce: "a manifest lists each id once, however often it was linked", Once, (1, 1, false);
    LinkedAgain: "what a manifest leaves out is linked again", Delivered, (1, 1, false);
    ManifestJudges: "a link that finds no directory asks the manifests", NotLost, (1, 1, false);
    SealedAdopted: "a .part of a dead owner is litter", SealedOnly, (2, 1, false);
    RemovedAfterwards: "staging names are removed after the manifest is out", NotLost, (1, 1, false);
    RemovedAsListed: "staging names are removed of what is listed, not of what was found", NotLost, (1, 1, false);
    NoNameTwice: "no name is used twice", NotLost, (1, 1, false);
    FirstWins: "the first manifest wins (a link, not a rename)", ManifestStays, (1, 2, false);
    FirstWinsOnce: "the first manifest wins (and what else is listed then)", Once, (1, 2, false);
    WinnersList: "who was second uses the manifest of the first", ListedIsThere, (1, 2, false);
    NoWaiting: "a generation waits for nobody", Delivered, (1, 1, false);
    ReadersAsk: "readers look at no directory without a manifest", ListedOnly, (1, 1, false);
    NothingOnAStaleView: "what fails its check is left where it is", NotLost, (1, 1, false);
    NextIsNoLitter: "the generation newest + 1 is no litter", ListedIsThere, (1, 2, false);
    TooNewStays: "nothing is removed for being too new", ListedIsThere, (1, 2, false);
    KeptStays: "KEEP older generations stay", ListedIsThere, (1, 1, false);
    ReclaimFirst: "no generation is promoted before the old ones are reclaimed", DiskBound, (1, 1, false);
    PromotedIsFull: "a generation that was promoted is not filled again, though its manifest is gone", DiskBound, (1, 1, true);
    BytesFirst: "a file is synced before it is sealed", NotLost, (1, 1, true);
    SealedSynced: "a sealed name is synced before its ids are returned", NotLost, (1, 1, true);
    RenameSynced: "the rename to read.<n> is synced before the manifest", ListedIsThere, (1, 1, true);
    LinksSynced: "read.<n> is synced before its manifest", ListedIsThere, (1, 1, true);
    ManifestSynced: "the manifest is synced before staging names are removed", NotLost, (1, 1, true);
    SeenSynced: "who finds itself listed syncs the manifests before it removes its staging name", NotLost, (1, 1, true);
    EarlierSynced: "the earlier manifests are synced before the next one is published", InOrder, (1, 1, true);
    NewestSynced: "who reclaims syncs the manifests first", ListedIsThere, (1, 1, true);
    StruckFirst: "a manifest is pruned when nothing that it lists is staged", Once, (1, 1, false);
    StagingAsked: "if a manifest is pruned, the staging name tells", Delivered, (1, 1, false);
    StruckSynced: "staging directories are synced before a manifest is pruned", Once, (1, 1, true);
    PromotedAskedAgain: "read.<n+2> is absent only after the ring's directory was opened", DiskBound, (1, 1, true);
    StagedAskedAgain: "a staging name is gone only after its directory was opened", Delivered, (1, 1, false);
    ManifestAskedAgain: "a manifest is absent only after manifests/ was opened", Once, (1, 1, false);
    LastNameAskedAgain: "reclaim opens a staging directory before it takes a name there for absent", DiskBound, (1, 1, false);
}
