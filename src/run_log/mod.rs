//! The log of a run: which generation each epoch is read from by workers that read together.
//!
//! Who comes first to epoch `k` of a run writes down which generation it is read from; the others follow. That log is
//! kept in the index, as notes of which the first one stays:
//!
//! ```text
//! runs/<run>                                 it takes part
//! epochs.<run>/<k>                           epoch k: its generation, its number of samples, its order
//! run.<run>/at.<worker>.<k>.<member>         worker so-and-so, who signs as this member, has finished k epochs
//! run.<run>/dead.<worker>.<unix ms>.<member>  then this member was found dead
//! run.<run>/turn.<workers>.<rank>.<i>        the loader of a rank begins for the i-th time: its token
//! run.<run>/in.<workers>.<worker>.<i>        worker so-and-so, of so many, takes part in that
//! run.<run>/pass.<workers>.<i>               with which epoch all of them go on then
//! logs/<unix ms>.<run>                       all epochs of a run that is over, in one note (`finished.rs`)
//! passes/<generation>.<n>                    runs without notes have read it n times; the highest n counts
//! ```
//!
//! A stream without a run name, of one worker, removes its notes at its end, and adds its passes to the count.
//!
//! From it follows which generations are still needed (pins), and how often a generation was read (passes).

pub(crate) mod finished;

use crate::coordination::{CoordinationStore, Notes};
use crate::error::{Error, Result};
use crate::layout::parse_number;
use crate::random::random_u32;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Passes whose first epochs are remembered: for workers that come late.
const PASSES_KEPT: u64 = 64;
/// Signs for a worker that is gone. No member has this name.
pub(crate) const LEFT: &str = "_left";
/// How the names of runs begin that nobody gave a name.
const OWN: &str = "own-";
/// A stream that ends removes the notes of this many epochs at most; the next promotions remove more.
const MOST_AT_THE_END: usize = 64;
/// Epochs of a run that are kept in its log.
const EPOCHS_KEPT: u64 = 4096;
/// After so long it is said again that a run takes part.
const LISTED_FOR: Duration = Duration::from_secs(5);
pub(crate) const RUNS: &str = "runs";
pub(crate) const LOGS: &str = "logs";
/// The folder of the counts of passes.
pub(crate) const PASSES: &str = "passes";
/// Tries to raise a count of passes that others raise at the same time.
const COUNT_TRIES: u32 = 16;
/// How the folder of a run begins in which its workers note where they are.
pub(crate) const WORKERS: &str = "run.";

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
    coordination: Arc<dyn CoordinationStore>,
    name: String,
    known: Mutex<BTreeMap<u64, Epoch>>,
    /// Epochs that this process wrote down, oldest first.
    written: Mutex<VecDeque<u64>>,
    /// When it was last said that the run takes part.
    listed: Mutex<Option<Instant>>,
    /// For each worker of this process: where it said last that it is, and which stream said so.
    arrived: Mutex<HashMap<u64, (String, u64)>>,
    /// Since when workers that never came are waited for.
    absent_since: Mutex<Option<Instant>>,
}

impl RunLog {
    /// The log of run `name`: 1 to 100 letters, digits, `.`, `-` and `_`.
    ///
    /// # Errors
    /// Another name.
    pub fn new(coordination: Arc<dyn CoordinationStore>, name: &str) -> Result<RunLog> {
        if !is_run_name(name) {
            return Err(Error::Sample(format!(
                "{name:?} cannot be the name of a run: 1 to 100 letters, digits, dots, hyphens and underscores"
            )));
        }
        Ok(RunLog {
            coordination,
            name: name.to_owned(),
            known: Mutex::default(),
            written: Mutex::default(),
            listed: Mutex::default(),
            arrived: Mutex::default(),
            absent_since: Mutex::default(),
        })
    }

    /// Returns how long workers that never came have been waited for, from the first call on.
    pub(crate) fn absence(&self) -> Duration {
        let mut since = self.absent_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(Instant::now).elapsed()
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
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with(OWN)
    }

    pub(crate) fn folder(&self) -> String {
        format!("{WORKERS}{}", self.name)
    }

    pub(crate) fn epochs_folder(&self) -> String {
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
        let epoch =
            self.coordination.read_note(&self.epochs_folder(), &k.to_string())?.and_then(|text| read_epoch(&text));
        if let Some(epoch) = &epoch {
            self.remember(k, epoch);
        }
        Ok(epoch)
    }

    /// Proposes `epoch` as epoch `k`. Returns what epoch `k` is: the first proposal of any worker.
    ///
    /// # Errors
    /// When the index cannot be reached or written to.
    pub fn decide(&self, k: u64, epoch: &Epoch) -> Result<Epoch> {
        // The run may have been over, and its log put away.
        if let Some(decided) = self.recall()?.remove(&k) {
            return Ok(decided);
        }
        let text = serde_json::to_string(epoch).map_err(|error| Error::Coordination(error.to_string()))?;
        let stands = self.agree(&self.epochs_folder(), &k.to_string(), &text, read_epoch)?;
        self.remember(k, &stands);
        self.written.lock().unwrap_or_else(PoisonError::into_inner).push_back(k);
        Ok(stands)
    }

