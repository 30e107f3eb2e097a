//! Borrowed samples of a segment, in any order, without a copy or an object for each: for many small ones.
//!
//! The file's length is looked at when the lending begins and when it ends, not for each sample. So what was lent counts
//! only when the end has been asked for and was no error.

use super::reader::{Access, SegmentReader, can_read_instead, torn};
use crate::error::Result;
use crate::fs::sigbus::is_truncated;
use bytes::Bytes;
use ringreel_format::segment::view::{SampleDecoder, SampleView};
use std::hint::black_box;
use std::ops::Range;

/// Samples of more bytes are not lent; where a segment is not mapped, so many bytes are read at a time.
pub const MAX_BORROWED_BYTES: u64 = 1 << 20;

/// A lending that has begun.
pub struct SegmentBorrow {
    decoder: SampleDecoder,
    window: Window,
}

/// Bytes of the file, from `at` on.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Bytes,
}

impl Window {
    fn holds(&self, extent: &Range<u64>) -> bool {
        self.at <= extent.start && extent.end <= self.at + self.bytes.len() as u64
    }

    fn slice(&self, extent: &Range<u64>) -> &[u8] {
        &self.bytes[(extent.start - self.at) as usize..(extent.end - self.at) as usize]
    }
}

impl SegmentReader {
    /// Begins to lend.
    ///
    /// # Errors
    /// What the filesystem says; a file that has another length than when it was opened.
    pub fn begin_lending(&self) -> Result<SegmentBorrow> {
        self.check_len()?;
        let window = match self.access() {
            Access::Shared | Access::Private => match self.whole() {
                Ok(bytes) => Window { at: 0, bytes },
                Err(error) if can_read_instead(&error) => Window::default(),
                Err(error) => return Err(error.into()),
            },
            Access::Copy => Window::default(),
        };
        Ok(SegmentBorrow { decoder: SampleDecoder::new(self.info()), window })
    }

    /// Lends samples that stand one after the other, from `ordinals` on: `visit` gets each in turn, for as long as it
    /// returns true. Whether the checksums of the large parts of a sample are compared is for `verify` to say. It ends
    /// early, without an error, before a sample that cannot be lent: one that is damaged, compressed, or larger than
    /// [`MAX_BORROWED_BYTES`]. Returns how many were visited.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn lend(
        &self,
        lending: &mut SegmentBorrow,
        ordinals: Range<u64>,
        verify: impl Fn(u64) -> bool,
        mut visit: impl FnMut(u64, &SampleView<'_>) -> bool,
    ) -> Result<u64> {
        let footer = &self.tail().footer;
        let SegmentBorrow { decoder, window } = lending;
        let mut visited = 0;
        let until = match footer.extent(ordinals.end.saturating_sub(1)) {
            Ok(Some(last)) => last.end,
            _ => footer.at,
        };
        for ordinal in ordinals {
            let Ok(Some(extent)) = footer.extent(ordinal) else { break };
            if extent.end - extent.start > MAX_BORROWED_BYTES {
                break;
            }
            if !window.holds(&extent) {
                let end = until.min(extent.start + MAX_BORROWED_BYTES).max(extent.end);
                *window = Window { at: extent.start, bytes: self.read(extent.start..end)? };
            }
            let bytes = window.slice(&extent);
            if decoder.decode(bytes, extent.start, self.info()).is_err() {
                break;
            }
            let view = decoder.view(bytes, extent.start);
            let is_right = view.head().ordinal == ordinal && view.is_plain();
            if !is_right || if verify(ordinal) { view.check() } else { view.check_frames() }.is_err() {
                break;
            }
            visited += 1;
            if !visit(ordinal, &view) {
                break;
            }
        }
        Ok(visited)
    }

    /// Reads a byte of each cache line with which a sample begins, where it is in memory.
    pub(crate) fn touch(&self, lending: &SegmentBorrow, ordinal: u64) {
        const LINE: usize = 64;
        if let Ok(Some(extent)) = self.tail().footer.extent(ordinal)
            && lending.window.holds(&extent)
        {
            lending.window.slice(&extent).iter().step_by(LINE).take(4).for_each(|byte| {
                black_box(*byte);
            });
        }
    }

    /// Whether what was lent is what the file holds.
    ///
    /// # Errors
    /// What the filesystem says; a file that was truncated meanwhile, or has another length than when it was opened. What
    /// was visited may then be wrong.
    pub fn end_lending(&self, lending: &SegmentBorrow) -> Result<()> {
        if is_truncated(&lending.window.bytes) {
            return Err(torn(self.path()));
        }
        self.check_len()
    }
}
