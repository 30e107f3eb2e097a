//! What `ringreel verify` says of what it found.

use crate::output::{plain, plain_path};
use ringreel::error::REPAIR;
use ringreel::humanize::{counted, human_bytes};
use ringreel::manifest::ANOTHER;
use ringreel_ops::inspect::finding::{Finding, Kind, Problem};
use ringreel_ops::inspect::verify::{Looked, Report};
use serde::Serialize;
use serde_json::json;
use std::path::Path;

fn finding(finding: &Finding) -> String {
    let kind = match finding.kind {
        Kind::Damage => "DAMAGE    ",
        Kind::Unfinished => "unfinished",
        Kind::Note => "note      ",
    };
    let bytes = finding.bytes.map_or(String::new(), |(begin, end)| format!(", bytes {begin} to {end}"));
    let samples = match &finding.samples[..] {
        [] => String::new(),
        [one] => format!("; touches sample {one}"),
        [first, ..] => format!("; touches {} samples, {first} first", finding.samples.len()),
    };
    format!("{kind} {}{bytes}: {}{samples}", plain_path(&finding.path), plain(&problem(&finding.problem)))
}

/// The same as JSON.
pub fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({
        "kind": finding.kind, "path": finding.path.to_string_lossy(), "bytes": finding.bytes,
        "samples": finding.samples,
        "message": problem(&finding.problem),
    })
}

/// All findings, and the result; `next` is the command for a damaged ring.
pub fn report(report: &Report, seconds: f64, next: Option<String>) -> Vec<String> {
    let mut out: Vec<String> = report.findings.iter().map(finding).collect();
    if report.more > 0 {
        out.push(format!("and {} like these", counted(report.more, "finding")));
    }
    let (subject, what) = match report.subject {
        Looked::Ring => ("ring", "sample"),
        Looked::Generation => ("generation", "sample"),
        Looked::Segment => ("segment", "sample"),
        Looked::Records => ("RecordIO file", "record"),
    };
    let (files, bytes) = (counted(report.files, "file"), human_bytes(report.bytes));
    let unreadable = match report.unreadable {
        0 => String::new(),
        n => format!(", {n} that are listed cannot"),
    };
    let readable = counted(report.readable, what);
    out.push(format!("a {subject}: {files}, {bytes} read in {seconds:.1} s: {readable} can be read{unreadable}"));
    let result = match report.subject {
        _ if report.is_damaged() => "DAMAGED",
        Looked::Records => "its frames are whole (RecordIO has no checksums: what is in them cannot be checked)",
        _ => "nothing is damaged",
    };
    out.push(result.to_owned());
    out.extend(next.map(|next| format!("next: {next}")));
    out
}

/// The result as JSON.
pub fn report_json(report: &Report, seconds: f64) -> serde_json::Result<serde_json::Value> {
    #[derive(Serialize)]
    struct Result<'a> {
        #[serde(flatten)]
        report: &'a Report,
        damaged: bool,
        seconds: f64,
    }
    serde_json::to_value(Result { report, damaged: report.is_damaged(), seconds })
}

/// The command that mends a damaged ring or, where repair finds nothing to mend, the one that saves what is left of its
/// damaged segments.
pub fn next(ring: &Path, can_repair: bool) -> String {
    if can_repair {
        return format!("{REPAIR} (repair cannot mend damaged segments: --salvage DIR saves what is whole of them)");
    }
    format!("`ringreel repair {} --salvage DIR` saves what is whole; readers skip the rest", ring.display())
}

fn problem(problem: &Problem) -> String {
    match problem {
        Problem::Refused { why } => why.clone(),
        Problem::NotDirectory => "it is no directory, which it should be".to_owned(),
        Problem::Denied { why } => format!("what is in it could not be looked at: {why}"),
        Problem::NoDescriptor => "it is missing: nobody can open the ring".to_owned(),
        Problem::NoManifest => "there is no manifest: readers see nothing".to_owned(),
        Problem::ManifestMissing { generation: n, is_readable } => {
            let what = if *is_readable { ": the samples in its directory cannot be read" } else { "" };
            format!("the manifest of generation {n} is missing{what}")
        }
        Problem::Unlisted { generation: n } => format!("there is no manifest of generation {n}: readers do not see it"),
        Problem::ListedTwice { id, before } => {
            format!("it lists segment {id}, which manifest {before} lists: its samples come twice")
        }
        Problem::OtherRing { ring } => format!("it is of ring {ring}, which is another one"),
        Problem::WrongTotal { says, delivered } => {
            format!("it counts {says} samples so far, where {delivered} were delivered")
        }
        Problem::Rebuilt { lost } => {
            format!("it was lost and rebuilt: {lost} samples that it listed are not there any more")
        }
        Problem::Promoting { generation: n } => format!(
            "the promotion of generation {n} was begun and not finished: it has no manifest, so readers do not see it; \
             a manager, or a generator, finishes it"
        ),
        Problem::Litter => "litter: no manifest belongs to it".to_owned(),
        Problem::PromotedAlready => "litter: this generation was promoted already".to_owned(),
        Problem::DirectoryMissing { generation: n, samples } => {
            format!("the directory of generation {n} is missing: {} lost", counted(*samples, "sample"))
        }
        Problem::Gap => "it is not there, although an older generation is: if KEEP covers it, its samples are lost \
                         (--keep N, with N as in KEEP, tells)"
            .to_owned(),
        Problem::NotListed { more } => strays(*more, "the manifest does not list it: readers do not see it"),
        Problem::NotSegment { more } => strays(*more, "this is no segment"),
        Problem::NotOwner => "no generator has such a name".to_owned(),
        Problem::Waiting { segments } => format!(
            "in no readable generation yet: {}; their owner links them, or a manager when the owner is dead",
            counted(*segments, "finished segment")
        ),
        Problem::Begun { files } => format!("{} that their owner has begun, or left behind", counted(*files, "file")),
        Problem::InQuarantine { why } => format!("in quarantine: {}", why.as_deref().unwrap_or("why, was not noted")),
        Problem::FileMissing { samples } => format!("the file is missing: {} lost", counted(*samples, "sample")),
        Problem::OtherSegment => ANOTHER.to_owned(),
        Problem::LargePart { bytes } => format!(
            "a part of {bytes} bytes, as it claims, would take more than a quarter of the memory here: it was not \
             decompressed (its checksum is right)"
        ),
        Problem::NoFooter { good } => {
            format!("its end is missing: of its samples {good} can be salvaged, how many there were is not known")
        }
        Problem::Empty => "it is empty: nothing was written, or all was cut off".to_owned(),
    }
}

fn strays(more: u64, what: &str) -> String {
    if more > 0 { format!("{} more: {what}", counted(more, "name")) } else { what.to_owned() }
}
