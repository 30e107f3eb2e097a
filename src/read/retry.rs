//! Pauses before another try: of opening a ring, or of what a stream reads.

use crate::error::{Error, Result};
use crate::fs::poll::Poller;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pauses before another try, with a message, a time limit and a way out.
pub(crate) struct Retry {
    started: Instant,
    told: Option<Instant>,
    timeout: Option<Duration>,
    /// How long a limit of the system's is waited for, and since when it is.
    lease: Duration,
    exhausted: Option<Instant>,
    poller: Poller,
    /// A directory that is to be watched.
    watched: Option<PathBuf>,
}

/// What is waited for, in words that take requests to a server to find. They are seldom told, so they
/// are found again only once in [`DESCRIBE_EVERY`] polls.
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

    /// A name that comes or goes in `dir` ends a pause, from the second one on: before that nobody may have to wait.
    pub(crate) fn watch(self, dir: &Path) -> Retry {
        Retry { watched: Some(dir.to_owned()), ..self }
    }

    /// One pause, where the error may be gone in a moment: a server that is away, a handle that is older than the ring.
    pub(crate) fn unless_wrong(
        &mut self,
        error: Error,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        match &error {
            Error::Fs { source } if source.is_away() || source.is_stale() || source.is_exhausted() => {
                self.after(error, stop, tell)
            }
            _ => Err(error),
        }
    }

    /// Pauses once after `error`, which may pass. A limit of the system's is waited for no longer
    /// than a lease, because it may be this caller that has to close or free something.
    ///
    /// # Errors
    /// `error` after a lease; as [`Retry::more`].
    pub(crate) fn after(&mut self, error: Error, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<()> {
        if !matches!(&error, Error::Fs { source } if source.is_exhausted()) {
            return self.more(&error.to_string(), stop, tell);
        }
        if self.exhausted.get_or_insert_with(Instant::now).elapsed() > self.lease {
            return Err(error);
        }
        self.pause(&error.to_string(), stop, tell)
    }

    /// One pause.
    pub(crate) fn more(&mut self, what: &str, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<()> {
        self.exhausted = None;
        self.pause(what, stop, tell)
    }

    fn pause(&mut self, what: &str, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let waited = self.started.elapsed();
        let left = self.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(waited));
        if left.is_zero() {
            return Err(Error::Timeout { seconds: waited.as_secs_f64(), what: what.to_owned() });
        }
        if self.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
            tell(what);
            self.told = Some(Instant::now());
        }
        match self.watched.take() {
            // And look once more: what came before the watch was not told.
            Some(dir) => self.poller.start_to_watch(&dir),
            None => self.poller.pause(left, stop),
        }
        if stop() { Err(Error::Interrupted { what: what.to_owned() }) } else { Ok(()) }
    }
}
