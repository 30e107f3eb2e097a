//! Reading samples: by position in a generation, as its manifest lists them.
//!
//! | file | contents |
//! |---|---|
//! | here | [`Reader`]: one sample, by generation and position |
//! | [`batch`] | many samples at once, visited or stacked |
//! | `verified` | which samples' checksums were already verified |
//! | [`shard`] | the positions of each worker |
//! | [`stream`] | one epoch after the other, for one worker |
//! | `epoch_policy` | which generation an epoch is read from |
//! | [`shuffle`] | the order in which an epoch's samples are read |
//! | [`checkpoint`] | the state of a stream, and how another stream resumes from it |
//! | `producer_status` | which generators are alive, and why the last one failed |
//! | [`leave_out`] | the samples that a stream leaves out |
//! | `retry` | pauses between attempts |
//! | `padding` | padding samples, which equalise the number of steps |
//!
//! A listed sample that cannot be read is an error that says why; the reader stays usable.

pub mod batch;
pub mod checkpoint;
mod epoch_policy;
pub mod leave_out;
mod missing;
mod padding;
mod producer_status;
mod retry;
pub mod shard;
pub mod shuffle;
pub mod stream;
mod verified;

use crate::config::{Config, ReadMode, Verify};
use crate::coordination::{Backend, IfUnreachable};
use crate::error::{Error, Result};
use crate::fs::sigbus::{is_truncated, newly_truncated};
use crate::fs::{Fs, Posix};
use crate::manifest::{Manifest, SegmentEntry};
use crate::memory;
use crate::ring::Ring;
use crate::ring::validation_split::Positions;
use crate::segment::SampleId;
use crate::segment::reader::{Access, SegmentReader, is_of_truncated_map, truncated_map};
use bytes::Bytes;
use producer_status::ProducerStatus;
use retry::{Caller, Described, Retry};
use ringreel_format::{Meta, Part, ReadOptions, Sample, SegmentInfo, Value};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use verified::{Ordinals, Verified};

/// Most segments that a reader holds open.
pub const OPEN_SEGMENTS: usize = 128;

/// Interval between two polls of a ring that is not open yet, without POLL_SECONDS.
const DEFAULT_POLL: Duration = Duration::from_millis(200);

/// One part of a sample.
#[derive(Clone, Debug)]
pub struct ReadPart {
    /// Its name.
    pub name: String,
    /// Its dtype, shape and bytes. The bytes keep the map that holds them alive.
    pub part: Part,
}

impl ReadPart {
    /// Returns the elements: little endian, row-major.
    ///
    /// # Errors
    /// The element type or the codec is only known to a later version.
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

/// One sample as a reader returns it.
#[derive(Clone, Debug)]
pub struct ReadSample {
    /// The generation it was read from.
    pub generation: u64,
    /// Its position in the generation.
    pub position: u64,
    /// Its id.
    pub id: SampleId,
    /// When it was written, by its generator's clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// The file of its segment.
    pub file: Arc<Path>,
    /// True for a padding sample, added so that all workers take the same number of steps. Its elements have a fill
    /// value; all else is that of the sample whose shapes it has.
    pub is_padding: bool,
    /// Its parts, in the order of SAMPLE.
    pub parts: Vec<ReadPart>,
    /// The user's meta, with these keys added unless the user set them: `host`, `pid`, `generator`, `number`
    /// (sequence number at its generator), `time` (seconds since 1970 by its generator's clock).
    pub meta: Meta,
}

impl ReadSample {
    /// Returns the bytes of its parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Checks that the parts showed the contents of the file when they were accessed. Call it after the parts were
    /// used, because a file may be truncated while it is mapped.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the file was truncated, and a part shows zeros in place of its data.
    pub fn check_whole(&self) -> Result<()> {
        if !self.parts.iter().any(|part| part.part.data().is_ok_and(|data| is_truncated(data))) {
            return Ok(());
        }
        let (generation, position, path) = (self.generation, self.position, self.file.to_path_buf());
        let message = truncated_map(&path).to_string();
        Err(Error::Damaged { generation, position, sample: self.id.to_string(), path, message })
    }
}

/// Logs the files that were truncated while samples of this process were mapped, once each. (Readers and streams call
/// it with each sample; programs that map segments without them call it themselves.)
pub fn log_truncated_maps() {
    for path in newly_truncated() {
        let path = path.display();
        tracing::error!("{path}: the segment was truncated while it was mapped; data read from it since then is zeros");
    }
}

/// Reads samples of one ring. Threads may share it. It must not be used after a fork: open a new one in the child.
pub struct Reader {
    ring: Ring,
    access: Access,
    verify: Verify,
    max_part: u64,
    open: Mutex<VecDeque<Arc<OpenSegment>>>,
    /// Segments that may be held open.
    most_open: AtomicUsize,
    /// The oldest generation that was kept when this was last determined.
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
    /// Opens the ring that `config` describes, which must exist.
    ///
    /// # Errors
    /// [`Error::RingNotFound`], [`Error::RingMismatch`], filesystem errors.
    pub fn open(config: &Config) -> Result<Reader> {
        Reader::open_on(Arc::new(Posix), config)
    }

