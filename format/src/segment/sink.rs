//! Where a writer may come back to what it wrote: a sample's head is known when its parts were looked at.

use std::io::{self, Write};

/// A sink that can be changed behind its end. Positions are bytes from the segment's first one on.
pub trait Sink: Write {
    /// Puts `bytes` in place of as many that were written at `at`. Writing goes on at the end.
    ///
    /// # Errors
    /// What the sink says; some of them may have been put there.
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Forgets what was written from `len` on, where writing goes on.
    ///
    /// # Errors
    /// What the sink says.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

/// The segment begins where the vector does.
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
