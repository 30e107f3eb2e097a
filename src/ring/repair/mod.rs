//! Repair: a damaged ring is mended as far as what lies there proves what was. First everything is looked at and a plan
//! is made; then, where that is asked for, it is carried out. No sample is ever deleted.
//!
//! | file | what it mends |
//! |---|---|
//! | [`ring_json`] | `ring.json` is gone or damaged |
//! | `manifests` | a manifest is gone or damaged |
//! | `evidence` | what a generation's directory proves of its manifest |
//! | `strays` | a segment that no manifest lists, in a directory where nobody looks for it, and nowhere else |
//! | `staged` | what dead owners finished; promotions that nobody finishes |
//! | [`life`] | who lives, watched for a lease |
//! | [`index`] | the index says something else than the directory |
//!
//! Promise: at any time it may be killed, and run again; beside it others may work. Nothing finished is lost by it, and
//! nothing is delivered twice. What would need that nobody else works is done only when nobody was heard for a lease.

pub mod coordination;
mod evidence;
pub mod life;
mod manifests;
pub mod ring_json;
mod staged;
mod strays;

pub use coordination::Repair;
pub use life::Life;

use super::Ring;
use crate::coordination::if_available;
use crate::error::{Error, Result};
use manifests::{Rebuild, Rebuilt};
use staged::Damaged;
use std::path::{Path, PathBuf};
use strays::Stray;

/// What is to become of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It can be mended.
    ToDo,
    /// It cannot be mended now; why, and what to do.
    Blocked(String),
    /// It harms nobody, and is removed by the manager, or by `ringreel gc`.
    Litter,
}

/// One thing that is to be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// `ring`, `manifest`, `promotion`, `segment`, `staged`, `index`, `held-out` or `litter`.
    pub what: &'static str,
    /// Which path; the place of an index that is none.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
    /// What happens to it.
    pub action: String,
    /// Whether that can be.
    pub state: State,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// In the order in which it is done.
    pub mends: Vec<Mend>,
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
    pub fn open(&self) -> impl Iterator<Item = &Mend> {
        self.mends.iter().filter(|mend| mend.state != State::Litter)
    }

    /// Whether a manifest is lost that cannot be rebuilt now.
    fn lacks_manifests(&self) -> bool {
        self.mends.iter().any(|mend| mend.what == "manifest" && mend.state != State::ToDo)
    }

    fn add(&mut self, what: &'static str, path: &Path, why: String, action: String, blocked: Option<String>) {
        let state = blocked.map_or(State::ToDo, State::Blocked);
        self.mends.push(Mend { what, path: path.to_owned(), why, action, state });
    }
}

impl Ring {
    /// Looks at everything, and says what is to be done. Nothing is changed.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn plan_repair(&self, life: &Life) -> Result<Plan> {
        let mut plan = Plan::default();
        self.plan_manifests(life, &mut plan)?;
        self.plan_strays(life, &mut plan)?;
        self.plan_promotion(life, &mut plan)?;
        self.plan_staged(life, &mut plan)?;
        self.plan_litter(&mut plan)?;
        self.plan_index(life, &mut plan)?;
        Ok(plan)
    }

    /// The same; where it matters who lives, that is watched for, as long as a lease lasts. `told` hears of it.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn plan_repair_watching(&self, told: &dyn Fn(&str)) -> Result<(Plan, Life)> {
        let plan = self.plan_repair(&Life::Unknown)?;
        if !plan.depends_on_life {
            return Ok((plan, Life::Unknown));
        }
        let life = self.who_lives(told)?;
        Ok((self.plan_repair(&life)?, life))
    }

    /// Does what the plan says. What cannot be done now is in the next plan again.
    ///
    /// # Errors
    /// What the filesystem or the index says; it can be run again.
    pub fn apply_repair(&self, plan: &Plan, life: &Life) -> Result<()> {
        for rebuild in &plan.rebuilds {
            self.apply_rebuild(rebuild, &plan.rebuilt)?;
        }
        for stray in &plan.strays {
            self.apply_stray(stray)?;
        }
        for damaged in &plan.damaged {
            match self.quarantine_staged(&damaged.owner, damaged.id, damaged.why.clone()) {
                Err(Error::Fs { source }) if source.is_denied() => tracing::warn!("left to its owner: {source}"),
                other => drop(other?),
            }
        }
        // While a manifest is lost, all that goes by the manifests waits.
        if !plan.lacks_manifests() {
            self.bring_in(life)?;
            if if_available(self.coordination.ping())?.is_some() {
                self.repair_coordination(&*self.coordination, true, life.is_in_the_way().is_none())?;
            }
        }
        let _ = self.fs.remove_dir(&self.layout.staging_of(&self.me)); // stays where something is in it
        Ok(())
    }

    fn plan_index(&self, life: &Life, plan: &mut Plan) -> Result<()> {
        let place = PathBuf::from(self.coordination.place());
        if let Err(error) = self.coordination.ping() {
            let blocked = Some("it can be asked again when it answers".to_owned());
            plan.add("index", &place, error.to_string(), "it is told what the directory says".to_owned(), blocked);
            return Ok(());
        }
        // What the manifests that are rebuilt change, is known only then.
        if plan.rebuilds.is_empty() && !plan.lacks_manifests() {
            for repair in self.repair_coordination(&*self.coordination, false, life.is_in_the_way().is_none())? {
                // It may be our view of the directory that is old: what somebody works with is not thrown away.
                let future = matches!(repair, Repair::Future { .. });
                plan.depends_on_life |= future;
                let blocked = if future { life.is_in_the_way() } else { None };
                plan.add("index", &place, repair.to_string(), "it is told what the directory says".to_owned(), blocked);
            }
        }
        Ok(())
    }
}
