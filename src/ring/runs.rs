//! Runs: workers that read together and follow the same sequence of generations.
//!
//! Who comes first to epoch `k` of a run writes down which generation it is read from; the others follow. That log is
//! kept in the index, as notes of which the first one stays:
//!
//! ```text
//! runs/<run>                                 it takes part
//! epochs.<run>/<k>                           epoch k: its generation, its number of samples, its order
//! run.<run>/at.<worker>.<k>.<member>         worker so-and-so, who signs as this member, has finished k epochs
//! run.<run>/turn.<workers>.<rank>.<i>        the loader of a rank begins for the i-th time: its token
//! run.<run>/in.<workers>.<worker>.<i>        worker so-and-so, of so many, takes part in that
//! run.<run>/pass.<workers>.<i>               with which epoch all of them go on then
//! logs/<unix ms>.<run>                       it takes part no more: the log is kept for a while
//! ```
//!
//! From it follows which generations are still needed (pins), and how often a generation was read (passes).

use super::Ring;
use crate::error::{Error, Result};
use crate::index::{Index, as_hint};
use crate::layout::parse_number;
use crate::random::random_u32;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// At most so many generations are kept for readers that are behind; beyond, the oldest is given up.
pub const MAX_PINNED: usize = 16;
/// Logs of runs that are over and are kept.
const LOGS_KEPT: usize = 100;
/// Passes whose first epochs are remembered: for workers that come late.
const PASSES_KEPT: u64 = 64;
/// Signs for a worker that is gone. No member has this name.
const LEFT: &str = "_left";
/// How the names of runs begin that nobody gave a name.
const OWN: &str = "own-";
/// Epochs of a run that are kept in its log.
const EPOCHS_KEPT: u64 = 4096;
/// After so long it is said again that a run takes part.
const LISTED_FOR: Duration = Duration::from_secs(5);
const RUNS: &str = "runs";
const LOGS: &str = "logs";

/// One epoch of a run: which generation, in which order. Written once, by whoever comes to it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The generation that is read.
    pub generation: u64,
    /// How many samples of it are served.
    pub samples: u64,
    /// How many workers share them.
    pub workers: u64,
    /// Whether they are shuffled.
    pub shuffle: bool,
    /// With which seed.
    pub seed: u64,
    /// So many epochs before it were read from the same generation in the same way, and are not written down by
    /// themselves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u64,
    /// When this was written: milliseconds since 1970, by the writer's clock.
    pub unix_ms: u64,
}

fn read_epoch(text: &str) -> Option<Epoch> {
    serde_json::from_str(text).ok()
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One of the times that the workers of a rank begin to read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The rank.
    pub rank: u64,
    /// What the workers of the rank have in common this time, and had not the time before.
    pub token: String,
}

/// The log of one run.
#[derive(Debug)]
pub struct RunLog {
    index: Arc<dyn Index>,
    name: String,
    known: Mutex<BTreeMap<u64, Epoch>>,
    /// Epochs that this process wrote down, oldest first.
    written: Mutex<VecDeque<u64>>,
    /// When it was last said that the run takes part.
    listed: Mutex<Option<Instant>>,
    /// For each worker of this process: where it said last that it is, and which stream said so.
    arrived: Mutex<HashMap<u64, (String, u64)>>,
}

