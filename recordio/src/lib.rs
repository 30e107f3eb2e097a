//! Plain RecordIO files without a ring.
//!
//! - [`InputSplit`]: the records of one rank, out of many `.rec` files, as dmlc-core's `InputSplit` has it.
//! - [`Prefetch`]: any producer in a thread of its own, some items ahead of its consumer, as dmlc-core's `ThreadedIter`.
//!
//! The bytes of a `.rec` file are those of `ringreel_format::recordio`.
#![forbid(unsafe_code)]

pub mod input_split;
pub mod prefetch;

pub use input_split::{InputSplit, SplitOptions};
pub use prefetch::Prefetch;
