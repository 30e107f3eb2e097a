//! The tests of a ring and of its command: one module for each subject, in folders by journey. They run in one process,
//! beside each other.
//!
//! Where a test belongs:
//! - a rule of the format: `format/tests/`; a private function: beside its code;
//! - behaviour that a caller of the crate or a user of the command can see: a module here;
//! - a test that changes or measures its process (environment, working directory, umask, limits, signal handlers, panic hook,
//!   memory, threads, processor time), or that reads a list that belongs to the process: `process/` or `memory/`, where it
//!   runs alone;
//! - a soak run that a script or the Makefile starts by name: a program of its own, as `storm`, `crash_images`, `faults`,
//!   `syscalls`, `disks` and `hostile` are;
//! - a test of the index in MongoDB: `mongodb/`;
//! - code that several modules need: `testkit/`.
//!
//! `cargo test --test main write::steps::` runs one module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

/// A sample is written: generator, segment, commit.
mod write {
    /// Many samples at once: written, stacked and lent.
    mod batch;
    /// CHECK_FINITE.
    mod check_finite;
    /// COMPRESS: auto.
    mod compression;
    /// Group commit: SEGMENT_SAMPLES: auto.
    mod grouping;
    /// Segments of large samples, whose heads are written last.
    mod heads_last;
    /// VALIDATION: samples that are held out.
    mod held_out;
    /// Generators that disagree on a part's dtype or shape.
    mod schema;
    /// Commit and promotion under lost replies, late calls, crashes and rivals.
    mod steps;
}

/// A generation is swapped: scan, promote, manifest, reclaim.
mod swap {
    /// Numbers, counts and single failing calls of each step.
    mod edges;
    /// Rings that have turned many times.
    mod many_generations;
    /// Counter-examples of the model, played to the ring.
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
    /// Which samples a reader gets, in which order, and how their bytes lie in memory.
    mod reading;
    /// Streams of workers that read together.
    mod streaming;
}

/// Ranks that read together: logs of runs, passes, pins.
mod runs {
    /// Runs that are over.
    mod finished;
    /// RUN_GRACE.
    mod grace;
    /// What the log of a run decides.
    mod logs;
    /// What many runs cost.
    mod many;
}

/// The coordination store, and who takes part.
mod coordination {
    /// The stores that need no server, against their contract.
    mod index;
    /// Heartbeats.
    mod members;
    /// A store that holds wrong values.
    mod planted_hints;
}

/// The filesystem, the system's limits, and other users.
mod fs {
    /// Limits of the operating system, and missing permissions.
    #[cfg(target_os = "linux")]
    mod limits;
    /// No decision in the sources depends on a plain lookup.
    mod lookups;
    /// Calls that are made once and not again.
    mod needless;
    /// A file server that is away.
    mod server_away;
    /// Several users, RING_MODE and the umask.
    mod sharing;
    /// Clients that remember absent names.
    mod stale;
    /// Random schedules of all roles on such clients.
    mod stale_schedules;
    /// A ring that strangers write to.
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
    /// Repair that dies at each of its calls.
    mod repair_steps;
    /// ringreel verify.
    mod verify;
    /// ringreel status --watch and ringreel metrics.
    mod watch;
}

/// The command: its input, its output, and converting samples.
mod cli {
    /// What messages tell the user to do next.
    mod advice;
    /// Wrong input is refused.
    mod bad_input;
    /// ringreel cat.
    mod cat;
    /// ringreel export.
    mod export;
    /// Extreme values of every numeric option.
    mod extremes;
    /// The output of each subcommand about fixed rings.
    mod golden;
    /// Exit status where a generation is missing.
    mod incomplete;
    /// Log lines and progress bars.
    mod logging;
    /// ringreel pack.
    mod pack;
    /// ringreel preview.
    mod preview;
    /// ringreel report.
    mod report;
    /// Passwords.
    mod secrets;
    /// SIGTERM during the start.
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
    /// Pages made from the code: configuration keys and the command line.
    mod reference;
    /// The table of errors and warnings.
    mod troubleshooting;
}
