//! The index is made to say what the directory says. Nothing in the ring itself is touched.

use ringreel::coordination::{CoordinationStore, SwapStatus};
use ringreel::error::{Error, Result};
use ringreel::layout::is_owner;
use ringreel::ring::Ring;
use ringreel::role::Role;
use serde::Serialize;

/// One thing that an index should say and does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// The counter of this generation would hand out numbers that are taken.
    Counter {
        /// The generation that fills.
        generation: u64,
        /// What the index would hand out next.
        handed_out: u64,
        /// The first number that is free.
        free: u64,
    },
    /// The swap status is older than the newest manifest, or there is none.
    Status {
        /// What the index says.
        says: Option<u64>,
        /// The newest generation.
        newest: u64,
    },
    /// The index knows generations that the ring does not have: it is of another time, and is begun anew.
    Future {
        /// What the index says.
        says: u64,
        /// The newest generation.
        newest: u64,
    },
}

/// Whether an index in the ring's own files knows nothing of it, though somebody worked there: then its index is
/// elsewhere.
///
/// # Errors
/// What the filesystem or the index says.
pub fn coordination_is_elsewhere(ring: &Ring) -> Result<bool> {
    let turned = ring.manifests.numbers()?.into_iter().any(|n| n > 0);
    let owners = ring.list_or_none(&ring.layout.staging())?;
    let used = turned || owners.iter().any(|owner| *owner != ring.me && is_owner(owner));
    let knows_nobody = ring.coordination.status()?.is_none() && ring.coordination.members()?.is_empty();
    // Whoever linked anything took a number first.
    Ok(used && knows_nobody && ring.coordination.handed_out(ring.manifests.newest()? + 1)? == 0)
}

/// What `store` should say of this ring and does not; with `apply`, it is told. Where it knows more than the directory
/// shows, that may be newer than our view of the directory: it is thrown away only if `nobody_works`.
///
/// # Errors
/// What the filesystem or the index says.
pub fn repair_coordination(
    ring: &Ring,
    store: &dyn CoordinationStore,
    apply: bool,
    nobody_works: bool,
) -> Result<Vec<Repair>> {
    // In this order: what is published meanwhile is seen.
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
                store.clear()?; // what stands there makes no sense
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

/// Makes `target` the index of this ring: it is told what the directory says, and which token the manager's lease
/// had. What this ring's index held is thrown away, where it can be reached.
///
/// # Errors
/// What the filesystem or `target` says.
pub fn move_coordination(ring: &Ring, target: &dyn CoordinationStore) -> Result<Vec<Repair>> {
    let told = repair_coordination(ring, target, true, true)?;
    let role = Role::Manager.as_str();
    match ring.coordination.lease(role) {
        Ok(Some(lease)) => {
            target.claim_lease(role, lease.token, &lease.holder)?;
            target.release_lease(role, lease.token)?;
        }
        Ok(None) => {}
        Err(error) => tracing::warn!("the old index is left as it is: {error}"),
    }
    if let Err(error) = ring.coordination.clear() {
        tracing::debug!(%error, "the old index is left as it is");
    }
    Ok(told)
}
