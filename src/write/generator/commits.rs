//! What was sealed, on its way into a generation, until a manifest lists it.

use super::Core;
use crate::error::{Error, Result};
use crate::manifest::store::Lookup;
use crate::swap::maintenance::ReclaimAfterPromotion;
use crate::swap::promote::{Promoted, When};
use crate::unix_ms;
use crate::write::commit::{Commit, LookedUp, Step};
use std::time::{Duration, Instant};

/// So many names at most are removed in a call that puts one sample in. (Each takes a tenth of a millisecond, and more on a
/// filesystem that is shared.)
const FEW: usize = 16;
/// The same in a round of the generator's thread, for which a call may have to wait.
const SOME: usize = 256;
/// For at least so long the end of a sealed run waits for a generation that nobody can promote.
const SEAL_PATIENCE: Duration = Duration::from_secs(10);

/// A generation that waits for its manifest while we fill the one after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    of: u64,
    since: Instant,
    /// When it is looked after; at first, most likely its promoter is at it.
    next: Instant,
}

impl Core {
    /// Sees to what was sealed before, as far as that needs no time of its own.
    pub(crate) fn commit_earlier(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        while let Err(error) = self.settle_newest() {
            self.bear(error, "looking at the manifests", stop)?;
        }
        self.strike_off(FEW);
        self.commit_all(stop, true)?;
        self.see_to_its_manifest()
    }

    /// While we fill one generation, the one before it waits for its manifest: whoever was to publish that may have died.
    fn see_to_its_manifest(&mut self) -> Result<()> {
        let begun = self.ring.begun();
        if begun <= self.settled {
            return Ok(());
        }
        let now = Instant::now();
        let known = self.ahead.filter(|ahead| ahead.of == begun);
        let Ahead { since, next, .. } =
            known.unwrap_or(Ahead { of: begun, since: now, next: now + self.ring.settings.poll * 2 });
        let overdue = since.elapsed() > self.ring.settings.lease;
        let pause = if overdue { self.ring.settings.lease } else { self.ring.settings.poll * 2 };
        self.ahead = Some(Ahead { of: begun, since, next: if now >= next { now + pause } else { next } });
        if now >= next {
            self.tend_ring(if overdue { Duration::MAX } else { Duration::ZERO })?;
        }
        Ok(())
    }

    /// Does what needs no caller: moves earlier segments on as far as that takes no waiting and, where no manager lives,
    /// does its work once in a lease. The next call reports a permanent error about this generator's own segments.
    pub(crate) fn keep_up(&mut self) {
        let is_due = self.tended.elapsed() > self.ring.settings.lease;
        if self.commits.is_empty() && self.listed.is_empty() && !is_due {
            return;
        }
        match self.move_on() {
            Err(error) if !error.is_retryable() => self.defer(error),
            Err(error) => self.problem(error.to_string()),
            Ok(()) => {}
        }
        let tended = if is_due {
            self.tended = Instant::now();
            self.tend_what_is_full()
        } else {
            self.promote_if_filled()
        };
        tended.unwrap_or_else(|error| self.problem(error.to_string()));
    }

    /// Whether samples wait in an open segment whose size was left to the generator.
    pub(crate) fn holds_group(&self) -> bool {
        self.grouping.is_auto() && self.writing.as_ref().is_some_and(|writing| writing.samples() > 0)
    }

    /// Seals the open segment before a wait of any length: no sample waits unfinished, and what the wait is for may need
    /// these samples.
    fn seal_group(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        if self.holds_group() { self.seal_or_discard(stop) } else { Ok(()) }
    }

