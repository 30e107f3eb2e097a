//! Output of `ringreel inspect --tree` and `--hex`: records and their bytes.

use crate::humanize::counted;
use crate::output::plain;
use ringreel_format::describe::{Field as Described, FieldKind, FieldValue};
use ringreel_format::frame::FrameHeader;
use ringreel_format::{Meta, PartPlace};
use ringreel_ops::inspect::fields::{Field, FieldFact, Payload, PayloadFact};
use ringreel_ops::inspect::records::{Content, Damage, Record, What};
use serde_json::json;
use std::borrow::Cow;

/// Describes a record in one line.
pub fn record(record: &Record) -> String {
    let splits = match record.splits {
        0 => String::new(),
        1 => ", split once".to_owned(),
        n => format!(", split {n} times"),
    };
    let Record { number, at, end, len, what, .. } = record;
    format!("{number:<5} {at:#010x} to {end:#010x}  {:<8} {len} bytes{splits}: {}", what.name(), plain(&what_is(what)))
}

/// Describes a record as JSON.
pub fn record_json(record: &Record) -> serde_json::Value {
    json!({
        "record": record.number, "at": record.at, "end": record.end, "length": record.len, "splits": record.splits,
        "what": record.what.name(), "says": what_is(&record.what),
    })
}

fn what_is(what: &What) -> String {
    match what {
        What::Header(info) => {
            let part = |part: &ringreel_format::PartSchema| format!("{} {} {:?}", part.name, part.dtype, part.shape);
            let parts: Vec<String> = info.schema.parts.iter().map(part).collect();
            format!("segment {}, born in generation {}: {}", info.id, info.born, parts.join(", "))
        }
        What::Head(head) => {
            let inline = head.parts.iter().filter(|part| matches!(part.place, PartPlace::Inline(_))).count();
            let large = head.parts.len() - inline;
            let parts = counted(inline as u64, "part");
            format!("of sample {}: {parts} inline, {large} in separate records", head.ordinal)
        }
        What::Pad => "zeros that align the next payload to 64 bytes".to_owned(),
        What::Tensor { ordinal, part, piece: (_, 1) } => format!("part {part} of sample {ordinal}"),
        What::Tensor { ordinal, part, piece: (n, of) } => {
            format!("part {part} of sample {ordinal}, piece {} of {of}", n + 1)
        }
        What::Footer(footer) => format!("of {}, check value {:08x}", counted(footer.count, "sample"), footer.check),
        What::Trailer => "offset of the footer".to_owned(),
        What::Later(kind) => format!("of unknown type {kind:#04x}, from a later version of the format"),
        What::Plain(found) => content(found),
        What::Damage(why) => damage(why),
    }
}

/// Describes damage in a file.
pub fn damage(why: &Damage) -> String {
    match why {
        Damage::Refused(error) => error.to_string(),
        Damage::NoFooter => "no footer at the end of the file: unfinished or truncated".to_owned(),
        Damage::NoPiece { ordinal, part, len } => {
            format!(
                "part {part} of sample {ordinal}: the head announces a record of {len} bytes here, but it is missing"
            )
        }
        Damage::NoPad => "expected a padding record (zeros) here".to_owned(),
        Damage::NoTrailer => "expected the trailer here: the file is unfinished or truncated".to_owned(),
        Damage::BehindTrailer => "unexpected data after the trailer".to_owned(),
    }
}

/// Describes the apparent content of a plain record.
pub fn content(content: &Content) -> String {
    let (id, kind) = (content.id, content.kind.unwrap_or("bytes"));
    match content.labels {
        Some((label, 1)) => format!("MXNet image header (id {id}, label {label}), then {kind}"),
        Some((label, n)) => format!("MXNet image header (id {id}, {n} labels, the first is {label}), then {kind}"),
        None => kind.to_owned(),
    }
}

