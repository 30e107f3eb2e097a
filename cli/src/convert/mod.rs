//! Exports samples to files of other formats, and packs such files into records or a ring.
//!
//! | file | contents |
//! |---|---|
//! | [`export`] | exports samples as RecordIO, `.npy` files, or webdataset's tar files |
//! | [`pack`] | packs images, `.npy`, NIfTI and lines of text into RecordIO or a ring |
//! | [`output`] | output files that get their names when they are complete |
//!
//! The output does not depend on the number of threads. Each thread keeps a few samples in memory.

pub mod export;
pub mod output;
pub mod pack;
