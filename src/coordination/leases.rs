//! Leases: which process holds a role.

use crate::error::Result;
use std::fmt;

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
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn lease(&self, role: &str) -> Result<Option<Lease>>;

    /// Claims `role` for `holder`. `token` has to be one more than that of [`Leases::lease`], or 1.
    /// Returns whether the claim succeeded.
    ///
    /// Atomic: at most one claim of a token succeeds. A claim whose reply was lost may be reported
    /// as failed; the next call of [`Leases::lease`] returns the holder.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool>;

    /// Releases `role`, held with `token`, so that the next holder need not wait. Does nothing if
    /// another process has claimed a higher token.
    ///
    /// A hint: if the call fails, the next holder waits until the holder's heartbeat has been
    /// silent for a lease.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn release_lease(&self, role: &str, token: u64) -> Result<()>;
}
