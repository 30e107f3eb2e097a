//! Reading and writing the small things: little-endian integers, varints (LEB128, at most ten bytes), short strings.

use crate::error::{FormatError, Result};
use byteorder::{ByteOrder, LE};

/// A cursor over one record's payload. `base` is the file offset of the record, for messages.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    base: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: u64) -> Self {
        Cursor { bytes, pos: 0, base }
    }

    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    #[inline]
    pub(crate) fn take(&mut self, n: u64, what: &'static str) -> Result<&'a [u8]> {
        if n > self.left() as u64 {
            return Err(self.truncated(n, what));
        }
        let start = self.pos;
        self.pos += n as usize;
        Ok(&self.bytes[start..self.pos])
    }

    #[cold]
    fn truncated(&self, need: u64, what: &'static str) -> FormatError {
        FormatError::Truncated { at: self.base, what, need, have: self.left() as u64 }
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8> {
        let byte = *self.bytes.get(self.pos).ok_or_else(|| self.truncated(1, what))?;
        self.pos += 1;
        Ok(byte)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(LE::read_u32(self.take(4, what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64> {
        Ok(LE::read_u64(self.take(8, what)?))
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    /// An unsigned LEB128 number; the shortest form only, so that every value has one encoding.
    #[inline]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64> {
        match self.bytes.get(self.pos) {
            Some(byte) if *byte < 0x80 => {
                self.pos += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(what),
        }
    }

    fn long_varint(&mut self, what: &'static str) -> Result<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = u64::from(self.u8(what)?);
            if byte < 0x80 {
                if byte == 0 {
                    return Err(self.malformed("a varint is not in its shortest form"));
                }
                if shift == 63 && byte > 1 {
                    return Err(self.malformed("a varint is longer than 64 bits"));
                }
                return Ok(value | byte << shift);
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

    pub(crate) fn text(&mut self, limit: u64, what: &'static str) -> Result<&'a str> {
        let len = self.varint(what)?;
        if len > limit {
            return Err(FormatError::TooLarge { what, value: len, limit });
        }
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed("a text is not UTF-8"))
    }

    pub(crate) fn end(&self, what: &'static str) -> Result<()> {
        if self.left() == 0 { Ok(()) } else { Err(self.malformed(what)) }
    }
}

/// A varint from the front of `bytes`, which is left behind it. None where [`Cursor::varint`] has to look.
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
    fn varints_come_back_and_have_one_form() -> Result<()> {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Cursor::new(&bytes, 0).varint("n")?, value);
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
            assert!(Cursor::new(bad, 0).varint("n").is_err(), "{bad:?}");
            assert_eq!(quick_varint(&mut &bad[..]), None);
        }
        Ok(())
    }
}
