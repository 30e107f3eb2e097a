//! Waits for changes by other processes: polls with jitter, and wakes up earlier if inotify reports
//! a change.

use crate::random::random_u32;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time for which a wait does not check whether to stop.
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

/// Waits between two polls. On a network filesystem, inotify does not report changes of other
/// clients, and this is plain polling.
pub struct Poller {
    poll: Duration,
    bell: Arc<Bell>,
    watcher: Option<RecommendedWatcher>,
    /// A second directory that is watched.
    also: Option<PathBuf>,
}

impl Poller {
    /// Creates a poller that waits for about `poll`.
    pub fn new(poll: Duration) -> Poller {
        Poller { poll, bell: Arc::default(), watcher: None, also: None }
    }

    /// Also ends a pause when a name in `dir` appears or disappears, if the system reports it.
    pub fn watch(mut self, dir: &Path) -> Poller {
        self.start_to_watch(dir);
        self
    }

    /// Like [`Poller::watch`], for an existing poller.
    pub fn start_to_watch(&mut self, dir: &Path) {
        let bell = self.bell.clone();
        self.watcher = watcher(dir, move || bell.ring()).ok();
    }

    /// Watches a second directory until [`Poller::watch_no_more`]. Returns true if the watch is
    /// new, so that the caller has to check the directory once more before it waits. The watch
    /// should not last: the system also wakes the watcher whenever a process lists a directory
    /// inside `dir`.
    pub fn also_watch(&mut self, dir: &Path) -> bool {
        let Some(watcher) = self.watcher.as_mut().filter(|_| self.also.is_none()) else { return false };
        let watches = watcher.watch(dir, RecursiveMode::NonRecursive).is_ok();
        self.also = watches.then(|| dir.to_owned());
        watches
    }

    /// Ends the watch on the second directory.
    pub fn watch_no_more(&mut self) {
        if let (Some(watcher), Some(dir)) = (&mut self.watcher, self.also.take()) {
            let _ = watcher.unwatch(&dir);
        }
    }

    /// Waits for about the polling interval (at most `limit`), or until a name changed, or until
    /// `stop` returns true, which is checked every 50 ms.
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

/// Calls `on_change` when a name in `dir` appears or disappears, or may have done so, if the system
/// reports it.
pub fn watcher(dir: &Path, on_change: impl Fn() + Send + 'static) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| !event.kind.is_access()) {
            on_change();
        }
    })?;
    watcher.watch(dir, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Returns `time` ± 25 %, so that many processes do not poll at the same moment.
pub fn jittered(time: Duration) -> Duration {
    let spread = f64::from(random_u32()) / f64::from(u32::MAX);
    time.mul_f64(0.75 + 0.5 * spread)
}
