//! Files that are written from a plan, and then damaged.
//!
//! The damage consists of noise from a seed, zeros, or bytes of the same file, and not of the input's own bytes,
//! because CRC-32 detects accidents but not deliberate changes with matching checksums, and a fuzzer soon makes them.

use crate::alloc::bounded;
use crate::records::model_all;
use crate::segments::{EXTRA, OPTIONS, Plain, PlainPart, assert_covers, plain_salvaged};
use crate::source::{Chunked, Noise};
use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use ringreel_format::input::SliceInput;
use ringreel_format::recordio::{RecordReader, RecordWriter, ResyncItem, ResyncReader};
use ringreel_format::segment::salvage::{Salvage, SalvageItem};
use ringreel_format::segment::slice::decode_head;
use ringreel_format::segment::walk::{self, SegmentWalk};
use ringreel_format::{
    DType, Meta, PartPlace, PartRef, Sample, SampleRef, Schema, SegmentId, SegmentInfo, SegmentSlice, SegmentWriter,
    Shape, Value, WriteOptions,
};
use std::ops::Range;

/// The contents of a tensor or of a record.
#[derive(Arbitrary, Clone, Debug)]
enum Content {
    Given(Vec<u8>),
    Zeros,
    Noise(u16),
    Magics(u16),
}

impl Content {
    fn bytes(&self, len: usize) -> Vec<u8> {
        match self {
            Content::Given(bytes) => bytes.iter().copied().chain(std::iter::repeat(0)).take(len).collect(),
            Content::Zeros => vec![0; len],
            Content::Noise(seed) => Noise::new(u64::from(*seed)).bytes(len),
            Content::Magics(seed) => Noise::new(u64::from(*seed)).magics(len),
        }
    }
}

/// One change to a file. Positions are taken modulo the length of the file.
#[derive(Arbitrary, Clone, Debug)]
enum Damage {
    FlipBit(u32),
    Overwrite { at: u32, len: u16, seed: u16 },
    Zero { at: u32, len: u16 },
    Copy { from: u32, to: u32, len: u16 },
    Cut(u32),
}

impl Damage {
    fn apply(&self, file: &mut Vec<u8>) {
        let all = file.len();
        if all == 0 {
            return;
        }
        let range = |at: u32, len: u16| {
            let at = at as usize % all;
            at..all.min(at + 1 + usize::from(len))
        };
        match self {
            Damage::FlipBit(bit) => file[*bit as usize / 8 % all] ^= 1 << (bit % 8),
            Damage::Overwrite { at, len, seed } => {
                let range = range(*at, *len);
                let noise = Noise::new(u64::from(*seed)).bytes(range.len());
                file[range].copy_from_slice(&noise);
            }
            Damage::Zero { at, len } => file[range(*at, *len)].fill(0),
            Damage::Copy { from, to, len } => {
                let from = range(*from, *len);
                let to = *to as usize % all;
                let len = from.len().min(all - to);
                file.copy_within(from.start..from.start + len, to);
            }
            Damage::Cut(at) => file.truncate(*at as usize % all),
        }
    }
}

fn up_to<'a, T: Arbitrary<'a>>(
    u: &mut Unstructured<'a>,
    range: std::ops::RangeInclusive<usize>,
) -> arbitrary::Result<Vec<T>> {
    let count = u.int_in_range(range)?;
    (0..count).map(|_| T::arbitrary(u)).collect()
}

/// One part of one sample.
#[derive(Clone, Debug)]
struct PartPlan {
    dtype: DType,
    shape: Shape,
    data: Vec<u8>,
}

