//! Reads and writes primitives: little-endian integers, varints (LEB128, at most ten bytes), short strings.

use crate::describe::FieldKind;
use crate::error::{FormatError, Result};
use byteorder::{ByteOrder, LE};
use std::ops::Range;

/// Follows a decoder from field to field. The `()` that readers use does nothing and costs nothing;
/// [`crate::describe`] records what each byte is.
pub(crate) trait Trace {
    /// Records a field of `kind`: `bytes` is its range in the payload, `content` its bytes, `number` its value if it
    /// is a number.
    #[inline(always)]
    fn field(&mut self, _kind: FieldKind, _bytes: Range<usize>, _content: &[u8], _number: Option<u64>) {}

    /// Sets the part that the following fields describe: its number and, once it is known, its name; or `None`.
    #[inline(always)]
    fn part(&mut self, _part: Option<(usize, &str)>) {}

    /// Records that the last field of `kind` is wrong. An error ends the decoding.
    ///
    /// # Errors
    /// `error`, to end the decoding.
    #[inline(always)]
    fn refuse(&mut self, _kind: FieldKind, error: FormatError) -> Result<()> {
        Err(error)
    }
}

impl Trace for () {}

/// A cursor over the payload of a record. `base` is the file offset of the record, for messages.
pub(crate) struct Cursor<'a, T = ()> {
    bytes: &'a [u8],
    pos: usize,
    base: u64,
    pub(crate) trace: T,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: u64) -> Self {
        Cursor::traced(bytes, base, ())
    }
}

impl<'a, T: Trace> Cursor<'a, T> {
    pub(crate) fn traced(bytes: &'a [u8], base: u64, trace: T) -> Self {
        Cursor { bytes, pos: 0, base, trace }
    }

    /// Returns all bytes, including those already read.
    pub(crate) fn payload(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// Reads the next `n` bytes without reporting them to the trace.
    #[inline]
    fn next(&mut self, n: u64, kind: FieldKind) -> Result<&'a [u8]> {
        if n > self.left() as u64 {
            return Err(self.truncated(n, kind));
        }
        let start = self.pos;
        self.pos += n as usize;
        Ok(&self.bytes[start..self.pos])
    }

    /// Reports the field from `start` to the current position to the trace.
    #[inline]
    fn done(&mut self, start: usize, kind: FieldKind, number: Option<u64>) {
        self.trace.field(kind, start..self.pos, &self.bytes[start..self.pos], number);
    }

    #[inline]
    pub(crate) fn take(&mut self, n: u64, kind: FieldKind) -> Result<&'a [u8]> {
        let bytes = self.next(n, kind)?;
        self.done(self.pos - bytes.len(), kind, None);
        Ok(bytes)
    }

    #[cold]
    fn truncated(&self, need: u64, kind: FieldKind) -> FormatError {
        FormatError::Truncated { at: self.base, what: kind.in_errors(), need, have: self.left() as u64 }
    }

    /// Ends the decoding because the field of `kind` is wrong. A cursor that describes the record continues.
    ///
    /// # Errors
    /// `error`, unless the trace continues.
    pub(crate) fn refuse(&mut self, kind: FieldKind, error: FormatError) -> Result<()> {
        self.trace.refuse(kind, error)
    }

    #[inline]
    pub(crate) fn u8(&mut self, kind: FieldKind) -> Result<u8> {
        let byte = *self.bytes.get(self.pos).ok_or_else(|| self.truncated(1, kind))?;
        self.pos += 1;
        self.done(self.pos - 1, kind, Some(u64::from(byte)));
        Ok(byte)
    }

    pub(crate) fn u32(&mut self, kind: FieldKind) -> Result<u32> {
        let number = LE::read_u32(self.next(4, kind)?);
        self.done(self.pos - 4, kind, Some(u64::from(number)));
        Ok(number)
    }

    pub(crate) fn u64(&mut self, kind: FieldKind) -> Result<u64> {
        let number = LE::read_u64(self.next(8, kind)?);
        self.done(self.pos - 8, kind, Some(number));
        Ok(number)
    }

    pub(crate) fn array<const N: usize>(&mut self, kind: FieldKind) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, kind)?);
        Ok(out)
    }

    /// Reads an unsigned LEB128 number, only in its shortest form, so that every value has one encoding.
    #[inline]
    pub(crate) fn varint(&mut self, kind: FieldKind) -> Result<u64> {
        let start = self.pos;
        let number = match self.bytes.get(start) {
            Some(byte) if *byte < 0x80 => {
                self.pos += 1;
                u64::from(*byte)
            }
            _ => {
                let (number, len) = self.long_varint(kind)?;
                self.pos += len;
                number
            }
        };
        self.done(start, kind, Some(number));
        Ok(number)
    }

    /// Reads a varint. Returns it with its length in bytes.
    fn long_varint(&self, kind: FieldKind) -> Result<(u64, usize)> {
        let (mut value, mut shift, mut len) = (0, 0, 0);
        loop {
            let truncated = || FormatError::Truncated { at: self.base, what: kind.in_errors(), need: 1, have: 0 };
            let byte = u64::from(*self.bytes.get(self.pos + len).ok_or_else(truncated)?);
            len += 1;
            if byte < 0x80 {
                if byte == 0 && len > 1 {
                    return Err(self.malformed("a varint is not in its shortest form"));
                }
                if shift == 63 && byte > 1 {
                    return Err(self.malformed("a varint is longer than 64 bits"));
                }
                return Ok((value | byte << shift, len));
            }
            if shift == 63 {
                return Err(self.malformed("a varint is longer than 64 bits"));
            }
            value |= (byte & 0x7f) << shift;
            shift += 7;
        }
    }

    #[cold]
    fn malformed(&self, what: &'static str) -> FormatError {
        FormatError::Malformed { at: self.base, what }
    }

    /// Reads a text of the field `kind`, which follows its length, the field `length`.
    pub(crate) fn text(&mut self, limit: u64, length: FieldKind, kind: FieldKind) -> Result<&'a str> {
        let len = self.varint(length)?;
        if len > limit {
            return Err(FormatError::TooLarge { what: kind.in_errors(), value: len, limit });
        }
        let bytes = self.take(len, kind)?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed("a text is not UTF-8"))
    }

    pub(crate) fn end(&mut self, what: &'static str) -> Result<()> {
        if self.left() == 0 { Ok(()) } else { self.refuse(FieldKind::Leftover, self.malformed(what)) }
    }
}

/// Reads a varint at the start of `bytes`, and advances `bytes`. Returns `None` if [`Cursor::varint`] has to decide.
#[inline(always)]
pub(crate) fn quick_varint(bytes: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        match byte {
            0 if shift > 0 => return None,
            0..0x80 => return Some(value),
            _ if shift == 49 => return None,
            _ => shift += 7,
        }
    }
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_one_encoding() -> Result<()> {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Cursor::new(&bytes, 0).varint(FieldKind::Ordinal)?, value);
            let quick = quick_varint(&mut &bytes[..]);
            assert_eq!(quick, (value >> 56 == 0).then_some(value));
        }
        for bad in [
            &[0x80, 0x00][..],
            &[0xff; 10],
            &[0x80; 11],
            &[0x80],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ] {
            assert!(Cursor::new(bad, 0).varint(FieldKind::Ordinal).is_err(), "{bad:?}");
            assert_eq!(quick_varint(&mut &bad[..]), None);
        }
        Ok(())
    }
}
