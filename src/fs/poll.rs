//! Waits for changes by other processes: polls with jitter, and wakes up earlier if inotify reports
//! a change.

use crate::random::random_u32;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Maximum time for which a wait does not check whether to stop.
const SLICE: Duration = Duration::from_millis(50);

/// Waits between two polls. On a network filesystem, inotify does not report changes of other
/// clients, and this is plain polling.
pub struct Poller {
    poll: Duration,
    /// Receives the changes that end a pause; one that occurs between two pauses ends the next one.
    changes: Receiver<()>,
    on_change: SyncSender<()>,
    watcher: Option<RecommendedWatcher>,
    /// A second directory that is watched.
    also: Option<PathBuf>,
}

impl Poller {
    /// Creates a poller that waits for about `poll`.
    pub fn new(poll: Duration) -> Poller {
        let (on_change, changes) = sync_channel(1);
        Poller { poll, changes, on_change, watcher: None, also: None }
    }

    /// Also ends a pause when a name in `dir` appears or disappears, if the system reports it.
    pub fn watch(&mut self, dir: &Path) {
        let on_change = self.on_change.clone();
        self.watcher = watcher(dir, move || on_change.try_send(()).unwrap_or_default()).ok();
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
        let mut left = Duration::ZERO;
        while self.changes.recv_timeout(left.min(SLICE)).is_err() {
            left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stop() {
                break;
            }
        }
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
