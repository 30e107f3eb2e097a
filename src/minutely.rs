//! Limits the log of a long-running role to one line per minute.

use std::time::{Duration, Instant};

/// Minimum time between two lines about ordinary progress.
const EVERY: Duration = Duration::from_secs(60);

/// Decides when the next line about progress is due.
#[derive(Debug)]
pub(crate) struct Minutely {
    last: Option<Instant>,
}

impl Minutely {
    /// Creates a limit whose first line is due in a minute.
    pub fn from_now() -> Minutely {
        Minutely { last: Some(Instant::now()) }
    }

    /// Creates a limit whose first line is due at once.
    pub fn at_once() -> Minutely {
        Minutely { last: None }
    }

    /// Returns whether a line is due. The caller calls this when something changed, and logs a line
    /// if it is due.
    pub fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= EVERY);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_due_once_a_minute() {
        let mut lines = Minutely::at_once();
        assert_eq!([lines.is_due(), lines.is_due(), lines.is_due()], [true, false, false]);
        assert!(!Minutely::from_now().is_due());
        lines.last = Instant::now().checked_sub(EVERY);
        assert_eq!([lines.is_due(), lines.is_due()], [true, false]);
    }
}
