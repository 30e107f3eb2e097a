//! The generator's side: samples in, sealed segments out, committed until a manifest lists them.
//!
//! Promise: a sample whose id was returned is finished. It survives the death of this process, and is delivered exactly
//! once. What was not yet sealed when the process died is gone.

mod batch;
mod commits;
mod compress;
mod finite;
mod grouping;
mod handle;
mod schema;
mod waiting;

pub use handle::Generator;

use crate::config::{Compress, Config};
use crate::error::{Error, Result};
use crate::failure_log;
use crate::fs::poll::Pacer;
use crate::heartbeat::Heartbeat;
use crate::minutely::Minutely;
use crate::random::random_bytes;
use crate::ring::Ring;
use crate::role::Role;
use crate::segment::SampleId;
use crate::segment::writer::{StagingOptions, StagingWriter};
use crate::unix_ms;
use crate::write::commit::{Commit, Staged};
use compress::Auto;
use finite::Finite;
use grouping::Grouping;
use ringreel_format::{
    DType, Meta, PartRef, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter, Value, WriteOptions,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use waiting::Leave;

/// One named part of a sample: little-endian elements in row-major order.
#[derive(Clone, Debug)]
pub struct NamedPart<'a> {
    /// Its name, one of SAMPLE.
    pub name: &'a str,
    /// Type and shape and bytes.
    pub part: PartRef<'a>,
}

impl<'a> NamedPart<'a> {
    /// A part of these. `data` holds item size × product of `shape` bytes.
    pub fn new(name: &'a str, dtype: DType, shape: &'a [u64], data: &'a [u8]) -> NamedPart<'a> {
        NamedPart { name, part: PartRef::new(dtype, shape, data) }
    }
}

/// What a generator did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Samples finished: sealed, and safe.
    pub finished: u64,
    /// Of those, listed by a manifest, as far as was seen.
    pub delivered: u64,
    /// Of those, not listed yet: linked into the generation that fills, or left in staging for the manager.
    pub waiting: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Seconds spent waiting for room in the ring or on the disk.
    pub waited_seconds: f64,
    /// Promotions done by this generator.
    pub swaps: u64,
    /// Of those finished, found damaged before any manifest listed them: they lie in quarantine.
    pub quarantined: u64,
    /// Samples that were written and never finished, because the disk failed when their file was to be
    /// completed.
    pub discarded: u64,
}

/// What a generator knows and does, for one call at a time of its handle or its thread.
struct Core {
    ring: Arc<Ring>,
    heartbeat: Heartbeat,
    /// Who holds the manager's lease, as far as was seen, and when that is asked again.
    manager: Option<String>,
    next_look: Instant,
    pacer: Pacer,
    options: StagingOptions,
    auto: Auto,
    finite: Finite,
    grouping: Grouping,
    strict_schema: bool,
    budget: (Option<u64>, Option<u64>),
    /// What may be written before the ring and the disk are looked at again.
    leave: Leave,
    writing: Option<StagingWriter>,
    commits: Vec<Commit>,
    /// What a manifest lists, and still has its staging name.
    listed: VecDeque<SegmentId>,
    settled: u64,
    number: u64,
    summary: Summary,
    /// Samples of sealed segments that were removed by hand before a manifest listed them.
    lost: u64,
    last_problem: Option<String>,
    /// An error that came after samples were finished: their ids were returned first.
    deferred: Option<Error>,
    /// Why unfinished samples were thrown away in this call, before the caller's own sample was written.
    discarded: Option<Error>,
    /// Ids of finished samples that no call has returned, since it ended with an error.
    untold: Vec<SampleId>,
    /// The last one that was seen to wait for its manifest.
    ahead: Option<commits::Ahead>,
    /// So many of `commits`, from the first one on, have a place.
    placed: usize,
    /// When the first segment without a place began to wait, in this call or an earlier one.
    unplaced_since: Option<Instant>,
    /// When this generator last did a manager's work unasked.
    tended: Instant,
    /// Limits the log lines about progress.
    lines: Minutely,
}

