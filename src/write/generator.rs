//! The generator: writes samples to segments, seals the segments and commits them until a manifest lists them.
//!
//! A sample whose id was returned is finished: it survives the death of this process and is delivered exactly once.
//! Samples in a segment that was not sealed are lost if the process dies.

mod adaptive_compression;
mod backpressure;
mod batch;
mod commit_queue;
mod finite;
mod grouping;
mod handle;
mod manager_watch;
mod open_segment;
mod schema;
mod sealing;
mod unreported;

pub use handle::Generator;
pub use sealing::Sealing;

use crate::commit::Staged;
use crate::config::Config;
use crate::coordination::Report;
use crate::error::{Error, Result};
use crate::failure_log;
use crate::heartbeat::Heartbeat;
use crate::minutely::Minutely;
use crate::ring::Ring;
use crate::role::Role;
use crate::segment::SampleId;
use crate::segment::writer::StagingWriter;
use crate::unix_ms;
use backpressure::Backpressure;
use commit_queue::CommitQueue;
use finite::Finite;
use manager_watch::ManagerWatch;
use open_segment::OpenSegment;
use ringreel_format::{DType, Meta, PartRef, SampleRef, SegmentWriter};
use sealing::BeforeSeal;
use std::sync::Arc;
use unreported::Unreported;

/// One named part of a sample: little-endian elements in row-major order.
#[derive(Clone, Debug)]
pub struct NamedPart<'a> {
    /// Its name, one of SAMPLE.
    pub name: &'a str,
    /// Element type, shape and bytes.
    pub part: PartRef<'a>,
}

impl<'a> NamedPart<'a> {
    /// Creates a part. `data` holds item size × product of `shape` bytes.
    pub fn new(name: &'a str, dtype: DType, shape: &'a [u64], data: &'a [u8]) -> NamedPart<'a> {
        NamedPart { name, part: PartRef::new(dtype, shape, data) }
    }
}

/// Totals of a generator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Samples finished: sealed, and safe if this process dies.
    pub finished: u64,
    /// Of those finished, listed by a manifest, as far as this generator has seen.
    pub delivered: u64,
    /// Of those finished, not listed yet: linked into the generation that fills, or left in staging for the manager.
    pub waiting: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Seconds in calls, waiting for room in the ring or on the disk, for readers, or to try again after an error: the
    /// sum of the two below.
    pub waited_seconds: f64,
    /// Of those, seconds waiting for anything but readers.
    pub waited_room_seconds: f64,
    /// Of those, seconds waiting until readers have read the newest generation (REUSE min).
    pub waited_readers_seconds: f64,
    /// Seconds in the caller, between two calls: the time to make samples.
    pub made_seconds: f64,
    /// Seconds in calls without the waits: the time to write samples.
    pub wrote_seconds: f64,
    /// Promotions made by this generator.
    pub swaps: u64,
    /// Of those finished, found damaged before a manifest listed them, and moved to `quarantine/`.
    pub quarantined: u64,
    /// Samples that were written but never finished, because the disk failed when their segment was sealed.
    pub discarded: u64,
}

/// State of a generator, locked by each call of its handle and by each round of its thread.
struct Core {
    ring: Arc<Ring>,
    heartbeat: Heartbeat,
    /// The last problem that was logged and reported.
    last_problem: Option<String>,
    /// Limits the log lines about progress.
    progress: Minutely,
    manager: ManagerWatch,
    backpressure: Backpressure,
    finite: Finite,
    open: OpenSegment,
    queue: CommitQueue,
    unreported: Unreported,
    before_seal: Option<BeforeSeal>,
    /// The totals so far, without the times and the discarded samples, which are counted elsewhere.
    totals: Summary,
}

impl Core {
    fn on_ring(ring: Arc<Ring>, config: &Config) -> Core {
        let (backpressure, lease) = (Backpressure::new(&ring, config), ring.settings.lease);
        let clock = backpressure.clock.clone();
        let refresh = move |report: &mut Report| report.generating = Some(clock.times());
        let index = ring.coordination.clone();
        let heartbeat = Heartbeat::start_with(index, &ring.me, Role::Generator, lease, refresh, |_| ());
        tracing::info!("generator {} of {} started", ring.me, ring.layout.root().display());
        Core {
            heartbeat,
            last_problem: None,
            progress: Minutely::from_now(),
            backpressure,
            finite: Finite::new(config.check_finite),
            open: OpenSegment::new(&ring, config),
            manager: ManagerWatch::new(),
            queue: CommitQueue::default(),
            unreported: Unreported::default(),
            before_seal: None,
            totals: Summary::default(),
            ring,
        }
    }

