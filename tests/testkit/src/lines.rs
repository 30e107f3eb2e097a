//! What processes write down line by line, ledgers above all.

use std::path::Path;

/// The whole lines of a file; none where it is not there yet. The last one of somebody killed may be cut off.
pub fn whole_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}
