//! The index: atomic counter, swap status, leases, signs of life.
//!
//! It is a hint that can be lost. The counter spreads segments' names so that they do not collide, the status says
//! sooner where to look, leases save work; nothing is lost or doubled when any of it lies (rule 5 of `docs/design.md`).
//! Kept in [`FilesIndex`] (names in the ring itself), [`MongoIndex`] (documents on a server), or [`MemoryIndex`] (one
//! process, for tests).

mod block;
pub(crate) mod files;
mod memory;
#[cfg(feature = "mongodb")]
mod mongo;
mod opening;

pub use files::FilesIndex;
pub use memory::MemoryIndex;
#[cfg(feature = "mongodb")]
pub use mongo::{MongoIndex, probe as server_probe};
pub use opening::{Absence, Claim, Opening, Owner};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Numbers for names that a counter hands out are below; the random ones, which are taken where it hands out
/// none, are not.
pub(crate) const NUMBERS_END: u64 = 1 << 40;

/// What the newest promotion left: only says sooner what the manifests say for certain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwapStatus {
    /// The newest generation that was promoted.
    pub generation: u64,
    /// When, by its promoter's clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// Samples in all generations.
    pub total_samples: u64,
}

/// Who holds a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Grows with each holder.
    pub token: u64,
    /// The holder's owner name, whose sign of life is to be watched.
    pub holder: String,
    /// The holder gave it up.
    pub released: bool,
}

/// What a process says of itself with each sign of life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The word for its [`Role`](crate::Role).
    pub role: String,
    /// Its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// When it began, by its clock: milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it said this, by its clock. For people to read; never compared between machines.
    pub unix_ms: u64,
    /// LEASE_SECONDS of this process: how long it may be silent. 0 where an older version wrote this.
    #[serde(default)]
    pub lease_seconds: f64,
    /// Samples generated, delivered or read by it.
    pub samples: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Samples per second of late.
    pub per_second: f64,
    /// The generation that a reader reads.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Its passes over generations that are behind it.
    #[serde(default)]
    pub epochs: u64,
    /// How a generator stores the parts for which COMPRESS is `auto`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<Stored>,
    /// What it is doing or waiting for.
    pub doing: String,
    /// The last error it met.
    pub last_error: Option<String>,
}

/// Heartbeats in the time of one lease.
pub(crate) const BEATS_PER_LEASE: u32 = 4;
/// Longest lease that a report may claim: what it says is not verified.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

impl Report {
    /// The lease that the process claims, a day at most; zero for a value that is no duration.
    pub fn lease(&self) -> Duration {
        Duration::try_from_secs_f64(self.lease_seconds).unwrap_or_default().min(LONGEST_LEASE)
    }

    /// Sets the time of the report, and with it the mean rate since its process began.
    pub(crate) fn set_time(&mut self, unix_ms: u64) {
        let elapsed = unix_ms.saturating_sub(self.started_unix_ms) as f64 / 1e3;
        self.unix_ms = unix_ms;
        self.per_second = if elapsed > 0.0 { self.samples as f64 / elapsed } else { 0.0 };
    }

    /// Returns the report as it stands `beats` heartbeats after it was written, if its process has no news.
    pub(crate) fn after(mut self, beats: u64) -> Report {
        let pause = (self.lease() / BEATS_PER_LEASE).as_millis() as u64;
        if beats > 0 {
            self.set_time(self.unix_ms.saturating_add(pause.saturating_mul(beats)));
        }
        self
    }
}

/// What a generator has found out of a part by trying.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// The part's name.
    pub part: String,
    /// Whether it is compressed.
    pub compressed: bool,
    /// Bytes of it for each byte that it takes, or would take, compressed.
    pub ratio: f64,
}

/// The index of one ring.
///
/// An error of the kind [`Error::IndexAway`] means that a server does not answer; the ring goes on without it.
pub trait Index: Send + Sync + fmt::Debug {
    /// Where it is, in words, without passwords.
    fn place(&self) -> String;

    /// Asks whether it answers.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn ping(&self) -> Result<()>;

    /// A number for a segment's name in `generation`, one that nobody got before as far as the index remembers; none
    /// when the generation was closed.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn next_index(&self, generation: u64) -> Result<Option<u64>>;

    /// Hands out no more numbers for `generation`. May be called again.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn close_generation(&self, generation: u64) -> Result<()>;

    /// How many numbers were handed out in `generation`, or more: the least that [`Index::next_index`] may give now.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn handed_out(&self, generation: u64) -> Result<u64>;

    /// Numbers below `next` are taken in `generation`: hands them out no more, to anybody. (What this process has in
    /// hand already, it may still give.)
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn skip_to(&self, generation: u64, next: u64) -> Result<()>;

    /// Makes `status` the newest one, unless a later generation is there already. True: it is.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn publish_status(&self, status: &SwapStatus) -> Result<bool>;

    /// The newest status; none in a new or lost index.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn status(&self) -> Result<Option<SwapStatus>>;

    /// Who holds `role`; none when nobody ever did.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn lease(&self, role: &str) -> Result<Option<Lease>>;

    /// Claims `role` with `token`, which is to be one more than the last holder's. True: it is ours.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool>;

    /// Gives up `role`, held with `token`, so that nobody has to wait.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn release_lease(&self, role: &str, token: u64) -> Result<()>;

    /// A sign of life of `member`; `beat` grows by one each time.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()>;

    /// Takes `member` off the list.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn leave(&self, member: &str) -> Result<()>;

    /// All members and their last beats.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn members(&self) -> Result<Vec<(String, u64)>>;

    /// Returns how long ago each of these beats was published, by the index's own clock. Leaves out
    /// the beats that are gone, and all of them where the index has no clock, or not for this process.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn ages(&self, _beats: &[(String, u64)]) -> Result<HashMap<String, Duration>> {
        Ok(HashMap::new())
    }

    /// What `member` said with `beat`; none when it has said something newer, or left.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>>;

    /// Writes `text` as note `name` of `folder`, unless there is one already. What stands there now: ours, or what was
    /// first. Folders and names are letters, digits, `.`, `-` and `_`.
    ///
    /// # Errors
    /// When the index cannot be reached, or cannot be written to by us.
    fn note(&self, folder: &str, name: &str, text: &str) -> Result<String>;

    /// Note `name` of `folder`; none when there is none.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>>;

    /// The names of all notes in `folder`, unsorted.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn note_names(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes note `name` of `folder`, which need not be there.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn drop_note(&self, folder: &str, name: &str) -> Result<()>;

    /// Forgets what is kept of generations before `generation`.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn forget_before(&self, generation: u64) -> Result<()>;

    /// Forgets everything.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn clear(&self) -> Result<()>;
}

/// What an index said; none, where its server does not serve us: it is only a hint, and the ring goes on without it.
///
/// # Errors
/// All others.
pub fn as_hint<T>(said: Result<T>) -> Result<Option<T>> {
    match said {
        Ok(value) => Ok(Some(value)),
        Err(Error::IndexAway { .. } | Error::IndexRefused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