impl<'a> Arbitrary<'a> for PartPlan {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<PartPlan> {
        let names = ["bytes", "bool", "u8", "i16", "f32", "u64", "bf16", "c128"];
        let dtype = match u.int_in_range(0..=10)? {
            n @ 0..=7 => DType::from_name(names[n]).unwrap(),
            8 => DType::Unknown { code: u.int_in_range(16..=254)?, itemsize: u.int_in_range(0..=9)? },
            _ => DType::Numpy { descr: String::arbitrary(u)?, itemsize: u.int_in_range(0..=17)? },
        };
        let elements = match u.int_in_range(0..=3)? {
            0 => u.int_in_range(0..=3)?,
            1 | 2 => u.int_in_range(0..=64)?,
            _ => u.int_in_range(0..=2500 / dtype.itemsize().max(1))?,
        };
        let shape = match u.int_in_range(0..=4)? {
            0 if elements == 1 => vec![],
            1 => vec![1, elements, 1],
            2 if elements % 2 == 0 => vec![elements / 2, 2],
            3 if elements == 0 => vec![7, 0, u64::from(u32::arbitrary(u)?)],
            _ => vec![elements],
        };
        let data = Content::arbitrary(u)?.bytes((elements * dtype.itemsize()) as usize);
        Ok(PartPlan { dtype, shape, data })
    }
}

fn value(u: &mut Unstructured<'_>, depth: u32) -> arbitrary::Result<Value> {
    Ok(match u.int_in_range(0..=if depth == 0 { 5 } else { 7 })? {
        0 => Value::Null,
        1 => Value::Bool(bool::arbitrary(u)?),
        2 => Value::Int(if bool::arbitrary(u)? {
            i128::from(u64::arbitrary(u)?)
        } else {
            -1 - i128::from(u64::arbitrary(u)?)
        }),
        3 => Value::Float(f64::arbitrary(u)?),
        4 => Value::Text(String::arbitrary(u)?),
        5 => Value::Bytes(Vec::arbitrary(u)?),
        6 => Value::Array((0..u.int_in_range(0..=3)?).map(|_| value(u, depth - 1)).collect::<arbitrary::Result<_>>()?),
        _ => Value::Map(map(u, depth - 1)?),
    })
}

fn map(u: &mut Unstructured<'_>, depth: u32) -> arbitrary::Result<Meta> {
    let mut meta = Meta::new();
    for _ in 0..u.int_in_range(0..=3)? {
        meta.set(String::arbitrary(u)?, value(u, depth)?);
    }
    Ok(meta)
}

/// A segment, and its damage.
#[derive(Debug)]
struct SegmentPlan {
    info: SegmentInfo,
    options: WriteOptions,
    samples: Vec<(Vec<PartPlan>, Meta, u64)>,
    damages: Vec<Damage>,
}

impl<'a> Arbitrary<'a> for SegmentPlan {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<SegmentPlan> {
        let damages = up_to(u, 1..=3)?;
        let usual: Vec<PartPlan> = up_to(u, 0..=4)?;
        let names: Vec<String> = (0..usual.len()).map(|n| format!("part {n}")).collect();
        let parts = names.iter().zip(&usual).map(|(name, part)| (&name[..], part.dtype.clone(), part.shape.clone()));
        let schema = Schema::new(parts).unwrap();
        let (born, created_unix_ms, first_number) = (u64::arbitrary(u)?, u64::arbitrary(u)?, u64::arbitrary(u)?);
        let info = SegmentInfo {
            id: SegmentId(<[u8; 16]>::arbitrary(u)?),
            born,
            created_unix_ms,
            first_number,
            schema,
            provenance: map(u, 2)?,
        };
        let compress =
            (0..usual.len()).map(|_| Ok(bool::arbitrary(u)?.then_some(1))).collect::<arbitrary::Result<_>>()?;
        let options = WriteOptions { compress, inline_max: u.int_in_range(0..=1500)? };
        let mut samples = Vec::new();
        for _ in 0..u.int_in_range(0..=6)? {
            let mut parts = Vec::new();
            for usual in &usual {
                parts.push(if bool::arbitrary(u)? {
                    PartPlan::arbitrary(u)?
                } else {
                    PartPlan { data: Content::arbitrary(u)?.bytes(usual.data.len()), ..usual.clone() }
                });
            }
            samples.push((parts, map(u, 3)?, u64::arbitrary(u)?));
        }
        Ok(SegmentPlan { info, options, samples, damages })
    }
}

