//! Many samples at once: visited one after the other, or stacked. For samples so small that a [`ReadSample`] for each
//! would cost more than its bytes.

use super::{OpenSegment, ReadSample, Reader, locate};
use crate::config::Verify;
use crate::error::{Error, FsError, Result};
use crate::manifest::{Manifest, SegmentEntry};
use crate::segment::SampleId;
use crate::segment::borrow::{MAX_BORROWED_BYTES, SegmentBorrow};
use crate::segment::reader::is_of_truncated_map;
use ringreel_format::segment::view::SampleView;
use ringreel_format::{DType, SegmentInfo};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A part beyond this size gets its memory while it is read, not in advance.
const RESERVED: usize = 1 << 30;

/// A sample that is borrowed for the duration of a call.
pub struct BorrowedSample<'a> {
    /// Its position in the generation.
    pub position: u64,
    /// Its id.
    pub id: SampleId,
    source: Source<'a>,
}

enum Source<'a> {
    View(&'a SampleView<'a>, &'a SegmentInfo),
    Read(&'a ReadSample),
}

/// A borrowed part of a sample.
#[derive(Debug)]
pub struct BorrowedPart<'a> {
    /// Type of its elements.
    pub dtype: &'a DType,
    /// Lengths of its axes.
    pub shape: &'a [u64],
    /// The elements: little endian, row-major.
    pub data: Cow<'a, [u8]>,
}

impl BorrowedSample<'_> {
    /// Returns its number of parts.
    pub fn parts(&self) -> usize {
        match &self.source {
            Source::View(view, _) => view.head().parts.len(),
            Source::Read(sample) => sample.parts.len(),
        }
    }

    /// Returns part `n`, in the order of SAMPLE.
    ///
    /// # Errors
    /// The element type or the codec is only known to a later version.
    ///
    /// # Panics
    /// If there is no part `n`.
    #[inline]
    pub fn part(&self, n: usize) -> Result<BorrowedPart<'_>> {
        match &self.source {
            Source::View(view, info) => {
                let (head, name) = (&view.head().parts[n], &info.schema.parts[n].name);
                if let DType::Unknown { code, .. } = &head.dtype {
                    let later = ringreel_format::FormatError::UnknownDType { part: name.clone(), code: *code };
                    return Err(Error::Sample(later.to_string()));
                }
                let data = view.stored(n).map_err(|error| Error::Sample(error.to_string()))?;
                Ok(BorrowedPart { dtype: &head.dtype, shape: &head.shape, data })
            }
            Source::Read(sample) => {
                let part = &sample.parts[n];
                Ok(BorrowedPart { dtype: &part.dtype, shape: &part.shape, data: Cow::Borrowed(part.data()?) })
            }
        }
    }
}

/// Most segments of which samples are borrowed at a time, in a batch in any order. Each holds a file open and, if it
/// is not mapped, a buffer of [`MAX_BORROWED_BYTES`] bytes.
const SESSIONS: usize = 16;

struct Visiting<'v, 'm, V> {
    reader: &'v Reader,
    manifest: &'m Manifest,
    sessions: Vec<BorrowSession<'m>>,
    visit: V,
}

/// A segment of which samples are borrowed.
struct BorrowSession<'m> {
    entry: &'m SegmentEntry,
    /// Position of its first sample.
    start: u64,
    segment: Arc<OpenSegment>,
    lending: SegmentBorrow,
    /// Position of the sample that was borrowed first.
    first: Option<u64>,
}

/// Positions that are taken from the caller's iterator in advance.
const KNOWN: usize = 32;

/// The caller's positions, the next [`KNOWN`] of which are known.
struct Positions<I> {
    rest: I,
    known: Vec<u64>,
    next: usize,
}

impl<I: Iterator<Item = u64>> Positions<I> {
    fn new(rest: I) -> Positions<I> {
        Positions { rest, known: Vec::with_capacity(KNOWN), next: 0 }
    }

    #[inline]
    fn next_if(&mut self, is_wanted: impl FnOnce(u64) -> bool) -> Option<u64> {
        if self.next == self.known.len() {
            self.known.clear();
            self.known.extend(self.rest.by_ref().take(KNOWN));
            self.next = 0;
        }
        let position = *self.known.get(self.next)?;
        is_wanted(position).then(|| {
            self.next += 1;
            position
        })
    }

    /// Returns the known positions if none of them was used yet, else nothing.
    fn fresh(&mut self) -> &[u64] {
        if self.next == 0 { &self.known } else { &[] }
    }
}

