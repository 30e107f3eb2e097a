//! A stream: this worker's share of one epoch after the other. An epoch is a pass over one generation. At its end the
//! newest generation follows; if there is none newer, the stream reads the same one again or waits, as the policy
//! decides (`epoch_policy`).
//!
//! Workers of one *run* read the same sequence of generations ([`crate::runs`]), in the same order of samples, and,
//! if the options ask for it, with the same number of steps. Threads prefetch the planned steps; their number does
//! not change the sequence.

mod checkpoint;
mod deliver;
mod options;
mod plan;
mod progress;
mod schedule;

use super::retry::{Caller, Retry};
use super::{ReadSample, Reader, log_truncated_maps};
use crate::error::{Error, Result};
use crate::times::{Reading, StreamStats};
pub use checkpoint::Position;
use deliver::Delivery;
pub use options::StreamOptions;
use plan::Plan;
use progress::{Progress, RunMembership};
use schedule::{Planned, Schedule};
use std::sync::Arc;
use std::time::Duration;

/// What a stream yields.
#[derive(Debug)]
pub enum Item {
    /// The next sample.
    Sample(Box<ReadSample>),
    /// A sample that cannot be read. It is counted and skipped.
    Damaged(Error),
    /// A sample in place of one that cannot be read, so that all workers have the same number of steps.
    Replaced(Box<ReadSample>, Error),
}

/// A stream of samples for one worker (see the module's documentation).
pub struct Stream {
    reader: Arc<Reader>,
    options: Arc<StreamOptions>,
    /// What was delivered, and the position of this worker that the run's log has.
    progress: Progress,
    /// Decides which epoch and which step come next.
    schedule: Schedule,
    /// The steps that are planned but not delivered yet. Dropped last: it joins the prefetch threads.
    delivery: Delivery,
}

impl Stream {
    /// Creates a stream that begins with the run's first epoch; in a new run, that reads the newest generation.
    ///
    /// # Errors
    /// An invalid name of a run; no log of the run to replay; `pad_values` names a part that samples do not have.
    pub fn new(reader: Arc<Reader>, options: StreamOptions) -> Result<Stream> {
        options.check_pad_values(&reader.ring().descriptor.sample)?;
        let options = Arc::new(options);
        let run = RunMembership::new(reader.clone(), options.clone())?;
        let first = run.first_epoch()?;
        Ok(Stream {
            progress: Progress::new(run, first),
            schedule: Schedule::new(reader.clone(), options.clone(), first),
            delivery: Delivery::new(reader.clone(), options.clone()),
            reader,
            options,
        })
    }

    /// Returns its reader.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Returns the name of its run.
    pub fn run(&self) -> &str {
        self.progress.run.read_log().name()
    }

    /// Returns the number of epochs that it has finished.
    pub fn epochs(&self) -> u64 {
        self.progress.finished
    }

    /// Returns the number, in the run, of the epoch that is being delivered or comes next.
    pub fn epoch(&self) -> u64 {
        self.progress.current
    }

    /// Returns the times of this stream and of its caller, and what was read. The caller's time begins with the first
    /// call of [`Stream::next`].
    pub fn stats(&self) -> StreamStats {
        self.progress.clock.stats()
    }

    /// Counts `waited`, for which the caller waited for the ring before it opened the stream, as time without a
    /// sample.
    pub fn add_wait(&self, waited: Duration) {
        self.progress.clock.add_wait(waited);
    }

