//! Times that were measured, one by one.

use std::time::Duration;

/// Times that were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Of what was seen.
    pub seen: Vec<Duration>,
    /// How many were not, for as long as anybody looked.
    pub never: usize,
}

impl Delays {
    /// Half of them are not longer.
    pub fn median(&self) -> Duration {
        let mut sorted = self.seen.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.seen.iter().max().copied().unwrap_or_default()
    }

    /// Adds one.
    pub fn add(&mut self, delay: Option<Duration>) {
        match delay {
            Some(delay) => self.seen.push(delay),
            None => self.never += 1,
        }
    }
}
