//! The manager: promotes full generations, reclaims old ones, and adopts the sealed segments of
//! dead generators.
//!
//! Any number may run; one holds the lease, the others stand by. Two managers that both believe
//! they hold it do no harm, because two processes may run each step at once.

mod changes;
mod election;
mod fill_monitor;
mod reserve;
mod schedule;
mod swap_log;

pub use swap_log::Swap;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::failure_log;
use crate::fs::{Fs, Posix};
use crate::heartbeat::Heartbeat;
use crate::humanize::counted;
use crate::ring::Ring;
use crate::role::Role;
use crate::swap::promote::{PromoteWhen, Promoted, Promotion};
use crate::swap::reclaim::Reclaimed;
use changes::ChangeWatch;
use election::Election;
use fill_monitor::FillMonitor;
use schedule::Schedule;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use swap_log::SwapLog;

/// A manager.
pub struct Manager {
    ring: Arc<Ring>,
    heartbeat: Heartbeat,
    election: Election,
    fill: FillMonitor,
    schedule: Schedule,
    swaps: SwapLog,
    last_problem: Option<String>,
    may_write: bool,
}

impl Manager {
    /// Opens or creates the ring.
    ///
    /// # Errors
    /// As [`Ring::find_or_make`].
    pub fn open(config: &Config) -> Result<Manager> {
        Manager::open_on(Arc::new(Posix), config)
    }

    /// Like [`Manager::open`], on another filesystem.
    ///
    /// # Errors
    /// As [`Ring::find_or_make`].
    pub fn open_on(fs: Arc<dyn Fs>, config: &Config) -> Result<Manager> {
        Ok(Manager::on_ring(Arc::new(Ring::find_or_make(fs, config)?)))
    }