impl<'m, V: FnMut(&BorrowedSample<'_>) -> Result<()>> Visiting<'_, 'm, V> {
    fn all(&mut self, positions: impl Iterator<Item = u64>) -> Result<()> {
        let mut positions = Positions::new(positions);
        let mut here: Option<(&SegmentEntry, u64)> = None;
        while let Some(first) = positions.next_if(|_| true) {
            // Find the segment of `first`, mostly the same as before, and how many of the next positions follow in
            // it.
            let holds = |(entry, start): &(&SegmentEntry, u64)| (*start..*start + entry.samples).contains(&first);
            let lends = || self.sessions.iter().map(|session| (session.entry, session.start)).find(holds);
            let (entry, start) = match here.filter(holds).or_else(lends) {
                Some(here) => here,
                None => {
                    let (entry, ordinal) = locate(self.manifest, first)?;
                    (entry, first - ordinal)
                }
            };
            here = Some((entry, start));
            let (mut end, limit) = (first + 1, start + entry.samples);
            while end < limit && positions.next_if(|next| next == end).is_some() {
                end += 1;
            }
            self.ask_for(positions.fresh());
            self.run(entry, start, first..end)?;
            if end == limit && (end > first + 1 || entry.samples == 1) {
                self.end(start)?; // a caller that reads in order has no more positions in it
            }
        }
        Ok(())
    }

