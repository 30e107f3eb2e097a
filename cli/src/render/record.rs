//! What `ringreel inspect --tree` and `--hex` say of records and their bytes.

use crate::output::plain;
use ringreel_format::describe::{Field as Described, FieldKind, FieldValue};
use ringreel_format::frame::FrameHeader;
use ringreel_format::{Meta, PartPlace};
use ringreel_ops::inspect::fields::{Field, FieldFact, Payload, PayloadFact};
use ringreel_ops::inspect::records::{Content, Damage, Record, What};
use serde_json::json;
use std::borrow::Cow;

pub fn record(record: &Record) -> String {
    let splits = match record.splits {
        0 => String::new(),
        1 => ", split once".to_owned(),
        n => format!(", split {n} times"),
    };
    let Record { number, at, end, len, what, .. } = record;
    format!("{number:<5} {at:#010x} to {end:#010x}  {:<8} {len} bytes{splits}: {}", what.name(), plain(&what_is(what)))
}

pub fn record_json(record: &Record) -> serde_json::Value {
    json!({
        "record": record.number, "at": record.at, "end": record.end, "length": record.len, "splits": record.splits,
        "what": record.what.name(), "says": what_is(&record.what),
    })
}

/// What a record is.
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
            format!("of sample {}: {inline} parts inside, {large} in records of their own", head.ordinal)
        }
        What::Pad => "zeros, so that the next payload begins at a multiple of 64".to_owned(),
        What::Tensor { ordinal, part, piece: (_, 1) } => format!("part {part} of sample {ordinal}"),
        What::Tensor { ordinal, part, piece: (n, of) } => {
            format!("part {part} of sample {ordinal}, piece {} of {of}", n + 1)
        }
        What::Footer(footer) => format!("for samples: {}, check {:08x}", footer.count, footer.check),
        What::Trailer => "where the footer is".to_owned(),
        What::Later(kind) => format!("of type {kind:#04x}, which only a later version knows"),
        What::Plain(found) => content(found),
        What::Damage(why) => damage(why),
    }
}

pub fn damage(why: &Damage) -> String {
    match why {
        Damage::Refused(error) => error.to_string(),
        Damage::NoFooter => "the file ends without a footer: it is unfinished, or was cut off".to_owned(),
        Damage::NoPiece { ordinal, part, len } => {
            format!("part {part} of sample {ordinal}: no record of {len} bytes is here, as its head says")
        }
        Damage::NoPad => "this should be a pad: a record of zeros".to_owned(),
        Damage::NoTrailer => "this should be the trailer: the file was cut off, or is unfinished".to_owned(),
        Damage::BehindTrailer => "something follows the trailer".to_owned(),
    }
}

/// What a plain record looks like.
pub fn content(content: &Content) -> String {
    let (id, kind) = (content.id, content.kind.unwrap_or("bytes"));
    match content.labels {
        Some((label, 1)) => format!("MXNet image header (id {id}, label {label}), then {kind}"),
        Some((label, n)) => format!("MXNet image header (id {id}, {n} labels, the first {label}), then {kind}"),
        None => kind.to_owned(),
    }
}

/// The name of some bytes, as in format/SPEC.md.
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
        PayloadFact::Stored(part) => format!("{part}: its stored bytes").into(),
        PayloadFact::Pad => "pad".into(),
        PayloadFact::Plain(_) => "payload".into(),
        PayloadFact::Later(_) | PayloadFact::Unknown => "?".into(),
    }
}

