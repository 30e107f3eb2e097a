//! Logs of finished runs: one note in `logs/` holds all epochs of a run.
//!
//! An active run has a note for each epoch and for each place of a worker. When the run is over, a
//! manager writes its epochs into one note, `logs/<unix ms>.<run>`, and removes the others. A run that
//! comes back, from a saved state for example, reads that note before it decides an epoch, so an epoch
//! never changes its generation. A process that dies in between leaves both kinds of notes; the next
//! one goes on.

use super::progress::Progress;
use super::{EPOCHS_KEPT, Epoch, LOGS, RUNS, RunLog, add_passes};
use crate::coordination::COUNTER_END;
use crate::error::{Error, Result};
use crate::ring::Ring;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Logs of finished runs that are kept.
const LOGS_KEPT: usize = 100;
/// Notes that a call drops at least, however long it took to look at the run.
const FEWEST_DROPPED: usize = 16;

/// Parses `<unix ms>.<run>`.
fn log_name(note: &str) -> Option<(u64, &str)> {
    let (ms, run) = note.split_once('.')?;
    Some((ms.parse().ok()?, run))
}

impl RunLog {
    /// Returns the names of this run's notes in `logs/`.
    fn finished_logs(&self) -> Result<Vec<String>> {
        let mut names = self.coordination.note_names(LOGS)?;
        names.retain(|note| log_name(note).is_some_and(|(_, run)| run == self.name));
        Ok(names)
    }

    /// Reads the epochs that the log of the finished run holds, and remembers them. A run that was
    /// never over has none. An unnamed run keeps no such log.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub(crate) fn recall(&self) -> Result<BTreeMap<u64, Epoch>> {
        if self.is_own() { Ok(BTreeMap::new()) } else { self.read_logs(&self.finished_logs()?) }
    }

    fn read_logs(&self, names: &[String]) -> Result<BTreeMap<u64, Epoch>> {
        let mut epochs = BTreeMap::new();
        for name in names {
            let text = self.coordination.read_note(LOGS, name)?.unwrap_or_default();
            let listed: Vec<(u64, Epoch)> = serde_json::from_str(&text).unwrap_or_default();
            let listed = listed.into_iter().filter(|(k, _)| *k < COUNTER_END);
            epochs.extend(listed.take(EPOCHS_KEPT as usize));
        }
        epochs.iter().for_each(|(k, epoch)| self.remember(*k, epoch));
        Ok(epochs)
    }

    /// Writes all epochs into one note of `logs/`, unless the notes there hold them already. Returns
    /// the numbers of the epochs that have a note of their own.
    fn write_finished(&self) -> Result<Vec<u64>> {
        // First, because another process that puts the run away may write a log and drop notes meanwhile.
        let old = self.finished_logs()?;
        let (mut epochs, listed) = (self.read_logs(&old)?, self.listed()?);
        if !epochs.is_empty() && listed.iter().all(|k| epochs.contains_key(k)) {
            return Ok(listed);
        }
        for k in &listed {
            if let Some(epoch) = self.epoch(*k)? {
                epochs.insert(*k, epoch);
            }
        }
        let mut epochs: Vec<(u64, Epoch)> = epochs.into_iter().collect();
        epochs.drain(..epochs.len().saturating_sub(EPOCHS_KEPT as usize));
        let text = serde_json::to_string(&epochs).map_err(|error| Error::Coordination(error.to_string()))?;
        let name = format!("{}.{}", crate::unix_ms(), self.name);
        self.coordination.add_note(LOGS, &name, &text)?;
        old.iter().filter(|note| **note != name).try_for_each(|note| self.coordination.remove_note(LOGS, note))?;
        Ok(listed)
    }
}

impl Ring {
    /// Puts a named run away that is over: one note keeps its epochs. Stops when it is `until`; the
    /// next call goes on.
    pub(crate) fn finish_run(&self, run: &Progress, newest: u64, until: Instant) -> Result<()> {
        let log = &run.log;
        let before = self.reads_of(run, newest)?;
        let epochs = log.write_finished()?.into_iter().map(|k| (log.epochs_folder(), k.to_string()));
        // Notes that a worker has made since `run` was read stay.
        let places = run.notes.iter().map(|note| (log.folder(), note.clone()));
        let mut left = epochs.chain(places).enumerate();
        let is_done = loop {
            match left.next() {
                None => break true,
                Some((n, _)) if n >= FEWEST_DROPPED && Instant::now() > until => break false,
                Some((_, (folder, note))) => self.coordination.remove_note(&folder, &note)?,
            }
        };
        let mut after = BTreeMap::new();
        if is_done {
            self.coordination.remove_note(RUNS, log.name())?;
            if !self.coordination.note_names(&log.folder())?.is_empty() {
                self.coordination.add_note(RUNS, log.name(), "")?; // a worker came meanwhile
            }
        } else {
            after = self.reads_of(run, newest)?;
        }
        // The passes of the epochs whose notes are gone, and of no others.
        for (generation, passes) in before {
            let still = after.get(&generation).copied().unwrap_or(0);
            add_passes(&*self.coordination, generation, passes.saturating_sub(still))?;
        }
        if is_done {
            self.forget_run(log.name());
        }
        Ok(())
    }

    /// Removes the oldest logs of finished runs. Those of runs that came back stay.
    pub(crate) fn drop_old_logs(&self) -> Result<()> {
        let notes = self.coordination.note_names(LOGS)?;
        let mut logs: Vec<(u64, &str)> = notes.iter().filter_map(|note| log_name(note)).collect();
        logs.sort_unstable();
        logs.truncate(logs.len().saturating_sub(LOGS_KEPT));
        let active: BTreeSet<String> = match logs.is_empty() {
            true => BTreeSet::new(),
            false => self.coordination.note_names(RUNS)?.into_iter().collect(),
        };
        for (ms, run) in logs.into_iter().filter(|(_, run)| !active.contains(*run)) {
            self.coordination.remove_note(LOGS, &format!("{ms}.{run}"))?;
        }
        Ok(())
    }
}