    /// Returns the next item, or `None` at the end. While it waits, calls `stop` regularly and tells `tell` what it
    /// waits for.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Interrupted`], [`Error::Stale`], filesystem errors. A damaged sample is an item,
    /// not an error.
    pub fn next(&mut self, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<Option<Item>> {
        self.progress.clock.enter(Reading::Read);
        let next = self.next_item(&mut Caller { stop, tell });
        match &next {
            Ok(None) => self.progress.clock.stop(),
            Ok(Some(Item::Sample(sample) | Item::Replaced(sample, _))) if !sample.is_padding => {
                self.progress.clock.deliver(Some(self.progress.delivered(sample)));
            }
            _ => self.progress.clock.deliver(None),
        }
        next
    }

    fn next_item(&mut self, caller: &mut Caller<'_>) -> Result<Option<Item>> {
        log_truncated_maps();
        let mut wait: Option<Retry> = None;
        while let Err(error) = self.begin() {
            if !error.is_retryable() {
                return Err(error);
            }
            self.pause_after(&mut wait, error, caller)?;
        }
        loop {
            let planned = self.plan_ahead();
            if matches!(planned, Err(Error::Interrupted { .. })) {
                return planned.map(|_| None);
            }
            let Some(step) = self.delivery.queue.front() else {
                match planned {
                    Ok(Planned::End) => {
                        self.end_epoch();
                        self.progress.report_end();
                        return Ok(None);
                    }
                    Ok(Planned::Wait(what)) => self.wait(&mut wait, &what).more(&what, caller)?,
                    Ok(_) => {}
                    // The server of the index or of the files does not answer.
                    Err(error) if error.is_retryable() => self.pause_after(&mut wait, error, caller)?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            if wait.is_some() {
                self.progress.clock.enter(Reading::Read);
            }
            self.progress.come_to(&step.plan);
            let Some(item) = self.take(&mut wait, caller)? else { continue };
            self.top_up();
            return Ok(Some(item));
        }
    }

    /// Joins the run, and starts the prefetch threads and the heartbeat, unless that is already done.
    fn begin(&mut self) -> Result<()> {
        if let Some(first) = self.progress.join()? {
            self.schedule.next_epoch = first;
        }
        self.delivery.start_reading_ahead()?;
        self.progress.start_heartbeat(&self.schedule.generators);
        Ok(())
    }

    /// Ends the epoch that was being delivered.
    fn end_epoch(&mut self) {
        self.progress.end_epoch();
        if self.delivery.queue.is_empty() && self.schedule.plan().is_none() {
            // Epochs without a step for this worker count, too.
            self.progress.finished = self.progress.finished.max(self.schedule.begun);
            self.progress.current = self.progress.current.max(self.schedule.next_epoch);
        }
    }

    /// Pauses after an error that may be transient.
    fn pause_after(&mut self, wait: &mut Option<Retry>, error: Error, caller: &mut Caller<'_>) -> Result<()> {
        self.reader.close_some_segments(&error);
        self.wait(wait, &error.to_string()).after(error, caller)
    }

    fn wait<'w>(&mut self, wait: &'w mut Option<Retry>, what: &str) -> &'w mut Retry {
        self.reader.close_old();
        let ring = self.reader.ring();
        let new = || {
            Retry::new(self.options.timeout, ring.settings.poll, ring.settings.lease).watch(&ring.layout.manifests())
        };
        self.progress.clock.enter(Reading::Waited);
        self.progress.report_waiting(what);
        wait.get_or_insert_with(new)
    }

    /// Joins the run and plans its first epoch without delivering a sample, so that [`Stream::state`] contains them.
    /// Further calls have no effect.
    ///
    /// # Errors
    /// Errors of the index and of the filesystem; the call may be repeated.
    pub fn prepare(&mut self) -> Result<()> {
        if self.progress.delivered.is_none() && self.next_plan().is_none() {
            self.begin()?;
            self.plan_ahead()?;
        }
        Ok(())
    }

    /// Ends the stream without leaving its run, so that a stream that loads its state later finds the generations that
    /// this one had still to read: if the run has a name, they are kept for RUN_GRACE after another process has found
    /// that the reader is gone, and use disk space until then. Use it instead of a drop in a program that saves the
    /// state, ends, and is started again, such as a job that is preempted.
    ///
    /// The protocol needs no rule for this, because it is what remains of a reader that was killed: its note in the log
    /// of the run stays, and its heartbeat stops. (Its entry in the list of members is removed, as a manager removes
    /// that of a dead process, so that monitoring does not report a process that does not answer.) As with such a
    /// reader, REUSE waits for its worker until a lease is over, and then no longer; the worker counts as alive while
    /// another stream of the same [`Reader`] runs.
    pub fn suspend(mut self) {
        self.progress.stay();
    }

    /// Returns the plan of the epoch of the next sample, if there is one yet.
    fn next_plan(&self) -> Option<&Arc<Plan>> {
        self.delivery.queue.front().map(|step| &step.plan).or(self.schedule.plan())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.progress.leave();
    }
}
