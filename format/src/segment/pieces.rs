//! The records of a large part: pieces of 2^28 bytes, each at an aligned offset, after a pad if necessary.

use super::{ALIGNMENT, CHUNK};
use crate::frame::{HEADER_LEN, framed_len};
use std::ops::Range;

/// One record of a large part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// File offsets of its frames, first to last.
    pub frames: Range<u64>,
    /// Bytes of its payload.
    pub len: u64,
}

/// All records of a large part. They take no memory per record, however many a head claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// File offset at which the record before them ends.
    after: u64,
    /// Bytes of the part.
    len: u64,
    /// How often the framing splits each record; empty if it splits none.
    splits: Vec<u64>,
    end: u64,
}

impl Pieces {
    /// Places the records of a part of `len` stored bytes that follows the record that ends at `after`. `splits` is
    /// empty or has a number per record. Returns `None` if they would extend beyond 2^63.
    pub(crate) fn place(after: u64, len: u64, splits: Vec<u64>) -> Option<Pieces> {
        let mut pieces = Pieces { after, len, splits, end: 0 };
        let limit = i64::MAX as u64;
        pieces.end = match pieces.count() - 1 {
            // Without splits, all but the first begin after a record that ended at a multiple of 64.
            more if more > 0 && pieces.splits.is_empty() => {
                let first = pad_frames(after).end.checked_add(framed_len(CHUNK, 0))?;
                let each = pad_frames(0).end + framed_len(CHUNK, 0);
                let last = pad_frames(0).end + framed_len(len - more * CHUNK, 0);
                first.checked_add((more - 1).checked_mul(each)?)?.checked_add(last)?
            }
            _ => pieces.iter().try_fold(after, |end, piece| (piece.frames.end >= end).then_some(piece.frames.end))?,
        };
        (len <= limit && pieces.end <= limit).then_some(pieces)
    }

    /// Places the records after the record that ends at `after`. Returns where the last one ends, or `None` if
    /// [`Pieces::place`] has to do this because there are several records or the framing splits them.
    #[inline]
    pub(crate) fn follow(&mut self, after: u64) -> Option<u64> {
        if self.len > CHUNK || !self.splits.is_empty() {
            return None;
        }
        let end = pad_frames(after).end.checked_add(framed_len(self.len, 0)).filter(|end| *end <= i64::MAX as u64)?;
        (self.after, self.end) = (after, end);
        Some(end)
    }

    /// Returns the number of records.
    pub fn count(&self) -> u64 {
        count(self.len)
    }

    /// Returns the file offsets of all frames, first to last, including the pads between them.
    pub fn frames(&self) -> Range<u64> {
        pad_frames(self.after).end..self.end
    }

    /// Returns how often the framing splits all of them together.
    pub fn splits(&self) -> u64 {
        self.splits.iter().sum()
    }

    /// Returns the records in order.
    pub fn iter(&self) -> impl Iterator<Item = Piece> {
        let mut pos = self.after;
        lengths(self.len).enumerate().map(move |(n, len)| {
            let begin = pad_frames(pos).end;
            pos = begin.saturating_add(framed_len(len, self.splits.get(n).copied().unwrap_or(0)));
            Piece { frames: begin..pos, len }
        })
    }
}

/// Returns the number of records of a large part of `len` bytes.
pub(crate) fn count(len: u64) -> u64 {
    len.div_ceil(CHUNK).max(1)
}

/// Returns the lengths of the records of a large part of `len` bytes.
pub(crate) fn lengths(len: u64) -> impl Iterator<Item = u64> {
    (0..count(len)).map(move |n| (len - n * CHUNK).min(CHUNK))
}

/// Returns the payload length of the pad record needed at `pos` to align the next record's payload; `None` if it is
/// aligned without a pad.
pub(crate) fn pad_before(pos: u64) -> Option<u64> {
    let misaligned = |pos: u64| pos.wrapping_neg() % ALIGNMENT;
    (misaligned(pos.wrapping_add(HEADER_LEN)) != 0).then(|| misaligned(pos.wrapping_add(2 * HEADER_LEN)))
}

/// Returns the frames of the pad needed at file offset `pos`; empty if none is needed.
pub(crate) fn pad_frames(pos: u64) -> Range<u64> {
    pos..pos.saturating_add(pad_before(pos).map_or(0, |len| framed_len(len, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_end_is_that_of_the_last_record() {
        for after in (0..300).step_by(4) {
            for len in [0, 1, 63, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 1000 * CHUNK + 77] {
                let pieces = Pieces::place(after, len, Vec::new());
                let last = pieces.as_ref().and_then(|pieces| pieces.iter().last());
                assert_eq!(last.map(|piece| piece.frames.end), pieces.as_ref().map(|pieces| pieces.end));
                let all = pieces.iter().flat_map(Pieces::iter).map(|piece| piece.len).sum::<u64>();
                assert_eq!(all, len);
                let aligned = |piece: Piece| (piece.frames.start + HEADER_LEN).is_multiple_of(ALIGNMENT);
                assert!(pieces.iter().flat_map(Pieces::iter).all(aligned));
            }
        }
        for (after, len) in [(0, u64::MAX), (0, i64::MAX as u64), (i64::MAX as u64, 0), (u64::MAX, u64::MAX)] {
            assert_eq!(Pieces::place(after, len, Vec::new()), None);
        }
    }
}
