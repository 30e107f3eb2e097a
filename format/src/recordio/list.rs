//! `.lst` files, as MXNet's `im2rec` reads and writes them: one line `index <TAB> label ... <TAB> path` per image.

use super::index::decimal;
use super::lines;
use crate::error::{FormatError, Result};
use std::io::Write;

/// One line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The image's number, which becomes its key in the `.idx` file.
    pub index: u64,
    labels: &'a str,
    /// Path of the image, relative to a root that is not in the list.
    pub path: &'a str,
}

impl<'a> Item<'a> {
    /// Returns its labels, one or more.
    pub fn labels(&self) -> impl Iterator<Item = f32> + 'a {
        self.labels.split('\t').filter_map(|label| label.parse().ok())
    }
}

/// Returns the items of a list, in its order. An empty file is an empty list.
///
/// # Errors
/// An error for each malformed line: fewer than three fields, an index that is not a decimal number below 2^64, a
/// label that is not a number, an empty path, or a CR that is not part of the line end.
pub fn items(bytes: &[u8]) -> impl Iterator<Item = Result<Item<'_>>> {
    lines(bytes).map(|line| {
        let (line, text) = line?;
        let fields = text.split_once('\t').and_then(|(index, rest)| Some((index, rest.rsplit_once('\t')?)));
        let (index, (labels, path)) = fields.ok_or_else(|| line.bad("is not index, TAB, labels, TAB, path"))?;
        let index = decimal(index).ok_or_else(|| line.bad("has an index that is not a number below 2^64"))?;
        if !labels.split('\t').all(|label| label.parse::<f32>().is_ok()) {
            return Err(line.bad("has a label that is not a number"));
        }
        if path.is_empty() {
            return Err(line.bad("has an empty path"));
        }
        Ok(Item { index, labels, path })
    })
}

/// Writes one line.
///
/// # Errors
/// No label; a path that could not be read back: empty, with a TAB or a line end; errors of the sink.
pub fn write_item(sink: &mut dyn Write, index: u64, labels: &[f32], path: &str) -> Result<()> {
    if labels.is_empty() || path.is_empty() || path.contains(['\t', '\n', '\r']) {
        return Err(FormatError::Input(format!("{path:?} with {} labels cannot be a line of a list", labels.len())));
    }
    write!(sink, "{index}\t")?;
    for label in labels {
        write!(sink, "{label}\t")?;
    }
    Ok(writeln!(sink, "{path}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_lines_round_trip_and_bad_lines_are_refused() {
        let mut written = Vec::new();
        assert!(write_item(&mut written, 7, &[1.0, -0.25], "a b/c.jpg").is_ok());
        assert_eq!(written, b"7\t1\t-0.25\ta b/c.jpg\n");
        let item = items(&written).next().and_then(Result::ok);
        let item = item.map(|item| (item.index, item.labels().collect::<Vec<_>>(), item.path));
        assert_eq!(item, Some((7, vec![1.0, -0.25], "a b/c.jpg")));
        for bad in [
            &b"\n"[..],
            b"1\tx.jpg",
            b"-1\t0\tx",
            b"\t0\tx",
            b"1\t\tx",
            b"1\t0\t\tx",
            b"1\tcat\tx",
            b"1\t0\t",
            b"1\t0\tx\r",
            b"1\t0\t\xff",
        ] {
            assert!(matches!(items(bad).next(), Some(Err(_))), "{bad:?}");
        }
    }
}
