//! Chunks of records, large enough that passing them between threads costs nothing compared with reading them.

use super::{InputSplit, RecordSpan, SplitItem};
use crate::prefetch::{Panicked, Prefetch};
use ringreel::error::{Error, FsError, Result};
use std::ops::Range;
use std::path::Path;

/// Several records in one buffer.
#[derive(Debug, Default)]
pub struct Chunk {
    payloads: Vec<u8>,
    items: Vec<(SplitItem, Range<usize>)>,
}

impl Chunk {
    /// Returns the records and skipped regions in order, each with its payload. The payload of a region is empty.
    pub fn items(&self) -> impl ExactSizeIterator<Item = (&SplitItem, &[u8])> {
        self.items.iter().map(|(found, range)| (found, &self.payloads[range.clone()]))
    }

    /// Returns the records in order.
    pub fn records(&self) -> impl Iterator<Item = (RecordSpan, &[u8])> {
        self.items().filter_map(|(found, payload)| match found {
            SplitItem::Record(place) => Some((*place, payload)),
            SplitItem::Skipped { .. } => None,
        })
    }
}

impl InputSplit {
    /// Replaces the contents of `chunk` with the next records: as many as take about `bytes` bytes, and at least one.
    /// Returns false at the end of the split, with an empty chunk.
    ///
    /// # Errors
    /// As [`InputSplit::next_into`], after the records before the error.
    pub fn next_chunk(&mut self, chunk: &mut Chunk, bytes: usize) -> Result<bool> {
        chunk.payloads.clear();
        chunk.items.clear();
        while chunk.payloads.len() + chunk.items.len() * size_of::<(SplitItem, Range<usize>)>() < bytes.max(1) {
            let from = chunk.payloads.len();
            match self.append(&mut chunk.payloads) {
                Ok(Some(found)) => chunk.items.push((found, from..chunk.payloads.len())),
                Ok(None) => break,
                Err(error) if chunk.items.is_empty() => return Err(error),
                Err(error) => {
                    self.pending = Some(error);
                    break;
                }
            }
        }
        Ok(!chunk.items.is_empty())
    }

    /// Reads this split from its current position in a separate thread, `depth` chunks of about `bytes` bytes ahead.
    /// This reader keeps its position; for the next epoch, call [`InputSplit::before_first`] and then `prefetch`
    /// again.
    ///
    /// # Errors
    /// The system cannot start another thread. The iterator returns the errors of [`InputSplit::next_chunk`].
    pub fn prefetch(&self, depth: usize, bytes: usize) -> Result<Prefetch<Chunk, Error>> {
        let mut split = InputSplit::of(self.plan.clone());
        split.before_first();
        if self.at != self.plan.begin {
            split.seek(self.at)?;
        }
        let prefetch = Prefetch::new(depth, move |chunk: &mut Chunk| split.next_chunk(chunk, bytes));
        let failed = |source| FsError::new("start a thread to read", Path::new("a split"), source).into();
        prefetch.map_err(failed)
    }
}

impl From<Panicked> for Error {
    fn from(panicked: Panicked) -> Error {
        Error::Sample(panicked.to_string())
    }
}
