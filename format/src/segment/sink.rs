//! The destination of a writer, in which earlier bytes can be overwritten: a sample's head is complete only after its
//! parts were read.

use std::io::{self, Write};

/// A sink whose earlier bytes can be changed. Positions are bytes from the start of the segment.
pub trait Sink: Write {
    /// Overwrites the bytes at `at` with `bytes`. Further writes continue at the end.
    ///
    /// # Errors
    /// Errors of the sink; some of the bytes may have been written.
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Removes the bytes from `len` on. Further writes continue there.
    ///
    /// # Errors
    /// Errors of the sink.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

/// The segment begins at the start of the vector.
impl Sink for Vec<u8> {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(at).ok();
        let place = at.and_then(|at| self.get_mut(at..)?.get_mut(..bytes.len()));
        place.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(())
    }
}
