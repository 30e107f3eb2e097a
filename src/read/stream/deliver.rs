//! Delivery: prefetches the samples of planned steps, and decides what each step delivers.

use super::options::StreamOptions;
use super::plan::{Plan, PlannedStep};
use super::{Item, Stream};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::read::padding::padding_sample;
use crate::read::retry::{Caller, Retry};
use crate::read::shard::{Equal, Slot};
use crate::read::{ReadSample, Reader};
use crate::sched::Pool;
use crate::times::Reading;
use std::collections::VecDeque;
use std::sync::Arc;

/// Size of a page of memory, or less.
const PAGE: usize = 4096;
/// Most samples that are tried in place of one that cannot be read.
const TRIES: u64 = 64;
/// Most samples to prefetch, however small they are.
const MOST_AHEAD: usize = 4096;

/// What a prefetch thread reads: a position in a generation.
type Wanted = (Arc<Manifest>, u64);

/// The steps that are planned but not delivered yet, and the prefetch threads.
pub(crate) struct Delivery {
    reader: Arc<Reader>,
    options: Arc<StreamOptions>,
    pub(crate) queue: VecDeque<PlannedStep>,
    /// Expected size of the samples of `queue`.
    queued_bytes: u64,
    /// `None` before the first step, and without prefetch.
    pub(crate) pool: Option<Pool<Wanted, Result<ReadSample>>>,
    /// Bytes of the largest sample so far.
    largest: u64,
    /// The last epoch for which a warning said that its generation was reclaimed.
    warned: Option<u64>,
}

impl Delivery {
    pub(crate) fn new(reader: Arc<Reader>, options: Arc<StreamOptions>) -> Delivery {
        Delivery { reader, options, queue: VecDeque::new(), queued_bytes: 0, pool: None, largest: 0, warned: None }
    }

    /// Starts the prefetch threads if the options ask for any.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn start_reading_ahead(&mut self) -> Result<()> {
        if self.options.prefetch_bytes > 0 && self.pool.is_none() {
            let reader = self.reader.clone();
            let read = move |(manifest, position): Wanted| {
                let sample = reader.sample_untold(&manifest, position)?;
                touch(&sample);
                reader.unless_truncated(sample)
            };
            let started = Pool::new(self.options.threads, read);
            let refused = |error| Error::Sample(format!("cannot start a prefetch thread: {error}"));
            self.pool = Some(started.map_err(refused)?);
        }
        Ok(())
    }

    /// Returns whether `most` steps are planned, or one more might exceed the limits of the prefetch. The size of a
    /// compressed sample is unknown until one was read.
    pub(crate) fn is_enough(&self, most: usize) -> bool {
        let unknown = self.largest == 0 && self.queued_bytes > 0;
        let full = unknown || self.queued_bytes + self.largest > self.options.prefetch_bytes;
        !self.queue.is_empty() && (full || self.queue.len() >= most.min(MOST_AHEAD))
    }

    /// Appends a step and starts to prefetch its sample.
    ///
    /// # Errors
    /// The generation of the step is gone and there is no newer one; filesystem errors.
    pub(crate) fn push(&mut self, plan: Arc<Plan>, number: u64, slot: Slot) -> Result<()> {
        let mut prefetched = None;
        if let (Slot::Read(position), Some(pool)) = (slot, &mut self.pool) {
            let (manifest, position) = match &plan.manifest {
                Some(manifest) => (manifest.clone(), position),
                None => self.options.leave_out.instead_of(&self.reader, position)?,
            };
            let stored = manifest.locate(position).map_or(0, |(entry, _)| entry.bytes / entry.samples.max(1));
            prefetched = Some(stored.max(self.largest));
            pool.give((manifest, position));
        }
        self.queue.push_back(PlannedStep { plan, number, slot, prefetched });
        self.queued_bytes += prefetched.unwrap_or(0);
        Ok(())
    }

    /// Removes the first step and returns it with the result of reading its sample; `None` if no step is planned.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if `stop` returns true. The step then stays the first one.
    fn pop(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<(PlannedStep, Result<ReadSample>)>> {
        let Some(step) = self.queue.front() else { return Ok(None) };
        let read = match (step.slot, &mut self.pool) {
            (Slot::Read(_), Some(pool)) if step.prefetched.is_some() => match pool.take(stop).transpose() {
                Some(read) => read.flatten(),
                None => return Err(Error::Interrupted { what: "a sample to be read".to_owned() }),
            },
            _ => self.read(step),
        };
        Ok(self.queue.pop_front().map(|step| {
            self.queued_bytes -= step.prefetched.unwrap_or(0);
            (step, read)
        }))
    }

    /// Puts a step that could not be delivered back to the front.
    fn put_back(&mut self, step: PlannedStep) {
        self.queue.push_front(PlannedStep { prefetched: None, ..step });
    }

    /// Drops all steps, and ends the threads with what they have read.
    pub(crate) fn clear(&mut self) {
        (self.queue, self.queued_bytes, self.pool) = (VecDeque::new(), 0, None);
    }

    /// Reads the sample of a step. For a padding step, reads one that has the shapes of the ring's samples.
    fn read(&self, step: &PlannedStep) -> Result<ReadSample> {
        match (step.slot, &step.plan.manifest) {
            (Slot::Padding, _) => self.some_sample(&step.plan, 0),
            (Slot::Read(position), Some(manifest)) => self.reader.sample(manifest, position),
            (Slot::Read(position), None) => self.instead(position),
        }
    }

    /// Reads a sample of the epoch: that of this worker's step `from` or the first after it that is readable; else
    /// one of the newest generation.
    fn some_sample(&self, plan: &Plan, from: u64) -> Result<ReadSample> {
        let (samples, share) = (plan.epoch.samples, self.options.share);
        let Some(manifest) = plan.manifest.as_ref().filter(|_| samples > 0) else {
            return self.instead(plan.served.offset);
        };
        for n in 0..samples.min(TRIES) {
            let number = (share.rank % samples + (from + n) * share.world) % samples;
            let number = if n < TRIES / 2 { number } else { n - TRIES / 2 };
            match self.reader.sample(manifest, plan.served.number(plan.order.at(number))) {
                Err(Error::Damaged { .. }) => {}
                Err(Error::Reclaimed { .. }) => break,
                other => return other,
            }
        }
        self.instead(plan.served.offset)
    }

    /// Reads a sample of the newest generation: at this position, or at the first readable one after it.
    fn instead(&self, position: u64) -> Result<ReadSample> {
        let mut tried = 0;
        loop {
            let (manifest, here) = self.options.leave_out.instead_of(&self.reader, position.wrapping_add(tried))?;
            tried += 1;
            match self.reader.sample(&manifest, here) {
                Err(Error::Damaged { .. }) if tried < TRIES => {}
                other => return other,
            }
        }
    }
}

