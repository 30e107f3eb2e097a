//! Which of several managers works: the one that holds the lease. It only saves work, since two that work at once harm
//! nothing.

use super::Manager;
use crate::coordination::{Lease, if_available};
use crate::error::Result;
use crate::ring::liveness::LOOKS_PER_LEASE;
use crate::role::Role;
use std::time::Instant;

impl Manager {
    /// Takes or keeps the manager's lease. Returns whether this manager is to work.
    pub(crate) fn hold_lease(&mut self) -> Result<bool> {
        if self.next_look > Instant::now() {
            return Ok(self.token.is_some());
        }
        // Where the index is away, there is no lease. Two who work at once harm nothing.
        let Some(lease) = if_available(self.ring.coordination.lease(Role::Manager.as_str()))? else { return Ok(true) };
        self.next_look = Instant::now() + self.ring.settings.lease / LOOKS_PER_LEASE;
        let next = match lease {
            // Ours; also where our claim seemed to fail, or its file cannot be read just now.
            Some(lease) if !lease.released && self.is_ours(&lease) => {
                self.token = Some(lease.token);
                self.standing_by = false;
                // Once in a lease. (Two that work at once harm nothing.)
                self.next_look = Instant::now() + self.ring.settings.lease;
                return Ok(true);
            }
            Some(lease) => {
                if !lease.holder.is_empty() {
                    self.ring.watch().forget(""); // nobody is silent only for looks in a row that find nobody
                }
                if_available(self.ring.watch().look(&*self.ring.coordination))?;
                if self.token.take().is_some() {
                    tracing::warn!(holder = lease.holder, "the manager's lease was taken over: standing by");
                }
                let silent = self.ring.watch().is_dead(&lease.holder);
                if !lease.released && !silent {
                    if !self.standing_by {
                        tracing::info!(holder = lease.holder, "another manager holds the lease: standing by");
                        self.standing_by = true;
                    }
                    self.heartbeat.report(|report| report.doing = "standing by".to_owned());
                    return Ok(false);
                }
                lease.token.saturating_add(1)
            }
            None => 1,
        };
        match if_available(self.ring.coordination.claim_lease(Role::Manager.as_str(), next, &self.ring.me))? {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => return Ok(true),
        }
        tracing::info!(token = next, ring = %self.ring.layout.root().display(), "this manager holds the lease");
        self.token = Some(next);
        self.standing_by = false;
        self.heartbeat.report(|report| report.doing.clear());
        Ok(true)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.holder == self.ring.me || (lease.holder.is_empty() && Some(lease.token) == self.token)
    }
}
