//! Writes samples. The sink belongs to the caller. The writer tracks its position, so that after a failed write the
//! caller can cut the file back to [`SegmentWriter::position`] and write the same sample again.

use super::footer::{Footer, Trailer};
use super::head::{CODEC_SHIFT, LARGE, OWN_SHAPE, SPLIT};
use super::header::SegmentInfo;
use super::pieces::pad_before;
use super::sink::Sink;
use super::{BoundCrc, CHUNK, HeadsCrc, SegmentId, TYPE_SAMPLE};
use crate::dtype::{DType, MAX_NDIM, encode_shape};
use crate::error::{FormatError, Result};
use crate::frame::{self, framed_len, split_points};
use crate::meta::Meta;
use crate::wire::put_varint;
use byteorder::{ByteOrder, LE};
use std::borrow::Cow;
use std::io::Write;
use std::thread;

/// Where a head begins after its frame's header.
const BODY: usize = frame::HEADER_LEN as usize;

/// Bytes that are hashed and searched at a time, so that they are still in the cache for the second pass.
const BLOCK: usize = 1 << 18;

/// Total size of large parts from which they are checked while they are written. Below, a thread costs more than it
/// saves.
const ASIDE: u64 = 1 << 23;

/// Most samples in a segment: their offsets must fit into the footer, which is one record, beside the schema and the
/// provenance.
const MAX_SAMPLES: u64 = 1 << 25;

/// Options for storing samples.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// zstd level for each part of the schema, in its order; missing or `None`: not compressed.
    pub compress: Vec<Option<i32>>,
    /// Parts of at most this many stored bytes are stored in the head record.
    pub inline_max: usize,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions { compress: Vec::new(), inline_max: 1024 }
    }
}

/// One part to be written: little-endian elements in row-major order.
#[derive(Clone, Debug)]
pub struct PartRef<'a> {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: &'a [u64],
    /// The elements' bytes: item size × product of the axes.
    pub data: &'a [u8],
}

impl<'a> PartRef<'a> {
    /// Creates a part.
    pub fn new(dtype: DType, shape: &'a [u64], data: &'a [u8]) -> PartRef<'a> {
        PartRef { dtype, shape, data }
    }
}

/// One sample to be written.
#[derive(Clone, Debug)]
pub struct SampleRef<'a> {
    /// Its parts, in the schema's order.
    pub parts: &'a [PartRef<'a>],
    /// The user's meta.
    pub meta: &'a Meta,
    /// When it was finished, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// Description of a finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its id.
    pub id: SegmentId,
    /// Bytes of the file.
    pub len: u64,
    /// Samples in it.
    pub samples: u64,
    /// The footer's checksum, which covers the whole file.
    pub check: u32,
}

/// Writes one segment.
#[derive(Debug)]
pub struct SegmentWriter {
    info: SegmentInfo,
    options: WriteOptions,
    bound: BoundCrc,
    position: u64,
    offsets: Vec<u64>,
    heads: HeadsCrc,
    /// Buffer for a head and its frame.
    head: Vec<u8>,
    /// Bytes of each part of the schema.
    lens: Vec<u64>,
    /// Whether the framing had to split the last large sample. If so, it most likely has to split the next one.
    splits: bool,
}

/// A part that is ready to be written, compressed or not.
struct Ready<'a> {
    flags: u8,
    stored: Cow<'a, [u8]>,
    /// Set for a large part that was checked.
    check: Option<Check>,
}

/// Fields of a large part in the head that require all of its bytes.
#[derive(Debug, Default)]
struct Check {
    crc: u32,
    /// For each record up to the last one that is split, how often the framing splits it.
    splits: Vec<u64>,
}

impl SegmentWriter {
    /// Writes the header.
    ///
    /// # Errors
    /// A schema or provenance that cannot be encoded; errors of the sink.
    pub fn begin(sink: &mut dyn Write, info: SegmentInfo, options: WriteOptions) -> Result<SegmentWriter> {
        info.schema.check()?;
        let header = info.encode_header()?;
        let position = frame::write_record(sink, &header)?;
        let bound = BoundCrc::new(info.id);
        let lens = info.schema.parts.iter().map(|part| part.dtype.byte_len(&part.shape)).collect::<Result<_>>()?;
        let (offsets, heads, head) = (Vec::new(), HeadsCrc::default(), Vec::new());
        Ok(SegmentWriter { info, options, bound, position, offsets, heads, head, lens, splits: false })
    }

