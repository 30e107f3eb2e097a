//! A stream: one epoch after the other, this worker's share of each. An epoch is a pass over one generation; at its end
//! the newest generation is next, and where there is none newer, the same again (that is what a ring is for), or
//! waiting, as the policy says ([`crate::read::epoch_policy`]).
//!
//! Workers of one *run* follow the same sequence of generations ([`crate::runs`]), in the same order of samples,
//! and, where that is wished for, with the same number of steps. What is planned next is read ahead by threads; the
//! sequence does not depend on how many there are.

mod checkpoint;
mod deliver;
pub(super) mod options;
mod plan;
mod progress;
mod schedule;

use super::retry::Retry;
use super::{ReadSample, Reader, log_truncated_maps};
use crate::error::{Error, Result};
pub use checkpoint::Position;
use deliver::Delivery;
pub use options::StreamOptions;
use plan::Plan;
use progress::{Progress, RunMembership};
use schedule::{Planned, Schedule};
use std::sync::Arc;

/// What a stream gives.
#[derive(Debug)]
pub enum Item {
    /// The next sample.
    Sample(Box<ReadSample>),
    /// A sample that cannot be read: counted, and skipped.
    Damaged(Error),
    /// A sample in the place of one that cannot be read: all workers are to have the same number of steps.
    Replaced(Box<ReadSample>, Error),
}

/// See the module.
pub struct Stream {
    reader: Arc<Reader>,
    options: Arc<StreamOptions>,
    /// What was delivered, and where the run's other workers know this one to be.
    progress: Progress,
    /// Which epoch and which step come next.
    schedule: Schedule,
    /// The steps that are planned and not delivered yet. Dropped last: it joins the threads that read ahead.
    delivery: Delivery,
}

impl Stream {
    /// A stream that begins with the run's first epoch: for a new run, with the newest generation.
    ///
    /// # Errors
    /// A name that cannot be a run's; no log of the run to replay.
    pub fn new(reader: Arc<Reader>, options: StreamOptions) -> Result<Stream> {
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

    /// The reader that it reads by.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// The name of its run.
    pub fn run(&self) -> &str {
        self.progress.run.read_log().name()
    }

    /// Epochs that it has finished.
    pub fn epochs(&self) -> u64 {
        self.progress.finished
    }

    /// The run's number of the epoch that is given from, or comes next.
    pub fn epoch(&self) -> u64 {
        self.progress.current
    }

    /// The next item; none at the end. `stop` is asked while it waits; `tell` hears what it waits for.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Interrupted`], [`Error::Stale`], or what the filesystem says. A damaged sample is no
    /// error here.
    pub fn next(&mut self, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<Option<Item>> {
        log_truncated_maps();
        let mut wait: Option<Retry> = None;
        while let Err(error) = self.begin() {
            if !error.is_retryable() {
                return Err(error);
            }
            self.pause_after(&mut wait, error, stop, tell)?;
        }
        loop {
            let planned = self.plan_ahead();
            let Some(step) = self.delivery.queue.front() else {
                match planned {
                    Ok(Planned::End) => {
                        self.end_epoch();
                        self.progress.report_end();
                        return Ok(None);
                    }
                    Ok(Planned::Wait(what)) => self.pause(&mut wait, &what, stop, tell)?,
                    Ok(_) => {}
                    // The server of the index, or of the files, does not answer.
                    Err(error) if error.is_retryable() => self.pause_after(&mut wait, error, stop, tell)?,
                    Err(error) => return Err(error),
                }
                continue;
            };
            self.progress.come_to(&step.plan);
            let Some(item) = self.take(&mut wait, stop, tell)? else { continue };
            self.top_up();
            return Ok(Some(item));
        }
    }

    /// Joins the run, starts the threads that read ahead, and begins to give signs of life, where that is not done yet.
    fn begin(&mut self) -> Result<()> {
        if let Some(first) = self.progress.join()? {
            self.schedule.next_epoch = first;
        }
        self.delivery.start_reading_ahead()?;
        self.progress.start_heartbeat(&self.schedule.generators);
        Ok(())
    }

    /// Ends the epoch that was delivered from.
    fn end_epoch(&mut self) {
        self.progress.end_epoch();
        if self.delivery.queue.is_empty()
            && let Some((begun, next)) = self.schedule.between_epochs()
        {
            self.progress.skip_to(begun, next);
        }
    }

    fn pause(
        &self,
        wait: &mut Option<Retry>,
        what: &str,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.wait(wait, what).more(what, stop, tell)
    }

    /// As [`Stream::pause`], after an error that may pass.
    fn pause_after(
        &self,
        wait: &mut Option<Retry>,
        error: Error,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.reader.close_some_segments(&error);
        self.wait(wait, &error.to_string()).after(error, stop, tell)
    }

    fn wait<'w>(&self, wait: &'w mut Option<Retry>, what: &str) -> &'w mut Retry {
        self.reader.close_old();
        let ring = self.reader.ring();
        let new = || {
            Retry::new(self.options.timeout, ring.settings.poll, ring.settings.lease).watch(&ring.layout.manifests())
        };
        self.progress.report_waiting(what);
        wait.get_or_insert_with(new)
    }

    /// Takes its place in the run and in the epoch that it begins with, and gives nothing: so that [`Stream::state`] says
    /// which these are. Afterwards it does nothing.
    ///
    /// # Errors
    /// What the index or the filesystem says; it may be tried again.
    pub fn prepare(&mut self) -> Result<()> {
        if self.progress.delivered.is_none() && self.next_plan().is_none() {
            self.begin()?;
            self.plan_ahead()?;
        }
        Ok(())
    }

    /// The epoch of the next sample, as far as that is planned.
    fn next_plan(&self) -> Option<&Arc<Plan>> {
        self.delivery.queue.front().map(|step| &step.plan).or(self.schedule.plan())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.progress.leave();
    }
}
