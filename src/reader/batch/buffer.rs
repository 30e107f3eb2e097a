//! Memory for batches. Where it is large, it is asked for in huge pages: the kernel finds and clears new memory several
//! times as fast so, and whoever writes or reads it waits less for its addresses.

use memmap2::{MmapMut, MmapOptions};
use std::fmt;
use std::ops::{Deref, Range};

/// Bytes of a huge page, where there are any.
const HUGE: usize = 2 << 20;
/// Where in the first one a buffer begins. Samples lie in a file at multiples of 64: a copy from such a place to such a
/// place takes half as long again as one to the middle between two, which serves any element type.
const BEGIN: usize = 16;

/// Bytes, one after the other: a `Vec` to which can only be appended, for much memory.
#[derive(Default)]
pub struct Buffer(Room);

enum Room {
    Small(Vec<u8>),
    Huge(Map),
}

/// Memory of no file.
struct Map {
    map: MmapMut,
    /// Which bytes of the map are for those of the buffer.
    room: Range<usize>,
    len: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room::Small(Vec::new())
    }
}

impl Buffer {
    /// An empty one with room for `len` bytes, or somewhat more.
    pub fn with_room(len: usize) -> Buffer {
        let map = (len >= HUGE).then(|| Map::with_room(len)).flatten();
        Buffer(map.map_or_else(|| Room::Small(Vec::with_capacity(len)), Room::Huge))
    }

    /// Bytes that it has room for.
    pub fn room(&self) -> usize {
        match &self.0 {
            Room::Small(bytes) => bytes.capacity(),
            Room::Huge(map) => map.room.len(),
        }
    }

    /// Forgets its bytes, and keeps the room.
    pub fn clear(&mut self) {
        match &mut self.0 {
            Room::Small(bytes) => bytes.clear(),
            Room::Huge(map) => map.len = 0,
        }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        if bytes.len() > self.room() - self.len() {
            self.grow(bytes.len());
        }
        match &mut self.0 {
            Room::Small(room) => room.extend_from_slice(bytes),
            Room::Huge(map) => {
                let begin = map.room.start + map.len;
                map.map[begin..begin + bytes.len()].copy_from_slice(bytes);
                map.len += bytes.len();
            }
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let mut larger = Buffer::with_room((self.len() + more).saturating_mul(2));
        larger.extend_from_slice(self);
        *self = larger;
    }
}

impl Map {
    /// None where the system does not give it.
    fn with_room(len: usize) -> Option<Map> {
        let mapped = len.checked_next_multiple_of(HUGE)?.checked_add(HUGE)?;
        let map = MmapOptions::new().len(mapped).map_anon().ok()?;
        let first = map.as_ptr().align_offset(HUGE);
        let room = first + BEGIN..(first + BEGIN).checked_add(len)?;
        // Not for the last one, where less than half of it would be used: it is cleared as a whole. Where there are none, it
        // is memory as any other.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, first, (len + HUGE / 2) / HUGE * HUGE);
        (room.end <= map.len()).then_some(Map { map, room, len: 0 })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Room::Small(bytes) => bytes,
            Room::Huge(map) => &map.map[map.room.start..map.room.start + map.len],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let mut clone = Buffer::with_room(self.len());
        clone.extend_from_slice(self);
        clone
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_what_was_appended_however_far_it_has_to_grow() {
        for room in [0, 1, 100, HUGE - 1, HUGE, HUGE + 1, 2 * HUGE + 5] {
            let mut buffer = Buffer::with_room(room);
            assert!(buffer.is_empty() && buffer.room() >= room);
            let mut want = Vec::new();
            for n in 0..40 {
                let more = vec![n as u8; if n % 3 == 0 { 0 } else { n * 9_001 }];
                buffer.extend_from_slice(&more);
                want.extend_from_slice(&more);
                assert!(*buffer == want[..], "{room}, {n}");
            }
            assert!(want.len() > 2 * HUGE && buffer.clone() == buffer);
            buffer.clear();
            assert!(buffer.is_empty() && buffer.room() >= want.len());
            buffer.extend_from_slice(b"again");
            assert_eq!(&buffer[..], b"again");
        }
    }

    #[test]
    fn a_large_one_that_fits_stays_where_it_is() {
        let mut buffer = Buffer::with_room(3 * HUGE);
        let place = buffer.as_ptr();
        buffer.extend_from_slice(&vec![7; 3 * HUGE]);
        assert!(place == buffer.as_ptr() && place.addr() % HUGE == BEGIN);
    }
}
