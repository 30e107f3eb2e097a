//! Leases: the process that publishes the name of a token holds the role.

use super::{FileStore, numbered};
use crate::coordination::{Lease, Leases};
use crate::error::Result;
use crate::fs::atomic_publish::publish;

/// The directory of leases.
pub(super) const LEASES: &str = "leases";
/// Number of old leases that are kept, so that a late claimant finds its token taken.
const LEASES_KEPT: u64 = 16;

impl Leases for FileStore {
    fn lease(&self, role: &str) -> Result<Option<Lease>> {
        let names = self.list(&self.dir(LEASES))?;
        let tokens = names.iter().filter_map(|name| numbered(name)).filter(|(name, _)| *name == role);
        let Some(token) = tokens.map(|(_, token)| token).max() else { return Ok(None) };
        // An unreadable lease has an empty holder, for which no heartbeat is ever seen.
        let holder = self.read_hint(&self.dir(LEASES).join(format!("{role}.{token}")))?.unwrap_or_default();
        let released = names.contains(&format!("{role}.{token}.free"));
        Ok(Some(Lease { token, holder, released }))
    }

    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool> {
        let dir = self.dir(LEASES);
        let target = dir.join(format!("{role}.{token}"));
        let bytes = Self::encode(&holder)?;
        let won = self.with_dirs(None, || publish(&*self.fs, &self.temp(), &target, &bytes, false))?;
        if won {
            self.forget_where(&dir, |name| {
                let old = numbered(name.strip_suffix(".free").unwrap_or(name));
                old.is_some_and(|(other, n)| other == role && n + LEASES_KEPT < token)
            })?;
        }
        Ok(won)
    }

    fn release_lease(&self, role: &str, token: u64) -> Result<()> {
        let path = self.dir(LEASES).join(format!("{role}.{token}.free"));
        self.mark(None, &path)
    }
}
