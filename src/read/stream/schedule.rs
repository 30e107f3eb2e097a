//! Schedule of a stream: decides which generation, which epoch and which step come next.

use super::Stream;
use super::options::StreamOptions;
use super::plan::Plan;
use super::progress::RunMembership;
use crate::error::{Error, Result};
use crate::humanize::counted;
use crate::manifest::Manifest;
use crate::read::Reader;
use crate::read::checkpoint::Remaining;
use crate::read::epoch_policy::{Choice, Policy};
use crate::read::producer_status::ProducerStatus;
use crate::read::shard::Equal;
use crate::read::shuffle::Order;
use crate::run_log::Epoch;
use crate::unix_ms;
use std::sync::Arc;
use std::time::Instant;

/// Most steps planned at a time, so that the first sample does not wait until thousands of steps are planned.
const AT_ONCE: usize = 64;

pub(crate) enum Planned {
    /// The step is in the queue.
    Step,
    /// An epoch began or ended.
    Nothing,
    /// Nothing can be planned before this has happened.
    Wait(String),
    End,
}

/// The epoch that is being planned, and what decides about the next one.
pub(crate) struct Schedule {
    reader: Arc<Reader>,
    options: Arc<StreamOptions>,
    pub(crate) generators: Arc<ProducerStatus>,
    pub(crate) policy: Policy,
    /// The epoch that is being planned, and its next step.
    planning: Option<(Arc<Plan>, u64)>,
    /// The next epoch to plan.
    pub(crate) next_epoch: u64,
    /// Epochs that are planned completely or are being planned.
    pub(crate) begun: u64,
    /// An epoch of which no more steps are planned or delivered.
    pub(crate) abandoned: Option<u64>,
    /// A generation within KEEP whose directory is not visible, and since when.
    unseen: Option<(u64, Instant)>,
    /// When the next epoch was last looked up before the current one ended.
    looked: Option<Instant>,
}

impl Schedule {
    pub(crate) fn new(reader: Arc<Reader>, options: Arc<StreamOptions>, first: u64) -> Schedule {
        let ring = reader.ring();
        let generators = ProducerStatus::of(&ring.descriptor.ring_id, ring.settings.lease);
        Schedule {
            policy: Policy::new(generators.clone(), options.repeat),
            generators,
            planning: None,
            next_epoch: first,
            begun: 0,
            abandoned: None,
            unseen: None,
            looked: None,
            reader,
            options,
        }
    }

    pub(crate) fn plan(&self) -> Option<&Arc<Plan>> {
        self.planning.as_ref().map(|(plan, _)| plan)
    }

    /// Makes epoch `number` the next one, after `finished` others, as a loaded state says.
    pub(crate) fn restart(&mut self, finished: u64, number: u64) {
        (self.planning, self.abandoned, self.looked) = (None, None, None);
        (self.begun, self.next_epoch) = (finished, number);
        self.policy = Policy::new(self.generators.clone(), self.options.repeat);
    }

    /// Begins to plan epoch `number`, from `place` and `step` on. Returns `None` if the epoch is skipped.
    ///
    /// # Errors
    /// As [`Schedule::plan_of`].
    pub(crate) fn begin(
        &mut self,
        number: u64,
        epoch: Epoch,
        place: Remaining,
        step: u64,
    ) -> Result<Option<Arc<Plan>>> {
        let plan = self.plan_of(number, epoch, place)?.map(Arc::new);
        match &plan {
            Some(plan) => (self.planning, self.begun) = (Some((plan.clone(), step)), self.begun + 1),
            None => self.next_epoch += 1,
        }
        Ok(plan)
    }

    pub(crate) fn is_abandoned(&self, plan: &Plan) -> bool {
        self.abandoned == Some(plan.number)
    }

