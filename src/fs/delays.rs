//! Measured delays.

use std::time::Duration;

/// Measured delays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Delays of the events that were observed.
    pub seen: Vec<Duration>,
    /// Number of events that were not observed before the time limit.
    pub never: usize,
}

impl Delays {
    /// Returns the median; zero if there is no delay.
    pub fn median(&self) -> Duration {
        let mut sorted = self.seen.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the longest delay; zero if there is none.
    pub fn max(&self) -> Duration {
        self.seen.iter().max().copied().unwrap_or_default()
    }

    /// Adds a delay, or `None` for an event that was not observed.
    pub fn add(&mut self, delay: Option<Duration>) {
        match delay {
            Some(delay) => self.seen.push(delay),
            None => self.never += 1,
        }
    }
}
