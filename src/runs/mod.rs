//! Runs: workers that read together and follow the same sequence of generations, which their logs
//! ([`run_log`](crate::run_log)) record.
//!
//! | file | contents |
//! |---|---|
//! | here | the logs that this process follows |
//! | `progress` | the positions of the workers of a run |
//! | `grace` | how long the generations of a killed run are kept |
//! | `pins` | which generations are still needed |
//! | `passes` | how often a generation was read |
//! | `retire` | removes the notes of runs that have ended |

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

/// Most generations that are kept for readers that are behind. If there are more, the oldest is given up.
pub const MAX_PINNED: usize = 16;

impl Ring {
    /// Returns the log of run `name`.
    ///
    /// # Errors
    /// An invalid name.
    pub fn run(&self, name: &str) -> Result<Arc<RunLog>> {
        let mut logs = self.steps.run_logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(name) {
            return Ok(log.clone());
        }
        let log = Arc::new(RunLog::new(self.coordination.clone(), name)?);
        logs.insert(name.to_owned(), log.clone());
        Ok(log)
    }

    /// Forgets run `name`, which this process no longer follows.
    pub(crate) fn forget_run(&self, name: &str) {
        self.steps.run_logs.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns the names of all runs that have a log.
    ///
    /// # Errors
    /// The index is unreachable.
    pub fn run_names(&self) -> Result<Vec<String>> {
        let over = self.coordination.note_names(LOGS)?;
        let over = over.iter().filter_map(|name| name.split_once('.')).map(|(_, name)| name.to_owned());
        let names: BTreeSet<String> = self.coordination.note_names(RUNS)?.into_iter().chain(over).collect();
        Ok(names.into_iter().filter(|name| is_run_name(name)).collect())
    }
}