impl RunLog {
    /// The log of run `name`: 1 to 100 letters, digits, `.`, `-` and `_`.
    ///
    /// # Errors
    /// Another name.
    pub fn new(index: Arc<dyn Index>, name: &str) -> Result<RunLog> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(Error::Sample(format!(
                "{name:?} cannot be the name of a run: 1 to 100 letters, digits, dots, hyphens and underscores"
            )));
        }
        Ok(RunLog {
            index,
            name: name.to_owned(),
            known: Mutex::default(),
            written: Mutex::default(),
            listed: Mutex::default(),
            arrived: Mutex::default(),
        })
    }

    /// A name for the run of a stream that takes part in none.
    pub fn own_name() -> String {
        format!("{OWN}{:08x}{:08x}", random_u32(), random_u32())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One worker alone follows it.
    fn is_own(&self) -> bool {
        self.name.starts_with(OWN)
    }

    fn folder(&self) -> String {
        format!("run.{}", self.name)
    }

    fn epochs_folder(&self) -> String {
        format!("epochs.{}", self.name)
    }

    /// Epoch `k`; none when nobody has come to it, or when what was written of it cannot be read (a machine that lost
    /// its power may leave such a note).
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn epoch(&self, k: u64) -> Result<Option<Epoch>> {
        if let Some(known) = self.lock_known().get(&k) {
            return Ok(Some(known.clone()));
        }
        let epoch = self.index.read_note(&self.epochs_folder(), &k.to_string())?.and_then(|text| read_epoch(&text));
        if let Some(epoch) = &epoch {
            self.remember(k, epoch);
        }
        Ok(epoch)
    }

    /// Says what epoch `k` is to be, and returns what it is: what whoever was first said.
    ///
    /// # Errors
    /// When the index cannot be reached or written to.
    pub fn decide(&self, k: u64, epoch: &Epoch) -> Result<Epoch> {
        let text = serde_json::to_string(epoch).map_err(|error| Error::Index(error.to_string()))?;
        let stands = self.agree(&self.epochs_folder(), &k.to_string(), &text, read_epoch)?;
        self.remember(k, &stands);
        self.written.lock().unwrap_or_else(PoisonError::into_inner).push_back(k);
        Ok(stands)
    }

    /// What stands in a note, which is `text` for whoever comes first. One that cannot be read is written anew.
    fn agree<T>(&self, folder: &str, name: &str, text: &str, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        if let Some(stands) = read(&self.index.note(folder, name, text)?) {
            return Ok(stands);
        }
        let place = self.index.place();
        tracing::warn!("{place}: the note {folder}/{name} cannot be read, and is written anew");
        self.index.drop_note(folder, name)?;
        read(&self.index.note(folder, name, text)?)
            .ok_or_else(|| Error::Index(format!("{place}: the note {folder}/{name} cannot be read: remove it")))
    }

    fn lock_known(&self) -> MutexGuard<'_, BTreeMap<u64, Epoch>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Epoch `k` as this process knows it, written down or not.
    pub fn remember(&self, k: u64, epoch: &Epoch) {
        self.lock_known().insert(k, epoch.clone());
    }

    /// Forgets what is long past.
    fn forget_before(&self, first: u64) -> Result<()> {
        let mut known = self.lock_known();
        if known.first_key_value().is_some_and(|(k, _)| *k < first) {
            *known = known.split_off(&first);
        }
        drop(known);
        let mut past = vec![first - 1];
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        while written.front().is_some_and(|k| *k < first) {
            past.extend(written.pop_front());
        }
        drop(written);
        past.dedup();
        past.iter().try_for_each(|k| self.index.drop_note(&self.epochs_folder(), &k.to_string()))
    }

    /// Worker `worker`, who signs as `member`, has finished `k` epochs and goes on. `ticket` says which of the worker's
    /// streams in this process it is.
    ///
    /// # Errors
    /// When the index cannot be reached or written to.
    pub fn arrive(&self, worker: u64, k: u64, member: &str, ticket: u64) -> Result<()> {
        // Once is enough, unless somebody thought that the run was over.
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.is_none_or(|listed| listed.elapsed() > LISTED_FOR) {
            self.index.note(RUNS, &self.name, "")?;
            *listed = Some(Instant::now());
        }
        drop(listed);
        let name = format!("at.{worker}.{k}.{member}");
        self.index.note(&self.folder(), &name, "")?;
        if k > EPOCHS_KEPT {
            self.forget_before(k - EPOCHS_KEPT)?;
        }
        let before = self.lock_arrived().insert(worker, (name.clone(), ticket));
        match before.filter(|(before, _)| *before != name) {
            Some((before, _)) => self.index.drop_note(&self.folder(), &before),
            None => Ok(()),
        }
    }

    /// A stream of worker `worker`, which has finished `k` epochs, reads no more: what it had still to read is not kept
    /// for it. Another stream may have taken its place.
    ///
    /// # Errors
    /// When the index cannot be reached or written to.
    pub fn leave(&self, worker: u64, k: u64, ticket: u64) -> Result<()> {
        let ours = self.lock_arrived().get(&worker).is_some_and(|(_, last)| *last == ticket);
        if ours { self.arrive(worker, k, LEFT, ticket) } else { Ok(()) }
    }

    fn lock_arrived(&self) -> MutexGuard<'_, HashMap<u64, (String, u64)>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker, of so many, begins to read again, as all others do: the number of the epoch that they all go on with,
    /// which none of them had begun when the first of them came here; or `first`, for who knows it from a state.
    /// `ticket` says which of the worker's streams it is: after an error it may be tried again.
    ///
    /// # Errors
    /// When the index cannot be reached or written to.
    pub fn join_pass(&self, worker: u64, workers: u64, turn: &Turn, ticket: u64, first: Option<u64>) -> Result<u64> {
        let (folder, Turn { rank, token }) = (self.folder(), turn);
        let names = self.index.note_names(&folder)?;
        // The others of this rank have either come to this turn, which is their last one then, or not yet.
        let turns = format!("turn.{workers}.{rank}.");
        let last = names.iter().filter_map(|name| name.strip_prefix(&turns)?.parse::<u64>().ok()).max();
        let mut pass = last.unwrap_or(0);
        let mark = format!("{ticket:016x}");
        // A token that we came with before is of an earlier turn, though it is the same.
        while self.index.note(&folder, &format!("{turns}{pass}"), token)? != *token
            || self.index.note(&folder, &format!("in.{workers}.{worker}.{pass}"), &mark)? != mark
        {
            pass += 1;
        }
        if let Some(old) = pass.checked_sub(PASSES_KEPT) {
            for name in
                [format!("{turns}{old}"), format!("in.{workers}.{worker}.{old}"), format!("pass.{workers}.{old}")]
            {
                self.index.drop_note(&folder, &name)?;
            }
        }
        // Of where our streams ended before, the last place is enough.
        let mut left: Vec<(u64, &String)> = names
            .iter()
            .filter_map(|name| match arrival(name)? {
                (of, (k, member)) if of == worker && member == LEFT => Some((k, name)),
                _ => None,
            })
            .collect();
        left.sort_unstable();
        left.pop();
        left.iter().try_for_each(|(_, name)| self.index.drop_note(&folder, name))?;
        let finished = names.iter().filter_map(|name| arrival(name)).map(|(_, (k, _))| k).max().unwrap_or(0);
        let next = first.map_or_else(|| self.undecided(finished), Ok)?;
        self.agree(&folder, &format!("pass.{workers}.{pass}"), &next.to_string(), |stands| stands.parse().ok())
    }

    /// Whether a worker has finished an epoch of it before.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn was_read_by(&self, worker: u64) -> Result<bool> {
        let names = self.index.note_names(&self.folder())?;
        Ok(names.iter().filter_map(|name| arrival(name)).any(|(of, (k, _))| of == worker && k > 0))
    }

    /// The first epoch from `k` on that nobody has come to.
    fn undecided(&self, k: u64) -> Result<u64> {
        let mut next = k;
        while self.epoch(next)?.is_some() {
            next += 1;
        }
        Ok(next)
    }

    /// All its epochs that are written down, in order: the read log. From then on those are known, too, that are not.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn epochs(&self) -> Result<Vec<(u64, Epoch)>> {
        let mut numbers: Vec<u64> =
            self.index.note_names(&self.epochs_folder())?.iter().filter_map(|name| parse_number(name)).collect();
        numbers.sort_unstable();
        let mut epochs = Vec::with_capacity(numbers.len());
        for k in numbers {
            if let Some(epoch) = self.epoch(k)? {
                (k.saturating_sub(epoch.repeats.min(EPOCHS_KEPT))..k).for_each(|repeat| self.remember(repeat, &epoch));
                epochs.push((k, epoch));
            }
        }
        Ok(epochs)
    }
}

