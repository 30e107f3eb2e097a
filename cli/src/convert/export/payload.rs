//! The bytes that a part becomes in a file, and the name that its file gets.

use crate::formats::npy;
use bytes::Bytes;
use ringreel::error::Result;
use ringreel::read::ReadPart;
use ringreel_format::{DType, Part};

/// A part as it is written.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The part's name, as a file may be called.
    pub name: String,
    /// How its file ends: `npy`, or `bin` for bare bytes.
    pub end: &'static str,
    /// What is written.
    pub bytes: Bytes,
}

impl Payload {
    /// Of `part`: its bare elements where that is wished for or it is no tensor, else an `.npy` file.
    ///
    /// # Errors
    /// A type that this version or NumPy does not know.
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

/// Whether its bytes say all: no tensor, or one axis of `u8`.
pub fn is_plain(part: &Part) -> bool {
    part.dtype == DType::Bytes || part.dtype == DType::U8 && part.shape.len() == 1
}

/// `name` as a file may be called: what would lead elsewhere, or is no text on one line, becomes `%` and two digits.
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
