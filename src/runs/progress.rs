//! Progress of a run: the positions of its workers, which of them are alive, and which epochs they have finished.

use crate::error::Result;
use crate::ring::Ring;
use crate::run_log::{Death, Epoch, LEFT, RUNS, RunLog, arrival};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

/// The positions of the workers of a run.
pub(crate) struct Progress {
    pub(crate) log: Arc<RunLog>,
    /// The names of its workers' notes.
    pub(crate) notes: Vec<String>,
    /// For each worker that was ever seen: finished epochs, and the member that recorded them.
    pub(crate) workers: HashMap<u64, Vec<(u64, String)>>,
    /// Its members that were found dead.
    pub(crate) deaths: Vec<Death>,
}

impl Progress {
    /// Returns the epochs that a live worker has finished; `None` for one that is gone.
    pub(crate) fn living(&self, worker: u64, ring: &Ring) -> Option<u64> {
        let mut watch = ring.failure_detector();
        let here = self.workers.get(&worker)?.iter().filter(|(_, member)| member != LEFT && !watch.is_dead(member));
        here.map(|(k, _)| *k).max()
    }

    pub(super) fn is_over(&self, ring: &Ring) -> bool {
        self.workers.keys().all(|worker| self.living(*worker, ring).is_none())
    }

    /// Returns the number of its last epoch. Reads the log for that.
    pub(super) fn last(&self) -> Result<Option<u64>> {
        let finished = self.workers.values().flatten().map(|(k, _)| *k).max().unwrap_or(0);
        Ok(self.log.undecided(finished)?.checked_sub(1))
    }

    /// Returns the generations of its epochs from `least` on.
    pub(super) fn generations_from(&self, least: Option<u64>) -> Result<BTreeSet<u64>> {
        let Some(least) = least else { return Ok(BTreeSet::new()) };
        let Some(last) = self.last()? else { return Ok(BTreeSet::new()) };
        let mut generations = BTreeSet::new();
        for k in self.log.numbers()?.into_iter().filter(|k| (least..=last).contains(k)) {
            generations.extend(self.log.epoch(k)?.map(|epoch| epoch.generation));
        }
        Ok(generations)
    }

    /// Returns its epochs that are read from `generation`. Examines only the last epochs, those of `generation` or
    /// newer ones.
    pub(super) fn read_from(&self, generation: u64) -> Result<Vec<(u64, Epoch)>> {
        let mut epochs = Vec::new();
        let last = self.last()?;
        for k in self.log.numbers()?.into_iter().rev().filter(|k| Some(*k) <= last) {
            match self.log.epoch(k)? {
                Some(epoch) if epoch.generation == generation => epochs.push((k, epoch)),
                Some(epoch) if epoch.generation < generation => break,
                _ => {}
            }
        }
        Ok(epochs)
    }

    pub(super) fn finished_by(&self, worker: u64, k: u64, ring: &Ring) -> bool {
        let said = || self.workers.get(&worker).is_some_and(|said| said.iter().any(|(done, _)| *done > k));
        self.living(worker, ring).map_or_else(said, |done| done > k)
    }

    /// Describes the workers that epoch `k` waits for. The outer `None`: no worker has finished it. `Some(None)`: it
    /// was read.
    ///
    /// Live workers that have not finished it are waited for. So are workers that have not joined, for one lease
    /// after another one has finished, because they may have died before their first step.
    pub(super) fn awaited(&self, k: u64, epoch: &Epoch, ring: &Ring) -> Option<Option<String>> {
        let came: BTreeSet<u64> = self.workers.keys().copied().filter(|worker| *worker < epoch.workers).collect();
        let (finished, others): (Vec<u64>, Vec<u64>) =
            came.iter().partition(|worker| self.finished_by(**worker, k, ring));
        if finished.is_empty() {
            return None;
        }
        let run = format!(" of run {}", self.log.name());
        if let Some(worker) = others.iter().find(|worker| self.living(**worker, ring).is_some()) {
            return Some(Some(format!("worker {worker} of {}{run} has not finished epoch {k}", epoch.workers)));
        }
        let absent = absent(epoch.workers, &came).filter(|_| self.log.absence() <= ring.settings.lease);
        Some(absent.map(|absent| format!("{absent}{run} has not begun")))
    }
}

/// Describes the first worker that has not joined, and how many more there are.
pub(super) fn absent(workers: u64, came: &BTreeSet<u64>) -> Option<String> {
    let first = (0..workers).find(|worker| !came.contains(worker))?;
    let came = came.range(..workers).count() as u64;
    let more = match workers - came - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("worker {first} of {workers}{more}"))
}

impl Ring {
    /// Returns the active runs in the index.
    ///
    /// # Errors
    /// Errors of the index, also that it is unreachable.
    pub(super) fn progress(&self) -> Result<Vec<Progress>> {
        let names = self.coordination.note_names(RUNS)?;
        let listed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut logs = self.steps.run_logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|name, log| Arc::strong_count(log) > 1 || listed.contains(name.as_str()));
        drop(logs);
        self.progress_of(names)
    }

    pub(super) fn progress_of(&self, names: Vec<String>) -> Result<Vec<Progress>> {
        let mut found = Vec::new();
        for name in names {
            let Ok(log) = self.run(&name) else { continue };
            let (mut workers, mut deaths) = (HashMap::<u64, Vec<_>>::new(), Vec::new());
            let notes = self.coordination.note_names(&log.folder())?;
            for note in &notes {
                if let Some((worker, said)) = arrival(note) {
                    workers.entry(worker).or_default().push(said);
                }
                deaths.extend(Death::parse(note));
            }
            found.push(Progress { log, notes, workers, deaths });
        }
        if !found.is_empty() {
            self.failure_detector().look(&*self.coordination)?;
        }
        Ok(found)
    }
}
