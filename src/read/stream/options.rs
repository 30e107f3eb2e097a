//! The options of a stream.

use crate::error::{Error, Result};
use crate::read::leave_out::LeaveOut;
use crate::read::shard::{Equal, Share};
use crate::run_log::Turn;
use std::collections::BTreeMap;
use std::time::Duration;

/// Options of a stream.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Which worker this is, of how many that read together.
    pub share: Share,
    /// Whether each epoch has a different, shuffled order.
    pub shuffle: bool,
    /// The shuffle seed.
    pub seed: u64,
    /// How all workers get the same number of steps.
    pub equal: Equal,
    /// The value of every element of a padding sample ([`Equal::Pad`]).
    pub pad_value: f64,
    /// The values of the elements of the parts that it names, in place of `pad_value`.
    pub pad_values: BTreeMap<String, f64>,
    /// Number of epochs after which the stream ends; `None`: it never ends.
    pub epochs: Option<u64>,
    /// Continues the run after its workers' previous turn, with an epoch that none of them has begun. All ranks must
    /// take the same number of turns, each with the same number of workers. `None`: begins with the first epoch.
    pub goes_on: Option<Turn>,
    /// Whether a generation is read again while there is no newer one. If not, the stream waits.
    pub repeat: bool,
    /// Longest wait for a newer generation; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Most bytes of samples to prefetch (but at least one sample); 0: no prefetch.
    pub prefetch_bytes: u64,
    /// Number of prefetch threads.
    pub threads: usize,
    /// Name of the run; `None`: a new run.
    pub run: Option<String>,
    /// Name of a past run to replay. The stream reads the same samples in the same order and does not take part in a
    /// run.
    pub replay: Option<String>,
    /// Which samples for training are left out.
    pub leave_out: LeaveOut,
}

impl StreamOptions {
    /// Returns the value of the elements of part `name` of a padding sample.
    pub(crate) fn pad_value_of(&self, name: &str) -> f64 {
        self.pad_values.get(name).copied().unwrap_or(self.pad_value)
    }

    /// Checks that `pad_values` names only `parts`, the parts of the ring's samples.
    ///
    /// # Errors
    /// [`Error::Sample`]: it names another part.
    pub(crate) fn check_pad_values(&self, parts: &[String]) -> Result<()> {
        match self.pad_values.keys().find(|name| !parts.contains(name)) {
            Some(name) => {
                Err(Error::Sample(format!("pad_value: no part {name:?}; the parts are {}", parts.join(", "))))
            }
            None => Ok(()),
        }
    }
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            share: Share::ALL,
            shuffle: false,
            seed: 0,
            equal: Equal::No,
            pad_value: -100.0,
            pad_values: BTreeMap::new(),
            epochs: None,
            goes_on: None,
            repeat: true,
            timeout: None,
            prefetch_bytes: 0,
            threads: 1,
            run: None,
            replay: None,
            leave_out: LeaveOut::default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pad_values_replace_pad_value_for_the_parts_that_they_name() {
        let pad_values = BTreeMap::from([("input_ids".to_owned(), 0.0)]);
        let options = StreamOptions { pad_value: 7.0, pad_values, ..StreamOptions::default() };
        assert_eq!((options.pad_value_of("input_ids"), options.pad_value_of("labels")), (0.0, 7.0));
        let parts = ["labels", "input_ids"].map(str::to_owned);
        options.check_pad_values(&parts).unwrap();
        let error = options.check_pad_values(&parts[..1]).unwrap_err();
        assert_eq!(error.to_string(), "pad_value: no part \"input_ids\"; the parts are labels");
    }
}
