//! The library's result for a file, in the form of an expected outcome.

use super::json::{Json, error, hex8, stretch};
use super::model::crc32;
use super::written::{codec_json, info_json, part_json, sample_json, segment_json};
use bytes::Bytes;
use ringreel_format::recordio::{RecordReader, Region, ResyncItem, ResyncReader, index, list};
use ringreel_format::segment::salvage::{Salvage, SalvageItem};
use ringreel_format::segment::walk::SegmentWalk;
use ringreel_format::{
    Codec, DType, FormatError, Head, Meta, Part, PartHead, PartPlace, PartRef, ReadOptions, Result, SampleRef, Schema,
    SegmentInfo, SegmentSlice, SegmentWriter, Value, WriteOptions,
};

const MAX_PART: u64 = 1 << 40;

fn refusal(why: &FormatError) -> Json {
    let Json::Object(mut fields) = error(why.name(), why.at()) else { return Json::Null };
    if let FormatError::BadLine { line, .. } = why {
        fields.push(("line", (*line).into()));
    }
    Json::Object(fields)
}

fn value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(n) => (*n).into(),
        Value::Float(x) => Json::Object(vec![("f64", format!("{:016x}", x.to_bits()).into())]),
        Value::Text(text) => text[..].into(),
        Value::Bytes(bytes) => Json::Object(vec![("bytes", super::json::hex(bytes))]),
        Value::Array(items) => Json::Object(vec![("array", Json::List(items.iter().map(self::value).collect()))]),
        Value::Map(meta) => map(meta),
    }
}

fn map(meta: &Meta) -> Json {
    let entries = meta.iter().map(|(key, entry)| Json::List(vec![key.into(), value(entry)]));
    Json::Object(vec![("map", Json::List(entries.collect()))])
}

fn dtype(dtype: &DType) -> Json {
    let (name, more) = match dtype {
        DType::Numpy { descr, .. } => (Some("numpy".to_owned()), Some(("descr", descr[..].into()))),
        DType::Unknown { code, .. } => (None, Some(("code", (*code).into()))),
        plain => (Some(plain.to_string()), None),
    };
    let mut out = vec![("name", name.into()), ("itemsize", dtype.itemsize().into())];
    out.extend(more);
    Json::Object(out)
}

fn info(info: &SegmentInfo) -> Json {
    let part = |part: &ringreel_format::PartSchema| {
        let fields =
            vec![("name", part.name[..].into()), ("dtype", dtype(&part.dtype)), ("shape", part.shape.clone().into())];
        Json::Object(fields)
    };
    let numbers = [info.born, info.created_unix_ms, info.first_number];
    info_json(&info.id.0, numbers, info.schema.parts.iter().map(part).collect(), map(&info.provenance))
}

fn tensor(part: &Part) -> std::result::Result<u32, Json> {
    part.data().map(|data| crc32(data)).map_err(|why| refusal(&why))
}

fn part(name: &str, head: &PartHead, part: &Part) -> Json {
    let codec = match head.codec {
        Codec::Plain => 0,
        Codec::Zstd => 1,
        Codec::Unknown(code) => code,
    };
    let (large, splits) = match &head.place {
        PartPlace::Inline(_) => (false, Vec::new()),
        PartPlace::Large { records, .. } => {
            let splits = |len: u64, taken: u64| (taken - 8 - len.next_multiple_of(4)) / 4;
            (true, records.iter().map(|piece| splits(piece.len, piece.frames.end - piece.frames.start)).collect())
        }
    };
    part_json(name, dtype(&head.dtype), &head.shape, codec_json(codec), large, head.stored_len, splits, tensor(part))
}

fn sample(head: &Head, schema: &Schema, parts: &[Part]) -> Json {
    let rows = head.parts.iter().zip(&schema.parts).zip(parts);
    let parts = rows.map(|((head, named), found)| part(&named.name, head, found)).collect();
    sample_json(head.at, head.end, head.ordinal, head.unix_ms, head.crc, map(&head.meta), parts)
}

/// Returns the result of checking the segment from front to back.
fn check(bytes: &[u8]) -> Result<Json> {
    let mut walk = SegmentWalk::new(bytes, MAX_PART)?;
    let (head, schema) = (info(walk.info()), walk.info().schema.clone());
    let mut samples = Vec::new();
    while let Some(found) = walk.next()? {
        samples.push(sample(found.head, &schema, &found.sample()?.parts));
    }
    let footer = walk.footer().unwrap();
    // The header record is the first. Its payload begins at 8, or, if the record is split there, at 24 or later.
    Ok(segment_json(bytes[17], head, samples, (footer.at, footer.count, footer.heads_crc, footer.check)))
}

/// Returns ordinal, time, meta and parts of each sample, read by position.
pub fn by_position(bytes: &[u8]) -> Result<Json> {
    let segment = SegmentSlice::open(Bytes::copy_from_slice(bytes))?;
    let mut samples = Vec::new();
    for n in 0..segment.footer().count {
        let extent = segment.footer().extent(n)?.unwrap();
        let sample = segment.sample(n)?;
        let parts = sample.parts.iter().map(|part| {
            let result = tensor(part).map_or_else(|error| error, hex8);
            Json::List(vec![dtype(&part.dtype), part.shape.clone().into(), result])
        });
        samples.push(Json::List(vec![
            extent.start.into(),
            sample.ordinal.into(),
            sample.unix_ms.into(),
            map(&sample.meta),
            Json::List(parts.collect()),
        ]));
    }
    Ok(Json::List(vec![info(&segment.footer().info), Json::List(samples)]))
}