    /// Seals the open segment. One that cannot be completed is thrown away with its samples, which were never finished
    /// and which the summary counts; the caller's own sample is not among them.
    pub(crate) fn seal_or_discard(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        match self.seal(stop) {
            Ok(ids) => self.tell(ids),
            Err(error) if self.is_thrown_away(&error) => self.discarded = Some(error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Seals the open segment and links what is finished, as far as that takes no waiting: the generation may lack
    /// just these samples, and whatever this generator waits for may follow from its promotion.
    pub(crate) fn place_finished(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        self.seal_group(stop)?;
        if self.has_unplaced() {
            self.settle_newest().unwrap_or_else(|error| self.problem(error.to_string()));
            self.commit_all(&|| true, false)?;
        }
        Ok(())
    }

    /// Whether a segment that could not be sealed was thrown away, as on a full disk or when another process swept it.
    pub(crate) fn is_thrown_away(&self, error: &Error) -> bool {
        self.writing.is_none() && (error.is_retryable() || error.is_gone())
    }

    /// Seals the segment that is being written if its first sample has waited for SEGMENT_SECONDS, and
    /// commits it. The next call returns the ids, and reports a permanent error. Returns whether it is to be tried again
    /// later.
    pub(crate) fn seal_if_old(&mut self) -> bool {
        if !self.grouping.is_old(unix_ms()) {
            return false;
        }
        match self.seal(&|| true) {
            Ok(ids) => {
                self.tell(ids);
                if let Err(error) = self.commit_all(&|| true, false).and_then(|()| self.promote_if_filled()) {
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

    /// Whether a finished segment has no place in a generation yet.
    pub(crate) fn has_unplaced(&self) -> bool {
        self.placed < self.commits.len()
    }

    fn move_on(&mut self) -> Result<()> {
        self.settle_newest()?;
        self.strike_off(SOME);
        self.commit_all(&|| true, false)
    }

    /// What we filled ourselves is readable at once, where no manager sees to it.
    pub(crate) fn promote_if_filled(&mut self) -> Result<()> {
        if self.ring.seems_full(self.settled) { self.tend_what_is_full() } else { Ok(()) }
    }

    /// Where no manager lives: one generation may wait for its manifest, and the one after it be full.
    pub(crate) fn tend_what_is_full(&mut self) -> Result<()> {
        if self.tend_ring(Duration::ZERO)? {
            self.tend_ring(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Looks at what all manifests say of earlier segments.
    pub(crate) fn settle_newest(&mut self) -> Result<()> {
        let newest = self.ring.manifests.newest()?;
        self.settle(newest)
    }

    /// Looks at what newer manifests, up to the `newest`, say of earlier segments.
    pub(crate) fn settle(&mut self, newest: u64) -> Result<()> {
        if newest == self.settled {
            return Ok(());
        }
        let (mut all, mut looked) = (true, LookedUp::default());
        self.placed = 0;
        for mut commit in std::mem::take(&mut self.commits) {
            match self.look_at(&mut commit, newest, &mut looked) {
                Ok(Step::Delivered(_)) => self.summary.delivered += commit.staged.samples,
                Ok(Step::Quarantined(why)) => self.quarantined(&commit, &why),
                Ok(_) => self.commits.push(commit),
                Err(error @ Error::Lost { .. }) => {
                    self.lost += commit.staged.samples;
                    self.problem(error.to_string());
                }
                Err(error) => {
                    self.problem(error.to_string());
                    self.commits.push(commit);
                    all = false;
                }
            }
        }
        if all {
            self.settled = newest;
        }
        Ok(())
    }

    /// What is listed keeps its staging name for now: a generation may have thousands of ours.
    fn look_at(&mut self, commit: &mut Commit, newest: u64, looked: &mut LookedUp) -> Result<Step> {
        if let Some(n) = commit.linked().filter(|n| *n > newest) {
            return Ok(Step::Linked(n));
        }
        if let Lookup::Listed(n) = self.ring.look_up(commit, newest, looked)? {
            self.listed.push_back(commit.staged.id);
            return Ok(Step::Delivered(Some(n)));
        }
        self.ring.commit_step(commit, false)
    }

    /// Removes the staging names of what is listed, so many at most.
    pub(crate) fn strike_off(&mut self, most: usize) {
        for _ in 0..most.min(self.listed.len()) {
            let Some(id) = self.listed.pop_front() else { return };
            if let Err(error) = self.ring.tidy(&self.ring.layout.sealed(&self.ring.me, id)) {
                self.problem(error.to_string());
                self.listed.push_back(id);
            }
        }
    }

    /// Links everything that is not linked yet. Where there is no room: waits, if that is wished for; but when `stop`
    /// says so, what is sealed stays staged, and somebody else will bring it in.
    pub(crate) fn commit_all(&mut self, stop: &dyn Fn() -> bool, wait: bool) -> Result<()> {
        let done = self.link_all(stop, wait);
        self.pacer.watch_no_more();
        done
    }

    fn link_all(&mut self, stop: &dyn Fn() -> bool, wait: bool) -> Result<()> {
        let mut n = self.placed;
        while n < self.commits.len() {
            self.placed = n; // thousands may be linked, and are not looked at for each sample
            if self.commits[n].linked().is_some() {
                n += 1;
                continue;
            }
            let waited = self.unplaced_since.get_or_insert_with(Instant::now).elapsed();
            let thorough = waited > self.ring.settings.poll * 2;
            match self.ring.commit_step(&mut self.commits[n], thorough) {
                Ok(Step::Linked(_)) => {
                    n += 1;
                    self.unplaced_since = None;
                }
                Ok(Step::Delivered(_)) => self.summary.delivered += self.commits.remove(n).staged.samples,
                Ok(Step::Quarantined(why)) => {
                    let commit = self.commits.remove(n);
                    self.quarantined(&commit, &why);
                }
                Ok(Step::Wait(generation)) => {
                    if !wait || stop() {
                        return Ok(());
                    }
                    self.seal_group(stop)?;
                    match self.wait_for_promotion(generation, waited, stop) {
                        Err(Error::Interrupted { .. }) => return Ok(()),
                        done => done?,
                    }
                    n = self.placed;
                }
                Ok(Step::Refused) => {
                    return Err(Error::Coordination("this generator may not link its own file".to_owned()));
                }
                Err(error @ Error::Lost { .. }) => {
                    self.lost += self.commits.remove(n).staged.samples;
                    return Err(error);
                }
                Err(error) if !wait && error.is_retryable() => return Ok(()),
                Err(error) => {
                    if let Err(error) = self.bear(error, "committing a segment", stop) {
                        return if matches!(error, Error::Interrupted { .. }) { Ok(()) } else { Err(error) };
                    }
                }
            }
        }
        self.placed = n;
        self.unplaced_since = None;
        Ok(())
    }

    /// Waits once for a full generation to be promoted. Commits that had a place may have none afterwards.
    fn wait_for_promotion(&mut self, generation: u64, waited: Duration, stop: &dyn Fn() -> bool) -> Result<()> {
        // From the rename on, the next generation fills.
        if self.pacer.also_watch(self.ring.layout.root()) {
            return Ok(());
        }
        self.strike_off(FEW);
        if !self.tend_ring(waited)? {
            let what = format!("generation {generation} to be promoted");
            self.pause(&what, self.ring.settings.poll, stop)?;
        }
        self.settle_newest().or_else(|error| self.bear(error, "looking at the manifests", stop))
    }

    fn quarantined(&mut self, commit: &Commit, why: &str) {
        self.summary.quarantined += commit.staged.samples;
        self.problem(format!("{} finished samples were put into quarantine: {why}", commit.staged.samples));
    }

    /// Promotes what is there until everything of ours is listed.
    pub(crate) fn make_visible(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let mut idle = Instant::now();
        while !self.commits.is_empty() {
            let mut policy = ReclaimAfterPromotion::default();
            match self.ring.run_maintenance(Some(When::NotEmpty), &mut policy).map(|round| round.promoted) {
                Ok(Some(Promoted::Done(promotion))) => {
                    self.summary.swaps += u64::from(promotion.ours);
                    idle = Instant::now();
                    if let Some(error) = policy.failed {
                        self.bear(error, "reclaiming", stop)?;
                    }
                }
                // Who reads (REUSE min) is waited for, however long it takes.
                Ok(Some(Promoted::Blocked { .. })) if self.ring.has_readers()? => {
                    idle = Instant::now();
                    self.pause("the generation before the last one to be read", self.ring.settings.poll, stop)?;
                }
                Ok(not_done) if idle.elapsed() > (self.ring.settings.lease * 2).max(SEAL_PATIENCE) => {
                    let left: u64 = self.commits.iter().map(|commit| commit.staged.samples).sum();
                    let why = match not_done {
                        Some(Promoted::Blocked { why, .. }) => format!(", for want of {why}"),
                        _ => String::new(),
                    };
                    self.problem(format!(
                        "{left} samples cannot be made visible{why}: they are staged, and stay there"
                    ));
                    return Ok(());
                }
                Ok(_) => self.pause("the last generation to be promoted", self.ring.settings.poll, stop)?,
                Err(error) => self.bear(error, "promoting the last generation", stop)?,
            }
            self.commit_earlier(stop)?;
            if stop() {
                break;
            }
        }
        Ok(())
    }
}