    /// Opens the ring on another filesystem.
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

    /// Gives each sample a separate copy-on-write map in place of the shared read-only map of its segment, for
    /// callers that write into samples. Such a map costs more to create than the sample costs to read.
    pub fn with_private_maps(mut self) -> Reader {
        if self.access == Access::Shared {
            self.access = Access::Private;
        }
        self
    }

    /// Returns whether samples share the read-only map of their segment.
    pub fn lends_maps(&self) -> bool {
        self.access == Access::Shared
    }

    /// Waits for a ring and its first sample that is not held out. Calls `tell` with what it waits for, at once and
    /// then about every 20 s.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Interrupted`], permanent errors of the ring.
    pub fn wait_for(
        config: &Config,
        timeout: Option<Duration>,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Reader> {
        let (mut generators, mut described) = (None, Described::default());
        let found = Reader::wait_until(config, timeout, &mut Caller { stop, tell }, |reader| {
            match reader.newest_filled() {
                Ok(Some(_)) => return Ok(ControlFlow::Break(())),
                Ok(None) | Err(Error::RingNotFound { .. }) => {} // the ring may be being created
                Err(error) => return Err(error),
            }
            let settings = &reader.ring.settings;
            let generators = generators.get_or_insert_with(|| ProducerStatus::new(settings.lease));
            Ok(ControlFlow::Continue(described.text(settings.poll, || reader.describe_first(generators))))
        });
        found.map(|(reader, ())| reader)
    }

    /// Describes what a reader of a ring without a sample for training waits for.
    fn describe_first(&self, generators: &ProducerStatus) -> String {
        let (fill, cap) = (self.count_next_samples(), self.ring.descriptor.swap_cap);
        let first = match self.ring.descriptor.validation {
            0 => "the first generation".to_owned(),
            n => format!("the first generation with samples beyond the {n} that are held out"),
        };
        let place = self.ring.layout.root().display();
        let makers = generators.describe(&*self.ring.coordination);
        format!("{first} of {place}: {fill} of {cap} samples are written, {makers}")
    }

    /// Waits for a ring and for all samples that it holds out. Returns the reader and the result of
    /// [`Ring::held_out_samples`]. `tell` is as in [`Reader::wait_for`].
    ///
    /// # Errors
    /// [`Error::RingMismatch`] if the ring holds out no samples; else as [`Reader::wait_for`].
    pub fn wait_for_held_out(
        config: &Config,
        timeout: Option<Duration>,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(Reader, Vec<Positions>)> {
        Reader::wait_until(config, timeout, &mut Caller { stop, tell }, |reader| {
            let (wanted, root) = (reader.ring.descriptor.validation, reader.ring.layout.root());
            if wanted == 0 {
                let message =
                    "it was made without VALIDATION, so it holds out no samples: set VALIDATION and another RING";
                return Err(Error::RingMismatch { path: root.to_owned(), message: message.to_owned() });
            }
            let (found, lost) = match reader.ring.held_out_and_lost() {
                Err(Error::RingNotFound { .. } | Error::Manifest { passing: true, .. }) => (Vec::new(), 0),
                found => found?,
            };
            let samples: u64 = found.iter().map(|(_, positions)| positions.end - positions.start).sum();
            if samples.saturating_add(lost) >= wanted {
                if lost > 0 {
                    tracing::warn!(ring = %root.display(), "{lost} of the {wanted} held-out samples are lost");
                }
                return Ok(ControlFlow::Break(found));
            }
            let (fill, cap, place) = (reader.count_next_samples(), reader.ring.descriptor.swap_cap, root.display());
            Ok(ControlFlow::Continue(format!(
                "the {wanted} held-out samples of {place}: {samples} are readable, and {fill} of {cap} samples are \
                 in the generation that fills"
            )))
        })
    }

    /// Waits for a ring, and then until `look` finds a value in it. Until then, `look` returns what it waits for.
    fn wait_until<T>(
        config: &Config,
        timeout: Option<Duration>,
        caller: &mut Caller<'_>,
        mut look: impl FnMut(&Reader) -> Result<ControlFlow<T, String>>,
    ) -> Result<(Reader, T)> {
        let mut wait = Retry::new(timeout, config.poll.unwrap_or(DEFAULT_POLL), config.lease);
        let reader = Reader::wait_for_ring(config, &mut wait, caller)?;
        let mut wait = wait.watch(&reader.ring.layout.manifests());
        loop {
            match look(&reader) {
                Ok(ControlFlow::Break(found)) => return Ok((reader, found)),
                Ok(ControlFlow::Continue(what)) => wait.more(&what, caller)?,
                Err(error) => wait.unless_wrong(error, caller)?,
            }
        }
    }

    fn wait_for_ring(config: &Config, wait: &mut Retry, caller: &mut Caller<'_>) -> Result<Reader> {
        let poll = config.poll.unwrap_or(DEFAULT_POLL);
        let (mut server, mut described) = (None, Described::default());
        loop {
            match Reader::open(config) {
                Err(Error::RingNotFound { path }) => {
                    // If the index's server is unreachable, no generator can create the ring.
                    if server.is_none() {
                        server = Some(Backend::connect(&config.index, IfUnreachable::Continue)?);
                    }
                    let why = described.text(poll, || match server.as_ref().and_then(Backend::silence) {
                        Some(silence) => format!("{silence}; with INDEX: files, no server is needed"),
                        None => "no generator or manager has started yet".to_owned(),
                    });
                    wait.more(&format!("a ring at {} ({why})", path.display()), caller)?;
                }
                Err(error) => wait.unless_wrong(error, caller)?,
                Ok(reader) => return Ok(reader),
            }
        }
    }

    /// Returns the samples in the generation that fills.
    fn count_next_samples(&self) -> u64 {
        self.ring.manifests.newest().and_then(|newest| self.ring.count_samples(newest + 1)).unwrap_or(0)
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns how many listed samples could not be read.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Returns the newest generation with a sample for training, that is, one that is not held out
    /// ([`Ring::training`]); `None` if there is no such generation yet.
    ///
    /// # Errors
    /// Filesystem errors.
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

    /// Returns the newest generation with a sample for training.
    ///
    /// # Errors
    /// [`Error::RingNotFound`] if there is no such generation yet; filesystem errors.
    pub fn newest(&self) -> Result<Arc<Manifest>> {
        self.newest_filled()?.ok_or_else(|| Error::RingNotFound { path: self.ring.layout.root().to_owned() })
    }

    /// Returns the generations that still exist, oldest first: those within KEEP, and those with held-out samples. A
    /// generation within KEEP without a manifest counts as missing ([`Reader::missing`]).
    ///
    /// # Errors
    /// Filesystem errors; missing manifests of held-out samples.
    pub fn kept(&self) -> Result<Vec<Arc<Manifest>>> {
        let newest = self.ring.manifests.newest()?;
        let oldest = newest.saturating_sub(self.ring.settings.keep);
        if self.ring.descriptor.validation > 0 {
            self.ring.held_out_samples()?;
        }
        let for_ever = self.ring.kept_for_ever()?.into_iter();
        let mut kept = Vec::new();
        for n in for_ever.filter(|n| *n < oldest).chain(oldest..=newest) {
            if let Some(manifest) = self.manifest(n)?.filter(|manifest| manifest.summary.samples > 0) {
                kept.push(manifest);
            }
        }
        Ok(kept)
    }

    /// Returns the sample at `position` of a generation.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Reclaimed`] if the generation no longer exists; [`Error::Damaged`].
    pub fn sample(&self, manifest: &Manifest, position: u64) -> Result<ReadSample> {
        log_truncated_maps();
        self.sample_untold(manifest, position)
    }

    /// Returns the sample as [`Reader::sample`] does, but logs nothing: for prefetch threads.
    fn sample_untold(&self, manifest: &Manifest, position: u64) -> Result<ReadSample> {
        let generation = manifest.summary.generation;
        let (entry, ordinal) = locate(manifest, position)?;
        let id = SampleId { segment: entry.id, ordinal };
        let first = match self.read(generation, position, entry, id) {
            Ok(sample) => return Ok(sample),
            Err(error) => error,
        };
        // The handle or the view may be stale: open the file again by its name.
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
            // An unreachable server is no damage (but an EIO is, of a disk), nor is a limit of this process or a file
            // that this user may not read.
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
        let message = match (is_of_truncated_map(&first), is_of_truncated_map(&error)) {
            (true, false) => format!("{}; now: {}", in_words(first), in_words(error)),
            _ => in_words(error),
        };
        self.ring.note_damaged(manifest, position, &message);
        Err(Error::Damaged { generation, position, sample, path, message })
    }

    /// Refuses a sample that this thread has accessed if a part of it was found truncated.
    fn unless_truncated(&self, sample: ReadSample) -> Result<ReadSample> {
        let checked = sample.check_whole();
        self.damaged.fetch_add(u64::from(checked.is_err()), Ordering::Relaxed);
        checked.map(|()| sample)
    }

    fn read(&self, generation: u64, position: u64, entry: &SegmentEntry, id: SampleId) -> Result<ReadSample> {
        let segment = self.segment(generation, entry)?;
        let verify = self.is_to_be_compared(&segment, id.ordinal);
        let options = ReadOptions { verify, max_part: self.max_part };
        let sample = segment.reader.sample(id.ordinal, options)?;
        if verify {
            segment.compared.insert(id.ordinal..id.ordinal + 1);
        }
        let unix_ms = sample.unix_ms;
        let (parts, meta) = named(segment.reader.info(), sample);
        let file = segment.reader.path().clone();
        Ok(ReadSample { generation, position, id, unix_ms, file, is_padding: false, parts, meta })
    }

    fn is_to_be_compared(&self, segment: &OpenSegment, ordinal: u64) -> bool {
        match self.verify {
            Verify::Always => true,
            Verify::Never => false,
            Verify::First => !segment.compared.contains(ordinal),
        }
    }

    /// Returns the listed segment, open. Checks that its id, length and checksum are those in the manifest.
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

    /// Closes a segment. It is opened again, by its name, when it is read next.
    fn close(&self, entry: &SegmentEntry) {
        self.lock_open().retain(|open| open.reader.info().id != entry.id);
    }

    /// Halves the number of segments held open from now on if `error` says that too many files are open.
    fn close_some_segments(&self, error: &Error) {
        if matches!(error, Error::Fs { source } if source.is_out_of_files()) {
            let half = self.lock_open().len() / 2;
            self.most_open.fetch_min(half.max(1), Ordering::Relaxed);
            self.close_old();
        }
    }

    /// Closes the segments of generations that are no longer kept. The last close of a deleted file frees it, which
    /// takes milliseconds, so this is done when another file is opened (by a prefetch thread) or while the caller
    /// waits.
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

/// Returns the segment of the sample at `position`, and its ordinal there.
fn locate(manifest: &Manifest, position: u64) -> Result<(&SegmentEntry, u64)> {
    let (generation, samples) = (manifest.summary.generation, manifest.summary.samples);
    manifest.locate(position).ok_or(Error::OutOfRange { position, generation, samples })
}

/// Returns the parts of a sample with their names, and the user's meta with the keys added, as in [`ReadSample`].
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
