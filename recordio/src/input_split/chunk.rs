//! Several records at once: so many that handing them from thread to thread costs nothing beside reading them.

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
    /// The records and skipped stretches, in order, each with its payload; that of a stretch is empty.
    pub fn items(&self) -> impl ExactSizeIterator<Item = (&SplitItem, &[u8])> {
        self.items.iter().map(|(found, range)| (found, &self.payloads[range.clone()]))
    }

    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = (RecordSpan, &[u8])> {
        self.items().filter_map(|(found, payload)| match found {
            SplitItem::Record(place) => Some((*place, payload)),
            SplitItem::Skipped { .. } => None,
        })
    }
}

impl InputSplit {
    /// The next records, as many as take about `bytes` bytes, and at least one, in place of what is in `chunk`. False at
    /// the end of the split, and then there is none.
    ///
    /// # Errors
    /// As [`InputSplit::next_into`], after the records before it.
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

    /// Reads this split from where it stands in a thread of its own: `depth` chunks ahead, of about `bytes` bytes each. This
    /// reader stays where it is; [`InputSplit::before_first`] and another `prefetch` make the next epoch.
    ///
    /// # Errors
    /// What the system says against another thread. The iterator gives what [`InputSplit::next_chunk`] does.
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
