//! Where the rings of these tests store their index. RINGREEL_TEST_INDEX=mongodb://... selects a server, so that the
//! same tests run with another index.

use std::path::Path;

/// The configuration lines for it, for a ring in `dir`.
pub fn lines(dir: &Path) -> String {
    let Ok(uri) = std::env::var("RINGREEL_TEST_INDEX") else { return String::new() };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let place: String = dir.display().to_string().chars().map(plain).collect();
    format!("MONGOURI: '{uri}'\nCOUNTER_COLLECTION: {place}\n")
}
