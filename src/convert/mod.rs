//! Samples into files of other formats.
//!
//! | file | |
//! |---|---|
//! | [`export`] | samples to RecordIO, `.npy` files, webdataset's tar files |
//! | [`output`] | files that have their name only once they are whole |
//! | [`ordered`] | work done by several threads, taken in order |
//!
//! What is written does not depend on the number of threads, and memory holds a few samples for each.

pub mod export;
pub mod ordered;
pub mod output;
