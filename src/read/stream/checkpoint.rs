//! Checkpoints of a stream: its state, from which another stream resumes.

use super::plan::Plan;
use super::{Stream, StreamOptions};
use crate::error::{Error, Result};
use crate::read::Reader;
use crate::read::checkpoint::State;
use crate::read::shard::Share;
use crate::run_log::RunLog;
use crate::times::{StreamClock, StreamStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The position of a stream, as a few shared references: see [`Stream::position`].
#[derive(Clone)]
pub struct Position {
    reader: Arc<Reader>,
    run: Arc<RunLog>,
    options: Arc<StreamOptions>,
    epochs: u64,
    finished: u64,
    number: u64,
    plan: Option<(Arc<Plan>, u64)>,
    saved: Arc<AtomicBool>,
    clock: Arc<StreamClock>,
}

impl Position {
    /// Returns [`Stream::epochs`] at that position.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Returns [`Stream::run`] at that position.
    pub fn run(&self) -> &str {
        self.run.name()
    }

    /// Returns [`Reader::missing`] as it is now.
    ///
    /// [`Reader::missing`]: crate::Reader::missing
    pub fn missing(&self) -> Vec<u64> {
        self.reader.missing()
    }

    /// Returns [`Stream::stats`] as they are now.
    pub fn stats(&self) -> StreamStats {
        self.clock.stats()
    }

    /// Returns the number of epochs before the one that is being read or comes next, and of that one the steps that are
    /// left to this worker, and the steps of another epoch of the same generation. They are `None` if that epoch was
    /// not chosen yet.
    pub fn steps_left(&self) -> (u64, Option<(u64, u64)>) {
        let steps = self.plan.as_ref().map(|(plan, step)| {
            let steps = |samples| self.options.share.equal_steps(samples, self.options.equal);
            let samples = plan.epoch.samples;
            (steps(plan.place.left(samples)).saturating_sub(*step), steps(samples))
        });
        (self.finished, steps)
    }

    /// Returns [`Stream::state`] at that position.
    pub fn state(&self) -> State {
        self.saved.store(true, Ordering::Relaxed);
        let (epoch, place, step) = match &self.plan {
            Some((plan, step)) => (Some(plan.epoch.clone()), plan.place.clone(), *step),
            None => Default::default(),
        };
        let StreamOptions { share, shuffle, seed, equal, .. } = *self.options;
        State {
            version: State::VERSION,
            ring: self.reader.ring().descriptor.ring_id.clone(),
            run: self.run().to_owned(),
            seed,
            shuffle,
            equal,
            world: share.world,
            worker: share.rank,
            finished: self.finished,
            number: self.number,
            epoch,
            place,
            step,
        }
    }
}

impl Stream {
    /// Returns the state from which another stream can resume.
    pub fn state(&self) -> State {
        self.position().state()
    }

    /// Returns the position, which is cheap to copy and needs no stream: a snapshot for other threads.
    pub fn position(&self) -> Position {
        let progress = &self.progress;
        let next = || self.next_plan().map(|plan| (plan.clone(), 0));
        let plan = progress.delivered.clone().or_else(next);
        let (finished, number) = match (&progress.delivered, &plan) {
            (None, Some((plan, _))) => (plan.nth, plan.number),
            _ => (progress.finished, progress.current),
        };
        Position {
            reader: self.reader.clone(),
            run: progress.run.read_log().clone(),
            options: self.options.clone(),
            epochs: progress.finished,
            finished,
            number,
            plan,
            saved: progress.run.is_saved.clone(),
            clock: progress.clock.clone(),
        }
    }

    /// Resumes from the states of all workers of a run: with the same number of workers, from this worker's own; else
    /// from the merged state, which redistributes the rest of the epoch.
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

    /// Resumes from `state`, which a stream of the same ring, seed and order saved. With the same number of workers,
    /// the next sample is exactly the one that would have come next. With another number, the samples of the epoch
    /// that no worker had delivered are redistributed, so that none is repeated and none is left out; `state` must
    /// then hold for all workers ([`State::merge`]).
    ///
    /// # Errors
    /// A state of another ring, another order, or another version.
    pub fn load(&mut self, state: &State) -> Result<()> {
        self.check(state)?;
        self.progress.leave();
        self.progress.run.adopt(&state.run)?;
        self.delivery.clear();
        self.progress.restart(state.finished, state.number);
        self.schedule.restart(state.finished, state.number);
        if let Some(epoch) = state.epoch.clone() {
            self.progress.run.resume_in(state.number, &epoch);
            let (place, step) = if [0, self.options.share.world].contains(&state.world) {
                (state.place.clone(), state.step)
            } else {
                // As if all workers had made as many steps as this one.
                let delivered = state.step.saturating_mul(state.world);
                (state.place.after(epoch.samples, delivered, std::iter::empty()), 0)
            };
            let plan = self.schedule.begin(state.number, epoch, place, step)?;
            self.progress.delivered = plan.map(|plan| (plan, step));
        }
        self.progress.report_loaded();
        Ok(())
    }

    /// Checks that this stream can resume from `state`.
    fn check(&self, state: &State) -> Result<()> {
        let refuse = |why: String| Err(Error::Sample(format!("cannot resume from this state: {why}")));
        let (ring, options) = (&self.reader.ring().descriptor.ring_id, &self.options);
        if state.version != State::VERSION {
            return refuse(format!("its version is {}, this program's is {}", state.version, State::VERSION));
        }
        if state.ring != *ring {
            return refuse(format!("it was saved in ring {}, this is ring {ring}", state.ring));
        }
        if (state.seed, state.shuffle) != (options.seed, options.shuffle) {
            return refuse(format!(
                "it was saved with seed {} and shuffle {}, this stream has seed {} and shuffle {}",
                state.seed, state.shuffle, options.seed, options.shuffle
            ));
        }
        if state.world == options.share.world && state.worker != options.share.rank {
            return refuse(format!(
                "it was saved by worker {}, this is the stream of worker {} (of {})",
                state.worker, options.share.rank, state.world
            ));
        }
        if state.equal != options.equal && state.epoch.is_some() {
            return refuse(format!("it was saved with equal {:?}, this stream has {:?}", state.equal, options.equal));
        }
        Ok(())
    }
}
