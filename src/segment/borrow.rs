//! Borrows samples of a segment, in any order, without a copy or an object per sample: for many small samples.
//!
//! The file's length is checked when the borrowing begins and when it ends, not for each sample. So borrowed samples
//! are valid only if [`SegmentReader::end_lending`] was called and returned no error.

use super::reader::{Access, SegmentReader, can_read_instead, truncated_map};
use crate::error::Result;
use crate::fs::sigbus::is_truncated;
use bytes::Bytes;
use ringreel_format::segment::view::{SampleDecoder, SampleView};
use std::hint::black_box;
use std::ops::Range;

/// Largest sample that can be borrowed, and bytes that are read at a time if a segment is not mapped.
pub const MAX_BORROWED_BYTES: u64 = 1 << 20;

/// State of a borrowing in progress.
pub struct SegmentBorrow {
    decoder: SampleDecoder,
    window: Window,
}

/// Bytes of the file, from offset `at` on.
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
    /// Begins to borrow samples.
    ///
    /// # Errors
    /// Filesystem errors; a file whose length has changed since it was opened.
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

    /// Calls `visit` with consecutive samples, from the first of `ordinals` on, as long as it returns true. `verify`
    /// says whether the checksums of a sample's large parts are verified. Ends early, without an error, before a
    /// sample that cannot be borrowed because it is damaged, compressed, or larger than [`MAX_BORROWED_BYTES`].
    /// Returns how many samples were visited.
    ///
    /// # Errors
    /// Filesystem errors.
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

    /// Reads a byte of each of the first cache lines of a sample that is in memory, so that the CPU fetches them.
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

    /// Ends the borrowing: checks that the borrowed samples were intact.
    ///
    /// # Errors
    /// Filesystem errors; a file that was truncated, or whose length has changed since it was opened. The visited
    /// samples may then be wrong.
    pub fn end_lending(&self, lending: &SegmentBorrow) -> Result<()> {
        if is_truncated(&lending.window.bytes) {
            return Err(truncated_map(self.path()));
        }
        self.check_len()
    }
}
