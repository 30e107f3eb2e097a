//! Updates the index from the directory. Changes nothing else in the ring.

use ringreel::coordination::{CoordinationStore, SwapStatus};
use ringreel::error::{Error, Result};
use ringreel::layout::is_owner;
use ringreel::ring::Ring;
use ringreel::role::Role;
use serde::Serialize;

/// One contradiction between index and directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// The counter would hand out indices that are in use.
    Counter {
        /// The filling generation.
        generation: u64,
        /// The next index that the counter hands out.
        handed_out: u64,
        /// The first free index.
        free: u64,
    },
    /// The swap status is older than the newest manifest, or missing.
    Status {
        /// The generation in the swap status.
        says: Option<u64>,
        /// The newest generation.
        newest: u64,
    },
    /// The index names a generation that the ring does not have, so it is cleared.
    Future {
        /// The generation in the swap status.
        says: u64,
        /// The newest generation.
        newest: u64,
    },
}

/// Returns whether the index in the ring's files is unused although the ring was used: then its index is elsewhere.
///
/// # Errors
/// The filesystem's or the index's errors.
pub fn coordination_is_elsewhere(ring: &Ring) -> Result<bool> {
    let turned = ring.manifests.numbers()?.into_iter().any(|n| n > 0);
    let owners = ring.list_or_none(&ring.layout.staging())?;
    let used = turned || owners.iter().any(|owner| *owner != ring.me && is_owner(owner));
    let knows_nobody = ring.coordination.status()?.is_none() && ring.coordination.members()?.is_empty();
    // Each linked segment took an index first.
    Ok(used && knows_nobody && ring.coordination.handed_out(ring.manifests.newest()? + 1)? == 0)
}

/// Compares `store` with the directory; with `apply`, also updates it. If it names a newer generation than the directory,
/// our view of the directory may be stale, so it is cleared only if `nobody_works`.
///
/// # Errors
/// The filesystem's or the index's errors.
pub fn repair_coordination(
    ring: &Ring,
    store: &dyn CoordinationStore,
    apply: bool,
    nobody_works: bool,
) -> Result<Vec<Repair>> {
    // Read before the manifests, so that what is published meanwhile is seen.
    let status = store.status()?;
    if let Some(status) = &status {
        ring.manifests.hint(status.generation);
    }
    let newest = ring.manifests.newest_listed()?;
    let mut repairs = Vec::new();
    let says = status.map(|status| status.generation);
    if let Some(says) = says.filter(|says| *says > newest) {
        repairs.push(Repair::Future { says, newest });
        if !nobody_works {
            return Ok(repairs);
        }
        if apply {
            store.clear()?;
        }
    }
    if newest > 0 && says.is_none_or(|says| says != newest) {
        if says.is_none_or(|says| says < newest) {
            repairs.push(Repair::Status { says, newest });
        }
        if apply {
            let manifest = ring.manifests.get(newest)?.ok_or(Error::Reclaimed { generation: newest })?;
            let (unix_ms, total_samples) = (manifest.summary.unix_ms, manifest.summary.total_samples);
            let status = SwapStatus { generation: newest, unix_ms, total_samples };
            if !store.publish_status(&status)? && nobody_works {
                store.clear()?; // the stored status is invalid
                store.publish_status(&status)?;
            }
        }
    }
    let generation = newest + 1;
    let (handed_out, free) = (store.handed_out(generation)?, ring.first_free_index(generation)?);
    if handed_out < free {
        repairs.push(Repair::Counter { generation, handed_out, free });
        if apply {
            store.skip_to(generation, free)?;
        }
    }
    Ok(repairs)
}

/// Makes `target` the index of this ring: updates it from the directory, and copies the token of the manager's lease. Then
/// clears the old index if it is reachable.
///
/// # Errors
/// The filesystem's errors, or those of `target`.
pub fn move_coordination(ring: &Ring, target: &dyn CoordinationStore) -> Result<Vec<Repair>> {
    let told = repair_coordination(ring, target, true, true)?;
    let role = Role::Manager.as_str();
    match ring.coordination.lease(role) {
        Ok(Some(lease)) => {
            target.claim_lease(role, lease.token, &lease.holder)?;
            target.release_lease(role, lease.token)?;
        }
        Ok(None) => {}
        Err(error) => tracing::warn!("cannot read the manager's lease in the old index: {error}"),
    }
    if let Err(error) = ring.coordination.clear() {
        tracing::debug!(%error, "cannot clear the old index");
    }
    Ok(told)
}
