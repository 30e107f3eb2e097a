//! The options of a stream.

use crate::read::shard::{Equal, Share};
use crate::run_log::Turn;
use std::time::Duration;

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
    /// The value of every element of a padding sample ([`Equal::Pad`]).
    pub pad_value: f64,
    /// After this many epochs the stream ends; none: never.
    pub epochs: Option<u64>,
    /// It goes on where the run's workers were before: with an epoch that none of them has begun. All ranks take as many
    /// turns, each with the same number of workers. None: it begins with the first epoch.
    pub goes_on: Option<Turn>,
    /// Whether a generation is read again while there is no newer one; else the stream waits for it.
    pub repeat: bool,
    /// Longest wait for a newer generation; `None`: no limit.
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
            pad_value: -100.0,
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