impl SegmentPlan {
    fn write(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = SegmentWriter::begin(&mut file, self.info.clone(), self.options.clone()).unwrap();
        for (parts, meta, unix_ms) in &self.samples {
            let parts: Vec<_> =
                parts.iter().map(|part| PartRef::new(part.dtype.clone(), &part.shape, &part.data)).collect();
            writer.sample(&mut file, &SampleRef { parts: &parts, meta, unix_ms: *unix_ms }).unwrap();
        }
        let sealed = writer.finish(&mut file).unwrap();
        assert_eq!((sealed.len, sealed.samples), (file.len() as u64, self.samples.len() as u64));
        file
    }

    /// The expected contents, without any of the code that wrote them.
    fn model(&self) -> Vec<Plain> {
        let part = |part: &PartPlan| -> PlainPart {
            let data = Ok(Bytes::copy_from_slice(&part.data));
            let data = if matches!(part.dtype, DType::Unknown { .. }) { Err("UnknownDType") } else { data };
            Ok((part.dtype.clone(), part.shape.clone(), data))
        };
        let sample = |(n, (parts, meta, unix_ms)): (usize, &(Vec<PartPlan>, Meta, u64))| Plain {
            ordinal: n as u64,
            unix_ms: self.info.created_unix_ms.max(*unix_ms),
            meta: meta.encode().unwrap(),
            parts: parts.iter().map(part).collect(),
        };
        self.samples.iter().enumerate().map(sample).collect()
    }
}

/// The byte ranges of a sample, its head, and each of its parts, to decide which ones damage touches.
struct Extent {
    all: Range<u64>,
    head: Range<u64>,
    parts: Vec<Range<u64>>,
}

/// Segments, written and damaged. A written segment passes the check and is read back equal by position, in order, and
/// by salvage. After one to three accidents (flipped bits, regions overwritten, lost or misplaced, truncation):
///
/// - the check finds the damage, unless the bytes are unchanged;
/// - reading by position gives each sample unchanged, or an error;
/// - salvage covers the file, loses no intact sample and, in a sample with an intact head, no intact part, and returns
///   nothing that was not written. This holds if the header, or footer and trailer, are intact, or if the footer alone
///   can be found.
pub fn segment_damage(data: &[u8]) {
    let Ok(plan) = SegmentPlan::arbitrary(&mut Unstructured::new(data)) else { return };
    let file = plan.write();
    let model = plan.model();
    let bytes = Bytes::from(file.clone());
    let segment = bounded(file.len(), EXTRA, || SegmentSlice::open(bytes.clone())).unwrap();
    bounded(file.len(), EXTRA, || walk::check(SliceInput::new(&file, 0), OPTIONS.max_part)).unwrap();
    assert_eq!(bounded(file.len(), EXTRA, || by_position(&bytes)), model.iter().cloned().map(Some).collect::<Vec<_>>());
    assert_eq!(walked(&file), model);
    let (whole, skipped) = salvaged(&bytes);
    assert!(skipped == 0 && whole == model, "{whole:?} {model:?}");
    let extents: Vec<Extent> = (0..model.len() as u64).map(|ordinal| extent(&segment, &bytes, ordinal)).collect();

    let mut damaged = file.clone();
    plan.damages.iter().for_each(|damage| damage.apply(&mut damaged));
    if damaged == file {
        return;
    }
    let touched = |range: &Range<u64>| {
        let range = range.start as usize..range.end as usize;
        damaged.get(range.clone()) != Some(&file[range])
    };
    let bytes = Bytes::from(damaged.clone());
    let len = damaged.len();
    assert!(
        bounded(len, EXTRA, || walk::check(SliceInput::new(&damaged, 0), OPTIONS.max_part)).is_err(),
        "damage is not detected: {:?}",
        plan.damages
    );
    for (n, read) in bounded(len, EXTRA, || by_position(&bytes)).into_iter().enumerate() {
        match read {
            Some(read) => assert_eq!(read, model[n], "read by position, a sample differs: {:?}", plan.damages),
            None => assert!(touched(&extents[n].all), "intact sample {n} is lost: {:?}", plan.damages),
        }
    }
    let (saved, _) = bounded(len, EXTRA, || salvaged(&bytes));
    let footer_at = segment.footer().at;
    let header_end = extents.first().map_or(footer_at, |first| first.all.start);
    let has_info = !touched(&(0..header_end)) || !touched(&(footer_at..file.len() as u64 - 32));
    for sample in &saved {
        let (want, extent) = (&model[sample.ordinal as usize], &extents[sample.ordinal as usize]);
        assert_eq!((&sample.meta, sample.unix_ms, sample.parts.len()), (&want.meta, want.unix_ms, want.parts.len()));
        for ((part, want), place) in sample.parts.iter().zip(&want.parts).zip(&extent.parts) {
            match part {
                Ok(_) => assert_eq!(part, want, "salvaged, a part differs: {:?}", plan.damages),
                Err(_) => assert!(touched(place), "an intact part is lost: {:?}", plan.damages),
            }
        }
    }
    for (n, extent) in extents.iter().enumerate().filter(|(_, extent)| has_info && !touched(&extent.head)) {
        let found = saved.iter().any(|sample| sample.ordinal == n as u64);
        assert!(found, "sample {n} at {:?} is lost, although its head is intact: {:?}", extent.all, plan.damages);
    }
}

