//! Logs of finished runs: one note in `logs/` has all epochs of a run.
//!
//! An active run has one note per epoch and one per position of a worker. After the run has ended, a manager writes
//! its epochs into one note, `logs/<unix ms>.<run>`, and removes the others. A run that continues later, for example
//! from a saved state, reads that note before it decides an epoch, so the generation of an epoch never changes. A
//! process that dies in between leaves both kinds of notes; the next one finishes the work.

use super::{EPOCHS_KEPT, Epoch, LOGS, RunLog};
use crate::coordination::COUNTER_END;
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Parses `<unix ms>.<run>`.
pub(crate) fn log_name(note: &str) -> Option<(u64, &str)> {
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

    /// Reads the epochs in the log of the finished run, and remembers them. A run that has never ended, and an
    /// unnamed run, have no such log.
    ///
    /// # Errors
    /// The index is unreachable.
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

    /// Writes all epochs into one note of `logs/`, unless its notes have them already. Returns the numbers of the
    /// epochs that have separate notes.
    pub(crate) fn write_finished(&self) -> Result<Vec<u64>> {
        // Read first, because another process that retires the run may write a log and remove notes meanwhile.
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
