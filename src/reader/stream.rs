//! A stream: one generation after the other, this rank's share of each. At the end of a generation the newest one is
//! next; where there is none newer, the same again (that is what a ring is for), or waiting.

use super::split::Share;
use super::{ReadSample, Reader, Waiting};
use crate::error::{Error, Result};
use crate::presence::Presence;
use crate::ring::manifest::Manifest;
use std::sync::Arc;
use std::time::Duration;

/// How to stream.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Whose share.
    pub share: Share,
    /// After this many passes over generations the stream ends; none: never.
    pub epochs: Option<u64>,
    /// Whether a generation is read again while there is no newer one; else the stream waits for it.
    pub repeat: bool,
    /// For how long it waits for a newer generation; none: for ever.
    pub timeout: Option<Duration>,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { share: Share::ALL, epochs: None, repeat: true, timeout: None }
    }
}

/// What a stream gives.
#[derive(Debug)]
pub enum Item {
    /// The next sample.
    Sample(Box<ReadSample>),
    /// A sample that cannot be read: counted, and skipped.
    Damaged(Error),
}

/// See the module.
pub struct Stream {
    reader: Arc<Reader>,
    options: StreamOptions,
    manifest: Option<Arc<Manifest>>,
    /// The next generation must be newer than this one.
    after: Option<u64>,
    step: u64,
    epochs: u64,
    good: bool,
    samples: u64,
    bytes: u64,
    presence: Option<Presence>,
}

impl Stream {
    /// A stream that begins with the newest generation.
    pub fn new(reader: Arc<Reader>, options: StreamOptions) -> Stream {
        Stream {
            reader,
            options,
            manifest: None,
            after: None,
            step: 0,
            epochs: 0,
            good: false,
            samples: 0,
            bytes: 0,
            presence: None,
        }
    }

    /// The reader that it reads by.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Passes that were finished.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// The next item; none at the end. `stop` is asked while it waits; `tell` hears what it waits for.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Interrupted`], or what the filesystem says. A damaged sample is no error here.
    pub fn next(&mut self, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<Option<Item>> {
        if self.presence.is_none() {
            let ring = self.reader.ring();
            self.presence = Some(Presence::begin(ring.index.clone(), &ring.me, "reader", ring.lease));
        }
        let mut away: Option<Waiting> = None;
        loop {
            let Some(manifest) = self.manifest.clone() else {
                if self.options.epochs.is_some_and(|epochs| self.epochs >= epochs) {
                    return Ok(None);
                }
                self.manifest = Some(self.next_generation(stop, tell)?);
                continue;
            };
            let Some(position) = self.options.share.position(self.step, manifest.summary.samples) else {
                self.end_epoch(&manifest);
                continue;
            };
            self.step += 1;
            match self.reader.sample(&manifest, position) {
                Ok(sample) => {
                    self.good = true;
                    self.count(&sample);
                    return Ok(Some(Item::Sample(Box::new(sample))));
                }
                Err(error @ Error::Damaged { .. }) => return Ok(Some(Item::Damaged(error))),
                Err(Error::Reclaimed { generation }) => {
                    tracing::info!(
                        generation,
                        "the generation was reclaimed while it was read: going on with the newest one"
                    );
                    self.end_epoch(&manifest);
                    self.after = Some(generation);
                }
                // A server that is away: the same sample is next when it is back.
                Err(error) if error.is_retryable() => {
                    self.step -= 1;
                    let wait = away.get_or_insert_with(|| Waiting::new(self.options.timeout, self.reader.ring().poll));
                    wait.more(&error.to_string(), stop, tell)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn end_epoch(&mut self, manifest: &Manifest) {
        (self.step, self.manifest) = (0, None);
        self.epochs += 1;
        // A pass that gave nothing (a share of no positions, a generation that cannot be read) is not repeated at
        // once: that would be a loop at full speed.
        self.after = (!self.options.repeat || !self.good).then_some(manifest.summary.generation);
        self.good = false;
    }

    /// The newest generation; one after `after`, where that is given.
    fn next_generation(&self, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(&str)) -> Result<Arc<Manifest>> {
        let ring = self.reader.ring();
        let after = self.after;
        let mut wait: Option<Waiting> = None;
        loop {
            let newest = self.reader.newest_filled()?;
            if let Some(found) = newest.filter(|found| after.is_none_or(|after| found.summary.generation > after)) {
                return Ok(found);
            }
            let wait = wait
                .get_or_insert_with(|| Waiting::new(self.options.timeout, ring.poll).watch(&ring.layout.manifests()));
            let next = ring.manifests.newest()? + 1;
            let fill = ring.fill_of(next).unwrap_or(0);
            let what = format!("generation {next}: {fill} of {} samples are there", ring.birth.swap_cap);
            if let Some(presence) = &self.presence {
                presence.report(|report| report.doing = format!("waiting for {what}"));
            }
            wait.more(&what, stop, tell)?;
        }
    }

    fn count(&mut self, sample: &ReadSample) {
        self.samples += 1;
        self.bytes += sample.parts.iter().map(|part| part.len()).sum::<u64>();
        let (samples, bytes, generation, epochs) = (self.samples, self.bytes, sample.generation, self.epochs);
        if let Some(presence) = &self.presence {
            presence.report(|report| {
                (report.samples, report.bytes) = (samples, bytes);
                (report.generation, report.epochs) = (Some(generation), epochs);
                report.doing.clear();
            });
        }
    }
}