/// Reads each sample by position; none for unreadable ones. Without a footer all are unreadable.
fn by_position(bytes: &Bytes) -> Vec<Option<Plain>> {
    let Ok(segment) = SegmentSlice::open(bytes.clone()) else { return Vec::new() };
    (0..segment.footer().count).map(|ordinal| segment.sample(ordinal).ok().as_ref().map(plain)).collect()
}

fn plain(sample: &Sample) -> Plain {
    crate::segments::plain(sample)
}

fn walked(file: &[u8]) -> Vec<Plain> {
    let mut walk = SegmentWalk::new(Chunked::new(file), OPTIONS.max_part).unwrap();
    let mut samples = Vec::new();
    while let Some(sample) = walk.next().unwrap() {
        samples.push(plain(&sample.sample().unwrap()));
    }
    samples
}

fn salvaged(bytes: &Bytes) -> (Vec<Plain>, usize) {
    let found: Vec<_> = Salvage::new(bytes.clone(), OPTIONS).collect();
    assert_covers(bytes, &found);
    let samples = found.iter().filter_map(|found| match found {
        SalvageItem::Sample(sample) => Some(plain_salvaged(sample)),
        SalvageItem::Skipped(_) => None,
    });
    let samples: Vec<_> = samples.collect();
    let skipped = found.len() - samples.len();
    (samples, skipped)
}

fn extent(segment: &SegmentSlice, bytes: &Bytes, ordinal: u64) -> Extent {
    let all = segment.footer().extent(ordinal).unwrap().unwrap();
    let sample = bytes.slice(all.start as usize..all.end as usize);
    let (head, _) = decode_head(&sample, all.start, &segment.footer().info).unwrap();
    let end = all.start + ringreel_format::frame::read_record(&sample, 0, 0).unwrap().next as u64;
    let parts = head.parts.iter().map(|part| match &part.place {
        PartPlace::Inline(_) => all.start..end,
        PartPlace::Large { records, .. } => records.frames(),
    });
    Extent { parts: parts.collect(), head: all.start..end, all }
}

/// Records, and the damage to their file.
#[derive(Arbitrary, Debug)]
struct RecordPlan {
    damages: [Option<Damage>; 3],
    /// Words to insert or remove, at a multiple of four.
    shift: Option<(u16, i8, u16)>,
    records: Vec<(Content, u8)>,
}

