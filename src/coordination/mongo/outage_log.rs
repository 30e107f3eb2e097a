//! The log of outages: the first one, and then at most one of a kind a minute.

use std::time::{Duration, Instant};

/// An outage like the last one that was logged is not logged again within this time.
const QUIET: Duration = Duration::from_secs(60);

/// Why the server does not answer, and what was logged of that.
#[derive(Default)]
pub struct OutageLog {
    /// Why the last operation failed.
    pub why: String,
    /// Whether the present outage was logged.
    pub logged_now: bool,
    last_logged: Option<(String, Instant)>,
    /// Outages since the last one that was logged.
    suppressed: u32,
}

impl OutageLog {
    /// Notes an outage (`silent`), or an operation that failed, and logs it if it is due.
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
            format!(" ({} times more since that was told last)", self.suppressed)
        } else {
            String::new()
        };
        if silent {
            tracing::warn!("{shown}: {why}{more}. The ring goes on without its index until it answers");
        } else {
            tracing::warn!("{shown}: {why}{more}. The ring goes on without that");
        }
        (self.last_logged, self.suppressed) = (Some((why.to_owned(), Instant::now())), 0);
    }
}
