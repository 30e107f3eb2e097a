//! What `ringreel inspect` says, in lines.

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
    odd(&mut out, &told.issues, &told.path);
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

pub fn generation(told: &Generation, seen: Option<&SampleStats>, issues: &[Issue], ring: &Path) -> Vec<String> {
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
    let sum = |of: fn(&PartStats) -> u64| seen.parts.iter().map(of).fold(0, u64::saturating_add);
    let (stored, decoded) = (sum(|part| part.stored), sum(|part| part.decoded));
    if seen.parts.iter().any(|part| part.compressed > 0) && stored > 0 {
        let ratio = decoded as f64 / stored as f64;
        out.push(format!("  all: {} decoded, {} stored, {ratio:.2} to 1", human_bytes(decoded), human_bytes(stored)));
    }
}

fn compression(part: &PartStats) -> String {
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

/// What is odd in the ring, or the file, at `path`.
fn odd(out: &mut Vec<String>, issues: &[Issue], path: &Path) {
    if issues.is_empty() {
        return out.push("nothing odd".to_owned());
    }
    out.push("odd".to_owned());
    for issue in issues {
        let kind = if issue.is_damage() { "DAMAGE" } else { "note" };
        let (what, next) = issue_words(issue, path);
        out.push(format!("  {kind}: {}", plain(&what)));
        out.push(format!("    next: {}", plain(&next)));
    }
}

/// `facts` as JSON, with what is odd in the ring, or the file, at `path`.
pub fn json_with_odd(facts: &impl Serialize, issues: &[Issue], path: &Path) -> serde_json::Result<serde_json::Value> {
    let odd = issues.iter().map(|issue| {
        let (what, next) = issue_words(issue, path);
        json!({ "damage": issue.is_damage(), "what": what, "next": next })
    });
    let mut value = serde_json::to_value(facts)?;
    value["odd"] = odd.collect();
    Ok(value)
}

/// What an issue is, and what to do, or to look at.
fn issue_words(issue: &Issue, path: &Path) -> (String, String) {
    let path = path.display();
    let verify = || format!("ringreel verify {path}");
    match issue {
        Issue::NoDescriptor => ("ring.json is missing: nobody can open the ring".to_owned(), verify()),
        Issue::BadDescriptor { why } | Issue::BadManifest { why } => (why.clone(), verify()),
        Issue::OtherVersion { why } => {
            (why.clone(), "use a ringreel of that version: what this one tells need not be true".to_owned())
        }
        Issue::NoManifest => ("there is no manifest: readers see nothing".to_owned(), verify()),
        Issue::Denied { why } => (format!("it could not be looked at: {why}"), verify()),
        Issue::Gap { generation: n } => (
            format!("generation {n} is not there, although an older one is: reclaimed, or lost if KEEP covers it"),
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
            format!("the promotion of generation {n} was begun and is not finished: readers do not see it yet"),
            "a manager or a generator finishes it: start one, if none runs (`ringreel status` tells who does)"
                .to_owned(),
        ),
        Issue::Unlisted { generation: n } => {
            (format!("generation {n} cannot be read: its manifest cannot be used"), verify())
        }
        Issue::Litter { path } => (
            format!("{} is litter: no manifest belongs to it", path.display()),
            "the manager removes what is in nobody's way; `ringreel verify` tells more".to_owned(),
        ),
        Issue::Quarantined { segments } => (
            format!("{} in quarantine: the reason stands beside each, in a file .why", counted(*segments, "segment")),
            format!("ringreel inspect --tree {path}"),
        ),
        Issue::NoSample { why } => (format!("no sample can be looked at: {why}"), verify()),
        Issue::Unreadable { looked_at, unreadable, why } => {
            (format!("of {looked_at} samples {unreadable} cannot be read: {why}"), verify())
        }
        Issue::NotFinite { part, values } => (
            values.not_finite(part).unwrap_or_default(),
            "CHECK_FINITE: refuse in the configuration of the generators".to_owned(),
        ),
        Issue::Bytes { begin, end, why } => (format!("bytes {begin} to {end}: {}", damage(why)), verify()),
        Issue::Empty => ("it is empty: nothing was written, or all was cut off".to_owned(), ANOTHER_FILE.to_owned()),
        Issue::NoRecords { kind } => (
            match kind {
                Some(kind) => format!("it is no segment and no RecordIO file: it looks like {kind}"),
                None => "it is no segment and no RecordIO file: there is no record in it".to_owned(),
            },
            ANOTHER_FILE.to_owned(),
        ),
    }
}

const ANOTHER_FILE: &str = "look for another file: what is in this one, ringreel cannot tell";

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

pub fn segment_json(told: &Segment) -> serde_json::Result<serde_json::Value> {
    json_with_odd(&segment_facts(told), &told.issues, &told.path)
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
    odd(&mut out, &told.issues, &told.path);
    out
}

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

pub fn entry_json(entry: &Entry) -> serde_json::Value {
    json!({ "depth": entry.depth, "name": entry.name, "bytes": entry.bytes, "what": entry_words(entry) })
}

fn entry_words(entry: &Entry) -> String {
    let what = match entry.what {
        EntryKind::Descriptor => "what this ring is, once and for all",
        EntryKind::Manifests => "one for each generation that readers see, or saw",
        EntryKind::Staging => "what generators write, and what they finished that no manifest lists yet",
        EntryKind::Index => "the index kept in files: counter, leases, progress",
        EntryKind::Quarantine => "what was found broken, with reasons",
        EntryKind::Trash => "what is being removed",
        EntryKind::Generation(State::Readable) => "a sealed generation: readers see what its manifest lists",
        EntryKind::Generation(State::Filling) => "the generation that fills",
        EntryKind::Generation(State::Promoting) => "a promotion that was begun: it has no manifest yet",
        EntryKind::Generation(State::Unlisted) => "a generation without a manifest: readers do not see it",
        EntryKind::Generation(State::Litter) => "litter: no manifest belongs to it",
        EntryKind::Foreign => "no name of a ring's",
        EntryKind::Owner => "an owner's",
        EntryKind::NotOwner => "no generator has such a name",
        EntryKind::Finished => "a finished segment",
        EntryKind::Begun => "a segment that is being written, or was",
        EntryKind::NotStaged => "no name of a segment's",
        EntryKind::Manifest => "a manifest",
        EntryKind::NotManifest => "no name of a manifest",
        EntryKind::Quarantined => "a segment in quarantine",
        EntryKind::Why => "why a segment is in quarantine",
        EntryKind::Segment => "a segment",
        EntryKind::NotSegment => "no name of a segment's: readers do not see it",
        EntryKind::Directory => "a directory",
        EntryKind::Other => "",
    };
    match (entry.more, entry.what) {
        (None, _) => what.to_owned(),
        (Some(n), EntryKind::Generation(_)) => format!("and {n} more generations"),
        (Some(n), EntryKind::Foreign) => format!("and {n} more names that are no ring's"),
        (Some(n), EntryKind::Owner) => format!("and {n} more owners"),
        (Some(n), EntryKind::Other) => format!("and {n} more"),
        (Some(n), _) => format!("and {n} more: {what}"),
    }
}