/// Returns the name of some bytes, as in format/SPEC.md.
fn name(field: &Field) -> Cow<'static, str> {
    match &field.what {
        FieldFact::Magic(_) => "magic".into(),
        FieldFact::FrameHeader(..) => "flag and length".into(),
        FieldFact::Padding => "padding".into(),
        FieldFact::Payload(payload) => payload_name(&payload.what),
        FieldFact::MoreFrames => "...".into(),
        FieldFact::TooManyFrames | FieldFact::Damage(_) | FieldFact::NoFrame => "?".into(),
    }
}

fn payload_name(what: &PayloadFact) -> Cow<'static, str> {
    match what {
        PayloadFact::Field(field) => field.name().into(),
        PayloadFact::Image(_) => FieldKind::ImageContent.to_string().into(),
        PayloadFact::Stored(part) => format!("stored bytes of {part}").into(),
        PayloadFact::Pad => "pad".into(),
        PayloadFact::Plain(_) => "payload".into(),
        PayloadFact::Later(_) | PayloadFact::Unknown => "?".into(),
    }
}

/// Describes the meaning of some bytes.
fn says(field: &Field) -> String {
    match &field.what {
        FieldFact::Magic(None) | FieldFact::Padding => String::new(),
        FieldFact::Magic(Some(parts)) => {
            let part = |part: &Payload| match (payload_name(&part.what), part.goes_on) {
                (name, true) => format!("{name}, continued"),
                (name, false) => format!("{name}: {}", payload_says(&part.what)),
            };
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("stands for the same four bytes of the payload: {}", parts.join("; "))
        }
        FieldFact::FrameHeader(FrameHeader { flag, len }, found) => {
            let kind = ["whole record", "first frame of a split record", "middle frame", "last frame"];
            let kind = kind.get(usize::from(*flag)).unwrap_or(&"?");
            let there = if found < len { format!(", of which {found} are present") } else { String::new() };
            format!("{flag} ({kind}), {len} bytes{there}")
        }
        FieldFact::Payload(payload) if payload.goes_on => "continued".to_owned(),
        FieldFact::Payload(payload) => payload_says(&payload.what),
        FieldFact::MoreFrames | FieldFact::TooManyFrames => "more frames of this record".to_owned(),
        FieldFact::Damage(why) => format!("cannot be decoded: {}", damage(why)),
        FieldFact::NoFrame => "cannot be decoded: not a frame".to_owned(),
    }
}

fn payload_says(what: &PayloadFact) -> String {
    match what {
        PayloadFact::Field(field) => field_says(field),
        PayloadFact::Image(kind) => (*kind).to_owned(),
        PayloadFact::Stored(_) => "the whole payload".to_owned(),
        PayloadFact::Pad => "zeros".to_owned(),
        PayloadFact::Plain(found) => content(found),
        PayloadFact::Later(kind) => format!("of unknown type {kind:#04x}"),
        PayloadFact::Unknown => "cannot be decoded: unknown contents".to_owned(),
    }
}

fn field_says(field: &Described) -> String {
    match &field.value {
        FieldValue::Number(n) => number_says(field, *n),
        FieldValue::DTypeCode { name, .. } => name.unwrap_or("unknown, from a later version").to_owned(),
        FieldValue::Text(text) => format!("{text:?}"),
        FieldValue::Id(id) => id.to_string(),
        FieldValue::Map(Ok(meta)) if meta.is_empty() => "CBOR, an empty map".to_owned(),
        FieldValue::Map(Ok(meta)) => format!("CBOR, with the keys {}", keys(meta)),
        FieldValue::Map(Err(why)) => format!("CBOR that cannot be read: {why}"),
        FieldValue::Labels(labels) => {
            let some: Vec<String> = labels.iter().take(8).map(ToString::to_string).collect();
            some.join(", ") + if labels.len() > 8 { ", ..." } else { "" }
        }
        FieldValue::Bytes => match (field.kind, &field.error) {
            (FieldKind::Signature, _) => "RINGREEL".to_owned(),
            (FieldKind::Tag, _) => "REELTAIL".to_owned(),
            (FieldKind::Table, _) => "offset of each sample, u64 each".to_owned(),
            (FieldKind::Zero, Some(_)) => "should be zero".to_owned(),
            (FieldKind::Leftover, _) => "unexpected in this version of the format".to_owned(),
            (FieldKind::NotUnderstood, Some(why)) => format!("cannot be decoded: {why}"),
            _ => String::new(),
        },
    }
}

