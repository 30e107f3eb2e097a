//! A thread that looks at maps which came back, so that whoever reads does not: one for the process, which ends with it.
//!
//! Whoever has no time for it, or cannot have it, looks himself: where too many maps wait for it already (they may hold
//! memory), in a child that was forked with this lock held, where the system gives no thread.

use super::kept::Kept;
use crate::background::do_not_preempt;
use std::ops::Range;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, Weak};

/// Maps that wait for it at most.
const WAITING: usize = 8;

/// Where a map is, and the turn in which it came back.
type Place = (Weak<Kept>, Range<u64>, u64);

/// The thread of the process of this number.
static THREAD: Mutex<Option<(u32, SyncSender<Place>)>> = Mutex::new(None);

/// Whether the thread will look there.
pub(super) fn later(kept: &Weak<Kept>, place: &Range<u64>, turn: u64) -> bool {
    let Ok(mut thread) = THREAD.try_lock() else { return false };
    let process = std::process::id();
    if thread.as_ref().is_none_or(|(of, _)| *of != process) {
        // That of the process from which this one was forked may have locks that nobody gives back: it is left as it is.
        std::mem::forget(thread.take());
        *thread = start().ok().map(|places| (process, places));
    }
    thread.as_ref().is_some_and(|(_, places)| places.try_send((kept.clone(), place.clone(), turn)).is_ok())
}

fn start() -> std::io::Result<SyncSender<Place>> {
    let (given, places) = sync_channel::<Place>(WAITING);
    std::thread::Builder::new().name("kept-maps".to_owned()).spawn(move || {
        do_not_preempt();
        for (kept, place, turn) in places {
            if let Some(kept) = kept.upgrade() {
                kept.look(&place, turn, Kept::wait_for_lock);
            }
        }
    })?;
    Ok(given)
}