    /// What stands in a note, which is `text` for whoever comes first. One that cannot be read is written anew.
    fn agree<T>(&self, folder: &str, name: &str, text: &str, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        if let Some(stands) = read(&self.coordination.add_note(folder, name, text)?) {
            return Ok(stands);
        }
        let place = self.coordination.place();
        tracing::warn!("{place}: the note {folder}/{name} cannot be read, and is written anew");
        self.coordination.remove_note(folder, name)?;
        read(&self.coordination.add_note(folder, name, text)?)
            .ok_or_else(|| Error::Coordination(format!("{place}: the note {folder}/{name} cannot be read: remove it")))
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
        past.iter().try_for_each(|k| self.coordination.remove_note(&self.epochs_folder(), &k.to_string()))
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
            self.coordination.add_note(RUNS, &self.name, "")?;
            *listed = Some(Instant::now());
        }
        drop(listed);
        let name = format!("at.{worker}.{k}.{member}");
        self.coordination.add_note(&self.folder(), &name, "")?;
        if k > EPOCHS_KEPT {
            self.forget_before(k - EPOCHS_KEPT)?;
        }
        let before = self.lock_arrived().insert(worker, (name.clone(), ticket));
        match before.filter(|(before, _)| *before != name) {
            Some((before, _)) => self.coordination.remove_note(&self.folder(), &before),
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

    /// The only stream of this run ends after `k` epochs: removes its notes, and counts the passes that it made. Another
    /// stream may have taken its place.
    ///
    /// # Errors
    /// When the index cannot be reached or written to.
    pub fn end(&self, worker: u64, k: u64, ticket: u64) -> Result<()> {
        let place =
            self.lock_arrived().get(&worker).filter(|(_, last)| *last == ticket).map(|(place, _)| place.clone());
        let Some(place) = place else { return Ok(()) };
        // Streams that ended before it in the same place left a sign.
        let is_left = |name: &String| arrival(name).is_some_and(|(_, (_, member))| member == LEFT);
        let names = self.coordination.note_names(&self.folder())?.into_iter().filter(|name| *name != place);
        let (left, others): (Vec<_>, Vec<_>) = names.partition(is_left);
        let numbers = self.listed()?;
        if !others.is_empty() || numbers.len() > MOST_AT_THE_END {
            return self.leave(worker, k, ticket);
        }
        self.lock_arrived().remove(&worker);
        let written = std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner));
        let mut passes: BTreeMap<u64, u64> = BTreeMap::new();
        for number in numbers.into_iter().chain(written).collect::<BTreeSet<u64>>() {
            if let Some(epoch) = self.epoch(number)? {
                *passes.entry(epoch.generation).or_default() += epoch.repeats + u64::from(number < k);
            }
            self.coordination.remove_note(&self.epochs_folder(), &number.to_string())?;
        }
        self.coordination.remove_note(&self.folder(), &place)?;
        left.iter().try_for_each(|name| self.coordination.remove_note(&self.folder(), name))?;
        self.coordination.remove_note(RUNS, &self.name)?;
        // After the notes are gone: no observer counts these passes twice.
        passes.into_iter().try_for_each(|(generation, n)| add_passes(&*self.coordination, generation, n))
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
        let names = self.coordination.note_names(&folder)?;
        // The others of this rank have either come to this turn, which is their last one then, or not yet.
        let turns = format!("turn.{workers}.{rank}.");
        let last = names.iter().filter_map(|name| parse_number(name.strip_prefix(&turns)?)).max();
        let mut pass = last.unwrap_or(0);
        let mark = format!("{ticket:016x}");
        // A token that we came with before is of an earlier turn, though it is the same.
        while self.coordination.add_note(&folder, &format!("{turns}{pass}"), token)? != *token
            || self.coordination.add_note(&folder, &format!("in.{workers}.{worker}.{pass}"), &mark)? != mark
        {
            pass += 1;
        }
        if let Some(old) = pass.checked_sub(PASSES_KEPT) {
            for name in
                [format!("{turns}{old}"), format!("in.{workers}.{worker}.{old}"), format!("pass.{workers}.{old}")]
            {
                self.coordination.remove_note(&folder, &name)?;
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
        left.iter().try_for_each(|(_, name)| self.coordination.remove_note(&folder, name))?;
        let finished = names.iter().filter_map(|name| arrival(name)).map(|(_, (k, _))| k).max().unwrap_or(0);
        let next = match first {
            Some(first) => first,
            None => {
                // A run that was over has finished all epochs of its log.
                let over = self.recall()?.last_key_value().map_or(0, |(last, _)| last + 1);
                // An epoch that the log does not list cannot be finished, whatever a note says.
                let last = self.listed()?.last().map_or(0, |last| last + 1);
                self.undecided(finished.min(last).max(over))?
            }
        };
        self.agree(&folder, &format!("pass.{workers}.{pass}"), &next.to_string(), |stands| stands.parse().ok())
    }

    /// Returns whether the worker has finished an epoch of the run before. Of a run that was over, all have.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn was_read_by(&self, worker: u64) -> Result<bool> {
        let names = self.coordination.note_names(&self.folder())?;
        let is_noted = names.iter().filter_map(|name| arrival(name)).any(|(of, (k, _))| of == worker && k > 0);
        Ok(is_noted || !self.recall()?.is_empty())
    }

