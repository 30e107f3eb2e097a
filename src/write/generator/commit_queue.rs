//! The queue of a generator's sealed segments, until a manifest lists them.

use super::Core;
use crate::commit::{Commit, CommitOutcome, ManifestCursor, Staged};
use crate::error::{Error, Result};
use crate::manifest::store::Lookup;
use crate::ring::settings::Settings;
use crate::swap::promote::{PromoteWhen, Promoted};
use crate::times::Writing;
use crate::unix_ms;
use ringreel_format::SegmentId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most staging names that a call which writes one sample removes. (Each takes 0.1 ms, and more on a shared
/// filesystem.)
const FEW: usize = 16;
/// Most staging names that a round of the generator's thread removes, for which a call may have to wait.
const SOME: usize = 256;
/// Shortest time that a generator at its end waits for a generation that no process can promote.
const SEAL_PATIENCE: Duration = Duration::from_secs(10);

/// A generation that waits for its manifest while this generator fills the one after it.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    of: u64,
    since: Instant,
    /// When it is checked next. At first its promoter is most likely still working.
    next_look: Instant,
}

/// The sealed segments that this generator still has to care for: until a manifest lists them, and then until their
/// staging names are removed.
#[derive(Default)]
pub(crate) struct CommitQueue {
    commits: Vec<Commit>,
    /// Number of `commits`, counted from the first one, that have a place.
    placed: usize,
    /// When the first segment without a place began to wait, in this call or an earlier one.
    unplaced_since: Option<Instant>,
    /// The newest manifest that all of `commits` were looked up in.
    reconciled: u64,
    /// Segments that a manifest lists and that still have their staging names.
    listed: VecDeque<SegmentId>,
    /// The last generation that was seen to wait for its manifest.
    ahead: Option<Ahead>,
}

/// Why [`Core::link_next`] returned.
enum Linking {
    /// Every segment has a place.
    Done,
    /// This generation takes no more; the first segment without a place has waited for this long.
    Full(u64, Duration),
    /// One step failed. It may be tried again if the error is transient.
    Failed(Error),
}

impl CommitQueue {
    /// Adds a sealed segment. `is_new`: the segment had no name before, so no manifest read so far lists it.
    /// `is_cut`: its owner sealed it early to fit into the remaining room.
    pub fn push(&mut self, staged: Staged, is_new: bool, is_cut: bool) {
        let mut commit = if is_new { Commit::sealed_after(staged, self.reconciled) } else { Commit::new(staged) };
        commit.is_cut = is_cut;
        self.commits.push(commit);
    }

    /// Returns whether a finished segment has no place in a generation yet.
    pub fn has_unplaced(&self) -> bool {
        self.placed < self.commits.len()
    }

    /// Checks generation `begun`, the last one that was seen to wait for its manifest. If it still waits and a check
    /// is due, returns the time to pass to `run_maintenance`: [`Duration::MAX`] after a whole lease, else zero.
    fn look_ahead(&mut self, begun: u64, settings: &Settings) -> Option<Duration> {
        if begun <= self.reconciled {
            return None;
        }
        let now = Instant::now();
        let known = self.ahead.filter(|ahead| ahead.of == begun);
        let Ahead { since, next_look, .. } =
            known.unwrap_or(Ahead { of: begun, since: now, next_look: now + settings.poll * 2 });
        let overdue = since.elapsed() > settings.lease;
        let pause = if overdue { settings.lease } else { settings.poll * 2 };
        let is_due = now >= next_look;
        self.ahead = Some(Ahead { of: begun, since, next_look: if is_due { now + pause } else { next_look } });
        is_due.then_some(if overdue { Duration::MAX } else { Duration::ZERO })
    }
}