fn number_says(field: &Described, n: u64) -> String {
    match field.kind {
        FieldKind::Crc if field.error.is_some() => {
            format!("{n:#010x}: DOES NOT MATCH, the following bytes cannot be trusted")
        }
        FieldKind::Crc => format!("{n:#010x}: matches"),
        FieldKind::HeadsCrc | FieldKind::PartCrc => format!("{n:#010x}"),
        FieldKind::Type if n == u64::from(b'S') => "S: head of a sample".to_owned(),
        FieldKind::Type => "F: footer".to_owned(),
        FieldKind::Born => format!("generation {n}"),
        FieldKind::Created => format!("Unix time {n} ms"),
        FieldKind::Time => format!("{n} ms after the segment's creation"),
        FieldKind::Flags => flags(n),
        FieldKind::Count => counted(n, "sample"),
        FieldKind::FooterAt => format!("{n} ({n:#x})"),
        FieldKind::ImageFlag if n == 0 => "0: the label is in the header".to_owned(),
        FieldKind::ImageFlag => format!("{n} labels follow the header"),
        FieldKind::ImageLabel => f32::from_bits(n as u32).to_string(),
        _ => n.to_string(),
    }
}

fn keys(meta: &Meta) -> String {
    let names: Vec<String> = meta.iter().take(8).map(|(key, _)| format!("{key:?}")).collect();
    names.join(", ") + if meta.len() > 8 { ", ..." } else { "" }
}

/// Describes the flags of a part, by the table in section 6 of format/SPEC.md.
fn flags(flags: u64) -> String {
    let mut words = vec![if flags & 1 == 0 { "dtype and shape of the schema" } else { "own dtype and shape" }];
    words.push(if flags & 2 == 0 { "inline" } else { "in separate records" });
    words.push(match flags >> 2 & 3 {
        0 => "plain",
        1 => "zstd",
        _ => "unknown codec, from a later version",
    });
    if flags & 16 != 0 {
        words.push("split");
    }
    if flags & 0xe0 != 0 {
        words.push("unknown flags, which should be zero");
    }
    words.join(", ")
}

/// Dumps sixteen bytes per line: offset, bytes, text, and on the first line their meaning.
pub fn dump(field: &Field) -> Vec<String> {
    let text = |bytes: &[u8]| -> String {
        let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        bytes.iter().map(shown).collect()
    };
    let says = match says(field) {
        says if says.is_empty() => says,
        says => format!(": {}", plain(&says)),
    };
    let mut name = format!("{}{says}", plain(&name(field)));
    let mut out = Vec::new();
    for (n, bytes) in field.bytes.chunks(16).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let at = field.at + 16 * n as u64;
        out.push(
            format!("  {at:08x}  {:<47}  {:<16}  {}", hex.join(" "), text(bytes), std::mem::take(&mut name))
                .trim_end()
                .to_owned(),
        );
    }
    if field.bytes.is_empty() {
        out.push(format!("  {:08x}  {:<47}  {:<16}  {name}", field.at, "", ""));
    }
    if field.left_out > 0 {
        out.push(format!("            ... {} more bytes, not shown", field.left_out));
    }
    out
}

/// Returns one line of `--hex --json`.
pub fn dump_json(record: &Record, field: &Field) -> serde_json::Value {
    let bytes: String = field.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "record": record.number, "at": field.at, "bytes": bytes, "left_out": field.left_out, "name": name(field),
        "says": says(field),
    })
}
