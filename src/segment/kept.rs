//! Private maps of samples that nobody has any more, kept for whoever reads the same sample next. To make a map, to find
//! its pages and to take it down costs several times what it costs to read them.
//!
//! A map is kept only as it was made. One that somebody has written into, or that was torn, is taken down: whatever users
//! did to what they got, what is read next is what the file holds. To look for that takes a tenth of what it takes to read
//! the map; a thread of its own looks ([`super::looking`]), or whoever takes the map again before that has happened.
//!
//! Nobody waits for long for a lock here: who was forked while it was held would wait for ever.

use super::looking;
use crate::fs::map::is_unwritten;
use crate::fs::sigbus::{ensure_handler, is_torn};
use crate::memory::{self, Budget, Held};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

/// For the maps that all segments keep: addresses, since their pages are the page cache's. Those that do not fit are taken
/// down.
static ROOM: LazyLock<Budget> = LazyLock::new(|| Budget::new((memory::bytes() / 16).min(16 << 30)));
/// A map takes as much room at least: so there are not more than 16384 of them. (A process may have 65530.)
const LEAST: u64 = 1 << 20;

/// How often a lock that somebody else has is asked for again: for longer than anybody holds it who is running.
const TRIES: usize = 1000;

/// Those of one segment, by their place in its file.
#[derive(Default)]
pub(super) struct Kept {
    maps: Mutex<Maps>,
}

/// To be dropped where nobody waits: it takes milliseconds.
pub(crate) type Maps = HashMap<Range<u64>, Vec<Spare>>;

/// A map that nobody has.
pub(crate) struct Spare {
    map: Bytes,
    _room: Held<'static>,
    /// It may have been written into: nobody has looked since it came back, which was this turn. A map that is taken and
    /// comes back has another one: who looked at it before says nothing about it.
    unseen: Option<u64>,
}

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
        static TURN: AtomicU64 = AtomicU64::new(0);
        let Some(kept) = self.back_to.upgrade() else { return };
        let Ok(room) = ROOM.take((self.map.len() as u64).max(LEAST)) else { return };
        let (turn, map) = (TURN.fetch_add(1, Ordering::Relaxed), std::mem::take(&mut self.map));
        let (place, large) = (self.place.clone(), map.len() as u64 >= LEAST);
        let Some(mut maps) = kept.lock() else { return };
        maps.entry(place.clone()).or_default().push(Spare { map, _room: room, unseen: Some(turn) });
        drop(maps);
        if !(large && looking::later(&self.back_to, &place, turn)) {
            kept.look(&place, turn, Kept::lock);
        }
    }
}

type Locked<'k> = Option<MutexGuard<'k, Maps>>;

impl Kept {
    /// A private map of `place`: one that is kept, or what `make` makes. It is kept when all who have a part of it have let
    /// it go, if the segment is open then.
    pub fn map<E>(self: &Arc<Kept>, place: Range<u64>, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let map = match std::iter::from_fn(|| self.spare(&place)).find(Spare::is_as_made) {
            Some(spare) => {
                // As where a map is made: somebody may have put a handler above ours.
                ensure_handler().unwrap_or_else(|error| tracing::debug!(%error, "maps are not guarded"));
                spare.map
            }
            None => make()?,
        };
        Ok(Bytes::from_owner(Given { map, place, back_to: Arc::downgrade(self) }))
    }

    /// One of `place`; one that was looked at, if there is one.
    fn spare(&self, place: &Range<u64>) -> Option<Spare> {
        let mut maps = self.lock()?;
        let spares = maps.get_mut(place)?;
        let seen = spares.iter().rposition(|spare| spare.unseen.is_none());
        match seen {
            Some(n) => Some(spares.swap_remove(n)),
            None => spares.pop(),
        }
    }

    /// Looks at the map of `place` that came back that turn, if it is there still.
    pub(super) fn look<'k>(&'k self, place: &Range<u64>, turn: u64, lock: fn(&'k Kept) -> Locked<'k>) {
        let map = || Some(lock(self)?.get(place)?.iter().find(|spare| spare.unseen == Some(turn))?.map.clone());
        if let Some(map) = map() {
            drop(seen(lock(self), place, turn, is_as_made(&map)));
        }
    }

    /// For a thread that is in no forked child.
    pub(super) fn wait_for_lock(&self) -> Locked<'_> {
        self.maps.lock().ok()
    }

    fn lock(&self) -> Locked<'_> {
        (0..TRIES).find_map(|_| self.maps.try_lock().inspect_err(|_| std::hint::spin_loop()).ok())
    }

    /// All that are kept.
    pub fn take(&self) -> Maps {
        self.lock().map(|mut maps| std::mem::take(&mut *maps)).unwrap_or_default()
    }
}

/// It was seen how that map is. Returned if it is not to be kept.
fn seen(maps: Locked<'_>, place: &Range<u64>, turn: u64, as_made: bool) -> Option<Spare> {
    let mut maps = maps?;
    let spares = maps.get_mut(place)?;
    let n = spares.iter().position(|spare| spare.unseen == Some(turn))?;
    if as_made {
        spares[n].unseen = None;
        return None;
    }
    Some(spares.swap_remove(n))
}

impl Spare {
    fn is_as_made(&self) -> bool {
        self.unseen.is_none() || is_as_made(&self.map)
    }
}

/// Neither torn nor written into.
fn is_as_made(map: &[u8]) -> bool {
    !is_torn(map) && is_unwritten(map)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_was_taken_and_came_back_is_not_as_it_was_seen_before() {
        let (kept, place) = (Kept::default(), 0..4);
        let spare = Spare { map: Bytes::from_static(b"data"), _room: ROOM.take(0).unwrap(), unseen: Some(2) };
        kept.lock().unwrap().insert(place.clone(), vec![spare]);
        let unseen = || kept.lock().unwrap()[&place][0].unseen;
        assert!(seen(kept.lock(), &place, 1, true).is_none());
        assert_eq!(unseen(), Some(2));
        assert!(seen(kept.lock(), &place, 1, false).is_none());
        assert_eq!(unseen(), Some(2), "it is there still");
        assert!(seen(kept.lock(), &place, 2, true).is_none());
        assert_eq!(unseen(), None);
    }
}