    /// Returns the bytes written so far, without unfinished samples.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the samples written so far.
    pub fn samples(&self) -> u64 {
        self.offsets.len() as u64
    }

    /// Returns the segment's description.
    pub fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// Compresses parts at these levels from the next sample on: [`WriteOptions::compress`].
    pub fn compress(&mut self, levels: Vec<Option<i32>>) {
        self.options.compress = levels;
    }

    /// Writes one sample, from its first byte to its last.
    ///
    /// # Errors
    /// A number of parts that differs from the schema's, data that does not match dtype × shape, more than 2^25
    /// samples: nothing was written. Errors of the sink: the position is still that before the sample.
    pub fn sample(&mut self, sink: &mut dyn Write, sample: &SampleRef<'_>) -> Result<()> {
        self.check_number(sample.parts)?;
        if self.is_small(sample.parts) {
            return self.write_small(sink, sample);
        }
        let ready = self.make_ready(sample.parts)?;
        self.write_checked(sink, sample, ready)
    }

    /// Writes the same bytes as [`SegmentWriter::sample`], in less time for large samples: while another thread
    /// hashes and searches the large parts, they are written to the sink, and then the head with their checksums
    /// overwrites the zeros at its place. If a magic is found, the sample is cut off and written in order. The sink's
    /// position 0 is the segment's.
    ///
    /// # Errors
    /// As [`SegmentWriter::sample`].
    pub fn sample_over(&mut self, sink: &mut dyn Sink, sample: &SampleRef<'_>) -> Result<()> {
        self.check_number(sample.parts)?;
        if self.is_small(sample.parts) {
            return self.write_small(sink, sample);
        }
        let mut ready = self.make_ready(sample.parts)?;
        let large = large(&ready).fold(0, |sum, part| part.stored.len() as u64 + sum);
        if large >= ASIDE && !self.splits && self.write_unchecked(sink, sample, &mut ready)? {
            return Ok(());
        }
        self.write_checked(sink, sample, ready)
    }

