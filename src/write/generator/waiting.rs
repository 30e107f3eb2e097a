//! Waiting: for room on the disk, for a generation's promotion, for errors to pass. Who waits where no manager lives does
//! the manager's work meanwhile.

use super::Core;
use crate::error::{Error, Result};
use crate::ring::liveness::LOOKS_PER_LEASE;
use crate::role::Role;
use crate::segment::writer::StagingWriter;
use crate::swap::maintenance::{Dead, Due, Round};
use crate::swap::promote::{Promoted, When};
use std::time::{Duration, Instant};

/// Room that must be left on the disk besides what is to be written: names and manifests need some.
const SPARE_BYTES: u64 = 256 << 10;
const SPARE_INODES: u64 = 4;

/// Between two looks at the ring and at the disk, a generator writes at most so much.
const MOST: u64 = 16 << 20;
/// And at most this part of the room that it found: so many others may do the same.
const SHARERS: u64 = 1 << 10;

/// What a generator may add to the segment that it writes before it looks at the ring and the disk again. A look costs as
/// much as writing many small samples.
#[derive(Debug, Default)]
pub(crate) struct Leave {
    /// Bytes.
    bytes: u64,
    /// When it looked last: milliseconds since 1970.
    pub since: u64,
}

impl Core {
    /// Whether `bytes` more may be written, now (milliseconds since 1970), without a look: the segment is open, everything
    /// before it has a place, and the last look was not long ago.
    pub(crate) fn may_go_on(&mut self, bytes: u64, now: u64) -> bool {
        let grows = |it: &StagingWriter| it.samples() > 0 && !it.is_closed() && !self.grouping.is_complete();
        let is_open = self.writing.as_ref().is_some_and(grows);
        let is_fresh = u128::from(self.leave.since.abs_diff(now)) < self.ring.settings.poll.as_millis();
        if !is_open || !is_fresh || self.has_unplaced() {
            return false;
        }
        let left = self.leave.bytes.checked_sub(bytes);
        self.leave.bytes = left.unwrap_or(0);
        left.is_some()
    }

    /// Goes on only when the disk and the budget have room for `bytes` more.
    pub(crate) fn await_room(&mut self, bytes: u64, stop: &dyn Fn() -> bool) -> Result<()> {
        loop {
            match self.lacks_room(bytes) {
                Ok(None) => return Ok(()),
                Ok(Some(lack)) => {
                    self.problem(format!("waiting for {lack}"));
                    self.strike_off(usize::MAX); // they may be the last names of what was reclaimed
                    self.place_finished(stop)?;
                    if !self.tend_ring(Duration::MAX)? {
                        self.pause(&lack, self.ring.settings.poll, stop)?;
                    }
                }
                Err(error) => self.bear(error, "looking for room", stop)?,
            }
        }
    }

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
        let (max_bytes, max_files) = self.budget;
        if max_bytes.is_some() || max_files.is_some() {
            let (used, files) = self.ring.usage()?;
            let used = used + self.writing.as_ref().map_or(0, StagingWriter::bytes);
            if max_bytes.is_some_and(|max| used + bytes > max) {
                return Ok(Some(format!("room under MAX_BYTES: {used} bytes are used, {bytes} more are needed")));
            }
            if max_files.is_some_and(|max| files + 1 > max) {
                return Ok(Some(format!("room under MAX_FILES: {files} files are used")));
            }
            headroom = headroom.min(max_bytes.map_or(u64::MAX, |max| max - used - bytes));
        }
        self.leave.bytes = MOST.min(headroom / SHARERS);
        Ok(None)
    }

    /// Whether who has waited so long does the work of a manager that lives: once in each lease. (A thousand generators may
    /// wait, for a reader perhaps: not all of them at each look.)
    fn is_overdue(&self, waited: Duration) -> bool {
        let (lease, look) = (self.ring.settings.lease.as_nanos().max(1), (self.ring.settings.poll * 3 / 2).as_nanos());
        waited == Duration::MAX || waited > self.ring.settings.lease && waited.as_nanos() % lease <= look
    }

    /// Where no manager lives, or ours seems to do nothing for a whole lease, does its work once. True: it helped.
    pub(crate) fn tend_ring(&mut self, waited: Duration) -> Result<bool> {
        self.ring
            .watch()
            .look(&*self.ring.coordination)
            .unwrap_or_else(|error| tracing::debug!(%error, "members cannot be seen"));
        if self.manager_lives() && !self.is_overdue(waited) {
            return Ok(false);
        }
        // On a full disk, promoting may fail for want of what reclaiming gives back: never the one without the other.
        let always = &mut Due { reclaim: true, dead: Dead::Adopt };
        match self.ring.run_maintenance(Some(When::Full), always) {
            Ok(Round { promoted: Some(Promoted::Done(promotion)), .. }) => {
                self.summary.swaps += u64::from(promotion.ours);
                tracing::debug!(
                    generation = promotion.manifest.summary.generation,
                    "promoted by a generator: no manager lives"
                );
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) if error.is_retryable() => {
                self.problem(error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn manager_lives(&mut self) -> bool {
        if self.next_look <= Instant::now() {
            // Where the index is away, the manager may go on as well as we do: what was known last holds.
            if let Ok(lease) = self.ring.coordination.lease(Role::Manager.as_str()) {
                self.manager = lease.filter(|lease| !lease.released).map(|lease| lease.holder);
                self.next_look = Instant::now() + self.ring.settings.lease / LOOKS_PER_LEASE;
            }
        }
        self.manager.as_ref().is_some_and(|manager| !self.ring.watch().is_dead(manager))
    }

    /// An error that passes is waited out; another one is the caller's.
    pub(crate) fn bear(&mut self, error: Error, doing: &str, stop: &dyn Fn() -> bool) -> Result<()> {
        if !error.is_retryable() {
            return Err(error);
        }
        self.problem(format!("{doing}: {error}; trying again"));
        self.tend_ring(Duration::ZERO)?;
        self.pause(doing, self.ring.settings.poll, stop)
    }

    pub(crate) fn problem(&mut self, message: String) {
        if self.last_problem.as_ref() != Some(&message) {
            tracing::warn!("{message}");
            self.heartbeat.report(|report| report.last_error = Some(message.clone()));
            self.last_problem = Some(message);
        }
    }

    pub(crate) fn pause(&mut self, what: &str, limit: Duration, stop: &dyn Fn() -> bool) -> Result<()> {
        if stop() {
            return Err(Error::Interrupted { what: what.to_owned() });
        }
        let started = Instant::now();
        self.heartbeat.report(|report| report.doing = format!("waiting for {what}"));
        self.pacer.pause(limit, stop);
        self.heartbeat.report(|report| report.doing.clear());
        self.summary.waited_seconds += started.elapsed().as_secs_f64();
        if stop() { Err(Error::Interrupted { what: what.to_owned() }) } else { Ok(()) }
    }
}
