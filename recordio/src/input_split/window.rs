//! Reads one file through a moving window: frames, whole records, and the search for the next record.

use ringreel::fs::{FileReader, FsError, FsResult};
use ringreel_format::FormatError;
use ringreel_format::frame::{self, FrameHeader, HEADER_LEN, MAGIC, Sequence, next_magic};

/// Most bytes that are read at once.
pub(super) const WINDOW: usize = 256 << 10;
/// Bytes that are read at once after a jump.
const SMALL: usize = 4 << 10;
/// A jump over fewer bytes counts as sequential reading.
const GAP: u64 = 64 << 10;
const HEADER: usize = HEADER_LEN as usize;

/// Why no record was read.
pub(super) enum Trouble {
    /// The bytes could not be read. A retry may succeed.
    Fs(FsError),
    /// The bytes are malformed.
    Bad(FormatError),
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Trouble {
        Trouble::Fs(error)
    }
}

impl From<FormatError> for Trouble {
    fn from(error: FormatError) -> Trouble {
        Trouble::Bad(error)
    }
}

/// What was found at an offset.
pub(super) enum Parsed {
    /// A record, which ends at `end` and was split `splits` times.
    Record { end: u64, splits: u64 },
    /// Damage.
    Damaged { why: FormatError },
    /// A frame whose length is consistent, because another frame or the end of the file follows it at `end`: not
    /// damage, but a writer with other rules.
    Foreign { why: FormatError, end: u64 },
}

pub(super) struct Window {
    file: Box<dyn FileReader>,
    len: u64,
    buffer: Vec<u8>,
    /// File offset of the buffer's first byte. It is a multiple of 4 when records are read.
    begin: u64,
    /// Bytes to read next if reading is sequential.
    step: usize,
    /// No byte at or after this offset is read ahead.
    pub(super) ahead: u64,
}

impl Window {
    /// Reads the first `len` bytes of `file`.
    pub(super) fn new(file: Box<dyn FileReader>, len: u64) -> Window {
        Window { file, len, buffer: Vec::new(), begin: 0, step: SMALL, ahead: len }
    }

    /// Returns the length of the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the `n` bytes from `at` on, at most [`WINDOW`]; fewer at the end of the file.
    pub(super) fn bytes(&mut self, at: u64, n: usize) -> FsResult<&[u8]> {
        let n = self.len.saturating_sub(at).min(n as u64) as usize;
        if self.held(at) < n {
            self.load(at, n)?;
        }
        let from = (at.saturating_sub(self.begin) as usize).min(self.buffer.len());
        Ok(&self.buffer[from..from + n])
    }

    /// Returns bytes from `at` on, at most `n`: those in the window, or as many as are read at once. Empty only at
    /// the end of the file.
    pub(super) fn some(&mut self, at: u64, n: u64) -> FsResult<&[u8]> {
        let n = n.min(WINDOW as u64) as usize;
        let held = self.held(at);
        self.bytes(at, if held > 0 { held.min(n) } else { n })
    }

    /// Returns how many bytes from `at` on are in the window.
    fn held(&self, at: u64) -> usize {
        let from = at.checked_sub(self.begin).unwrap_or(u64::MAX);
        (self.buffer.len() as u64).saturating_sub(from) as usize
    }

    #[cold]
    fn load(&mut self, at: u64, need: usize) -> FsResult<()> {
        let end = self.begin + self.buffer.len() as u64;
        let on = at >= self.begin && at.saturating_sub(end) < GAP && !self.buffer.is_empty();
        self.step = if on { WINDOW.min(self.step * 2) } else { SMALL };
        let ahead = self.ahead.saturating_sub(at).min(self.step as u64);
        let want = ahead.max(need as u64).next_multiple_of(4).min(self.len - at) as usize;
        self.buffer.resize(want, 0);
        self.begin = at;
        let read = self.file.read_exact_at(&mut self.buffer, at);
        if read.is_err() {
            self.buffer.clear();
        }
        read
    }

    /// Reads the header of the frame at `at`, and checks it against the rest of the file.
    pub(super) fn frame(&mut self, at: u64, sequence: &mut Sequence) -> Result<FrameHeader, Trouble> {
        let len = self.len;
        let bytes = self.bytes(at, HEADER)?;
        let Some(header) = bytes.first_chunk() else {
            let have = bytes.len() as u64;
            return Err(FormatError::Truncated { at, what: "a frame's header", need: HEADER_LEN, have }.into());
        };
        let frame = FrameHeader::parse(header, at)?;
        sequence.take(frame, at)?;
        let (need, have) = (frame.framed_len(), len - at);
        if need > have {
            return Err(FormatError::Truncated { at, what: "a frame", need, have }.into());
        }
        Ok(frame)
    }

    /// Returns where the record at `at` ends. Reads only the headers of its frames.
    pub(super) fn leap(&mut self, mut at: u64) -> Result<u64, Trouble> {
        let mut sequence = Sequence::default();
        while !sequence.is_complete() {
            at += self.frame(at, &mut sequence)?.framed_len();
        }
        Ok(at)
    }

