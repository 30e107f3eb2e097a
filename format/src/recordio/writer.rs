//! Records to bytes.

use crate::error::Result;
use crate::frame::write_record;
use std::io::Write;

/// Writes records one after the other to any sink. Give it a [`std::io::BufWriter`] where a call of the sink is dear:
/// a record takes three or more.
#[derive(Debug)]
pub struct RecordWriter<W> {
    sink: W,
    position: u64,
}

impl<W: Write> RecordWriter<W> {
    /// Writes to `sink`, at whose end is file offset 0.
    pub fn new(sink: W) -> RecordWriter<W> {
        RecordWriter::at(sink, 0)
    }

    /// Writes to `sink`, at whose end is file offset `position`: a multiple of four, the end of a record.
    pub fn at(sink: W, position: u64) -> RecordWriter<W> {
        RecordWriter { sink, position }
    }

    /// Writes one record, split where it holds the magic. Returns the file offset of its first byte, for an index.
    ///
    /// # Errors
    /// A payload of 2^29 bytes or more: nothing was written then. What the sink says: then a part of the record may stand
    /// after [`RecordWriter::position`], which is still that before it.
    pub fn write(&mut self, payload: &[u8]) -> Result<u64> {
        let at = self.position;
        self.position += write_record(&mut self.sink, payload)?;
        Ok(at)
    }

    /// File offset at which the next record will begin.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The sink, for flushing.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// The sink.
    pub fn into_inner(self) -> W {
        self.sink
    }
}
