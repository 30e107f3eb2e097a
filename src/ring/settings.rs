//! How this process works with the ring: its configuration, completed by what the filesystem suggests.

use crate::config::{Config, Durability, OnStale, Reuse};
use crate::fs::Kind;
use std::time::Duration;

/// What another process of the same ring may set otherwise.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which kind of filesystem the ring lies on.
    pub kind: Kind,
    /// Generations kept besides the newest.
    pub keep: u64,
    /// For how long a role may be silent.
    pub lease: Duration,
    /// Time between two looks.
    pub poll: Duration,
    /// What survives what.
    pub durability: Durability,
    /// How often a generation is to be read.
    pub reuse: Reuse,
    /// What readers do when nothing new comes.
    pub on_stale: OnStale,
    /// After this time without a living generator nothing new is thought to come.
    pub stale_after: Duration,
    /// How long the generations that a killed run still has to read are kept.
    pub run_grace: Duration,
    /// Most bytes that the ring may take.
    pub max_bytes: Option<u64>,
}

impl Settings {
    /// The settings of a ring on a filesystem of this kind.
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
