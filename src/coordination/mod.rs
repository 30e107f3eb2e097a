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
mod counter;
pub(crate) mod files;
mod leases;
mod membership;
#[cfg(feature = "mongodb")]
pub mod mongo;
mod notes;

pub use backend::{Backend, Claim, IfUnreachable, RingContext};
pub(crate) use counter::COUNTER_END;
pub use counter::Counter;
pub use files::FileStore;
pub use leases::{Lease, Leases};
pub(crate) use membership::BEATS_PER_LEASE;
pub use membership::{Membership, PartCompression, Report};
#[cfg(feature = "mongodb")]
pub use mongo::MongoStore;
pub use notes::Notes;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

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
