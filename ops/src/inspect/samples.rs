//! Access to samples by position: those of a ring's newest generation, of any generation, of a segment (or what can be
//! salvaged of one without a footer), or the records of a RecordIO file.
//!
//! Files are read, not mapped (except large segments without a footer), so that a file that another process truncates
//! cannot kill this process.

use super::verify::LISTED;
use super::{Subject, verify_file};
use bytes::Bytes;
use ringreel::error::{Error, FsError, Result};
use ringreel::fs::{FileReader, Fs};
use ringreel::layout::{GenerationDir, Layout, SegmentName, read_generations};
use ringreel::manifest::SegmentEntry;
use ringreel::manifest::store::Manifests;
use ringreel::memory;
use ringreel::read::{ReadPart, named};
use ringreel::segment::SampleId;
use ringreel::segment::reader::{Access, SegmentReader, decode, largest_record, read_tail};
use ringreel_format::input::{RangeRead, SliceInput, StreamInput};
use ringreel_format::recordio::{RecordReader, ResyncItem, ResyncReader};
use ringreel_format::segment::slice::decode_head;
use ringreel_format::{
    DType, FormatError, Head, Meta, Part, ReadOptions, Region, Salvage, SalvageItem, SegmentId, SegmentInfo,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Most segments that are kept open.
const OPEN: usize = 16;
/// The name of the only part of a record of a RecordIO file.
pub const RECORD: &str = "record";

/// Returns the options for untrusted files: all checksums are verified, and a compressed part may decode to at most a
/// quarter of the memory.
pub(super) fn careful() -> ReadOptions {
    ReadOptions { max_part: memory::bytes() / 4, ..ReadOptions::default() }
}

/// One sample, or one record of a RecordIO file. A record has one part, [`RECORD`], and no id.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its position in [`Samples`].
    pub position: u64,
    /// Its sample id.
    pub id: Option<SampleId>,
    /// The file that contains it.
    pub file: Arc<Path>,
    /// Its byte range in the file: head and parts of a sample, or the frames of a record. `None` in a segment without a
    /// footer.
    pub bytes: Option<Range<u64>>,
    /// Its parts, in the schema's order.
    pub parts: Vec<ReadPart>,
    /// The user's meta merged over ours, as in [`ReadSample`](ringreel::read::ReadSample).
    pub meta: Meta,
}

/// What could not be read. `why` is the text of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Note {
    /// A file that cannot be used.
    Refused { why: String },
    /// A byte range of a file that was skipped.
    Skipped { path: PathBuf, begin: u64, end: u64, why: String },
    /// A damaged part of the sample with this ordinal.
    DamagedPart { path: PathBuf, sample: u64 },
    /// The directory of the newest generation is missing.
    NewestMissing { newest: u64, dir: PathBuf },
    /// A generation without a manifest.
    NoManifest { generation: u64 },
    /// The number of further notes.
    More(u64),
}

/// The source of samples.
enum Source {
    /// Segments, with the position of the first sample of each.
    Segments(Vec<Listed>),
    /// A segment without a footer: its bytes, and head offset and ordinal of each intact sample.
    Salvaged { path: Arc<Path>, bytes: Bytes, info: Box<SegmentInfo>, samples: Vec<(u64, u64)> },
    /// A RecordIO file, and the byte range of each record.
    Records { path: Arc<Path>, file: Box<dyn FileReader>, frames: Vec<Range<u64>> },
}

struct Listed {
    path: PathBuf,
    /// Its entry in the manifest; `None` without a manifest.
    entry: Option<SegmentEntry>,
    first: u64,
    samples: u64,
}

/// The samples of a ring, a generation or a file.
pub struct Samples {
    fs: Arc<dyn Fs>,
    source: Source,
    generation: Option<u64>,
    len: u64,
    notes: Vec<Note>,
    more_notes: u64,
    open: Mutex<VecDeque<(usize, Arc<SegmentReader>)>>,
}

impl Samples {
    /// Opens the samples of `subject`; of a ring, those of the newest generation that has any. Damaged segments are no
    /// error, but added to [`Samples::notes`].
    ///
    /// # Errors
    /// A ring without a readable generation; a manifest that cannot be used; the filesystem's errors.
    pub fn open(fs: Arc<dyn Fs>, subject: &Subject) -> Result<Samples> {
        let mut samples = Samples {
            fs: fs.clone(),
            source: Source::Segments(Vec::new()),
            generation: None,
            len: 0,
            notes: Vec::new(),
            more_notes: 0,
            open: Mutex::default(),
        };
        match subject {
            Subject::Ring(layout) => samples.newest(layout)?,
            Subject::Generation(layout, GenerationDir::Read(n)) => samples.of_generation(layout, *n)?,
            Subject::Generation(layout, GenerationDir::Write(n)) => {
                samples.generation = Some(*n);
                samples.unlisted(&layout.write(*n))?;
            }
            Subject::File(path) if verify_file::is_segment(&*fs, path)? => samples.segment(path)?,
            Subject::File(path) => samples.records(path)?,
        }
        if samples.more_notes > 0 {
            samples.notes.push(Note::More(samples.more_notes));
        }
        Ok(samples)
    }

