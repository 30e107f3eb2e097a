//! Sequential input, from memory or from any [`Read`], behind one trait, so that there is only one reader of frames.

use std::io::{self, Read};
use std::ops::Range;

/// Sequential input.
pub trait Input {
    /// Returns the next `n` bytes without consuming them, or all that are left if there are fewer.
    ///
    /// # Errors
    /// Errors of the source.
    fn peek(&mut self, n: usize) -> io::Result<&[u8]>;

    /// Consumes `n` bytes, which must have been returned by [`Input::peek`].
    fn consume(&mut self, n: usize);

    /// Returns the file offset of the next byte.
    fn position(&self) -> u64;
}

/// Input from memory or a map. Peeking is free.
#[derive(Clone, Debug)]
pub struct SliceInput<'a> {
    bytes: &'a [u8],
    pos: usize,
    base: u64,
}

impl<'a> SliceInput<'a> {
    /// Reads all of `bytes`, which begin at file offset `base`.
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

/// Input from any source, through a buffer that is reused.
///
/// The buffer grows with the bytes that arrived, at most [`STEP`] ahead, and never to a length that the file only
/// claims.
#[derive(Debug)]
pub struct StreamInput<R> {
    source: R,
    window: Window,
    most: usize,
}

/// The range of a source that is in memory.
#[derive(Debug)]
struct Window {
    buffer: Vec<u8>,
    /// Bytes of the buffer that are consumed.
    pos: usize,
    /// Bytes of the buffer that are read.
    filled: usize,
    /// File offset of the buffer's first byte.
    base: u64,
}

/// Bytes by which the buffer of a [`StreamInput`] grows, and the most that it requests at a time.
pub const STEP: usize = 256 << 10;

impl<R: Read> StreamInput<R> {
    /// Reads `source`, whose next byte is at file offset `base`.
    pub fn new(source: R, base: u64) -> StreamInput<R> {
        StreamInput { source, window: Window { buffer: Vec::new(), pos: 0, filled: 0, base }, most: usize::MAX }
    }

    /// Refuses to return more than `most` bytes at once, so that a large length that a file claims and backs with
    /// holes does not have to fit into memory.
    pub fn at_most(self, most: usize) -> StreamInput<R> {
        StreamInput { most: most.max(STEP), ..self }
    }

    /// Returns the source. Its position may be beyond [`Input::position`]; bytes that were read ahead are lost.
    pub fn into_inner(self) -> R {
        self.source
    }
}

impl Window {
    /// Reads until `n` bytes are available that are not consumed, or the source ends.
    fn fill(&mut self, source: &mut dyn Read, n: usize) -> io::Result<()> {
        // Moves the rest only when at least as many bytes were consumed, so each byte is moved about once for any
        // requests.
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
            // If the source ends before `n` bytes, there are no more bytes to read.
            if n > self.most && self.window.filled - self.window.pos >= self.most {
                let why = format!("a record of {n} bytes is larger than the memory for it ({} bytes)", self.most);
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

/// Fills a buffer with the bytes from a file offset on.
pub type ReadAt<'a> = dyn FnMut(&mut [u8], u64) -> io::Result<()> + 'a;

/// Reads a range of a file sequentially through positioned reads.
pub struct RangeRead<'a, 'b> {
    read_at: &'a mut ReadAt<'b>,
    left: Range<u64>,
}

impl<'a, 'b> RangeRead<'a, 'b> {
    /// Reads the bytes at the file offsets `range` with `read_at`.
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
