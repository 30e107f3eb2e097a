//! `.idx` files: one line `key <TAB> offset` for each record of a `.rec` file.

use super::lines;
use crate::error::{FormatError, Result};
use std::io::Write;

/// One line of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The record's key: mostly a number, but any text without TAB and line end.
    pub key: &'a str,
    /// File offset of the record's first byte in the `.rec` file.
    pub offset: u64,
}

/// Returns the entries of an index, in its order. An empty file is an empty index. A key may occur twice; MXNet then
/// uses the last one.
///
/// # Errors
/// An error for each line that is not `key <TAB> offset`: empty, without TAB, without key, with an offset that is not
/// a decimal number below 2^64, or with a CR that is not part of the line end.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<Entry<'_>>> {
    lines(bytes).map(|line| {
        let (line, text) = line?;
        let (key, offset) = text.split_once('\t').ok_or_else(|| line.bad("is not key, TAB, offset"))?;
        if key.is_empty() {
            return Err(line.bad("has an empty key"));
        }
        let offset = decimal(offset).ok_or_else(|| line.bad("has an offset that is not a number below 2^64"))?;
        Ok(Entry { key, offset })
    })
}

/// Writes one line.
///
/// # Errors
/// A key that could not be read back: empty, with a TAB or a line end; errors of the sink.
pub fn write_entry(sink: &mut dyn Write, entry: Entry<'_>) -> Result<()> {
    if entry.key.is_empty() || entry.key.contains(['\t', '\n', '\r']) {
        return Err(FormatError::Input(format!(
            "{:?} cannot be a key of an index (empty, or with a TAB or line end)",
            entry.key
        )));
    }
    Ok(writeln!(sink, "{}\t{}", entry.key, entry.offset)?)
}

/// Parses a decimal number without a sign.
pub(super) fn decimal(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lines_round_trip_and_bad_lines_are_reported() {
        let text = b"0\t0\r\ncat\t18446744073709551615";
        let read = entries(text).collect::<Result<Vec<_>>>().unwrap_or_default();
        assert_eq!(read, [Entry { key: "0", offset: 0 }, Entry { key: "cat", offset: u64::MAX }]);
        let mut written = Vec::new();
        assert!(read.iter().all(|entry| write_entry(&mut written, *entry).is_ok()));
        assert_eq!(written, b"0\t0\ncat\t18446744073709551615\n");
        assert_eq!(entries(b"").count(), 0);
        for bad in [
            &b"\n"[..],
            b"1",
            b"1 2\n",
            b"\t5\n",
            b"1\t\n",
            b"1\t+5",
            b"1\t5\r",
            b"1\t18446744073709551616",
            b"1\t2\t3",
            b"\xff\t1",
        ] {
            let text = [b"0\t0\n", bad].concat();
            let error = entries(&text).nth(1).and_then(Result::err).map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with("line 2 (byte 4) "), "{bad:?}: {error}");
        }
    }
}
