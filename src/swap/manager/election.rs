//! Decides which of several managers works: the one that holds the lease. The lease only saves
//! work, because two managers that work at once do no harm.

use crate::coordination::{Lease, if_available};
use crate::error::Result;
use crate::heartbeat::Heartbeat;
use crate::ring::Ring;
use crate::ring::failure_detector::LOOKS_PER_LEASE;
use crate::role::Role;
use std::time::Instant;

/// What a manager knows of the lease.
pub(crate) struct Election {
    /// The token of the lease, if this manager holds it.
    token: Option<u64>,
    /// When the lease is read again.
    next_look: Instant,
    /// Whether it was logged that another manager holds the lease.
    standing_by: bool,
}

impl Election {
    pub(crate) fn new() -> Election {
        Election { token: None, next_look: Instant::now(), standing_by: false }
    }

    /// Returns whether this manager holds the lease, as far as it knows.
    pub(crate) fn is_held(&self) -> bool {
        self.token.is_some()
    }

    /// Releases the lease.
    pub(crate) fn release(&self, ring: &Ring) {
        if let Some(token) = self.token {
            let released = ring.coordination.release_lease(Role::Manager.as_str(), token);
            released.unwrap_or_else(|error| tracing::warn!(%error, "cannot release the lease; it will expire"));
        }
    }

    /// Takes or keeps the manager's lease. Returns whether this manager has to work.
    pub(crate) fn hold_lease(&mut self, ring: &Ring, heartbeat: &Heartbeat) -> Result<bool> {
        if self.next_look > Instant::now() {
            return Ok(self.token.is_some());
        }
        // While the coordination store is unreachable, there is no lease, and every manager works.
        // That does no harm.
        let Some(lease) = if_available(ring.coordination.lease(Role::Manager.as_str()))? else { return Ok(true) };
        self.next_look = Instant::now() + ring.settings.lease / LOOKS_PER_LEASE;
        let next = match lease {
            // Our lease; also if our claim seemed to fail, or if its file cannot be read just now.
            Some(lease) if !lease.released && self.is_ours(&lease, ring) => {
                self.token = Some(lease.token);
                self.standing_by = false;
                // The lease is read again after a lease. (Two managers that work at once do no
                // harm.)
                self.next_look = Instant::now() + ring.settings.lease;
                return Ok(true);
            }
            Some(lease) => {
                if !lease.holder.is_empty() {
                    ring.failure_detector().forget(""); // an empty holder counts as silent only over consecutive polls
                }
                if_available(ring.failure_detector().look(&*ring.coordination))?;
                if self.token.take().is_some() {
                    tracing::warn!(holder = lease.holder, "the manager's lease was taken over: standing by");
                }
                let silent = ring.failure_detector().is_dead(&lease.holder);
                if !lease.released && !silent {
                    if !self.standing_by {
                        tracing::info!(holder = lease.holder, "another manager holds the lease: standing by");
                        self.standing_by = true;
                    }
                    heartbeat.report(|report| report.doing = "standing by".to_owned());
                    return Ok(false);
                }
                lease.token.saturating_add(1)
            }
            None => 1,
        };
        match if_available(ring.coordination.claim_lease(Role::Manager.as_str(), next, &ring.me))? {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => return Ok(true),
        }
        tracing::info!(token = next, ring = %ring.layout.root().display(), "this manager holds the lease");
        self.token = Some(next);
        self.standing_by = false;
        heartbeat.report(|report| report.doing.clear());
        Ok(true)
    }

    fn is_ours(&self, lease: &Lease, ring: &Ring) -> bool {
        lease.holder == ring.me || (lease.holder.is_empty() && Some(lease.token) == self.token)
    }
}
