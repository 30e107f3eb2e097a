//! Memory for batches, reused once the batch in it was released. New memory costs several times as much as the copy
//! into it, because the kernel has to allocate and clear each page.
//!
//! No call blocks on the lock: a child that was forked while another thread held it would never get it.

use bytes::Bytes;
use std::sync::Mutex;

/// Size in bytes below which the allocator is as fast.
const LEAST: usize = 128 << 10;
/// Total size in bytes of the free buffers that are kept.
const MOST: usize = 64 << 20;

/// The free buffers, the most recently released one last.
static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Returns an empty buffer with room for `len` bytes.
pub fn with_room(len: usize) -> Vec<u8> {
    let fits = |buffer: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&buffer.capacity());
    let free = || {
        let mut free = FREE.try_lock().ok().filter(|_| len >= LEAST)?;
        let at = free.iter().rposition(fits)?;
        Some(free.remove(at))
    };
    free().unwrap_or_else(|| Vec::with_capacity(len))
}

/// Returns the bytes in `buffer`, whose memory is reused after they were released.
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
        let mut spare = Vec::new(); // dropped after the lock was released
        let Ok(mut free) = FREE.try_lock() else { return };
        free.push(buffer);
        while free.iter().map(Vec::capacity).sum::<usize>() > MOST {
            spare.push(free.remove(0));
        }
        drop(free);
    }
}
