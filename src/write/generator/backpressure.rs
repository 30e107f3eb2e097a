//! Backpressure: waits for room on the disk, for a generation's promotion, and for transient errors to end. If no
//! manager is alive, a waiting generator does the manager's work.

use super::Core;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::fs::poll::Poller;
use crate::ring::Ring;
use crate::segment::writer::StagingWriter;
use crate::times::{GeneratorClock, Writing};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Free space that must remain after a write: directory entries and manifests need some.
const SPARE_BYTES: u64 = 256 << 10;
const SPARE_INODES: u64 = 4;

/// Most bytes that a generator writes between two checks of the ring and the disk.
const MOST: u64 = 16 << 20;
/// Between two checks, a generator uses at most this fraction of the free room, since other members use room, too.
const SHARERS: u64 = 1 << 10;

/// Limits what a generator writes, and paces its waits.
pub(crate) struct Backpressure {
    pub(super) poller: Poller,
    /// MAX_FILES.
    max_files: Option<u64>,
    allowance: Allowance,
    /// Seconds spent in pauses so far.
    pub(super) waited_seconds: f64,
    /// Measures the generator's times.
    pub(super) clock: Arc<GeneratorClock>,
    /// Whether a full generation waits for readers, and when that was last checked.
    held_back: Option<(Instant, bool)>,
}

/// Bytes that a generator may write before it checks the ring and the disk again. A check costs as much as writing
/// many small samples.
#[derive(Debug, Default)]
struct Allowance {
    bytes: u64,
    /// Time of the last check, in milliseconds since 1970.
    since_ms: u64,
}

impl Allowance {
    /// Takes `bytes`. Returns whether that many were left and the last check was less than `poll` before `now_ms`.
    fn take(&mut self, bytes: u64, now_ms: u64, poll: Duration) -> bool {
        if u128::from(self.since_ms.abs_diff(now_ms)) >= poll.as_millis() {
            return false;
        }
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(0);
        left.is_some()
    }
}

impl Backpressure {
    /// Creates it. Waits end early when a manifest is published.
    pub fn new(ring: &Ring, config: &Config) -> Backpressure {
        let mut poller = Poller::new(ring.settings.poll);
        poller.watch(&ring.layout.manifests());
        Backpressure {
            poller,
            max_files: config.max_files,
            allowance: Allowance::default(),
            waited_seconds: 0.0,
            clock: Arc::new(GeneratorClock::start()),
            held_back: None,
        }
    }
}

impl Core {
    /// Returns whether `bytes` more may be written at `now_ms`, in milliseconds since 1970, without a check: the
    /// segment is open, all earlier segments have a place, and the last check was recent.
    pub(crate) fn may_continue(&mut self, bytes: u64, now_ms: u64) -> bool {
        self.open.grows()
            && !self.queue.has_unplaced()
            && self.backpressure.allowance.take(bytes, now_ms, self.ring.settings.poll)
    }

    /// Returns what is missing for `bytes` more besides the open segment; `None` if there is room.
    fn lacks_room(&mut self, bytes: u64) -> Result<Option<String>> {
        let root = self.ring.layout.root();
        let space = self.ring.fs.space(root)?;
        let needed = bytes.saturating_add(SPARE_BYTES);
        if space.bytes < needed {
            let place = root.display();
            return Ok(Some(format!("room on the disk of {place}: less than the {needed} bytes that are needed")));
        }
        if let Some(inodes) = space.inodes.filter(|inodes| *inodes < SPARE_INODES) {
            let place = root.display();
            return Ok(Some(format!("inodes on the disk of {place}: {inodes} are free, {SPARE_INODES} are needed")));
        }
        let mut headroom = space.bytes - needed;
        let (max_bytes, max_files) = (self.ring.settings.max_bytes, self.backpressure.max_files);
        if max_bytes.is_some() || max_files.is_some() {
            let (used, files) = self.ring.usage()?;
            let used = used + self.open.writer.as_ref().map_or(0, StagingWriter::bytes);
            if max_bytes.is_some_and(|max| used + bytes > max) {
                return Ok(Some(format!("room under MAX_BYTES: {used} bytes are used, {bytes} more are needed")));
            }
            if max_files.is_some_and(|max| files + 1 > max) {
                return Ok(Some(format!("room under MAX_FILES: {files} files are used")));
            }
            headroom = headroom.min(max_bytes.map_or(u64::MAX, |max| max - used - bytes));
        }
        self.backpressure.allowance.bytes = MOST.min(headroom / SHARERS);
        Ok(None)
    }

