//! Repair restores a damaged ring as far as the existing files prove its former state. It first makes a plan, and then
//! applies it on request. It never deletes a sample.
//!
//! | file | repairs |
//! |---|---|
//! | [`ring_json`] | a missing or damaged `ring.json` |
//! | `manifests` | missing or damaged manifests |
//! | `reconstruct` | evidence in a generation's directory for its lost manifest |
//! | `misplaced` | a segment whose only name is in a directory where no process looks for it |
//! | `abandoned` | finished segments of dead owners; unfinished promotions |
//! | [`facts`] | causes, remedies and blockers of repairs |
//! | [`liveness_survey`] | which processes are alive, by their heartbeats |
//! | [`coordination`] | an index that contradicts the directory |
//!
//! Repair may be killed at any time and run again, and it may run beside other processes. It loses no finished sample and
//! delivers none twice. A repair that requires that no generator or manager runs is made only after no heartbeat was seen
//! for a lease.

mod abandoned;
pub mod coordination;
pub mod facts;
pub mod liveness_survey;
mod manifests;
mod misplaced;
mod reconstruct;
pub mod ring_json;

pub use coordination::Repair;
pub use liveness_survey::Liveness;

use crate::held_out::{DamagedSample, damaged_held_out};
use abandoned::Damaged;
use abandoned::{bring_in, plan_litter, plan_promotion, plan_staged};
use coordination::repair_coordination;
use facts::{Blocker, Cause, Remedy};
use liveness_survey::{Survey, who_lives};
use manifests::{Rebuild, Rebuilt};
use manifests::{apply_rebuild, plan_manifests};
use misplaced::Stray;
use misplaced::{apply_stray, plan_strays};
use ringreel::coordination::if_available;
use ringreel::error::{Error, Result};
use ringreel::ring::Ring;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Whether a repair can be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can be made.
    ToDo,
    /// It cannot be made now: why, and what to do.
    Blocked(Blocker),
    /// Harmless litter, which a manager or `ringreel gc --apply` removes.
    Litter,
}

/// One repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairAction {
    /// `ring`, `manifest`, `promotion`, `segment`, `staged`, `index`, `held-out` or `litter`.
    pub what: &'static str,
    /// The path; of an index, its place.
    pub path: PathBuf,
    /// What is wrong.
    pub why: Cause,
    /// What repair does about it.
    pub action: Remedy,
    /// Whether that is possible.
    pub state: State,
}

/// All repairs of a ring.
#[derive(Debug, Default)]
pub struct Plan {
    /// The repairs, in the order in which they are made.
    pub actions: Vec<RepairAction>,
    /// Whether the plan may change once it is known which processes are alive.
    pub depends_on_life: bool,
    /// The newest generation, once all manifests are rebuilt.
    newest: u64,
    rebuilt: Rebuilt,
    rebuilds: Vec<Rebuild>,
    strays: Vec<Stray>,
    damaged: Vec<Damaged>,
}

impl Plan {
    /// Returns all repairs, without litter.
    pub fn open(&self) -> impl Iterator<Item = &RepairAction> {
        self.actions.iter().filter(|action| action.state != State::Litter)
    }

    /// Returns whether a manifest is lost that cannot be rebuilt now.
    fn lacks_manifests(&self) -> bool {
        self.actions.iter().any(|action| action.what == "manifest" && action.state != State::ToDo)
    }

    fn add(&mut self, what: &'static str, path: &Path, why: Cause, action: Remedy, blocked: Option<Blocker>) {
        let state = blocked.map_or(State::ToDo, State::Blocked);
        self.actions.push(RepairAction { what, path: path.to_owned(), why, action, state });
    }
}

