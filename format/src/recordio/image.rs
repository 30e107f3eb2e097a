//! The header with which MXNet begins the records of labelled images: `IRHeader`, in Python's `struct` notation `IfQQ`.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | flag, u32: number of labels that follow the header; 0: the label is in it |
//! | 4 | 4 | label, f32 |
//! | 8 | 8 | id, u64 |
//! | 16 | 8 | id2, u64 |
//! | 24 | 4 × flag | labels, f32 each |
//! | | | the image file, or any bytes |

use crate::describe::FieldKind;
use crate::error::{FormatError, Result};
use crate::wire::{Cursor, Trace};
use byteorder::{ByteOrder, LE};

/// Bytes of the header, without the labels that follow it.
pub const LEN: usize = 24;

/// The header of an image record and its contents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Image<'a> {
    /// The label if there is one, else the writer's value (MXNet: 0).
    pub label: f32,
    /// The image's number.
    pub id: u64,
    /// Unused by MXNet: 0.
    pub id2: u64,
    /// Labels that follow the header, as the bytes of f32 numbers; empty if the only label is in the header.
    labels: &'a [u8],
    /// The image file, or any bytes.
    pub content: &'a [u8],
}

impl<'a> Image<'a> {
    /// Decodes the image in a record's payload.
    ///
    /// # Errors
    /// A payload that is shorter than the header and its labels.
    pub fn decode(payload: &'a [u8]) -> Result<Image<'a>> {
        Image::decode_fields(&mut Cursor::new(payload, 0))
    }

    pub(crate) fn decode_fields<T: Trace>(cursor: &mut Cursor<'a, T>) -> Result<Image<'a>> {
        let have = cursor.left() as u64;
        let short = |need| FormatError::Truncated { at: 0, what: "an image's header", need, have };
        if have < LEN as u64 {
            return Err(short(LEN as u64));
        }
        let len = u64::from(cursor.u32(FieldKind::ImageFlag)?) * 4;
        let label = f32::from_bits(cursor.u32(FieldKind::ImageLabel)?);
        let (id, id2) = (cursor.u64(FieldKind::ImageId)?, cursor.u64(FieldKind::ImageId2)?);
        if len > cursor.left() as u64 {
            return Err(short(LEN as u64 + len));
        }
        let labels = if len > 0 { cursor.take(len, FieldKind::ImageLabels)? } else { &[] };
        let content = cursor.take(cursor.left() as u64, FieldKind::ImageContent)?;
        Ok(Image { label, id, id2, labels, content })
    }

    /// Returns all labels: those that follow the header, or the one in it.
    pub fn labels(&self) -> impl Iterator<Item = f32> + 'a {
        let only = self.labels.is_empty().then_some(self.label);
        self.labels.chunks_exact(4).map(LE::read_f32).chain(only)
    }
}

/// Encodes the payload of a record: header, labels, content. One label is in the header, several follow it. No label
/// reads back as the label 0.
pub fn encode(id: u64, id2: u64, labels: &[f32], content: &[u8]) -> Vec<u8> {
    let (flag, label, behind) = match labels {
        [only] => (0, *only, &[][..]),
        many => (many.len() as u32, 0.0, many),
    };
    let mut out = Vec::with_capacity(LEN + 4 * behind.len() + content.len());
    out.extend_from_slice(&flag.to_le_bytes());
    out.extend_from_slice(&label.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&id2.to_le_bytes());
    behind.iter().for_each(|label| out.extend_from_slice(&label.to_le_bytes()));
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_label_is_in_the_header_and_several_follow_it() -> Result<()> {
        let one = encode(9, 0, &[2.5], b"jpg");
        assert_eq!(&one[..16], [0, 0, 0, 0, 0, 0, 0x20, 0x40, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Image::decode(&one)?.labels().collect::<Vec<_>>(), [2.5]);
        let three = encode(9, 7, &[1.0, 2.0, 3.0], b"jpg");
        let image = Image::decode(&three)?;
        assert_eq!(
            ((image.id, image.id2), image.labels().collect::<Vec<_>>(), image.content),
            ((9, 7), vec![1.0, 2.0, 3.0], &b"jpg"[..])
        );
        assert_eq!(three.len(), LEN + 12 + 3);
        for len in 0..LEN + 12 {
            assert!(Image::decode(&three[..len]).is_err());
        }
        Ok(())
    }
}