/// Returns the part of an outcome that [`by_position`] returns.
pub fn of_position(outcome: &Json) -> Json {
    let part = |part: &Json| {
        let result = field(part, "crc32").or(field(part, "error"));
        Json::List(vec![field(part, "dtype").unwrap(), field(part, "shape").unwrap(), result.unwrap()])
    };
    let sample = |sample: &Json| {
        let Some(Json::List(parts)) = field(sample, "parts") else { return Json::Null };
        let fields = ["at", "ordinal", "unix_ms", "meta"].map(|key| field(sample, key).unwrap());
        Json::List([&fields[..], &[Json::List(parts.iter().map(part).collect())]].concat())
    };
    let Some(Json::List(samples)) = field(outcome, "samples") else { return Json::Null };
    Json::List(vec![field(outcome, "info").unwrap(), Json::List(samples.iter().map(sample).collect())])
}

/// Returns the value of this key.
pub fn field(json: &Json, key: &str) -> Option<Json> {
    let Json::Object(fields) = json else { return None };
    fields.iter().find(|field| field.0 == key).map(|field| field.1.clone())
}

fn skipped(region: &Region) -> Json {
    stretch(region.begin, region.end, region.why.name())
}

fn salvage(bytes: &[u8]) -> Json {
    let options = ReadOptions { max_part: MAX_PART, ..ReadOptions::default() };
    let (mut samples, mut stretches) = (Vec::new(), Vec::new());
    for found in Salvage::new(Bytes::copy_from_slice(bytes), options) {
        match found {
            SalvageItem::Skipped(region) => stretches.push(skipped(&region)),
            SalvageItem::Sample(sample) => {
                let crc = |part: &Part| part.data().map(|data| crc32(data)).map_err(|why| why.name());
                let part = |part: &Result<Part>| match part.as_ref().map_err(FormatError::name).and_then(crc) {
                    Ok(crc) => hex8(crc),
                    Err(name) => name.into(),
                };
                let parts = sample.parts.iter().map(part).collect::<Vec<_>>();
                samples.push(Json::Object(vec![
                    ("ordinal", sample.ordinal.into()),
                    ("at", sample.at.into()),
                    ("parts", parts.into()),
                ]));
            }
        }
    }
    Json::Object(vec![("samples", samples.into()), ("skipped", stretches.into())])
}

fn records(bytes: &[u8]) -> Result<Json> {
    let (mut reader, mut records) = (RecordReader::over(bytes), Vec::new());
    while let Some(record) = reader.next()? {
        records.push(super::plain::record_json(record.at, record.payload, record.splits));
    }
    Ok(super::plain::records_json(records))
}

fn resync(bytes: &[u8]) -> Json {
    let (mut records, mut stretches) = (Vec::new(), Vec::new());
    let mut reader = ResyncReader::over(bytes);
    while let Some(found) = reader.next().unwrap() {
        match found {
            ResyncItem::Record(record) => records.push(super::plain::found_json(record.at, record.payload)),
            ResyncItem::Skipped(region) => stretches.push(skipped(&region)),
        }
    }
    Json::Object(vec![("records", Json::List(records)), ("skipped", Json::List(stretches))])
}

fn entries(bytes: &[u8]) -> Result<Json> {
    let entry = |entry: Result<index::Entry<'_>>| entry.map(|entry| super::plain::entry_json(entry.key, entry.offset));
    Ok(super::plain::entries_json("idx", index::entries(bytes).map(entry).collect::<Result<_>>()?))
}

fn items(bytes: &[u8]) -> Result<Json> {
    let item = |item: Result<list::Item<'_>>| {
        let item = item?;
        Ok(super::plain::item_json(item.index, &item.labels().collect::<Vec<_>>(), item.path))
    };
    Ok(super::plain::entries_json("lst", list::items(bytes).map(item).collect::<Result<_>>()?))
}

/// Returns the outcome of a file of this kind.
pub fn outcome(bytes: &[u8], kind: &str) -> Json {
    let read = match kind {
        "segment" => check(bytes),
        "recordio" => records(bytes),
        "idx" => entries(bytes),
        _ => items(bytes),
    };
    let why = match read {
        Ok(outcome) => return outcome,
        Err(why) => why,
    };
    let mut out = vec![("kind", kind.into()), ("error", refusal(&why))];
    match kind {
        "segment" => out.push(("salvage", salvage(bytes))),
        "recordio" => out.push(("resync", resync(bytes))),
        _ => {}
    }
    Json::Object(out)
}

/// Writes the samples of a segment again. Returns `None` if the writer would store a part in another way: compressed,
/// of a later version, or large although a part of the same length is in a head.
pub fn written_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut walk = SegmentWalk::new(bytes, MAX_PART).unwrap();
    let (info, mut samples, mut inline, mut large) = (walk.info().clone(), Vec::new(), 0, usize::MAX);
    while let Some(found) = walk.next().unwrap() {
        for part in &found.head.parts {
            let len = part.stored_len as usize;
            match part.place {
                PartPlace::Inline(_) => inline = inline.max(len),
                PartPlace::Large { .. } => large = large.min(len),
            }
            if part.codec != Codec::Plain {
                return None;
            }
        }
        samples.push(found.sample().unwrap());
    }
    if inline >= large {
        return None;
    }
    let mut out = Vec::new();
    let options = WriteOptions { inline_max: inline, ..WriteOptions::default() };
    let mut writer = SegmentWriter::begin(&mut out, info, options).unwrap();
    for sample in &samples {
        let parts: Vec<_> = sample
            .parts
            .iter()
            .map(|part| Some(PartRef::new(part.dtype.clone(), &part.shape, part.data().ok()?)))
            .collect::<Option<_>>()?;
        let sample = SampleRef { parts: &parts, meta: &sample.meta, unix_ms: sample.unix_ms };
        writer.sample(&mut out, &sample).unwrap();
    }
    writer.finish(&mut out).unwrap();
    Some(out)
}
