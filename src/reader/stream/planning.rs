//! What is read next: epochs, and the steps of the one that is planned.

use super::Stream;
use crate::error::{Error, Result};
use crate::reader::choice::Choice;
use crate::reader::order::Order;
use crate::reader::plan::{Plan, Step};
use crate::reader::resume::Place;
use crate::reader::split::{Equal, Slot};
use crate::ring::manifest::Manifest;
use crate::ring::runs::Epoch;
use crate::unix_ms;
use crate::words::counted;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Samples that are read ahead at most, however small they are.
const MOST_AHEAD: usize = 4096;
/// Of them, those that are planned in one go: nobody waits for his first sample until thousands are planned.
const AT_ONCE: usize = 64;

/// What came of planning one more step.
pub(super) enum Planned {
    Step(Step),
    /// The generation of the epoch is gone, or it has no steps: it is over.
    Nothing,
    Wait(String),
    End,
}

impl Stream {
    /// Plans until enough is planned for now, or no more can be: the reason.
    pub(super) fn plan_ahead(&mut self) -> Result<Planned> {
        let most = self.queue.len() + AT_ONCE;
        loop {
            if !self.queue.is_empty() && (self.queue.len() >= most || self.is_enough()) {
                return Ok(Planned::Nothing);
            }
            match self.plan_step()? {
                Planned::Step(step) => self.queue.push(step),
                Planned::Nothing => {}
                over => return Ok(over),
            }
        }
    }

    /// Whether one more step might be more than may be read ahead. What a compressed sample takes is not known before
    /// one was read.
    pub(super) fn is_enough(&self) -> bool {
        let planned = self.queue.bytes();
        let unknown = self.largest == 0 && planned > 0;
        unknown || planned + self.largest > self.options.prefetch_bytes || self.queue.len() >= MOST_AHEAD
    }

    /// Plans more of the same epoch, which is read while the consumer is busy with what it has got.
    pub(super) fn top_up(&mut self) {
        let most = self.queue.len() + AT_ONCE;
        while self.ahead.is_some()
            && self.planning.is_some()
            && (self.queue.is_empty() || self.queue.len() < most && !self.is_enough())
        {
            // An error comes again when it is planned the next time.
            let Ok(Planned::Step(step)) = self.plan_step() else { break };
            self.queue.push(step);
        }
    }

    pub(super) fn plan_step(&mut self) -> Result<Planned> {
        let Some((plan, number)) = self.planning.clone() else { return self.plan_epoch() };
        let slot = if self.abandoned == Some(plan.number) {
            None
        } else {
            plan.slot(self.options.share, number, self.options.equal)
        };
        let Some(slot) = slot else {
            (self.planning, self.next_epoch) = (None, plan.number + 1);
            return Ok(Planned::Nothing);
        };
        let (mut bytes, mut inline) = (0, true);
        if let (Slot::Read(position), Some(ahead)) = (slot, &mut self.ahead) {
            let (manifest, position) = match &plan.manifest {
                Some(manifest) => (manifest.clone(), position),
                None => self.reader.instead_of(position)?,
            };
            let stored = manifest.locate(position).map_or(0, |(entry, _)| entry.bytes / entry.samples.max(1));
            bytes = stored.max(self.largest);
            ahead.give((manifest, position));
            inline = false;
        }
        self.planning = Some((plan.clone(), number + 1));
        Ok(Planned::Step(Step { plan, number, slot, bytes, inline }))
    }

    /// Decides about the next epoch.
    pub(super) fn plan_epoch(&mut self) -> Result<Planned> {
        if self.options.epochs.is_some_and(|epochs| self.begun >= epochs) {
            return Ok(Planned::End);
        }
        let k = self.next_epoch;
        if self.queue.is_empty() {
            self.end_epoch();
            self.say_arrived()?;
        } else if self.looked.is_some_and(|looked| looked.elapsed() < self.reader.ring().poll) {
            return Ok(Planned::Wait("the epoch to be read to its end".to_owned()));
        }
        self.looked = Some(Instant::now());
        let epoch = if let Some(log) = &self.replay {
            match log.epoch(k)? {
                Some(epoch) => self.shared(epoch, false)?,
                None => return Ok(Planned::End),
            }
        } else {
            // Nobody else writes into the log of a stream on its own.
            let fresh = self.options.run.is_none() && !self.loaded;
            match if fresh { Ok(None) } else { self.log.epoch(k) } {
                Ok(Some(epoch)) => self.shared(epoch, false)?,
                Ok(None) => match self.decide(k)? {
                    Ok(epoch) => epoch,
                    Err(planned) => return Ok(planned),
                },
                Err(_) if self.is_alone() => match self.decide(k)? {
                    Ok(epoch) => epoch,
                    Err(planned) => return Ok(planned),
                },
                Err(error) => return Err(error),
            }
        };
        let plan = self.plan_of(k, self.begun, epoch, Place::default())?;
        self.looked = None;
        self.policy.begin();
        match plan {
            Some(plan) => (self.planning, self.begun) = (Some((Arc::new(plan), 0)), self.begun + 1),
            None => self.next_epoch += 1,
        }
        Ok(Planned::Nothing)
    }

