//! The log of a run: which generation each epoch is read from, by all workers that read together.
//!
//! The worker that first comes to epoch `k` of a run records the generation it is read from; the others follow. The
//! log is stored in the index, as notes. The first note written under a name stays:
//!
//! ```text
//! runs/<run>                                 the run is active
//! epochs.<run>/<k>                           epoch k: its generation, its number of samples, its order
//! run.<run>/at.<worker>.<k>.<member>         this worker, a stream of this member, has finished k epochs
//! run.<run>/dead.<worker>.<unix ms>.<member>  when this member was found dead
//! run.<run>/turn.<workers>.<rank>.<i>        the loader of a rank begins for the i-th time: its token
//! run.<run>/in.<workers>.<worker>.<i>        this worker, of this many, takes part in pass i
//! run.<run>/pass.<workers>.<i>               the epoch with which all of them begin pass i
//! logs/<unix ms>.<run>                       all epochs of a finished run, in one note (`finished.rs`)
//! passes/<generation>.<n>                    runs without notes have read it n times; the highest n counts
//! ```
//!
//! A stream without a run name, with one worker, removes its notes at its end and adds its passes to the count.
//!
//! The logs determine which generations are still needed (pins), and how often each generation was read (passes).

pub(crate) mod finished;

use crate::coordination::{CoordinationStore, Notes};
use crate::error::{Error, Result};
use crate::layout::parse_number;
use crate::random::random_u32;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Passes whose first epochs are kept, for workers that join late.
const PASSES_KEPT: u64 = 64;
/// The member name of a worker that has left. No member has this name.
pub(crate) const LEFT: &str = "_left";
/// Prefix of the names of unnamed runs.
const OWN: &str = "own-";
/// Most epochs whose notes a stream removes at its end. Later promotions remove the others.
const MOST_AT_THE_END: usize = 64;
/// Epochs that the log of a run keeps.
const EPOCHS_KEPT: u64 = 4096;
/// Time after which a run is noted as active again.
const LISTED_FOR: Duration = Duration::from_secs(5);
pub(crate) const RUNS: &str = "runs";
pub(crate) const LOGS: &str = "logs";
/// Folder of the counts of passes.
pub(crate) const PASSES: &str = "passes";
/// Attempts to raise a count of passes that other processes raise at the same time.
const COUNT_TRIES: u32 = 16;
/// Prefix of the folder in which the workers of a run note their positions.
pub(crate) const WORKERS: &str = "run.";

/// One epoch of a run: its generation and its order. Written once, by the first worker that comes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The generation that is read.
    pub generation: u64,
    /// Number of its samples that are read.
    pub samples: u64,
    /// Number of workers that share them.
    pub workers: u64,
    /// Whether the order is shuffled.
    pub shuffle: bool,
    /// The shuffle seed.
    pub seed: u64,
    /// Number of epochs before it that were read from the same generation in the same way and have no notes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u64,
    /// When this was written, in milliseconds since 1970 by the writer's clock.
    pub unix_ms: u64,
}

fn read_epoch(text: &str) -> Option<Epoch> {
    serde_json::from_str(text).ok()
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A pass that the workers of a rank begin together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The rank.
    pub rank: u64,
    /// A text that the workers of the rank share in this turn and that differs from the previous turn's.
    pub token: String,
}

/// The log of one run.
#[derive(Debug)]
pub struct RunLog {
    coordination: Arc<dyn CoordinationStore>,
    name: String,
    state: Mutex<State>,
}

/// What this process knows of a run.
#[derive(Debug, Default)]
struct State {
    known: BTreeMap<u64, Epoch>,
    /// Epochs that this process recorded.
    written: BTreeSet<u64>,
    /// When the run was last noted as active.
    listed: Option<Instant>,
    /// For each worker of this process: its last recorded position, and the stream that recorded it.
    arrived: HashMap<u64, (String, u64)>,
    /// Since when workers that have not joined are waited for.
    absent_since: Option<Instant>,
}

impl RunLog {
    /// Opens the log of run `name`: 1 to 100 letters, digits, `.`, `-` and `_`.
    ///
    /// # Errors
    /// An invalid name.
    pub fn new(coordination: Arc<dyn CoordinationStore>, name: &str) -> Result<RunLog> {
        if !is_run_name(name) {
            return Err(Error::Sample(format!(
                "{name:?} cannot be the name of a run: 1 to 100 letters, digits, dots, hyphens and underscores"
            )));
        }
        Ok(RunLog { coordination, name: name.to_owned(), state: Mutex::default() })
    }

