//! Bytes from front to back, from memory or from any [`Read`], behind one trait: so that there is one reader of frames.

use std::io::{self, Read};
use std::ops::Range;

/// Bytes from front to back.
pub trait Input {
    /// The next `n` bytes, which stay unread; or, where the input has fewer left, all that are left.
    ///
    /// # Errors
    /// What the source says.
    fn peek(&mut self, n: usize) -> io::Result<&[u8]>;

    /// Steps over `n` bytes. They were seen by [`Input::peek`] before.
    fn consume(&mut self, n: usize);

    /// Bytes from the beginning of the file to here.
    fn position(&self) -> u64;
}

/// Memory, or a map: peeking costs nothing.
#[derive(Clone, Debug)]
pub struct SliceInput<'a> {
    bytes: &'a [u8],
    pos: usize,
    base: u64,
}

impl<'a> SliceInput<'a> {
    /// All of `bytes`, which begin at file offset `base`.
    pub fn new(bytes: &'a [u8], base: u64) -> SliceInput<'a> {
        SliceInput { bytes, pos: 0, base }
    }
}

impl Input for SliceInput<'_> {
    #[inline]
    fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        let left = &self.bytes[self.pos..];
        Ok(&left[..n.min(left.len())])
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        self.pos = self.bytes.len().min(self.pos + n);
    }

    #[inline]
    fn position(&self) -> u64 {
        self.base + self.pos as u64
    }
}

/// Any source, through a buffer that is used again.
///
/// The buffer grows with what really arrived, never with what a length in the file promises: at most [`STEP`] bytes ahead.
#[derive(Debug)]
pub struct StreamInput<R> {
    source: R,
    window: Window,
    most: usize,
}

/// The stretch of a source that is in memory.
#[derive(Debug)]
struct Window {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were consumed.
    pos: usize,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// File offset of the buffer's first byte.
    base: u64,
}

/// Bytes by which the buffer of a [`StreamInput`] grows, and the most that it asks for at a time.
pub const STEP: usize = 256 << 10;

impl<R: Read> StreamInput<R> {
    /// What `source` gives, whose next byte is at file offset `base`.
    pub fn new(source: R, base: u64) -> StreamInput<R> {
        StreamInput { source, window: Window { buffer: Vec::new(), pos: 0, filled: 0, base }, most: usize::MAX }
    }

    /// The same, but whoever wants to see more than `most` bytes at once is refused: what a file claims, and backs with
    /// holes, need not be read into memory.
    pub fn at_most(self, most: usize) -> StreamInput<R> {
        StreamInput { most: most.max(STEP), ..self }
    }

    /// The source, and where it stands may be beyond [`Input::position`]: what was read ahead is lost.
    pub fn into_inner(self) -> R {
        self.source
    }
}

impl Window {
    /// Reads on until `n` bytes are there that were not consumed, or the source ends.
    fn fill(&mut self, source: &mut dyn Read, n: usize) -> io::Result<()> {
        // Moved when at least as much was consumed as is moved: so each byte is moved once or so, whatever is asked for.
        if self.pos >= self.filled - self.pos {
            self.buffer.copy_within(self.pos..self.filled, 0);
            self.base += self.pos as u64;
            self.filled -= self.pos;
            self.pos = 0;
        }
        while self.filled < self.pos + n {
            if self.buffer.len() == self.filled {
                self.buffer.try_reserve_exact(STEP)?;
                self.buffer.resize(self.filled + STEP, 0);
            }
            let end = self.buffer.len().min(self.filled + STEP);
            match source.read(&mut self.buffer[self.filled..end]) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<R: Read> Input for StreamInput<R> {
    #[inline]
    fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.window.filled - self.window.pos < n {
            self.window.fill(&mut self.source, n.min(self.most))?;
            // Of a claim beyond the source's end there is nothing to be read.
            if n > self.most && self.window.filled - self.window.pos >= self.most {
                let why = format!("a record of {n} bytes is more than there is memory for ({})", self.most);
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
            }
        }
        let left = &self.window.buffer[self.window.pos..self.window.filled];
        Ok(&left[..n.min(left.len())])
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        self.window.pos = self.window.filled.min(self.window.pos + n);
    }

    fn position(&self) -> u64 {
        self.window.base + self.window.pos as u64
    }
}

/// Fills a buffer from a file offset on.
pub type ReadAt<'a> = dyn FnMut(&mut [u8], u64) -> io::Result<()> + 'a;

/// A range of a file that is read by position, from front to back.
pub struct RangeRead<'a, 'b> {
    read_at: &'a mut ReadAt<'b>,
    left: Range<u64>,
}

impl<'a, 'b> RangeRead<'a, 'b> {
    /// The bytes at the file offsets `range`, which `read_at` fills in.
    pub fn new(read_at: &'a mut ReadAt<'b>, range: Range<u64>) -> RangeRead<'a, 'b> {
        RangeRead { read_at, left: range }
    }
}

impl Read for RangeRead<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (self.left.end - self.left.start).min(buffer.len() as u64) as usize;
        (self.read_at)(&mut buffer[..len], self.left.start)?;
        self.left.start += len as u64;
        Ok(len)
    }
}
