//! The coordination store of a ring, which the configuration calls its index.
//!
//! Its parts have a trait each: [`Counter`], [`Leases`], [`Membership`] and [`Notes`].
//! [`CoordinationStore`] combines them and adds the swap status. A function that needs only one
//! part takes that trait, such as `&dyn Notes`, and a test double implements only that one.
//!
//! The store holds hints and may be lost. The counter keeps segment names from colliding, the
//! status shortens the search for the newest generation, and leases save work. No sample is lost or
//! delivered twice if any of them is wrong (rule 5 of `docs/internals/protocol.md`). Implementations:
//! [`FileStore`] (names in the ring's directory), [`MongoStore`] (documents on a server), and for
//! tests one in memory.

mod allocator;
mod backend;
pub(crate) mod files;
#[cfg(feature = "mongodb")]
pub mod mongo;
mod report;

pub use backend::{Backend, Claim, IfUnreachable, RingContext};
pub use files::FileStore;
#[cfg(feature = "mongodb")]
pub use mongo::MongoStore;
pub(crate) use report::BEATS_PER_LEASE;
pub use report::{PartCompression, Report};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Counters hand out numbers below this one. A process that gets no number uses a random one above
/// it.
pub(crate) const COUNTER_END: u64 = 1 << 40;

/// Hands out the numbers in the names of a generation's segments. Each generation counts from 0.
///
/// Correctness never depends on a counter. Only one process can create a given name, and the others
/// try another number. So a counter that repeats, skips or forgets numbers causes retries, but
/// loses no sample.
pub trait Counter: Send + Sync + fmt::Debug {
    /// Returns a number for the name of a segment in `generation`. Returns `None` if the generation
    /// is closed, or if no free number was found.
    ///
    /// Atomic, as far as the server or the filesystem is: no two calls, in any process, get the
    /// same number. Processes take numbers in blocks, so a process that ends leaves a gap.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn next_index(&self, generation: u64) -> Result<Option<u64>>;

    /// Closes `generation`: no more numbers are handed out. May be called repeatedly, and before
    /// the first number.
    ///
    /// A hint: a process that holds a block of numbers still uses the rest of it. The segments
    /// named by these numbers are not listed in the generation, and their owners link them into the
    /// next one.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn close_generation(&self, generation: u64) -> Result<()>;

    /// Returns a number above all numbers that were handed out in `generation`. The next new block
    /// begins at this number or later.
    ///
    /// A hint: other processes may take numbers at the same time.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn handed_out(&self, generation: u64) -> Result<u64>;

    /// Marks all numbers of `generation` below `next` as taken. Never lowers the counter.
    ///
    /// Atomic for blocks that are handed out from now on, in any process. A hint for blocks that
    /// other processes hold already, because they use the rest of them.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn skip_to(&self, generation: u64, next: u64) -> Result<()>;
}

/// The holder of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The token, which grows with each holder.
    pub token: u64,
    /// The holder's owner name, whose heartbeat is to be watched. Empty if it cannot be read.
    pub holder: String,
    /// Whether the holder released it.
    pub released: bool,
}

/// Assigns each role to one holder at a time, by tokens that only grow. A lease does not expire: an
/// observer that sees no heartbeat of the holder claims the next token.
///
/// Correctness never depends on a lease. It saves work: two processes that both hold it do the same
/// harmless steps.
pub trait Leases: Send + Sync + fmt::Debug {
    /// Returns the lease of `role` with the highest token, or `None` if it was never claimed.
    ///
    /// A hint: another process may claim the next token at the same time.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn lease(&self, role: &str) -> Result<Option<Lease>>;

    /// Claims `role` for `holder`. `token` has to be one more than that of [`Leases::lease`], or 1.
    /// Returns whether the claim succeeded.
    ///
    /// Atomic: at most one claim of a token succeeds. A claim whose reply was lost may be reported
    /// as failed; the next call of [`Leases::lease`] returns the holder.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool>;

    /// Releases `role`, held with `token`, so that the next holder need not wait. Does nothing if
    /// another process has claimed a higher token.
    ///
    /// A hint: if the call fails, the next holder waits until the holder's heartbeat has been
    /// silent for a lease.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn release_lease(&self, role: &str, token: u64) -> Result<()>;
}

/// Lists the processes of a ring. Each publishes an increasing number, its heartbeat, and a report
/// with it.
///
/// Correctness never depends on the list. An observer that considers a living process dead does it
/// no harm: a segment that both commit is listed once.
pub trait Membership: Send + Sync + fmt::Debug {
    /// Publishes `beat` and `report` of `member`, which replace the previous ones. The caller
    /// increases `beat` by one each time.
    ///
    /// A hint: the report that others read may be two heartbeats old if only the details of a wait
    /// have changed.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()>;