    /// Creates a manager of a ring that is open already.
    pub fn on_ring(ring: Arc<Ring>) -> Manager {
        Manager {
            heartbeat: Heartbeat::start(ring.coordination.clone(), &ring.me, Role::Manager, ring.settings.lease),
            election: Election::new(),
            fill: FillMonitor::new(),
            schedule: Schedule::new(),
            swaps: SwapLog::new(),
            last_problem: None,
            may_write: false,
            ring,
        }
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Runs until `stop` is ready, then releases the lease. Calls `on_swap` after each swap.
    ///
    /// # Errors
    /// Errors that a retry cannot resolve. They are recorded in the coordination store. All others
    /// are logged, and the next round tries again.
    pub async fn run(mut self, stop: impl Future<Output = ()>, mut on_swap: impl FnMut(&Swap)) -> Result<()> {
        let bell = Arc::new(tokio::sync::Notify::new());
        let (mut watching, mut reading) = (None, None);
        tokio::pin!(stop);
        loop {
            let began = Instant::now();
            let turned = self.turn();
            let (swapped, failed) = (matches!(turned, Ok(Some(_))), turned.is_err());
            if swapped || failed {
                self.fill.moved = Instant::now();
            }
            match turned {
                Ok(Some(swap)) => on_swap(&swap),
                Ok(None) => {}
                Err(error) if error.is_retryable() => self.problem(&error),
                Err(error) => {
                    failure_log::record(&*self.ring.coordination, &self.ring.me, Role::Manager, &error.to_string());
                    self.leave();
                    return Err(error);
                }
            }
            watching = self.watch_filling(watching, &bell);
            // A full generation waits for readers, which record their progress in files.
            reading = self.fill.is_blocked.then(|| reading.take().or_else(|| self.watch_notes(&bell))).flatten();
            let told = self.ring.settings.kind.local && watching.is_some() && !failed;
            let rest = if swapped { Duration::ZERO } else { self.fill.rest_after(began.elapsed(), &self.ring) };
            tokio::select! {
                () = &mut stop => break,
                () = async { nap(rest).await; bell.notified().await } => {}
                () = tokio::time::sleep(rest.max(self.fill.pause(told || !self.election.is_held(), &self.ring))) => {}
            }
            self.fill.changed = watching.as_ref().filter(|_| told).is_none_or(ChangeWatch::take);
        }
        self.leave();
        tracing::info!(
            "the manager stopped after {}; generators continue without it",
            counted(self.swaps.count, "swap")
        );
        Ok(())
    }

    /// Runs one round: takes or keeps the lease, promotes a full generation, and at intervals
    /// reclaims and recovers.
    ///
    /// # Errors
    /// Errors of the filesystem or the coordination store.
    pub fn turn(&mut self) -> Result<Option<Swap>> {
        // If the ring was removed, that error is reported instead of one that follows from it.
        self.turn_once().map_err(|error| self.ring.check_is_there().err().unwrap_or(error))
    }

    fn turn_once(&mut self) -> Result<Option<Swap>> {
        self.check_rights()?;
        if !self.election.hold_lease(&self.ring, &self.heartbeat)? {
            self.fill.looked = None; // this manager misses changes while it stands by
            return Ok(None);
        }
        match self.work() {
            Err(Error::Fs { ref source }) if source.is_full() => {
                self.release_reserve()?;
                self.schedule.next_reclaim = Instant::now();
                self.ring.reclaim()?; // not a round, because that begins with the promotion, which needs this space
                self.work()
            }
            other => other,
        }
    }

    /// Fails fast, before taking the lease, if the ring is not writable.
    fn check_rights(&mut self) -> Result<()> {
        if !self.may_write {
            match self.ring.fs.ensure_dir(&self.ring.layout.staging_of(&self.ring.me)) {
                Err(error) if error.is_denied() => return Err(error.into()),
                _ => self.may_write = true, // a full disk, for instance, is resolved by reclaiming
            }
        }
        Ok(())
    }

    /// Promotes the filling generation if it is full, then reclaims and recovers. Both are due after a promotion and
    /// after the death of a member. Otherwise recovery is due once per lease, and reclaim with it or less often.
    fn work(&mut self) -> Result<Option<Swap>> {
        let looks = self.fill.is_look_due(&self.ring)?;
        let promoted = looks.then(|| self.ring.promote(PromoteWhen::Full)).transpose()?;
        if let Some(promoted) = &promoted {
            self.fill.note_look(promoted);
        }
        let promotion = promoted.and_then(Promoted::done);
        let at_once = promotion.is_some() || self.schedule.somebody_died(&self.ring)?;
        if !self.schedule.is_recovery_due(at_once) {
            return Ok(None);
        }
        let mut reclaimed = Reclaimed::default();
        if self.schedule.is_reclaim_due(at_once) {
            reclaimed = self.ring.reclaim()?;
            self.schedule.note_reclaim(reclaimed.more, self.ring.settings.lease);
            self.keep_reserve(); // the reclaim may have freed space for it
        }
        let recovered = self.ring.recover(&mut self.ring.failure_detector())?;
        self.schedule.dead = self.ring.failure_detector().dead();
        if let Some(words) = recovered.words() {
            tracing::info!("recovered files of dead generators: {words}");
        }
        if let Err(error) = self.ring.check_is_there() {
            self.problem(&error);
        }
        self.schedule.next_recovery = Instant::now() + self.ring.settings.lease;
        Ok(promotion.map(|promotion| self.report(&promotion, reclaimed)))
    }

    fn report(&mut self, promotion: &Promotion, reclaimed: Reclaimed) -> Swap {
        let swap = self.swaps.record(promotion, reclaimed);
        let summary = &promotion.manifest.summary;
        self.heartbeat.report(|report| (report.samples, report.bytes) = (summary.total_samples, summary.total_bytes));
        self.last_problem = None;
        swap
    }

    fn problem(&mut self, error: &Error) {
        let message = error.to_string();
        if self.last_problem.as_ref() != Some(&message) {
            tracing::warn!("{message}; trying again");
            self.heartbeat.report(|report| report.last_error = Some(message.clone()));
            self.last_problem = Some(message);
        }
    }

    fn leave(&self) {
        let _ = self.release_reserve();
        let _ = self.ring.fs.remove_dir(&self.ring.layout.staging_of(&self.ring.me));
        self.election.release(&self.ring);
    }
}

/// Sleeps for `rest`. A rest below a millisecond blocks the thread, because tokio's timer counts in
/// milliseconds and generators may wait for the end of the rest.
async fn nap(rest: Duration) {
    if rest < Duration::from_millis(1) {
        std::thread::sleep(rest);
    } else {
        tokio::time::sleep(rest).await;
    }
}

/// Waits until `stop` returns true; calls it every 50 ms.
pub async fn until(stop: impl Fn() -> bool) {
    while !stop() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
