//! What `ringreel inspect` says, in lines.

use crate::formats::json::meta_json;
use crate::output::{plain, plain_path};
use ringreel::humanize::{counted, human_bytes, human_seconds};
use ringreel::value_stats::Range;
use ringreel_format::Codec;
use ringreel_ops::inspect::fields::Field;
use ringreel_ops::inspect::file::{Records, Segment};
use ringreel_ops::inspect::records::Record;
use ringreel_ops::inspect::sample_stats::{Glance, PartGlance};
use ringreel_ops::inspect::summary::{Generation, Odd, Ring, Share, State};
use ringreel_ops::inspect::tree::Entry;
use serde_json::json;

pub fn ring(told: &Ring) -> Vec<String> {
    let path = plain_path(&told.path);
    let mut out = Vec::new();
    match &told.descriptor {
        Some(descriptor) => {
            out.push(format!("ring {path}"));
            let sample: Vec<String> = descriptor.sample.iter().map(|name| plain(name)).collect();
            out.push(format!("  id         {}, layout version {}", plain(&descriptor.ring_id), descriptor.ringreel));
            out.push(format!("  sample     {}", sample.join(", ")));
            let held_out = match descriptor.validation {
                0 => String::new(),
                n => format!("; the ring's first {n} are held out"),
            };
            out.push(format!("  swap cap   {} in a generation{held_out}", counted(descriptor.swap_cap, "sample")));
        }
        None => out.push(format!("{path} should be a ring")),
    }
    if let (Some(samples), Some(bytes), Some(newest)) = (told.delivered, told.delivered_bytes, told.newest) {
        let generations = counted(newest, "generation");
        out.push(format!("  delivered  {}, {}, in {generations}", counted(samples, "sample"), human_bytes(bytes)));
    }
    out.push("generations".to_owned());
    if told.more_generations > 0 {
        out.push(format!("  {} older ones, and", told.more_generations));
    }
    let cap = told.descriptor.as_ref().map(|descriptor| descriptor.swap_cap);
    out.extend(told.generations.iter().map(|generation| format!("  {}", in_short(generation, cap))));
    if !told.generations.iter().any(|generation| generation.state == State::Readable) {
        out.push("  none can be read yet: readers wait".to_owned());
    }
    owners(&mut out, &told.owners, told.more_owners);
    told.glance.iter().for_each(|seen| glance(&mut out, seen));
    let staging = &told.staging;
    out.push("elsewhere".to_owned());
    out.push(format!(
        "  staging    {}: {}, {} begun",
        counted(staging.owners, "owner"),
        counted(staging.finished, "finished segment"),
        counted(staging.begun, "file")
    ));
    out.push(format!("  quarantine {}", counted(told.quarantined, "segment")));
    out.push(format!("  trash      {}", counted(told.trash, "name")));
    odd(&mut out, &told.odd);
    out
}

/// One generation on a line.
fn in_short(told: &Generation, cap: Option<u64>) -> String {
    let name = plain(&told.path.file_name().unwrap_or_default().to_string_lossy());
    let samples = match (told.samples, cap, told.state) {
        (Some(n), Some(cap), State::Filling) => format!("{n} of {}", counted(cap, "sample")),
        (Some(n), ..) => counted(n, "sample"),
        (None, ..) => "samples not counted".to_owned(),
    };
    let bytes = told.bytes.map_or(String::new(), |bytes| format!(", {}", human_bytes(bytes)));
    let age = told.age_seconds.map_or(String::new(), |age| format!(", {} old", human_seconds(age)));
    let state = match told.state {
        State::Readable => "",
        State::Filling => ": it fills",
        State::Promoting => ": its promotion is not finished",
        State::Unlisted => ": its manifest cannot be used",
        State::Litter => ": litter",
    };
    format!("{name:<10} {samples}{bytes} in {}{age}{state}", counted(told.segments, "file"))
}

pub fn generation(told: &Generation, seen: Option<&Glance>, odds: &[Odd]) -> Vec<String> {
    let mut out = vec![format!("generation {}: {}", told.generation, plain_path(&told.path))];
    out.push(format!("  {}", in_short(told, None)));
    if let (Some(by), Some(swap_ms)) = (&told.by, told.swap_ms) {
        out.push(format!("  published by {}; generators could not commit for {swap_ms:.1} ms", plain(by)));
    }
    owners(&mut out, &told.owners, told.more_owners);
    seen.iter().for_each(|seen| glance(&mut out, seen));
    out.push("segments".to_owned());
    for entry in &told.first_segments {
        out.push(format!(
            "  {}  {}, {}, by {}, born in {}, id {}",
            plain(&entry.file()),
            counted(entry.samples, "sample"),
            human_bytes(entry.bytes),
            plain(&entry.owner),
            entry.born,
            entry.id
        ));
    }
    let more = told.segments.saturating_sub(told.first_segments.len() as u64);
    if more > 0 {
        out.push(format!("  and {more} more"));
    }
    odd(&mut out, odds);
    out
}

