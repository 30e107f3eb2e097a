//! File notifications that wake a manager between two polls: new names in the filling generation,
//! and notes of readers. They only save time; correctness does not depend on them.

use super::Manager;
use crate::coordination::files::NOTES;
use crate::fs::poll::watcher;
use crate::run_log::{PASSES, WORKERS};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Watches the directory of the filling generation until it is dropped.
pub(crate) struct ChangeWatch {
    /// The generation, and the inode of its directory, which may be removed and created again.
    of: (u64, (u64, u64)),
    changed: Arc<AtomicBool>,
    _watcher: RecommendedWatcher,
}

impl ChangeWatch {
    /// Returns whether a name appeared or disappeared since the last call.
    pub(crate) fn take(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}

impl Manager {
    /// Returns a watch on the filling generation: `watching`, or a new one if another directory
    /// fills now. On a network filesystem it only checks for another generation number, which costs
    /// no request, because no notifications about other clients arrive there.
    pub(crate) fn watch_filling(&self, watching: Option<ChangeWatch>, bell: &Arc<Notify>) -> Option<ChangeWatch> {
        let (ring, local) = (&self.ring, self.ring.settings.kind.local);
        let newest = if local { ring.manifests.newest() } else { ring.manifests.newest_known() };
        let filling = newest.map_or(0, |newest| newest + 1);
        if !local && watching.as_ref().is_some_and(|it| it.of.0 == filling) {
            return watching;
        }
        let write = ring.layout.write(filling);
        // After a false "not found", there is no watch until the next poll.
        let of = ring.fs.identity(&write).ok().map(|found| (filling, found.inode));
        if watching.as_ref().is_some_and(|it| Some(it.of) == of) {
            return watching;
        }
        let watch = of.and_then(|of| self.watch(&write, of, bell))?;
        bell.notify_one(); // the watcher does not report changes made before it started
        Some(watch)
    }

    fn watch(&self, path: &Path, of: (u64, (u64, u64)), bell: &Arc<Notify>) -> Option<ChangeWatch> {
        let changed = Arc::new(AtomicBool::new(true));
        let (noticed, bell) = (changed.clone(), bell.clone());
        let watcher = watcher(path, move || {
            noticed.store(true, Ordering::Relaxed);
            bell.notify_one();
        });
        Some(ChangeWatch { of, changed, _watcher: watcher.ok()? })
    }

    /// Watches the folders of the current runs. They are listed through the ring's filesystem,
    /// which follows no link out of the ring.
    pub(crate) fn watch_notes(&self, bell: &Arc<Notify>) -> Option<RecommendedWatcher> {
        let notes = self.ring.layout.index().join(NOTES);
        if !self.ring.settings.kind.local {
            return None;
        }
        // A watcher costs a thread, so it is created only if the folder exists. (A local filesystem
        // returns no false "not found".)
        let names = self.ring.fs.list(&notes).ok()?;
        let tell = bell.clone();
        let mut watcher = watcher(&notes, move || tell.notify_one()).ok()?;
        for run in names.iter().filter(|name| name.starts_with(WORKERS) || *name == PASSES).map(|name| notes.join(name))
        {
            // Each folder is listed first, to make sure that it is not a link. (After a false "not
            // found", it is not watched.)
            if self.ring.fs.list(&run).is_ok() {
                watcher.watch(&run, RecursiveMode::NonRecursive).ok()?;
            }
        }
        bell.notify_one(); // the watcher does not report changes made before it started
        Some(watcher)
    }
}
