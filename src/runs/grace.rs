//! RUN_GRACE: the generations that a killed run has not read yet are kept for a while, so that a job that restarts
//! from its saved state resumes exactly.
//!
//! The first process that reclaims and finds a worker of a named run dead records the time. The grace ends when this
//! time and the observer's clock differ by more than RUN_GRACE, in either direction: a wrong clock shortens or
//! lengthens the grace by its error, but does not make it endless. Only pins depend on the grace. A dead worker is
//! not waited for, and does not keep its run active.

use super::progress::Progress;
use crate::ring::Ring;
use crate::ring::state::Obituary;
use crate::run_log::{Death, LEFT};
use crate::unix_ms;
use std::time::Duration;

impl Progress {
    /// Returns the number of epochs that a dead worker has finished, if the generations of later epochs are kept for
    /// it. Returns `None` for a worker that is alive or has left, or whose grace is over.
    pub(crate) fn graced(&self, worker: u64, ring: &Ring) -> Option<u64> {
        if self.log.is_own() || ring.settings.run_grace.is_zero() || self.living(worker, ring).is_some() {
            return None;
        }
        self.dead(worker).filter(|(_, member)| self.is_in_grace(worker, member, ring)).map(|(k, _)| k).max()
    }

    /// Returns whether a worker of the run was killed less than RUN_GRACE ago.
    pub(crate) fn has_grace(&self, ring: &Ring) -> bool {
        self.workers.keys().any(|worker| self.graced(*worker, ring).is_some())
    }

    /// Returns the positions at which members of a dead worker were killed, except those before the position at which
    /// a later stream of the worker left.
    fn dead(&self, worker: u64) -> impl Iterator<Item = (u64, &str)> {
        let said = self.workers.get(&worker).map(Vec::as_slice).unwrap_or_default();
        let left = said.iter().filter(|(_, member)| member == LEFT).map(|(k, _)| *k).max().unwrap_or(0);
        let dead = said.iter().filter(move |(k, member)| member != LEFT && *k >= left);
        dead.map(|(k, member)| (*k, member.as_str()))
    }

    fn is_in_grace(&self, worker: u64, member: &str, ring: &Ring) -> bool {
        let now = unix_ms();
        let mut noted = self.deaths_of(worker, member);
        noted.all(|death| Duration::from_millis(death.unix_ms.abs_diff(now)) < ring.settings.run_grace)
    }

    fn deaths_of(&self, worker: u64, member: &str) -> impl Iterator<Item = &Death> {
        self.deaths.iter().filter(move |death| death.worker == worker && death.member == member)
    }

    /// Returns the notes to write and to remove for this run's workers; `None` if there are none.
    pub(crate) fn obituary(&self, ring: &Ring) -> Option<Obituary> {
        if self.log.is_own() || ring.settings.run_grace.is_zero() {
            return None;
        }
        let (mut died, mut past) = (Vec::new(), Vec::new());
        for worker in self.workers.keys().copied() {
            match self.living(worker, ring) {
                Some(k) => past.extend(self.replaced(worker, k, ring)),
                None => died.extend(self.new_deaths(worker)),
            }
        }
        let (watch, is_noted) = (ring.failure_detector(), |death: &Death| {
            let said = self.workers.get(&death.worker);
            said.is_some_and(|said| said.iter().any(|(_, member)| *member == death.member))
        });
        let is_past = |death: &&Death| watch.was_heard_lately(&death.member) || !is_noted(death);
        past.extend(self.deaths.iter().filter(is_past).map(Death::note));
        let folder = self.log.folder();
        (!died.is_empty() || !past.is_empty()).then_some(Obituary { folder, died, past })
    }

    fn new_deaths(&self, worker: u64) -> Vec<String> {
        let unnoted = |member: &&str| self.deaths_of(worker, member).next().is_none();
        let members = self.dead(worker).map(|(_, member)| member).filter(unnoted);
        members.map(|member| Death { worker, unix_ms: unix_ms(), member: member.to_owned() }.note()).collect()
    }

    /// Returns the notes of dead members that have finished no more than the `k` epochs of the live one.
    fn replaced(&self, worker: u64, k: u64, ring: &Ring) -> Vec<String> {
        let (mut watch, mut notes) = (ring.failure_detector(), Vec::new());
        let said = self.workers.get(&worker).into_iter().flatten();
        for (before, member) in said.filter(|(before, member)| *before <= k && member != LEFT) {
            if watch.is_dead(member) {
                notes.push(format!("at.{worker}.{before}.{member}"));
                notes.extend(self.deaths_of(worker, member).map(Death::note));
            }
        }
        notes
    }
}
