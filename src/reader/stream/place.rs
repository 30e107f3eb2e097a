//! Where a stream is: as the others of its run are told, as a state that another one goes on from.

use super::Stream;
use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::reader::choice::Policy;
use crate::reader::plan::{Plan, Queue};
use crate::reader::resume::State;
use crate::reader::split::{Equal, Share};
use crate::ring::runs::{Epoch, RunLog};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Where a stream was, in a few shared references: see [`Stream::position`].
#[derive(Clone)]
pub struct Position {
    reader: Arc<Reader>,
    run: Arc<RunLog>,
    order: (u64, bool, Equal),
    share: Share,
    epochs: u64,
    finished: u64,
    number: u64,
    plan: Option<(Arc<Plan>, u64)>,
    saved: Arc<AtomicBool>,
}

impl Position {
    /// As [`Stream::epochs`] was.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// As [`Stream::run`] was.
    pub fn run(&self) -> &str {
        self.run.name()
    }

    /// As [`Reader::missing`] is now.
    ///
    /// [`Reader::missing`]: crate::Reader::missing
    pub fn missing(&self) -> Vec<u64> {
        self.reader.missing()
    }

    /// As [`Stream::state`] was.
    pub fn state(&self) -> State {
        self.saved.store(true, Ordering::Relaxed);
        let plan = self.plan.as_ref().map(|(plan, _)| plan);
        let (seed, shuffle, equal) = self.order;
        State {
            version: State::VERSION,
            ring: self.reader.ring().birth.ring_id.clone(),
            run: self.run().to_owned(),
            seed,
            shuffle,
            equal,
            world: self.share.world,
            worker: self.share.rank,
            finished: self.finished,
            number: self.number,
            epoch: plan.map(|plan| plan.epoch.clone()),
            place: plan.map(|plan| plan.place.clone()).unwrap_or_default(),
            step: self.plan.as_ref().map_or(0, |(_, step)| *step),
        }
    }
}

impl Stream {
    /// The consumer comes to another epoch.
    pub(super) fn turn_to(&mut self, plan: Arc<Plan>) {
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

    /// Brings the log up to date.
    pub(super) fn write_down(&mut self) {
        if let Some((k, epoch)) = self.unwritten.take() {
            let told = self.log.decide(k, &epoch);
            told.map(drop).unwrap_or_else(|error| tracing::debug!(%error, "what is read is not logged"));
        }
    }

    /// What was given from is behind the consumer.
    pub(super) fn end_epoch(&mut self) {
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
    pub(super) fn say_arrived(&mut self) -> Result<()> {
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
    pub(super) fn is_due(&self) -> bool {
        let ring = self.reader.ring();
        let due = |(when, what): (Instant, Option<u64>)| {
            when.elapsed() > if what == self.generation() { ring.lease / 4 } else { ring.poll }
        };
        !self.is_quiet() || self.told.is_none_or(due)
    }

    /// The generation that is given from; between two epochs, nothing is said of it.
    pub(super) fn generation(&self) -> Option<u64> {
        self.given.as_ref().map(|(plan, _)| plan.epoch.generation).or(self.told.and_then(|(_, what)| what))
    }

    /// Where it is: what a stream that goes on from here needs to know.
    pub fn state(&self) -> State {
        self.position().state()
    }

    /// The same in a form that is cheap to make and needs no stream: a snapshot for other threads.
    pub fn position(&self) -> Position {
        let next = || self.next_plan().map(|plan| (plan.clone(), 0));
        let plan = self.given.clone().or_else(next);
        let (finished, number) = match (&self.given, &plan) {
            (None, Some((plan, _))) => (plan.nth, plan.number),
            _ => (self.finished, self.behind),
        };
        Position {
            reader: self.reader.clone(),
            run: self.replay.as_ref().unwrap_or(&self.log).clone(),
            order: (self.options.seed, self.options.shuffle, self.options.equal),
            share: self.options.share,
            epochs: self.finished,
            finished,
            number,
            plan,
            saved: self.saved.clone(),
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

    pub(super) fn load_epoch(&mut self, state: &State, epoch: Epoch) -> Result<()> {
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
    pub(super) fn leave_run(&mut self) {
        let Some(arrived) = self.arrived.take() else { return };
        let finished = match &self.given {
            Some((plan, step)) if plan.slot(self.options.share, *step, self.options.equal).is_none() => plan.number + 1,
            _ => self.behind.max(arrived),
        };
        let rank = self.options.share.rank;
        // A stream that was loaded, or whose state was saved, leaves its log for other streams that load the state.
        let is_saved = self.loaded || self.saved.load(Ordering::Relaxed);
        let left = if self.log.is_own() && self.options.share.world == 1 && !is_saved {
            self.reader.ring().forget_run(self.log.name());
            self.log.end(rank, finished, self.ticket)
        } else {
            self.log.leave(rank, finished, self.ticket)
        };
        left.unwrap_or_else(|error| tracing::debug!(%error, "that we leave cannot be told"));
    }
}