fn owners(out: &mut Vec<String>, shares: &[Share], more: u64) {
    if shares.is_empty() {
        return;
    }
    out.push("generated by".to_owned());
    for share in shares {
        let (samples, bytes) = (counted(share.samples, "sample"), human_bytes(share.bytes));
        let owner = if share.owner.is_empty() { "(no name)".to_owned() } else { plain(&share.owner) };
        out.push(format!("  {owner}  {samples}, {bytes} in {}", counted(share.segments, "file")));
    }
    if more > 0 {
        out.push(format!("  and {more} more"));
    }
}

fn glance(out: &mut Vec<String>, seen: &Glance) {
    let of = seen.generation.map_or(String::new(), |n| format!(" of generation {n}"));
    let seen_of = match seen.looked_at == seen.samples {
        true => counted(seen.samples, "sample"),
        false => format!("{} of {}", seen.looked_at, counted(seen.samples, "sample")),
    };
    out.push(format!("parts, by a look at {seen_of}{of}"));
    for part in &seen.parts {
        let kinds: Vec<String> = part
            .kinds
            .iter()
            .map(|kind| match part.kinds.len() {
                1 => format!("{} {:?}", plain(&kind.dtype), kind.shape),
                _ => format!("{} {:?} in {}", plain(&kind.dtype), kind.shape, kind.samples),
            })
            .collect();
        let more = if part.more_kinds { ", and others" } else { "" };
        let range = part.range.map_or(String::new(), |found| format!(": {}", range(&found)));
        out.push(format!("  {}  {}{more}{}{range}", plain(&part.name), kinds.join("; "), compression(part)));
    }
    let sum = |of: fn(&PartGlance) -> u64| seen.parts.iter().map(of).fold(0, u64::saturating_add);
    let (stored, decoded) = (sum(|part| part.stored), sum(|part| part.decoded));
    if seen.parts.iter().any(|part| part.compressed > 0) && stored > 0 {
        let ratio = decoded as f64 / stored as f64;
        out.push(format!("  all: {} decoded, {} stored, {ratio:.2} to 1", human_bytes(decoded), human_bytes(stored)));
    }
}

fn compression(part: &PartGlance) -> String {
    let ratio = part.decoded as f64 / part.stored.max(1) as f64;
    match part.compressed {
        0 => String::new(),
        n if n == part.samples => format!(", compressed {ratio:.2} to 1"),
        n => format!(", compressed in {n} of {}: {ratio:.2} to 1 in all", counted(part.samples, "sample")),
    }
}

pub fn range(range: &Range) -> String {
    let mut text = match (range.min, range.max, range.mean) {
        (Some(min), Some(max), Some(mean)) => format!("{} to {}, mean {}", short(min), short(max), short(mean)),
        _ if range.elements == 0 => "no elements".to_owned(),
        _ => "nothing finite".to_owned(),
    };
    if range.nan > 0 {
        text += &format!(", {} NaN", range.nan);
    }
    if range.infinite > 0 {
        text += &format!(", {} infinite", range.infinite);
    }
    text
}

/// A number in six digits or so.
fn short(x: f64) -> String {
    match x.abs() {
        a if a != 0.0 && !(1e-4..1e9).contains(&a) => format!("{x:.5e}"),
        _ if x.fract() == 0.0 => format!("{x}"),
        a if a < 10.0 => format!("{x:.5}"),
        _ => format!("{x:.2}"),
    }
}

pub fn codec(codec: Codec) -> String {
    match codec {
        Codec::Plain => "plain".to_owned(),
        Codec::Zstd => "zstd".to_owned(),
        Codec::Unknown(n) => format!("codec {n}, not known"),
    }
}

fn odd(out: &mut Vec<String>, odds: &[Odd]) {
    if odds.is_empty() {
        return out.push("nothing odd".to_owned());
    }
    out.push("odd".to_owned());
    for odd in odds {
        let kind = if odd.damage { "DAMAGE" } else { "note" };
        out.push(format!("  {kind}: {}", plain(&odd.what)));
        out.push(format!("    next: {}", plain(&odd.next)));
    }
}

