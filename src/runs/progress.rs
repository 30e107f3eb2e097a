//! How far the runs of a ring are: how often a generation was read, which ones are still needed, which runs are over.

use super::grace::{Death, Obituary};
use super::{Epoch, LEFT, PASSES, RUNS, RunLog, add_passes, arrival, count, counted_passes};
use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::random::random_u32;
use crate::ring::Ring;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// At most so many generations are kept for readers that are behind; beyond, the oldest is given up.
pub const MAX_PINNED: usize = 16;
/// Passes are counted over this many generations before the newest.
const COUNTED: u64 = 64;
/// Longest time for which a promotion puts runs away that are over.
const RETIRE_FOR: Duration = Duration::from_millis(100);

/// Workers that a message names at most.
const AWAITED_NAMED: usize = 3;

/// Which generations are kept for readers.
#[derive(Default)]
pub(crate) struct Pins {
    /// Those that living workers still have to read.
    living: BTreeSet<u64>,
    /// Those that killed workers of named runs had still to read, for RUN_GRACE.
    graced: BTreeSet<u64>,
    /// Deaths that are not written down yet.
    unnoted: Vec<Obituary>,
}

impl Pins {
    fn all(&self) -> BTreeSet<u64> {
        self.living.union(&self.graced).copied().collect()
    }
}

/// Where the workers of a run are.
pub(crate) struct Progress {
    pub(crate) log: Arc<RunLog>,
    /// The names of its workers' notes.
    pub(crate) notes: Vec<String>,
    /// For each worker that was ever seen: finished epochs, and as which member it said so.
    pub(crate) workers: HashMap<u64, Vec<(u64, String)>>,
    /// Members of it that were found dead.
    pub(crate) deaths: Vec<Death>,
}

impl Progress {
    /// Finished epochs of a worker that lives; none for one that is gone.
    pub(crate) fn living(&self, worker: u64, ring: &Ring) -> Option<u64> {
        let mut watch = ring.failure_detector();
        let here = self.workers.get(&worker)?.iter().filter(|(_, member)| member != LEFT && !watch.is_dead(member));
        here.map(|(k, _)| *k).max()
    }

    fn is_over(&self, ring: &Ring) -> bool {
        self.workers.keys().all(|worker| self.living(*worker, ring).is_none())
    }

    /// Returns the number of its last epoch, for which it reads its log.
    fn last(&self) -> Result<Option<u64>> {
        let finished = self.workers.values().flatten().map(|(k, _)| *k).max().unwrap_or(0);
        Ok(self.log.undecided(finished)?.checked_sub(1))
    }

    /// The generations of its epochs from `least` on.
    fn generations_from(&self, least: Option<u64>) -> Result<BTreeSet<u64>> {
        let Some(least) = least else { return Ok(BTreeSet::new()) };
        let Some(last) = self.last()? else { return Ok(BTreeSet::new()) };
        let mut generations = BTreeSet::new();
        for k in self.log.numbers()?.into_iter().filter(|k| (least..=last).contains(k)) {
            generations.extend(self.log.epoch(k)?.map(|epoch| epoch.generation));
        }
        Ok(generations)
    }

    /// Its epochs that are read from `generation` or a newer one are the last ones: those read from `generation`.
    fn read_from(&self, generation: u64) -> Result<Vec<(u64, Epoch)>> {
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

    /// Whether a worker has finished epoch `k`.
    fn finished_by(&self, worker: u64, k: u64, ring: &Ring) -> bool {
        let said = || self.workers.get(&worker).is_some_and(|said| said.iter().any(|(done, _)| *done > k));
        self.living(worker, ring).map_or_else(said, |done| done > k)
    }

    /// Whether epoch `k` was read: some worker finished it, and no other one is waited for.
    fn finished(&self, k: u64, epoch: &Epoch, ring: &Ring) -> bool {
        self.awaited(k, epoch, ring).is_some_and(|awaited| awaited.is_none())
    }

    /// The workers that epoch `k` waits for, in words. The outer None: no worker has finished it.
    ///
    /// Workers that live and have not finished it are waited for. So are those that never came, for
    /// one lease after another one has finished: they may have died before their first step.
    fn awaited(&self, k: u64, epoch: &Epoch, ring: &Ring) -> Option<Option<String>> {
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

/// Takes the oldest generation that no living worker needs out of `kept`, else the oldest one.
fn give_up_one(kept: &mut BTreeSet<u64>, living: &BTreeSet<u64>) -> Option<u64> {
    let oldest = kept.difference(living).next().or(kept.first()).copied()?;
    kept.take(&oldest)
}

/// The first worker that is not among those that came, and how many more there are.
fn absent(workers: u64, came: &BTreeSet<u64>) -> Option<String> {
    let first = (0..workers).find(|worker| !came.contains(worker))?;
    let came = came.range(..workers).count() as u64;
    let more = match workers - came - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("worker {first} of {workers}{more}"))
}

impl Ring {
    /// The runs that take part, as far as the index tells.
    ///
    /// # Errors
    /// What the index says: also that it is away.
    fn progress(&self) -> Result<Vec<Progress>> {
        let names = self.coordination.note_names(RUNS)?;
        let listed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut runs = self.runs.logs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|name, log| Arc::strong_count(log) > 1 || listed.contains(name.as_str()));
        drop(runs);
        self.progress_of(names)
    }

    fn progress_of(&self, names: Vec<String>) -> Result<Vec<Progress>> {
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

    /// How often `generation` was read: epochs of all runs that all their workers finished, or left. Workers of many
    /// without a common run make a pass when each of them has made one over its share.
    ///
    /// # Errors
    /// What the index says.
    pub fn passes(&self, generation: u64) -> Result<u64> {
        Ok(self.passes_and_awaited(generation)?.0)
    }

    /// As [`Ring::passes`]; and which workers the next pass waits for, in words.
    fn passes_and_awaited(&self, generation: u64) -> Result<(u64, Vec<String>)> {
        let mut passes = counted_passes(&*self.coordination)?.get(&generation).copied().unwrap_or(0);
        let mut awaited = Vec::new();
        // How many there are, which one it is: passes over its share, and whether it lives.
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
                awaited.push(format!("{absent}, without the name of a run, has not begun"));
                continue;
            }
            let all_gone = shares.values().all(|(_, lives)| !lives);
            let counted = shares.values().filter(|(_, lives)| *lives || all_gone || workers == 1);
            passes += counted.map(|(read, _)| *read).min().unwrap_or(0);
        }
        Ok((passes, awaited))
    }