impl Core {
    fn on_ring(ring: Arc<Ring>, config: &Config) -> Core {
        let heartbeat = Heartbeat::start(ring.coordination.clone(), &ring.me, Role::Generator, ring.settings.lease);
        tracing::info!("generator {} of {} started", ring.me, ring.layout.root().display());
        let pacer = Pacer::new(ring.settings.poll).watch(&ring.layout.manifests());
        let wanted = config.compression_of(&ring.birth.sample);
        let compress = wanted.iter().map(|wanted| wanted.level()).collect();
        let auto = Auto::new(&ring.birth.sample, |n| wanted[n] == Compress::Auto);
        let write = WriteOptions { compress, ..WriteOptions::default() };
        let options = StagingOptions {
            write,
            buffer: config.write_buffer,
            sync: ring.syncs_files(),
            sync_dir: ring.syncs_dirs(),
            settled: Arc::default(),
            dir_syncs: ring.dir_syncs(),
            memory: Arc::default(),
        };
        Core {
            manager: None,
            next_look: Instant::now(),
            grouping: Grouping::new(config, ring.birth.swap_cap),
            strict_schema: config.strict_schema,
            budget: (config.max_bytes, config.max_files),
            leave: Leave::default(),
            writing: None,
            commits: Vec::new(),
            listed: VecDeque::new(),
            settled: 0,
            number: 0,
            summary: Summary::default(),
            lost: 0,
            last_problem: None,
            deferred: None,
            discarded: None,
            untold: Vec::new(),
            ahead: None,
            placed: 0,
            unplaced_since: None,
            tended: Instant::now(),
            lines: Minutely::from_now(),
            heartbeat,
            pacer,
            options,
            auto,
            finite: Finite::new(config.check_finite),
            ring,
        }
    }

    fn summary(&self) -> Summary {
        let Summary { finished, delivered, quarantined, .. } = self.summary;
        Summary { waiting: finished - delivered - quarantined - self.lost, ..self.summary.clone() }
    }

