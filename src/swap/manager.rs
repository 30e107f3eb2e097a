//! The manager: promotes full generations, reclaims old ones, brings in what dead generators finished.
//!
//! Any number may run; one holds the lease, the others stand by. Two that both think they hold it harm nothing: each
//! step may be done by two at once.

mod changes;
mod election;

use crate::config::Config;
use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::failure_log;
use crate::fs::atomic_publish::write_new;
use crate::fs::poll::jittered;
use crate::fs::{Fs, Posix};
use crate::heartbeat::Heartbeat;
use crate::humanize::counted;
use crate::minutely::Minutely;
use crate::ring::Ring;
use crate::role::Role;
use crate::swap::maintenance::{Dead, Due, MaintenancePolicy};
use crate::swap::promote::{Promoted, Promotion, When};
use crate::swap::reclaim::Reclaimed;
use changes::Watch;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the system reports changes, a generation without any is listed again after this time.
const QUIET_LOOK: Duration = Duration::from_secs(5);
/// Where the system does not tell of names, a manager waits for an eighth of the time since it last saw something new, so
/// that it notices what is new late by an eighth of that time at most.
const PATIENCE: u32 = 8;
const MILLISECOND: Duration = Duration::from_millis(1);
/// Leases between two rounds of reclaiming when the last one left nothing to do.
const LEASES_BETWEEN_RECLAIMS: u32 = 6;
/// Bytes held in reserve, so that a full disk does not keep the manager from publishing and reclaiming.
const RESERVE: usize = 1 << 20;

/// One swap, as the log tells it: Wirehead's three figures and the rate.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The generation that became readable.
    pub generation: u64,
    /// When: milliseconds since 1970.
    pub unix_ms: u64,
    /// Samples in it.
    pub samples: u64,
    /// Samples in all generations so far.
    pub generated: u64,
    /// Samples deleted with the generations that were reclaimed at this swap.
    pub deleted: u64,
    /// Samples per second since the swap before.
    pub per_second: f64,
    /// For how long no generator could commit, in milliseconds: until the next generation was open.
    pub swap_ms: f64,
}

/// A manager.
pub struct Manager {
    ring: Arc<Ring>,
    heartbeat: Heartbeat,
    token: Option<u64>,
    /// How many counted as dead after the last recovery.
    dead: usize,
    last_swap: Instant,
    next_recovery: Instant,
    next_reclaim: Instant,
    next_look: Instant,
    /// When the filling generation was listed last; `None` if another manager held the lease meanwhile.
    looked: Option<Instant>,
    /// When there was something new at a look.
    moved: Instant,
    /// Whether the filling generation may have changed since.
    changed: bool,
    /// What the full generation waited for at that look; `None` if it was not blocked.
    blocked: Option<String>,
    /// Samples in it at that look, and how fast they came since the one before.
    fill: u64,
    seconds_per_sample: f64,
    reserve: PathBuf,
    last_problem: Option<String>,
    standing_by: bool,
    may_write: bool,
    /// Swaps that this process made, and the limit on log lines about them.
    swaps: u64,
    lines: Minutely,
}

impl Manager {
    /// Finds or makes the ring.
    ///
    /// # Errors
    /// As [`Ring::find_or_make`].
    pub fn open(config: &Config) -> Result<Manager> {
        Manager::open_on(Arc::new(Posix), config)
    }

    /// The same on another filesystem.
    ///
    /// # Errors
    /// As [`Ring::find_or_make`].
    pub fn open_on(fs: Arc<dyn Fs>, config: &Config) -> Result<Manager> {
        Ok(Manager::on_ring(Arc::new(Ring::find_or_make(fs, config)?)))
    }