impl Core {
    /// Advances the commits of earlier segments. Blocks if one of them has no place yet.
    pub(crate) fn commit_earlier(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        while let Err(error) = self.reconcile() {
            self.retry_or_fail(error, "reading the manifests", stop)?;
        }
        self.unlink_delivered(FEW);
        self.commit_all(stop)?;
        // The generation before the one that fills may wait for its manifest because its promoter died.
        if let Some(waited) = self.queue.look_ahead(self.ring.begun(), &self.ring.settings) {
            self.run_maintenance(waited)?;
        }
        Ok(())
    }

    /// Does the work that needs no caller: advances earlier segments without blocking and, if no manager is alive,
    /// does the manager's work once per lease. The next call returns a permanent error about this generator's own
    /// segments.
    pub(crate) fn keep_up(&mut self) {
        let is_due = self.manager.last_round.elapsed() > self.ring.settings.lease;
        if self.queue.commits.is_empty() && self.queue.listed.is_empty() && !is_due {
            return;
        }
        let advanced = self.reconcile().and_then(|()| {
            self.unlink_delivered(SOME);
            self.commit_now()
        });
        match advanced {
            Err(error) if !error.is_retryable() => self.defer(error),
            Err(error) => self.problem(error.to_string()),
            Ok(()) => {}
        }
        let done = if is_due {
            self.manager.last_round = Instant::now();
            self.promote_full()
        } else {
            self.promote_if_filled()
        };
        done.unwrap_or_else(|error| self.problem(error.to_string()));
    }

    /// Seals the open segment before a wait: its samples do not stay unfinished, and the promotion that the generator
    /// waits for may need them.
    fn seal_group(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        if self.open.grouping.is_auto { self.seal_or_discard(stop) } else { Ok(()) }
    }

    /// Seals the open segment. If that fails, discards it with its samples, which were never finished and are counted
    /// in the summary. The caller's own sample is not among them.
    pub(crate) fn seal_or_discard(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        match self.seal(stop) {
            Err(error) if self.is_thrown_away(&error) => self.unreported.discarded = Some(error),
            done => done?,
        }
        Ok(())
    }

    /// Seals the open segment and links finished segments without blocking: they may be all that the generation
    /// lacks, and its promotion may make the room that this generator waits for.
    pub(crate) fn place_finished(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        self.seal_group(stop)?;
        if self.queue.has_unplaced() {
            self.reconcile().unwrap_or_else(|error| self.problem(error.to_string()));
            self.commit_now()?;
        }
        Ok(())
    }

    /// Returns whether a segment that could not be sealed was discarded, as on a full disk or after another process
    /// removed it.
    pub(crate) fn is_thrown_away(&self, error: &Error) -> bool {
        self.open.writer.is_none() && (error.is_retryable() || error.is_gone())
    }

    /// Seals the open segment if its first sample has waited for SEGMENT_SECONDS, and commits it. The next call
    /// returns the ids and a permanent error. Returns whether to try again later.
    pub(crate) fn seal_if_old(&mut self) -> bool {
        if !self.open.grouping.is_old(unix_ms()) {
            return false;
        }
        match self.seal(&|| true) {
            Ok(()) => {
                if let Err(error) = self.commit_now().and_then(|()| self.promote_if_filled()) {
                    self.defer(error);
                }
                return false;
            }
            Err(Error::Interrupted { .. }) => {}
            Err(error) if error.is_retryable() || self.is_thrown_away(&error) => self.problem(error.to_string()),
            Err(error) => self.defer(error),
        }
        true
    }

    /// Promotes a generation that this generator has filled, if no manager is alive.
    pub(crate) fn promote_if_filled(&mut self) -> Result<()> {
        if self.ring.seems_full(self.queue.reconciled) { self.promote_full() } else { Ok(()) }
    }