    fn write(&mut self, parts: &[NamedPart<'_>], meta: &Meta, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        self.deferred.take().map_or(Ok(()), Err)?;
        let parts = self.in_order(parts)?;
        let sample = SampleRef { parts: &parts, meta, unix_ms: unix_ms() };
        self.check_input(&sample)?;
        self.finite.check(&self.ring.birth.sample, sample.parts)?;
        self.put(&sample, true, stop)?;
        Ok(std::mem::take(&mut self.untold))
    }

    fn written(&self) -> u64 {
        self.number
    }

    fn tell(&mut self, ids: Vec<SampleId>) {
        match self.untold.is_empty() {
            true => self.untold = ids, // they may be many: not copied
            false => self.untold.extend(ids),
        }
    }

    /// `alone`: where its segment is lost with others in it, it is written again all the same.
    fn put(&mut self, sample: &SampleRef<'_>, alone: bool, stop: &dyn Fn() -> bool) -> Result<()> {
        let bytes = SegmentWriter::estimate(sample);
        if !self.may_go_on(bytes, sample.unix_ms) {
            self.commit_earlier(stop)?;
            // One that could not get its name, or not be closed, takes no more samples.
            if self.writing.as_ref().is_some_and(|it| it.is_closed() || self.grouping.is_complete()) {
                self.seal_or_discard(stop)?;
            }
            self.await_room(bytes, stop)?;
            self.leave.since = sample.unix_ms;
        }
        self.choose_compression(sample.parts);
        let before = self.number;
        loop {
            match self.append(sample) {
                Ok(()) => {}
                Err(error) if !alone && self.number < before => return Err(error),
                Err(error) => {
                    if error.is_retryable() {
                        self.place_finished(stop)?;
                    }
                    self.bear(error, "writing a sample", stop)?;
                    continue;
                }
            }
            if self.writing.is_none() || !self.grouping.is_complete() {
                return Ok(());
            }
            match self.seal(stop) {
                Ok(more) => {
                    self.tell(more);
                    self.deferred = self.commit_all(stop, false).and_then(|()| self.promote_if_filled()).err();
                    return Ok(());
                }
                Err(error) if !alone && self.number < before => return Err(error),
                // The file was thrown away, or swept away by others, and this sample is still in hand: once more, in a new one.
                Err(error) if self.is_thrown_away(&error) && !stop() => {
                    self.problem(format!("{error}; writing the sample again"));
                    self.pause("a segment to be written again", self.ring.settings.poll, stop)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        let ids = self.seal(stop)?;
        self.tell(ids);
        self.deferred.take().map_or(Ok(()), Err)?;
        self.deferred = self.commit_earlier(stop).err();
        Ok(std::mem::take(&mut self.untold))
    }

    /// Seals the segment that is being written. Returns the ids that no call has returned.
    fn seal_now(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        let ids = self.seal(stop)?;
        self.tell(ids);
        Ok(std::mem::take(&mut self.untold))
    }

    fn seal(&mut self, stop: &dyn Fn() -> bool) -> Result<Vec<SampleId>> {
        let Some(writing) = self.writing.as_mut().filter(|writing| writing.samples() > 0) else {
            return Ok(Vec::new());
        };
        let info = (writing.info().id, writing.info().born);
        // A name that an earlier call gave it may have been adopted and listed since.
        let is_new = !writing.is_closed();
        let sealed = loop {
            let Some(writing) = self.writing.as_mut() else { return Ok(Vec::new()) };
            match writing.seal() {
                Ok((sealed, _)) => break sealed,
                Err(error) if writing.must_discard() => {
                    // A failed fsync or close: what the file holds is unknown. Never trusted, never synced again.
                    let (gone, lost) = self.throw_away();
                    tracing::error!(%error, samples = lost, "a segment could not be finished; its samples do not count as finished");
                    while let Some(Err(left)) = gone.as_ref().map(StagingWriter::discard) {
                        self.bear(left, "removing a segment that could not be finished", stop)?;
                    }
                    return Err(error);
                }
                Err(error) => self.bear(error, "sealing a segment", stop)?,
            }
        };
        self.writing = None;
        self.grouping.reset();
        let (id, born) = info;
        let staged = Staged { owner: self.ring.me.clone(), id, born, samples: sealed.samples, bytes: sealed.len };
        let commit = if is_new { Commit::sealed_after(staged, self.settled) } else { Commit::new(staged) };
        self.commits.push(commit.cut(self.grouping.is_auto()));
        self.summary.finished += sealed.samples;
        self.summary.bytes += sealed.len;
        let (finished, bytes) = (self.summary.finished, self.summary.bytes);
        self.heartbeat.report(|report| (report.samples, report.bytes) = (finished, bytes));
        if self.lines.is_due() {
            self.log_progress("so far");
        }
        Ok((0..sealed.samples).map(|ordinal| SampleId { segment: id, ordinal }).collect())
    }

    fn finish(&mut self, seal: bool, stop: &dyn Fn() -> bool) -> Result<Summary> {
        let ended = match self.ring.check_is_there() {
            Ok(()) => self.end(seal, stop),
            gone => gone,
        };
        self.strike_off(usize::MAX);
        let _ = self.ring.fs.remove_dir(&self.ring.layout.staging_of(&self.ring.me)); // stays where something is in it
        match ended {
            Ok(()) => {
                self.log_progress("and the generator has ended");
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
            "{finished} samples finished, {delivered} readable, {swaps} swaps made by this generator, {when}"
        );
    }

    fn end(&mut self, seal: bool, stop: &dyn Fn() -> bool) -> Result<()> {
        self.flush(stop)?;
        self.deferred.take().map_or(Ok(()), Err)?;
        if let Err(error) = self.tend_what_is_full().and_then(|()| self.settle_newest()) {
            self.problem(error.to_string()); // what is sealed is safe
        }
        if seal {
            match self.make_visible(stop) {
                Ok(()) | Err(Error::Interrupted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn in_order<'a>(&self, given: &[NamedPart<'a>]) -> Result<Vec<PartRef<'a>>> {
        let names = &self.ring.birth.sample;
        if given.len() == names.len() && given.iter().zip(names).all(|(part, name)| part.name == name) {
            return Ok(given.iter().map(|part| part.part.clone()).collect());
        }
        let one = |name: &String| {
            let mut found = given.iter().filter(|part| part.name == name);
            match (found.next(), found.next()) {
                (Some(part), None) => Ok(part.part.clone()),
                (Some(_), Some(_)) => Err(Error::Sample(format!("part {name:?} was given twice"))),
                (None, _) => Err(Error::Sample(format!("part {name:?} is missing; SAMPLE is [{}]", names.join(", ")))),
            }
        };
        if let Some(stray) = given.iter().find(|part| !names.iter().any(|name| name == part.name)) {
            let message = format!("part {:?} is not in SAMPLE [{}]", stray.name, names.join(", "));
            return Err(Error::Sample(message));
        }
        names.iter().map(one).collect()
    }

    /// What would make the writer refuse the sample, found before anything is touched.
    fn check_input(&self, sample: &SampleRef<'_>) -> Result<()> {
        if !sample.meta.is_empty() {
            sample.meta.encode().map_err(|error| Error::Sample(format!("meta: {error}")))?;
        }
        for (part, name) in sample.parts.iter().zip(&self.ring.birth.sample) {
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

    fn append(&mut self, sample: &SampleRef<'_>) -> Result<()> {
        if self.writing.is_none() {
            self.writing = Some(self.begin_segment(sample)?);
        }
        let Some(writing) = self.writing.as_mut() else { return Ok(()) };
        if let Err(error) = writing.sample(sample) {
            if writing.must_discard() {
                let (gone, lost) = self.throw_away();
                tracing::error!(%error, samples = lost, "a segment was thrown away; its samples do not count as finished");
                let _ = gone.map(|writing| writing.discard()); // litter at worst: it has no name yet
            }
            return Err(error);
        }
        self.number += 1;
        let (samples, bytes) = (writing.samples(), writing.bytes());
        let share = if self.grouping.is_auto() { self.ring.share_of_room() } else { u64::MAX };
        self.grouping.appended(samples, bytes, share, sample.unix_ms);
        Ok(())
    }

    /// Gives up the open segment and counts its samples, which were never finished. Returns both.
    fn throw_away(&mut self) -> (Option<StagingWriter>, u64) {
        let gone = self.writing.take();
        let lost = gone.as_ref().map_or(0, StagingWriter::samples);
        self.number -= lost;
        self.summary.discarded += lost;
        self.grouping.reset();
        (gone, lost)
    }

    fn begin_segment(&self, sample: &SampleRef<'_>) -> Result<StagingWriter> {
        let names = self.ring.birth.sample.iter().map(String::as_str);
        let parts = names.zip(sample.parts).map(|(name, part)| (name, part.dtype.clone(), part.shape.to_vec()));
        let schema = Schema::new(parts).map_err(|error| Error::Sample(error.to_string()))?;
        let mut provenance = Meta::new();
        provenance.set("generator", self.ring.me.as_str());
        provenance.set("host", rustix::system::uname().nodename().to_string_lossy().as_ref());
        provenance.set("pid", Value::Int(i128::from(std::process::id())));
        let id = SegmentId(random_bytes());
        let born = self.ring.manifests.newest()? + 1;
        if self.number == 0 && self.grouping.is_auto() {
            self.ring.look_for_room()?;
        }
        if self.number == 0 {
            schema::compare(&self.ring, &schema, born - 1, self.strict_schema)?;
        }
        let info = SegmentInfo { id, born, created_unix_ms: unix_ms(), first_number: self.number, schema, provenance };
        StagingWriter::begin(self.ring.fs.clone(), &self.ring.layout, &self.ring.me, info, &self.options)
    }

    /// Keeps an error for the next call; logs it where one is kept already.
    fn defer(&mut self, error: Error) {
        match self.deferred {
            None => self.deferred = Some(error),
            Some(_) => self.problem(error.to_string()),
        }
    }

    fn failed(&mut self, message: &str) {
        self.problem(message.to_owned());
        failure_log::record(&*self.ring.coordination, &self.ring.me, Role::Generator, message);
    }
}

/// A generator that its caller lets go without finishing it loses no sample.
impl Drop for Core {
    fn drop(&mut self) {
        if self.grouping.is_auto()
            && let Err(error) = self.seal(&|| true)
        {
            tracing::warn!(%error, "the last samples of a generator that was not finished are lost");
        }
    }
}
