//! Reads records in order, from memory, a map, or any `Read`. Strict: what a RecordIO writer never writes is an error
//! at a byte offset, and never becomes a joined or an invented record.

use crate::error::Result;
use crate::frame::{
    self, FrameHeader, HEADER_LEN, Sequence, check_escaped, check_padding, next_magic, padding, truncated_frame,
    truncated_header, unexpected_len,
};
use crate::input::{Input, STEP, SliceInput, StreamInput};
use std::io::{self, Read};
use std::ops::Range;

/// One record, with its frames joined.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// File offset of its first frame.
    pub at: u64,
    /// Its payload.
    pub payload: &'a [u8],
    /// How often the framing split it. If it was not split, its payload is contiguous in the file, 8 bytes after
    /// `at`.
    pub splits: u64,
    /// File offset of the first byte after it and its padding.
    pub end: u64,
}

/// The place of a checked record, and its framing.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    at: u64,
    len: usize,
    payload_len: usize,
    splits: u64,
}

/// Reads records in order.
///
/// ```
/// use ringreel_format::recordio::{RecordReader, RecordWriter};
///
/// let mut file = Vec::new();
/// let mut writer = RecordWriter::new(&mut file);
/// writer.write(b"one")?;
/// writer.write(b"two")?;
///
/// let mut reader = RecordReader::over(&file); // or RecordReader::new(File::open("train.rec")?)
/// while let Some(record) = reader.next()? {
///     println!("{} bytes at {}", record.payload.len(), record.at);
/// }
/// # Ok::<(), ringreel_format::FormatError>(())
/// ```
#[derive(Debug)]
pub struct RecordReader<I> {
    input: I,
    joined: Vec<u8>,
    /// Bytes of the last record returned. The next call consumes them.
    given: usize,
}

impl<'a> RecordReader<SliceInput<'a>> {
    /// Reads the bytes of a whole file, in memory or mapped. Records that were not split are slices of it.
    pub fn over(bytes: &'a [u8]) -> RecordReader<SliceInput<'a>> {
        RecordReader::with_input(SliceInput::new(bytes, 0))
    }
}

impl<R: Read> RecordReader<StreamInput<R>> {
    /// Reads a file, a pipe, or any other source that begins with a record. It has a separate buffer.
    pub fn new(source: R) -> RecordReader<StreamInput<R>> {
        RecordReader::with_input(StreamInput::new(source, 0))
    }
}

impl<I: Input> RecordReader<I> {
    /// Reads any input that begins with a record.
    pub fn with_input(input: I) -> RecordReader<I> {
        RecordReader { input, joined: Vec::new(), given: 0 }
    }

    /// Returns the file offset of the next record.
    pub fn position(&self) -> u64 {
        self.input.position() + self.given as u64
    }

    /// Returns the next record, or `None` at the end of the input. After an error the reader stays at the beginning
    /// of the record, and the next call returns the same error.
    ///
    /// # Errors
    /// Any violation of the framing, including a magic inside a payload; errors of the source.
    /// Whatever breaks the framing, a magic inside a payload included; what the source says.
    #[allow(clippy::should_implement_trait)] // the record borrows from the reader
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match self.advance()? {
            Some(span) => Ok(Some(self.lend(span)?)),
            None => Ok(None),
        }
    }

    /// Checks the next record, which [`RecordReader::lend`] then returns.
    #[inline(always)] // its result is wide, and passing it through memory costs as much as its work
    pub(crate) fn advance(&mut self) -> Result<Option<Span>> {
        self.input.consume(std::mem::take(&mut self.given));
        let at = self.input.position();
        if let Some(payload_len) = whole_record(&mut self.input)? {
            let len = HEADER_LEN as usize + payload_len + padding(payload_len as u64) as usize;
            self.given = len;
            return Ok(Some(Span { at, len, payload_len, splits: 0 }));
        }
        self.advance_slowly(at)
    }

    /// Reads a record that is split or malformed, or the end of the input.
    #[cold]
    fn advance_slowly(&mut self, at: u64) -> Result<Option<Span>> {
        let mut sequence = Sequence::default();
        let Some(mut len) = check_frame(&mut self.input, 0, &mut sequence)? else { return Ok(None) };
        if !sequence.is_complete() {
            len = self.join(len, &mut sequence)?;
        }
        self.given = len;
        Ok(Some(Span { at, len, payload_len: sequence.payload_len() as usize, splits: sequence.splits() }))
    }