    /// Promotes full generations if no manager is alive. There may be two: one that waits for its manifest, and the
    /// next.
    pub(crate) fn promote_full(&mut self) -> Result<()> {
        if self.run_maintenance(Duration::ZERO)? {
            self.run_maintenance(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Looks earlier segments up in all manifests.
    pub(crate) fn reconcile(&mut self) -> Result<()> {
        let newest = self.ring.manifests.newest()?;
        if newest == self.queue.reconciled {
            return Ok(());
        }
        let (mut all, mut looked) = (true, ManifestCursor::default());
        self.queue.placed = 0;
        for mut commit in std::mem::take(&mut self.queue.commits) {
            match self.look_up(&mut commit, newest, &mut looked) {
                Ok(CommitOutcome::Delivered(_)) => self.note_delivered(&commit),
                Ok(CommitOutcome::Quarantined(why)) => self.note_quarantined(&commit, &why),
                Ok(_) => self.queue.commits.push(commit),
                Err(error @ Error::Lost { .. }) => {
                    self.totals.waiting -= commit.staged.samples;
                    self.problem(error.to_string());
                }
                Err(error) => {
                    self.problem(error.to_string());
                    self.queue.commits.push(commit);
                    all = false;
                }
            }
        }
        if all {
            self.queue.reconciled = newest;
        }
        Ok(())
    }

    /// Looks one segment up, and makes a step of its commit if no manifest lists it. A listed segment keeps its
    /// staging name for now, because a generation may have thousands of this generator's segments.
    fn look_up(&mut self, commit: &mut Commit, newest: u64, looked: &mut ManifestCursor) -> Result<CommitOutcome> {
        if let Some(n) = commit.linked.filter(|n| *n > newest) {
            return Ok(CommitOutcome::Linked(n));
        }
        if let Lookup::Listed(n) = self.ring.look_up(commit, newest, looked)? {
            self.queue.listed.push_back(commit.staged.id);
            return Ok(CommitOutcome::Delivered(Some(n)));
        }
        self.ring.commit_step(commit, false)
    }

    /// Removes at most `most` staging names of listed segments.
    pub(crate) fn unlink_delivered(&mut self, most: usize) {
        for _ in 0..most.min(self.queue.listed.len()) {
            let Some(id) = self.queue.listed.pop_front() else { return };
            if let Err(error) = self.ring.unlink_if_allowed(&self.ring.layout.sealed(&self.ring.me, id)) {
                self.problem(error.to_string());
                self.queue.listed.push_back(id);
            }
        }
    }

    /// Links the segments that are not linked yet, until a segment finds no room or a step fails.
    ///
    /// # Errors
    /// Permanent errors: a file of this generator that it may not link, [`Error::Lost`].
    fn link_next(&mut self) -> Result<Linking> {
        let mut n = self.queue.placed;
        while n < self.queue.commits.len() {
            self.queue.placed = n; // skips the linked segments, which may be thousands, at the next call
            if self.queue.commits[n].linked.is_some() {
                n += 1;
                continue;
            }
            let waited = self.queue.unplaced_since.get_or_insert_with(Instant::now).elapsed();
            let thorough = waited > self.ring.settings.poll * 2;
            match self.ring.commit_step(&mut self.queue.commits[n], thorough) {
                Ok(CommitOutcome::Linked(_)) => {
                    n += 1;
                    self.queue.unplaced_since = None;
                }
                Ok(CommitOutcome::Delivered(_)) => {
                    let commit = self.queue.commits.remove(n);
                    self.note_delivered(&commit);
                }
                Ok(CommitOutcome::Quarantined(why)) => {
                    let commit = self.queue.commits.remove(n);
                    self.note_quarantined(&commit, &why);
                }
                Ok(CommitOutcome::Wait(generation)) => return Ok(Linking::Full(generation, waited)),
                Ok(CommitOutcome::Refused) => {
                    return Err(Error::Coordination(
                        "the filesystem refuses to link this generator's own segment; check the ring's permissions"
                            .to_owned(),
                    ));
                }
                Err(error @ Error::Lost { .. }) => {
                    self.totals.waiting -= self.queue.commits.remove(n).staged.samples;
                    return Err(error);
                }
                Err(error) => return Ok(Linking::Failed(error)),
            }
        }
        self.queue.placed = n;
        self.queue.unplaced_since = None;
        Ok(Linking::Done)
    }

    fn note_delivered(&mut self, commit: &Commit) {
        self.totals.waiting -= commit.staged.samples;
        self.totals.delivered += commit.staged.samples;
    }

    fn note_quarantined(&mut self, commit: &Commit, why: &str) {
        let samples = commit.staged.samples;
        self.totals.waiting -= samples;
        self.totals.quarantined += samples;
        self.problem(format!("{samples} finished samples were moved to quarantine: {why}"));
    }

    /// Links the segments that have no link yet, as far as that is possible without blocking. A segment that is not
    /// linked stays in staging, and is adopted after this process has ended.
    pub(crate) fn commit_now(&mut self) -> Result<()> {
        match self.link_next()? {
            Linking::Failed(error) if !error.is_retryable() => Err(error),
            _ => Ok(()),
        }
    }

    /// Links all segments that have no link yet. If the generation has no room, blocks until it is promoted or `stop`
    /// returns true.
    fn commit_all(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let done = self.link_all(stop);
        self.backpressure.poller.watch_no_more();
        self.backpressure.clock.end_wait();
        done
    }

    fn link_all(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        loop {
            let waited = match self.link_next()? {
                Linking::Done => return Ok(()),
                Linking::Full(..) if stop() => return Ok(()),
                Linking::Full(generation, waited) => {
                    self.seal_group(stop)?;
                    self.wait_for_promotion(generation, waited, stop)
                }
                Linking::Failed(error) => self.retry_or_fail(error, "committing a segment", stop),
            };
            match waited {
                Err(Error::Interrupted { .. }) => return Ok(()),
                done => done?,
            }
        }
    }

    /// Waits once for a full generation to be promoted. Commits may lose their place in it.
    fn wait_for_promotion(&mut self, generation: u64, waited: Duration, stop: &dyn Fn() -> bool) -> Result<()> {
        // From the rename on, the next generation fills.
        if self.backpressure.poller.also_watch(self.ring.layout.root()) {
            return Ok(());
        }
        self.unlink_delivered(FEW);
        if !self.run_maintenance(waited)? {
            let what = format!("generation {generation} to be promoted");
            let wait = if self.waits_for_readers() { Writing::Readers } else { Writing::Room };
            self.pause_in(wait, &what, stop)?;
        }
        self.reconcile().or_else(|error| self.retry_or_fail(error, "reading the manifests", stop))
    }

    /// Promotes generations that are not full until manifests list all segments of this generator.
    pub(crate) fn make_visible(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let mut idle = Instant::now();
        while !self.queue.commits.is_empty() {
            match self.ring.promote(PromoteWhen::NotEmpty) {
                Ok(Promoted::Done(promotion)) => {
                    self.totals.swaps += u64::from(promotion.ours);
                    idle = Instant::now();
                    if let Err(error) = self.ring.reclaim() {
                        self.retry_or_fail(error, "reclaiming", stop)?;
                    }
                }
                // Waits without a limit for readers that REUSE min protects.
                Ok(Promoted::Blocked { .. }) if self.ring.has_readers()? => {
                    idle = Instant::now();
                    self.pause_in(Writing::Readers, "the generation before the last one to be read", stop)?;
                }
                Ok(not_done) if idle.elapsed() > (self.ring.settings.lease * 2).max(SEAL_PATIENCE) => {
                    let left = self.totals.waiting;
                    let why = match not_done {
                        Promoted::Blocked { why, .. } => format!(" while the ring waits for {why}"),
                        _ => String::new(),
                    };
                    self.problem(format!(
                        "{left} samples cannot be made readable now{why}; they stay in staging for a manager"
                    ));
                    return Ok(());
                }
                Ok(_) => self.pause("the last generation to be promoted", stop)?,
                Err(error) => self.retry_or_fail(error, "promoting the last generation", stop)?,
            }
            self.commit_earlier(stop)?;
            if stop() {
                break;
            }
        }
        Ok(())
    }
}
