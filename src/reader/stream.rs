//! A stream: one epoch after the other, this worker's share of each. An epoch is a pass over one generation; at its end
//! the newest generation is next, and where there is none newer, the same again (that is what a ring is for), or
//! waiting, as the policy says ([`super::choice`]).
//!
//! Workers of one *run* follow the same sequence of generations ([`crate::ring::runs`]), in the same order of samples,
//! and, where that is wished for, with the same number of steps. What is planned next is read ahead by threads; the
//! sequence does not depend on how many there are.

use super::ahead::Ahead;
use super::choice::{Choice, Policy};
use super::fill::masked;
use super::generators::Generators;
use super::order::Order;
use super::plan::{Plan, Queue, Step};
use super::resume::{Place, State};
use super::split::{Equal, Share, Slot};
use super::{ReadSample, Reader, Waiting, tell_torn};
use crate::error::{Error, Result};
use crate::presence::Presence;
use crate::random::random_u32;
use crate::ring::manifest::Manifest;
use crate::ring::runs::{Epoch, RunLog, Turn};
use crate::unix_ms;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a page of memory, or fewer.
const PAGE: usize = 4096;
/// Samples that are read ahead at most, however small they are.
const MOST_AHEAD: usize = 4096;
/// Of them, those that are planned in one go: nobody waits for his first sample until thousands are planned.
const AT_ONCE: usize = 64;
/// Samples that are tried in the place of one that cannot be read.
const TRIES: u64 = 64;

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

