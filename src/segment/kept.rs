//! Private maps of samples that nobody has any more, kept for whoever reads the same sample next. To make a map, to find
//! its pages and to take it down costs several times what it costs to read them.
//!
//! A map is kept only as it was made. One that somebody has written into, or that was torn, is taken down: whatever users
//! did to what they got, what is read next is what the file holds.
//!
//! Nobody waits for a lock here: who was forked while it was held would wait for ever.

use crate::fs::map::is_unwritten;
use crate::fs::sigbus::{ensure_handler, is_torn};
use crate::memory::{self, Budget, Held};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// For the maps that all segments keep: addresses, since their pages are the page cache's. Those that do not fit are taken
/// down.
static ROOM: LazyLock<Budget> = LazyLock::new(|| Budget::new((memory::bytes() / 16).min(16 << 30)));
/// A map takes as much room at least: so there are not more than 16384 of them. (A process may have 65530.)
const LEAST: u64 = 1 << 20;

/// Those of one segment, by their place in its file.
#[derive(Default)]
pub(super) struct Kept {
    maps: Mutex<Maps>,
}

/// To be dropped where nobody waits: it takes milliseconds.
pub(crate) type Maps = HashMap<Range<u64>, Vec<(Bytes, Held<'static>)>>;

/// A map that somebody has.
struct Given {
    map: Bytes,
    place: Range<u64>,
    back_to: Weak<Kept>,
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let Some(kept) = self.back_to.upgrade() else { return };
        let Ok(room) = ROOM.take((self.map.len() as u64).max(LEAST)) else { return };
        if is_torn(&self.map) || !is_unwritten(&self.map) {
            return;
        }
        if let Ok(mut maps) = kept.maps.try_lock() {
            let map = std::mem::take(&mut self.map);
            maps.entry(self.place.clone()).or_default().push((map, room));
        }
    }
}

impl Kept {
    /// A private map of `place`: one that is kept, or what `make` makes. It is kept when all who have a part of it have let
    /// it go, if the segment is open then.
    pub fn map<E>(self: &Arc<Kept>, place: Range<u64>, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let spare = || self.maps.try_lock().ok()?.get_mut(&place)?.pop();
        let map = match spare() {
            Some((map, _)) => {
                // As where a map is made: somebody may have put a handler above ours.
                ensure_handler().unwrap_or_else(|error| tracing::debug!(%error, "maps are not guarded"));
                map
            }
            None => make()?,
        };
        Ok(Bytes::from_owner(Given { map, place, back_to: Arc::downgrade(self) }))
    }

    /// All that are kept.
    pub fn take(&self) -> Maps {
        self.maps.try_lock().map(|mut maps| std::mem::take(&mut *maps)).unwrap_or_default()
    }
}