    /// Returns whether all parts are stored uncompressed in the head.
    fn is_small(&self, parts: &[PartRef<'_>]) -> bool {
        let options = &self.options;
        options.compress.iter().all(Option::is_none) && parts.iter().all(|part| part.data.len() <= options.inline_max)
    }

    fn write_small(&mut self, sink: &mut (impl Write + ?Sized), sample: &SampleRef<'_>) -> Result<()> {
        self.begin_head(sample)?;
        for (n, part) in sample.parts.iter().enumerate() {
            let flags = self.flags_of(n, part)?;
            put_part(&mut self.head, part, flags, part.data, None);
        }
        let at = self.position;
        let crc = self.end_head(at);
        let end = at + frame::write_framed(sink, &mut self.head)?;
        self.wrote(at, end, crc);
        Ok(())
    }

    fn write_checked(
        &mut self,
        sink: &mut (impl Write + ?Sized),
        sample: &SampleRef<'_>,
        mut ready: Vec<Ready<'_>>,
    ) -> Result<()> {
        for part in ready.iter_mut().filter(|part| part.is_large()) {
            let check = part.check.get_or_insert_with(|| Check::of(&part.stored));
            if !check.splits.is_empty() {
                part.flags |= SPLIT;
            }
        }
        self.splits = ready.iter().any(Ready::is_split);
        let at = self.position;
        let crc = self.encode_head(sample, &ready, at)?;
        let end = at + frame::write_framed(sink, &mut self.head)?;
        let end = write_large(sink, &ready, end)?;
        self.wrote(at, end, crc);
        Ok(())
    }

    /// Writes a sample while it is checked. Returns false, with nothing written, if it must be written in order.
    fn write_unchecked(
        &mut self,
        sink: &mut dyn Sink,
        sample: &SampleRef<'_>,
        ready: &mut [Ready<'_>],
    ) -> Result<bool> {
        let at = self.position;
        self.encode_head(sample, ready, at)?;
        if !frame::frame_whole(&mut self.head) {
            return Ok(false);
        }
        self.head.fill(0);
        let head = &self.head;
        let written = thread::scope(|scope| {
            let parts = &*ready;
            let look = move || large(parts).map(|part| Check::of(&part.stored)).collect::<Vec<_>>();
            let Ok(looking) = thread::Builder::new().spawn_scoped(scope, look) else { return Ok(None) };
            sink.write_all(head)?;
            let end = write_large(sink, parts, at + head.len() as u64)?;
            Result::Ok(looking.join().ok().map(|checks| (end, checks)))
        })?;
        if let Some((end, checks)) = written {
            for (part, check) in ready.iter_mut().filter(|part| part.is_large()).zip(checks) {
                part.check = Some(check);
            }
            let crc = self.encode_head(sample, ready, at)?;
            let is_whole = !ready.iter().any(Ready::is_split) && frame::frame_whole(&mut self.head);
            // If the sink cannot be overwritten, writing in order reports its error, if there is one.
            if is_whole && sink.write_over(at, &self.head).is_ok() {
                self.wrote(at, end, crc);
                return Ok(true);
            }
        }
        sink.cut(at)?;
        Ok(false)
    }

    fn wrote(&mut self, at: u64, end: u64, crc: u32) {
        self.position = end;
        self.offsets.push(at);
        self.heads.push(crc);
    }

    /// Writes the footer and the trailer. May be repeated after an error if the file was cut back.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn finish(&mut self, sink: &mut dyn Write) -> Result<Sealed> {
        let (footer, check) = Footer::encode(&self.info, &self.offsets, self.heads.finish(), self.position)?;
        let footer_len = frame::write_record(sink, &footer)?;
        let trailer = Trailer { footer_at: self.position }.encode();
        sink.write_all(&trailer)?;
        let len = self.position + footer_len + trailer.len() as u64;
        Ok(Sealed { id: self.info.id, len, samples: self.samples(), check })
    }

    fn check_number(&self, parts: &[PartRef<'_>]) -> Result<()> {
        if self.samples() == MAX_SAMPLES {
            let (what, limit) = ("samples of a segment", MAX_SAMPLES);
            return Err(FormatError::TooLarge { what, value: MAX_SAMPLES + 1, limit });
        }
        let schema = &self.info.schema.parts;
        if parts.len() != schema.len() {
            let names = schema.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ");
            let (given, wanted) = (parts.len(), schema.len());
            return Err(FormatError::Input(format!("a sample has {given} parts, expected {wanted}: {names}")));
        }
        Ok(())
    }

    /// Returns the flag for a dtype and shape that differ from the schema's; an error if the data does not match
    /// them.
    #[inline]
    fn flags_of(&self, n: usize, part: &PartRef<'_>) -> Result<u8> {
        let expected = &self.info.schema.parts[n];
        let have = part.data.len() as u64;
        let own = part.dtype != expected.dtype || !part.shape.iter().eq(&expected.shape); // few axes: no call
        if !own && have == self.lens[n] {
            return Ok(0);
        }
        part.dtype.check()?;
        let want = part.dtype.byte_len(part.shape)?;
        if want != have || part.shape.len() > MAX_NDIM {
            let (name, dtype, shape) = (&expected.name, &part.dtype, part.shape);
            let message = format!("part {name:?} has {have} bytes; {dtype} of shape {shape:?} has {want}");
            return Err(FormatError::Input(message));
        }
        Ok(OWN_SHAPE)
    }

    fn make_ready<'a>(&self, parts: &[PartRef<'a>]) -> Result<Vec<Ready<'a>>> {
        let mut ready = Vec::with_capacity(parts.len());
        for (n, part) in parts.iter().enumerate() {
            let level = self.options.compress.get(n).copied().flatten();
            ready.push(self.store(part, level, self.flags_of(n, part)?)?);
        }
        Ok(ready)
    }

    fn store<'a>(&self, part: &PartRef<'a>, level: Option<i32>, mut flags: u8) -> Result<Ready<'a>> {
        let mut stored = Cow::Borrowed(part.data);
        if let Some(level) = level.filter(|_| !part.data.is_empty()) {
            let packed = zstd::bulk::compress(part.data, level)?;
            if packed.len() < part.data.len() {
                flags |= 1 << CODEC_SHIFT;
                stored = Cow::Owned(packed);
            }
        }
        if stored.len() > self.options.inline_max {
            flags |= LARGE;
        }
        Ok(Ready { flags, stored, check: None })
    }

    /// Writes the head to `self.head`, after room for its frame's header. Returns its checksum.
    fn encode_head(&mut self, sample: &SampleRef<'_>, ready: &[Ready<'_>], at: u64) -> Result<u32> {
        self.begin_head(sample)?;
        for (part, ready) in sample.parts.iter().zip(ready) {
            put_part(&mut self.head, part, ready.flags, &ready.stored, ready.check.as_ref());
        }
        Ok(self.end_head(at))
    }

    fn begin_head(&mut self, sample: &SampleRef<'_>) -> Result<()> {
        let samples = self.samples();
        let out = &mut self.head;
        out.clear();
        out.extend_from_slice(&[0; BODY + 4]);
        out.push(TYPE_SAMPLE);
        put_varint(out, samples);
        put_varint(out, sample.unix_ms.saturating_sub(self.info.created_unix_ms));
        if sample.meta.is_empty() {
            out.push(0);
            return Ok(());
        }
        let meta = sample.meta.encode()?;
        put_varint(out, meta.len() as u64);
        out.extend_from_slice(&meta);
        Ok(())
    }

    fn end_head(&mut self, at: u64) -> u32 {
        // The checksum also covers the offset, which is temporarily stored before the body.
        let out = &mut self.head;
        LE::write_u64(&mut out[BODY - 4..], at);
        let crc = self.bound.of_placed(&out[BODY - 4..]);
        LE::write_u32(&mut out[BODY..], crc);
        crc
    }

    /// Estimates the bytes that this sample takes, to check for room on the disk. Counts meta with 1 KiB. The sample
    /// may take more if a part has many magics.
    pub fn estimate(sample: &SampleRef<'_>) -> u64 {
        let parts = sample.parts.iter().map(|part| framed_len(part.data.len() as u64, 0) + 256).sum::<u64>();
        parts + if sample.meta.is_empty() { 64 } else { 1024 }
    }
}

