//! Maintenance: a round promotes the next generation if it is time, reclaims old generations, and
//! recovers the files of dead owners, in this order.
//!
//! A manager runs rounds continuously. Other processes run single rounds: a generator without a
//! living manager, a generator that ends, a reader whose next generation no other process promotes,
//! `ringreel gc` and `ringreel repair`. They differ in the steps that follow the promotion, and in
//! how they treat a failed reclaim. A [`MaintenancePolicy`] decides both.

use super::adopt::Recovered;
use super::promote::{PromoteWhen, Promoted};
use super::reclaim::Reclaimed;
use crate::error::{Error, Result};
use crate::ring::Ring;
use std::sync::atomic::Ordering;

/// What happens to the files of dead owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadOwners {
    /// They stay.
    Leave,
    /// Unfinished files of owners that have been dead for long are removed.
    RemoveUnfinished,
    /// Sealed segments are committed, too.
    Adopt,
}

/// The steps that are due after the promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Whether old generations and litter are removed.
    pub reclaim: bool,
    /// What happens to the files of dead owners.
    pub dead: DeadOwners,
}

impl Due {
    /// Returns a plan with no step after the promotion.
    pub fn nothing() -> Due {
        Due { reclaim: false, dead: DeadOwners::Leave }
    }
}

/// Decides what a round of maintenance does after its promotion.
pub trait MaintenancePolicy {
    /// Decides what is due. `promoted` is `None` in a round without a promotion. A failed promotion
    /// ends the round, after a reclaim if that is due.
    ///
    /// # Errors
    /// An error ends the round at once.
    fn due(&mut self, promoted: &Result<Option<Promoted>>) -> Result<Due>;

    /// Receives the result of the reclaim, before the round continues.
    ///
    /// # Errors
    /// An error ends the round.
    fn after_reclaim(&mut self, done: Result<Reclaimed>) -> Result<Reclaimed> {
        done
    }
}

/// The same steps are due after every promotion.
impl MaintenancePolicy for Due {
    fn due(&mut self, _promoted: &Result<Option<Promoted>>) -> Result<Due> {
        Ok(*self)
    }
}

/// Reclaims after a promotion. A failed reclaim does not fail the round, so that its caller learns of the promotion.
#[derive(Debug, Default)]
pub struct ReclaimAfterPromotion {
    /// The error of the failed reclaim.
    pub failed: Option<Error>,
}

impl MaintenancePolicy for ReclaimAfterPromotion {
    fn due(&mut self, promoted: &Result<Option<Promoted>>) -> Result<Due> {
        Ok(Due { reclaim: matches!(promoted, Ok(Some(Promoted::Done(_)))), dead: DeadOwners::Leave })
    }

    fn after_reclaim(&mut self, done: Result<Reclaimed>) -> Result<Reclaimed> {
        done.or_else(|error| {
            self.failed = Some(error);
            Ok(Reclaimed::default())
        })
    }
}

/// The result of a round of maintenance.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The result of the promotion; `None` in a round without a promotion.
    pub promoted: Option<Promoted>,
    /// The result of the reclaim; `None` if it was not due.
    pub reclaimed: Option<Reclaimed>,
    /// The result of the recovery; `None` if the files of dead owners stayed.
    pub recovered: Option<Recovered>,
}

impl Ring {
    /// Makes promotions of this process skip the reclaim that normally precedes them, so that a
    /// promotion removes nothing.
    pub fn leave_reclaiming(&self) {
        self.steps.maintenance.reclaimed.store(u64::MAX, Ordering::Relaxed);
    }

    /// Runs one round of maintenance: promotes the next generation if `promote` is given, then
    /// takes the steps that `policy` finds due.
    ///
    /// # Errors
    /// Errors of the filesystem, the coordination store and `policy`. Each step may be repeated.
    pub fn run_maintenance(&self, promote: Option<PromoteWhen>, policy: &mut dyn MaintenancePolicy) -> Result<Round> {
        let promoted = promote.map(|when| self.promote(when)).transpose();
        let due = policy.due(&promoted)?;
        let reclaimed = due.reclaim.then(|| self.reclaim());
        let promoted = promoted?;
        let reclaimed = reclaimed.map(|done| policy.after_reclaim(done)).transpose()?;
        let recovered = match due.dead {
            DeadOwners::Leave => None,
            DeadOwners::RemoveUnfinished => Some(self.sweep_dead()?),
            DeadOwners::Adopt => Some(self.recover(&mut self.failure_detector())?),
        };
        Ok(Round { promoted, reclaimed, recovered })
    }
}
