//! Decides which generation an epoch is read from. That is the newest one; if it was already read, REUSE, ON_STALE
//! and STALE_AFTER decide.

use super::Reader;
use super::producer_status::ProducerStatus;
use super::retry::Described;
use crate::config::{OnStale, Reuse};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::ring::Ring;
use crate::run_log::RunLog;
use crate::swap::promote::{PromoteWhen, Promoted};
use crate::unix_ms;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The samples of a generation with this many files or more are not counted for a message, since that opens all
/// files, and many readers may wait for it.
const MANY_FILES: usize = 64;

pub enum Choice {
    Take(Arc<Manifest>),
    /// Wait, for the reason given.
    Wait(String),
}

/// What one stream has read, which decides what it may read next.
pub struct Policy {
    generators: Arc<ProducerStatus>,
    repeat: bool,
    /// Whether a sample of the last epoch could be read, as far as is known.
    good: bool,
    /// The generation of the last warning about old samples.
    warned: Option<u64>,
    /// Since when the next generation has been full.
    full_since: Option<Instant>,
    described: Described,
}

impl Policy {
    /// Creates it. `repeat`: whether a generation may be read more than once.
    pub fn new(generators: Arc<ProducerStatus>, repeat: bool) -> Policy {
        Policy { generators, repeat, good: true, warned: None, full_since: None, described: Described::default() }
    }

    pub fn begin(&mut self) {
        (self.good, self.full_since, self.described) = (false, None, Described::default());
    }

    /// Notes that a sample of the epoch was read.
    pub fn good(&mut self) {
        self.good = true;
    }

    /// Decides which generation epoch `k` of the run is read from. `through`: all planned steps are delivered. Before
    /// that, only a newer generation is chosen, since the generation that is newest now may not be the newest when
    /// the epoch begins.
    ///
    /// # Errors
    /// [`Error::Stale`]; filesystem errors.
    pub fn choose(&mut self, reader: &Reader, log: &RunLog, k: u64, through: bool) -> Result<Choice> {
        let Some(newest) = reader.newest_filled()? else { return self.wait_for_fresh(reader, "") };
        let last = k.checked_sub(1).and_then(|last| generation_of(log, last));
        match last {
            Some(last) if newest.summary.generation <= last => {
                if !through {
                    Ok(Choice::Wait("the end of the epoch".to_owned()))
                } else if newest.summary.generation == last {
                    self.again(reader, log, k, newest)
                } else {
                    // Another worker has seen a newer generation that this process cannot see yet.
                    self.wait_for_fresh(reader, "")
                }
            }
            _ => Ok(Choice::Take(newest)),
        }
    }