    /// Returns the number of samples, including the known damaged ones.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the generation of the samples; `None` for a single file.
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Returns whether the items are records of a RecordIO file.
    pub fn are_records(&self) -> bool {
        matches!(self.source, Source::Records { .. })
    }

    /// Returns what could not be read: segments without a footer, skipped byte ranges.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns whether a note reports damage. (A generation without a manifest is none.)
    pub fn has_damage(&self) -> bool {
        self.notes.iter().any(|note| !matches!(note, Note::NoManifest { .. }))
    }

    /// Returns the position of the sample with this id; `None` if it is not among the samples. Opens segments without a
    /// manifest entry.
    ///
    /// # Errors
    /// The filesystem's errors.
    pub fn find(&self, id: SampleId) -> Result<Option<u64>> {
        match &self.source {
            Source::Segments(segments) => {
                for (n, listed) in segments.iter().enumerate() {
                    let is = match &listed.entry {
                        Some(entry) => entry.id,
                        None => self.segment_at(n)?.info().id,
                    };
                    if is == id.segment {
                        return Ok((id.ordinal < listed.samples).then(|| listed.first + id.ordinal));
                    }
                }
                Ok(None)
            }
            Source::Salvaged { info, samples, .. } if info.id == id.segment => {
                Ok(samples.iter().position(|(_, ordinal)| *ordinal == id.ordinal).map(|n| n as u64))
            }
            Source::Salvaged { .. } | Source::Records { .. } => Ok(None),
        }
    }

    /// Returns the ids of the segments; none for a RecordIO file.
    ///
    /// # Errors
    /// An unlisted segment that cannot be read; the filesystem's errors.
    pub fn segment_ids(&self) -> Result<Vec<SegmentId>> {
        match &self.source {
            Source::Segments(segments) => {
                let id = |(n, listed): (usize, &Listed)| match &listed.entry {
                    Some(entry) => Ok(entry.id),
                    None => Ok(self.segment_at(n)?.info().id),
                };
                segments.iter().enumerate().map(id).collect()
            }
            Source::Salvaged { info, .. } => Ok(vec![info.id]),
            Source::Records { .. } => Ok(Vec::new()),
        }
    }