    /// Reads the record at `at` and checks every byte of it. Appends its payload to `out`; if there is no record,
    /// `out` is unchanged.
    pub(super) fn record(&mut self, at: u64, mut out: Option<&mut Vec<u8>>) -> FsResult<Parsed> {
        let before = out.as_deref().map_or(0, Vec::len);
        let (mut sequence, mut pos) = (Sequence::default(), at);
        let trouble = match self.frames(&mut pos, &mut sequence, out.as_deref_mut()) {
            Ok(()) => return Ok(Parsed::Record { end: pos, splits: sequence.splits() }),
            Err(trouble) => trouble,
        };
        if let Some(out) = out {
            out.truncate(before);
        }
        match trouble {
            Trouble::Fs(error) => Err(error),
            Trouble::Bad(why @ (FormatError::UnescapedMagic { .. } | FormatError::UnalignedPart { .. })) => {
                Ok(match self.fits(pos)? {
                    Some(end) => Parsed::Foreign { why, end },
                    None => Parsed::Damaged { why },
                })
            }
            Trouble::Bad(why) => Ok(Parsed::Damaged { why }),
        }
    }

    /// Reads all frames of a record. After an error, `at` is the beginning of the malformed frame.
    fn frames(&mut self, at: &mut u64, sequence: &mut Sequence, mut out: Option<&mut Vec<u8>>) -> Result<(), Trouble> {
        while !sequence.is_complete() {
            let frame = self.frame(*at, sequence)?;
            if let Some(out) = out.as_deref_mut().filter(|_| sequence.splits() > 0) {
                append(out, &MAGIC.to_le_bytes());
            }
            self.payload(*at + HEADER_LEN, frame.len, out.as_deref_mut())?;
            *at += frame.framed_len();
        }
        Ok(())
    }

    fn payload(&mut self, begin: u64, len: u64, mut out: Option<&mut Vec<u8>>) -> Result<(), Trouble> {
        let (mut at, end) = (begin, begin + len);
        let mut magic = None;
        while at < end && magic.is_none() {
            let block = self.some(at, end - at)?;
            magic = next_magic(block, 0).map(|found| at + found as u64);
            at += block.len() as u64;
            if let Some(out) = out.as_deref_mut() {
                append(out, block);
            }
        }
        if !self.is_zero(end, frame::padding(len) as usize)? {
            return Err(FormatError::DirtyPadding { at: end }.into());
        }
        magic.map_or(Ok(()), |at| Err(FormatError::UnescapedMagic { at }.into()))
    }

    /// Returns whether `n` bytes from `at` on, at most 3, are zero. Does not move the window.
    fn is_zero(&mut self, at: u64, n: usize) -> FsResult<bool> {
        let mut padding = [0; 3];
        if self.held(at) >= n {
            padding[..n].copy_from_slice(self.bytes(at, n)?);
        } else {
            self.file.read_exact_at(&mut padding[..n], at)?;
        }
        Ok(padding == [0; 3])
    }

    /// Returns the end of the frame at `at` if its length is consistent: a frame that may follow it begins there, or
    /// the file ends.
    fn fits(&mut self, at: u64) -> FsResult<Option<u64>> {
        let Some((flag, len)) = self.lengths(at)? else { return Ok(None) };
        let last = flag == 0 || flag == 3;
        let end = at + frame::framed_len(len, 0);
        if end == self.len {
            return Ok(last.then_some(end));
        }
        let next = if end < self.len { self.lengths(end)? } else { None };
        Ok(next.filter(|(next, _)| if last { *next < 2 } else { matches!(next, 2 | 3) }).map(|_| end))
    }

    /// Returns the unchecked flag and length of the frame at `at`, if it has the magic. Does not move the window.
    fn lengths(&mut self, at: u64) -> FsResult<Option<(u8, u64)>> {
        let mut header = [0; HEADER];
        if self.len - at < HEADER_LEN {
            return Ok(None);
        }
        self.file.read_exact_at(&mut header, at)?;
        let word =
            |from: usize| u32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]]);
        Ok((word(0) == MAGIC).then(|| ((word(4) >> 29) as u8, u64::from(word(4)) & frame::MAX_LEN)))
    }

    /// Returns whether a record may begin at `at`: there is a magic with the flag of a whole record or of a first
    /// part.
    pub(super) fn is_candidate(&mut self, at: u64) -> FsResult<bool> {
        let bytes = self.bytes(at, HEADER)?;
        Ok(bytes.len() == HEADER && bytes[..4] == MAGIC.to_le_bytes() && bytes[7] >> 5 < 2)
    }

    /// Returns the first offset from `scan` on and before `limit` at which a record may begin. `scan` is a multiple
    /// of 4, and advances.
    pub(super) fn candidate(&mut self, scan: &mut u64, limit: u64) -> FsResult<Option<u64>> {
        let limit = limit.min(self.len);
        while *scan < limit {
            let block = self.some(*scan, limit - *scan)?;
            let found = next_magic(block, 0);
            *scan += found.unwrap_or(block.len()) as u64;
            if found.is_some() {
                if self.is_candidate(*scan)? {
                    return Ok(Some(*scan));
                }
                *scan += 4;
            }
        }
        Ok(None)
    }

    /// Returns the end of a damaged region that is searched from `scan` on: the first record, or, from `cut` on, the
    /// first offset at which a record may begin, or the end of the file.
    pub(super) fn resync(&mut self, scan: &mut u64, cut: u64) -> FsResult<u64> {
        while let Some(at) = self.candidate(scan, self.len)? {
            if at >= cut || !matches!(self.record(at, None)?, Parsed::Damaged { .. }) {
                return Ok(at);
            }
            *scan = at + 4;
        }
        Ok(self.len)
    }
}

/// Appends bytes. The buffer grows with the bytes that arrived, not to a claimed length: by an eighth, or up to
/// [`WINDOW`] bytes.
fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    if out.capacity() - out.len() < bytes.len() {
        out.reserve_exact(bytes.len().max(out.len().min(WINDOW)).max(out.len() / 8));
    }
    out.extend_from_slice(bytes);
}
