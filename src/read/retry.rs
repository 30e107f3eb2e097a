//! Pauses between attempts to open a ring or to read the next step of a stream.

use crate::error::{Error, Result};
use crate::fs::poll::Poller;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The caller of a function that may wait.
pub(crate) struct Caller<'c> {
    /// Returns whether to stop waiting.
    pub(crate) stop: &'c dyn Fn() -> bool,
    /// Gets what is waited for.
    pub(crate) tell: &'c mut dyn FnMut(&str),
}

/// Pauses between attempts, with messages, a time limit and a stop callback.
pub(crate) struct Retry {
    started: Instant,
    told: Option<Instant>,
    timeout: Option<Duration>,
    /// How long to wait while a limit of the system is exhausted, and since when it is.
    lease: Duration,
    exhausted: Option<Instant>,
    poller: Poller,
    /// A directory to watch from the second pause on.
    watched: Option<PathBuf>,
}

/// A description of what is waited for, which takes requests to a server. Messages are rare, so it is only made again
/// after [`DESCRIBE_EVERY`] polling intervals.
#[derive(Default)]
pub(crate) struct Described(Option<(Instant, String)>);

const DESCRIBE_EVERY: u32 = 20;

impl Described {
    pub(crate) fn text(&mut self, poll: Duration, describe: impl FnOnce() -> String) -> String {
        let known = self.0.take().filter(|(at, _)| at.elapsed() < poll * DESCRIBE_EVERY);
        let (at, text) = known.unwrap_or_else(|| (Instant::now(), describe()));
        self.0 = Some((at, text.clone()));
        text
    }
}

/// Time between two messages of one wait.
const TELL_EVERY: Duration = Duration::from_secs(20);

impl Retry {
    pub(crate) fn new(timeout: Option<Duration>, poll: Duration, lease: Duration) -> Retry {
        let (started, poller) = (Instant::now(), Poller::new(poll));
        Retry { started, told: None, timeout, lease, exhausted: None, poller, watched: None }
    }

    /// Watches `dir`: from the second pause on, a name that appears or disappears in it ends a pause. The first pause
    /// only starts the watch, since most callers do not wait at all.
    pub(crate) fn watch(self, dir: &Path) -> Retry {
        Retry { watched: Some(dir.to_owned()), ..self }
    }

    /// Pauses once if the error may be transient: an unreachable server, a stale handle, an exhausted limit. Returns
    /// all others.
    pub(crate) fn unless_wrong(&mut self, error: Error, caller: &mut Caller<'_>) -> Result<()> {
        match &error {
            Error::Fs { source } if source.is_away() || source.is_stale() || source.is_exhausted() => {
                self.after(error, caller)
            }
            _ => Err(error),
        }
    }

    /// Pauses once after `error`, which may be transient. Waits no longer than a lease for an exhausted limit of the
    /// system, because this caller may be the one that has to close or free something.
    ///
    /// # Errors
    /// `error` after a lease; else as [`Retry::more`].
    pub(crate) fn after(&mut self, error: Error, caller: &mut Caller<'_>) -> Result<()> {
        if !matches!(&error, Error::Fs { source } if source.is_exhausted()) {
            return self.more(&error.to_string(), caller);
        }
        if self.exhausted.get_or_insert_with(Instant::now).elapsed() > self.lease {
            return Err(error);
        }
        self.pause(&error.to_string(), caller)
    }

    pub(crate) fn more(&mut self, what: &str, caller: &mut Caller<'_>) -> Result<()> {
        self.exhausted = None;
        self.pause(what, caller)
    }

    fn pause(&mut self, what: &str, caller: &mut Caller<'_>) -> Result<()> {
        let waited = self.started.elapsed();
        let left = self.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(waited));
        if left.is_zero() {
            return Err(Error::Timeout { seconds: waited.as_secs_f64(), what: what.to_owned() });
        }
        if self.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
            (caller.tell)(what);
            self.told = Some(Instant::now());
        }
        match self.watched.take() {
            // Return at once so that the caller checks again: changes before the watch were not noticed.
            Some(dir) => self.poller.watch(&dir),
            None => self.poller.pause(left, caller.stop),
        }
        if (caller.stop)() { Err(Error::Interrupted { what: what.to_owned() }) } else { Ok(()) }
    }
}
