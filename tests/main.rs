//! The tests of a ring and of its command: one module per subject, in folders by task. They run in one process, in
//! parallel.
//!
//! Where a test belongs:
//! - a rule of the format: `format/tests/`; a private function: beside its code;
//! - behaviour that a caller of the crate or a user of the command can see: a module here;
//! - a test that changes or measures its process (environment, working directory, umask, limits, signal handlers, panic
//!   hook, memory, threads, processor time), or that reads process-wide state: `process/` or `memory/`, where it runs
//!   alone;
//! - a soak test that a script or the Makefile starts by name: a separate program, like `storm`, `crash_images`,
//!   `faults`, `syscalls`, `disks` and `hostile`;
//! - a test of the index in MongoDB: `mongodb/`;
//! - code that several modules need: `testkit/`.
//!
//! `cargo test --test main write::steps::` runs one module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

/// A sample is written: generator, segment, commit.
mod write {
    /// Batches of samples: written, stacked and borrowed.
    mod batch;
    /// CHECK_FINITE.
    mod check_finite;
    /// COMPRESS: auto.
    mod compression;
    /// Group commit: SEGMENT_SAMPLES: auto.
    mod grouping;
    /// Segments of large samples, whose heads are written last.
    mod heads_last;
    /// VALIDATION: the held-out samples.
    mod held_out;
    /// Generators that disagree on a part's dtype or shape.
    mod schema;
    /// Commit and promotion under lost replies, delayed calls, crashes and competing processes.
    mod steps;
}

/// A generation is swapped: scan, promote, manifest, reclaim.
mod swap {
    /// Limits, counters and single failing calls of each step.
    mod edges;
    /// Rings that have been swapped many times.
    mod many_generations;
    /// Counter-examples of the model, replayed on the implementation.
    mod traces;
    /// Generators while a generation waits for its manifest.
    mod writers;
}

/// A sample is read: manifest, segment, sample, stream.
mod read {
    /// Damaged files.
    mod damage;
    /// A segment of very many samples.
    mod many_samples;
    /// REUSE, ON_STALE, STALE_AFTER.
    mod policy;
    /// Which samples a reader returns, in which order, and their memory layout.
    mod reading;
    /// Streams of workers that share a run.
    mod streaming;
    /// Times of streams and generators, compared with an outside clock, and what a stream counts.
    mod times;
}

/// Ranks that read together: logs of runs, passes, pins.
mod runs {
    /// Finished runs.
    mod finished;
    /// RUN_GRACE.
    mod grace;
    /// Decisions by the log of a run.
    mod logs;
    /// The cost of many runs.
    mod many;
}

/// The coordination store, and its members.
mod coordination {
    /// The stores without a server fulfil their contract.
    mod index;
    /// Heartbeats.
    mod members;
    /// A store with wrong values.
    mod planted_hints;
}

/// The filesystem, the system's limits, and other users.
mod fs {
    /// Limits of the operating system, and missing permissions.
    #[cfg(target_os = "linux")]
    mod limits;
    /// No decision in the sources depends on a plain lookup.
    mod lookups;
    /// Calls that are not repeated.
    mod needless;
    /// A file server that is away.
    mod server_away;
    /// Several users, RING_MODE and the umask.
    mod sharing;
    /// Clients that cache absent names.
    mod stale;
    /// Random schedules of all roles on such clients.
    mod stale_schedules;
    /// A ring that untrusted users write to.
    mod untrusted;
}

/// Operating a ring: inspect, verify, repair, doctor, status, metrics.
mod ops {
    /// ringreel doctor.
    mod doctor;
    /// ringreel doctor --peer.
    mod doctor_peer;
    /// The record of processes that ended with an error.
    mod failures;
    /// ringreel inspect.
    mod inspect;
    /// ringreel promote and ringreel gc.
    mod promote_partial;
    /// ringreel repair.
    mod repair;
    /// Repair that is interrupted at each of its calls.
    mod repair_steps;
    /// ringreel verify.
    mod verify;
    /// ringreel status --watch and ringreel metrics.
    mod watch;
}

/// The command: its input, its output, and converting samples.
mod cli {
    /// Next steps in the command's messages.
    mod advice;
    /// Bad input is refused.
    mod bad_input;
    /// ringreel cat.
    mod cat;
    /// The configuration: values, errors, and values as they are displayed.
    mod config;
    /// ringreel export.
    mod export;
    /// Extreme values of every numeric option.
    mod extremes;
    /// The output of each subcommand for fixed rings.
    mod golden;
    /// ringreel import.
    mod import;
    /// The exit status if a generation is missing.
    mod incomplete;
    /// Log lines and progress bars.
    mod logging;
    /// ringreel pack.
    mod pack;
    /// ringreel preview.
    mod preview;
    /// ringreel put.
    mod put;
    /// ringreel report.
    mod report;
    /// Passwords.
    mod secrets;
    /// SIGTERM during startup.
    mod signals;
    /// ringreel top.
    mod top;
}

/// Plain RecordIO files without a ring.
mod recordio {
    /// Splits of plain files.
    mod input_split;
}

/// The documentation agrees with the code.
mod docs {
    /// The glossary.
    mod glossary;
    /// The pages about configuration keys and the command line.
    mod reference;
    /// The table of errors and warnings.
    mod troubleshooting;
}
