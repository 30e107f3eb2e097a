//! Where a stream is, so that another one can go on from there: after the end of a job, in another process, with another
//! number of workers.

use super::shard::Equal;
use super::stream::options::StreamOptions;
use crate::error::{Error, Result};
use crate::run_log::Epoch;
use serde::{Deserialize, Serialize};

/// Which numbers of an epoch's order are still to be shared among the workers: those from `offset` on, but for `skip`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remaining {
    /// Numbers below it were given.
    pub offset: u64,
    /// Numbers from it on that were given, too, in ascending order.
    pub skip: Vec<u64>,
}

impl Remaining {
    /// How many are left of an epoch of `samples`.
    pub fn left(&self, samples: u64) -> u64 {
        samples.saturating_sub(self.offset).saturating_sub(self.skip.len() as u64)
    }

    /// The `n`-th of those that are left.
    pub fn number(&self, n: u64) -> u64 {
        // Those that are skipped before it move it on.
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

    /// The place after these of those that are left were given: all below `first`, and `more`.
    fn after(&self, samples: u64, first: u64, more: &[u64]) -> Remaining {
        let left = self.left(samples);
        let offset = if first < left { self.number(first) } else { samples };
        let given = more.iter().filter(|n| **n < left).map(|n| self.number(*n));
        let mut skip: Vec<u64> = self.skip.iter().copied().chain(given).filter(|n| *n >= offset).collect();
        skip.sort_unstable();
        skip.dedup();
        Remaining { offset, skip }
    }
}

/// Where a stream is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Of this structure.
    pub version: u32,
    /// The ring's id.
    pub ring: String,
    /// The run.
    pub run: String,
    /// The seed of its orders.
    pub seed: u64,
    /// Whether it shuffles.
    pub shuffle: bool,
    /// What makes all workers have the same number of steps.
    pub equal: Equal,
    /// How many workers there are; 0: it holds for any number of them, who all begin with the first step.
    pub world: u64,
    /// Which one it is.
    pub worker: u64,
    /// Epochs that are behind it.
    pub finished: u64,
    /// The run's number of its epoch.
    pub number: u64,
    /// The epoch that it is in; none between two.
    pub epoch: Option<Epoch>,
    /// What of it is shared among the workers.
    pub place: Remaining,
    /// How many steps of its share it gave.
    pub step: u64,
}

impl State {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Whether a stream with these options may go on from here.
    ///
    /// # Errors
    /// What differs.
    pub fn fits(&self, ring: &str, options: &StreamOptions) -> Result<()> {
        let refuse = |why: String| Err(Error::Sample(format!("this state cannot be gone on from: {why}")));
        if self.version != State::VERSION {
            return refuse(format!("its version is {}, this program's is {}", self.version, State::VERSION));
        }
        if self.ring != ring {
            return refuse(format!("it is of ring {}, this is ring {ring}", self.ring));
        }
        if (self.seed, self.shuffle) != (options.seed, options.shuffle) {
            return refuse(format!(
                "it was saved with seed {} and shuffle {}, this stream has seed {} and shuffle {}",
                self.seed, self.shuffle, options.seed, options.shuffle
            ));
        }
        if self.world == options.share.world && self.worker != options.share.rank {
            return refuse(format!(
                "it is worker {}'s, this is worker {}'s stream (of {})",
                self.worker, options.share.rank, self.world
            ));
        }
        if self.equal != options.equal && self.epoch.is_some() {
            return refuse(format!("it was saved with equal {:?}, this stream has {:?}", self.equal, options.equal));
        }
        Ok(())
    }

    /// Where to go on with `world` workers: with as many as before, exactly here; with another number, what is left is
    /// shared anew, as if all workers had given as many steps as this one.
    pub fn place_for(&self, world: u64) -> (Remaining, u64) {
        if world == self.world || self.world == 0 {
            return (self.place.clone(), self.step);
        }
        let samples = self.epoch.as_ref().map_or(0, |epoch| epoch.samples);
        (self.place.after(samples, self.step.saturating_mul(self.world), &[]), 0)
    }

    /// The same; where all of its epoch was given, between that and the next one.
    fn at_end(&self) -> State {
        let share = crate::read::shard::Share { rank: self.worker, world: self.world };
        match &self.epoch {
            Some(epoch) if self.world > 0 => {
                if self.step < share.equal_steps(self.place.left(epoch.samples), self.equal) {
                    return self.clone();
                }
            }
            _ => return self.clone(),
        }
        let (finished, number) = (self.finished + 1, self.number + 1);
        State { epoch: None, place: Remaining::default(), step: 0, finished, number, ..self.clone() }
    }

    /// One state that holds for all workers, from the states of each of them, wherever each of them is in the epoch.
    ///
    /// # Errors
    /// States that do not belong together, or not those of all workers.
    pub fn merge(states: &[State]) -> Result<State> {
        let refuse = |why: &str| Err(Error::Sample(format!("these states do not belong together: {why}")));
        // Who was given all of an epoch stands before the next one.
        let stand: Vec<State> = states.iter().map(State::at_end).collect();
        let Some(first) = stand.iter().min_by_key(|state| state.number) else {
            return refuse("there are none");
        };
        let mut workers: Vec<u64> = states.iter().map(|state| state.worker).collect();
        workers.sort_unstable();
        if workers != (0..first.world).collect::<Vec<_>>() {
            return refuse(&format!("they are of workers {workers:?}, and there are {}", first.world));
        }
        let same = |state: &State| {
            (&state.ring, state.seed, state.shuffle, state.equal, state.world)
                == (&first.ring, first.seed, first.shuffle, first.equal, first.world)
        };
        if !states.iter().all(same) {
            return refuse("they differ in ring, seed, order or number of workers");
        }
        let Some((epoch, begun)) =
            states.iter().filter(|state| state.number == first.number).find_map(|s| s.epoch.as_ref().map(|e| (e, s)))
        else {
            // Nobody has begun the epoch of whoever is last.
            return if stand.iter().all(|state| state.number == first.number) {
                Ok(State { worker: 0, world: 0, ..first.clone() })
            } else {
                refuse("some workers have left an epoch that others have not begun")
            };
        };
        let left = begun.place.left(epoch.samples);
        let mut steps = Vec::new();
        for (state, stand) in states.iter().zip(&stand) {
            let share = crate::read::shard::Share { rank: state.worker, world: state.world };
            let step = match (&state.epoch, &stand.epoch) {
                (Some(own), _) if state.number == first.number => {
                    if own != epoch || state.place != begun.place {
                        return refuse("they are of different epochs (workers of one run read the same ones: name it)");
                    }
                    state.step
                }
                (_, None) if stand.number == first.number => 0,
                (_, None) if stand.number == first.number + 1 => share.equal_steps(left, state.equal),
                _ => return refuse("some workers are more than an epoch ahead of others"),
            };
            steps.push((state.worker, step));
        }
        let least = steps.iter().map(|(_, step)| *step).min().unwrap_or(0);
        let world = first.world;
        let more: Vec<u64> =
            steps.iter().flat_map(|(worker, step)| (least..*step).map(move |n| worker + n * world)).collect();
        let place = begun.place.after(epoch.samples, least * first.world, &more);
        Ok(State { place, step: 0, finished: first.finished, worker: 0, world: 0, ..begun.clone() })
    }
}
