//! Tests that change or measure their whole process: signal handlers, forks, the panic hook, threads, processor time.
//! They run one at a time.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unsafe_code)]

/// The prefetching reader of plain records; its threads are counted.
mod prefetch;
/// The threads of dropped streams.
mod threads;
/// Mapped files that are truncated, and SIGBUS.
mod truncated_maps;
/// Directories that a manager watches.
mod watches;
