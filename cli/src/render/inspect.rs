//! Output of `ringreel inspect`, as lines of text and as JSON.

use super::record::damage;
use crate::formats::json::meta_json;
use crate::output::{plain, plain_path};
use ringreel::humanize::{counted, human_bytes, human_seconds};
use ringreel::value_stats::Range;
use ringreel_format::Codec;
use ringreel_ops::inspect::file::{Records, Segment};
use ringreel_ops::inspect::issue::Issue;
use ringreel_ops::inspect::sample_stats::{PartStats, SampleStats};
use ringreel_ops::inspect::summary::{Generation, Ring, Share, State};
use ringreel_ops::inspect::tree::{Entry, EntryKind};
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// Describes a ring.
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
                n => format!("; the first {n} of the ring are held out"),
            };
            out.push(format!("  swap cap   {} per generation{held_out}", counted(descriptor.swap_cap, "sample")));
        }
        None => out.push(format!("ring {path} (no usable ring.json)")),
    }
    if let (Some(samples), Some(bytes), Some(newest)) = (told.delivered, told.delivered_bytes, told.newest) {
        let generations = counted(newest, "generation");
        out.push(format!("  delivered  {}, {}, in {generations}", counted(samples, "sample"), human_bytes(bytes)));
    }
    out.push("generations".to_owned());
    if told.more_generations > 0 {
        out.push(format!("  {} not shown", counted(told.more_generations, "older generation")));
    }
    let cap = told.descriptor.as_ref().map(|descriptor| descriptor.swap_cap);
    out.extend(told.generations.iter().map(|generation| format!("  {}", in_short(generation, cap))));
    if !told.generations.iter().any(|generation| generation.state == State::Readable) {
        out.push("  none is readable yet; readers wait".to_owned());
    }
    owners(&mut out, &told.owners, told.more_owners);
    told.glance.iter().for_each(|seen| glance(&mut out, seen));
    let staging = &told.staging;
    out.push("other directories".to_owned());
    out.push(format!(
        "  staging    {}: {}, {}",
        counted(staging.owners, "owner"),
        counted(staging.finished, "finished segment"),
        counted(staging.begun, "unfinished file")
    ));
    out.push(format!("  quarantine {}", counted(told.quarantined, "segment")));
    out.push(format!("  trash      {}", counted(told.trash, "item")));
    odd(&mut out, &told.issues, &told.path);
    out
}

/// Describes a generation in one line.
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
        State::Filling => " (filling)",
        State::Promoting => " (promotion unfinished)",
        State::Unlisted => " (manifest missing or damaged)",
        State::Litter => " (litter)",
    };
    format!("{name:<10} {samples}{bytes} in {}{age}{state}", counted(told.segments, "file"))
}

