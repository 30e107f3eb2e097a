//! A counting allocator, with which targets bound the memory that a decoder allocates.
//!
//! It counts allocations of Rust code on one thread while [`bounded`] runs. zstd's working memory is not included,
//! because C code allocates it, and its size does not depend on the length of a part.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocations during one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes of the largest single allocation.
    pub largest: usize,
    /// Peak of live bytes, without those from before the run.
    pub peak: usize,
    live: isize,
}

thread_local! {
    static USAGE: Cell<Usage> = const { Cell::new(Usage { largest: 0, peak: 0, live: 0 }) };
}

/// The system's allocator with counters.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(asked: usize, change: isize) {
    // A thread that ends has no counters any more, and is not measured.
    let _ = USAGE.try_with(|cell| {
        let mut usage = cell.get();
        usage.largest = usage.largest.max(asked);
        usage.live += change;
        usage.peak = usage.peak.max(usage.live.max(0) as usize);
        cell.set(usage);
    });
}

// SAFETY: each call is forwarded unchanged to the system's allocator, which fulfils the trait's contract. The counters
// are plain numbers without a destructor, so counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), layout.size() as isize);
        // SAFETY: the caller's contract, forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), layout.size() as isize);
        // SAFETY: the caller's contract, forwarded.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: the caller's contract, forwarded.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, size as isize - layout.size() as isize);
        // SAFETY: the caller's contract, forwarded.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `run`; returns its result and its allocations.
pub fn watched<T>(run: impl FnOnce() -> T) -> (T, Usage) {
    USAGE.set(Usage::default());
    let result = run();
    (result, USAGE.get())
}

/// Runs `run`, which reads `input` bytes, and checks that no single allocation is larger than `input + extra`.
///
/// # Panics
/// If one is.
pub fn bounded<T>(input: usize, extra: usize, run: impl FnOnce() -> T) -> T {
    let (result, usage) = watched(run);
    let limit = input + extra;
    assert!(usage.largest <= limit, "{} bytes were allocated at once; {limit} are allowed: {usage:?}", usage.largest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_allocation_and_peak_are_counted() {
        let ((), usage) = watched(|| {
            let small = vec![1u8; 100];
            drop(vec![2u8; 1000]);
            drop(small);
        });
        assert_eq!((usage.largest, usage.peak), (1000, 1100));
    }

    #[test]
    #[should_panic(expected = "2000 bytes were allocated at once")]
    fn allocation_beyond_the_bound_fails() {
        bounded(100, 1000, || drop(std::hint::black_box(vec![0u8; 2000])));
    }
}
