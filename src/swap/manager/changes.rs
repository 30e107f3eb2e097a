//! What wakes a manager between two looks: names in the filling generation, and the notes of readers. Nothing depends on it.

use super::Manager;
use crate::coordination::files::NOTES;
use crate::fs::poll::watcher;
use crate::run_log::{PASSES, WORKERS};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Notices changes of the filling generation's directory, as long as it is kept.
pub(crate) struct ChangeWatch {
    /// The generation, and the directory's inode: somebody may remove it and make it again.
    of: (u64, (u64, u64)),
    changed: Arc<AtomicBool>,
    _watcher: RecommendedWatcher,
}

impl ChangeWatch {
    /// Returns whether a name came or went since the last call.
    pub(crate) fn take(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}

impl Manager {
    /// Returns the watch over the generation that fills: `watching`, or a new one if another directory
    /// fills now. On a network it is only asked whether the generation is another one, which costs no
    /// request: nothing depends on the watch there.
    pub(crate) fn watch_filling(&self, watching: Option<ChangeWatch>, bell: &Arc<Notify>) -> Option<ChangeWatch> {
        let (ring, local) = (&self.ring, self.ring.settings.kind.local);
        let newest = if local { ring.manifests.newest() } else { ring.manifests.newest_known() };
        let filling = newest.map_or(0, |newest| newest + 1);
        if !local && watching.as_ref().is_some_and(|it| it.of.0 == filling) {
            return watching;
        }
        let write = ring.layout.write(filling);
        // A wrong no: no watch until the next look.
        let of = ring.fs.identity(&write).ok().map(|found| (filling, found.inode));
        if watching.as_ref().is_some_and(|it| Some(it.of) == of) {
            return watching;
        }
        let watch = of.and_then(|of| self.watch(&write, of, bell))?;
        bell.notify_one(); // of what came before the watcher, nobody else tells
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

    /// The folders of the runs that there are now; listed by the ring's own means, which follow no link out of it.
    pub(crate) fn watch_notes(&self, bell: &Arc<Notify>) -> Option<RecommendedWatcher> {
        let notes = self.ring.layout.index().join(NOTES);
        if !self.ring.settings.kind.local {
            return None;
        }
        // A watcher costs a thread: none in vain. (A local filesystem gives no wrong no.)
        let names = self.ring.fs.list(&notes).ok()?;
        let tell = bell.clone();
        let mut watcher = watcher(&notes, move || tell.notify_one()).ok()?;
        for run in names.iter().filter(|name| name.starts_with(WORKERS) || *name == PASSES).map(|name| notes.join(name))
        {
            // Each is listed first, because a ring has no links. (After a wrong no, the folder is not watched.)
            if self.ring.fs.list(&run).is_ok() {
                watcher.watch(&run, RecursiveMode::NonRecursive).ok()?;
            }
        }
        bell.notify_one(); // of what came before the watcher, nobody else tells
        Some(watcher)
    }
}