    /// Returns how long workers that have not joined have been waited for, from the first call on.
    pub(crate) fn absence(&self) -> Duration {
        self.lock().absent_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Creates a name for the run of a stream that takes part in no named run.
    pub fn own_name() -> String {
        format!("{OWN}{:08x}{:08x}", random_u32(), random_u32())
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it is the run of a single unnamed stream.
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with(OWN)
    }

    pub(crate) fn folder(&self) -> String {
        format!("{WORKERS}{}", self.name)
    }

    pub(crate) fn epochs_folder(&self) -> String {
        format!("epochs.{}", self.name)
    }

    /// Returns epoch `k`, or `None` if no worker has come to it or its note is unreadable (as it may be after a power
    /// failure).
    ///
    /// # Errors
    /// The index is unreachable.
    pub fn epoch(&self, k: u64) -> Result<Option<Epoch>> {
        if let Some(known) = self.lock().known.get(&k) {
            return Ok(Some(known.clone()));
        }
        let epoch =
            self.coordination.read_note(&self.epochs_folder(), &k.to_string())?.and_then(|text| read_epoch(&text));
        if let Some(epoch) = &epoch {
            self.remember(k, epoch);
        }
        Ok(epoch)
    }

    /// Proposes `epoch` as epoch `k`. Returns the first proposal of any worker.
    ///
    /// # Errors
    /// The index is unreachable or read-only.
    pub fn decide(&self, k: u64, epoch: &Epoch) -> Result<Epoch> {
        // The run may have ended, so that its epochs are in `logs/`.
        if let Some(decided) = self.recall()?.remove(&k) {
            return Ok(decided);
        }
        let text = serde_json::to_string(epoch).map_err(|error| Error::Coordination(error.to_string()))?;
        let stands = self.agree(&self.epochs_folder(), &k.to_string(), &text, read_epoch)?;
        self.remember(k, &stands);
        self.lock().written.insert(k);
        Ok(stands)
    }

    /// Returns the contents of a note, which is `text` if this process writes it first. Replaces a note that is
    /// unreadable.
    fn agree<T>(&self, folder: &str, name: &str, text: &str, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        if let Some(stands) = read(&self.coordination.add_note(folder, name, text)?) {
            return Ok(stands);
        }
        let place = self.coordination.place();
        tracing::warn!("{place}: the note {folder}/{name} is unreadable; writing it again");
        self.coordination.remove_note(folder, name)?;
        read(&self.coordination.add_note(folder, name, text)?)
            .ok_or_else(|| Error::Coordination(format!("{place}: the note {folder}/{name} is unreadable: remove it")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers epoch `k` in this process, whether it is recorded or not.
    pub fn remember(&self, k: u64, epoch: &Epoch) {
        self.lock().known.insert(k, epoch.clone());
    }

    /// Forgets the epochs before `first`, and removes the notes that this process wrote of them.
    fn forget_before(&self, first: u64) -> Result<()> {
        let mut state = self.lock();
        state.known = state.known.split_off(&first);
        let kept = state.written.split_off(&first);
        let mut past = std::mem::replace(&mut state.written, kept);
        drop(state);
        past.insert(first - 1);
        past.iter().try_for_each(|k| self.coordination.remove_note(&self.epochs_folder(), &k.to_string()))
    }

    /// Records that worker `worker`, a stream of `member`, has finished `k` epochs and continues. `ticket`
    /// distinguishes the worker's streams in this process.
    ///
    /// # Errors
    /// The index is unreachable or read-only.
    pub fn arrive(&self, worker: u64, k: u64, member: &str, ticket: u64) -> Result<()> {
        // Noted once, and again at intervals, in case another process took the run for ended.
        let listed = self.lock().listed;
        if listed.is_none_or(|listed| listed.elapsed() > LISTED_FOR) {
            self.coordination.add_note(RUNS, &self.name, "")?;
            self.lock().listed = Some(Instant::now());
        }
        let name = format!("at.{worker}.{k}.{member}");
        self.coordination.add_note(&self.folder(), &name, "")?;
        if k > EPOCHS_KEPT {
            self.forget_before(k - EPOCHS_KEPT)?;
        }
        let before = self.lock().arrived.insert(worker, (name.clone(), ticket));
        match before.filter(|(before, _)| *before != name) {
            Some((before, _)) => self.coordination.remove_note(&self.folder(), &before),
            None => Ok(()),
        }
    }

    /// Records that a stream of worker `worker`, which has finished `k` epochs, reads no more, so that no generations
    /// are kept for it. Does nothing if another stream has taken its place.
    ///
    /// # Errors
    /// The index is unreachable or read-only.
    pub fn leave(&self, worker: u64, k: u64, ticket: u64) -> Result<()> {
        let ours = self.lock().arrived.get(&worker).is_some_and(|(_, last)| *last == ticket);
        if ours { self.arrive(worker, k, LEFT, ticket) } else { Ok(()) }
    }

    /// Ends the only stream of this run after `k` epochs: removes its notes and counts its passes. Does nothing if
    /// another stream has taken its place.
    ///
    /// # Errors
    /// The index is unreachable or read-only.
    pub fn end(&self, worker: u64, k: u64, ticket: u64) -> Result<()> {
        let last = self.lock().arrived.get(&worker).cloned();
        let Some((place, _)) = last.filter(|(_, last)| *last == ticket) else { return Ok(()) };
        // Earlier streams of the same worker recorded that they left.
        let is_left = |name: &String| arrival(name).is_some_and(|(_, (_, member))| member == LEFT);
        let names = self.coordination.note_names(&self.folder())?.into_iter().filter(|name| *name != place);
        let (left, others): (Vec<_>, Vec<_>) = names.partition(is_left);
        let numbers = self.listed()?;
        if !others.is_empty() || numbers.len() > MOST_AT_THE_END {
            return self.leave(worker, k, ticket);
        }
        let mut state = self.lock();
        state.arrived.remove(&worker);
        let written = std::mem::take(&mut state.written);
        drop(state);
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
        // Counted after the notes are removed, so that no observer counts these passes twice.
        passes.into_iter().try_for_each(|(generation, n)| add_passes(&*self.coordination, generation, n))
    }

    /// Joins a pass as one of `workers` workers, all of which begin to read again. Returns the epoch with which all
    /// of them begin: one that none of them had begun when the first of them joined, or `first` for a worker that
    /// knows it from a state. `ticket` distinguishes the worker's streams, so that a call may be repeated after an
    /// error.
    ///
    /// # Errors
    /// The index is unreachable or read-only.
    pub fn join_pass(&self, worker: u64, workers: u64, turn: &Turn, ticket: u64, first: Option<u64>) -> Result<u64> {
        let (folder, Turn { rank, token }) = (self.folder(), turn);
        let names = self.coordination.note_names(&folder)?;
        // The other workers of this rank have either joined this turn, which is then their last one, or not yet.
        let turns = format!("turn.{workers}.{rank}.");
        let last = names.iter().filter_map(|name| parse_number(name.strip_prefix(&turns)?)).max();
        let mut pass = last.unwrap_or(0);
        let mark = format!("{ticket:016x}");
        // A turn with the same token that this worker has joined before is an earlier one.
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
        // Of the places where this worker's earlier streams ended, only the last is kept.
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
                // A run that has ended has finished all epochs of its log.
                let over = self.recall()?.last_key_value().map_or(0, |(last, _)| last + 1);
                // A note may claim any number of epochs. An epoch that the log does not list is not finished.
                let last = self.listed()?.last().map_or(0, |last| last + 1);
                self.undecided(finished.min(last).max(over))?
            }
        };
        self.agree(&folder, &format!("pass.{workers}.{pass}"), &next.to_string(), |stands| stands.parse().ok())
    }

    /// Returns whether the worker has finished an epoch of the run before. In a run that has ended, all workers have.
    ///
    /// # Errors
    /// The index is unreachable.
    pub fn was_read_by(&self, worker: u64) -> Result<bool> {
        let names = self.coordination.note_names(&self.folder())?;
        let is_noted = names.iter().filter_map(|name| arrival(name)).any(|(of, (k, _))| of == worker && k > 0);
        Ok(is_noted || !self.recall()?.is_empty())
    }

    /// Returns the first epoch from `k` on that no worker has come to.
    pub(crate) fn undecided(&self, k: u64) -> Result<u64> {
        let mut next = k;
        while self.epoch(next)?.is_some() {
            next += 1;
        }
        Ok(next)
    }

    /// Returns the numbers of the recorded epochs, in order.
    pub(crate) fn listed(&self) -> Result<Vec<u64>> {
        let names = self.coordination.note_names(&self.epochs_folder())?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the numbers of the epochs that are recorded or known to this process, in order. Only these are
    /// examined, because a note may claim that a worker has finished 10^18 epochs.
    pub(crate) fn numbers(&self) -> Result<BTreeSet<u64>> {
        let mut numbers: BTreeSet<u64> = self.listed()?.into_iter().collect();
        numbers.extend(self.lock().known.keys());
        Ok(numbers)
    }

    /// Returns all recorded epochs in order. After the call, the epochs between them are also known.
    ///
    /// # Errors
    /// The index is unreachable.
    pub fn epochs(&self) -> Result<Vec<(u64, Epoch)>> {
        let mut numbers: BTreeSet<u64> = self.recall()?.into_keys().collect();
        numbers.extend(self.listed()?);
        let mut epochs = Vec::with_capacity(numbers.len());
        for k in numbers {
            if let Some(epoch) = self.epoch(k)? {
                epochs.push((k, epoch));
            }
        }
        // Only the last ones of the epochs without notes, because a note may claim any number of them.
        let mut left = EPOCHS_KEPT;
        for (k, epoch) in epochs.iter().rev() {
            let repeats = epoch.repeats.min(left).min(*k);
            (k - repeats..*k).for_each(|repeat| self.remember(repeat, epoch));
            left -= repeats;
        }
        Ok(epochs)
    }
}

/// Adds `more` passes to the count of `generation`. A count is a name that a process claims, and it replaces lower
/// counts, so that one note per generation remains however many streams end.
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

/// Parses `<generation>.<n>`.
pub(crate) fn count(name: &str) -> Option<(u64, u64)> {
    let (generation, n) = name.split_once('.')?;
    Some((parse_number(generation)?, parse_number(n)?))
}

/// Returns the passes of runs without notes, by generation.
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

/// Parses `at.<worker>.<k>.<member>`.
pub(crate) fn arrival(name: &str) -> Option<(u64, (u64, String))> {
    let mut fields = name.strip_prefix("at.")?.splitn(3, '.');
    let (worker, k) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
    Some((worker, (k, fields.next()?.to_owned())))
}

/// When a worker's member was first found dead.
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