/// Examines the ring and makes a plan. Changes nothing.
///
/// # Errors
/// The filesystem's errors.
pub fn plan_repair(ring: &Ring, life: &Liveness) -> Result<Plan> {
    let mut plan = Plan::default();
    plan_manifests(ring, life, &mut plan)?;
    plan_strays(ring, life, &mut plan)?;
    plan_promotion(ring, life, &mut plan)?;
    plan_staged(ring, life, &mut plan)?;
    plan_litter(ring, &mut plan)?;
    plan_index(ring, life, &mut plan)?;
    Ok(plan)
}

/// Like [`plan_repair`], but if the plan depends on which processes are alive, watches heartbeats for a lease first, and
/// calls `told` before.
///
/// # Errors
/// The filesystem's errors.
pub fn plan_repair_watching(ring: &Ring, told: &dyn Fn(Survey)) -> Result<(Plan, Liveness)> {
    let plan = plan_repair(ring, &Liveness::Unknown)?;
    if !plan.depends_on_life {
        return Ok((plan, Liveness::Unknown));
    }
    let life = who_lives(ring, told)?;
    Ok((plan_repair(ring, &life)?, life))
}

/// Applies the plan. Blocked repairs appear again in the next plan.
///
/// # Errors
/// The filesystem's or the index's errors; the repair can be run again.
pub fn apply_repair(ring: &Ring, plan: &Plan, life: &Liveness) -> Result<()> {
    for rebuild in &plan.rebuilds {
        apply_rebuild(ring, rebuild, &plan.rebuilt)?;
    }
    for stray in &plan.strays {
        apply_stray(ring, stray)?;
    }
    for damaged in &plan.damaged {
        match ring.quarantine_staged(&damaged.owner, damaged.id, damaged.why.clone()) {
            Err(Error::Fs { source }) if source.is_denied() => {
                tracing::warn!("cannot quarantine a segment of another user: {source}")
            }
            other => drop(other?),
        }
    }
    // What depends on the manifests waits while one is lost.
    if !plan.lacks_manifests() {
        bring_in(ring, life)?;
        if if_available(ring.coordination.ping())?.is_some() {
            repair_coordination(ring, &*ring.coordination, true, life.is_in_the_way().is_none())?;
        }
    }
    let _ = ring.fs.remove_dir(&ring.layout.staging_of(&ring.me)); // fails if it is not empty
    Ok(())
}

/// Lists the damaged held-out samples. They cannot be replaced, because the held-out samples never change.
///
/// # Errors
/// The filesystem's errors.
pub fn held_out_damage(ring: &Ring) -> Result<Vec<RepairAction>> {
    let damaged = match damaged_held_out(ring) {
        Err(Error::Manifest { .. } | Error::RingNotFound { .. }) => Vec::new(), // the manifests come first
        other => other?,
    };
    let action = |sample: DamagedSample| RepairAction {
        what: "held-out",
        path: sample.path.clone(),
        why: Cause::HeldOut { sample },
        action: Remedy::RestoreFile,
        state: State::Blocked(Blocker::NoCopy),
    };
    Ok(damaged.into_iter().map(action).collect())
}

fn plan_index(ring: &Ring, life: &Liveness, plan: &mut Plan) -> Result<()> {
    let place = PathBuf::from(ring.coordination.place());
    if let Err(error) = ring.coordination.ping() {
        let why = Cause::Refused { why: error.to_string() };
        plan.add("index", &place, why, Remedy::UpdateIndex, Some(Blocker::IndexAway));
        return Ok(());
    }
    // The correct contents of the index are known only after all manifests are rebuilt.
    if plan.rebuilds.is_empty() && !plan.lacks_manifests() {
        for repair in repair_coordination(ring, &*ring.coordination, false, life.is_in_the_way().is_none())? {
            // Our view of the directory may be stale, so an index in use is not discarded.
            let future = matches!(repair, Repair::Future { .. });
            plan.depends_on_life |= future;
            let blocked = if future { life.is_in_the_way() } else { None };
            plan.add("index", &place, Cause::Coordination(repair), Remedy::UpdateIndex, blocked);
        }
    }
    Ok(())
}
