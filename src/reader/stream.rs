//! A stream: one epoch after the other, this worker's share of each. An epoch is a pass over one generation; at its end
//! the newest generation is next, and where there is none newer, the same again (that is what a ring is for), or
//! waiting, as the policy says ([`super::choice`]).
//!
//! Workers of one *run* follow the same sequence of generations ([`crate::ring::runs`]), in the same order of samples,
//! and, where that is wished for, with the same number of steps. What is planned next is read ahead by threads; the
//! sequence does not depend on how many there are.

mod giving;
mod place;
mod planning;

use super::ahead::Ahead;
use super::choice::Policy;
use super::generators::Generators;
use super::plan::{Plan, Queue};
use super::split::{Equal, Share};
use super::waiting::Waiting;
use super::{ReadSample, Reader, tell_torn};
use crate::error::{Error, Result};
use crate::presence::Presence;
use crate::random::random_u32;
use crate::ring::manifest::Manifest;
use crate::ring::runs::{Epoch, RunLog, Turn};
use giving::touch;
pub use place::Position;
use planning::Planned;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How to stream.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Whose share: a worker of all that read together.
    pub share: Share,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Which orders these are.
    pub seed: u64,
    /// What makes all workers have the same number of steps.
    pub equal: Equal,
    /// The value of every element of a sample that is none ([`Equal::Mask`]).
    pub fill: f64,
    /// After this many epochs the stream ends; none: never.
    pub epochs: Option<u64>,
    /// It goes on where the run's workers were before: with an epoch that none of them has begun. All ranks take as many
    /// turns, each with the same number of workers. None: it begins with the first epoch.
    pub goes_on: Option<Turn>,
    /// Whether a generation is read again while there is no newer one; else the stream waits for it.
    pub repeat: bool,
    /// For how long it waits for a newer generation; none: for ever.
    pub timeout: Option<Duration>,
    /// Bytes of samples that are read ahead at most, but one sample at least; 0: nothing is read ahead.
    pub prefetch_bytes: u64,
    /// Threads that read ahead.
    pub threads: usize,
    /// The run; none: one of its own.
    pub run: Option<String>,
    /// Reads what this run has read, once more, instead of taking part in one.
    pub replay: Option<String>,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            share: Share::ALL,
            shuffle: false,
            seed: 0,
            equal: Equal::No,
            fill: -100.0,
            epochs: None,
            goes_on: None,
            repeat: true,
            timeout: None,
            prefetch_bytes: 0,
            threads: 1,
            run: None,
            replay: None,
        }
    }
}

/// What a stream gives.
#[derive(Debug)]
pub enum Item {
    /// The next sample.
    Sample(Box<ReadSample>),
    /// A sample that cannot be read: counted, and skipped.
    Damaged(Error),
    /// A sample in the place of one that cannot be read: all workers are to have the same number of steps.
    Replaced(Box<ReadSample>, Error),
}

/// What is to be read: a position in a generation.
type Wanted = (Arc<Manifest>, u64);

/// See the module.
pub struct Stream {
    reader: Arc<Reader>,
    options: StreamOptions,
    log: Arc<RunLog>,
    /// The log that is followed, and not written.
    replay: Option<Arc<RunLog>>,
    generators: Arc<Generators>,
    presence: Option<Presence>,
    policy: Policy,

    /// The epoch that is planned, and the next step of it.
    planning: Option<(Arc<Plan>, u64)>,
    /// The next epoch to plan.
    next_epoch: u64,
    /// Epochs that were planned to their ends, or are being planned.
    begun: u64,
    /// Planned, and not given yet.
    queue: Queue,
    ahead: Option<Ahead<Wanted, Result<ReadSample>>>,
    /// Bytes of the largest sample so far.
    largest: u64,

    /// The epoch that was given from last, and the steps of it that were given.
    given: Option<(Arc<Plan>, u64)>,
    /// Epochs that are behind the consumer, by this stream, and by the run's count.
    finished: u64,
    behind: u64,
    /// An epoch of which no more is to be given.
    abandoned: Option<u64>,
    /// An epoch whose generation went while it was read: it was said.
    gone: Option<u64>,
    /// A generation within KEEP whose directory cannot be seen, and since when.
    unseen: Mutex<Option<(u64, Instant)>>,
    /// When it was looked last for an epoch to come, before this one is over.
    looked: Option<Instant>,
    /// How many epochs the others know that we have finished.
    arrived: Option<u64>,
    /// When, and of which generation we read then.
    told: Option<(Instant, Option<u64>)>,
    /// An epoch that is not in the log yet, and how often its generation was read before it in a row.
    unwritten: Option<(u64, Epoch)>,
    /// Which stream of its worker it is.
    ticket: u64,
    /// It goes on from a state.
    loaded: bool,
    /// Its state was asked for: another stream may go on from there, and needs the log.
    saved: Arc<AtomicBool>,
    /// The epoch in which it does, which the log of a new run does not know.
    announced: Option<(u64, Epoch)>,
    samples: u64,
    bytes: u64,
}

