//! Reads records in order and continues after damage.
//!
//! A payload never contains the magic at a multiple of four. So after damage, a magic at a multiple of four with the
//! flag of a whole record or of a first part begins a record, if the whole record is valid. Plain RecordIO has no
//! checksums: damage inside a payload is not detected, and a record whose length is damaged may be returned
//! shortened.

use super::reader::{Record, RecordReader};
use crate::error::{FormatError, Result};
use crate::input::{Input, SliceInput, StreamInput};
use std::io::Read;

/// A region of a file that could not be read.
#[derive(Debug)]
pub struct Region {
    /// File offset of its first byte.
    pub begin: u64,
    /// File offset of the first byte after it.
    pub end: u64,
    /// The error at its beginning.
    pub why: FormatError,
}

/// An item found by a [`ResyncReader`].
#[derive(Debug)]
pub enum ResyncItem<'a> {
    /// A record.
    Record(Record<'a>),
    /// A region without a record.
    Skipped(Region),
}

/// Reads records in order, and reports the regions between them that are not records. Together they cover the whole
/// input.
///
/// The time is proportional to the length of the input, whatever it contains: no candidate for a record extends
/// beyond the next one.
#[derive(Debug)]
pub struct ResyncReader<I> {
    reader: RecordReader<I>,
    /// Beginning of the region that is being searched, and its error.
    open: Option<(u64, FormatError)>,
}

impl<'a> ResyncReader<SliceInput<'a>> {
    /// Reads the bytes of a whole file, in memory or mapped.
    pub fn over(bytes: &'a [u8]) -> ResyncReader<SliceInput<'a>> {
        ResyncReader::with_input(SliceInput::new(bytes, 0))
    }
}

impl<R: Read> ResyncReader<StreamInput<R>> {
    /// Reads a file, a pipe, or any other source.
    pub fn new(source: R) -> ResyncReader<StreamInput<R>> {
        ResyncReader::with_input(StreamInput::new(source, 0))
    }
}

impl<I: Input> ResyncReader<I> {
    /// Reads any input whose position is a multiple of four.
    pub fn with_input(input: I) -> ResyncReader<I> {
        ResyncReader { reader: RecordReader::with_input(input), open: None }
    }

    /// Returns the file offset of the next item.
    pub fn position(&self) -> u64 {
        self.open.as_ref().map_or_else(|| self.reader.position(), |open| open.0)
    }

    /// Returns the next record or region, or `None` at the end of the input.
    ///
    /// # Errors
    /// Only errors of the source.
    #[allow(clippy::should_implement_trait)] // the record borrows from the reader
    pub fn next(&mut self) -> Result<Option<ResyncItem<'_>>> {
        loop {
            let begin = self.reader.position();
            let whole = match self.reader.advance() {
                Err(error @ FormatError::Io(_)) => return Err(error),
                other => other,
            };
            match (whole, self.open.take()) {
                (Err(why), open) => {
                    self.open = open.or(Some((begin, why)));
                    self.reader.seek_candidate()?;
                }
                (Ok(_), Some((from, why))) => {
                    self.reader.unread();
                    return Ok(Some(ResyncItem::Skipped(Region { begin: from, end: begin, why })));
                }
                (Ok(None), None) => return Ok(None),
                (Ok(Some(span)), None) => return Ok(Some(ResyncItem::Record(self.reader.lend(span)?))),
            }
        }
    }
}
