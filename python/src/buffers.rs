//! Memory for batches, used again when nobody holds the batch in it any more. New memory costs several times what the copy
//! into it does: the kernel has to find and to clear each of its pages.
//!
//! Nobody waits for the lock: who was forked while it was held would wait for ever.

use bytes::Bytes;
use std::sync::Mutex;

/// Buffers of fewer bytes are as cheap from the allocator.
const LEAST: usize = 128 << 10;
/// Bytes that are kept at most.
const MOST: usize = 64 << 20;

/// Those that nobody uses, the one that was given back last at the end.
static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with room for `len` bytes.
pub fn with_room(len: usize) -> Vec<u8> {
    let fits = |buffer: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&buffer.capacity());
    let free = || {
        let mut free = FREE.try_lock().ok().filter(|_| len >= LEAST)?;
        let at = free.iter().rposition(fits)?;
        Some(free.remove(at))
    };
    free().unwrap_or_else(|| Vec::with_capacity(len))
}

/// The bytes in `buffer`, which is kept for others when nobody has them any more.
pub fn lent(buffer: Vec<u8>) -> Bytes {
    Bytes::from_owner(Lent(buffer))
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if !(LEAST..=MOST).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        let mut spare = Vec::new(); // freed when the lock is
        let Ok(mut free) = FREE.try_lock() else { return };
        free.push(buffer);
        while free.iter().map(Vec::capacity).sum::<usize>() > MOST {
            spare.push(free.remove(0));
        }
        drop(free);
    }
}
