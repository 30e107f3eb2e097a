//! Waiting with a limit.

use std::io::Write;
use std::time::{Duration, Instant};

/// Longest time that a test waits for anything. It only catches hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until it is true. Panics after [`PATIENCE`].
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Prints a line past the harness, which would keep it to itself.
pub fn loudly(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