    /// The same in a ring that was found already.
    pub fn on_ring(ring: Arc<Ring>) -> Manager {
        let now = Instant::now();
        Manager {
            heartbeat: Heartbeat::start(ring.coordination.clone(), &ring.me, Role::Manager, ring.settings.lease),
            token: None,
            dead: 0,
            last_swap: now,
            next_recovery: now,
            next_reclaim: now,
            next_look: now,
            looked: None,
            moved: now,
            changed: true,
            blocked: None,
            fill: 0,
            seconds_per_sample: f64::INFINITY,
            reserve: ring.layout.staging_of(&ring.me).join("reserve"),
            last_problem: None,
            standing_by: false,
            may_write: false,
            swaps: 0,
            lines: Minutely::at_once(),
            ring,
        }
    }

    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Runs until `stop` is ready; then gives the lease up. `on_swap` is told of each swap.
    ///
    /// # Errors
    /// None that waiting might mend: those are logged, and the next round tries again. The others are remembered in the
    /// index.
    pub async fn run(mut self, stop: impl Future<Output = ()>, mut on_swap: impl FnMut(&Swap)) -> Result<()> {
        let bell = Arc::new(tokio::sync::Notify::new());
        let (mut watching, mut reading) = (None, None);
        tokio::pin!(stop);
        loop {
            let began = Instant::now();
            let turned = self.turn();
            let (swapped, failed) = (matches!(turned, Ok(Some(_))), turned.is_err());
            if swapped || failed {
                self.moved = Instant::now();
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
            // Where a full generation waits for readers, and these note in files how far they are.
            reading = self.blocked.as_ref().and_then(|_| reading.take().or_else(|| self.watch_notes(&bell)));
            let told = self.ring.settings.kind.local && watching.is_some() && !failed;
            let rest = if swapped { Duration::ZERO } else { self.rest_after(began.elapsed()) };
            tokio::select! {
                () = &mut stop => break,
                () = async { nap(rest).await; bell.notified().await } => {}
                () = tokio::time::sleep(rest.max(self.pause(told))) => {}
            }
            self.changed = watching.as_ref().filter(|_| told).is_none_or(Watch::take);
        }
        self.leave();
        tracing::info!("the manager has left after {}; generators go on without it", counted(self.swaps, "swap"));
        Ok(())
    }

    /// How long is rested after a look that took so long. (What was waited for a server that fell silent is no cost of looking.)
    fn rest_after(&self, took: Duration) -> Duration {
        let missing = self.ring.birth.swap_cap.saturating_sub(self.fill);
        let until_full = if missing > 0 { self.seconds_per_sample * missing as f64 } else { f64::INFINITY };
        rest(took, until_full).min(self.ring.settings.lease / 4)
    }

    /// Returns the time until the next look. Without events for new files (`told`), the manager that holds the lease waits
    /// longer the longer no file arrives: at most half a lease, and no later than a silent member counts as dead.
    fn pause(&self, told: bool) -> Duration {
        let poll = jittered(self.ring.settings.poll);
        if told || self.token.is_none() || self.blocked.is_some() {
            return poll;
        }
        // With the jitter, half a lease: of the time between two looks at the members no more counts.
        let longest = jittered((self.moved.elapsed() / PATIENCE).min(self.ring.settings.lease * 2 / 5));
        let until_death = self.ring.watch().until_death().map_or(longest, |until| until + MILLISECOND);
        longest.min(until_death).max(poll)
    }

    /// One round: takes or keeps the lease, promotes what is full, now and then brings in what the dead left.
    ///
    /// # Errors
    /// What the filesystem or the index says.
    pub fn turn(&mut self) -> Result<Option<Swap>> {
        // A removed ring comes before an error that is only a consequence of it.
        self.turn_once().map_err(|error| self.ring.check_is_there().err().unwrap_or(error))
    }

    fn turn_once(&mut self) -> Result<Option<Swap>> {
        self.check_rights()?;
        if !self.hold_lease()? {
            self.looked = None; // changes are missed meanwhile
            return Ok(None);
        }
        let done = self.work();
        match done {
            Err(Error::Fs { ref source }) if source.is_full() => {
                self.ring.fs.forget_file(&self.reserve)?;
                self.next_reclaim = Instant::now();
                self.ring.reclaim()?; // no round: a round begins with the promotion, which needs this room
                self.work()
            }
            other => other,
        }
    }

    /// Who may not write in the ring is told at once, and holds no lease.
    fn check_rights(&mut self) -> Result<()> {
        if !self.may_write {
            match self.ring.fs.ensure_dir(&self.ring.layout.staging_of(&self.ring.me)) {
                Err(error) if error.is_denied() => return Err(error.into()),
                _ => self.may_write = true, // a full disk, for one, is to be mended by reclaiming
            }
        }
        Ok(())
    }

    fn work(&mut self) -> Result<Option<Swap>> {
        let changed = std::mem::replace(&mut self.changed, true); // until a watch says that nothing did
        let overdue = self.looked.is_none_or(|at| at.elapsed() > QUIET_LOOK);
        // A full generation that waits for its readers is promoted without a new name in it.
        let looks = overdue || changed || self.is_released()?;
        let ring = self.ring.clone();
        let round = ring.run_maintenance(looks.then_some(When::Full), self)?;
        let Some(recovered) = round.recovered else { return Ok(None) };
        self.dead = self.ring.watch().dead();
        if let Some(words) = recovered.words() {
            tracing::info!("dead generators: {words}");
        }
        if let Err(error) = self.ring.check_is_there() {
            self.problem(&error);
        }
        self.next_recovery = Instant::now() + self.ring.settings.lease;
        let deleted = round.reclaimed.map_or(0, |reclaimed| reclaimed.samples);
        let promotion = round.promoted.and_then(Promoted::done);
        Ok(promotion.map(|promotion| self.tell(&promotion, deleted)))
    }

    /// Records the result of a look at the filling generation.
    fn note_look(&mut self, promoted: &Promoted) {
        let (now, fill) = (Instant::now(), self.filled_by(promoted));
        let (before, had) = (self.looked.replace(now), std::mem::replace(&mut self.fill, fill));
        // Another process promotes: new files came, although this look counted none.
        if fill != had || matches!(promoted, Promoted::Raced) {
            self.moved = now;
        }
        self.seconds_per_sample = before.map_or(f64::INFINITY, |before| pace(now - before, fill.saturating_sub(had)));
        self.blocked = match promoted {
            Promoted::Blocked { why, .. } => Some(why.clone()),
            Promoted::Done(_) | Promoted::Filling { .. } | Promoted::Raced => None,
        };
    }

    /// Returns whether the last look found the next generation blocked by readers, who do not block it any more.
    fn is_released(&mut self) -> Result<bool> {
        if self.blocked.is_none() {
            return Ok(false);
        }
        let blocked = self.ring.held_back()?;
        let is_released = blocked.is_none();
        if !is_released {
            self.blocked = blocked;
        }
        Ok(is_released)
    }

    /// Returns the number of samples in the filling generation; the number known before if the look does not show it.
    fn filled_by(&self, promoted: &Promoted) -> u64 {
        match promoted {
            Promoted::Done(_) => 0,
            Promoted::Filling { samples } | Promoted::Blocked { samples, .. } => *samples,
            Promoted::Raced => self.fill,
        }
    }

    /// Whether there are more dead than after the last recovery: then what they left is not to wait for the next one.
    fn somebody_died(&self) -> Result<bool> {
        let mut watch = self.ring.watch();
        if_available(watch.look(&*self.ring.coordination))?;
        Ok(watch.dead() > self.dead)
    }

    fn tell(&mut self, promotion: &Promotion, deleted: u64) -> Swap {
        let summary = &promotion.manifest.summary;
        let elapsed = self.last_swap.elapsed().as_secs_f64();
        self.last_swap = Instant::now();
        let swap = Swap {
            generation: summary.generation,
            unix_ms: summary.unix_ms,
            samples: summary.samples,
            generated: summary.total_samples,
            deleted,
            per_second: summary.samples as f64 / elapsed.max(1e-9),
            swap_ms: promotion.swap_ms,
        };
        self.swaps += 1;
        let words = format!(
            "swap: generation {} is readable: time {:.3}, generated so far {}, deleted {}, {:.2} samples/s (generators waited {:.1} ms)",
            swap.generation,
            swap.unix_ms as f64 / 1e3,
            swap.generated,
            swap.deleted,
            swap.per_second,
            swap.swap_ms,
        );
        if self.lines.is_due() {
            tracing::info!("{words}");
        } else {
            tracing::debug!("{words}");
        }
        self.heartbeat.report(|report| (report.samples, report.bytes) = (summary.total_samples, summary.total_bytes));
        self.last_problem = None;
        swap
    }

    fn keep_reserve(&self) {
        if self.ring.fs.exists(&self.reserve).unwrap_or(true) {
            return;
        }
        let room = self.ring.fs.space(self.ring.layout.root()).map_or(0, |space| space.bytes);
        if room > 16 * RESERVE as u64 {
            let made = self.ring.fs.ensure_dir(&self.ring.layout.staging_of(&self.ring.me));
            let made = made.and_then(|()| write_new(&*self.ring.fs, &self.reserve, &vec![0; RESERVE], false));
            made.unwrap_or_else(|error| tracing::debug!(%error, "no reserve can be held"));
        }
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
        let _ = self.ring.fs.forget_file(&self.reserve);
        let _ = self.ring.fs.remove_dir(&self.ring.layout.staging_of(&self.ring.me));
        if let Some(token) = self.token {
            let released = self.ring.coordination.release_lease(Role::Manager.as_str(), token);
            released.unwrap_or_else(|error| tracing::warn!(%error, "the lease runs out by itself"));
        }
    }
}

/// Everything is due after a promotion and after a member's death. Otherwise recovery is due once in a lease, and reclaim
/// with it or less often.
impl MaintenancePolicy for Manager {
    fn due(&mut self, promoted: &Result<Option<Promoted>>) -> Result<Due> {
        let Ok(promoted) = promoted else { return Ok(Due::nothing()) };
        if let Some(promoted) = promoted {
            self.note_look(promoted);
        }
        let at_once = matches!(promoted, Some(Promoted::Done(_))) || self.somebody_died()?;
        if !at_once && Instant::now() < self.next_recovery {
            return Ok(Due::nothing());
        }
        Ok(Due { reclaim: at_once || Instant::now() >= self.next_reclaim, dead: Dead::Adopt })
    }

