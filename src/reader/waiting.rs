//! A reader that waits.

use crate::error::{Error, Result};
use crate::fs::watch::Pacer;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waiting with a message, a time limit and a way out.
pub(crate) struct Waiting {
    started: Instant,
    told: Option<Instant>,
    timeout: Option<Duration>,
    pacer: Pacer,
    /// A directory that is to be watched.
    watched: Option<PathBuf>,
}

/// Time between two messages of one wait.
const TELL_EVERY: Duration = Duration::from_secs(10);

impl Waiting {
    pub(crate) fn new(timeout: Option<Duration>, poll: Duration) -> Waiting {
        Waiting { started: Instant::now(), told: None, timeout, pacer: Pacer::new(poll), watched: None }
    }

    /// A name that comes or goes in `dir` ends a pause, from the second one on: before that nobody may have to wait.
    pub(crate) fn watch(self, dir: &Path) -> Waiting {
        Waiting { watched: Some(dir.to_owned()), ..self }
    }

    /// One pause, where the error may be gone in a moment: a server that is away, a handle that is older than the ring.
    pub(super) fn unless_wrong(
        &mut self,
        error: Error,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        match &error {
            Error::Fs { source } if source.is_away() || source.is_stale() => self.more(&error.to_string(), stop, tell),
            _ => Err(error),
        }
    }

    /// One pause.
    pub(crate) fn more(&mut self, what: &str, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<()> {
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
            Some(dir) => self.pacer.start_to_watch(&dir),
            None => self.pacer.pause(left, stop),
        }
        if stop() { Err(Error::Interrupted { what: what.to_owned() }) } else { Ok(()) }
    }
}
