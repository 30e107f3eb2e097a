//! The counter: numbers for the names of segments.

use crate::error::Result;
use std::fmt;

/// Counters hand out numbers below this one. A process that gets no number takes a random one from
/// above.
pub(crate) const COUNTER_END: u64 = 1 << 40;

/// Hands out the numbers by which the segments of a generation are named. Each generation counts
/// from 0.
///
/// Correctness never depends on a counter. The link that publishes a segment's name has one winner,
/// and the loser takes another number, so a counter that repeats, skips or forgets numbers costs
/// retries and loses no sample.
pub trait Counter: Send + Sync + fmt::Debug {
    /// Returns a number for the name of a segment in `generation`; `None` when the generation is
    /// closed, or when no free number was found.
    ///
    /// Atomic, as far as the server or the filesystem is: no two calls, in any process, get the
    /// same number. Processes take numbers in blocks, so one that ends leaves a gap.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn next_index(&self, generation: u64) -> Result<Option<u64>>;

    /// Ends the handing out of numbers for `generation`. May be called again, and before the first
    /// number.
    ///
    /// A hint: a process that holds a block of numbers gives out the rest of it. The segments so
    /// named are not listed in the generation, and their owners link them into the next one.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn close_generation(&self, generation: u64) -> Result<()>;

    /// Returns a number above all that were handed out in `generation`: the least that the next new
    /// block begins with.
    ///
    /// A hint: other processes take numbers meanwhile.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn handed_out(&self, generation: u64) -> Result<u64>;

    /// Marks all numbers of `generation` below `next` as taken. Never lowers the counter.
    ///
    /// Atomic for the blocks that are handed out from now on, in any process. A hint for those that
    /// other processes hold: they give out the rest of them.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn skip_to(&self, generation: u64, next: u64) -> Result<()>;
}
