//! The log of outages: the first one is logged, then at most one of a kind per minute.

use std::time::{Duration, Instant};

/// An outage of the same kind as the last one logged is not logged again within this time.
const QUIET: Duration = Duration::from_secs(60);

/// Why the server does not answer, and what has been logged about it.
#[derive(Default)]
pub struct OutageLog {
    /// Why the last operation failed.
    pub why: String,
    /// Whether the present outage was logged.
    pub logged_now: bool,
    last_logged: Option<(String, Instant)>,
    /// Number of outages since the last one that was logged.
    suppressed: u32,
}

impl OutageLog {
    /// Records an outage (`silent`) or a failed operation, and logs it if it is due.
    pub fn outage(&mut self, shown: &str, why: &str, silent: bool) {
        why.clone_into(&mut self.why);
        let due = self
            .last_logged
            .as_ref()
            .is_none_or(|(last, when)| when.elapsed() > QUIET || last.split('(').next() != why.split('(').next());
        if silent {
            self.logged_now = due;
        }
        if !due {
            self.suppressed += 1;
            return;
        }
        let more = if self.suppressed > 0 {
            format!(" ({} more since the last message)", self.suppressed)
        } else {
            String::new()
        };
        if silent {
            tracing::warn!("{shown}: {why}{more}. The ring continues without its index until the server answers");
        } else {
            tracing::warn!("{shown}: {why}{more}. The ring continues without this operation");
        }
        (self.last_logged, self.suppressed) = (Some((why.to_owned(), Instant::now())), 0);
    }
}
