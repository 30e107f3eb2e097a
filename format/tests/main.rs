//! Tests of the format. The tests of its vectors are a separate program (`vectors/`).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

/// Helpers of these tests.
mod common;
/// Segments with every single bit flipped, and truncated at every byte.
mod damage;
/// Segments of large samples, whose heads are written last.
mod heads_last;
/// Files that are made to be expensive to read.
mod hostile;
/// Inputs and the helpers of plain files, compared with models.
mod inputs;
/// Each limit of the format, from both sides.
mod limits;
/// The readers of plain RecordIO, compared with a model.
mod recordio;
/// Segments, written and read back.
mod segment;