/// What some bytes say.
fn says(field: &Field) -> String {
    match &field.what {
        FieldFact::Magic(None) | FieldFact::Padding => String::new(),
        FieldFact::Magic(Some(parts)) => {
            let part = |part: &Payload| match (payload_name(&part.what), part.goes_on) {
                (name, true) => format!("{name}, goes on"),
                (name, false) => format!("{name}: {}", payload_says(&part.what)),
            };
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("also the same four bytes of the payload, which were left out: {}", parts.join("; "))
        }
        FieldFact::FrameHeader(FrameHeader { flag, len }, found) => {
            let kind = ["a whole record", "first part of a split record", "a middle part", "last part"];
            let kind = kind.get(usize::from(*flag)).unwrap_or(&"?");
            let there = if found < len { format!(", of which {found} are here") } else { String::new() };
            format!("{flag} ({kind}), {len} bytes{there}")
        }
        FieldFact::Payload(payload) if payload.goes_on => "goes on".to_owned(),
        FieldFact::Payload(payload) => payload_says(&payload.what),
        FieldFact::MoreFrames | FieldFact::TooManyFrames => "more frames of this record".to_owned(),
        FieldFact::Damage(why) => format!("understanding ends here: {}", damage(why)),
        FieldFact::NoFrame => "understanding ends here: this is no frame".to_owned(),
    }
}

fn payload_says(what: &PayloadFact) -> String {
    match what {
        PayloadFact::Field(field) => field_says(field),
        PayloadFact::Image(kind) => (*kind).to_owned(),
        PayloadFact::Stored(_) => "nothing but these".to_owned(),
        PayloadFact::Pad => "zeros".to_owned(),
        PayloadFact::Plain(found) => content(found),
        PayloadFact::Later(kind) => format!("of type {kind:#04x}, not known"),
        PayloadFact::Unknown => "understanding ends here: nothing says what this is".to_owned(),
    }
}

fn field_says(field: &Described) -> String {
    match &field.value {
        FieldValue::Number(n) => number_says(field, *n),
        FieldValue::DTypeCode { name, .. } => name.unwrap_or("of a later version").to_owned(),
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
            (FieldKind::Table, _) => "where each sample begins, u64 each".to_owned(),
            (FieldKind::Zero, Some(_)) => "these should be zero".to_owned(),
            (FieldKind::Leftover, _) => "nothing should stand here, in this version of the format".to_owned(),
            (FieldKind::NotUnderstood, Some(why)) => format!("understanding ends here: {why}"),
            _ => String::new(),
        },
    }
}

fn number_says(field: &Described, n: u64) -> String {
    match field.kind {
        FieldKind::Crc if field.error.is_some() => {
            format!("{n:#010x}: DOES NOT MATCH, nothing of what follows can be trusted")
        }
        FieldKind::Crc => format!("{n:#010x}: matches"),
        FieldKind::HeadsCrc | FieldKind::PartCrc => format!("{n:#010x}"),
        FieldKind::Type if n == u64::from(b'S') => "S: head of a sample".to_owned(),
        FieldKind::Type => "F: footer".to_owned(),
        FieldKind::Born => format!("generation {n}"),
        FieldKind::Created => format!("{n} ms after 1970"),
        FieldKind::Time => format!("{n} ms after the segment was begun"),
        FieldKind::Flags => flags(n),
        FieldKind::Count => format!("{n} samples"),
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

/// The table of section 6 of format/SPEC.md.
fn flags(flags: u64) -> String {
    let mut words = vec![if flags & 1 == 0 { "dtype and shape of the schema" } else { "own dtype and shape" }];
    words.push(if flags & 2 == 0 { "inside" } else { "in records of its own" });
    words.push(match flags >> 2 & 3 {
        0 => "plain",
        1 => "zstd",
        _ => "a codec of a later version",
    });
    if flags & 16 != 0 {
        words.push("split");
    }
    if flags & 0xe0 != 0 {
        words.push("and flags that should be zero");
    }
    words.join(", ")
}

/// Sixteen bytes a line: offset, bytes, text, and on the first line what they are.
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

/// One line of `--hex --json`.
pub fn dump_json(record: &Record, field: &Field) -> serde_json::Value {
    let bytes: String = field.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "record": record.number, "at": field.at, "bytes": bytes, "left_out": field.left_out, "name": name(field),
        "says": says(field),
    })
}
