//! The RecordIO family: plain `.rec` files as dmlc-core and MXNet write them, and the files that belong to them.
//!
//! | file | contents |
//! |---|---|
//! | [`reader`] | reads records in order, strictly |
//! | [`resync`] | reads records in order, continues after damage and reports what was skipped |
//! | [`writer`] | writes records |
//! | [`index`] | `.idx`: where the record of each key begins |
//! | [`list`] | `.lst`: labels and path of each image that is to become a record |
//! | [`image`] | the header (`IRHeader`) with which MXNet begins the records of labelled images |
//!
//! `RECORDIO.md` beside this crate says what is accepted, what is refused, and where that differs from dmlc-core.

pub mod image;
pub mod index;
pub mod list;
pub mod reader;
pub mod resync;
pub mod writer;

pub use reader::{Record, RecordReader};
pub use resync::{Region, ResyncItem, ResyncReader};
pub use writer::RecordWriter;

use crate::error::{FormatError, Result};

/// Returns the lines of a text file, with the offset of their first byte and their number from 1. A line ends in LF
/// or CR LF; the last line may end without either. Any other CR is an error, because some readers treat it as a line
/// end.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<(Line, &str)>> {
    let (mut rest, mut line) = (bytes, Line { at: 0, number: 0 });
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let here = Line { number: line.number + 1, ..line };
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (text, after) = end.map_or((rest, &rest[rest.len()..]), |end| (&rest[..end], &rest[end + 1..]));
        line = Line { at: here.at + (rest.len() - after.len()) as u64, number: here.number };
        rest = after;
        let text = if end.is_some() { text.strip_suffix(b"\r").unwrap_or(text) } else { text };
        let text = std::str::from_utf8(text).map_err(|_| here.bad("is not UTF-8"));
        Some(text.and_then(|text| {
            if text.contains('\r') { Err(here.bad("holds a carriage return")) } else { Ok((here, text)) }
        }))
    })
}

#[derive(Clone, Copy)]
struct Line {
    at: u64,
    number: u64,
}

impl Line {
    fn bad(self, what: &'static str) -> FormatError {
        FormatError::BadLine { at: self.at, line: self.number, what }
    }
}
