//! The reader's side: samples by position in a generation, as its manifest lists them.
//!
//! | file | |
//! |---|---|
//! | here | [`Reader`]: one sample, by generation and position |
//! | [`batch`] | many at once, stacked |
//! | `verified` | the samples whose checksums were compared already |
//! | [`shard`] | the positions of each worker |
//! | [`stream`] | one epoch after the other, for one worker |
//! | [`epoch_policy`] | which generation an epoch is read from |
//! | `plan` | the epoch, and the steps that come next |
//! | [`shuffle`] | in which order its samples are read |
//! | [`checkpoint`] | where a stream is, and how another one goes on from there |
//! | [`producer_status`] | which generators live, and why none does |
//! | `retry` | pauses before another try |
//! | [`padding`] | padding samples, which equalise the number of steps |
//!
//! A sample that is listed and cannot be read is an error that says why; the reader goes on.

pub mod batch;
pub mod checkpoint;
pub mod epoch_policy;
mod missing;
pub mod padding;
pub mod producer_status;
mod retry;
pub mod shard;
pub mod shuffle;
pub mod stream;
mod verified;

use crate::config::{Config, ReadMode, Verify};
use crate::coordination::{Backend, IfUnreachable};
use crate::error::{Error, Result};
use crate::fs::sigbus::{is_truncated, newly_torn};
use crate::fs::{Fs, Posix};
use crate::manifest::{Manifest, SegmentEntry};
use crate::memory;
use crate::ring::Ring;
use crate::ring::validation_split::Positions;
use crate::segment::SampleId;
use crate::segment::reader::{Access, SegmentReader, is_of_torn_map, torn};
use bytes::Bytes;
use producer_status::ProducerStatus;
use retry::{Described, Retry};
use ringreel_format::{Meta, Part, ReadOptions, Sample, SegmentInfo, Value};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use verified::{Ordinals, Verified};

/// Segments that are held open.
pub const OPEN_SEGMENTS: usize = 128;

/// One part of a sample.
#[derive(Clone, Debug)]
pub struct ReadPart {
    /// Its name.
    pub name: String,
    /// Its dtype, shape and bytes. The bytes keep alive the map that they lie in.
    pub part: Part,
}

impl ReadPart {
    /// The elements: little endian, row-major.
    ///
    /// # Errors
    /// An element type or a codec that only a later version knows.
    pub fn data(&self) -> Result<&Bytes> {
        self.part.data().map_err(|error| Error::Sample(error.to_string()))
    }
}

impl std::ops::Deref for ReadPart {
    type Target = Part;

    fn deref(&self) -> &Part {
        &self.part
    }
}

/// One sample as a reader gets it.
#[derive(Clone, Debug)]
pub struct ReadSample {
    /// The generation it was read from.
    pub generation: u64,
    /// Its position there.
    pub position: u64,
    /// Its id.
    pub id: SampleId,
    /// The segment that it stands in.
    pub file: Arc<Path>,
    /// It is none: it only makes a step up. Its parts hold a fill value, the rest is of the sample whose shapes it has.
    pub is_padding: bool,
    /// Its parts, in the order of SAMPLE.
    pub parts: Vec<ReadPart>,
    /// The user's meta over ours: `host`, `pid`, `generator`, `number` (running number at its generator), `time`
    /// (seconds since 1970, by its generator's clock).
    pub meta: Meta,
}

impl ReadSample {
    /// Whether the parts show what the file held, as far as somebody has looked at them: to be asked after they were used,
    /// where a file may be truncated while it is mapped.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the file was truncated, and a part shows zeros in place of what was there.
    pub fn check_whole(&self) -> Result<()> {
        if !self.parts.iter().any(|part| part.part.data().is_ok_and(|data| is_truncated(data))) {
            return Ok(());
        }
        let (generation, position, path) = (self.generation, self.position, self.file.to_path_buf());
        let message = torn(&path).to_string();
        Err(Error::Damaged { generation, position, sample: self.id.to_string(), path, message })
    }
}

