//! Waiting for somebody else to do something: polling with jitter, which inotify cuts short where it fires.

use crate::random::random_u32;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for which a wait does not ask whether it shall stop.
const SLICE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    cond: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.cond.notify_all();
    }
}

/// Waits between two looks. On a network filesystem inotify is silent and this is plain polling.
pub struct Poller {
    poll: Duration,
    bell: Arc<Bell>,
    watcher: Option<RecommendedWatcher>,
    /// What is watched besides.
    also: Option<PathBuf>,
}

impl Poller {
    /// Looks again after about `poll`.
    pub fn new(poll: Duration) -> Poller {
        Poller { poll, bell: Arc::default(), watcher: None, also: None }
    }

    /// Also looks again as soon as a name comes or goes in `dir`, where the system tells.
    pub fn watch(mut self, dir: &Path) -> Poller {
        self.start_to_watch(dir);
        self
    }

    /// The same, later on.
    pub fn start_to_watch(&mut self, dir: &Path) {
        let bell = self.bell.clone();
        self.watcher = watcher(dir, move || bell.ring()).ok();
    }

    /// For now, a name that comes or goes in `dir` ends a pause, too. True: only from now on, so that whoever waits looks once
    /// more before. (The system also tells the watcher whenever somebody lists a directory in it: not for ever.)
    pub fn also_watch(&mut self, dir: &Path) -> bool {
        let Some(watcher) = self.watcher.as_mut().filter(|_| self.also.is_none()) else { return false };
        let watches = watcher.watch(dir, RecursiveMode::NonRecursive).is_ok();
        self.also = watches.then(|| dir.to_owned());
        watches
    }

    /// The end of that.
    pub fn watch_no_more(&mut self) {
        if let (Some(watcher), Some(dir)) = (&mut self.watcher, self.also.take()) {
            let _ = watcher.unwatch(&dir);
        }
    }

    /// Waits for about the polling time (at most `limit`), or until a name changed, or until `stop` says so (asked
    /// every 50 ms).
    pub fn pause(&self, limit: Duration, stop: &dyn Fn() -> bool) {
        let end = Instant::now() + jittered(self.poll).min(limit);
        let mut rung = self.bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stop() {
                break;
            }
            rung = self.bell.cond.wait_timeout(rung, left.min(SLICE)).unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }
}

/// Calls `on_change` when a name comes or goes in `dir`, or may have, where the system reports it.
pub fn watcher(dir: &Path, on_change: impl Fn() + Send + 'static) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| !event.kind.is_access()) {
            on_change();
        }
    })?;
    watcher.watch(dir, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// `time` ± 25 %, so that a thousand processes do not look in the same instant.
pub fn jittered(time: Duration) -> Duration {
    let spread = f64::from(random_u32()) / f64::from(u32::MAX);
    time.mul_f64(0.75 + 0.5 * spread)
}
