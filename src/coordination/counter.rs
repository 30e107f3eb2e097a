//! The counter: numbers for the names of segments.

use crate::error::Result;
use std::fmt;

/// Counters hand out numbers below this one. A process that gets no number uses a random one above
/// it.
pub(crate) const COUNTER_END: u64 = 1 << 40;

/// Hands out the numbers in the names of a generation's segments. Each generation counts from 0.
///
/// Correctness never depends on a counter. Only one process can create a given name, and the others
/// try another number. So a counter that repeats, skips or forgets numbers causes retries, but
/// loses no sample.
pub trait Counter: Send + Sync + fmt::Debug {
    /// Returns a number for the name of a segment in `generation`. Returns `None` if the generation
    /// is closed, or if no free number was found.
    ///
    /// Atomic, as far as the server or the filesystem is: no two calls, in any process, get the
    /// same number. Processes take numbers in blocks, so a process that ends leaves a gap.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn next_index(&self, generation: u64) -> Result<Option<u64>>;

    /// Closes `generation`: no more numbers are handed out. May be called repeatedly, and before
    /// the first number.
    ///
    /// A hint: a process that holds a block of numbers still uses the rest of it. The segments
    /// named by these numbers are not listed in the generation, and their owners link them into the
    /// next one.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn close_generation(&self, generation: u64) -> Result<()>;

    /// Returns a number above all numbers that were handed out in `generation`. The next new block
    /// begins at this number or later.
    ///
    /// A hint: other processes may take numbers at the same time.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn handed_out(&self, generation: u64) -> Result<u64>;

    /// Marks all numbers of `generation` below `next` as taken. Never lowers the counter.
    ///
    /// Atomic for blocks that are handed out from now on, in any process. A hint for blocks that
    /// other processes hold already, because they use the rest of them.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn skip_to(&self, generation: u64, next: u64) -> Result<()>;
}