    /// Prefetches the samples at these positions that are in memory into the CPU's cache, all at once, so that the
    /// visit does not wait for each.
    fn ask_for(&self, positions: &[u64]) {
        let is_next = |two: &[u64]| two[0].checked_add(1) == Some(two[1]);
        if positions.windows(2).all(is_next) {
            return; // in order: the CPU prefetches them without help
        }
        for position in positions {
            let holds = |session: &&BorrowSession<'_>| {
                (session.start..session.start + session.entry.samples).contains(position)
            };
            if let Some(session) = self.sessions.iter().find(holds) {
                session.segment.reader.touch(&session.lending, position - session.start);
            }
        }
    }

    /// Visits the samples at `positions`, consecutive ones in the segment whose first sample is at position `start`.
    fn run(&mut self, entry: &'m SegmentEntry, start: u64, positions: Range<u64>) -> Result<()> {
        let (reader, manifest) = (self.reader, self.manifest);
        let mut next = positions.start;
        let mut may_lend = entry.bytes / entry.samples.max(1) <= MAX_BORROWED_BYTES;
        while next < positions.end {
            if may_lend && let Some(session) = self.begin(entry, start)? {
                let visited = self.lend(session, next..positions.end)?;
                // If the first one cannot be borrowed, the others are not tried (they may be compressed, say).
                (next, may_lend) = (next + visited, visited > 0);
            }
            // A sample that cannot be borrowed is read, so that its error, if any, is the same as that of a single
            // read.
            if next < positions.end {
                let sample = reader.sample_untold(manifest, next)?;
                (self.visit)(&BorrowedSample { position: next, id: sample.id, source: Source::Read(&sample) })?;
                sample.check_whole()?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Returns the index of the session of the segment whose first sample is at position `start`, or `None` if its
    /// samples cannot be borrowed.
    fn begin(&mut self, entry: &'m SegmentEntry, start: u64) -> Result<Option<usize>> {
        if let Some(session) = self.of(start) {
            return Ok(Some(session));
        }
        if self.sessions.len() >= SESSIONS {
            self.end_all()?;
        }
        let Ok(segment) = self.reader.segment(self.manifest.summary.generation, entry) else { return Ok(None) };
        match segment.reader.begin_lending() {
            Ok(lending) => {
                self.sessions.push(BorrowSession { entry, start, segment, lending, first: None });
                Ok(Some(self.sessions.len() - 1))
            }
            Err(_) => {
                self.reader.close(entry);
                Ok(None)
            }
        }
    }

    fn of(&self, start: u64) -> Option<usize> {
        self.sessions.iter().position(|session| session.start == start)
    }

    /// Borrows the samples at `positions` of a session's segment. Returns how many could be borrowed.
    fn lend(&mut self, session: usize, positions: Range<u64>) -> Result<u64> {
        let (reader, visit) = (self.reader, &mut self.visit);
        let BorrowSession { entry, start, segment, lending, first } = &mut self.sessions[session];
        let (start, mut failed) = (*start, None);
        let verify = |ordinal| reader.is_to_be_compared(segment, ordinal);
        let ordinals = positions.start - start..positions.end - start;
        let info = segment.reader.info();
        let lent = segment.reader.lend(lending, ordinals.clone(), verify, |ordinal, view| {
            first.get_or_insert(start + ordinal);
            let id = SampleId { segment: entry.id, ordinal };
            failed = visit(&BorrowedSample { position: start + ordinal, id, source: Source::View(view, info) }).err();
            failed.is_none()
        });
        match (lent, *first) {
            (Ok(visited), _) => {
                let seen = ordinals.start..ordinals.start + visited;
                if reader.verify == Verify::First {
                    segment.compared.insert(seen);
                }
                failed.map_or(Ok(visited), Err)
            }
            (Err(error), Some(first)) => {
                let session = self.sessions.remove(session);
                Err(self.lost(&session, first, error))
            }
            // No sample was visited yet: behave as if none had been borrowed.
            (Err(_), None) => {
                reader.close(entry);
                self.sessions.remove(session);
                Ok(0)
            }
        }
    }

    /// Ends the session of the segment whose first sample is at position `start`: checks that its borrowed samples
    /// were intact.
    fn end(&mut self, start: u64) -> Result<()> {
        let Some(session) = self.of(start) else { return Ok(()) };
        let session = self.sessions.swap_remove(session);
        self.close(&session)
    }

    fn end_all(&mut self) -> Result<()> {
        let sessions = std::mem::take(&mut self.sessions);
        sessions.iter().try_for_each(|session| self.close(session))
    }

    fn close(&self, session: &BorrowSession<'_>) -> Result<()> {
        let Some(first) = session.first else { return Ok(()) };
        session.segment.reader.end_lending(&session.lending).map_err(|error| self.lost(session, first, error))
    }

    /// Returns the error of a session whose samples were visited from position `first` on when the file was found
    /// changed or missing.
    fn lost(&self, session: &BorrowSession<'_>, first: u64, error: Error) -> Error {
        let (reader, entry) = (self.reader, session.entry);
        reader.close(entry);
        let is_elsewhere = |source: &FsError| source.is_gone() || source.is_no_damage();
        if matches!(&error, Error::Fs { source } if is_elsewhere(source)) && !is_of_truncated_map(&error) {
            // Reclaimed, unreachable, or a limit of this process: return the error of a single read.
            return reader.sample_untold(self.manifest, first).err().unwrap_or(error);
        }
        reader.damaged.fetch_add(1, Ordering::Relaxed);
        let generation = self.manifest.summary.generation;
        Error::Damaged {
            generation,
            position: first,
            sample: SampleId { segment: entry.id, ordinal: first - session.start }.to_string(),
            path: reader.ring.layout.read(generation).join(entry.file()),
            message: error.to_string(),
        }
    }
}

/// Returns an empty buffer with room for the given number of bytes.
pub type Memory<'a> = &'a mut dyn FnMut(usize) -> Vec<u8>;

/// One part of all samples of a batch, concatenated.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedPart {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Lengths of the axes of one sample's part; `None` for bytes of different lengths.
    pub shape: Option<Vec<u64>>,
    /// The elements: little endian, row-major.
    pub data: Vec<u8>,
    /// Where each sample's bytes end in `data`; empty if all have the same length.
    pub ends: Vec<usize>,
}

impl StackedPart {
    fn begin(name: String, first: &BorrowedPart<'_>, expected: usize, memory: Memory<'_>) -> StackedPart {
        let room = first.data.len().saturating_mul(expected);
        let mut data = memory(if room > RESERVED { 0 } else { room });
        data.clear();
        data.extend_from_slice(&first.data);
        StackedPart { name, dtype: first.dtype.clone(), shape: Some(first.shape.to_vec()), data, ends: Vec::new() }
    }

    /// Appends the part of another sample; the batch has `count` samples so far. Returns false and appends nothing if
    /// its dtype or shape differs.
    #[inline]
    fn push(&mut self, count: usize, part: &BorrowedPart<'_>) -> bool {
        let is_alike = *part.dtype == self.dtype && self.shape.as_deref().is_none_or(|shape| shape == part.shape);
        if !is_alike {
            if *part.dtype != DType::Bytes || self.dtype != DType::Bytes {
                return false;
            }
            if self.shape.take().is_some() {
                let len = self.data.len() / count.max(1);
                self.ends = (1..=count).map(|n| n * len).collect();
            }
        }
        self.data.extend_from_slice(&part.data);
        if self.shape.is_none() {
            self.ends.push(self.data.len());
        }
        true
    }

    /// Returns the error of a part of sample `id` that cannot be stacked with that of sample `first`.
    fn unlike(&self, of: &Manifest, first: SampleId, part: &BorrowedPart<'_>, id: SampleId, position: u64) -> Error {
        let owner = |id: SampleId| of.locate_id(id.segment).map_or("an unknown generator", |entry| &*entry.owner);
        let (name, shape) = (&self.name, self.shape.as_deref().unwrap_or_default());
        Error::Sample(format!(
            "part {name:?} cannot be stacked: it is {} of shape {shape:?} in sample {first} (written by {}), and {} of \
             shape {:?} in sample {id} (position {position}, written by {}); read these samples one by one",
            self.dtype,
            owner(first),
            part.dtype,
            part.shape,
            owner(id)
        ))
    }
}

/// Many samples, stacked part by part, without their meta.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The generation they were read from.
    pub generation: u64,
    /// Their ids.
    pub ids: Vec<SampleId>,
    /// Their parts, in the order of SAMPLE.
    pub parts: Vec<StackedPart>,
}