    /// The generation of epoch `k`, which nobody has decided about yet. The error is no error: waiting, for one.
    pub(super) fn decide(&mut self, k: u64) -> Result<std::result::Result<Epoch, Planned>> {
        let reader = self.reader.clone();
        let manifest = match self.policy.choose(&reader, &self.log, k, self.queue.is_empty())? {
            Choice::Take(manifest) => manifest,
            Choice::Wait(what) => return Ok(Err(Planned::Wait(what))),
        };
        let served = self.reader.ring().training(&manifest);
        let epoch = Epoch {
            generation: manifest.summary.generation,
            samples: served.end - served.start,
            workers: self.options.share.world,
            shuffle: self.options.shuffle,
            seed: self.options.seed,
            repeats: 0,
            unix_ms: unix_ms(),
        };
        let epoch = self.shared(epoch, self.begun == 0)?;
        if self.is_quiet() {
            self.log.remember(k, &epoch);
            return Ok(Ok(epoch));
        }
        match self.log.decide(k, &epoch) {
            Ok(stands) => Ok(Ok(stands)),
            Err(error) if self.is_alone() => {
                tracing::debug!(%error, "what is read is not logged");
                self.log.remember(k, &epoch);
                Ok(Ok(epoch))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns `epoch`; logs a warning if it has no step for this worker.
    ///
    /// # Errors
    /// [`Error::Sample`] if it has none for any worker, and either a full generation would have none
    /// or this is the `first` epoch of a run.
    fn shared(&self, epoch: Epoch, first: bool) -> Result<Epoch> {
        let (share, equal) = (self.options.share, self.options.equal);
        let (world, cap) = (share.world, self.reader.ring().birth.swap_cap);
        if epoch.samples == 0 || share.equal_steps(epoch.samples, equal) > 0 {
            return Ok(epoch);
        }
        let held = format!(
            "generation {} holds {} for {world} workers (all loader workers of all ranks)",
            epoch.generation,
            counted(epoch.samples, "sample")
        );
        let larger = match cap >= world {
            true => format!("wait for a full generation (SWAP_CAP is {cap})"),
            false => format!("raise SWAP_CAP from {cap} to {world} or more"),
        };
        let ways = format!("{larger}, or read with fewer ranks or loader workers");
        if equal == Equal::No || !first && share.equal_steps(cap, equal) > 0 {
            tracing::warn!("{held}: worker {} has no step in this epoch; {ways}", share.rank);
            return Ok(epoch);
        }
        Err(Error::Sample(format!(
            "{held}, and equal=\"drop\" leaves no step for any of them: {ways}, or use equal=\"pad\" or \"mask\""
        )))
    }

    /// Returns whether the directory of the generation of `manifest` is there. One within KEEP is not
    /// gone before it was missing for a lease.
    ///
    /// # Errors
    /// [`Error::Manifest`], which passes, while a directory within KEEP cannot be seen. What the
    /// filesystem says.
    fn is_there(&self, manifest: &Manifest) -> Result<bool> {
        let (ring, generation) = (self.reader.ring(), manifest.summary.generation);
        let dir = ring.layout.read(generation);
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.fs.exists(&dir)? {
            *unseen = None;
            return Ok(true);
        }
        if self.reader.is_old(manifest)? {
            *unseen = None;
            return Ok(false);
        }
        let since = unseen.filter(|(n, _)| *n == generation).map_or_else(Instant::now, |(_, since)| since);
        *unseen = Some((generation, since));
        if since.elapsed() > ring.lease {
            self.reader.note_missing(generation, &dir);
            return Ok(false);
        }
        let message = format!("{} cannot be seen yet", dir.display());
        Err(Error::Manifest { path: ring.layout.manifest(generation), message, passing: true })
    }

    /// None where the generation is gone, and nobody counts on its steps.
    pub(super) fn plan_of(&self, number: u64, nth: u64, epoch: Epoch, place: Place) -> Result<Option<Plan>> {
        let ring = self.reader.ring();
        let generation = epoch.generation;
        let manifest = self.reader.manifest(generation)?;
        if manifest.is_none() && generation > ring.manifests.newest_listed()? {
            // Another worker has seen it; our view of the directory is older.
            let (path, message) = (ring.layout.manifest(generation), "it cannot be seen yet".to_owned());
            return Err(Error::Manifest { path, message, passing: true });
        }
        let there = match &manifest {
            Some(manifest) => self.is_there(manifest)?,
            None => false,
        };
        if !there && self.options.equal == Equal::No {
            tracing::warn!(generation, epoch = number, "the generation of this epoch is gone: it is left out");
            return Ok(None);
        }
        if !there {
            tracing::warn!(
                generation,
                epoch = number,
                "the generation of this epoch is gone: its steps are made with samples of the newest one"
            );
        }
        let first = manifest.as_ref().map_or(0, |manifest| ring.training(manifest).start);
        let order = Order::of(&epoch, number);
        Ok(Some(Plan { number, nth, epoch, manifest: manifest.filter(|_| there), first, order, place }))
    }
}