    /// How often each of the last generations was read: passes by generation. An epoch that a run has left for another one
    /// counts. Of runs that are over, only the counts are looked at.
    ///
    /// # Errors
    /// What the index says.
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

    pub(crate) fn reads_of(&self, run: &Progress, newest: u64) -> Result<BTreeMap<u64, u64>> {
        let (mut reads, last) = (BTreeMap::new(), run.last()?);
        for k in run.log.listed()?.into_iter().rev() {
            let Some(epoch) = run.log.epoch(k)? else { continue };
            if epoch.generation.saturating_add(COUNTED) < newest {
                break;
            }
            let over = Some(k) < last || run.finished(k, &epoch, self);
            let passes: &mut u64 = reads.entry(epoch.generation).or_default();
            *passes = passes.saturating_add(epoch.repeats).saturating_add(u64::from(over));
        }
        Ok(reads)
    }

    /// Whether a worker of some run lives. Where the index is away, none is known to.
    ///
    /// # Errors
    /// What the index says otherwise.
    pub fn has_readers(&self) -> Result<bool> {
        Ok(if_available(self.progress())?.is_some_and(|runs| runs.iter().any(|run| !run.is_over(self))))
    }

    /// Why the generation that fills may not be promoted yet, although it is full: the newest one was not read as often
    /// as REUSE min asks for. None: it may. (Where the index is away, nobody knows, and nothing is promoted.)
    ///
    /// # Errors
    /// What the filesystem or the index says.
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

    /// Generations that living workers of some run still have to read, and those that killed workers of a named run had
    /// still to read less than RUN_GRACE ago. Where the index is away: what was known last.
    ///
    /// # Errors
    /// What the index says otherwise.
    pub fn pinned(&self) -> Result<BTreeSet<u64>> {
        Ok(self.look_for_pins()?.all())
    }

    fn look_for_pins(&self) -> Result<MutexGuard<'_, Pins>> {
        let pins = if_available(self.pins_of_runs())?;
        let mut last = self.runs.pins.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Whether a run had generations to read when pins were last looked for.
    pub(crate) fn has_pins(&self) -> bool {
        let pins = self.runs.pins.lock().unwrap_or_else(PoisonError::into_inner);
        !pins.living.is_empty() || !pins.graced.is_empty()
    }

    /// Writes down which workers were found dead when pins were last looked for.
    pub(crate) fn note_new_deaths(&self) -> Result<()> {
        let mut pins = self.runs.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let unnoted = std::mem::take(&mut pins.unnoted);
        drop(pins);
        self.note_deaths(unnoted)
    }

    /// Of the pinned generations those that there is room for besides the next one. Over budget the oldest is given up:
    /// first of those that only dead workers need.
    pub(crate) fn affordable_pins(&self, newest: u64) -> Result<BTreeSet<u64>> {
        let mut all = BTreeSet::new();
        let (pinned, living) = {
            let pins = self.look_for_pins()?;
            (pins.all(), pins.living.clone())
        };
        for g in pinned.into_iter().filter(|g| g.saturating_add(self.settings.keep) < newest) {
            // Where there is nothing, nothing can be kept or given up.
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
                "giving up a generation that a run still has to read: there is no room for more of them"
            );
        }
        Ok(kept)
    }

    /// Retires runs that have no living worker and whose last generation is gone, and drops the oldest logs. Stops after
    /// [`RETIRE_FOR`]; the next call goes on.
    pub(crate) fn retire_runs(&self, newest: u64) -> Result<()> {
        let until = Instant::now() + RETIRE_FOR;
        let mut active = self.coordination.note_names(RUNS)?;
        let first = random_u32() as usize % active.len().max(1);
        active.rotate_left(first); // each has its turn
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

    /// Removes the notes of an unnamed stream that is over, and counts its passes. A stream that
    /// loads its state has no use for the log, whose generations are gone.
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
        // Last, so that an observer never counts these passes twice.
        passes.into_iter().try_for_each(|(generation, passes)| add_passes(&*self.coordination, generation, passes))
    }
}
