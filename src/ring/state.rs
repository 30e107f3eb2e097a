//! What this process remembers between the steps of `write`, `swap` and `runs`: the data alone.
//!
//! It belongs to the handle, so that all steps of a process share it, and a step needs no more than a `&Ring`. The
//! steps themselves stand above the handle, and each struct is read and written by one of them.

use crate::run_log::RunLog;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What all steps remember.
#[derive(Debug, Default)]
pub(crate) struct StepsState {
    pub committer: CommitterState,
    pub maintenance: MaintenanceState,
    /// The runs that this process has joined, by name.
    pub run_logs: Mutex<HashMap<String, Arc<RunLog>>>,
    pub pins: Mutex<Pins>,
}

/// What `write::commit` remembers between two commits.
#[derive(Debug, Default)]
pub(crate) struct CommitterState {
    /// How full the filling generation was.
    pub occupancy: Mutex<Occupancy>,
    /// A generation that was seen to wait for its manifest.
    pub begun: AtomicU64,
    /// Whether it was logged that the counter repeats itself.
    pub told_of_repeats: AtomicBool,
}

/// How full the generation being written was when it was last looked at: so that not every commit lists it.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    pub generation: u64,
    /// Samples that had a place, at the last look.
    pub room: u64,
    /// When that was.
    pub looked: Option<Instant>,
    /// Samples that this process committed since.
    pub spent: u64,
    /// Members of the ring that write, then: they may all commit as fast as we do.
    pub sharers: u64,
    /// When they were counted.
    pub counted: Option<Instant>,
    /// Samples that the names in it claim and the footers do not have, at the last thorough look.
    pub surplus: u64,
}

/// What the steps of `swap` remember between two rounds of maintenance.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceState {
    /// The newest generation when this process last reclaimed what was older than is kept.
    pub reclaimed: AtomicU64,
    /// Old manifests that list a segment whose staging name could not be removed, and when that was tried last.
    pub unprunable: Mutex<HashMap<u64, Instant>>,
    /// Whether it was logged that a directory cannot be reclaimed.
    pub told_of_last_names: AtomicBool,
    /// Dead owners of whom it was logged that their files cannot be removed.
    pub told_of_owners: Mutex<BTreeSet<String>>,
}

/// What `runs::pins` found when it last looked: which generations are kept for readers.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Those that living workers still have to read.
    pub living: BTreeSet<u64>,
    /// Those that killed workers of named runs had still to read, for RUN_GRACE.
    pub graced: BTreeSet<u64>,
    /// Deaths that are not written down yet.
    pub unnoted: Vec<Obituary>,
}

impl Pins {
    /// Returns all of these generations.
    pub fn all(&self) -> BTreeSet<u64> {
        self.living.union(&self.graced).copied().collect()
    }
}

/// What is to be written about the deaths in one run.
#[derive(Debug)]
pub(crate) struct Obituary {
    /// The folder of the run's notes.
    pub folder: String,
    /// Notes to write: members that died.
    pub died: Vec<String>,
    /// Notes to drop: members that live after all, or that a living one has replaced.
    pub past: Vec<String>,
}
