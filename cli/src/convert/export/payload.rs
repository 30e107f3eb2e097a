//! Converts a part to the bytes and the name of a file.

use crate::formats::npy;
use bytes::Bytes;
use ringreel::error::Result;
use ringreel::read::ReadPart;
use ringreel_format::{DType, Part};

/// A converted part.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The part's name, usable as a file name.
    pub name: String,
    /// The extension: `npy`, or `bin` for elements alone.
    pub end: &'static str,
    /// The bytes of the file.
    pub bytes: Bytes,
}

impl Payload {
    /// Converts `part`: to its elements alone if `bare` or it has dtype bytes, else to an `.npy` file.
    ///
    /// # Errors
    /// A dtype that this version or NumPy does not know.
    pub fn of(part: &ReadPart, bare: bool) -> Result<Payload> {
        let name = file_name(&part.name);
        let data = part.data()?;
        if bare || part.dtype == DType::Bytes {
            return Ok(Payload { name, end: "bin", bytes: data.clone() });
        }
        let header = npy::header(&part.dtype, &part.shape)?;
        Ok(Payload { name, end: "npy", bytes: [&header, &data[..]].concat().into() })
    }
}

/// Returns whether the bytes are enough without a header: dtype bytes, or one axis of `u8`.
pub fn is_plain(part: &Part) -> bool {
    part.dtype == DType::Bytes || part.dtype == DType::U8 && part.shape.len() == 1
}

/// Returns `name` as a file name: slashes, control characters, `%` and a leading dot become `%` and two digits.
pub fn file_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (n, c) in name.chars().enumerate() {
        if c == '/' || c == '%' || c.is_control() || (c == '.' && n == 0) {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("%{byte:02x}")));
        } else {
            out.push(c);
        }
    }
    out
}
