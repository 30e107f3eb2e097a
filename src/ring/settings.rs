//! The settings of this process for a ring: its configuration, with defaults that depend on the
//! filesystem.

use crate::config::{Config, Durability, OnStale, Reuse};
use crate::fs::Kind;
use std::time::Duration;

/// Settings that may differ between the processes of a ring.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The kind of filesystem that holds the ring.
    pub kind: Kind,
    /// Number of generations kept besides the newest.
    pub keep: u64,
    /// Time without a heartbeat before a process is considered dead.
    pub lease: Duration,
    /// Interval between two polls.
    pub poll: Duration,
    /// Whether finished samples survive the death of processes only, or of the machine.
    pub durability: Durability,
    /// How often a generation has to be read, and may be read.
    pub reuse: Reuse,
    /// What readers do when no new samples arrive.
    pub on_stale: OnStale,
    /// How long no generator has to be alive before samples count as stale.
    pub stale_after: Duration,
    /// How long the generations that a killed run still has to read are kept.
    pub run_grace: Duration,
    /// Maximum size of the ring in bytes.
    pub max_bytes: Option<u64>,
}

impl Settings {
    /// Creates the settings for a ring on a filesystem of this kind.
    pub(crate) fn new(config: &Config, kind: Kind) -> Settings {
        let default_poll = if kind.local { Duration::from_millis(200) } else { Duration::from_secs(1) };
        Settings {
            poll: config.poll.unwrap_or(default_poll).min(config.lease / 4),
            kind,
            keep: config.keep,
            lease: config.lease,
            durability: config.durability,
            reuse: config.reuse,
            on_stale: config.on_stale,
            stale_after: config.stale_after,
            run_grace: config.run_grace,
            max_bytes: config.max_bytes,
        }
    }
}