/// Where the workers of a run are.
struct Progress {
    log: Arc<RunLog>,
    /// Its last epoch.
    last: Option<u64>,
    /// For each worker that was ever seen: finished epochs, and as which member it said so.
    workers: HashMap<u64, Vec<(u64, String)>>,
}

/// `at.<worker>.<k>.<member>`
fn arrival(name: &str) -> Option<(u64, (u64, String))> {
    let mut fields = name.strip_prefix("at.")?.splitn(3, '.');
    let (worker, k) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((worker, (k, fields.next()?.to_owned())))
}

impl Progress {
    /// Finished epochs of a worker that lives; none for one that is gone.
    fn living(&self, worker: u64, ring: &Ring) -> Option<u64> {
        let mut watch = ring.watch();
        let here = self.workers.get(&worker)?.iter().filter(|(_, member)| member != LEFT && !watch.is_dead(member));
        here.map(|(k, _)| *k).max()
    }

    fn is_over(&self, ring: &Ring) -> bool {
        self.workers.keys().all(|worker| self.living(*worker, ring).is_none())
    }

    /// Its epochs that are read from `generation` or a newer one are the last ones: those read from `generation`.
    fn read_from(&self, generation: u64) -> Result<Vec<(u64, Epoch)>> {
        let mut epochs = Vec::new();
        for k in (0..self.last.map_or(0, |last| last + 1)).rev() {
            match self.log.epoch(k)? {
                Some(epoch) if epoch.generation == generation => epochs.push((k, epoch)),
                Some(epoch) if epoch.generation > generation => {}
                _ => break,
            }
        }
        Ok(epochs)
    }