    /// Blocks until the disk and the limits have room for `bytes` more. `now_ms` is the time of the call, in milliseconds
    /// since 1970.
    pub(crate) fn await_room(&mut self, bytes: u64, now_ms: u64, stop: &dyn Fn() -> bool) -> Result<()> {
        loop {
            match self.lacks_room(bytes) {
                Ok(None) => {
                    self.backpressure.allowance.since_ms = now_ms;
                    self.backpressure.clock.end_wait();
                    return Ok(());
                }
                Ok(Some(lack)) => {
                    self.problem(format!("waiting for {lack}"));
                    self.unlink_delivered(usize::MAX); // they may be the last names of reclaimed segments
                    self.place_finished(stop)?;
                    if !self.run_maintenance(Duration::MAX)? {
                        self.pause(&lack, stop)?;
                    }
                }
                Err(error) => self.retry_or_fail(error, "checking for room", stop)?,
            }
        }
    }

    /// Pauses after a transient error; returns all others.
    pub(crate) fn retry_or_fail(&mut self, error: Error, doing: &str, stop: &dyn Fn() -> bool) -> Result<()> {
        if !error.is_retryable() {
            return Err(error);
        }
        self.problem(format!("{doing}: {error}; trying again"));
        self.run_maintenance(Duration::ZERO)?;
        self.pause(&format!("the next attempt at {doing}"), stop)?;
        self.backpressure.clock.end_wait();
        Ok(())
    }

    /// Waits for `what` for about one polling interval, or until a watched name changes.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if `stop` returns true.
    pub(crate) fn pause(&mut self, what: &str, stop: &dyn Fn() -> bool) -> Result<()> {
        self.pause_in(Writing::Room, what, stop)
    }

    /// Waits like [`Core::pause`]. The clock counts the time as `wait`.
    pub(crate) fn pause_in(&mut self, wait: Writing, what: &str, stop: &dyn Fn() -> bool) -> Result<()> {
        if stop() {
            return Err(Error::Interrupted { what: what.to_owned() });
        }
        self.backpressure.clock.enter(wait);
        let started = Instant::now();
        self.heartbeat.report(|report| report.doing = format!("waiting for {what}"));
        self.backpressure.poller.pause(self.ring.settings.poll, stop);
        self.heartbeat.report(|report| report.doing.clear());
        self.backpressure.waited_seconds += started.elapsed().as_secs_f64();
        if stop() { Err(Error::Interrupted { what: what.to_owned() }) } else { Ok(()) }
    }

    /// Returns whether the full generation waits for readers. The answer may be a sixteenth of a lease old, because
    /// every check reads the logs of the runs.
    pub(crate) fn waits_for_readers(&mut self) -> bool {
        if self.ring.settings.reuse.min == 0 {
            return false;
        }
        let known = self.backpressure.held_back.filter(|(at, _)| at.elapsed() < self.ring.settings.lease / 16);
        let (at, held) = known.unwrap_or_else(|| (Instant::now(), matches!(self.ring.held_back(), Ok(Some(_)))));
        self.backpressure.held_back = Some((at, held));
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_ends_with_its_bytes_or_after_a_poll() {
        let poll = Duration::from_millis(200);
        let mut allowance = Allowance { bytes: 100, since_ms: 1000 };
        assert!(!allowance.take(1, 1200, poll), "one polling interval after the check");
        assert!(allowance.take(60, 1199, poll));
        assert!(!allowance.take(50, 1001, poll), "40 bytes are left");
        assert!(!allowance.take(1, 1001, poll), "a refused request uses up the allowance");
    }
}