enum Planned {
    Step(Step),
    /// The generation of the epoch is gone, or it has no steps: it is over.
    Nothing,
    Wait(String),
    End,
}

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
            looked: None,
            arrived: None,
            told: None,
            unwritten: None,
            ticket: u64::from(random_u32()) << 32 | u64::from(random_u32()),
            loaded: false,
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
            self.pause(&mut wait, &error.to_string(), stop, tell)?;
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
                    Err(error) if error.is_retryable() => self.pause(&mut wait, &error.to_string(), stop, tell)?,
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
        let look = move |index: &dyn crate::index::Index| generators.look(index);
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
        self.reader.close_old();
        let ring = self.reader.ring();
        let new = || Waiting::new(self.options.timeout, ring.poll).watch(&ring.layout.manifests());
        if let Some(presence) = &self.presence {
            presence.report(|report| report.doing = format!("waiting for {what}"));
        }
        wait.get_or_insert_with(new).more(what, stop, tell)
    }

    /// Plans until enough is planned for now, or no more can be: the reason.
    fn plan_ahead(&mut self) -> Result<Planned> {
        let most = self.queue.len() + AT_ONCE;
        loop {
            if !self.queue.is_empty() && (self.queue.len() >= most || self.is_enough()) {
                return Ok(Planned::Nothing);
            }
            match self.plan_step()? {
                Planned::Step(step) => self.queue.push(step),
                Planned::Nothing => {}
                over => return Ok(over),
            }
        }
    }

    /// Whether one more step might be more than may be read ahead. What a compressed sample takes is not known before
    /// one was read.
    fn is_enough(&self) -> bool {
        let planned = self.queue.bytes();
        let unknown = self.largest == 0 && planned > 0;
        unknown || planned + self.largest > self.options.prefetch_bytes || self.queue.len() >= MOST_AHEAD
    }

    /// Plans more of the same epoch, which is read while the consumer is busy with what it has got.
    fn top_up(&mut self) {
        let most = self.queue.len() + AT_ONCE;
        while self.ahead.is_some()
            && self.planning.is_some()
            && (self.queue.is_empty() || self.queue.len() < most && !self.is_enough())
        {
            // An error comes again when it is planned the next time.
            let Ok(Planned::Step(step)) = self.plan_step() else { break };
            self.queue.push(step);
        }
    }

    fn plan_step(&mut self) -> Result<Planned> {
        let Some((plan, number)) = self.planning.clone() else { return self.plan_epoch() };
        let slot = if self.abandoned == Some(plan.number) {
            None
        } else {
            plan.slot(self.options.share, number, self.options.equal)
        };
        let Some(slot) = slot else {
            (self.planning, self.next_epoch) = (None, plan.number + 1);
            return Ok(Planned::Nothing);
        };
        let (mut bytes, mut inline) = (0, true);
        if let (Slot::Read(position), Some(ahead)) = (slot, &mut self.ahead) {
            let (manifest, position) = match &plan.manifest {
                Some(manifest) => (manifest.clone(), position),
                None => self.reader.instead_of(position)?,
            };
            let stored = manifest.locate(position).map_or(0, |(entry, _)| entry.bytes / entry.samples.max(1));
            bytes = stored.max(self.largest);
            ahead.give((manifest, position));
            inline = false;
        }
        self.planning = Some((plan.clone(), number + 1));
        Ok(Planned::Step(Step { plan, number, slot, bytes, inline }))
    }

    /// Decides about the next epoch.
    fn plan_epoch(&mut self) -> Result<Planned> {
        if self.options.epochs.is_some_and(|epochs| self.begun >= epochs) {
            return Ok(Planned::End);
        }
        let k = self.next_epoch;
        if self.queue.is_empty() {
            self.end_epoch();
            self.say_arrived()?;
        } else if self.looked.is_some_and(|looked| looked.elapsed() < self.reader.ring().poll) {
            return Ok(Planned::Wait("the epoch to be read to its end".to_owned()));
        }
        self.looked = Some(Instant::now());
        let epoch = if let Some(log) = &self.replay {
            match log.epoch(k)? {
                Some(epoch) => epoch,
                None => return Ok(Planned::End),
            }
        } else {
            // Nobody else writes into the log of a stream on its own.
            let fresh = self.options.run.is_none() && !self.loaded;
            match if fresh { Ok(None) } else { self.log.epoch(k) } {
                Ok(Some(epoch)) => epoch,
                Ok(None) => match self.decide(k)? {
                    Ok(epoch) => epoch,
                    Err(planned) => return Ok(planned),
                },
                Err(_) if self.is_alone() => match self.decide(k)? {
                    Ok(epoch) => epoch,
                    Err(planned) => return Ok(planned),
                },
                Err(error) => return Err(error),
            }
        };
        let plan = self.plan_of(k, self.begun, epoch, Place::default())?;
        self.looked = None;
        self.policy.begin();
        match plan {
            Some(plan) => (self.planning, self.begun) = (Some((Arc::new(plan), 0)), self.begun + 1),
            None => self.next_epoch += 1,
        }
        Ok(Planned::Nothing)
    }

    /// The generation of epoch `k`, which nobody has decided about yet. The error is no error: waiting, for one.
    fn decide(&mut self, k: u64) -> Result<std::result::Result<Epoch, Planned>> {
        let reader = self.reader.clone();
        let manifest = match self.policy.choose(&reader, &self.log, k, self.queue.is_empty())? {
            Choice::Take(manifest) => manifest,
            Choice::Wait(what) => return Ok(Err(Planned::Wait(what))),
        };
        let served = self.reader.ring().training(&manifest);
        let epoch = Epoch {
            generation: manifest.summary.generation,
            samples: served.end - served.start,
            workers: self.options.share.world,
            shuffle: self.options.shuffle,
            seed: self.options.seed,
            repeats: 0,
            unix_ms: unix_ms(),
        };
        if self.is_quiet() {
            self.log.remember(k, &epoch);
            return Ok(Ok(epoch));
        }
        match self.log.decide(k, &epoch) {
            Ok(stands) => Ok(Ok(stands)),
            Err(error) if self.is_alone() => {
                tracing::debug!(%error, "what is read is not logged");
                self.log.remember(k, &epoch);
                Ok(Ok(epoch))
            }
            Err(error) => Err(error),
        }
    }

    /// None where the generation is gone, and nobody counts on its steps.
    fn plan_of(&self, number: u64, nth: u64, epoch: Epoch, place: Place) -> Result<Option<Plan>> {
        let ring = self.reader.ring();
        let generation = epoch.generation;
        let manifest = ring.manifests.get(generation)?;
        if manifest.is_none() && generation > ring.manifests.newest_listed()? {
            // Another worker has seen it; our view of the directory is older.
            let (path, message) = (ring.layout.manifest(generation), "it cannot be seen yet".to_owned());
            return Err(Error::Manifest { path, message, passing: true });
        }
        let there = manifest.is_some() && ring.fs.exists(&ring.layout.read(generation))?;
        if !there && self.options.equal == Equal::No {
            tracing::warn!(generation, epoch = number, "the generation of this epoch is gone: it is left out");
            return Ok(None);
        }
        if !there {
            tracing::warn!(
                generation,
                epoch = number,
                "the generation of this epoch is gone: its steps are made with samples of the newest one"
            );
        }
        let first = manifest.as_ref().map_or(0, |manifest| ring.training(manifest).start);
        let order = Order::of(&epoch, number);
        Ok(Some(Plan { number, nth, epoch, manifest: manifest.filter(|_| there), first, order, place }))
    }

    /// Nobody else follows this run.
    fn is_alone(&self) -> bool {
        self.options.run.is_none() || self.options.share.world == 1
    }

    /// The consumer comes to another epoch.
    fn turn_to(&mut self, plan: Arc<Plan>) {
        self.end_epoch();
        (self.behind, self.finished) = (plan.number, plan.nth);
        let quiet = self.is_quiet();
        match &mut self.unwritten {
            Some((k, epoch)) if epoch.generation == plan.epoch.generation => {
                *k = plan.number;
                epoch.repeats += 1;
            }
            _ if quiet => {
                self.write_down();
                self.unwritten = Some((plan.number, plan.epoch.clone()));
            }
            _ => {}
        }
        self.given = Some((plan, 0));
        self.say_arrived().unwrap_or_else(|error| tracing::debug!(%error, "that the epoch begins cannot be told"));
    }

    /// Who reads for itself writes down what it reads, and says where it is, only now and then where it reads a small
    /// generation again and again.
    fn is_quiet(&self) -> bool {
        self.options.run.is_none() && self.reader.ring().reuse.min == 0
    }

    /// Brings the log up to date.
    fn write_down(&mut self) {
        if let Some((k, epoch)) = self.unwritten.take() {
            let told = self.log.decide(k, &epoch);
            told.map(drop).unwrap_or_else(|error| tracing::debug!(%error, "what is read is not logged"));
        }
    }

    /// What was given from is behind the consumer.
    fn end_epoch(&mut self) {
        if let Some((plan, _)) = self.given.take() {
            (self.behind, self.finished) = (plan.number + 1, plan.nth + 1);
        }
        if self.planning.is_none() && self.queue.is_empty() {
            // Epochs without a step of ours are over, too.
            self.finished = self.finished.max(self.begun);
            self.behind = self.behind.max(self.next_epoch);
        }
    }

    /// Tells the others of the run where we are.
    fn say_arrived(&mut self) -> Result<()> {
        if self.replay.is_some() || self.arrived == Some(self.behind) || !self.is_due() {
            return Ok(());
        }
        self.write_down();
        let told = self.log.arrive(self.options.share.rank, self.behind, &self.reader.ring().me, self.ticket);
        if let (Err(error), false) = (&told, self.is_alone()) {
            if error.is_retryable() {
                return told;
            }
            let place = self.reader.ring().index.place();
            let message = format!("run {} cannot be kept there, which its workers need: {error}", self.log.name());
            return Err(Error::IndexRefused { place, message });
        }
        (self.arrived, self.told) = (Some(self.behind), Some((Instant::now(), self.generation())));
        Ok(())
    }

    /// Whether others have to know where we are.
    fn is_due(&self) -> bool {
        let ring = self.reader.ring();
        let due = |(when, what): (Instant, Option<u64>)| {
            when.elapsed() > if what == self.generation() { ring.lease / 4 } else { ring.poll }
        };
        !self.is_quiet() || self.told.is_none_or(due)
    }

    /// The generation that is given from; between two epochs, nothing is said of it.
    fn generation(&self) -> Option<u64> {
        self.given.as_ref().map(|(plan, _)| plan.epoch.generation).or(self.told.and_then(|(_, what)| what))
    }

    /// Takes the first planned step. None: it is not to be given.
    fn take(
        &mut self,
        wait: &mut Option<Waiting>,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Option<Item>> {
        let Some(step) = self.queue.front() else { return Ok(None) };
        let (plan, slot, number) = (step.plan.clone(), step.slot, step.number);
        let mut read = match (slot, &mut self.ahead) {
            (Slot::Read(_), Some(ahead)) if !step.inline => match ahead.take(stop).transpose() {
                Some(read) => read.flatten(),
                None => return Err(Error::Interrupted { what: "a sample to be read".to_owned() }),
            },
            _ => self.read(&plan, slot),
        };
        self.queue.pop();
        if self.abandoned == Some(plan.number) {
            return Ok(None);
        }
        loop {
            match self.item(&plan, number, slot, read) {
                // A server that is away: the same sample is next when it is back.
                Err(error) if error.is_retryable() => {
                    if let Err(error) = self.pause(wait, &error.to_string(), stop, tell) {
                        self.queue.push_again(Step { plan, number, slot, bytes: 0, inline: true });
                        return Err(error);
                    }
                    read = self.read(&plan, slot);
                }
                done => {
                    self.given = Some((plan, number + 1));
                    return done;
                }
            }
        }
    }

    /// What is given for what was read in a step. None: nothing is, now or later in this epoch.
    fn item(&mut self, plan: &Plan, number: u64, slot: Slot, read: Result<ReadSample>) -> Result<Option<Item>> {
        let equal = self.options.equal;
        let (mut sample, damage) = match read {
            Ok(sample) => (sample, None),
            Err(error @ Error::Damaged { .. }) if equal == Equal::No => return Ok(Some(Item::Damaged(error))),
            Err(error @ Error::Damaged { .. }) => (self.some_sample(plan, number + 1)?, Some(error)),
            Err(Error::Reclaimed { generation }) => {
                let told = self.gone.replace(plan.number) == Some(plan.number);
                if equal == Equal::No {
                    tracing::info!(
                        generation,
                        "it was reclaimed while it was read: going on with the newest generation"
                    );
                    self.abandoned = Some(plan.number);
                    return Ok(None);
                }
                if !told {
                    tracing::warn!(
                        generation,
                        "it was reclaimed while it was read: its steps are made with samples of the newest generation"
                    );
                }
                let position = if let Slot::Read(position) = slot { position } else { plan.first };
                (self.instead(position)?, None)
            }
            Err(error) => return Err(error),
        };
        self.policy.good();
        if slot == Slot::Fill || damage.is_some() && equal == Equal::Mask {
            sample = masked(&sample, self.options.fill)?;
        } else {
            self.count(&sample);
        }
        let sample = Box::new(sample);
        Ok(Some(match damage {
            Some(error) => Item::Replaced(sample, error),
            None => Item::Sample(sample),
        }))
    }

    /// The sample of a step; where it has none, one that lends it its shapes.
    fn read(&self, plan: &Plan, slot: Slot) -> Result<ReadSample> {
        match (slot, &plan.manifest) {
            (Slot::Fill, _) => self.some_sample(plan, 0),
            (Slot::Read(position), Some(manifest)) => self.reader.sample(manifest, position),
            (Slot::Read(position), None) => self.instead(position),
        }
    }

    /// A sample of the epoch that can be read: that of our step `from`, or one after it; else one of the newest
    /// generation.
    fn some_sample(&self, plan: &Plan, from: u64) -> Result<ReadSample> {
        let (samples, share) = (plan.epoch.samples, self.options.share);
        let Some(manifest) = plan.manifest.as_ref().filter(|_| samples > 0) else { return self.instead(plan.first) };
        for n in 0..samples.min(TRIES) {
            let number = (share.rank % samples + (from + n) * share.world) % samples;
            let number = if n < TRIES / 2 { number } else { n - TRIES / 2 };
            match self.reader.sample(manifest, plan.first + plan.order.at(number)) {
                Err(Error::Damaged { .. }) => {}
                Err(Error::Reclaimed { .. }) => break,
                other => return other,
            }
        }
        self.instead(plan.first)
    }

    /// A sample of the newest generation: at this position, or the first after it that can be read.
    fn instead(&self, position: u64) -> Result<ReadSample> {
        let mut tried = 0;
        loop {
            let (manifest, here) = self.reader.instead_of(position.wrapping_add(tried))?;
            tried += 1;
            match self.reader.sample(&manifest, here) {
                Err(Error::Damaged { .. }) if tried < TRIES => {}
                other => return other,
            }
        }
    }

    fn count(&mut self, sample: &ReadSample) {
        let bytes = sample.parts.iter().map(|part| part.len()).sum::<u64>();
        self.samples += 1;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
        let (samples, bytes, generation, epochs) = (self.samples, self.bytes, sample.generation, self.finished);
        if let Some(presence) = &self.presence {
            presence.report(|report| {
                (report.samples, report.bytes) = (samples, bytes);
                (report.generation, report.epochs) = (Some(generation), epochs);
                report.doing.clear();
            });
        }
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

    /// Where it is: what a stream that goes on from here needs to know.
    pub fn state(&self) -> State {
        let given = self.given.as_ref().map(|(plan, step)| (plan, *step));
        let (plan, step) = given.or(self.next_plan().map(|plan| (plan, 0))).unzip();
        let (epoch, place) = plan.map(|plan| (plan.epoch.clone(), plan.place.clone())).unzip();
        let (finished, number) = match (&self.given, plan) {
            (None, Some(plan)) => (plan.nth, plan.number),
            _ => (self.finished, self.behind),
        };
        State {
            version: State::VERSION,
            ring: self.reader.ring().birth.ring_id.clone(),
            run: self.run().to_owned(),
            seed: self.options.seed,
            shuffle: self.options.shuffle,
            equal: self.options.equal,
            world: self.options.share.world,
            worker: self.options.share.rank,
            finished,
            number,
            epoch,
            place: place.unwrap_or_default(),
            step: step.unwrap_or(0),
        }
    }

    /// Goes on from the states of all workers of a run: with as many workers as there were, from our own; else from what
    /// they all gave, which is shared anew.
    ///
    /// # Errors
    /// As [`State::merge`] and [`Stream::load`].
    pub fn load_all(&mut self, states: &[State]) -> Result<()> {
        let Share { rank, world } = self.options.share;
        match states.iter().find(|state| state.world == world && state.worker == rank) {
            Some(own) => self.load(own),
            None => self.load(&State::merge(states)?),
        }
    }

    /// Goes on from `state`, which a stream of the same ring, seed and order gave. With the same number of workers, with
    /// exactly the sample that would have come next. With another number: what no worker had been given of the epoch
    /// is shared anew, so that no sample comes twice and none is left out; `state` has to hold for all workers then
    /// ([`State::merge`]).
    ///
    /// # Errors
    /// A state of another ring, another order, or another version.
    pub fn load(&mut self, state: &State) -> Result<()> {
        state.fits(&self.reader.ring().birth.ring_id, &self.options)?;
        self.write_down();
        self.leave_run();
        if self.options.run.is_none() && self.replay.is_none() {
            self.log = self.reader.ring().run(&state.run)?;
            // How often its generation was read already.
            self.log.epochs().map(drop).unwrap_or_else(|error| tracing::debug!(%error, "the log cannot be read"));
        }
        self.queue = Queue::default();
        self.ahead = None; // with what it reads
        self.loaded = true;
        (self.planning, self.given, self.abandoned, self.looked) = (None, None, None, None);
        (self.finished, self.begun, self.behind, self.next_epoch) =
            (state.finished, state.finished, state.number, state.number);
        self.policy = Policy::new(self.generators.clone(), self.options.repeat);
        if let Some(epoch) = state.epoch.clone() {
            self.load_epoch(state, epoch)?;
        }
        if self.presence.is_some() {
            self.say_arrived().unwrap_or_else(|error| tracing::debug!(%error, "that we are here cannot be told"));
        }
        Ok(())
    }

    fn load_epoch(&mut self, state: &State, epoch: Epoch) -> Result<()> {
        if self.replay.is_none() {
            self.announced = Some((state.number, epoch.clone()));
        }
        let (place, step) = state.place_for(self.options.share.world);
        let plan = self.plan_of(state.number, self.begun, epoch, place)?;
        if let Some(plan) = plan.map(Arc::new) {
            self.begun += 1;
            (self.planning, self.given) = (Some((plan.clone(), step)), Some((plan, step)));
        } else {
            self.next_epoch += 1;
        }
        Ok(())
    }

    /// Nothing more is read for this worker of the run by us. What was given to the last sample was read.
    fn leave_run(&mut self) {
        let Some(arrived) = self.arrived.take() else { return };
        let finished = match &self.given {
            Some((plan, step)) if plan.slot(self.options.share, *step, self.options.equal).is_none() => plan.number + 1,
            _ => self.behind.max(arrived),
        };
        let left = self.log.leave(self.options.share.rank, finished, self.ticket);
        left.unwrap_or_else(|error| tracing::debug!(%error, "that we leave cannot be told"));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.write_down();
        self.leave_run();
    }
}

/// Brings a sample's pages into memory, so that whoever uses it finds them there.
fn touch(sample: &ReadSample) {
    let mut sum = 0u8;
    for part in &sample.parts {
        if let Ok(data) = part.data() {
            sum = data.iter().step_by(PAGE).fold(sum, |sum, byte| sum ^ byte);
        }
    }
    std::hint::black_box(sum);
}
