//! Writes records.

use crate::error::Result;
use crate::frame::write_record;
use std::io::Write;

/// Writes records in order to any sink. Use a [`std::io::BufWriter`] if calls of the sink are expensive: a record
/// takes three or more.
#[derive(Debug)]
pub struct RecordWriter<W> {
    sink: W,
    position: u64,
}

impl<W: Write> RecordWriter<W> {
    /// Writes to `sink`, whose end is file offset 0.
    pub fn new(sink: W) -> RecordWriter<W> {
        RecordWriter::at(sink, 0)
    }

    /// Writes to `sink`, whose end is file offset `position`: the end of a record, a multiple of four.
    pub fn at(sink: W, position: u64) -> RecordWriter<W> {
        RecordWriter { sink, position }
    }

    /// Writes one record, split where it contains the magic. Returns the file offset of its first byte, for an index.
    ///
    /// # Errors
    /// A payload of 2^29 bytes or more, before anything is written. Errors of the sink, after which a part of the
    /// record may have been written; [`RecordWriter::position`] is still that before it.
    pub fn write(&mut self, payload: &[u8]) -> Result<u64> {
        let at = self.position;
        self.position += write_record(&mut self.sink, payload)?;
        Ok(at)
    }

    /// Returns the file offset at which the next record will begin.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the sink, for flushing.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Returns the sink.
    pub fn into_inner(self) -> W {
        self.sink
    }
}
