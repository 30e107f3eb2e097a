//! Records from front to back, going on behind damage.
//!
//! A payload never holds the magic at a multiple of four. So behind damage a magic at a multiple of four whose flag is
//! that of a whole record or of a first part begins a record; the record must then be whole itself. Plain RecordIO has
//! no checksums: damage inside a payload is not found, and a record whose length was damaged may come back short.

use super::reader::{Record, RecordReader};
use crate::error::{FormatError, Result};
use crate::input::{Input, SliceInput, StreamInput};
use std::io::Read;

/// A stretch of a file that could not be used.
#[derive(Debug)]
pub struct Region {
    /// File offset of its first byte.
    pub begin: u64,
    /// File offset of the first byte after it.
    pub end: u64,
    /// What is wrong at its beginning.
    pub why: FormatError,
}

/// What a [`ResyncReader`] comes across.
#[derive(Debug)]
pub enum ResyncItem<'a> {
    /// A record.
    Record(Record<'a>),
    /// A stretch without one.
    Skipped(Region),
}

/// Reads records one after the other, and reports each stretch that is none. Together they cover the whole input.
///
/// It takes time in proportion to the input, whatever stands there: no candidate for a record reaches beyond the next one.
#[derive(Debug)]
pub struct ResyncReader<I> {
    reader: RecordReader<I>,
    /// Where the stretch began that is being searched, and why.
    open: Option<(u64, FormatError)>,
}

impl<'a> ResyncReader<SliceInput<'a>> {
    /// Over the bytes of a whole file, in memory or mapped.
    pub fn over(bytes: &'a [u8]) -> ResyncReader<SliceInput<'a>> {
        ResyncReader::with_input(SliceInput::new(bytes, 0))
    }
}

impl<R: Read> ResyncReader<StreamInput<R>> {
    /// Over a file, a pipe, or whatever can be read.
    pub fn new(source: R) -> ResyncReader<StreamInput<R>> {
        ResyncReader::with_input(StreamInput::new(source, 0))
    }
}

impl<I: Input> ResyncReader<I> {
    /// Over any input, whose position is a multiple of four.
    pub fn with_input(input: I) -> ResyncReader<I> {
        ResyncReader { reader: RecordReader::with_input(input), open: None }
    }

    /// File offset of what comes next.
    pub fn position(&self) -> u64 {
        self.open.as_ref().map_or_else(|| self.reader.position(), |open| open.0)
    }

    /// The next record or stretch; none at the end of the input.
    ///
    /// # Errors
    /// What the source says, and nothing else.
    #[allow(clippy::should_implement_trait)] // it lends what it gives
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