impl Stream {
    /// A stream that begins with the run's first epoch: for a new run, with the newest generation.
    ///
    /// # Errors
    /// A name that cannot be a run's; no log of the run to replay.
    pub fn new(reader: Arc<Reader>, options: StreamOptions) -> Result<Stream> {
        let ring = reader.ring();
        let log = ring.run(&options.run.clone().unwrap_or_else(RunLog::own_name))?;
        let replay = options.replay.as_deref().map(|name| ring.run(name)).transpose()?;
        let mut first = 0;
        if let Some(log) = &replay {
            // A run may have gone on from another one's state.
            let first_of = |(k, epoch): &(u64, Epoch)| k.saturating_sub(epoch.repeats);
            let Some(number) = log.epochs()?.first().map(first_of) else {
                let (name, place) = (log.name(), ring.layout.root().display());
                return Err(Error::Sample(format!("there is no log of a run {name:?} in the ring at {place}")));
            };
            first = number;
        }
        let generators = Generators::of(&ring.birth.ring_id, ring.lease);
        Ok(Stream {
            policy: Policy::new(generators.clone(), options.repeat),
            generators,
            presence: None,
            log,
            replay,
            planning: None,
            next_epoch: first,
            begun: 0,
            queue: Queue::default(),
            ahead: None,
            largest: 0,
            given: None,
            finished: 0,
            behind: first,
            abandoned: None,
            gone: None,
            unseen: Mutex::default(),
            looked: None,
            arrived: None,
            told: None,
            unwritten: None,
            ticket: u64::from(random_u32()) << 32 | u64::from(random_u32()),
            loaded: false,
            saved: Arc::default(),
            announced: None,
            samples: 0,
            bytes: 0,
            reader,
            options,
        })
    }

    /// The reader that it reads by.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// The name of its run.
    pub fn run(&self) -> &str {
        self.replay.as_ref().unwrap_or(&self.log).name()
    }

    /// Epochs that it has finished.
    pub fn epochs(&self) -> u64 {
        self.finished
    }

    /// The run's number of the epoch that is given from, or comes next.
    pub fn epoch(&self) -> u64 {
        self.behind
    }