    /// Makes the reserve again, since there may be room for it now.
    fn after_reclaim(&mut self, done: Result<Reclaimed>) -> Result<Reclaimed> {
        let reclaimed = done?;
        let leases = if reclaimed.more { 1 } else { LEASES_BETWEEN_RECLAIMS };
        self.next_reclaim = Instant::now() + self.ring.settings.lease * leases;
        self.keep_reserve();
        Ok(reclaimed)
    }
}

/// Sleeps for so long; tokio's timer counts in milliseconds, and generators may wait for the end of a rest.
async fn nap(rest: Duration) {
    if rest < Duration::from_millis(1) {
        std::thread::sleep(rest);
    } else {
        tokio::time::sleep(rest).await;
    }
}

/// Seconds for a sample, where so many came since the look before. Where none came, one may come as soon again: of looks that
/// find nothing, each rest is as long as the look, at least.
fn pace(elapsed: Duration, gained: u64) -> f64 {
    elapsed.as_secs_f64() / gained.max(1) as f64
}

/// How long is rested after a look that took so long, in a generation that will be full in so many seconds, at the pace since
/// the look before. A look costs more the fuller the generation is, so for a few times as long; but no longer than half the
/// time that is left: generators wait from then on, and the last look is to find little that is new.
fn rest(took: Duration, until_full: f64) -> Duration {
    let longest = took * 4;
    Duration::try_from_secs_f64(until_full / 2.0).map_or(longest, |half| longest.min(half))
}

/// How often a future asks a question that can only be asked again and again.
pub const ASK_EVERY: Duration = Duration::from_millis(50);

/// Ready when `stop` says so; asked every 50 ms.
pub async fn until(stop: impl Fn() -> bool) {
    while !stop() {
        tokio::time::sleep(ASK_EVERY).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_closer_together_before_a_generation_is_full() {
        let took = Duration::from_millis(3);
        for nobody_knows in [f64::INFINITY, f64::NAN, 1e300, 3600.0] {
            assert_eq!(rest(took, nobody_knows), took * 4);
        }
        // A hundred samples, one each millisecond: how many are missing at the last looks, each of which takes 3 ms.
        let (mut now, mut missing) = (0.0f64, Vec::new());
        while now < 100.0 {
            missing.push((100.0 - now).ceil());
            now += 3.0 + rest(took, (100.0 - now) / 1e3).as_secs_f64() * 1e3;
        }
        assert!(*missing.last().unwrap() <= 4.0 && now < 104.0 && missing.len() < 16, "{now} {missing:?}");
    }

    #[test]
    fn looks_that_find_nothing_stay_close_together_before_a_generation_is_full_and_take_half_the_time_at_most() {
        let took = Duration::from_millis(10);
        // One sample is missing; the look before the last one was 20 ms ago.
        assert_eq!(rest(took, pace(Duration::from_millis(20), 0)), took);
        let mut rested = took * 4;
        for _ in 0..100 {
            rested = rest(took, pace(took + rested, 0));
            assert!(rested >= took, "{rested:?}");
        }
        // Where many are missing, nobody hurries.
        assert_eq!(rest(took, pace(took * 5, 0) * 100.0), took * 4);
    }
}
