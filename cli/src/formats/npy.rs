//! Writes `.npy` files: one array in NumPy's format, as specified by NEP 1
//! (`numpy.org/neps/nep-0001-npy-format.html`) and the docstring of `numpy.lib.format`, which adds versions 2.0 and 3.0:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 6 | `\x93NUMPY` |
//! | 6 | 2 | major and minor version: 1.0; 2.0 for a long header; 3.0 for a header that is not Latin-1 |
//! | 8 | 2 or 4 | length of the header, little endian; 4 bytes from version 2.0 on |
//! | | length | the header: a Python literal, spaces, a line end; the elements follow, at a multiple of 64 |

use super::invalid;
use ringreel::error::{Error, Result};
use ringreel::read::ReadPart;
use ringreel_format::DType;
use std::io::{self, Write};

/// The first bytes of the file.
const SIGNATURE: &[u8] = b"\x93NUMPY";
/// The offset of the elements is a multiple of this.
const ALIGNMENT: usize = 64;

/// NumPy's name of the element type, as the literal in a header. bfloat16 is `<V2`, two opaque bytes, as `numpy.save`
/// writes an array of `ml_dtypes.bfloat16`; `.view(ml_dtypes.bfloat16)` converts them back to numbers.
///
/// # Errors
/// The type belongs to a later version of the format, or its description is not a NumPy type.
pub fn descr(dtype: &DType) -> Result<String> {
    let plain = match dtype {
        DType::Bytes | DType::U8 => "|u1",
        DType::Bool => "|b1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        DType::Numpy { descr, .. } if is_list(descr) => return Ok(descr.clone()),
        DType::Numpy { descr, .. } if is_word(descr) => descr,
        other => return Err(Error::Sample(format!("NumPy has no type for elements of type {other}"))),
    };
    Ok(format!("'{plain}'"))
}

/// Whether `text` can be quoted in a header: `<M8[ns]`, `|S16`.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('[')
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"'\"\\".contains(&byte))
}

/// Whether `text` is exactly one list, so that it cannot add anything else to a header: balanced brackets, quoted
/// strings, all on one line. (NumPy parses it as a literal and never executes it.)
fn is_list(text: &str) -> bool {
    let (mut open, mut quote, mut escaped) = (Vec::new(), None, false);
    let last = text.chars().count().saturating_sub(1);
    for (n, c) in text.chars().enumerate() {
        if c.is_control() {
            return false;
        }
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(end), c) if c == end => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '(') => open.push(c),
            (None, ']' | ')') if open.pop() != Some(if c == ']' { '[' } else { '(' }) => return false,
            (None, '#' | '{' | '}') => return false,
            (None, _) => {}
        }
        if open.is_empty() && n < last {
            return false;
        }
    }
    text.starts_with('[') && text.ends_with(']') && open.is_empty() && quote.is_none()
}

/// All bytes before the elements of an array of this type and `shape`.
///
/// # Errors
/// As [`descr`].
pub fn header(dtype: &DType, shape: &[u64]) -> Result<Vec<u8>> {
    let axes: String = match shape {
        [one] => format!("({one},)"),
        axes => format!("({})", axes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let text = format!("{{'descr': {}, 'fortran_order': False, 'shape': {axes}, }}", descr(dtype)?);
    // Latin-1 if possible, as NumPy does, otherwise UTF-8.
    let latin1: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    let (is_latin1, text) = (latin1.is_some(), latin1.unwrap_or(text.into_bytes()));
    let padded = |before: usize| (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
    let mut out = SIGNATURE.to_vec();
    match u16::try_from(padded(10)) {
        Ok(len) if is_latin1 => {
            out.extend_from_slice(&[1, 0]);
            out.extend_from_slice(&len.to_le_bytes());
        }
        _ => {
            // The limits on names and shapes keep it far below 2^32.
            out.extend_from_slice(&[if is_latin1 { 2 } else { 3 }, 0]);
            out.extend_from_slice(&(padded(12) as u32).to_le_bytes());
        }
    }
    let end = (out.len() + text.len() + 1).next_multiple_of(ALIGNMENT);
    out.extend_from_slice(&text);
    out.resize(end - 1, b' ');
    out.push(b'\n');
    Ok(out)
}

/// Writes a part as a `.npy` file.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for elements that NumPy has no type for (see [`descr`]) or that only a later version
/// can read. An error of `out`.
pub fn write(part: &ReadPart, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let (header, data) = (header(&part.dtype, &part.shape).map_err(invalid)?, part.data().map_err(invalid)?);
    out.write_all(&header)?;
    out.write_all(data)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As `numpy.save` of NumPy 2 writes it.
    #[test]
    fn a_header_is_the_one_that_numpy_writes() {
        let out = header(&DType::F32, &[2, 3]).unwrap();
        let text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(out[..10], *b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!((&out[10..10 + text.len()], out.len(), out.last()), (&text[..], 128, Some(&b'\n')));
        let shape_of = |shape: &[u64]| String::from_utf8_lossy(&header(&DType::U8, shape).unwrap()).into_owned();
        assert!(shape_of(&[]).contains("'shape': (), }") && shape_of(&[7]).contains("'shape': (7,), }"));
    }

    /// A header that is too long for version 1 gets version 2, and one with characters outside Latin-1 gets version 3.
    #[test]
    fn header_version_follows_its_length_and_characters() {
        let fields = |name: &str, n: usize| {
            let fields: Vec<String> = (0..n).map(|n| format!("('{name}{n}', '<f4')")).collect();
            DType::Numpy { descr: format!("[{}]", fields.join(", ")), itemsize: 4 * n as u32 }
        };
        for (dtype, version) in [(fields("a", 3), 1), (fields("a", 5000), 2), (fields("ä", 3), 1), (fields("長", 3), 3)]
        {
            let out = header(&dtype, &[1]).unwrap();
            let (len, begin) = match version {
                1 => (usize::from(u16::from_le_bytes([out[8], out[9]])), 10),
                _ => (u32::from_le_bytes([out[8], out[9], out[10], out[11]]) as usize, 12),
            };
            assert_eq!((out[6], out.len(), out.len() % 64), (version, begin + len, 0));
        }
    }

    #[test]
    fn a_description_can_only_be_a_type() {
        let named = |text: &str| descr(&DType::Numpy { descr: text.to_owned(), itemsize: 1 });
        for good in ["<M8[ns]", "|S16", "[('x', '<f4'), ('y', '|u1', (3,))]", "[('it\\'s ]', '<f4')]", "[]"] {
            assert!(named(good).is_ok(), "{good}");
        }
        for bad in ["", "a'b", "a\\", "a b", "[", "[]]", "[], 'shape': (1,), 'x': []", "[(])", "[']", "[\n]", "[]#[]"] {
            assert!(named(bad).is_err(), "{bad}");
        }
        assert!(descr(&DType::Unknown { code: 77, itemsize: 3 }).is_err());
    }
}
