//! Plain RecordIO files without a ring.
//!
//! - [`InputSplit`]: the records of one rank in many `.rec` files, like dmlc-core's `InputSplit`.
//! - [`Prefetch`]: runs any producer in a thread, some items ahead of its consumer, like dmlc-core's `ThreadedIter`.
//! - `image`, with the feature `images`: batches of decoded and augmented images, like MXNet's `ImageRecordIter`.
//!
//! The bytes of a `.rec` file are those of `ringreel_format::recordio`.
#![forbid(unsafe_code)]

#[cfg(feature = "images")]
pub mod image;
pub mod input_split;
pub mod prefetch;

pub use input_split::{InputSplit, SplitOptions};
pub use prefetch::Prefetch;
