//! Samples for training that a stream leaves out, such as those that its caller validates with.

use super::Reader;
use super::checkpoint::Remaining;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of generations whose choice is remembered.
const REMEMBERED: usize = 4;

/// Returns the positions in a generation, in any order, of the samples that are left out.
type Choose = dyn Fn(&Arc<Reader>, &Arc<Manifest>) -> Result<Vec<u64>> + Send + Sync;

/// Decides which samples of a generation a stream leaves out. All workers of a run must leave out the same samples.
/// The default leaves out none.
#[derive(Clone, Default)]
pub struct LeaveOut {
    choose: Option<Arc<Choose>>,
    /// The samples of the last generations that are served.
    known: Arc<Mutex<VecDeque<(u64, Remaining)>>>,
}

impl LeaveOut {
    /// Leaves out the samples at the positions that `choose` returns. It is called once for each generation.
    pub fn new(choose: impl Fn(&Arc<Reader>, &Arc<Manifest>) -> Result<Vec<u64>> + Send + Sync + 'static) -> LeaveOut {
        LeaveOut { choose: Some(Arc::new(choose)), known: Arc::default() }
    }

    /// Returns whether samples may be left out.
    pub(crate) fn is_any(&self) -> bool {
        self.choose.is_some()
    }

    /// Returns the positions in a generation that are served: those for training, without those that are left out.
    ///
    /// # Errors
    /// Errors of the function that chooses.
    pub(crate) fn served(&self, reader: &Arc<Reader>, manifest: &Arc<Manifest>) -> Result<Remaining> {
        let training = reader.ring().training(manifest);
        let Some(choose) = &self.choose else { return Ok(Remaining { offset: training.start, skip: Vec::new() }) };
        let generation = manifest.summary.generation;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, served)) = known.iter().find(|(known, _)| *known == generation) {
            return Ok(served.clone());
        }
        let mut skip = choose(reader, manifest)?;
        skip.retain(|position| training.contains(position));
        skip.sort_unstable();
        skip.dedup();
        let served = Remaining { offset: training.start, skip };
        known.truncate(REMEMBERED - 1);
        known.push_front((generation, served.clone()));
        Ok(served)
    }

    /// Returns a served sample of the newest generation to substitute for the one at `position`, when that cannot be
    /// read but a sample must be delivered.
    ///
    /// # Errors
    /// As [`Reader::newest`]; errors of the function that chooses; all samples of the newest generation are left out.
    pub(crate) fn instead_of(&self, reader: &Arc<Reader>, position: u64) -> Result<(Arc<Manifest>, u64)> {
        let newest = reader.newest()?;
        let served = self.served(reader, &newest)?;
        let (generation, samples) = (newest.summary.generation, served.left(newest.summary.samples));
        if samples == 0 {
            let message = format!("all samples of generation {generation} are held out: none is left for training");
            return Err(Error::Sample(message));
        }
        Ok((newest, served.number(position % samples)))
    }
}

impl fmt::Debug for LeaveOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_any() { "LeaveOut(chosen)" } else { "LeaveOut(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_served_samples_skip_those_that_are_left_out() {
        let served = Remaining { offset: 3, skip: vec![3, 5, 6, 9] };
        let positions: Vec<u64> = (0..served.left(12)).map(|n| served.number(n)).collect();
        assert_eq!(positions, [4, 7, 8, 10, 11]);
        assert_eq!(positions.iter().map(|position| served.before(*position)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
