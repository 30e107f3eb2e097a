//! The coordination store of a ring, which the configuration calls its index.
//!
//! Its parts have a trait each: [`Counter`], [`Leases`], [`Membership`] and [`Notes`]. [`CoordinationStore`] is
//! a store that has all of them, and the swap status. A function that needs one part takes that
//! one, such as `&dyn Notes`, and a test double implements no more.
//!
//! The store is a hint that can be lost. The counter spreads segments' names so that they do not
//! collide, the status says sooner where to look, leases save work; no sample is lost or delivered
//! twice when any of it lies (rule 5 of `docs/internals/protocol.md`). Kept in [`FileStore`] (names in the
//! ring itself), [`MongoStore`] (documents on a server), or [`MemoryStore`] (one process, for
//! tests).

mod allocator;
mod backend;
mod counter;
pub(crate) mod files;
mod leases;
mod membership;
mod memory;
#[cfg(feature = "mongodb")]
mod mongo;
mod notes;

pub use backend::{Backend, Claim, IfUnreachable, RingContext};
pub(crate) use counter::COUNTER_END;
pub use counter::Counter;
pub use files::FileStore;
pub use leases::{Lease, Leases};
pub(crate) use membership::BEATS_PER_LEASE;
pub use membership::{Membership, PartCompression, Report};
pub use memory::MemoryStore;
#[cfg(feature = "mongodb")]
pub use mongo::{MongoStore, probe as server_probe};
pub use notes::Notes;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// What the newest promotion left: only says sooner what the manifests say for certain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwapStatus {
    /// The newest generation that was promoted.
    pub generation: u64,
    /// When, by its promoter's clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// Samples in all generations.
    pub total_samples: u64,
}

/// The coordination store of one ring.
///
/// The swap status belongs to the store itself: a ring has one, and on a server the document that
/// holds it also names the ring that owns the store.
///
/// Correctness never depends on a store: what a ring holds is in its directory alone.
///
/// # Errors
/// - [`Error::CoordinationUnavailable`]: the server does not answer. The ring goes on without it; see [`if_available`].
/// - [`Error::CoordinationDenied`]: the server refuses this user, or this kind of connection, until that is changed.
/// - [`Error::RingMismatch`]: the place on the server is that of another ring.
/// - [`Error::Fs`]: an operation on the files of the store failed.
/// - [`Error::Coordination`]: a record cannot be encoded or decoded.
pub trait CoordinationStore: Counter + Leases + Membership + Notes {
    /// Returns where the store is, in words, without passwords.
    fn place(&self) -> String;

    /// Asks whether the store answers.
    ///
    /// # Errors
    /// Why it cannot be reached; see [`CoordinationStore`](CoordinationStore#errors).
    fn ping(&self) -> Result<()>;

    /// Makes `status` the newest one, unless a later generation is there already. Returns whether
    /// it is the newest.
    ///
    /// Atomic: a status never replaces that of a later generation.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn publish_status(&self, status: &SwapStatus) -> Result<bool>;

    /// Returns the newest status; `None` in a new or lost store.
    ///
    /// A hint: the manifests say for certain which generation is the newest.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn status(&self) -> Result<Option<SwapStatus>>;

    /// Forgets what is kept of generations before `generation`: their counters, and their statuses
    /// where each has one.
    ///
    /// A hint: what could not be removed only takes room.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn forget_before(&self, generation: u64) -> Result<()>;

    /// Forgets everything. Not atomic: what other processes write meanwhile may stay.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](CoordinationStore#errors).
    fn clear(&self) -> Result<()>;
}

/// Returns what a store said; `None` where its server is away or refuses us, since the ring goes on
/// without it.
///
/// # Errors
/// All others.
pub fn if_available<T>(said: Result<T>) -> Result<Option<T>> {
    match said {
        Ok(value) => Ok(Some(value)),
        Err(Error::CoordinationUnavailable { .. } | Error::CoordinationDenied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