    /// Decides about the next epoch. `is_drained`: all planned steps are delivered.
    fn plan_epoch(&mut self, run: &RunMembership, is_drained: bool) -> Result<Planned> {
        if !is_drained && self.looked.is_some_and(|looked| looked.elapsed() < self.reader.ring().settings.poll) {
            return Ok(Planned::Wait("the end of the epoch".to_owned()));
        }
        self.looked = Some(Instant::now());
        let k = self.next_epoch;
        let epoch = match run.logged(k)? {
            Some(epoch) => self.with_steps(epoch, false)?,
            None if run.is_replay() => return Ok(Planned::End),
            None => match self.policy.choose(&self.reader, &run.log, k, is_drained)? {
                Choice::Take(manifest) => {
                    run.decide(k, self.with_steps(self.epoch_of(&manifest)?, self.begun == 0)?)?
                }
                Choice::Wait(what) => return Ok(Planned::Wait(what)),
            },
        };
        self.begin(k, epoch, Remaining::default(), 0)?;
        self.looked = None;
        self.policy.begin();
        Ok(Planned::Nothing)
    }

    /// Creates an epoch of the samples of a generation.
    ///
    /// # Errors
    /// Errors of the function that chooses which samples are left out.
    fn epoch_of(&self, manifest: &Arc<Manifest>) -> Result<Epoch> {
        let served = self.options.leave_out.served(&self.reader, manifest)?;
        Ok(Epoch {
            generation: manifest.summary.generation,
            samples: served.left(manifest.summary.samples),
            workers: self.options.share.world,
            shuffle: self.options.shuffle,
            seed: self.options.seed,
            repeats: 0,
            unix_ms: unix_ms(),
        })
    }

    /// Returns `epoch`. Logs a warning if it has no step for this worker.
    ///
    /// # Errors
    /// [`Error::Sample`] if no worker has a step, and either a full generation would also have none or this is the
    /// `first` epoch of a run.
    fn with_steps(&self, epoch: Epoch, first: bool) -> Result<Epoch> {
        let (share, equal) = (self.options.share, self.options.equal);
        let (world, cap) = (share.world, self.reader.ring().descriptor.swap_cap);
        if epoch.samples == 0 || share.equal_steps(epoch.samples, equal) > 0 {
            return Ok(epoch);
        }
        let held = format!(
            "generation {} holds {} for {world} workers (all loader workers of all ranks)",
            epoch.generation,
            counted(epoch.samples, "sample")
        );
        let larger = match cap >= world {
            _ if self.options.leave_out.is_any() => "hold out fewer samples (hold_out)".to_owned(),
            true => format!("wait for a full generation (SWAP_CAP is {cap})"),
            false => format!("raise SWAP_CAP from {cap} to {world} or more"),
        };
        let ways = format!("{larger}, or read with fewer ranks or loader workers");
        if equal == Equal::No || !first && share.equal_steps(cap, equal) > 0 {
            tracing::warn!("{held}: worker {} has no step in this epoch; {ways}", share.rank);
            return Ok(epoch);
        }
        Err(Error::Sample(format!(
            "{held}, and equal=\"drop\" leaves no step for any of them: {ways}, or use equal=\"wrap\" or \"pad\""
        )))
    }

    /// Returns whether the directory of a manifest's generation exists. A generation within KEEP only counts as gone
    /// after its directory was missing for a lease.
    ///
    /// # Errors
    /// A transient [`Error::Manifest`] while a directory within KEEP is not visible; filesystem errors.
    fn is_there(&mut self, manifest: &Manifest) -> Result<bool> {
        let (ring, generation) = (self.reader.ring(), manifest.summary.generation);
        let dir = ring.layout.read(generation);
        if ring.fs.exists(&dir)? {
            self.unseen = None;
            return Ok(true);
        }
        if self.reader.is_old(manifest)? {
            self.unseen = None;
            return Ok(false);
        }
        let since = self.unseen.filter(|(n, _)| *n == generation).map_or_else(Instant::now, |(_, since)| since);
        self.unseen = Some((generation, since));
        if since.elapsed() > ring.settings.lease {
            self.reader.note_missing(generation, &dir);
            return Ok(false);
        }
        let message = format!("{} is not visible yet", dir.display());
        Err(Error::Manifest { path: ring.layout.manifest(generation), message, passing: true })
    }