pub fn segment(told: &Segment) -> Vec<String> {
    let mut out = vec![format!("segment {}, {}", plain_path(&told.path), human_bytes(told.bytes))];
    if let Some(info) = &told.info {
        out.push(format!("  id       {}", info.id));
        out.push(format!("  owner    {}", plain(info.owner())));
        out.push(format!("  born     when generation {} was being written", info.born));
        let age = ringreel::unix_ms().saturating_sub(info.created_unix_ms) as f64 / 1e3;
        out.push(format!("  created  {} ms after 1970, {} ago", info.created_unix_ms, human_seconds(age)));
        out.push(format!("  numbers  from {} on, at its owner", info.first_number));
        let parts: Vec<String> =
            info.schema.parts.iter().map(|p| plain(&format!("{} {} {:?}", p.name, p.dtype, p.shape))).collect();
        out.push(format!("  schema   {}", parts.join("; ")));
        out.push(format!("  from     {}", plain(&meta_json(&info.provenance).to_string())));
    }
    out.push(match told.footer {
        Some((at, check)) => format!("  footer   at byte {at}, check {check:08x}"),
        None => "  footer   none".to_owned(),
    });
    told.glance.iter().for_each(|seen| glance(&mut out, seen));
    out.push(format!("samples ({})", told.samples));
    for place in &told.first_samples {
        out.push(format!("  {}  at byte {}, {}", place.ordinal, place.at, human_bytes(place.bytes)));
    }
    let more = told.samples.saturating_sub(told.first_samples.len() as u64);
    if more > 0 {
        out.push(format!("  and {more} more (--tree shows every record)"));
    }
    odd(&mut out, &told.odd);
    out
}

pub fn segment_json(told: &Segment) -> serde_json::Value {
    let info = told.info.as_ref().map(|info| {
        let part = |part: &ringreel_format::PartSchema| {
            json!({ "name": part.name, "dtype": part.dtype.to_string(), "shape": part.shape })
        };
        json!({
            "id": info.id.to_string(), "owner": info.owner(), "born": info.born, "created_unix_ms": info.created_unix_ms,
            "first_number": info.first_number, "provenance": meta_json(&info.provenance),
            "schema": info.schema.parts.iter().map(part).collect::<Vec<_>>(),
        })
    });
    json!({
        "path": told.path.to_string_lossy(), "bytes": told.bytes, "info": info, "samples": told.samples,
        "first_samples": told.first_samples, "footer_at": told.footer.map(|footer| footer.0),
        "check": told.footer.map(|footer| format!("{:08x}", footer.1)), "glance": told.glance, "odd": told.odd,
    })
}

pub fn records(told: &Records) -> Vec<String> {
    let mut out = vec![format!("{}, {}", plain_path(&told.path), human_bytes(told.bytes))];
    if let (Some(shortest), Some(longest)) = (told.shortest, told.longest) {
        out[0] = format!("RecordIO file {}", out[0]);
        let mean = told.payload_bytes as f64 / told.records.max(1) as f64;
        out.push(format!(
            "  records  {} of {shortest} to {longest} bytes, {mean:.1} on average; {} split by the framing",
            told.records, told.split
        ));
        out.push(match told.with_image_header {
            0 => "  headers  no record begins as MXNet's image records do".to_owned(),
            n => format!("  headers  {n} begin with MXNet's image header (IRHeader)"),
        });
        let kinds: Vec<String> = told.kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        out.push(format!(
            "  images   {}",
            if kinds.is_empty() { "none that is known".into() } else { kinds.join(", ") }
        ));
        out.push("  (RecordIO has no checksums: what is in the records cannot be checked)".to_owned());
    }
    odd(&mut out, &told.odd);
    out
}

pub fn record(record: &Record) -> String {
    let splits = match record.splits {
        0 => String::new(),
        1 => ", split once".to_owned(),
        n => format!(", split {n} times"),
    };
    let Record { number, at, end, len, what, .. } = record;
    format!(
        "{number:<5} {at:#010x} to {end:#010x}  {:<8} {len} bytes{splits}: {}",
        what.name(),
        plain(&what.to_string())
    )
}

pub fn record_json(record: &Record) -> serde_json::Value {
    json!({
        "record": record.number, "at": record.at, "end": record.end, "length": record.len, "splits": record.splits,
        "what": record.what.name(), "says": record.what.to_string(),
    })
}

pub fn entry(entry: &Entry) -> String {
    let bytes = entry.bytes.map_or(String::new(), |bytes| format!(", {}", human_bytes(bytes)));
    let (indent, name) = ("  ".repeat(entry.depth), plain(&entry.name));
    match (entry.name.is_empty(), entry.what.is_empty()) {
        (true, _) => format!("{indent}... {}", plain(&entry.what)),
        (false, true) => format!("{indent}{name}{bytes}"),
        (false, false) => format!("{indent}{name}{bytes}: {}", plain(&entry.what)),
    }
}

/// Sixteen bytes a line: offset, bytes, text, and on the first line what they are.
pub fn dump(field: &Field) -> Vec<String> {
    let text = |bytes: &[u8]| -> String {
        let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        bytes.iter().map(shown).collect()
    };
    let says = if field.says.is_empty() { String::new() } else { format!(": {}", plain(&field.says)) };
    let mut name = format!("{}{says}", plain(&field.name));
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