    /// Reads the sample at `position`, and verifies its checksums.
    ///
    /// # Errors
    /// A damaged sample; a position beyond the last; the filesystem's errors. Other samples can still be read.
    pub fn get(&self, position: u64) -> Result<Item> {
        if position >= self.len {
            let len = self.len;
            return Err(Error::Sample(format!("no sample {position}: there are {len}, numbered from 0")));
        }
        let options = careful();
        match &self.source {
            Source::Segments(segments) => {
                let n = segments.partition_point(|listed| listed.first + listed.samples <= position);
                let segment = self.segment_at(n)?;
                let ordinal = position - segments[n].first;
                let sample = segment.sample(ordinal, options)?;
                let (file, info) = (segment.path().clone(), segment.info());
                let id = SampleId { segment: info.id, ordinal };
                let bytes = segment.tail().footer.extent(ordinal).map_err(Error::format("read", &file))?;
                let (parts, meta) = named(info, sample);
                Ok(Item { position, id: Some(id), file, bytes, parts, meta })
            }
            Source::Salvaged { path, bytes, info, samples } => {
                let (at, ordinal) = samples[position as usize];
                let sample = decode(&bytes.slice(at as usize..), at, info, options);
                let sample = sample.map_err(Error::format("read", path))?;
                let id = SampleId { segment: info.id, ordinal };
                let (parts, meta) = named(info, sample);
                Ok(Item { position, id: Some(id), file: path.clone(), bytes: None, parts, meta })
            }
            Source::Records { path, file, frames } => {
                let range = frames[position as usize].clone();
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, range.start)?;
                let mut reader = RecordReader::with_input(SliceInput::new(&bytes, range.start));
                let bad = Error::format("read", path);
                let again = || FormatError::Malformed { at: range.start, what: "the file changed while it was read" };
                let record = reader.next().and_then(|record| record.ok_or_else(again)).map_err(bad)?;
                let data = Bytes::copy_from_slice(record.payload);
                let part = Part::new(DType::U8, vec![data.len() as u64], data);
                let part = part.map_err(Error::format("read", path))?;
                let parts = vec![ReadPart { name: RECORD.to_owned(), part }];
                Ok(Item { position, id: None, file: path.clone(), bytes: Some(range), parts, meta: Meta::new() })
            }
        }
    }

    /// Reads the head of the sample at `position`, which says how its parts are stored. Returns `None` for a record.
    ///
    /// # Errors
    /// As [`Samples::get`].
    pub fn head(&self, position: u64) -> Result<Option<Head>> {
        match &self.source {
            Source::Segments(segments) => {
                let n = segments.partition_point(|listed| listed.first + listed.samples <= position);
                let ordinal = position.saturating_sub(segments.get(n).map_or(0, |listed| listed.first));
                self.segment_at(n)?.head(ordinal).map(Some)
            }
            Source::Salvaged { path, bytes, info, samples } => {
                let Some((at, _)) = samples.get(position as usize) else { return Ok(None) };
                let head = decode_head(&bytes.slice(*at as usize..), *at, info);
                Ok(Some(head.map_err(Error::format("read", path))?.0))
            }
            Source::Records { .. } => Ok(None),
        }
    }

    /// Returns the file of the sample at `position`, readable or not, and its ordinal in that file. Returns `None` beyond
    /// the last.
    pub fn place(&self, position: u64) -> Option<(PathBuf, u64)> {
        if position >= self.len {
            return None;
        }
        match &self.source {
            Source::Segments(segments) => {
                let n = segments.partition_point(|listed| listed.first + listed.samples <= position);
                segments.get(n).map(|listed| (listed.path.clone(), position - listed.first))
            }
            Source::Salvaged { path, samples, .. } => {
                samples.get(position as usize).map(|(_, ordinal)| (path.to_path_buf(), *ordinal))
            }
            Source::Records { path, .. } => Some((path.to_path_buf(), position)),
        }
    }

    /// Returns whether a missing file was lost and not reclaimed, because its directory still exists.
    pub fn is_lost(&self, gone: &FsError) -> bool {
        gone.path.parent().is_some_and(|dir| self.fs.exists(dir).unwrap_or(false))
    }

    /// Adds a note; above the limit, only counts it.
    fn note(&mut self, note: Note) {
        if self.notes.len() < LISTED {
            self.notes.push(note);
        } else {
            self.more_notes += 1;
        }
    }

    fn skipped(&mut self, path: &Path, region: &Region) {
        let Region { begin, end, why, .. } = region;
        self.note(Note::Skipped { path: path.to_owned(), begin: *begin, end: *end, why: why.to_string() });
    }

    fn newest(&mut self, layout: &Layout) -> Result<()> {
        let manifests = Manifests::new(self.fs.clone(), layout.clone());
        let newest = manifests.newest_listed()?;
        let names = self.fs.list(layout.root())?;
        let mut there: Vec<u64> = read_generations(&names).filter(|n| *n <= newest).collect();
        there.sort_unstable();
        self.note_missing(layout, &manifests, newest, &there)?;
        for n in there.into_iter().rev() {
            match manifests.get(n) {
                Ok(Some(manifest)) if manifest.summary.samples > 0 => return self.of_generation(layout, n),
                Ok(_) => {}
                Err(error @ Error::Manifest { .. }) => self.notes.push(Note::Refused { why: error.to_string() }),
                Err(error) => return Err(error),
            }
        }
        let root = layout.root().display();
        Err(Error::Sample(format!("{root} has no readable generation yet: the first one is not full")))
    }

    /// Adds a note if the newest generation has samples but no directory, because no process removes that one.
    fn note_missing(&mut self, layout: &Layout, manifests: &Manifests, newest: u64, there: &[u64]) -> Result<()> {
        let has_samples = |n| Ok::<_, Error>(manifests.usable(n)?.is_some_and(|found| found.summary.samples > 0));
        let dir = layout.read(newest);
        let is_missing = !there.contains(&newest) && has_samples(newest)? && !self.fs.exists(&dir)?;
        if is_missing && manifests.newest_listed()? == newest {
            self.notes.push(Note::NewestMissing { newest, dir });
        }
        Ok(())
    }

    fn of_generation(&mut self, layout: &Layout, n: u64) -> Result<()> {
        self.generation = Some(n);
        let Some(manifest) = Manifests::new(self.fs.clone(), layout.clone()).get(n)? else {
            self.notes.push(Note::NoManifest { generation: n });
            return self.unlisted(&layout.read(n));
        };
        let dir = layout.read(n);
        let listed = manifest.segments.iter().map(|entry| (dir.join(entry.file()), Some(entry.clone()), entry.samples));
        self.take(listed.collect());
        Ok(())
    }

    /// Takes the segments in a directory without a manifest, ordered by their index.
    fn unlisted(&mut self, dir: &Path) -> Result<()> {
        let mut names: Vec<String> = self.fs.list(dir)?;
        names.retain(|name| SegmentName::parse(name).is_some());
        names.sort_unstable_by_key(|name| SegmentName::parse(name));
        let mut listed = Vec::new();
        for name in names {
            let path = dir.join(&name);
            match read_tail(&*self.fs, &path) {
                Ok(tail) => listed.push((path, None, tail.footer.count)),
                Err(Error::Fs { source }) if source.is_gone() => {}
                Err(error) => self.note(Note::Refused { why: error.to_string() }),
            }
        }
        self.take(listed);
        Ok(())
    }

    fn take(&mut self, listed: Vec<(PathBuf, Option<SegmentEntry>, u64)>) {
        let mut segments = Vec::new();
        for (path, entry, samples) in listed {
            segments.push(Listed { path, entry, first: self.len, samples });
            self.len = self.len.saturating_add(samples);
        }
        self.source = Source::Segments(segments);
    }

    fn segment(&mut self, path: &Path) -> Result<()> {
        match read_tail(&*self.fs, path) {
            Ok(tail) => {
                self.take(vec![(path.to_owned(), None, tail.footer.count)]);
                return Ok(());
            }
            Err(error @ Error::Format { source: FormatError::Version { .. }, .. }) => return Err(error),
            Err(Error::Format { .. }) => {}
            Err(error) => return Err(error),
        }
        let bytes = verify_file::whole(&*self.fs, path)?;
        let mut salvage = Salvage::new(bytes.clone(), careful());
        let Some(info) = salvage.info().cloned() else {
            let why = "neither its header nor its footer is intact";
            return Err(Error::Format { path: path.to_owned(), source: FormatError::NotASegment { why } });
        };
        let mut samples = Vec::new();
        for found in &mut salvage {
            match found {
                SalvageItem::Sample(sample) if sample.parts.iter().all(std::result::Result::is_ok) => {
                    samples.push((sample.at, sample.ordinal));
                }
                SalvageItem::Sample(sample) => {
                    self.note(Note::DamagedPart { path: path.to_owned(), sample: sample.ordinal });
                }
                SalvageItem::Skipped(region) => self.skipped(path, &region),
            }
        }
        self.len = samples.len() as u64;
        self.source = Source::Salvaged { path: path.into(), bytes, info: Box::new(info), samples };
        Ok(())
    }

    fn records(&mut self, path: &Path) -> Result<()> {
        let file = self.fs.open(path)?;
        let mut read_at = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(|error| error.source);
        let source = RangeRead::new(&mut read_at, 0..file.size()?);
        let mut reader = ResyncReader::with_input(StreamInput::new(source, 0).at_most(largest_record()));
        let mut frames = Vec::new();
        while let Some(found) = reader.next().map_err(Error::format("read", path))? {
            match found {
                ResyncItem::Record(record) => frames.push(record.at..record.end),
                ResyncItem::Skipped(region) => self.skipped(path, &region),
            }
        }
        self.len = frames.len() as u64;
        self.source = Source::Records { path: path.into(), file, frames };
        Ok(())
    }

    /// Opens segment `n`, and checks that it is the one that the manifest lists.
    fn segment_at(&self, n: usize) -> Result<Arc<SegmentReader>> {
        let lock = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, open)) = lock().iter().find(|(of, _)| *of == n) {
            return Ok(open.clone());
        }
        let Source::Segments(segments) = &self.source else {
            return Err(Error::Sample("no segments".to_owned()));
        };
        let beyond = || Error::Sample("no such sample".to_owned());
        let listed = segments.get(n).ok_or_else(beyond)?;
        let segment = Arc::new(SegmentReader::open(&*self.fs, &listed.path, Access::Copy)?);
        if let Some(entry) = &listed.entry {
            entry.check(&segment)?;
        }
        let mut open = lock();
        open.push_back((n, segment.clone()));
        while open.len() > OPEN {
            open.pop_front();
        }
        Ok(segment)
    }
}