/// Appends one part to a head.
#[inline]
fn put_part(out: &mut Vec<u8>, part: &PartRef<'_>, flags: u8, stored: &[u8], check: Option<&Check>) {
    out.push(flags);
    if flags & OWN_SHAPE != 0 {
        part.dtype.encode(out);
        encode_shape(part.shape, out);
    }
    if flags >> CODEC_SHIFT & 3 != 0 {
        put_varint(out, stored.len() as u64);
    }
    if flags & LARGE == 0 {
        out.extend_from_slice(stored);
        return;
    }
    let crc = check.map_or(0, |check| check.crc);
    out.extend_from_slice(&crc.to_le_bytes());
    if flags & SPLIT != 0 {
        records(stored, check).for_each(|(_, splits)| put_varint(out, splits));
    }
}

impl Ready<'_> {
    fn is_large(&self) -> bool {
        self.flags & LARGE != 0
    }

    fn is_split(&self) -> bool {
        self.check.as_ref().is_some_and(|check| !check.splits.is_empty())
    }
}

impl Check {
    fn of(stored: &[u8]) -> Check {
        let mut crc = crc32fast::Hasher::new();
        let mut splits = Vec::new();
        for (n, chunk) in chunk_slices(stored).enumerate() {
            let mut count = 0;
            for block in chunk.chunks(BLOCK) {
                crc.update(block);
                count += split_points(block).count() as u64;
            }
            if count > 0 {
                splits.resize(n, 0);
                splits.push(count);
            }
        }
        Check { crc: crc.finalize(), splits }
    }
}

fn large<'r, 'a>(ready: &'r [Ready<'a>]) -> impl Iterator<Item = &'r Ready<'a>> {
    ready.iter().filter(|part| part.is_large())
}

/// Writes the records of the large parts after `end`. Parts that were not checked are written unsplit. Returns where
/// they end.
fn write_large(sink: &mut (impl Write + ?Sized), ready: &[Ready<'_>], mut end: u64) -> Result<u64> {
    for part in large(ready) {
        for (chunk, splits) in records(&part.stored, part.check.as_ref()) {
            if let Some(pad) = pad_before(end) {
                end += frame::write_zeros(sink, pad as usize)?;
            }
            end += match splits {
                0 => frame::write_unsplit(sink, chunk)?,
                _ => frame::write_record(sink, chunk)?,
            };
        }
    }
    Ok(end)
}

/// Returns the payload of each record of a large part, and how often the framing splits it.
fn records<'a>(stored: &'a [u8], check: Option<&'a Check>) -> impl Iterator<Item = (&'a [u8], u64)> {
    let splits = check.map_or(&[][..], |check| &check.splits);
    chunk_slices(stored).zip(splits.iter().copied().chain(std::iter::repeat(0)))
}

fn chunk_slices(stored: &[u8]) -> impl Iterator<Item = &[u8]> {
    let empty = stored.is_empty().then_some(stored);
    stored.chunks(CHUNK as usize).chain(empty)
}