    /// Whether a worker has finished epoch `k`.
    fn finished_by(&self, worker: u64, k: u64, ring: &Ring) -> bool {
        let said = || self.workers.get(&worker).is_some_and(|said| said.iter().any(|(done, _)| *done > k));
        self.living(worker, ring).map_or_else(said, |done| done > k)
    }

    /// Whether epoch `k` was read: some finished it, and whoever did not is gone.
    fn finished(&self, k: u64, epoch: &Epoch, ring: &Ring) -> bool {
        let mut some = false;
        for worker in 0..epoch.workers {
            let finished = self.finished_by(worker, k, ring);
            let came = self.workers.contains_key(&worker);
            if !finished && (!came || self.living(worker, ring).is_some()) {
                return false;
            }
            some |= finished;
        }
        some
    }
}

impl Ring {
    /// The runs that take part, as far as the index tells.
    ///
    /// # Errors
    /// What the index says: also that it is away.
    fn progress(&self) -> Result<Vec<Progress>> {
        self.progress_of(self.index.note_names(RUNS)?)
    }

    fn progress_of(&self, names: Vec<String>) -> Result<Vec<Progress>> {
        let mut found = Vec::new();
        for name in names {
            let Ok(log) = self.run(&name) else { continue };
            let mut workers = HashMap::<u64, Vec<_>>::new();
            for note in self.index.note_names(&log.folder())? {
                if let Some((worker, said)) = arrival(&note) {
                    workers.entry(worker).or_default().push(said);
                }
            }
            let finished = workers.values().flatten().map(|(k, _)| *k).max().unwrap_or(0);
            let last = log.undecided(finished)?.checked_sub(1);
            found.push(Progress { log, last, workers });
        }
        if !found.is_empty() {
            self.watch().look(&*self.index)?;
        }
        Ok(found)
    }

