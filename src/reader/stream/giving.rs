//! What is given for a step that was planned: its sample, or what stands in its place.

use super::{Item, Stream};
use crate::error::{Error, Result};
use crate::reader::ReadSample;
use crate::reader::fill::masked;
use crate::reader::plan::{Plan, Step};
use crate::reader::split::{Equal, Slot};
use crate::reader::waiting::Waiting;

/// Bytes of a page of memory, or fewer.
const PAGE: usize = 4096;
/// Samples that are tried in the place of one that cannot be read.
const TRIES: u64 = 64;

impl Stream {
    /// Takes the first planned step. None: it is not to be given.
    pub(super) fn take(
        &mut self,
        wait: &mut Option<Waiting>,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Option<Item>> {
        let Some(step) = self.queue.front() else { return Ok(None) };
        let (plan, slot, number) = (step.plan.clone(), step.slot, step.number);
        let mut read = match (slot, &mut self.ahead) {
            (Slot::Read(_), Some(ahead)) if !step.inline => match ahead.take(stop).transpose() {
                Some(read) => read.flatten(),
                None => return Err(Error::Interrupted { what: "a sample to be read".to_owned() }),
            },
            _ => self.read(&plan, slot),
        };
        self.queue.pop();
        if self.abandoned == Some(plan.number) {
            return Ok(None);
        }
        loop {
            match self.item(&plan, number, slot, read) {
                // A server that is away: the same sample is next when it is back.
                Err(error) if error.is_retryable() => {
                    if let Err(error) = self.pause_after(wait, error, stop, tell) {
                        self.queue.push_again(Step { plan, number, slot, bytes: 0, inline: true });
                        return Err(error);
                    }
                    read = self.read(&plan, slot);
                }
                // The caller may go on, for example after making the file readable.
                Err(error @ Error::Fs { .. }) => {
                    self.queue.push_again(Step { plan, number, slot, bytes: 0, inline: true });
                    return Err(error);
                }
                done => {
                    self.given = Some((plan, number + 1));
                    return done;
                }
            }
        }
    }

    /// What is given for what was read in a step. None: nothing is, now or later in this epoch.
    pub(super) fn item(
        &mut self,
        plan: &Plan,
        number: u64,
        slot: Slot,
        read: Result<ReadSample>,
    ) -> Result<Option<Item>> {
        let equal = self.options.equal;
        let (mut sample, damage) = match read {
            Ok(sample) => (sample, None),
            Err(error @ Error::Damaged { .. }) if equal == Equal::No => return Ok(Some(Item::Damaged(error))),
            Err(error @ Error::Damaged { .. }) => (self.some_sample(plan, number + 1)?, Some(error)),
            Err(Error::Reclaimed { generation }) => {
                let told = self.gone.replace(plan.number) == Some(plan.number);
                if equal == Equal::No {
                    tracing::info!(
                        generation,
                        "it was reclaimed while it was read: going on with the newest generation"
                    );
                    self.abandoned = Some(plan.number);
                    return Ok(None);
                }
                if !told {
                    tracing::warn!(
                        generation,
                        "it was reclaimed while it was read: its steps are made with samples of the newest generation"
                    );
                }
                let position = if let Slot::Read(position) = slot { position } else { plan.first };
                (self.instead(position)?, None)
            }
            Err(error) => return Err(error),
        };
        self.policy.good();
        if slot == Slot::Fill || damage.is_some() && equal == Equal::Mask {
            sample = masked(&sample, self.options.fill)?;
        } else {
            self.count(&sample);
        }
        let sample = Box::new(sample);
        Ok(Some(match damage {
            Some(error) => Item::Replaced(sample, error),
            None => Item::Sample(sample),
        }))
    }

    /// The sample of a step; where it has none, one that lends it its shapes.
    pub(super) fn read(&self, plan: &Plan, slot: Slot) -> Result<ReadSample> {
        match (slot, &plan.manifest) {
            (Slot::Fill, _) => self.some_sample(plan, 0),
            (Slot::Read(position), Some(manifest)) => self.reader.sample(manifest, position),
            (Slot::Read(position), None) => self.instead(position),
        }
    }

    /// A sample of the epoch that can be read: that of our step `from`, or one after it; else one of the newest
    /// generation.
    pub(super) fn some_sample(&self, plan: &Plan, from: u64) -> Result<ReadSample> {
        let (samples, share) = (plan.epoch.samples, self.options.share);
        let Some(manifest) = plan.manifest.as_ref().filter(|_| samples > 0) else { return self.instead(plan.first) };
        for n in 0..samples.min(TRIES) {
            let number = (share.rank % samples + (from + n) * share.world) % samples;
            let number = if n < TRIES / 2 { number } else { n - TRIES / 2 };
            match self.reader.sample(manifest, plan.first + plan.order.at(number)) {
                Err(Error::Damaged { .. }) => {}
                Err(Error::Reclaimed { .. }) => break,
                other => return other,
            }
        }
        self.instead(plan.first)
    }

    /// A sample of the newest generation: at this position, or the first after it that can be read.
    pub(super) fn instead(&self, position: u64) -> Result<ReadSample> {
        let mut tried = 0;
        loop {
            let (manifest, here) = self.reader.instead_of(position.wrapping_add(tried))?;
            tried += 1;
            match self.reader.sample(&manifest, here) {
                Err(Error::Damaged { .. }) if tried < TRIES => {}
                other => return other,
            }
        }
    }

    pub(super) fn count(&mut self, sample: &ReadSample) {
        let bytes = sample.parts.iter().map(|part| part.len()).sum::<u64>();
        self.samples += 1;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
        let (samples, bytes, generation, epochs) = (self.samples, self.bytes, sample.generation, self.finished);
        if let Some(presence) = &self.presence {
            presence.report(|report| {
                (report.samples, report.bytes) = (samples, bytes);
                (report.generation, report.epochs) = (Some(generation), epochs);
                report.doing.clear();
            });
        }
    }
}

/// Brings a sample's pages into memory, so that whoever uses it finds them there.
pub(super) fn touch(sample: &ReadSample) {
    let mut sum = 0u8;
    for part in &sample.parts {
        if let Ok(data) = part.data() {
            sum = data.iter().step_by(PAGE).fold(sum, |sum, byte| sum ^ byte);
        }
    }
    std::hint::black_box(sum);
}
