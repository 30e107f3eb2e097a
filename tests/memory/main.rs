//! Tests that need or measure much memory, or run with little. Each runs in a separate process, one at a time.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

/// Files that claim more memory than the machine has.
mod claims;
/// Compressing a part of 300 MiB.
mod large_compressed;
/// Samples beyond 4 GiB.
mod large_offsets;
/// Writing and reading a part of 600 MiB.
mod large_part;