    /// Returns the positions that epoch `number` serves.
    ///
    /// # Errors
    /// [`Error::Sample`]: another worker of the run, or the stream of the loaded state, leaves out other samples;
    /// errors of the function that chooses them.
    fn served(&self, number: u64, epoch: &Epoch, manifest: Option<&Arc<Manifest>>) -> Result<Remaining> {
        let Some(manifest) = manifest else { return Ok(Remaining::default()) };
        let served = self.options.leave_out.served(&self.reader, manifest)?;
        let samples = served.left(manifest.summary.samples);
        // A manifest that was lost and rebuilt can list fewer samples than the epoch had.
        if samples != epoch.samples && (self.options.leave_out.is_any() || manifest.summary.lost == 0) {
            let (logged, generation) = (counted(epoch.samples, "sample"), epoch.generation);
            return Err(Error::Sample(format!(
                "epoch {number} of the run reads {logged} of generation {generation}, but this stream has {samples}: \
                 give all workers of a run, and a stream that resumes or replays it, the same hold_out \
                 (a rule that reads samples also chooses others when a sample becomes unreadable)"
            )));
        }
        Ok(served)
    }

    /// Returns the plan of epoch `number`; `None` if its generation is gone and the number of steps need not be
    /// equal.
    ///
    /// # Errors
    /// As [`Schedule::is_there`]; a transient [`Error::Manifest`] while the manifest is not visible.
    fn plan_of(&mut self, number: u64, epoch: Epoch, place: Remaining) -> Result<Option<Plan>> {
        let reader = self.reader.clone();
        let ring = reader.ring();
        let generation = epoch.generation;
        let manifest = reader.manifest(generation)?;
        if manifest.is_none() && generation > ring.manifests.newest_listed()? {
            // Another worker has seen it. This process's view of the directory is stale.
            let (path, message) = (ring.layout.manifest(generation), "it is not visible yet".to_owned());
            return Err(Error::Manifest { path, message, passing: true });
        }
        let there = match &manifest {
            Some(manifest) => self.is_there(manifest)?,
            None => false,
        };
        if !there && self.options.equal == Equal::No {
            tracing::warn!(
                generation,
                epoch = number,
                "the generation of this epoch no longer exists; skipping the epoch"
            );
            return Ok(None);
        }
        if !there {
            tracing::warn!(
                generation,
                epoch = number,
                "the generation of this epoch no longer exists; substituting samples from the newest generation"
            );
        }
        // A rule may have to read the samples.
        let readable = manifest.as_ref().filter(|_| there || !self.options.leave_out.is_any());
        let served = self.served(number, &epoch, readable)?;
        let order = Order::of(&epoch, number);
        let manifest = manifest.filter(|_| there);
        Ok(Some(Plan { number, nth: self.begun, epoch, manifest, served, order, place }))
    }
}

impl Stream {
    /// Plans steps until enough are planned for now, or until no more can be. Returns the reason.
    pub(crate) fn plan_ahead(&mut self) -> Result<Planned> {
        let most = self.delivery.queue.len() + AT_ONCE;
        while !self.delivery.is_enough(most) {
            match self.plan_step()? {
                Planned::Step | Planned::Nothing => {}
                over => return Ok(over),
            }
        }
        Ok(Planned::Nothing)
    }

    /// Plans more steps of the same epoch, so that they are prefetched while the consumer uses the sample that it
    /// just got.
    pub(crate) fn top_up(&mut self) {
        let most = self.delivery.queue.len() + AT_ONCE;
        while self.delivery.pool.is_some() && self.schedule.plan().is_some() && !self.delivery.is_enough(most) {
            // An error occurs again at the next attempt to plan.
            let Ok(Planned::Step) = self.plan_step() else { break };
        }
    }

    fn plan_step(&mut self) -> Result<Planned> {
        let Some((plan, number)) = self.schedule.planning.clone() else { return self.plan_epoch() };
        let slot = plan.slot(self.options.share, number, self.options.equal);
        let Some(slot) = slot.filter(|_| !self.schedule.is_abandoned(&plan)) else {
            (self.schedule.planning, self.schedule.next_epoch) = (None, plan.number + 1);
            return Ok(Planned::Nothing);
        };
        self.delivery.push(plan, number, slot)?;
        if let Some((_, next)) = &mut self.schedule.planning {
            *next += 1;
        }
        Ok(Planned::Step)
    }

    fn plan_epoch(&mut self) -> Result<Planned> {
        if self.options.epochs.is_some_and(|epochs| self.schedule.begun >= epochs) {
            return Ok(Planned::End);
        }
        let is_drained = self.delivery.queue.is_empty();
        if is_drained {
            self.end_epoch();
            self.progress.report()?;
        }
        self.schedule.plan_epoch(&self.progress.run, is_drained)
    }
}
