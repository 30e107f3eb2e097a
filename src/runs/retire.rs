//! Retires runs that have ended: removes their notes.

use super::passes::COUNTED;
use super::progress::Progress;
use crate::error::Result;
use crate::random::random_u32;
use crate::ring::Ring;
use crate::run_log::finished::log_name;
use crate::run_log::{LOGS, PASSES, RUNS, add_passes, count};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest time that a promotion spends on retiring runs.
const RETIRE_FOR: Duration = Duration::from_millis(100);
/// Logs of finished runs that are kept.
const LOGS_KEPT: usize = 100;
/// Notes that a call removes at least, however long it took to read the run.
const FEWEST_DROPPED: usize = 16;

impl Ring {
    /// Retires runs that have no live worker and whose last generation is gone, and removes the oldest logs. Stops
    /// after [`RETIRE_FOR`]; the next call continues.
    pub(crate) fn retire_runs(&self, newest: u64) -> Result<()> {
        let until = Instant::now() + RETIRE_FOR;
        let mut active = self.coordination.note_names(RUNS)?;
        let first = random_u32() as usize % active.len().max(1);
        active.rotate_left(first); // so that each run has its turn
        for name in active.iter().take_while(|_| Instant::now() < until) {
            for run in self.progress_of(vec![name.clone()])? {
                self.retire(&run, newest, until)?;
            }
        }
        let old = |name: &&String| count(name).is_none_or(|(generation, _)| generation + COUNTED < newest);
        for name in self.coordination.note_names(PASSES)?.iter().filter(old).take_while(|_| Instant::now() < until) {
            self.coordination.remove_note(PASSES, name)?;
        }
        self.drop_old_logs()
    }

    fn retire(&self, run: &Progress, newest: u64, until: Instant) -> Result<()> {
        if !run.is_over(self) || run.has_grace(self) {
            return Ok(());
        }
        let last = match run.last()? {
            Some(last) => run.log.epoch(last)?.map_or(0, |epoch| epoch.generation),
            None => 0,
        };
        if last.saturating_add(self.settings.keep) >= newest {
            return Ok(());
        }
        match run.log.is_own() {
            true => self.remove_own(run, newest),
            false => self.finish_run(run, newest, until),
        }
    }

    /// Removes the notes of an unnamed stream that has ended, and counts its passes. A stream that loads its state
    /// does not need the log, whose generations are gone.
    fn remove_own(&self, run: &Progress, newest: u64) -> Result<()> {
        let passes = self.reads_of(run, newest)?;
        let name = run.log.name();
        for folder in [run.log.epochs_folder(), run.log.folder()] {
            self.coordination
                .note_names(&folder)?
                .iter()
                .try_for_each(|note| self.coordination.remove_note(&folder, note))?;
        }
        self.coordination.remove_note(RUNS, name)?;
        self.forget_run(name);
        // Counted last, so that an observer never counts these passes twice.
        passes.into_iter().try_for_each(|(generation, passes)| add_passes(&*self.coordination, generation, passes))
    }

    /// Retires a named run that has ended: one note keeps its epochs. Stops at `until`; the next call continues.
    fn finish_run(&self, run: &Progress, newest: u64, until: Instant) -> Result<()> {
        let log = &run.log;
        let before = self.reads_of(run, newest)?;
        let epochs = log.write_finished()?.into_iter().map(|k| (log.epochs_folder(), k.to_string()));
        // Notes that a worker made after `run` was read are kept.
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
                self.coordination.add_note(RUNS, log.name(), "")?; // a worker has joined meanwhile
            }
        } else {
            after = self.reads_of(run, newest)?;
        }
        // Count only the passes of the epochs whose notes were removed.
        for (generation, passes) in before {
            let still = after.get(&generation).copied().unwrap_or(0);
            add_passes(&*self.coordination, generation, passes.saturating_sub(still))?;
        }
        if is_done {
            self.forget_run(log.name());
        }
        Ok(())
    }

    /// Removes the oldest logs of finished runs, except those of runs that are active again.
    fn drop_old_logs(&self) -> Result<()> {
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