    /// The first epoch from `k` on that nobody has come to.
    pub(crate) fn undecided(&self, k: u64) -> Result<u64> {
        let mut next = k;
        while self.epoch(next)?.is_some() {
            next += 1;
        }
        Ok(next)
    }

    /// The numbers of the epochs that are written down, in order.
    pub(crate) fn listed(&self) -> Result<Vec<u64>> {
        let names = self.coordination.note_names(&self.epochs_folder())?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The numbers of the epochs that are written down or known to this process, in order. Only these are
    /// looked at: a note may claim that a worker has finished 10^18 epochs.
    pub(crate) fn numbers(&self) -> Result<BTreeSet<u64>> {
        let mut numbers: BTreeSet<u64> = self.listed()?.into_iter().collect();
        numbers.extend(self.lock_known().keys());
        Ok(numbers)
    }

    /// Returns all recorded epochs in order: the read log. From then on the epochs between them are
    /// known, too.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn epochs(&self) -> Result<Vec<(u64, Epoch)>> {
        let mut numbers: BTreeSet<u64> = self.recall()?.into_keys().collect();
        numbers.extend(self.listed()?);
        let mut epochs = Vec::with_capacity(numbers.len());
        for k in numbers {
            if let Some(epoch) = self.epoch(k)? {
                epochs.push((k, epoch));
            }
        }
        // Of the epochs that are not recorded, the last ones: a note may claim any number of them.
        let mut left = EPOCHS_KEPT;
        for (k, epoch) in epochs.iter().rev() {
            let repeats = epoch.repeats.min(left).min(*k);
            (k - repeats..*k).for_each(|repeat| self.remember(repeat, epoch));
            left -= repeats;
        }
        Ok(epochs)
    }
}

/// Counts `more` passes over `generation`. A count is a name that is claimed, and replaces lower ones: however many streams
/// end, one note stays for each generation.
pub(crate) fn add_passes(notes: &dyn Notes, generation: u64, more: u64) -> Result<()> {
    let mark = format!("{:08x}{:08x}", random_u32(), random_u32());
    for _ in 0..if more > 0 { COUNT_TRIES } else { 0 } {
        let names = notes.note_names(PASSES)?;
        let counts: Vec<u64> =
            names.iter().filter_map(|n| count(n)).filter(|c| c.0 == generation).map(|c| c.1).collect();
        let n = counts.iter().max().map_or(0, |n| *n).saturating_add(more);
        if notes.add_note(PASSES, &format!("{generation}.{n}"), &mark)? == mark {
            let mut lower = counts.into_iter().filter(|count| *count < n);
            return lower.try_for_each(|count| notes.remove_note(PASSES, &format!("{generation}.{count}")));
        }
    }
    Ok(())
}

/// `<generation>.<n>`
pub(crate) fn count(name: &str) -> Option<(u64, u64)> {
    let (generation, n) = name.split_once('.')?;
    Some((parse_number(generation)?, parse_number(n)?))
}

/// The counts of passes of runs without notes, by generation.
pub(crate) fn counted_passes(notes: &dyn Notes) -> Result<BTreeMap<u64, u64>> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (generation, n) in notes.note_names(PASSES)?.iter().filter_map(|name| count(name)) {
        let known = counts.entry(generation).or_default();
        *known = n.max(*known);
    }
    Ok(counts)
}

pub(crate) fn is_run_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.bytes().all(plain)
}

/// `at.<worker>.<k>.<member>`
pub(crate) fn arrival(name: &str) -> Option<(u64, (u64, String))> {
    let mut fields = name.strip_prefix("at.")?.splitn(3, '.');
    let (worker, k) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
    Some((worker, (k, fields.next()?.to_owned())))
}

/// When a worker, which signed as this member, was first found dead.
pub(crate) struct Death {
    pub(crate) worker: u64,
    pub(crate) unix_ms: u64,
    pub(crate) member: String,
}

impl Death {
    /// Parses `dead.<worker>.<unix ms>.<member>`.
    pub(crate) fn parse(note: &str) -> Option<Death> {
        let mut fields = note.strip_prefix("dead.")?.splitn(3, '.');
        let (worker, unix_ms) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
        Some(Death { worker, unix_ms, member: fields.next()?.to_owned() })
    }

    pub(crate) fn note(&self) -> String {
        format!("dead.{}.{}.{}", self.worker, self.unix_ms, self.member)
    }
}
