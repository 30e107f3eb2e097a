//! Data that this process keeps between the steps of `commit`, `swap` and `runs`.
//!
//! The handle owns it, so that all steps of a process share it and need only a `&Ring`. The steps
//! themselves belong to higher layers; each field is used by one of them.

use crate::run_log::RunLog;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The data of all steps.
#[derive(Debug, Default)]
pub(crate) struct StepsState {
    // `commit`
    /// How full the filling generation was at the last scan.
    pub occupancy: Mutex<Occupancy>,
    /// A generation that was promoted, but had no manifest yet when it was last seen.
    pub begun: AtomicU64,
    /// Whether it was logged that the counter returned the same numbers again.
    pub told_of_repeats: AtomicBool,

    // `swap`
    /// The newest generation when this process last reclaimed generations older than KEEP.
    pub reclaimed: AtomicU64,
    /// Old manifests that list a segment whose staging name could not be removed, with the time of
    /// the last attempt.
    pub unprunable: Mutex<HashMap<u64, Instant>>,
    /// Whether it was logged that a directory cannot be reclaimed.
    pub told_of_last_names: AtomicBool,
    /// Dead owners for which it was logged that their files cannot be removed.
    pub told_of_owners: Mutex<BTreeSet<String>>,

    // `runs`
    /// The runs that this process has joined, by name.
    pub run_logs: Mutex<HashMap<String, Arc<RunLog>>>,
    pub pins: Mutex<Pins>,
}

/// How full the filling generation was at the last scan, so that a commit need not list the
/// directory.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    pub generation: u64,
    /// How many samples it had room for at the last scan.
    pub room: u64,
    /// When it was last scanned.
    pub looked: Option<Instant>,
    /// Samples that this process has committed since.
    pub spent: u64,
    /// Number of members that wrote samples at that time. They may all commit as fast as this
    /// process does.
    pub sharers: u64,
    /// When these members were counted.
    pub counted: Option<Instant>,
    /// How many more samples the segments' names claim than their footers have, at the last scan
    /// that read the footers.
    pub surplus: u64,
}

/// The result of the last scan by `runs::pins`: the generations that are kept for readers.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Generations that living workers still have to read.
    pub living: BTreeSet<u64>,
    /// Generations that killed workers of named runs still had to read, kept for RUN_GRACE.
    pub graced: BTreeSet<u64>,
    /// Deaths that are not recorded in notes yet.
    pub unnoted: Vec<Obituary>,
}

impl Pins {
    /// Returns all pinned generations.
    pub fn all(&self) -> BTreeSet<u64> {
        self.living.union(&self.graced).copied().collect()
    }
}

/// The changes of notes about dead members of one run.
#[derive(Debug)]
pub(crate) struct Obituary {
    /// The folder of the run's notes.
    pub folder: String,
    /// Notes to write: members that died.
    pub died: Vec<String>,
    /// Notes to delete: members that are alive again, or that a living one has replaced.
    pub past: Vec<String>,
}