    /// The log of run `name`.
    ///
    /// # Errors
    /// A name that cannot be one.
    pub fn run(&self, name: &str) -> Result<Arc<RunLog>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = runs.get(name) {
            return Ok(log.clone());
        }
        let log = Arc::new(RunLog::new(self.index.clone(), name)?);
        runs.insert(name.to_owned(), log.clone());
        Ok(log)
    }

    /// The names of all runs whose logs are kept.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn run_names(&self) -> Result<Vec<String>> {
        let over = self.index.note_names(LOGS)?;
        let over = over.iter().filter_map(|name| name.split_once('.')).map(|(_, name)| name.to_owned());
        let names: BTreeSet<String> = self.index.note_names(RUNS)?.into_iter().chain(over).collect();
        Ok(names.into_iter().collect())
    }

    /// How often `generation` was read: epochs of all runs that all their workers finished, or left. Workers of many
    /// without a common run make a pass when each of them has made one over its share.
    ///
    /// # Errors
    /// What the index says.
    pub fn passes(&self, generation: u64) -> Result<u64> {
        let mut passes = 0;
        // How many there are, which one it is: passes over its share, and whether it lives.
        let mut shares: BTreeMap<u64, BTreeMap<u64, (u64, bool)>> = BTreeMap::new();
        for run in self.progress()? {
            let epochs = run.read_from(generation)?;
            if !run.log.is_own() {
                passes += epochs.iter().filter(|(k, epoch)| run.finished(*k, epoch, self)).count() as u64;
                continue;
            }
            let Some(last) = run.last.map(|last| run.log.epoch(last)).transpose()?.flatten() else { continue };
            for worker in run.workers.keys() {
                let share = shares.entry(last.workers).or_default().entry(*worker).or_default();
                share.0 += epochs.iter().filter(|(k, _)| run.finished_by(*worker, *k, self)).count() as u64;
                share.1 |= run.living(*worker, self).is_some();
            }
        }
        for (workers, shares) in shares.into_iter().filter(|(workers, shares)| shares.len() as u64 == *workers) {
            let all_gone = shares.values().all(|(_, lives)| !lives);
            let counted = shares.values().filter(|(_, lives)| *lives || all_gone || workers == 1);
            passes += counted.map(|(read, _)| *read).min().unwrap_or(0);
        }
        Ok(passes)
    }

    /// How often generations were read, by all runs whose logs are kept: passes by generation. An epoch that a run has left
    /// for another one counts.
    ///
    /// # Errors
    /// What the index says.
    pub fn reads(&self) -> Result<BTreeMap<u64, u64>> {
        let mut reads = BTreeMap::new();
        for run in self.progress_of(self.run_names()?)? {
            for (k, epoch) in run.log.epochs()? {
                let over = Some(k) < run.last || run.finished(k, &epoch, self);
                *reads.entry(epoch.generation).or_default() += epoch.repeats + u64::from(over);
            }
        }
        Ok(reads)
    }

    /// Whether a worker of some run lives. Where the index is away, none is known to.
    ///
    /// # Errors
    /// What the index says otherwise.
    pub fn has_readers(&self) -> Result<bool> {
        Ok(as_hint(self.progress())?.is_some_and(|runs| runs.iter().any(|run| !run.is_over(self))))
    }

    /// Why the generation that fills may not be promoted yet, although it is full: the newest one was not read as often
    /// as REUSE min asks for. None: it may. (Where the index is away, nobody knows, and nothing is promoted.)
    ///
    /// # Errors
    /// What the filesystem or the index says.
    pub fn held_back(&self) -> Result<Option<String>> {
        if self.reuse.min == 0 {
            return Ok(None);
        }
        let newest = self.manifests.newest()?;
        if self.manifests.get(newest)?.is_none_or(|manifest| self.training(&manifest).is_empty()) {
            return Ok(None);
        }
        let (passes, min) = (self.passes(newest)?, self.reuse.min);
        let why = || format!("generation {newest} to be read (REUSE min is {min}, and it was read {passes} times)");
        Ok((passes < min).then(why))
    }

    /// Generations that living workers of some run still have to read. Where the index is away: what was known last.
    ///
    /// # Errors
    /// What the index says otherwise.
    pub fn pinned(&self) -> Result<BTreeSet<u64>> {
        let pinned = as_hint(self.look_for_pins())?;
        let mut last = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = pinned {
            *last = pinned;
        }
        Ok(last.clone())
    }

    fn look_for_pins(&self) -> Result<BTreeSet<u64>> {
        let mut pinned = BTreeSet::new();
        for run in self.progress()? {
            let Some(last) = run.last else { continue };
            let least = run.workers.keys().filter_map(|worker| run.living(*worker, self)).min();
            for k in least.unwrap_or(u64::MAX)..=last {
                pinned.extend(run.log.epoch(k)?.map(|epoch| epoch.generation));
            }
        }
        Ok(pinned)
    }

    /// Of the pinned generations those that there is room for besides the next one: over budget the oldest is given up.
    pub(super) fn affordable_pins(&self, newest: u64) -> Result<BTreeSet<u64>> {
        let mut all = BTreeSet::new();
        for g in self.pinned()?.into_iter().filter(|g| g + self.keep < newest) {
            // Where there is nothing, nothing can be kept or given up.
            if self.fs.exists(&self.layout.read(g))? {
                all.insert(g);
            }
        }
        let mut kept = all.clone();
        while kept.len() > MAX_PINNED {
            kept.pop_first();
        }
        let size = |g| Ok::<_, Error>(self.manifests.get(g)?.map_or(0, |manifest| manifest.summary.bytes));
        if !kept.is_empty() {
            let next = size(newest)?;
            let used = if self.max_bytes.is_some() { self.usage()?.0 } else { 0 };
            let (mut free, mut room) =
                (self.fs.space(self.layout.root())?.bytes, self.max_bytes.map(|max| max.saturating_sub(used)));
            while free < next || room.is_some_and(|room| room < next) {
                let Some(oldest) = kept.pop_first() else { break };
                let freed = size(oldest)?;
                (free, room) = (free + freed, room.map(|room| room + freed));
            }
        }
        for given_up in all.difference(&kept) {
            tracing::warn!(
                generation = given_up,
                "a generation that is still being read is given up: there is no room for more of them"
            );
        }
        Ok(kept)
    }

    /// Runs that nobody is left of, and whose last generation is gone, take part no more; the oldest logs are dropped.
    pub(super) fn retire_runs(&self, newest: u64) -> Result<()> {
        for run in self.progress()? {
            let last = match run.last {
                Some(last) => run.log.epoch(last)?.map_or(0, |epoch| epoch.generation),
                None => 0,
            };
            if last + self.keep < newest && run.is_over(self) {
                let name = run.log.name();
                self.index.note(LOGS, &format!("{}.{name}", crate::unix_ms()), "")?;
                self.index.drop_note(RUNS, name)?;
                self.runs.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
        }
        let mut logs: Vec<(u64, String)> = Vec::new();
        for name in self.index.note_names(LOGS)? {
            if let Some((ms, run)) = name.split_once('.') {
                logs.push((ms.parse().unwrap_or(0), run.to_owned()));
            }
        }
        logs.sort_unstable();
        let active = self.index.note_names(RUNS)?;
        for (n, (ms, run)) in logs.iter().enumerate().take(logs.len().saturating_sub(LOGS_KEPT)) {
            self.index.drop_note(LOGS, &format!("{ms}.{run}"))?;
            let later = logs[n + 1..].iter().any(|(_, name)| name == run);
            if !later && !active.contains(run) {
                for folder in [format!("run.{run}"), format!("epochs.{run}")] {
                    for note in self.index.note_names(&folder)? {
                        self.index.drop_note(&folder, &note)?;
                    }
                }
            }
        }
        Ok(())
    }
}