    /// The next item; none at the end. `stop` is asked while it waits; `tell` hears what it waits for.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Interrupted`], [`Error::Stale`], or what the filesystem says. A damaged sample is no
    /// error here.
    pub fn next(&mut self, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<Option<Item>> {
        tell_torn();
        let mut wait: Option<Waiting> = None;
        while let Err(error) = self.begin() {
            if !error.is_retryable() {
                return Err(error);
            }
            self.pause_after(&mut wait, error, stop, tell)?;
        }
        loop {
            let planned = self.plan_ahead();
            let Some(step) = self.queue.front() else {
                match planned {
                    Ok(Planned::End) => {
                        self.end_epoch();
                        self.told = None;
                        self.say_arrived().unwrap_or_else(|error| tracing::debug!(%error, "the end cannot be told"));
                        return Ok(None);
                    }
                    Ok(Planned::Wait(what)) => self.pause(&mut wait, &what, stop, tell)?,
                    Ok(_) => {}
                    // The server of the index, or of the files, is away.
                    Err(error) if error.is_retryable() => self.pause_after(&mut wait, error, stop, tell)?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            if step.plan.number != self.behind || self.given.is_none() {
                self.turn_to(step.plan.clone());
            }
            if self.arrived != Some(self.behind) {
                // It was not due when the epoch began.
                self.say_arrived().unwrap_or_else(|error| tracing::debug!(%error, "where we are cannot be told"));
            }
            let Some(item) = self.take(&mut wait, stop, tell)? else { continue };
            self.top_up();
            return Ok(Some(item));
        }
    }

    fn begin(&mut self) -> Result<()> {
        if let Some(turn) = self.options.goes_on.clone().filter(|_| self.replay.is_none()) {
            self.go_on(&turn)?;
        } else if self.presence.is_none() && self.options.run.is_some() && !self.loaded && self.replay.is_none() {
            let (worker, run) = (self.options.share.rank, self.log.name());
            if self.log.was_read_by(worker).unwrap_or(false) {
                tracing::warn!(
                    "worker {worker} has read epochs of run {run} before, and reads them again from the first one: name \
                     another run, or load a state"
                );
            }
        }
        if let Some((k, epoch)) = self.announced.take() {
            // The log of a new run begins here.
            let told = self.log.decide(k, &epoch);
            told.map(drop).unwrap_or_else(|error| tracing::debug!(%error, "what is read is not logged"));
        }
        self.begin_reading_ahead()?;
        if self.presence.is_some() {
            return Ok(());
        }
        let ring = self.reader.ring();
        let generators = self.generators.clone();
        let look = move |index: &dyn crate::index::Index| generators.keep_up(index);
        self.presence = Some(Presence::begin_with(ring.index.clone(), &ring.me, "reader", ring.lease, look));
        // Who goes on in the midst of an epoch needs its generation from now on.
        self.say_arrived().unwrap_or_else(|error| tracing::debug!(%error, "that we are here cannot be told"));
        Ok(())
    }

    fn begin_reading_ahead(&mut self) -> Result<()> {
        if self.options.prefetch_bytes > 0 && self.ahead.is_none() {
            let reader = self.reader.clone();
            let read = move |(manifest, position): Wanted| {
                let sample = reader.sample_untold(&manifest, position)?;
                touch(&sample);
                reader.unless_torn(sample)
            };
            let started = Ahead::new(self.options.threads, read);
            let refused = |error| Error::Sample(format!("no thread can be started to read ahead: {error}"));
            self.ahead = Some(started.map_err(refused)?);
        }
        Ok(())
    }

    /// Joins the others in the next of the passes that all workers of the run make.
    fn go_on(&mut self, turn: &Turn) -> Result<()> {
        let Share { rank, world } = self.options.share;
        let first = match self.log.join_pass(rank, world, turn, self.ticket, self.loaded.then_some(self.behind)) {
            Ok(first) => first,
            Err(error) if self.is_alone() => {
                // Where the run is cannot be known: this is one of its own.
                tracing::debug!(%error, "what is read is not logged");
                if !self.loaded {
                    self.log = self.reader.ring().run(&RunLog::own_name())?;
                    self.options.run = None;
                }
                0
            }
            Err(error) => return Err(error),
        };
        self.options.goes_on = None; // once
        if !self.loaded {
            (self.next_epoch, self.behind) = (first, first);
        }
        Ok(())
    }

    fn pause(
        &self,
        wait: &mut Option<Waiting>,
        what: &str,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.wait(wait, what).more(what, stop, tell)
    }

    /// As [`Stream::pause`], after an error that may pass.
    fn pause_after(
        &self,
        wait: &mut Option<Waiting>,
        error: Error,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.reader.make_room(&error);
        self.wait(wait, &error.to_string()).after(error, stop, tell)
    }

    fn wait<'w>(&self, wait: &'w mut Option<Waiting>, what: &str) -> &'w mut Waiting {
        self.reader.close_old();
        let ring = self.reader.ring();
        let new = || Waiting::new(self.options.timeout, ring.poll, ring.lease).watch(&ring.layout.manifests());
        if let Some(presence) = &self.presence {
            presence.report(|report| report.doing = format!("waiting for {what}"));
        }
        wait.get_or_insert_with(new)
    }

    /// Takes its place in the run and in the epoch that it begins with, and gives nothing: so that [`Stream::state`] says
    /// which these are. Afterwards it does nothing.
    ///
    /// # Errors
    /// What the index or the filesystem says; it may be tried again.
    pub fn prepare(&mut self) -> Result<()> {
        if self.given.is_none() && self.next_plan().is_none() {
            self.begin()?;
            self.plan_ahead()?;
        }
        Ok(())
    }

    /// The epoch of the sample that comes next, as far as that is planned.
    fn next_plan(&self) -> Option<&Arc<Plan>> {
        self.queue.front().map(|step| &step.plan).or(self.planning.as_ref().map(|(plan, _)| plan))
    }

    /// Nobody else follows this run.
    fn is_alone(&self) -> bool {
        self.options.run.is_none() || self.options.share.world == 1
    }

    /// Who reads for itself writes down what it reads, and says where it is, only now and then where it reads a small
    /// generation again and again.
    fn is_quiet(&self) -> bool {
        self.options.run.is_none() && self.reader.ring().reuse.min == 0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.write_down();
        self.leave_run();
    }
}
