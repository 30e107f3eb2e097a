//! Membership: which processes take part in a ring, their heartbeats, and what they report.

use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// What a process says of itself with each sign of life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The word for its [`Role`](crate::role::Role): `generator`, `manager` or `reader`.
    pub role: String,
    /// Its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// When it began, by its clock: milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it said this, by its clock. For people to read; never compared between machines.
    pub unix_ms: u64,
    /// LEASE_SECONDS of this process: how long it may be silent. 0 where an older version wrote
    /// this.
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
    pub stored: Vec<PartCompression>,
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

    /// Returns the report as it stands `beats` heartbeats after it was written, if its process has
    /// no news.
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
pub struct PartCompression {
    /// The part's name.
    pub part: String,
    /// Whether it is compressed.
    pub compressed: bool,
    /// Bytes of it for each byte that it takes, or would take, compressed.
    pub ratio: f64,
}

/// Lists the processes that take part in a ring. Each publishes a number that grows, its beat, and
/// a report with it.
///
/// Correctness never depends on the list. An observer that takes a living process for dead does
/// nothing that harms it: segments that both commit are listed once.
pub trait Membership: Send + Sync + fmt::Debug {
    /// Publishes `beat` and `report` of `member`, and replaces the ones before. The caller raises
    /// `beat` by one each time.
    ///
    /// A hint: the report that others read may be two beats old where only details of a wait have
    /// changed.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()>;

    /// Removes `member` from the list. Does nothing when it is not listed.
    ///
    /// A hint: a beat that was under way may list it again.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn leave(&self, member: &str) -> Result<()>;

    /// Returns each member once, with its last beat, in any order.
    ///
    /// A hint: members come, go and beat meanwhile.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn members(&self) -> Result<Vec<(String, u64)>>;

    /// Returns how long ago each of these beats was published, by the clock of the store. Leaves
    /// out the beats that are gone, and all of them where the store has no clock, or not for this
    /// process.
    ///
    /// A hint: shown to people, and never used to call a member dead.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn beat_ages(&self, _beats: &[(String, u64)]) -> Result<HashMap<String, Duration>> {
        Ok(HashMap::new())
    }

    /// Returns what `member` reported with `beat`; `None` when it has published a later beat, or
    /// has left.
    ///
    /// A hint: a process reports what it likes.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>>;
}
