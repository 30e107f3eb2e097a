//! Exports samples to files of other formats, and packs such files into records or a ring.
//!
//! | file | contents |
//! |---|---|
//! | [`export`] | samples to RecordIO, `.npy` files, webdataset's tar files |
//! | [`pack`] | images, `.npy`, NIfTI and lines of text to RecordIO |
//! | [`import`] | the same, and records, into a ring |
//! | [`output`] | files that have their name only once they are whole |
//!
//! The output does not depend on the number of threads. Each thread keeps a few samples in memory.

pub mod export;
pub mod import;
pub mod output;
pub mod pack;