    #[inline(always)]
    pub(crate) fn lend(&mut self, span: Span) -> Result<Record<'_>> {
        let Span { at, len, payload_len, splits } = span;
        let payload = match splits {
            0 => &self.input.peek(len)?[HEADER_LEN as usize..][..payload_len],
            _ => &self.joined[..],
        };
        Ok(Record { at, payload, splits, end: at + len as u64 })
    }

    /// Makes the next call return the last checked record again.
    pub(super) fn unread(&mut self) {
        self.given = 0;
    }

    /// Moves past the magic (or other bytes) at the current position to the next magic at a multiple of four, or to
    /// the end of the input.
    pub(super) fn seek_candidate(&mut self) -> Result<()> {
        let first = self.rest(4)?.len();
        self.input.consume(first);
        loop {
            let bytes = self.input.peek(STEP)?;
            let all = bytes.len();
            let found = next_magic(bytes, 0);
            self.input.consume(found.unwrap_or(all));
            if found.is_some() || all < STEP {
                return Ok(());
            }
        }
    }

    /// Reads up to the last frame of a split record whose first frame takes `len` bytes, and joins the frames.
    /// Returns the bytes of all frames.
    #[cold]
    fn join(&mut self, mut len: usize, sequence: &mut Sequence) -> Result<usize> {
        while !sequence.is_complete() {
            len += check_frame(&mut self.input, len, sequence)?.unwrap_or(0);
        }
        self.joined.clear();
        self.joined.reserve_exact(sequence.payload_len() as usize);
        let frames = self.input.peek(len)?;
        let mut pos = 0;
        while let Some(header) = frames.get(pos..).and_then(|rest| rest.first_chunk()) {
            let frame = FrameHeader::parse(header, pos as u64)?;
            if pos > 0 {
                self.joined.extend_from_slice(&frame::MAGIC.to_le_bytes());
            }
            self.joined.extend_from_slice(&frames[pos + HEADER_LEN as usize..][..frame.len as usize]);
            pos += frame.framed_len() as usize;
        }
        Ok(len)
    }

    /// Reads the next record, whose `frames` and payload length `len` are known, and passes its payload to `sink` in
    /// blocks, so that it does not have to fit into memory.
    pub(crate) fn pass(&mut self, frames: Range<u64>, len: u64, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (mut sequence, mut left) = (Sequence::default(), len);
        let mut pass = |bytes: &[u8]| {
            let bytes = &bytes[..bytes.len().min(left as usize)];
            left -= bytes.len() as u64;
            sink(bytes);
        };
        while !sequence.is_complete() {
            let at = self.position();
            let header = self.rest(HEADER_LEN as usize)?;
            let header = header.first_chunk().ok_or_else(|| truncated_header(at, header.len() as u64))?;
            let frame = FrameHeader::parse(header, at)?;
            sequence.take(frame, at)?;
            if sequence.splits() > 0 {
                pass(&frame::MAGIC.to_le_bytes());
            }
            self.pass_frame(frame, at, &mut pass)?;
        }
        if sequence.payload_len() == len && self.position() == frames.end {
            return Ok(());
        }
        Err(unexpected_len(frames.start))
    }

    fn pass_frame(&mut self, frame: FrameHeader, at: u64, pass: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (whole, end) = (frame.framed_len(), at + HEADER_LEN + frame.len);
        self.given = HEADER_LEN as usize;
        let mut escaped = Ok(());
        loop {
            let begin = self.position();
            if begin == end {
                break;
            }
            let want = (end - begin).min(STEP as u64) as usize;
            let block = self.rest(want)?;
            if block.len() < want {
                return Err(truncated_frame(at, whole, begin + block.len() as u64 - at));
            }
            escaped = escaped.and_then(|()| check_escaped(block, begin));
            pass(block);
            self.given = want;
        }
        let want = padding(frame.len) as usize;
        let zeros = self.rest(want)?;
        if zeros.len() < want {
            return Err(truncated_frame(at, whole, end + zeros.len() as u64 - at));
        }
        check_padding(zeros, end)?;
        self.given = want;
        escaped
    }

    /// Returns up to `n` bytes from [`RecordReader::position`] on, without consuming them.
    pub(crate) fn rest(&mut self, n: usize) -> Result<&[u8]> {
        self.input.consume(std::mem::take(&mut self.given));
        Ok(self.input.peek(n)?)
    }
}

/// Returns the payload length of the record here if it is a single valid frame; `None` if it needs a closer check.
#[inline(always)]
fn whole_record(input: &mut impl Input) -> io::Result<Option<usize>> {
    let Some(header) = input.peek(HEADER_LEN as usize)?.first_chunk() else { return Ok(None) };
    let Ok(FrameHeader { flag: 0, len }) = FrameHeader::parse(header, 0) else { return Ok(None) };
    let len = len as usize;
    let padding = padding(len as u64) as usize;
    let bytes = &input.peek(HEADER_LEN as usize + len + padding)?[HEADER_LEN as usize..];
    let clean = bytes.len() == len + padding && bytes[len..].iter().all(|byte| *byte == 0);
    Ok((clean && next_magic(&bytes[..len], 0).is_none()).then_some(len))
}

/// Checks the frame that begins `skip` bytes further on. Returns the bytes that it takes, or `None` if the input ends
/// where a record may end.
#[inline]
fn check_frame(input: &mut impl Input, skip: usize, sequence: &mut Sequence) -> Result<Option<usize>> {
    let at = input.position() + skip as u64;
    let bytes = input.peek(skip + HEADER_LEN as usize)?;
    let have = bytes.len().saturating_sub(skip);
    let Some(header) = bytes.get(skip..).and_then(|rest| rest.first_chunk()) else {
        return if have == 0 && skip == 0 { Ok(None) } else { Err(truncated_header(at, have as u64)) };
    };
    let frame = FrameHeader::parse(header, at)?;
    sequence.take(frame, at)?;
    let whole = frame.framed_len() as usize;
    let bytes = input.peek(skip + whole)?;
    if bytes.len() < skip + whole {
        return Err(truncated_frame(at, whole as u64, (bytes.len() - skip) as u64));
    }
    let (payload, padding) = bytes[skip + HEADER_LEN as usize..].split_at(frame.len as usize);
    check_padding(padding, at + HEADER_LEN + frame.len)?;
    check_escaped(payload, at + HEADER_LEN)?;
    Ok(Some(whole))
}
