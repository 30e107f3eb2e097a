//! Leases: which process holds a role.

use crate::error::Result;
use std::fmt;

/// The holder of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Grows with each holder.
    pub token: u64,
    /// The holder's owner name, whose heartbeat is to be watched. Empty when it cannot be read.
    pub holder: String,
    /// The holder gave it up.
    pub released: bool,
}

/// Names one holder for each role, by tokens that only grow. A lease does not expire: an observer
/// that sees no heartbeat of the holder claims the next token.
///
/// Correctness never depends on a lease. It saves work: two processes that both hold one do the
/// same harmless steps.
pub trait Leases: Send + Sync + fmt::Debug {
    /// Returns the lease of `role` with the highest token; `None` when it was never claimed.
    ///
    /// A hint: another process may claim the next token meanwhile.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn lease(&self, role: &str) -> Result<Option<Lease>>;

    /// Claims `role` for `holder`. `token` is to be one more than that of [`Leases::lease`], or 1.
    /// Returns whether the claim succeeded.
    ///
    /// Atomic: at most one claim of a token succeeds. A claim whose reply was lost may be reported
    /// as failed; the next call of [`Leases::lease`] names the holder.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool>;

    /// Gives up `role`, held with `token`, so that the next holder need not wait. Does nothing when
    /// another process has claimed a higher token.
    ///
    /// A hint: where the call fails, the next holder waits until the heartbeat has been silent for
    /// long enough.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn release_lease(&self, role: &str, token: u64) -> Result<()>;
}
