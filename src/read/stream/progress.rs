//! Progress of a stream: what was delivered, what the run's log says of it, and the heartbeat.

use super::options::StreamOptions;
use super::plan::Plan;
use crate::coordination::Report;
use crate::error::{Error, Result};
use crate::heartbeat::Heartbeat;
use crate::random::random_u32;
use crate::read::producer_status::ProducerStatus;
use crate::read::shard::Share;
use crate::read::{ReadSample, Reader};
use crate::role::Role;
use crate::run_log::{Epoch, RunLog, Turn};
use crate::times::{Delivered, StreamClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A stream's part in its run: the log, and what is not logged yet.
pub(crate) struct RunMembership {
    reader: Arc<Reader>,
    options: Arc<StreamOptions>,
    /// The log of the run in which the stream takes part.
    pub(crate) log: Arc<RunLog>,
    /// The log of the run that is replayed. It is only read.
    replay: Option<Arc<RunLog>>,
    /// Whether the options name the run, so that other streams may take part in it.
    is_named: bool,
    /// The pass that must still be joined.
    turn: Option<Turn>,
    /// A random number that distinguishes the streams of one worker.
    ticket: u64,
    /// Whether the stream resumes from a state.
    is_loaded: bool,
    /// Whether its state was saved. If so, another stream may resume from it and needs the log.
    pub(crate) is_saved: Arc<AtomicBool>,
    /// The epoch of the loaded state, which is not in the log of a new run.
    resumed: Option<(u64, Epoch)>,
    /// An epoch that is not logged yet. Its `repeats` counts the epochs before it, in a row, of the same generation.
    unlogged: Option<(u64, Epoch)>,
}

impl RunMembership {
    pub(crate) fn new(reader: Arc<Reader>, options: Arc<StreamOptions>) -> Result<RunMembership> {
        let ring = reader.ring();
        let log = ring.run(&options.run.clone().unwrap_or_else(RunLog::own_name))?;
        let replay = options.replay.as_deref().map(|name| ring.run(name)).transpose()?;
        Ok(RunMembership {
            log,
            is_named: options.run.is_some(),
            turn: options.goes_on.clone().filter(|_| replay.is_none()),
            replay,
            ticket: u64::from(random_u32()) << 32 | u64::from(random_u32()),
            is_loaded: false,
            is_saved: Arc::default(),
            resumed: None,
            unlogged: None,
            reader,
            options,
        })
    }

    /// Returns the epoch with which a new stream begins: 0, or the first one in the log of a replayed run, which may
    /// itself have resumed from another run's state.
    ///
    /// # Errors
    /// The run to replay has no log; the index is unreachable.
    pub(crate) fn first_epoch(&self) -> Result<u64> {
        let Some(log) = &self.replay else { return Ok(0) };
        if let Some((k, epoch)) = log.epochs()?.first() {
            return Ok(k.saturating_sub(epoch.repeats));
        }
        let (name, place) = (log.name(), self.reader.ring().layout.root().display());
        Err(Error::Sample(format!("there is no log of a run {name:?} in the ring at {place}")))
    }

    /// Returns the log of the run whose epochs are read.
    pub(crate) fn read_log(&self) -> &Arc<RunLog> {
        self.replay.as_ref().unwrap_or(&self.log)
    }

    /// Returns whether the stream replays a run and so does not take part in one.
    pub(crate) fn is_replay(&self) -> bool {
        self.replay.is_some()
    }

    /// Returns whether no other worker takes part in this run.
    fn is_alone(&self) -> bool {
        !self.is_named || self.options.share.world == 1
    }

    /// Returns whether the stream logs its epochs and its position only at intervals: its run is unnamed, and a small
    /// generation may be read very often.
    fn is_quiet(&self) -> bool {
        !self.is_named && self.reader.ring().settings.reuse.min == 0
    }

    /// Returns epoch `k` if it is logged.
    ///
    /// # Errors
    /// The index is unreachable, and other workers depend on the log.
    pub(crate) fn logged(&self, k: u64) -> Result<Option<Epoch>> {
        if let Some(log) = &self.replay {
            return log.epoch(k);
        }
        if !self.is_named && !self.is_loaded {
            return Ok(None); // only this stream writes to the log of an unnamed run
        }
        match self.log.epoch(k) {
            Err(_) if self.is_alone() => Ok(None),
            found => found,
        }
    }

    /// Logs `epoch` as number `k`, unless another worker logged that number first. Returns the logged epoch.
    ///
    /// # Errors
    /// The index is unreachable, and other workers depend on the log.
    pub(crate) fn decide(&self, k: u64, epoch: Epoch) -> Result<Epoch> {
        if self.is_quiet() {
            self.log.remember(k, &epoch);
            return Ok(epoch);
        }
        match self.log.decide(k, &epoch) {
            Err(error) if self.is_alone() => {
                tracing::debug!(%error, "cannot log an epoch of the run");
                self.log.remember(k, &epoch);
                Ok(epoch)
            }
            decided => decided,
        }
    }

    /// Continues the run of a loaded state.
    ///
    /// # Errors
    /// The run's name is invalid.
    pub(crate) fn adopt(&mut self, run: &str) -> Result<()> {
        if !self.is_named && self.replay.is_none() {
            self.log = self.reader.ring().run(run)?;
            // Reads how often the run's generation was already read.
            if let Err(error) = self.log.epochs() {
                tracing::debug!(%error, "cannot read the log of the run");
            }
        }
        Ok(())
    }

    /// Notes that the loaded state is in the middle of `epoch`, which is to be logged as number `k`.
    pub(crate) fn resume_in(&mut self, k: u64, epoch: &Epoch) {
        if self.replay.is_none() {
            self.resumed = Some((k, epoch.clone()));
        }
    }

    /// Joins the pass `turn` with all workers of the run; `current` is the epoch of a loaded state. Returns the first
    /// epoch of the pass, or `None` for a stream that resumes from a state.
    fn join(&mut self, turn: &Turn, current: u64) -> Result<Option<u64>> {
        let Share { rank, world } = self.options.share;
        let first = match self.log.join_pass(rank, world, turn, self.ticket, self.is_loaded.then_some(current)) {
            Ok(first) => first,
            Err(error) if self.is_alone() => {
                // The position of the run is unknown, so the stream begins a separate, unnamed run.
                tracing::debug!(%error, "cannot join a pass of the run");
                if !self.is_loaded {
                    self.log = self.reader.ring().run(&RunLog::own_name())?;
                    self.is_named = false;
                }
                0
            }
            Err(error) => return Err(error),
        };
        self.turn = None; // a pass is joined once
        Ok((!self.is_loaded).then_some(first))
    }

    /// Logs a warning if this worker has read epochs of the run before and now begins the run again.
    fn warn_if_read_before(&self) {
        if !self.is_named || self.is_loaded || self.replay.is_some() {
            return;
        }
        let (worker, run) = (self.options.share.rank, self.log.name());
        if self.log.was_read_by(worker).unwrap_or(false) {
            tracing::warn!(
                "worker {worker} has read epochs of run {run} before, and starts again with the first one: give \
                 another run, or load a saved state"
            );
        }
    }

    /// Logs the epoch that is not logged yet.
    fn log_unlogged(&mut self) {
        let unlogged = self.unlogged.take();
        self.log_epoch(unlogged);
    }

    fn log_epoch(&self, epoch: Option<(u64, Epoch)>) {
        if let Some((k, epoch)) = epoch
            && let Err(error) = self.log.decide(k, &epoch)
        {
            tracing::debug!(%error, "cannot log an epoch of the run");
        }
    }

    /// Notes that the stream begins to deliver the epoch of `plan`.
    fn begin_epoch(&mut self, plan: &Plan) {
        let quiet = self.is_quiet();
        match &mut self.unlogged {
            Some((k, epoch)) if epoch.generation == plan.epoch.generation => {
                *k = plan.number;
                epoch.repeats += 1;
            }
            _ if quiet => {
                self.log_unlogged();
                self.unlogged = Some((plan.number, plan.epoch.clone()));
            }
            _ => {}
        }
    }

    /// Logs that this worker is at epoch `k`.
    ///
    /// # Errors
    /// The index is unreachable or read-only, and other workers depend on the log.
    fn arrive(&mut self, k: u64) -> Result<()> {
        self.log_unlogged();
        let ring = self.reader.ring();
        let noted = self.log.arrive(self.options.share.rank, k, &ring.me, self.ticket);
        let (Err(error), false) = (&noted, self.is_alone()) else { return Ok(()) };
        if error.is_retryable() {
            return noted;
        }
        let place = ring.coordination.place();
        let message = format!("cannot write the log of run {}, which its workers need: {error}", self.log.name());
        Err(Error::CoordinationDenied { place, message })
    }

    /// Logs that this stream has ended and has read all epochs before number `finished`.
    fn leave(&mut self, finished: u64) {
        let Share { rank, world } = self.options.share;
        // A stream that was loaded or saved keeps its log for the streams that load the state.
        let is_saved = self.is_loaded || self.is_saved.load(Ordering::Relaxed);
        let left = if self.log.is_own() && world == 1 && !is_saved {
            self.reader.ring().forget_run(self.log.name());
            self.log.end(rank, finished, self.ticket)
        } else {
            self.log.leave(rank, finished, self.ticket)
        };
        left.unwrap_or_else(|error| tracing::debug!(%error, "cannot log the end of this stream"));
    }
}

/// What a stream has delivered, and what it has reported to other processes.
pub(crate) struct Progress {
    pub(crate) run: RunMembership,
    /// The epoch of the last sample, and the number of its steps that were delivered.
    pub(crate) delivered: Option<(Arc<Plan>, u64)>,
    /// Epochs that this stream has finished.
    pub(crate) finished: u64,
    /// Number, in the run, of the epoch that is being delivered or comes next.
    pub(crate) current: u64,
    /// The epoch at which the run's log has this worker.
    arrived: Option<u64>,
    /// When the log was last written, and the generation that was being read then.
    reported: Option<(Instant, Option<u64>)>,
    heartbeat: Option<Heartbeat>,
    pub(crate) clock: Arc<StreamClock>,
    /// Whether the heartbeat reports a wait.
    waits: bool,
}

impl Progress {
    /// Creates the progress of a stream that has delivered nothing; epoch `first` comes next.
    pub(crate) fn new(run: RunMembership, first: u64) -> Progress {
        Progress {
            run,
            delivered: None,
            finished: 0,
            current: first,
            arrived: None,
            reported: None,
            heartbeat: None,
            clock: Arc::default(),
            waits: false,
        }
    }

    /// Joins the next pass that all workers of the run make together, if the options ask for it. Returns the epoch to
    /// begin with if it differs from the one before.
    pub(crate) fn join(&mut self) -> Result<Option<u64>> {
        let mut first = None;
        if let Some(turn) = self.run.turn.clone() {
            first = self.run.join(&turn, self.current)?;
        } else if self.heartbeat.is_none() {
            self.run.warn_if_read_before();
        }
        self.current = first.unwrap_or(self.current);
        // The log of a new run begins with the epoch of the loaded state.
        let resumed = self.run.resumed.take();
        self.run.log_epoch(resumed);
        Ok(first)
    }

    /// Starts the heartbeat. Its thread keeps `generators` up to date.
    pub(crate) fn start_heartbeat(&mut self, generators: &Arc<ProducerStatus>) {
        if self.heartbeat.is_some() {
            return;
        }
        let ring = self.run.reader.ring();
        let generators = generators.clone();
        let look = move |index: &dyn crate::coordination::Membership| generators.keep_up(index);
        let (index, lease, clock) = (ring.coordination.clone(), ring.settings.lease, self.clock.clone());
        let refresh = move |report: &mut Report| clock.fill(report);
        self.heartbeat = Some(Heartbeat::start_with(index, &ring.me, Role::Reader, lease, refresh, look));
        // A stream that resumes in the middle of an epoch needs its generation from now on.
        self.try_report();
    }

    /// Notes that the next step to deliver belongs to `plan`.
    pub(crate) fn come_to(&mut self, plan: &Arc<Plan>) {
        if plan.number != self.current || self.delivered.is_none() {
            (self.current, self.finished) = (plan.number, plan.nth);
            self.run.begin_epoch(plan);
            self.delivered = Some((plan.clone(), 0));
        }
        self.try_report(); // also later, if it was not due when the epoch began
    }

    /// Returns what is counted of a sample of the epoch that is being delivered.
    pub(crate) fn delivered(&self, sample: &ReadSample) -> Delivered {
        let (unix_ms, generation) = (sample.unix_ms, sample.generation);
        let plan = self.delivered.as_ref().map(|(plan, _)| plan).filter(|plan| plan.epoch.generation == generation);
        let place = plan.map(|plan| (plan.served.before(sample.position), plan.epoch.samples));
        Delivered { unix_ms, bytes: sample.bytes(), generation, place, epochs: self.finished }
    }

    /// Ends the wait that the heartbeat reports.
    pub(crate) fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.heartbeat.iter().for_each(|heartbeat| heartbeat.report(|report| report.doing.clear()));
        }
    }

    pub(crate) fn report_waiting(&mut self, what: &str) {
        if let Some(heartbeat) = &self.heartbeat {
            self.waits = true;
            heartbeat.report(|report| report.doing = format!("waiting for {what}"));
        }
    }

    pub(crate) fn end_epoch(&mut self) {
        if let Some((plan, _)) = self.delivered.take() {
            (self.current, self.finished) = (plan.number + 1, plan.nth + 1);
        }
    }

    /// Logs the epoch at which this worker is, if that is due.
    ///
    /// # Errors
    /// As [`RunMembership::arrive`].
    pub(crate) fn report(&mut self) -> Result<()> {
        if self.run.is_replay() || self.arrived == Some(self.current) || !self.is_due() {
            return Ok(());
        }
        self.run.arrive(self.current)?;
        (self.arrived, self.reported) = (Some(self.current), Some((Instant::now(), self.generation())));
        Ok(())
    }

    /// Logs the epoch as [`Progress::report`] does. An error is ignored.
    fn try_report(&mut self) {
        self.report().unwrap_or_else(|error| tracing::debug!(%error, "cannot log this worker's epoch"));
    }

    /// Logs the epoch at the end of the stream, even if it is not due.
    pub(crate) fn report_end(&mut self) {
        self.reported = None;
        self.try_report();
    }

    /// Logs the epoch after a state was loaded.
    pub(crate) fn report_loaded(&mut self) {
        if self.heartbeat.is_some() {
            self.try_report();
        }
    }

    /// Returns whether other processes need to know this worker's epoch now.
    fn is_due(&self) -> bool {
        let ring = self.run.reader.ring();
        let due = |(when, what): (Instant, Option<u64>)| {
            when.elapsed() > if what == self.generation() { ring.settings.lease / 4 } else { ring.settings.poll }
        };
        !self.run.is_quiet() || self.reported.is_none_or(due)
    }

    /// Returns the generation that is being delivered; between two epochs, the one that was reported last.
    fn generation(&self) -> Option<u64> {
        let delivered = self.delivered.as_ref().map(|(plan, _)| plan.epoch.generation);
        delivered.or(self.reported.and_then(|(_, what)| what))
    }

    /// Logs that this stream reads no more for its worker. An epoch that was delivered to its last step counts as
    /// read.
    pub(crate) fn leave(&mut self) {
        self.run.log_unlogged();
        let Some(arrived) = self.arrived.take() else { return };
        let StreamOptions { share, equal, .. } = *self.run.options;
        let finished = match &self.delivered {
            Some((plan, step)) if plan.slot(share, *step, equal).is_none() => plan.number + 1,
            _ => self.current.max(arrived),
        };
        self.run.leave(finished);
    }

    /// Keeps what the run's log says of this stream, and does not leave the run.
    pub(crate) fn stay(&mut self) {
        self.run.log_unlogged();
        self.arrived = None;
    }

    /// Makes epoch `number` the next one, after `finished` others, as a loaded state says.
    pub(crate) fn restart(&mut self, finished: u64, number: u64) {
        self.run.is_loaded = true;
        self.delivered = None;
        (self.finished, self.current) = (finished, number);
    }
}