    /// Decides when the newest generation is the one that was read last.
    fn again(&mut self, reader: &Reader, log: &RunLog, k: u64, newest: Arc<Manifest>) -> Result<Choice> {
        let ring = reader.ring();
        let generation = newest.summary.generation;
        // A pass that delivered nothing (an empty share, or a generation that cannot be read) is not repeated at
        // once, since that would be a busy loop.
        if !self.repeat || !self.good {
            return self.wait_for_fresh(reader, "");
        }
        let Reuse { min, max } = ring.settings.reuse;
        let passes = (0..k).rev().take(min.max(max) as usize);
        let passes = passes.take_while(|k| generation_of(log, *k) == Some(generation)).count() as u64;
        // The next generation waited for the passes over this one, and will be promoted in a moment.
        if min > 0 && passes >= min && ring.count_samples(generation + 1).unwrap_or(0) >= ring.descriptor.swap_cap {
            let since = *self.full_since.get_or_insert_with(Instant::now);
            if since.elapsed() > ring.settings.lease / 2 {
                promote(ring);
            }
            if since.elapsed() < ring.settings.lease {
                let held = ring.held_back().ok().flatten().map(|held| format!("; that waits for {held}"));
                let (next, held) = (generation + 1, held.unwrap_or_default());
                return Ok(Choice::Wait(format!("generation {next}, which is full, to be promoted{held}")));
            }
        }
        let mut missing = self.generators.missing_for(&*ring.coordination);
        if !missing.is_zero() && ring.settings.on_stale == OnStale::Warn && !self.generators.ever_seen() {
            // This process may have started after the generators ended, as each worker of a loader does. (This
            // compares clocks of different machines, which is accurate enough for a warning.)
            missing = missing.max(read_for(log, k, generation));
        }
        let why = if max > 0 && passes >= max {
            format!("generation {generation} was read {passes} times, and REUSE max is {max}")
        } else if missing > ring.settings.stale_after {
            let (after, missing) = (ring.settings.stale_after.as_secs_f64(), missing.as_secs_f64());
            format!(
                "no generator has been alive for {missing:.0} s, and STALE_AFTER is {after}; generation {generation} was read before"
            )
        } else {
            return Ok(Choice::Take(newest));
        };
        match ring.settings.on_stale {
            OnStale::Warn => {
                if self.warned != Some(generation) {
                    self.warned = Some(generation);
                    tracing::warn!("reading old samples again: {why}; {}", self.state_of(reader));
                }
                Ok(Choice::Take(newest))
            }
            OnStale::Wait => self.wait_for_fresh(reader, &format!(" ({why})")),
            OnStale::Stop => {
                self.generators.forget_reports(); // the message must be current
                self.described = Described::default();
                Err(Error::Stale { message: format!("{why}; {}", self.state_of(reader)) })
            }
        }
    }

    fn wait_for_fresh(&mut self, reader: &Reader, why: &str) -> Result<Choice> {
        Ok(Choice::Wait(format!("fresh samples{why}: {}", self.state_of(reader))))
    }

    /// Describes how full the generation that fills is, and its generators.
    fn state_of(&mut self, reader: &Reader) -> String {
        let generators = &self.generators;
        self.described.text(reader.ring().settings.poll, || describe(generators, reader))
    }
}

fn describe(generators: &ProducerStatus, reader: &Reader) -> String {
    let ring = reader.ring();
    let next = ring.manifests.newest_known().map_or(0, |newest| newest + 1);
    // A false negative only makes the message out of date.
    let files = ring.fs.list(&ring.layout.write(next)).map_or(0, |names| names.len());
    let cap = ring.descriptor.swap_cap;
    let fill = match files {
        MANY_FILES.. => format!("{files} files, {cap} samples when it is full"),
        _ => format!("{} of {cap} samples", ring.count_samples(next).unwrap_or(0)),
    };
    format!("generation {next} holds {fill}, {}", generators.describe(&*ring.coordination))
}

/// Returns the generation of an epoch of the run that is known to this process.
fn generation_of(log: &RunLog, k: u64) -> Option<u64> {
    log.epoch(k).ok().flatten().map(|epoch| epoch.generation)
}

/// Returns for how long the epochs before `k` were read from `generation` only, by the clocks of the workers that
/// logged them.
fn read_for(log: &RunLog, k: u64, generation: u64) -> Duration {
    let before =
        (0..k).rev().map_while(|k| log.epoch(k).ok().flatten()).take_while(|epoch| epoch.generation == generation);
    let since = before.map(|epoch| epoch.unix_ms).min();
    since.map_or(Duration::ZERO, |since| Duration::from_millis(unix_ms().saturating_sub(since)))
}

/// Promotes a full generation if this process may write in the ring. The last generators may have ended while they
/// waited for the previous generation to be read, and no manager may be alive.
fn promote(ring: &Ring) {
    ring.leave_reclaiming();
    match ring.promote(PromoteWhen::Full) {
        Ok(Promoted::Done(promotion)) => {
            let _ = ring.fs.remove_dir(&ring.layout.staging_of(&ring.me)); // the manifest was staged there
            tracing::info!(
                generation = promotion.manifest.summary.generation,
                "promoted by a reader, because no other process did"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "cannot promote a full generation"),
    }
}
