//! How often a generation was read.

use super::progress::{Progress, absent};
use crate::coordination::if_available;
use crate::error::Result;
use crate::ring::Ring;
use crate::run_log::counted_passes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Passes are counted over this many generations before the newest.
pub(super) const COUNTED: u64 = 64;

/// Most workers that a message names.
const AWAITED_NAMED: usize = 3;

impl Ring {
    /// Returns how often `generation` was read: epochs of all runs that each of their workers has finished or left.
    /// Workers without a common run make a pass when each of them has made one over its share.
    ///
    /// # Errors
    /// Errors of the index.
    pub fn passes(&self, generation: u64) -> Result<u64> {
        Ok(self.passes_and_awaited(generation)?.0)
    }

    /// Returns [`Ring::passes`], and descriptions of the workers that the next pass waits for.
    fn passes_and_awaited(&self, generation: u64) -> Result<(u64, Vec<String>)> {
        let mut passes = counted_passes(&*self.coordination)?.get(&generation).copied().unwrap_or(0);
        let mut awaited = Vec::new();
        // By number of workers and worker: passes over its share, and whether it is alive.
        let mut shares: BTreeMap<u64, BTreeMap<u64, (u64, bool)>> = BTreeMap::new();
        let mut absence: BTreeMap<u64, Duration> = BTreeMap::new();
        for run in self.progress()? {
            let epochs = run.read_from(generation)?;
            if !run.log.is_own() {
                for waits in epochs.iter().filter_map(|(k, epoch)| run.awaited(*k, epoch, self)) {
                    passes += u64::from(waits.is_none());
                    awaited.extend(waits);
                }
                continue;
            }
            let Some(last) = run.last()?.map(|last| run.log.epoch(last)).transpose()?.flatten() else { continue };
            for worker in run.workers.keys() {
                let share = shares.entry(last.workers).or_default().entry(*worker).or_default();
                share.0 += epochs.iter().filter(|(k, _)| run.finished_by(*worker, *k, self)).count() as u64;
                share.1 |= run.living(*worker, self).is_some();
                if share.0 > 0 {
                    let longest = absence.entry(last.workers).or_default();
                    *longest = run.log.absence().max(*longest);
                }
            }
        }
        for (workers, shares) in shares {
            let absence = absence.get(&workers).copied().unwrap_or_default();
            let absent = absent(workers, &shares.keys().copied().collect());
            if let Some(absent) = absent.filter(|_| absence <= self.settings.lease) {
                awaited.push(format!("{absent} of an unnamed run has not begun"));
                continue;
            }
            let all_gone = shares.values().all(|(_, lives)| !lives);
            let counted = shares.values().filter(|(_, lives)| *lives || all_gone || workers == 1);
            passes += counted.map(|(read, _)| *read).min().unwrap_or(0);
        }
        Ok((passes, awaited))
    }

    /// Returns how often each of the last generations was read, by generation. An epoch that a run has left for a
    /// later one counts. For runs that have ended, only the counts are read.
    ///
    /// # Errors
    /// Errors of the index.
    pub fn reads(&self) -> Result<BTreeMap<u64, u64>> {
        let newest = self.manifests.newest()?;
        let mut reads = counted_passes(&*self.coordination)?;
        for run in self.progress()? {
            for (generation, more) in self.reads_of(&run, newest)? {
                let passes = reads.entry(generation).or_default();
                *passes = passes.saturating_add(more);
            }
        }
        Ok(reads)
    }

    pub(super) fn reads_of(&self, run: &Progress, newest: u64) -> Result<BTreeMap<u64, u64>> {
        let (mut reads, last) = (BTreeMap::new(), run.last()?);
        for k in run.log.listed()?.into_iter().rev() {
            let Some(epoch) = run.log.epoch(k)? else { continue };
            if epoch.generation.saturating_add(COUNTED) < newest {
                break;
            }
            let over = Some(k) < last || run.awaited(k, &epoch, self) == Some(None);
            let passes: &mut u64 = reads.entry(epoch.generation).or_default();
            *passes = passes.saturating_add(epoch.repeats).saturating_add(u64::from(over));
        }
        Ok(reads)
    }

    /// Returns whether a worker of some run is alive; false while the index is unreachable.
    ///
    /// # Errors
    /// Other errors of the index.
    pub fn has_readers(&self) -> Result<bool> {
        Ok(if_available(self.progress())?.is_some_and(|runs| runs.iter().any(|run| !run.is_over(self))))
    }

    /// Returns why the generation that fills may not be promoted although it is full: the newest one was not read as
    /// often as REUSE min requires. `None` if it may be promoted. (Nothing is promoted while the index is
    /// unreachable.)
    ///
    /// # Errors
    /// Errors of the filesystem and of the index.
    pub fn held_back(&self) -> Result<Option<String>> {
        if self.settings.reuse.min == 0 {
            return Ok(None);
        }
        let newest = self.manifests.newest()?;
        if self.manifests.get(newest)?.is_none_or(|manifest| self.training(&manifest).is_empty()) {
            return Ok(None);
        }
        let ((passes, awaited), min) = (self.passes_and_awaited(newest)?, self.settings.reuse.min);
        let why = || {
            let read = format!("generation {newest} to be read (REUSE min is {min}, and it was read {passes} times");
            awaited.iter().take(AWAITED_NAMED).fold(read, |text, worker| text + "; " + worker) + ")"
        };
        Ok((passes < min).then(why))
    }
}
