//! Files that processes write line by line, ledgers above all.

use std::path::Path;

/// The complete lines of a file; none if it does not exist. A killed process may leave a partial last line.
pub fn whole_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}
