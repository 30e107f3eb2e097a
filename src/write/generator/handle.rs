//! The handle of a generator. Each call locks the generator's state, which a thread shares.
//!
//! The thread advances finished samples while the caller makes the next one. Without it, a finished sample that found
//! the ring full would wait for the caller's next call, and a slow caller would fall behind the manifests. The thread
//! never waits for a call that holds the lock, because that call does the same work.

use super::{Core, NamedPart, Summary};
use crate::config::Config;
use crate::error::Result;
use crate::fs::{Fs, Posix};
use crate::ring::Ring;
use crate::segment::SampleId;
use crate::times::{GeneratorClock, Writing};
use ringreel_format::Meta;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Rounds of the thread per lease.
const ROUNDS_PER_LEASE: u32 = 4;
/// Rounds of the thread per lease while a finished segment waits for its place.
const BUSY_ROUNDS_PER_LEASE: u32 = 16;
/// Checks per SEGMENT_SECONDS at which the thread decides whether to seal a segment.
const ROUNDS_PER_GROUP: u32 = 4;
/// Shortest time between two such checks.
const SHORTEST_TICK: Duration = Duration::from_millis(10);
/// Longest time between two rounds while a finished segment waits for its place.
const LONGEST_BUSY_PAUSE: Duration = Duration::from_secs(2);

/// A generator. It must not be used after a fork: open a new one in the child.
pub struct Generator {
    // Dropped first: ends the thread.
    upkeep: Upkeep,
    pub(super) core: Arc<Mutex<Core>>,
    ring: Arc<Ring>,
    clock: Arc<GeneratorClock>,
}

impl Generator {
    /// Opens or creates the ring and joins it as a generator.
    ///
    /// # Errors
    /// As [`Ring::find_or_make`].
    pub fn open(config: &Config) -> Result<Generator> {
        Generator::open_on(Arc::new(Posix), config)
    }

    /// Opens or creates the ring on another filesystem and joins it as a generator.
    ///
    /// # Errors
    /// As [`Ring::find_or_make`].
    pub fn open_on(fs: Arc<dyn Fs>, config: &Config) -> Result<Generator> {
        Ok(Generator::on_ring(Arc::new(Ring::find_or_make(fs, config)?), config))
    }

