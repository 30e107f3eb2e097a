//! Samples into files of other formats, and such files into records or into a ring.
//!
//! | file | |
//! |---|---|
//! | [`export`] | samples to RecordIO, `.npy` files, webdataset's tar files |
//! | [`pack`] | images, `.npy`, NIfTI and lines of text to RecordIO, or into a ring |
//! | [`output`] | files that have their name only once they are whole |
//!
//! What is written does not depend on the number of threads, and memory holds a few samples for each.

pub mod export;
pub mod output;
pub mod pack;
