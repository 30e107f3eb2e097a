//! Pins: the generations that runs still have to read.

use super::MAX_PINNED;
use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::ring::state::{Obituary, Pins};
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

/// Removes the oldest generation that no live worker needs from `kept`, or else the oldest one. Returns it.
fn give_up_one(kept: &mut BTreeSet<u64>, living: &BTreeSet<u64>) -> Option<u64> {
    let oldest = kept.difference(living).next().or(kept.first()).copied()?;
    kept.take(&oldest)
}

impl Ring {
    /// Returns the generations that live workers of some run still have to read, and those that workers of named runs
    /// killed less than RUN_GRACE ago had not read yet. While the index is unreachable, returns what was last known.
    ///
    /// # Errors
    /// Other errors of the index.
    pub fn pinned(&self) -> Result<BTreeSet<u64>> {
        Ok(self.look_for_pins()?.all())
    }

    fn look_for_pins(&self) -> Result<MutexGuard<'_, Pins>> {
        let pins = if_available(self.pins_of_runs())?;
        let mut last = self.steps.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pins) = pins {
            *last = pins;
        }
        Ok(last)
    }

    fn pins_of_runs(&self) -> Result<Pins> {
        let mut pins = Pins::default();
        for run in self.progress()? {
            let workers = || run.workers.keys().copied();
            let living = workers().filter_map(|worker| run.living(worker, self)).min();
            pins.living.extend(run.generations_from(living)?);
            let graced = workers().filter_map(|worker| run.graced(worker, self)).min();
            pins.graced.extend(run.generations_from(graced)?);
            pins.unnoted.extend(run.obituary(self));
        }
        Ok(pins)
    }

    /// Returns whether a run had generations to read when pins were last determined.
    pub(crate) fn has_pins(&self) -> bool {
        let pins = self.steps.pins.lock().unwrap_or_else(PoisonError::into_inner);
        !pins.living.is_empty() || !pins.graced.is_empty()
    }

    /// Records which workers were found dead when pins were last determined, and removes the notes that no longer
    /// count.
    pub(crate) fn note_new_deaths(&self) -> Result<()> {
        let mut pins = self.steps.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let unnoted = std::mem::take(&mut pins.unnoted);
        drop(pins);
        for Obituary { folder, died, past } in unnoted {
            died.iter().try_for_each(|note| self.coordination.add_note(&folder, note, "").map(drop))?;
            past.iter().try_for_each(|note| self.coordination.remove_note(&folder, note))?;
        }
        Ok(())
    }

    /// Returns the pinned generations for which there is room besides the next one. Over budget, gives up the oldest,
    /// first of those that only dead workers need.
    pub(crate) fn affordable_pins(&self, newest: u64) -> Result<BTreeSet<u64>> {
        let mut all = BTreeSet::new();
        let (pinned, living) = {
            let pins = self.look_for_pins()?;
            (pins.all(), pins.living.clone())
        };
        for g in pinned.into_iter().filter(|g| g.saturating_add(self.settings.keep) < newest) {
            // A generation without a directory cannot be kept or given up.
            if self.fs.exists(&self.layout.read(g))? {
                all.insert(g);
            }
        }
        let mut kept = all.clone();
        while kept.len() > MAX_PINNED {
            give_up_one(&mut kept, &living);
        }
        let size = |g| Ok::<_, Error>(self.manifests.get(g)?.map_or(0, |manifest| manifest.summary.bytes));
        if !kept.is_empty() {
            let next = size(newest)?;
            let used = if self.settings.max_bytes.is_some() { self.usage()?.0 } else { 0 };
            let (mut free, mut room) =
                (self.fs.space(self.layout.root())?.bytes, self.settings.max_bytes.map(|max| max.saturating_sub(used)));
            while free < next || room.is_some_and(|room| room < next) {
                let Some(oldest) = give_up_one(&mut kept, &living) else { break };
                let freed = size(oldest)?;
                (free, room) = (free + freed, room.map(|room| room + freed));
            }
        }
        for given_up in all.difference(&kept) {
            tracing::warn!(
                generation = given_up,
                "giving up a generation that a run still has to read, because there is no room to keep it"
            );
        }
        Ok(kept)
    }
}