/// Logs which files were truncated since this was called last, in the hands of whoever has samples of them. (Readers and
/// streams do so with each sample; it is for whoever maps by himself.)
pub fn log_truncated_maps() {
    for path in newly_torn() {
        let path = path.display();
        tracing::error!("{path}: the segment was truncated while it was mapped; what was read of it since shows zeros");
    }
}

/// Reads samples of one ring. May be shared by threads; not to be used after a fork: open it in the child.
pub struct Reader {
    ring: Ring,
    access: Access,
    verify: Verify,
    max_part: u64,
    open: Mutex<VecDeque<Arc<OpenSegment>>>,
    /// Segments that may be held open.
    most_open: AtomicUsize,
    /// The oldest generation that was kept when it was looked last.
    oldest: AtomicU64,
    compared: Verified,
    damaged: AtomicU64,
    /// Generations within KEEP whose directories or manifests were missing.
    missing: Mutex<BTreeSet<u64>>,
}

/// A segment that is held open.
struct OpenSegment {
    generation: u64,
    reader: SegmentReader,
    compared: Arc<Ordinals>,
}

impl Reader {
    /// Opens the ring that `config` describes, which must be there.
    ///
    /// # Errors
    /// [`Error::RingNotFound`], [`Error::RingMismatch`], or what the filesystem says.
    pub fn open(config: &Config) -> Result<Reader> {
        Reader::open_on(Arc::new(Posix), config)
    }