    fn summary(&self) -> Summary {
        let times = self.backpressure.clock.times();
        Summary {
            waited_seconds: times.waited_room_seconds + times.waited_readers_seconds,
            waited_room_seconds: times.waited_room_seconds,
            waited_readers_seconds: times.waited_readers_seconds,
            made_seconds: times.made_seconds,
            wrote_seconds: times.wrote_seconds,
            discarded: self.open.discarded,
            ..self.totals.clone()
        }
    }

    fn write(&mut self, parts: &[NamedPart<'_>], meta: &Meta, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        self.unreported.take_deferred()?;
        let parts = self.in_order(parts)?;
        let sample = SampleRef { parts: &parts, meta, unix_ms: unix_ms() };
        self.check_input(&sample)?;
        self.finite.check(&self.ring.descriptor.sample, sample.parts)?;
        self.put(&sample, true, stop)?;
        Ok(self.unreported.take_ids())
    }

    /// Writes one sample. `alone`: if its segment is lost together with other samples, the sample is still written
    /// again.
    fn put(&mut self, sample: &SampleRef<'_>, alone: bool, stop: &dyn Fn() -> bool) -> Result<()> {
        let bytes = SegmentWriter::estimate(sample);
        if !self.may_continue(bytes, sample.unix_ms) {
            self.commit_earlier(stop)?;
            if self.open.takes_no_more() {
                self.seal_or_discard(stop)?;
            }
            self.await_room(bytes, sample.unix_ms, stop)?;
        }
        if let Some(stored) = self.open.choose_compression(sample.parts) {
            self.heartbeat.report(|report| report.stored = stored);
        }
        let before = self.open.written;
        loop {
            match self.open.append_sample(&self.ring, sample) {
                Ok(()) => {}
                Err(error) if !alone && self.open.written < before => return Err(error),
                Err(error) => {
                    if error.is_retryable() {
                        self.place_finished(stop)?;
                    }
                    self.retry_or_fail(error, "writing a sample", stop)?;
                    continue;
                }
            }
            if !self.open.is_complete() {
                return Ok(());
            }
            match self.seal(stop) {
                Ok(()) => {
                    let done = self.commit_now().and_then(|()| self.promote_if_filled());
                    self.unreported.deferred = done.err();
                    return Ok(());
                }
                Err(error) if !alone && self.open.written < before => return Err(error),
                // The segment was discarded, or removed by another process, but the caller's sample is still here:
                // write it again.
                Err(error) if self.is_thrown_away(&error) && !stop() => {
                    self.problem(format!("{error}; writing the sample again"));
                    self.pause("a new segment", stop)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        self.seal(stop)?;
        self.unreported.take_deferred()?;
        self.unreported.deferred = self.commit_earlier(stop).err();
        Ok(self.unreported.take_ids())
    }

    /// Seals the open segment, if it has samples. The current or the next call of the handle returns their ids.
    fn seal(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let Some(writing) = self.open.writer.as_ref().filter(|writing| writing.samples() > 0) else { return Ok(()) };
        let (id, born, samples) = (writing.info().id, writing.info().born, writing.samples());
        // A segment that was named by an earlier call may have been adopted and listed since.
        let is_new = !writing.is_closed();
        if let Some(before_seal) = &mut self.before_seal {
            let (owner, discarded) = (self.ring.me.as_str(), self.open.discarded);
            before_seal(Sealing { owner, id, born, samples, discarded })?;
        }
        let sealed = loop {
            let Some(writing) = &mut self.open.writer else { return Ok(()) };
            match writing.seal() {
                Ok((sealed, _)) => break sealed,
                Err(error) if writing.must_discard() => {
                    // The file is discarded and never synced again, because its contents are unknown after a failed
                    // fsync or close.
                    let (gone, lost) = self.open.throw_away();
                    tracing::error!(
                        %error,
                        samples = lost,
                        "cannot complete a segment; it is discarded, and its samples do not count as finished"
                    );
                    while let Some(Err(left)) = gone.as_ref().map(StagingWriter::discard) {
                        self.retry_or_fail(left, "removing a discarded segment", stop)?;
                    }
                    return Err(error);
                }
                Err(error) => self.retry_or_fail(error, "sealing a segment", stop)?,
            }
        };
        self.open.note_sealed();
        let staged = Staged { owner: self.ring.me.clone(), id, born, samples: sealed.samples, bytes: sealed.len };
        self.queue.push(staged, is_new, self.open.grouping.is_auto);
        self.totals.finished += sealed.samples;
        self.totals.waiting += sealed.samples;
        self.totals.bytes += sealed.len;
        self.heartbeat.report(|report| (report.samples, report.bytes) = (self.totals.finished, self.totals.bytes));
        if self.progress.is_due() {
            self.log_progress("still running");
        }
        self.unreported.ids.extend((0..sealed.samples).map(|ordinal| SampleId { segment: id, ordinal }));
        Ok(())
    }

    fn finish(&mut self, promote: bool, stop: &dyn Fn() -> bool) -> Result<Summary> {
        let ended = self.ring.check_is_there().and_then(|()| self.end(promote, stop));
        self.unlink_delivered(usize::MAX);
        let _ = self.ring.fs.remove_dir(&self.ring.layout.staging_of(&self.ring.me)); // fails if it is not empty
        match ended {
            Ok(()) => {
                self.log_progress("generator ended");
                Ok(self.summary())
            }
            Err(error) => {
                if !matches!(error, Error::Interrupted { .. }) {
                    self.failed(&error.to_string());
                }
                Err(error)
            }
        }
    }

    fn log_progress(&self, when: &str) {
        let Summary { finished, delivered, swaps, .. } = self.summary();
        tracing::info!(
            "{finished} samples finished, {delivered} readable, {swaps} swaps made by this generator; {when}"
        );
    }

    fn end(&mut self, promote: bool, stop: &dyn Fn() -> bool) -> Result<()> {
        self.flush(stop)?;
        self.unreported.take_deferred()?;
        if let Err(error) = self.promote_full().and_then(|()| self.reconcile()) {
            self.problem(error.to_string()); // sealed segments are safe
        }
        if promote {
            match self.make_visible(stop) {
                Ok(()) | Err(Error::Interrupted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn in_order<'a>(&self, given: &[NamedPart<'a>]) -> Result<Vec<PartRef<'a>>> {
        let names = &self.ring.descriptor.sample;
        if given.len() == names.len() && given.iter().zip(names).all(|(part, name)| part.name == name) {
            return Ok(given.iter().map(|part| part.part.clone()).collect());
        }
        let one = |name: &String| {
            let mut found = given.iter().filter(|part| part.name == name);
            match (found.next(), found.next()) {
                (Some(part), None) => Ok(part.part.clone()),
                (Some(_), Some(_)) => Err(Error::Sample(format!("part {name:?} is given twice"))),
                (None, _) => Err(Error::Sample(format!("part {name:?} is missing; SAMPLE is [{}]", names.join(", ")))),
            }
        };
        if let Some(stray) = given.iter().find(|part| !names.iter().any(|name| name == part.name)) {
            let message = format!("part {:?} is not in SAMPLE [{}]", stray.name, names.join(", "));
            return Err(Error::Sample(message));
        }
        names.iter().map(one).collect()
    }

    /// Returns the error for a sample that the writer would refuse, before anything is written.
    fn check_input(&self, sample: &SampleRef<'_>) -> Result<()> {
        if !sample.meta.is_empty() {
            sample.meta.encode().map_err(|error| Error::Sample(format!("meta: {error}")))?;
        }
        for (part, name) in sample.parts.iter().zip(&self.ring.descriptor.sample) {
            let want =
                part.dtype.byte_len(part.shape).map_err(|error| Error::Sample(format!("part {name:?}: {error}")))?;
            if want != part.data.len() as u64 {
                let (have, dtype, shape) = (part.data.len(), &part.dtype, part.shape);
                return Err(Error::Sample(format!(
                    "part {name:?} has {have} bytes; {dtype} of shape {shape:?} has {want}"
                )));
            }
        }
        Ok(())
    }

    /// Keeps an error for the next call. If another one is already kept, logs this one.
    fn defer(&mut self, error: Error) {
        if let Some(error) = self.unreported.defer(error) {
            self.problem(error.to_string());
        }
    }

    /// Logs a problem and reports it in the heartbeat, unless it is the same as the one before.
    fn problem(&mut self, message: String) {
        if self.last_problem.as_ref() != Some(&message) {
            tracing::warn!("{message}");
            self.heartbeat.report(|report| report.last_error = Some(message.clone()));
            self.last_problem = Some(message);
        }
    }

    fn failed(&mut self, message: &str) {
        self.problem(message.to_owned());
        failure_log::record(&*self.ring.coordination, &self.ring.me, Role::Generator, message);
    }
}

/// Seals the open segment with `SEGMENT_SAMPLES: auto`, so that dropping a generator without finishing it loses no
/// sample.
impl Drop for Core {
    fn drop(&mut self) {
        if self.open.grouping.is_auto
            && let Err(error) = self.seal(&|| true)
        {
            tracing::warn!(%error, "lost the last samples of a generator that was dropped without finish()");
        }
    }
}