    /// Removes `member` from the list. Does nothing if it is not listed.
    ///
    /// A hint: a heartbeat that is in progress may list it again.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn leave(&self, member: &str) -> Result<()>;

    /// Returns each member once, with its last heartbeat, in any order.
    ///
    /// A hint: members may join, leave and publish heartbeats at the same time.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn members(&self) -> Result<Vec<(String, u64)>>;

    /// Returns how long ago each of these heartbeats was published, by the clock of the store.
    /// Leaves out heartbeats that have been replaced, and all of them if the store has no clock, or
    /// this process cannot read it.
    ///
    /// A hint: for display, and never used to declare a member dead.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn beat_ages(&self, _beats: &[(String, u64)]) -> Result<HashMap<String, Duration>> {
        Ok(HashMap::new())
    }

    /// Returns what `member` reported with `beat`. Returns `None` if it has published a later
    /// heartbeat, or has left.
    ///
    /// A hint: the contents of a report are not verified.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>>;
}

/// Stores small texts under names in folders; the first text of a name stays. Used for run logs,
/// readers' progress and last errors. Folders and names consist of letters, digits, `.`, `-` and
/// `_`.
///
/// The delivery of samples does not depend on notes. Workers of a run that lose their notes may
/// disagree about the generation of an epoch, and a generation may be reclaimed too soon for a
/// reader or kept too long.
pub trait Notes: Send + Sync + fmt::Debug {
    /// Writes `text` as note `name` of `folder`, unless the note exists. Returns the text of the
    /// existing note.
    ///
    /// Atomic: one of all writers of a note succeeds, and all get its text.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors). Also
    /// [`Error::Coordination`] if another process wrote the note and it
    /// is not visible yet.
    fn add_note(&self, folder: &str, name: &str, text: &str) -> Result<String>;

    /// Returns the text of note `name` of `folder`, or `None` if it does not exist.
    ///
    /// A text never changes. `None` is a hint: another process may be writing the note.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>>;

    /// Returns the names of all notes in `folder`, in any order.
    ///
    /// A hint: a note that is written or removed at the same time may be missing or listed.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn note_names(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes note `name` of `folder`. Does nothing if it does not exist.
    ///
    /// A hint: another process may write the note again.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn remove_note(&self, folder: &str, name: &str) -> Result<()>;
}

/// The swap status: a shortcut to the newest generation. Only the manifests are authoritative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwapStatus {
    /// The newest generation that was promoted.
    pub generation: u64,
    /// Time of the promotion by its promoter's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of samples in all generations.
    pub total_samples: u64,
}

/// The coordination store of one ring.
///
/// The swap status belongs to the store itself, because a ring has only one, and on a server its
/// document also names the ring that owns the store.
///
/// Correctness never depends on a store: the samples of a ring are in its directory alone.
///
/// # Errors
/// - [`Error::CoordinationUnavailable`]: the server does not answer. The ring continues without it;
///   see [`if_available`].
/// - [`Error::CoordinationDenied`]: the server refuses this user, or this kind of connection, until that is changed.
/// - [`Error::RingMismatch`]: the place on the server belongs to another ring.
/// - [`Error::Fs`]: an operation on the files of the store failed.
/// - [`Error::Coordination`]: a record cannot be encoded or decoded.
pub trait CoordinationStore: Counter + Leases + Membership + Notes {
    /// Describes where the store is, without passwords.
    fn place(&self) -> String;

    /// Checks that the store answers.
    ///
    /// # Errors
    /// The reason why it cannot be reached; see [`CoordinationStore`](CoordinationStore#errors).
    fn ping(&self) -> Result<()>;

    /// Makes `status` the newest one, unless a later generation has one already. Returns whether it
    /// is the newest.
    ///
    /// Atomic: a status never replaces that of a later generation.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn publish_status(&self, status: &SwapStatus) -> Result<bool>;

    /// Returns the newest status, or `None` in a new or lost store.
    ///
    /// A hint: only the manifests decide which generation is the newest.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn status(&self) -> Result<Option<SwapStatus>>;

    /// Forgets generations before `generation`: their counters, and their statuses if the store
    /// keeps one for each.
    ///
    /// A hint: data that could not be removed only takes space.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn forget_before(&self, generation: u64) -> Result<()>;

    /// Forgets everything. Not atomic: data that other processes write at the same time may stay.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn clear(&self) -> Result<()>;
}

/// Returns the answer of a store, or `None` if its server does not answer or refuses access,
/// because the ring continues without it.
///
/// # Errors
/// All other errors of the store.
pub fn if_available<T>(said: Result<T>) -> Result<Option<T>> {
    match said {
        Ok(value) => Ok(Some(value)),
        Err(Error::CoordinationUnavailable { .. } | Error::CoordinationDenied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
