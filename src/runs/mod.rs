//! Runs: workers that read together and follow the same sequence of generations, as their logs
//! ([`run_log`](crate::run_log)) tell.
//!
//! | file | |
//! |---|---|
//! | here | the logs that this process follows |
//! | `progress` | where the workers of a run are |
//! | `grace` | how long what a killed run has still to read is kept |
//! | `pins` | which generations are still needed |
//! | `passes` | how often a generation was read |
//! | `retire` | runs that are over are put away |

mod grace;
mod passes;
mod pins;
mod progress;
mod retire;

use crate::error::Result;
use crate::ring::Ring;
use crate::run_log::{LOGS, RUNS, RunLog, is_run_name};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Generations that are kept for readers that are behind, at most; of more, the oldest is given up.
pub const MAX_PINNED: usize = 16;

impl Ring {
    /// The log of run `name`.
    ///
    /// # Errors
    /// A name that cannot be one.
    pub fn run(&self, name: &str) -> Result<Arc<RunLog>> {
        let mut logs = self.steps.run_logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(name) {
            return Ok(log.clone());
        }
        let log = Arc::new(RunLog::new(self.coordination.clone(), name)?);
        logs.insert(name.to_owned(), log.clone());
        Ok(log)
    }

    /// Forgets run `name`, which this process follows no more.
    pub(crate) fn forget_run(&self, name: &str) {
        self.steps.run_logs.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The names of all runs whose logs are kept.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn run_names(&self) -> Result<Vec<String>> {
        let over = self.coordination.note_names(LOGS)?;
        let over = over.iter().filter_map(|name| name.split_once('.')).map(|(_, name)| name.to_owned());
        let names: BTreeSet<String> = self.coordination.note_names(RUNS)?.into_iter().chain(over).collect();
        Ok(names.into_iter().filter(|name| is_run_name(name)).collect())
    }
}