/// Plain RecordIO, written and damaged. A written file is read back equal. Then bytes are changed in place, the file is
/// truncated, and at one place whole words are inserted or removed.
///
/// Without checksums, only this can be guaranteed and checked: each record whose bytes are all unchanged (and still at
/// a multiple of four) is returned, unchanged and in order. No frame that damage created reaches into it, because its
/// first word is the magic number, and no payload contains that. Any other returned record begins and ends within
/// damaged records: a damaged record may be returned with other bytes, shorter, in pieces, or joined with another
/// damaged one.
pub fn record_damage(data: &[u8]) {
    let Ok(mut plan) = RecordPlan::arbitrary(&mut Unstructured::new(data)) else { return };
    plan.records.truncate(60);
    let payloads: Vec<_> = plan.records.iter().map(|(content, len)| content.bytes(usize::from(*len))).collect();
    let mut writer = RecordWriter::new(Vec::new());
    let offsets: Vec<_> = payloads.iter().map(|payload| writer.write(payload).unwrap()).collect();
    let end = writer.position();
    let file = writer.into_inner();
    assert_eq!(file.len() as u64, end);
    let (records, error) = model_all(&file);
    assert!(error.is_none() && records.iter().map(|record| &record.payload).eq(&payloads));
    let mut reader = RecordReader::new(Chunked::new(&file));
    for (payload, at) in payloads.iter().zip(&offsets) {
        let record = reader.next().unwrap().unwrap();
        assert_eq!((record.payload, record.at), (&payload[..], *at));
    }
    assert!(reader.next().unwrap().is_none());

    let mut damaged = file.clone();
    plan.damages.iter().flatten().for_each(|damage| damage.apply(&mut damaged));
    let (mut at, mut put_in, mut taken_out) = (damaged.len() / 4 * 4, 0, 0);
    if let Some((place, words, seed)) = plan.shift.filter(|_| !damaged.is_empty()) {
        at = usize::from(place) * 4 % damaged.len() / 4 * 4;
        put_in = words.max(0) as usize * 4;
        taken_out = (-i32::from(words)).max(0) as usize * 4;
        taken_out = taken_out.min((damaged.len() - at) / 4 * 4);
        let noise = Noise::new(u64::from(seed)).magics(put_in);
        damaged.splice(at..at + taken_out, noise);
    }
    let now = |range: &Range<usize>| {
        if range.end <= at {
            Some(range.clone())
        } else if range.start >= at + taken_out {
            let moved = |n: usize| n + put_in - taken_out;
            Some(moved(range.start)..moved(range.end))
        } else {
            None
        }
    };
    let ends = offsets.iter().skip(1).copied().chain([end]);
    let extents: Vec<_> = offsets.iter().zip(ends).map(|(begin, end)| *begin as usize..end as usize).collect();
    let untouched =
        |range: &Range<usize>| now(range).filter(|now| damaged.get(now.clone()) == Some(&file[range.clone()]));
    let whole: Vec<_> =
        payloads.iter().zip(&extents).filter_map(|(payload, range)| Some((payload, untouched(range)?))).collect();
    let mut whole = whole.into_iter().peekable();

    let mut reader = ResyncReader::over(&damaged);
    while let Some(found) = reader.next().unwrap() {
        let (begin, end) = match &found {
            ResyncItem::Record(record) => (record.at as usize, record.end as usize),
            ResyncItem::Skipped(region) => (region.begin as usize, region.end as usize),
        };
        let Some((payload, range)) = whole.peek() else { continue };
        match found {
            ResyncItem::Record(record) if begin == range.start => {
                assert_eq!(&record.payload, payload, "an intact record differs");
                whole.next();
            }
            found => {
                assert!(end <= range.start, "{begin}..{end} reaches into an intact record: {found:?}")
            }
        }
    }
    assert!(whole.next().is_none(), "an intact record is lost");
}
