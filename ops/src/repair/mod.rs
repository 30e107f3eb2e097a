//! Repair: a damaged ring is mended as far as what lies there proves what was. First everything is looked at and a plan
//! is made; then, where that is asked for, it is carried out. No sample is ever deleted.
//!
//! | file | what it mends |
//! |---|---|
//! | [`ring_json`] | `ring.json` is gone or damaged |
//! | `manifests` | a manifest is gone or damaged |
//! | `reconstruct` | what a generation's directory proves of its manifest |
//! | `misplaced` | a segment that no manifest lists, in a directory where nobody looks for it, and nowhere else |
//! | `abandoned` | what dead owners finished; promotions that nobody finishes |
//! | [`facts`] | what is wrong, what is done about it, what that waits for |
//! | [`liveness_survey`] | who lives, watched for a lease |
//! | [`coordination`] | the index says something else than the directory |
//!
//! Promise: at any time it may be killed, and run again; beside it others may work. Nothing finished is lost by it, and
//! nothing is delivered twice. What would need that nobody else works is done only when nobody was heard for a lease.

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
use ringreel::ring::validation_split::DamagedSample;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What is to become of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can be mended.
    ToDo,
    /// It cannot be mended now; why, and what to do.
    Blocked(Blocker),
    /// It harms nobody, and is removed by the manager, or by `ringreel gc --apply`.
    Litter,
}

/// One thing that is to be mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairAction {
    /// `ring`, `manifest`, `promotion`, `segment`, `staged`, `index`, `held-out` or `litter`.
    pub what: &'static str,
    /// Which path; the place of an index that is none.
    pub path: PathBuf,
    /// What is wrong.
    pub why: Cause,
    /// What happens to it.
    pub action: Remedy,
    /// Whether that can be.
    pub state: State,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// In the order in which it is done.
    pub mends: Vec<RepairAction>,
    /// Whether more would be known if who lives were known.
    pub depends_on_life: bool,
    /// The newest generation, once all manifests are there.
    newest: u64,
    rebuilt: Rebuilt,
    rebuilds: Vec<Rebuild>,
    strays: Vec<Stray>,
    damaged: Vec<Damaged>,
}

impl Plan {
    /// What is to be mended: all but litter.
    pub fn open(&self) -> impl Iterator<Item = &RepairAction> {
        self.mends.iter().filter(|mend| mend.state != State::Litter)
    }

    /// Whether a manifest is lost that cannot be rebuilt now.
    fn lacks_manifests(&self) -> bool {
        self.mends.iter().any(|mend| mend.what == "manifest" && mend.state != State::ToDo)
    }

    fn add(&mut self, what: &'static str, path: &Path, why: Cause, action: Remedy, blocked: Option<Blocker>) {
        let state = blocked.map_or(State::ToDo, State::Blocked);
        self.mends.push(RepairAction { what, path: path.to_owned(), why, action, state });
    }
}

/// Looks at everything, and says what is to be done. Nothing is changed.
///
/// # Errors
/// What the filesystem says.
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

/// The same; where it matters who lives, that is watched for, as long as a lease lasts. `told` hears of it.
///
/// # Errors
/// What the filesystem says.
pub fn plan_repair_watching(ring: &Ring, told: &dyn Fn(Survey)) -> Result<(Plan, Liveness)> {
    let plan = plan_repair(ring, &Liveness::Unknown)?;
    if !plan.depends_on_life {
        return Ok((plan, Liveness::Unknown));
    }
    let life = who_lives(ring, told)?;
    Ok((plan_repair(ring, &life)?, life))
}

/// Does what the plan says. What cannot be done now is in the next plan again.
///
/// # Errors
/// What the filesystem or the index says; it can be run again.
pub fn apply_repair(ring: &Ring, plan: &Plan, life: &Liveness) -> Result<()> {
    for rebuild in &plan.rebuilds {
        apply_rebuild(ring, rebuild, &plan.rebuilt)?;
    }
    for stray in &plan.strays {
        apply_stray(ring, stray)?;
    }
    for damaged in &plan.damaged {
        match ring.quarantine_staged(&damaged.owner, damaged.id, damaged.why.clone()) {
            Err(Error::Fs { source }) if source.is_denied() => tracing::warn!("left to its owner: {source}"),
            other => drop(other?),
        }
    }
    // While a manifest is lost, all that goes by the manifests waits.
    if !plan.lacks_manifests() {
        bring_in(ring, life)?;
        if if_available(ring.coordination.ping())?.is_some() {
            repair_coordination(ring, &*ring.coordination, true, life.is_in_the_way().is_none())?;
        }
    }
    let _ = ring.fs.remove_dir(&ring.layout.staging_of(&ring.me)); // stays where something is in it
    Ok(())
}

/// Lists the damaged samples that are held out. Nothing replaces them, because the held-out samples never change.
///
/// # Errors
/// What the filesystem says.
pub fn held_out_damage(ring: &Ring) -> Result<Vec<RepairAction>> {
    let damaged = match ring.damaged_held_out() {
        Err(Error::Manifest { .. } | Error::RingNotFound { .. }) => Vec::new(), // the manifests come first
        other => other?,
    };
    let mend = |sample: DamagedSample| RepairAction {
        what: "held-out",
        path: sample.path.clone(),
        why: Cause::HeldOut { sample },
        action: Remedy::RestoreFile,
        state: State::Blocked(Blocker::NoCopy),
    };
    Ok(damaged.into_iter().map(mend).collect())
}

fn plan_index(ring: &Ring, life: &Liveness, plan: &mut Plan) -> Result<()> {
    let place = PathBuf::from(ring.coordination.place());
    if let Err(error) = ring.coordination.ping() {
        let why = Cause::Refused { why: error.to_string() };
        plan.add("index", &place, why, Remedy::UpdateIndex, Some(Blocker::IndexAway));
        return Ok(());
    }
    // What the manifests that are rebuilt change, is known only then.
    if plan.rebuilds.is_empty() && !plan.lacks_manifests() {
        for repair in repair_coordination(ring, &*ring.coordination, false, life.is_in_the_way().is_none())? {
            // It may be our view of the directory that is old: what somebody works with is not thrown away.
            let future = matches!(repair, Repair::Future { .. });
            plan.depends_on_life |= future;
            let blocked = if future { life.is_in_the_way() } else { None };
            plan.add("index", &place, Cause::Coordination(repair), Remedy::UpdateIndex, blocked);
        }
    }
    Ok(())
}