impl Stream {
    /// Delivers the first planned step. Returns `None` if the step delivers nothing.
    pub(crate) fn take(&mut self, wait: &mut Option<Retry>, caller: &mut Caller<'_>) -> Result<Option<Item>> {
        let Some((step, mut read)) = self.delivery.pop(caller.stop)? else { return Ok(None) };
        if self.schedule.is_abandoned(&step.plan) {
            return Ok(None);
        }
        loop {
            match self.item(&step, read) {
                // The server does not answer: read the same sample again when it is back.
                Err(error) if error.is_retryable() => {
                    if let Err(error) = self.pause_after(wait, error, caller) {
                        self.delivery.put_back(step);
                        return Err(error);
                    }
                    self.progress.clock.enter(Reading::Read);
                    read = self.delivery.read(&step);
                }
                // The caller may continue, for example after making the file readable.
                Err(error @ Error::Fs { .. }) => {
                    self.delivery.put_back(step);
                    return Err(error);
                }
                done => {
                    self.progress.delivered = Some((step.plan, step.number + 1));
                    return done;
                }
            }
        }
    }

    /// Returns what a step delivers for `read`; `None` if it delivers nothing, like the rest of the epoch.
    ///
    /// # Errors
    /// As [`Reader::sample`], except for the errors of a sample that is skipped or replaced.
    fn item(&mut self, step: &PlannedStep, read: Result<ReadSample>) -> Result<Option<Item>> {
        let (plan, equal) = (&step.plan, self.options.equal);
        let (mut sample, damage) = match read {
            Ok(sample) => (sample, None),
            Err(error @ Error::Damaged { .. }) if equal == Equal::No => return Ok(Some(Item::Damaged(error))),
            Err(error @ Error::Damaged { .. }) => (self.delivery.some_sample(plan, step.number + 1)?, Some(error)),
            Err(Error::Reclaimed { generation }) => {
                if equal == Equal::No {
                    tracing::info!(
                        generation,
                        "generation reclaimed during the epoch; continuing with the newest generation"
                    );
                    self.schedule.abandoned = Some(plan.number);
                    return Ok(None);
                }
                if self.delivery.warned.replace(plan.number) != Some(plan.number) {
                    tracing::warn!(
                        generation,
                        "generation reclaimed during the epoch; substituting samples from the newest generation"
                    );
                }
                let position = if let Slot::Read(position) = step.slot { position } else { plan.served.offset };
                (self.delivery.instead(position)?, None)
            }
            Err(error) => return Err(error),
        };
        self.schedule.policy.good();
        if step.slot == Slot::Padding || damage.is_some() && equal == Equal::Pad {
            sample = padding_sample(&sample, |name| self.options.pad_value_of(name))?;
        } else {
            self.progress.end_wait();
            self.delivery.largest = self.delivery.largest.max(sample.bytes());
        }
        let sample = Box::new(sample);
        Ok(Some(match damage {
            Some(error) => Item::Replaced(sample, error),
            None => Item::Sample(sample),
        }))
    }
}

/// Brings a sample's pages into memory, so that the consumer does not wait for them.
fn touch(sample: &ReadSample) {
    let mut sum = 0u8;
    for part in &sample.parts {
        if let Ok(data) = part.data() {
            sum = data.iter().step_by(PAGE).fold(sum, |sum, byte| sum ^ byte);
        }
    }
    std::hint::black_box(sum);
}
