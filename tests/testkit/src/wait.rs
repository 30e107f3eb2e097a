//! Waiting with a timeout.

use std::io::Write;
use std::time::{Duration, Instant};

/// The longest time that a test waits. It only catches hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the condition is true. Panics after [`PATIENCE`].
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Prints a line directly to stderr, because the test harness would capture it.
pub fn loudly(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
