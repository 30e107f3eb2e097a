//! Limits the log of a role that works for days: a line a minute at most.

use std::time::{Duration, Instant};

/// Least time between two lines about ordinary progress.
const EVERY: Duration = Duration::from_secs(60);

/// Says when the next line about progress is due.
#[derive(Debug)]
pub(crate) struct Minutely {
    every: Duration,
    last: Option<Instant>,
}

impl Minutely {
    /// The first line is due a minute after now.
    pub fn from_now() -> Minutely {
        Minutely { every: EVERY, last: Some(Instant::now()) }
    }

    /// The first line is due at once.
    pub fn at_once() -> Minutely {
        Minutely { every: EVERY, last: None }
    }

    /// Whether a line is due. The caller asks when something changed, and then logs it.
    pub fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
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
        lines.every = Duration::ZERO;
        assert!(lines.is_due() && lines.is_due());
    }
}
