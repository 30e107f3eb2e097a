//! The report that a process publishes with its heartbeat.

use crate::times::{GeneratorTimes, StreamStats, Times};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The report that a process publishes with each heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The name of its [`Role`](crate::role::Role): `generator`, `manager` or `reader`.
    pub role: String,
    /// The name of its host.
    pub host: String,
    /// Its process id on that host.
    pub pid: u32,
    /// Its start time by its clock, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The time of the report by its clock, in milliseconds since 1970. For display only; never
    /// compared between machines.
    pub unix_ms: u64,
    /// LEASE_SECONDS of the process: how long it may be silent. 0 in reports of older versions.
    #[serde(default)]
    pub lease_seconds: f64,
    /// Number of samples that it has generated, delivered or read.
    pub samples: u64,
    /// Number of bytes of these samples.
    pub bytes: u64,
    /// Mean rate since its start, in samples per second.
    pub per_second: f64,
    /// The generation that a reader reads.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Number of passes over generations that it has completed.
    #[serde(default)]
    pub epochs: u64,
    /// The compression decisions of a generator for the parts for which COMPRESS is `auto`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<PartCompression>,
    /// The times and counts of a reader; `None` in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<StreamStats>,
    /// The times of a generator; `None` in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generating: Option<GeneratorTimes>,
    /// What the process is doing or waiting for.
    pub doing: String,
    /// The last error that it encountered.
    pub last_error: Option<String>,
}

/// Number of heartbeats per lease.
pub(crate) const BEATS_PER_LEASE: u32 = 4;
/// Longest lease that a report may claim, because its contents are not verified.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

impl Report {
    /// Returns the lease that the process claims, at most a day. Returns zero for an invalid value.
    pub fn lease(&self) -> Duration {
        Duration::try_from_secs_f64(self.lease_seconds).unwrap_or_default().min(LONGEST_LEASE)
    }

    /// Sets the time of the report, and with it the mean rate since the start of the process.
    pub(crate) fn set_time(&mut self, unix_ms: u64) {
        let elapsed = unix_ms.saturating_sub(self.started_unix_ms) as f64 / 1e3;
        self.unix_ms = unix_ms;
        self.per_second = if elapsed > 0.0 { self.samples as f64 / elapsed } else { 0.0 };
    }

    /// Returns the report as of `beats` heartbeats after it was written, if nothing else has
    /// changed.
    pub(crate) fn after(mut self, beats: u64) -> Report {
        let pause = (self.lease() / BEATS_PER_LEASE).as_millis() as u64;
        if beats > 0 {
            let elapsed = pause.saturating_mul(beats);
            self.set_time(self.unix_ms.saturating_add(elapsed));
            self.reading.iter_mut().for_each(|stats| stats.grow(Duration::from_millis(elapsed)));
            self.generating.iter_mut().for_each(|times| times.grow(Duration::from_millis(elapsed)));
        }
        self
    }

    /// Returns this report with the times of `before` for an activity that goes on since then:
    /// readers of `before` compute them.
    pub(crate) fn with_current_times_of(mut self, before: &Report) -> Report {
        if let (Some(stats), Some(before)) = (&mut self.reading, &before.reading) {
            *stats = stats.with_current_of(before);
        }
        if let (Some(times), Some(before)) = (&mut self.generating, &before.generating) {
            *times = times.with_current_of(before);
        }
        self
    }
}

/// What a generator has measured by compressing a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartCompression {
    /// The name of the part.
    pub part: String,
    /// Whether it is compressed.
    pub compressed: bool,
    /// Uncompressed bytes per compressed byte.
    pub ratio: f64,
}