    /// Joins a ring that is already open.
    pub fn on_ring(ring: Arc<Ring>, config: &Config) -> Generator {
        let core = Core::on_ring(ring.clone(), config);
        let clock = core.backpressure.clock.clone();
        let core = Arc::new(Mutex::new(core));
        Generator { upkeep: Upkeep::start(core.clone(), &ring, config), core, ring, clock }
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns the totals so far.
    pub fn summary(&self) -> Summary {
        lock(&self.core).summary()
    }

    /// Writes one sample. Returns the ids of the samples that were finished since the previous call: with
    /// SEGMENT_SAMPLES 1 this sample's, else those of each segment that was sealed. With `SEGMENT_SAMPLES: auto`, a
    /// thread seals a segment whose first sample has waited for SEGMENT_SECONDS, and the next call of any kind
    /// returns its ids. A segment that the disk fails to complete is logged and discarded, and [`Summary::discarded`]
    /// counts its samples. Finished samples are safe; if the ring is full, the *next* call blocks until they have a
    /// place. Blocks while the disk is full. Stops blocking when `stop` returns true.
    ///
    /// # Errors
    /// A sample that does not match SAMPLE; [`Error::Interrupted`](crate::Error::Interrupted) if `stop` ended the
    /// call before there was room; permanent filesystem errors. The ring is then unchanged, and the same sample may
    /// be written again.
    pub fn write(&mut self, parts: &[NamedPart<'_>], meta: &Meta, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        self.timed(|core| core.write(parts, meta, stop))
    }

    /// Writes `count` samples of the same element types and shapes, without meta, faster than [`Generator::write`]
    /// does. A part's shape is that of one sample; its data holds the samples one after the other.
    ///
    /// # Errors
    /// As [`Generator::write`]. A batch that does not match SAMPLE is refused before anything is written. After
    /// another error, the first samples of the batch are written, as many as [`Generator::written`] has grown by; the
    /// next call returns the ids of those that are finished. (If `written` has shrunk, unfinished samples of earlier
    /// calls were lost.)
    pub fn write_batch(
        &mut self,
        parts: &[NamedPart<'_>],
        count: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<SampleId>> {
        self.timed(|core| core.write_batch(parts, count, stop))
    }

    /// Returns the number of samples written so far, finished or not, without those lost with an unfinished segment.
    pub fn written(&self) -> u64 {
        lock(&self.core).open.written
    }

    /// Seals the open segment and blocks until it has a place in a generation. Returns the ids of the samples that
    /// are finished now.
    ///
    /// # Errors
    /// As [`Generator::write`].
    pub fn flush(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        self.timed(|core| core.flush(stop))
    }

    /// Seals the open segment. Returns the ids of the samples that are finished now; [`Generator::finish`] commits
    /// them.
    ///
    /// # Errors
    /// As [`Generator::write`].
    pub fn seal(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        self.timed(|core| core.seal(stop).map(|()| core.unreported.take_ids()))
    }

    /// Runs a call of the caller, and counts its time.
    fn timed<T>(&mut self, call: impl FnOnce(&mut Core) -> T) -> T {
        self.clock.enter(Writing::Wrote);
        let done = call(&mut lock(&self.core));
        self.clock.enter(Writing::Made);
        done
    }

    /// Seals and commits the last segment, and leaves the ring. Call [`Generator::seal`] first for the ids of the
    /// last samples. With `promote`, blocks until all samples are readable, and promotes a generation that is not
    /// full. Segments that cannot be committed stay staged, and the manager adopts them.
    ///
    /// # Errors
    /// As [`Generator::write`]; [`Error::RingMismatch`](crate::Error::RingMismatch) if the ring was removed. The
    /// error is recorded as by [`Generator::failed`].
    pub fn finish(self, promote: bool, stop: &dyn Fn() -> bool) -> Result<Summary> {
        let Generator { upkeep, core, clock, .. } = self;
        clock.enter(Writing::Wrote);
        drop(upkeep);
        lock(&core).finish(promote, stop)
    }

    /// Reports an error that ends this generator to the other members: in its last heartbeat, and in the index, where
    /// the first one reported stays.
    pub fn failed(&mut self, message: &str) {
        lock(&self.core).failed(message);
    }
}

pub(super) fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The generator's thread. Dropping it ends and joins the thread.
struct Upkeep {
    /// Dropped to end the thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    fn start(core: Arc<Mutex<Core>>, ring: &Ring, config: &Config) -> Upkeep {
        let idle = ring.settings.lease / ROUNDS_PER_LEASE;
        let busy = (ring.settings.lease / BUSY_ROUNDS_PER_LEASE).min(LONGEST_BUSY_PAUSE).max(ring.settings.poll);
        let tick = match config.segment_samples {
            Some(_) => busy,
            None => busy.min(config.segment_time / ROUNDS_PER_GROUP).max(SHORTEST_TICK),
        };
        let (running, ended) = mpsc::channel();
        let run = move || {
            let (mut waited, mut until_retry) = (Duration::ZERO, Duration::ZERO);
            while ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                waited += tick;
                until_retry = until_retry.saturating_sub(tick);
                let mut core = match core.try_lock() {
                    Ok(core) => core,
                    Err(TryLockError::Poisoned(core)) => core.into_inner(),
                    Err(TryLockError::WouldBlock) => continue, // a call that holds the lock does this work itself
                };
                if until_retry.is_zero() && core.seal_if_old() {
                    until_retry = busy;
                }
                if waited >= idle || waited >= busy && core.queue.has_unplaced() {
                    core.keep_up();
                    waited = Duration::ZERO;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ringreel-commit".into()).spawn(run).inspect_err(|error| {
            tracing::warn!(%error, "cannot start the generator's thread: finished samples wait for the next call");
        });
        Upkeep { running: Some(running), thread: thread.ok() }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
