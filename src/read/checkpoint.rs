//! The state of a stream, from which another stream resumes: in another process, after the end of a job, or with
//! another number of workers.

use super::shard::{Equal, Share};
use crate::error::{Error, Result};
use crate::run_log::Epoch;
use serde::{Deserialize, Serialize};

/// The numbers of an epoch's order that are still to be delivered: those from `offset` on, except `skip`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remaining {
    /// All numbers below it were delivered.
    pub offset: u64,
    /// Numbers from `offset` on that were also delivered, in ascending order.
    pub skip: Vec<u64>,
}

impl Remaining {
    /// Returns how many of `samples` are left.
    pub fn left(&self, samples: u64) -> u64 {
        samples.saturating_sub(self.offset).saturating_sub(self.skip.len() as u64)
    }

    /// Returns the `n`-th number that is left.
    pub fn number(&self, n: u64) -> u64 {
        // Skipped numbers below it shift it up.
        let before = self.skip.partition_point(|skip| *skip <= self.offset + n);
        let mut number = self.offset + n + before as u64;
        for skip in &self.skip[before..] {
            if *skip > number {
                break;
            }
            number += 1;
        }
        number
    }

    /// Returns how many numbers that are left are below `number`.
    pub(crate) fn before(&self, number: u64) -> u64 {
        let skipped = self.skip.partition_point(|skip| *skip < number) as u64;
        number.saturating_sub(self.offset).saturating_sub(skipped)
    }

    /// Returns what is left after these of the numbers that were left are delivered: all below `first`, and `more`.
    pub(crate) fn after(&self, samples: u64, first: u64, more: impl Iterator<Item = u64>) -> Remaining {
        let left = self.left(samples);
        let offset = if first < left { self.number(first) } else { samples };
        let given = more.filter(|n| *n < left).map(|n| self.number(n));
        let mut skip: Vec<u64> = self.skip.iter().copied().chain(given).filter(|n| *n >= offset).collect();
        skip.sort_unstable();
        skip.dedup();
        Remaining { offset, skip }
    }
}

/// The state of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this structure.
    pub version: u32,
    /// The ring's id.
    pub ring: String,
    /// The run.
    pub run: String,
    /// The shuffle seed.
    pub seed: u64,
    /// Whether it shuffles.
    pub shuffle: bool,
    /// How all workers get the same number of steps.
    pub equal: Equal,
    /// Number of workers. 0: the state holds for any number of workers, all at their first step.
    pub world: u64,
    /// The worker whose state it is.
    pub worker: u64,
    /// Epochs that the stream has finished.
    pub finished: u64,
    /// Number of its epoch in the run.
    pub number: u64,
    /// The epoch that is being read; `None` between two epochs.
    pub epoch: Option<Epoch>,
    /// The part of the epoch that is shared among the workers.
    pub place: Remaining,
    /// Steps of its share that the worker has delivered.
    pub step: u64,
}

impl State {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Returns the number of steps of its worker if `left` samples are shared.
    fn steps(&self, left: u64) -> u64 {
        Share { rank: self.worker, world: self.world }.equal_steps(left, self.equal)
    }

    /// Returns the state; if all of its epoch was delivered, as one between that epoch and the next.
    fn at_end(&self) -> State {
        let is_read = |epoch: &Epoch| self.world > 0 && self.step >= self.steps(self.place.left(epoch.samples));
        if !self.epoch.as_ref().is_some_and(is_read) {
            return self.clone();
        }
        let (finished, number) = (self.finished + 1, self.number + 1);
        State { epoch: None, place: Remaining::default(), step: 0, finished, number, ..self.clone() }
    }

    /// Merges the states of all workers, at any place in the epoch, into one state that holds for all of them.
    ///
    /// # Errors
    /// States that do not belong together, or that are not from all workers.
    pub fn merge(states: &[State]) -> Result<State> {
        let refuse = |why: &str| Err(Error::Sample(format!("cannot merge these states: {why}")));
        // A worker that has delivered all of an epoch is at the beginning of the next one.
        let stand: Vec<State> = states.iter().map(State::at_end).collect();
        let Some(first) = stand.iter().min_by_key(|state| state.number) else {
            return refuse("the list is empty");
        };
        let mut workers: Vec<u64> = states.iter().map(|state| state.worker).collect();
        workers.sort_unstable();
        if !workers.iter().copied().eq(0..first.world) {
            return refuse(&format!("they are from workers {workers:?}, but there are {} workers", first.world));
        }
        let same = |state: &State| {
            (&state.ring, state.seed, state.shuffle, state.equal, state.world)
                == (&first.ring, first.seed, first.shuffle, first.equal, first.world)
        };
        if !states.iter().all(same) {
            return refuse("they differ in ring, seed, shuffling, equal or number of workers");
        }
        let Some((epoch, begun)) =
            states.iter().filter(|state| state.number == first.number).find_map(|s| s.epoch.as_ref().map(|e| (e, s)))
        else {
            // No worker has begun the epoch of the worker that is furthest behind.
            return if stand.iter().all(|state| state.number == first.number) {
                Ok(State { worker: 0, world: 0, ..first.clone() })
            } else {
                refuse("some workers have left an epoch that others have not begun")
            };
        };
        let left = begun.place.left(epoch.samples);
        let mut steps = Vec::new();
        for (state, stand) in states.iter().zip(&stand) {
            let step = match (&state.epoch, &stand.epoch) {
                (Some(own), _) if state.number == first.number => {
                    if own != epoch || state.place != begun.place {
                        let why = "they are in different epochs; give all workers the same run, so that they read the \
                                   same epochs";
                        return refuse(why);
                    }
                    state.step
                }
                (_, None) if stand.number == first.number => 0,
                (_, None) if stand.number == first.number + 1 => state.steps(left),
                _ => return refuse("some workers are more than an epoch ahead of others"),
            };
            steps.push((state.worker, step));
        }
        let (world, least) = (first.world, steps.iter().map(|(_, step)| *step).min().unwrap_or(0));
        let more = steps.iter().flat_map(|(worker, step)| (least..*step).map(move |n| worker + n * world));
        let place = begun.place.after(epoch.samples, least * world, more);
        Ok(State { place, step: 0, finished: first.finished, worker: 0, world: 0, ..begun.clone() })
    }
}