impl Reader {
    /// Calls `visit` with the samples at these positions of a generation, in this order. An error of `visit` ends the
    /// visit. Up to 32 positions are taken from the iterator in advance.
    ///
    /// # Errors
    /// As [`Reader::sample`]. After an error, samples of the same segment that were already visited may be wrong,
    /// because the segment may have been truncated.
    pub fn visit(
        &self,
        manifest: &Manifest,
        positions: impl IntoIterator<Item = u64>,
        visit: impl FnMut(&BorrowedSample<'_>) -> Result<()>,
    ) -> Result<()> {
        crate::read::log_truncated_maps();
        let mut visiting = Visiting { reader: self, manifest, sessions: Vec::new(), visit };
        let done = visiting.all(positions.into_iter());
        // Borrowed samples are checked even after an error.
        visiting.end_all().and(done)
    }

    /// Returns the samples at these positions of a generation, stacked part by part. All samples must have the same
    /// element type and, except for bytes, the same shape.
    ///
    /// # Errors
    /// As [`Reader::sample`]; [`Error::Sample`] if they cannot be stacked.
    pub fn batch(
        &self,
        manifest: &Manifest,
        positions: impl IntoIterator<Item = u64, IntoIter: Clone>,
    ) -> Result<Batch> {
        self.batch_in(manifest, positions, &mut Vec::with_capacity)
    }

    /// Returns a batch as [`Reader::batch`] does, in a buffer from `memory` for each part. New memory costs more than
    /// the copy into it, so a caller that reads many batches reuses the buffers of those it no longer needs.
    ///
    /// # Errors
    /// As [`Reader::batch`].
    pub fn batch_in(
        &self,
        manifest: &Manifest,
        positions: impl IntoIterator<Item = u64, IntoIter: Clone>,
        memory: Memory<'_>,
    ) -> Result<Batch> {
        let positions = positions.into_iter();
        match self.stacked(manifest, positions.clone(), memory) {
            // The handle became stale. Open the segment again, since nothing was returned yet.
            Err(Error::Fs { source }) if source.is_gone() || source.is_away() => {
                self.stacked(manifest, positions, memory)
            }
            done => done,
        }
    }

    fn stacked(&self, manifest: &Manifest, positions: impl Iterator<Item = u64>, memory: Memory<'_>) -> Result<Batch> {
        let generation = manifest.summary.generation;
        let expected = positions.size_hint().0.min(manifest.summary.samples as usize);
        let mut batch = Batch { generation, ids: Vec::with_capacity(expected), parts: Vec::new() };
        let names = &self.ring.descriptor.sample;
        self.visit(manifest, positions, |lent| {
            let count = batch.ids.len();
            for n in 0..lent.parts() {
                let part = lent.part(n)?;
                match batch.parts.get_mut(n) {
                    Some(stacked) => {
                        if !stacked.push(count, &part) {
                            let first = batch.ids.first().copied().unwrap_or(lent.id);
                            return Err(stacked.unlike(manifest, first, &part, lent.id, lent.position));
                        }
                    }
                    None if count == 0 => {
                        let name = names.get(n).cloned().unwrap_or_default();
                        batch.parts.push(StackedPart::begin(name, &part, expected, memory));
                    }
                    None => return Err(Error::Sample("samples have different numbers of parts".to_owned())),
                }
            }
            batch.ids.push(lent.id);
            Ok(())
        })?;
        Ok(batch)
    }
}
