//! The tests of the format. Its test vectors are a program of their own (`vectors/`).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

/// What these tests share.
mod common;
/// Every flipped bit and every truncation of a segment.
mod damage;
/// Segments of large samples, whose heads are written last.
mod heads_last;
/// Files that were made to cost much.
mod hostile;
/// Inputs, and the helpers of plain files, against models.
mod inputs;
/// Each limit of the format from both sides.
mod limits;
/// The readers of plain RecordIO against a model.
mod recordio;
/// Segments, written and read back.
mod segment;
