//! Which generation an epoch is read from: the newest one; and what is done where that was read already (REUSE, ON_STALE,
//! STALE_AFTER).

use super::Reader;
use super::producer_status::ProducerStatus;
use super::retry::Described;
use crate::config::{OnStale, Reuse};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::ring::Ring;
use crate::run_log::RunLog;
use crate::swap::maintenance::{Due, Round};
use crate::swap::promote::{PromoteWhen, Promoted};
use crate::unix_ms;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of a generation with so many files, nobody opens all of them only to say how full it is: many readers may wait for it.
const MANY_FILES: usize = 64;

/// What is done next.
pub enum Choice {
    /// This generation is read.
    Take(Arc<Manifest>),
    /// Nothing yet: this is waited for.
    Wait(String),
}

/// What one stream has read, and what it may read next.
pub struct Policy {
    generators: Arc<ProducerStatus>,
    repeat: bool,
    /// A sample of the last epoch could be read, as far as is known.
    good: bool,
    /// It was warned of this generation being read again although it is stale.
    warned: Option<u64>,
    /// Since when the next generation is seen to be full.
    full_since: Option<Instant>,
    /// How full the next generation was, and who filled it.
    described: Described,
}

impl Policy {
    /// `repeat`: whether a generation may be read again at all.
    pub fn new(generators: Arc<ProducerStatus>, repeat: bool) -> Policy {
        Policy { generators, repeat, good: true, warned: None, full_since: None, described: Described::default() }
    }

    /// An epoch begins.
    pub fn begin(&mut self) {
        (self.good, self.full_since, self.described) = (false, None, Described::default());
    }

    /// A sample of it was read.
    pub fn good(&mut self) {
        self.good = true;
    }

    /// What epoch `k` of the run is read from, where that is for us to say. `through`: all that was planned is given; else
    /// only a newer generation is of interest, since what is newest now may not be when that epoch begins.
    ///
    /// # Errors
    /// [`Error::Stale`]; what the filesystem says.
    pub fn choose(&mut self, reader: &Reader, log: &RunLog, k: u64, through: bool) -> Result<Choice> {
        let Some(newest) = reader.newest_filled()? else { return self.wait_for_fresh(reader, "") };
        let last = k.checked_sub(1).and_then(|last| generation_of(log, last));
        match last {
            Some(last) if newest.summary.generation <= last => {
                if !through {
                    Ok(Choice::Wait("the epoch to be read to its end".to_owned()))
                } else if newest.summary.generation == last {
                    self.again(reader, log, k, newest)
                } else {
                    // Another worker has seen a newer one than we do.
                    self.wait_for_fresh(reader, "")
                }
            }
            _ => Ok(Choice::Take(newest)),
        }
    }

    /// There is none but the one that was read before.
    fn again(&mut self, reader: &Reader, log: &RunLog, k: u64, newest: Arc<Manifest>) -> Result<Choice> {
        let ring = reader.ring();
        let generation = newest.summary.generation;
        // A pass that gave nothing (a share of no positions, a generation that cannot be read) is not repeated at once:
        // that would be a loop at full speed.
        if !self.repeat || !self.good {
            return self.wait_for_fresh(reader, "");
        }
        let Reuse { min, max } = ring.settings.reuse;
        let passes = (0..k).rev().take(min.max(max) as usize);
        let passes = passes.take_while(|k| generation_of(log, *k) == Some(generation)).count() as u64;
        // The next one waited for this one to be read, and is there in a moment.
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
            // This process may have begun after they had ended, as each worker of a loader does. (Clocks are compared
            // here: that is good enough for a warning.)
            missing = missing.max(read_for(log, k, generation));
        }
        let why = if max > 0 && passes >= max {
            format!("generation {generation} was read {passes} times, and REUSE max is {max}")
        } else if missing > ring.settings.stale_after {
            let (after, missing) = (ring.settings.stale_after.as_secs_f64(), missing.as_secs_f64());
            format!(
                "no generator has lived for {missing:.0} s, and STALE_AFTER is {after}; generation {generation} was read before"
            )
        } else {
            return Ok(Choice::Take(newest));
        };
        match ring.settings.on_stale {
            OnStale::Warn => {
                if self.warned != Some(generation) {
                    self.warned = Some(generation);
                    tracing::warn!("old samples are read again: {why}; {}", self.state_of(reader));
                }
                Ok(Choice::Take(newest))
            }
            OnStale::Wait => self.wait_for_fresh(reader, &format!(" ({why})")),
            OnStale::Stop => {
                self.generators.ask_anew(); // the last word is no old one
                self.described = Described::default();
                Err(Error::Stale { message: format!("{why}; {}", self.state_of(reader)) })
            }
        }
    }

    fn wait_for_fresh(&mut self, reader: &Reader, why: &str) -> Result<Choice> {
        Ok(Choice::Wait(format!("fresh samples{why}: {}", self.state_of(reader))))
    }

    /// How full the generation is that fills, and who fills it.
    fn state_of(&mut self, reader: &Reader) -> String {
        let generators = &self.generators;
        self.described.text(reader.ring().settings.poll, || describe(generators, reader))
    }
}

fn describe(generators: &ProducerStatus, reader: &Reader) -> String {
    let ring = reader.ring();
    let next = ring.manifests.newest_known().map_or(0, |newest| newest + 1);
    // A wrong no: words that are old.
    let files = ring.fs.list(&ring.layout.write(next)).map_or(0, |names| names.len());
    let cap = ring.descriptor.swap_cap;
    let fill = match files {
        MANY_FILES.. => format!("{files} files, {cap} samples when it is full"),
        _ => format!("{} of {cap} samples", ring.count_samples(next).unwrap_or(0)),
    };
    format!("generation {next} holds {fill}, {}", generators.describe(&*ring.coordination))
}

/// What an epoch of the run was read from. It is known to this process.
fn generation_of(log: &RunLog, k: u64) -> Option<u64> {
    log.epoch(k).ok().flatten().map(|epoch| epoch.generation)
}

/// For how long the epochs before `k` were read from `generation` and no other one, by the clocks of who wrote that down.
fn read_for(log: &RunLog, k: u64, generation: u64) -> Duration {
    let before =
        (0..k).rev().map_while(|k| log.epoch(k).ok().flatten()).take_while(|epoch| epoch.generation == generation);
    let since = before.map(|epoch| epoch.unix_ms).min();
    since.map_or(Duration::ZERO, |since| Duration::from_millis(unix_ms().saturating_sub(since)))
}

/// Generators may have ended before the generation was read that their last one waits for, and no manager may live: then
/// it is for us, if we may write here.
fn promote(ring: &Ring) {
    ring.leave_reclaiming();
    match ring.run_maintenance(Some(PromoteWhen::Full), &mut Due::nothing()) {
        Ok(Round { promoted: Some(Promoted::Done(promotion)), .. }) => {
            let _ = ring.fs.remove_dir(&ring.layout.staging_of(&ring.me)); // the manifest was made there
            tracing::info!(generation = promotion.manifest.summary.generation, "promoted by a reader: nobody else did");
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "a full generation cannot be promoted by a reader"),
    }
}