/// Describes a generation.
pub fn generation(told: &Generation, seen: Option<&SampleStats>, issues: &[Issue], ring: &Path) -> Vec<String> {
    let mut out = vec![format!("generation {}: {}", told.generation, plain_path(&told.path))];
    out.push(format!("  {}", in_short(told, None)));
    if let (Some(by), Some(swap_ms)) = (&told.by, told.swap_ms) {
        out.push(format!("  published by {}; the swap blocked commits for {swap_ms:.1} ms", plain(by)));
    }
    owners(&mut out, &told.owners, told.more_owners);
    seen.iter().for_each(|seen| glance(&mut out, seen));
    out.push("segments".to_owned());
    for entry in &told.first_segments {
        out.push(format!(
            "  {}  {}, {}, by {}, born in generation {}, id {}",
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
    odd(&mut out, issues, ring);
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

fn glance(out: &mut Vec<String>, seen: &SampleStats) {
    let of = seen.generation.map_or(String::new(), |n| format!(" of generation {n}"));
    let seen_of = match seen.looked_at == seen.samples {
        true => counted(seen.samples, "sample"),
        false => format!("{} of {}", seen.looked_at, counted(seen.samples, "sample")),
    };
    out.push(format!("parts, from {seen_of}{of}"));
    for part in &seen.parts {
        let kinds: Vec<String> = part
            .kinds
            .iter()
            .map(|kind| match part.kinds.len() {
                1 => format!("{} {:?}", plain(&kind.dtype), kind.shape),
                _ => format!("{} {:?} in {}", plain(&kind.dtype), kind.shape, counted(kind.samples, "sample")),
            })
            .collect();
        let more = if part.more_kinds { ", and other types or shapes" } else { "" };
        let range = part.range.map_or(String::new(), |found| format!(": {}", range(&found)));
        out.push(format!("  {}  {}{more}{}{range}", plain(&part.name), kinds.join("; "), compression(part)));
    }
    let sum = |of: fn(&PartStats) -> u64| seen.parts.iter().map(of).fold(0, u64::saturating_add);
    let (stored, decoded) = (sum(|part| part.stored), sum(|part| part.decoded));
    if seen.parts.iter().any(|part| part.compressed > 0) && stored > 0 {
        let ratio = decoded as f64 / stored as f64;
        out.push(format!("  total: {} decoded, {} stored, {ratio:.2} to 1", human_bytes(decoded), human_bytes(stored)));
    }
}

fn compression(part: &PartStats) -> String {
    let ratio = part.decoded as f64 / part.stored.max(1) as f64;
    match part.compressed {
        0 => String::new(),
        n if n == part.samples => format!(", compressed {ratio:.2} to 1"),
        n => format!(", compressed in {n} of {}, {ratio:.2} to 1 overall", counted(part.samples, "sample")),
    }
}

/// Describes the values of a part.
pub fn range(range: &Range) -> String {
    let mut text = match (range.min, range.max, range.mean) {
        (Some(min), Some(max), Some(mean)) => format!("{} to {}, mean {}", short(min), short(max), short(mean)),
        _ if range.elements == 0 => "no elements".to_owned(),
        _ => "no finite elements".to_owned(),
    };
    if range.nan > 0 {
        text += &format!(", {} NaN", range.nan);
    }
    if range.infinite > 0 {
        text += &format!(", {} infinite", range.infinite);
    }
    text
}

/// Formats a number with about six digits.
fn short(x: f64) -> String {
    match x.abs() {
        a if a != 0.0 && !(1e-4..1e9).contains(&a) => format!("{x:.5e}"),
        _ if x.fract() == 0.0 => format!("{x}"),
        a if a < 10.0 => format!("{x:.5}"),
        _ => format!("{x:.2}"),
    }
}

/// Returns the name of a codec.
pub fn codec(codec: Codec) -> String {
    match codec {
        Codec::Plain => "plain".to_owned(),
        Codec::Zstd => "zstd".to_owned(),
        Codec::Unknown(n) => format!("unknown codec {n}"),
    }
}

/// Lists the issues of the ring or file at `path`.
fn odd(out: &mut Vec<String>, issues: &[Issue], path: &Path) {
    if issues.is_empty() {
        return out.push("no issues found".to_owned());
    }
    out.push("issues".to_owned());
    for issue in issues {
        let kind = if issue.is_damage() { "DAMAGE" } else { "note" };
        let (what, next) = issue_words(issue, path);
        out.push(format!("  {kind}: {}", plain(&what)));
        out.push(format!("    next: {}", plain(&next)));
    }
}

/// Returns `facts` as JSON, with the issues of the ring or file at `path` under the key `odd`.
pub fn json_with_odd(facts: &impl Serialize, issues: &[Issue], path: &Path) -> serde_json::Result<serde_json::Value> {
    let odd = issues.iter().map(|issue| {
        let (what, next) = issue_words(issue, path);
        json!({ "damage": issue.is_damage(), "what": what, "next": next })
    });
    let mut value = serde_json::to_value(facts)?;
    value["odd"] = odd.collect();
    Ok(value)
}

/// Returns what an issue is, and what to do or to run next.
fn issue_words(issue: &Issue, path: &Path) -> (String, String) {
    let path = path.display();
    let verify = || format!("ringreel verify {path}");
    match issue {
        Issue::NoDescriptor => ("ring.json is missing: the ring cannot be opened".to_owned(), verify()),
        Issue::BadDescriptor { why } | Issue::BadManifest { why } => (why.clone(), verify()),
        Issue::OtherVersion { why } => {
            (why.clone(), "use a ringreel of that version; the output of this version may be wrong".to_owned())
        }
        Issue::NoManifest => ("the ring has no manifest: readers see no samples".to_owned(), verify()),
        Issue::Denied { why } => (format!("a generation could not be examined: {why}"), verify()),
        Issue::Gap { generation: n } => (
            format!("generation {n} is missing, but an older one exists: reclaimed, or lost if KEEP covers it"),
            format!("{} --keep N, with N as in KEEP", verify()),
        ),
        Issue::NewestMissing { generation: n, samples } => (
            format!("the directory of the newest generation, {n}, is missing: its {samples} samples are lost"),
            verify(),
        ),
        Issue::NoFooter { files, why } => {
            let more = if *files > 1 { format!(" (and {} more like it)", files - 1) } else { String::new() };
            (format!("{why}{more}"), verify())
        }
        Issue::Promoting { generation: n } => (
            format!("the promotion of generation {n} is unfinished: readers do not see it yet"),
            "a manager or a generator will finish it; `ringreel status` shows whether one is running".to_owned(),
        ),
        Issue::Unlisted { generation: n } => {
            (format!("generation {n} cannot be read: its manifest is missing or damaged"), verify())
        }
        Issue::Litter { path } => (
            format!("{} is litter: no manifest belongs to it", path.display()),
            "a manager removes it if it is safe; for details run `ringreel verify`".to_owned(),
        ),
        Issue::Quarantined { segments } => (
            format!("{} in quarantine; the reason is in the .why file beside each", counted(*segments, "segment")),
            format!("ringreel inspect --tree {path}"),
        ),
        Issue::NoSample { why } => (format!("no sample could be read: {why}"), verify()),
        Issue::Unreadable { looked_at, unreadable, why } => {
            (format!("{unreadable} of {looked_at} samples cannot be read: {why}"), verify())
        }
        Issue::NotFinite { part, values } => (
            values.not_finite(part).unwrap_or_default(),
            "to reject such samples, set CHECK_FINITE: refuse in the generators' configuration".to_owned(),
        ),
        Issue::Bytes { begin, end, why } => (format!("bytes {begin} to {end}: {}", damage(why)), verify()),
        Issue::Empty => {
            ("the file is empty: nothing was written, or it was truncated".to_owned(), ANOTHER_FILE.to_owned())
        }
        Issue::NoRecords { kind } => (
            match kind {
                Some(kind) => format!("neither a segment nor a RecordIO file: it looks like {kind}"),
                None => "neither a segment nor a RecordIO file: it has no records".to_owned(),
            },
            ANOTHER_FILE.to_owned(),
        ),
    }
}

const ANOTHER_FILE: &str = "check the path: ringreel cannot read this file";

/// Describes a segment.
pub fn segment(told: &Segment) -> Vec<String> {
    let mut out = vec![format!("segment {}, {}", plain_path(&told.path), human_bytes(told.bytes))];
    if let Some(info) = &told.info {
        out.push(format!("  id       {}", info.id));
        out.push(format!("  owner    {}", plain(info.owner())));
        out.push(format!("  born     in generation {}", info.born));
        let age = ringreel::unix_ms().saturating_sub(info.created_unix_ms) as f64 / 1e3;
        out.push(format!("  created  {} ago (Unix time {} ms)", human_seconds(age), info.created_unix_ms));
        out.push(format!("  numbers  its first sample is number {} of its owner", info.first_number));
        let parts: Vec<String> =
            info.schema.parts.iter().map(|p| plain(&format!("{} {} {:?}", p.name, p.dtype, p.shape))).collect();
        out.push(format!("  schema   {}", parts.join("; ")));
        out.push(format!("  source   {}", plain(&meta_json(&info.provenance).to_string())));
    }
    out.push(match told.footer {
        Some((at, check)) => format!("  footer   at byte {at}, check value {check:08x}"),
        None => "  footer   missing".to_owned(),
    });
    told.glance.iter().for_each(|seen| glance(&mut out, seen));
    out.push(format!("samples ({})", told.samples));
    for place in &told.first_samples {
        out.push(format!("  {}  at byte {}, {}", place.ordinal, place.at, human_bytes(place.bytes)));
    }
    let more = told.samples.saturating_sub(told.first_samples.len() as u64);
    if more > 0 {
        out.push(format!("  and {more} more (--tree lists all records)"));
    }
    odd(&mut out, &told.issues, &told.path);
    out
}

fn segment_facts(told: &Segment) -> serde_json::Value {
    let info = told.info.as_ref().map(|info| {
        let part = |part: &ringreel_format::PartSchema| {
            json!({ "name": part.name, "dtype": part.dtype.to_string(), "shape": part.shape })
        };
        json!({
            "id": info.id.to_string(), "owner": info.owner(), "born": info.born,
            "created_unix_ms": info.created_unix_ms, "first_number": info.first_number, "provenance": meta_json(&info.provenance),
            "schema": info.schema.parts.iter().map(part).collect::<Vec<_>>(),
        })
    });
    json!({
        "path": told.path.to_string_lossy(), "bytes": told.bytes, "info": info, "samples": told.samples,
        "first_samples": told.first_samples, "footer_at": told.footer.map(|footer| footer.0),
        "check": told.footer.map(|footer| format!("{:08x}", footer.1)), "glance": told.glance,
    })
}

/// Describes a segment as JSON.
pub fn segment_json(told: &Segment) -> serde_json::Result<serde_json::Value> {
    json_with_odd(&segment_facts(told), &told.issues, &told.path)
}

/// Describes a RecordIO file.
pub fn records(told: &Records) -> Vec<String> {
    let mut out = vec![format!("{}, {}", plain_path(&told.path), human_bytes(told.bytes))];
    if let (Some(shortest), Some(longest)) = (told.shortest, told.longest) {
        out[0] = format!("RecordIO file {}", out[0]);
        let mean = told.payload_bytes as f64 / told.records.max(1) as f64;
        out.push(format!(
            "  records  {} of {shortest} to {longest} bytes, {mean:.1} on average; {} split into several frames",
            told.records, told.split
        ));
        out.push(match told.with_image_header {
            0 => "  headers  no record has an MXNet image header (IRHeader)".to_owned(),
            n => format!("  headers  {n} with an MXNet image header (IRHeader)"),
        });
        let kinds: Vec<String> = told.kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        out.push(format!(
            "  images   {}",
            if kinds.is_empty() { "no known image format".into() } else { kinds.join(", ") }
        ));
        out.push("  (RecordIO has no checksums, so the contents cannot be verified)".to_owned());
    }
    odd(&mut out, &told.issues, &told.path);
    out
}

/// Describes an entry of a directory tree in one line.
pub fn entry(entry: &Entry) -> String {
    let bytes = entry.bytes.map_or(String::new(), |bytes| format!(", {}", human_bytes(bytes)));
    let (indent, name) = ("  ".repeat(entry.depth), plain(&entry.name));
    let what = entry_words(entry);
    match (entry.more.is_some(), what.is_empty()) {
        (true, _) => format!("{indent}... {what}"),
        (false, true) => format!("{indent}{name}{bytes}"),
        (false, false) => format!("{indent}{name}{bytes}: {what}"),
    }
}

/// Describes an entry of a directory tree as JSON.
pub fn entry_json(entry: &Entry) -> serde_json::Value {
    json!({ "depth": entry.depth, "name": entry.name, "bytes": entry.bytes, "what": entry_words(entry) })
}

fn entry_words(entry: &Entry) -> String {
    let what = match entry.what {
        EntryKind::Descriptor => "ring descriptor, never changed",
        EntryKind::Manifests => "one manifest per generation that is or was readable",
        EntryKind::Staging => "segments being written, or not listed by a manifest yet",
        EntryKind::Index => "the index in files: counter, leases, members, notes",
        EntryKind::Quarantine => "damaged segments, with the reasons",
        EntryKind::Trash => "files being removed",
        EntryKind::Generation(State::Readable) => "readable generation: readers see the segments in its manifest",
        EntryKind::Generation(State::Filling) => "filling generation",
        EntryKind::Generation(State::Promoting) => "generation with an unfinished promotion: no manifest yet",
        EntryKind::Generation(State::Unlisted) => "generation without a manifest: readers do not see it",
        EntryKind::Generation(State::Litter) => "litter: no manifest belongs to it",
        EntryKind::Foreign => "not part of a ring",
        EntryKind::Owner => "directory of an owner",
        EntryKind::NotOwner => "not an owner's name",
        EntryKind::Finished => "finished segment",
        EntryKind::Begun => "unfinished segment, being written or abandoned",
        EntryKind::NotStaged => "not a segment's name",
        EntryKind::Manifest => "manifest",
        EntryKind::NotManifest => "not a manifest's name",
        EntryKind::Quarantined => "segment in quarantine",
        EntryKind::Why => "reason why a segment is in quarantine",
        EntryKind::Segment => "segment",
        EntryKind::NotSegment => "not a segment's name: readers do not see it",
        EntryKind::Directory => "directory",
        EntryKind::Other => "",
    };
    match (entry.more, entry.what) {
        (None, _) => what.to_owned(),
        (Some(n), EntryKind::Generation(_)) => format!("and {n} more generations"),
        (Some(n), EntryKind::Foreign) => format!("and {n} more names that are not part of a ring"),
        (Some(n), EntryKind::Owner) => format!("and {n} more owners"),
        (Some(n), EntryKind::Other) => format!("and {n} more"),
        (Some(n), _) => format!("and {n} more: {what}"),
    }
}