    /// The same on another filesystem.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_on(fs: Arc<dyn Fs>, config: &Config) -> Result<Reader> {
        let ring = Ring::find(fs, config)?;
        let access = match config.read {
            ReadMode::Mmap => Access::Shared,
            ReadMode::Auto if ring.settings.kind.local => Access::Shared,
            ReadMode::Auto | ReadMode::Pread => Access::Copy,
        };
        Ok(Reader {
            ring,
            access,
            verify: config.verify,
            max_part: config.max_part.min(memory::bytes()),
            open: Mutex::default(),
            most_open: AtomicUsize::new(OPEN_SEGMENTS),
            oldest: AtomicU64::new(0),
            compared: Verified::default(),
            damaged: AtomicU64::new(0),
            missing: Mutex::default(),
        })
    }

    /// Where samples would lie in a map of their segment, for reading, gives each a map of its own, copy on write: for
    /// callers who write into what they get. To make such a map costs more than to read it.
    pub fn with_private_maps(mut self) -> Reader {
        if self.access == Access::Shared {
            self.access = Access::Private;
        }
        self
    }

    /// Whether samples lie in the map of their segment, for reading, which all of them share.
    pub fn lends_maps(&self) -> bool {
        self.access == Access::Shared
    }

    /// Waits for a ring and its first sample (that is not held out). `tell` is called once with what is waited for, and
    /// then about every 20 s.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Interrupted`], or what is wrong with the ring.
    pub fn wait_for(
        config: &Config,
        timeout: Option<Duration>,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Reader> {
        let poll = config.poll.unwrap_or(Duration::from_millis(200));
        let mut wait = Retry::new(timeout, poll, config.lease);
        let reader = Reader::wait_for_ring(config, &mut wait, stop, tell)?;
        let mut wait = wait.watch(&reader.ring.layout.manifests());
        let generators = ProducerStatus::new(reader.ring.settings.lease);
        let mut described = Described::default();
        loop {
            match reader.newest_filled() {
                Ok(Some(_)) => return Ok(reader),
                Ok(None) | Err(Error::RingNotFound { .. }) => {} // it may be being born
                Err(error) => {
                    wait.unless_wrong(error, stop, tell)?;
                    continue;
                }
            }
            wait.more(&described.text(reader.ring.settings.poll, || reader.describe_first(&generators)), stop, tell)?;
        }
    }

    /// What a reader of a ring without a sample for training waits for.
    fn describe_first(&self, generators: &ProducerStatus) -> String {
        let (fill, cap) = (self.count_next_samples(), self.ring.descriptor.swap_cap);
        let first = match self.ring.descriptor.validation {
            0 => "the first generation".to_owned(),
            n => format!("the first generation with samples beyond the {n} that are held out"),
        };
        let place = self.ring.layout.root().display();
        let makers = generators.describe(&*self.ring.coordination);
        format!("{first} of {place}: {fill} of {cap} samples are there, {makers}")
    }

    /// Waits for a ring and for all of the samples that it holds out: the reader, and what [`Reader::held_out`] says.
    /// `tell` is as in [`Reader::wait_for`].
    ///
    /// # Errors
    /// [`Error::RingMismatch`] for one that holds none out. As [`Reader::wait_for`].
    pub fn wait_for_held_out(
        config: &Config,
        timeout: Option<Duration>,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(Reader, Vec<Positions>)> {
        let poll = config.poll.unwrap_or(Duration::from_millis(200));
        let mut wait = Retry::new(timeout, poll, config.lease);
        let reader = Reader::wait_for_ring(config, &mut wait, stop, tell)?;
        let mut wait = wait.watch(&reader.ring.layout.manifests());
        let (wanted, root) = (reader.ring.descriptor.validation, reader.ring.layout.root().to_owned());
        if wanted == 0 {
            let message = "it was made without VALIDATION, and holds no samples out: give VALIDATION, and another RING";
            return Err(Error::RingMismatch { path: root, message: message.to_owned() });
        }
        loop {
            let (found, lost) = match reader.ring.held_out_and_lost() {
                Err(Error::RingNotFound { .. } | Error::Manifest { passing: true, .. }) => (Vec::new(), 0),
                Err(error) => {
                    wait.unless_wrong(error, stop, tell)?;
                    continue;
                }
                Ok(found) => found,
            };
            let samples: u64 = found.iter().map(|(_, positions)| positions.end - positions.start).sum();
            if samples.saturating_add(lost) >= wanted {
                if lost > 0 {
                    tracing::warn!(ring = %root.display(), "of {wanted} samples that it holds out, {lost} were lost");
                }
                return Ok((reader, found));
            }
            let (fill, cap, place) = (reader.count_next_samples(), reader.ring.descriptor.swap_cap, root.display());
            let what = format!(
                "the {wanted} samples that {place} holds out: {samples} are readable, and {fill} of {cap} samples are \
                 in the generation that fills"
            );
            wait.more(&what, stop, tell)?;
        }
    }

    fn wait_for_ring(
        config: &Config,
        wait: &mut Retry,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Reader> {
        let mut server = None;
        loop {
            match Reader::open(config) {
                Err(Error::RingNotFound { path }) => {
                    // Without its server no generator can make the ring.
                    let opened =
                        server.take().map_or_else(|| Backend::connect(&config.index, IfUnreachable::Continue), Ok)?;
                    let why = match server.insert(opened).silence() {
                        Some(silence) => format!("{silence}; with INDEX: files, no server is needed"),
                        None => "no generator or manager has started yet".to_owned(),
                    };
                    wait.more(&format!("a ring at {} ({why})", path.display()), stop, tell)?;
                }
                Err(error) => wait.unless_wrong(error, stop, tell)?,
                Ok(reader) => return Ok(reader),
            }
        }
    }

    /// Samples in the generation that fills.
    fn count_next_samples(&self) -> u64 {
        self.ring.manifests.newest().and_then(|newest| self.ring.count_samples(newest + 1)).unwrap_or(0)
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Samples that were listed and could not be read.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// The newest generation that holds a sample for training, that is, one that is not held out ([`Ring::training`]);
    /// none when there is none yet.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn newest_filled(&self) -> Result<Option<Arc<Manifest>>> {
        let newest = self.ring.manifests.newest()?;
        let oldest = newest.saturating_sub(self.ring.settings.keep);
        self.oldest.store(oldest, Ordering::Relaxed);
        for n in (oldest..=newest).rev() {
            let manifest = self.ring.manifests.get(n)?;
            if let Some(manifest) = manifest.filter(|manifest| !self.ring.training(manifest).is_empty()) {
                return Ok(Some(manifest));
            }
        }
        Ok(None)
    }

    /// The newest generation that holds a sample for training.
    ///
    /// # Errors
    /// [`Error::RingNotFound`] when there is none yet; what the filesystem says.
    pub fn newest(&self) -> Result<Arc<Manifest>> {
        self.newest_filled()?.ok_or_else(|| Error::RingNotFound { path: self.ring.layout.root().to_owned() })
    }

    /// What is read where position `position` of a generation cannot be, and a sample there must be: one of the newest
    /// generation.
    ///
    /// # Errors
    /// As [`Reader::newest`].
    pub fn instead_of(&self, position: u64) -> Result<(Arc<Manifest>, u64)> {
        let newest = self.newest()?;
        let served = self.ring.training(&newest);
        Ok((newest, served.start + position % (served.end - served.start).max(1)))
    }

    /// The samples that the ring holds out, oldest first, as far as they are there yet: generations, and positions in
    /// them.
    ///
    /// # Errors
    /// As [`Ring::held_out_samples`].
    pub fn held_out(&self) -> Result<Vec<Positions>> {
        self.ring.held_out_samples()
    }

    /// The generations whose samples are still there, oldest first: those within KEEP, and those that hold samples that
    /// are held out. One within KEEP without a manifest counts as missing ([`Reader::missing`]).
    ///
    /// # Errors
    /// What the filesystem says; manifests of held-out samples that are missing.
    pub fn kept(&self) -> Result<Vec<Arc<Manifest>>> {
        let newest = self.ring.manifests.newest()?;
        let oldest = newest.saturating_sub(self.ring.settings.keep);
        if self.ring.descriptor.validation > 0 {
            self.ring.held_out_samples()?;
        }
        let for_ever = self.ring.kept_for_ever()?.into_iter().map(|kept| kept.generation);
        let mut kept = Vec::new();
        for n in for_ever.filter(|n| *n < oldest).chain(oldest..=newest) {
            if let Some(manifest) = self.manifest(n)?.filter(|manifest| manifest.summary.samples > 0) {
                kept.push(manifest);
            }
        }
        Ok(kept)
    }

    /// The sample at `position` of a generation.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Reclaimed`] when the generation is no longer there; [`Error::Damaged`].
    pub fn sample(&self, manifest: &Manifest, position: u64) -> Result<ReadSample> {
        log_truncated_maps();
        self.sample_untold(manifest, position)
    }

    /// The same, and nothing is logged: for threads of our own.
    fn sample_untold(&self, manifest: &Manifest, position: u64) -> Result<ReadSample> {
        let (generation, samples) = (manifest.summary.generation, manifest.summary.samples);
        let beyond = Error::OutOfRange { position, generation, samples };
        let (entry, ordinal) = manifest.locate(position).ok_or(beyond)?;
        let id = SampleId { segment: entry.id, ordinal };
        let first = match self.read(generation, position, entry, id) {
            Ok(sample) => return Ok(sample),
            Err(error) => error,
        };
        // A stale handle, or a stale view: once more, from the name.
        self.close(entry);
        self.close_some_segments(&first);
        let error = match self.read(generation, position, entry, id) {
            Ok(sample) => return Ok(sample),
            Err(error) => error,
        };
        let dir = self.ring.layout.read(generation);
        match &error {
            Error::Fs { source } if source.is_gone() && self.is_gone(manifest)? => {
                return Err(Error::Reclaimed { generation });
            }
            // A server that is away is no damage (an EIO is: of a disk), nor is a limit of this process, or a file that
            // this user may not read.
            Error::Fs { source } if source.is_no_damage() => return Err(error),
            _ => {}
        }
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let (path, sample) = (dir.join(entry.file()), id.to_string());
        let in_words = |error: Error| match error {
            Error::Fs { source } if source.is_gone() => "the file is missing".to_owned(),
            Error::Fs { source } => source.to_string(),
            Error::Format { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        let message = match (is_of_torn_map(&first), is_of_torn_map(&error)) {
            (true, false) => format!("{}; now: {}", in_words(first), in_words(error)),
            _ => in_words(error),
        };
        self.ring.note_damaged(manifest, position, &message);
        Err(Error::Damaged { generation, position, sample, path, message })
    }

    /// Refuses a sample of ours that somebody has touched meanwhile, and found a part of it gone.
    fn unless_torn(&self, sample: ReadSample) -> Result<ReadSample> {
        match sample.check_whole() {
            Ok(()) => Ok(sample),
            Err(error) => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn read(&self, generation: u64, position: u64, entry: &SegmentEntry, id: SampleId) -> Result<ReadSample> {
        let segment = self.segment(generation, entry)?;
        let verify = self.is_to_be_compared(&segment, id.ordinal);
        let options = ReadOptions { verify, max_part: self.max_part };
        let sample = segment.reader.sample(id.ordinal, options)?;
        segment.compared.insert(id.ordinal, verify);
        let (parts, meta) = named(segment.reader.info(), sample);
        let file = segment.reader.path().clone();
        Ok(ReadSample { generation, position, id, file, is_padding: false, parts, meta })
    }

    fn is_to_be_compared(&self, segment: &OpenSegment, ordinal: u64) -> bool {
        match self.verify {
            Verify::Always => true,
            Verify::Never => false,
            Verify::First => !segment.compared.contains(ordinal),
        }
    }

    /// The segment that the manifest lists, open, and the one it lists: same id, same length, same checksum.
    fn segment(&self, generation: u64, entry: &SegmentEntry) -> Result<Arc<OpenSegment>> {
        if let Some(open) = self.lock_open().iter().find(|open| open.reader.info().id == entry.id) {
            return Ok(open.clone());
        }
        let path = self.ring.layout.read(generation).join(entry.file());
        let reader = SegmentReader::open(&*self.ring.fs, &path, self.access)?;
        entry.check(&reader)?;
        let compared = self.compared.of(entry.id, entry.samples);
        let segment = Arc::new(OpenSegment { generation, reader, compared });
        self.lock_open().push_back(segment.clone());
        self.close_old();
        Ok(segment)
    }

    /// It is opened afresh, from its name, when it is read next.
    fn close(&self, entry: &SegmentEntry) {
        self.lock_open().retain(|open| open.reader.info().id != entry.id);
    }

    /// Where `error` says that too many files are open: from now on, holds half as many segments open.
    fn close_some_segments(&self, error: &Error) {
        if matches!(error, Error::Fs { source } if source.is_out_of_files()) {
            let half = self.lock_open().len() / 2;
            self.most_open.fetch_min(half.max(1), Ordering::Relaxed);
            self.close_old();
        }
    }

    /// Closes the segments of generations that are no longer kept. The last to close a file that was deleted frees it,
    /// which takes milliseconds: it is done by whoever opens another one (a thread that reads ahead), or has to wait.
    fn close_old(&self) {
        let mut open = self.lock_open();
        let oldest = self.oldest.load(Ordering::Relaxed);
        let spare = open.len().saturating_sub(self.most_open.load(Ordering::Relaxed));
        let is_old = |(n, open): &(usize, Arc<OpenSegment>)| *n < spare || open.generation < oldest;
        let (old, kept) = open.drain(..).enumerate().partition::<Vec<_>, _>(is_old);
        open.extend(kept.into_iter().map(|(_, segment)| segment));
        drop(open);
        drop(old);
    }

    fn lock_open(&self) -> MutexGuard<'_, VecDeque<Arc<OpenSegment>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of a sample with their names, and the user's meta over ours, as [`ReadSample`] has them.
pub fn named(info: &SegmentInfo, sample: Sample) -> (Vec<ReadPart>, Meta) {
    let names = info.schema.parts.iter().map(|named| named.name.clone());
    let parts = names.zip(sample.parts).map(|(name, part)| ReadPart { name, part });
    let ours = [
        ("number", Value::from(info.first_number.saturating_add(sample.ordinal))),
        ("time", Value::Float(sample.unix_ms as f64 / 1e3)),
    ];
    let provenance = info.provenance.iter().map(|(key, value)| (key, value.clone())).chain(ours);
    let users = sample.meta.iter().map(|(key, value)| (key, value.clone()));
    let meta = provenance.chain(users).map(|(key, value)| (key.to_owned(), value)).collect();
    (parts.collect(), meta)
}
