//! Output of `ringreel verify`.

use crate::humanize::{counted, human_bytes};
use crate::output::{plain, plain_path};
use ringreel::error::REPAIR_COMMAND;
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
        [one] => format!("; affects sample {one}"),
        [first, ..] => format!("; affects {} samples, the first is {first}", finding.samples.len()),
    };
    format!("{kind} {}{bytes}: {}{samples}", plain_path(&finding.path), plain(&problem(&finding.problem)))
}

/// Describes a finding as JSON.
pub fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({
        "kind": finding.kind, "path": finding.path.to_string_lossy(), "bytes": finding.bytes,
        "samples": finding.samples,
        "message": problem(&finding.problem),
    })
}

/// Lists all findings and the result; `next` is the command to run for a damaged ring.
pub fn report(report: &Report, seconds: f64, next: Option<String>) -> Vec<String> {
    let mut out: Vec<String> = report.findings.iter().map(finding).collect();
    if report.more > 0 {
        out.push(format!("and {}", counted(report.more, "more finding")));
    }
    let (subject, what) = match report.subject {
        Looked::Ring => ("ring", "sample"),
        Looked::Generation => ("generation", "sample"),
        Looked::Segment => ("segment", "sample"),
        Looked::Records => ("RecordIO file", "record"),
    };
    let (files, bytes) = (counted(report.files, "file"), human_bytes(report.bytes));
    let unlisted = match report.unlisted {
        0 => String::new(),
        n => format!(", {n} of them not in a readable generation"),
    };
    let unreadable = match report.unreadable {
        0 => String::new(),
        n => format!("; {n} listed but not readable"),
    };
    let readable = counted(report.readable, what);
    // RecordIO has no checksums.
    let how = if report.subject == Looked::Records { "readable" } else { "intact" };
    out.push(format!("{subject}: {files}, {bytes} checked in {seconds:.1} s: {readable} {how}{unlisted}{unreadable}"));
    let result = match report.subject {
        _ if report.is_damaged() => "DAMAGED",
        Looked::Records => "framing is intact (RecordIO has no checksums, so the contents cannot be verified)",
        _ => "no damage found",
    };
    out.push(result.to_owned());
    out.extend(next.map(|next| format!("next: {next}")));
    out
}

/// Returns the result as JSON.
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

/// Returns the command to run next for a damaged ring: repair, or salvage if no repair is possible.
pub fn next(ring: &Path, can_repair: bool) -> String {
    if can_repair {
        return format!("{REPAIR_COMMAND} (for damaged segments add --salvage DIR, which copies their intact samples)");
    }
    format!(
        "`ringreel repair {} --salvage DIR` copies the intact samples of damaged segments; readers skip the others",
        ring.display()
    )
}

fn problem(problem: &Problem) -> String {
    match problem {
        Problem::Refused { why } => why.clone(),
        Problem::NotDirectory => "not a directory".to_owned(),
        Problem::Denied { why } => format!("the directory could not be read: {why}"),
        Problem::NoDescriptor => "the file is missing: the ring cannot be opened".to_owned(),
        Problem::NoManifest => "the ring has no manifest: readers see no samples".to_owned(),
        Problem::ManifestMissing { generation: n, is_readable } => {
            let what = if *is_readable { ": the samples in its directory cannot be read" } else { "" };
            format!("the manifest of generation {n} is missing{what}")
        }
        Problem::Unlisted { generation: n } => format!("generation {n} has no manifest: readers do not see it"),
        Problem::ListedTwice { id, before } => {
            format!("lists segment {id}, which manifest {before} lists too: its samples are delivered twice")
        }
        Problem::OtherRing { ring } => format!("belongs to another ring, {ring}"),
        Problem::WrongTotal { says, delivered } => {
            format!("counts {says} samples delivered so far, but the manifests list {delivered}")
        }
        Problem::Rebuilt { lost } => {
            format!("was lost and rebuilt; {} that it listed are missing", counted(*lost, "sample"))
        }
        Problem::Promoting { generation: n } => format!(
            "the promotion of generation {n} is unfinished: it has no manifest, so readers do not see it; a manager or \
             a generator will finish it"
        ),
        Problem::Litter => "litter: no manifest belongs to it".to_owned(),
        Problem::PromotedAlready => "litter: this generation is already promoted".to_owned(),
        Problem::DirectoryMissing { generation: n, samples } => {
            format!("the directory of generation {n} is missing: {} lost", counted(*samples, "sample"))
        }
        Problem::Gap => "missing, but an older generation exists: if KEEP covers it, its samples are lost (to check, \
                         add --keep N, with N as in KEEP)"
            .to_owned(),
        Problem::NotListed { more } => strays(*more, "not listed by the manifest: readers do not see it"),
        Problem::NotSegment { more } => strays(*more, "not a segment"),
        Problem::NotOwner => "not an owner's name".to_owned(),
        Problem::Waiting { segments } => format!(
            "{} not yet in a readable generation; linked by the owner, or by a manager if the owner is dead",
            counted(*segments, "finished segment")
        ),
        Problem::Begun { files } => {
            format!("{}, being written by the owner or abandoned", counted(*files, "unfinished file"))
        }
        Problem::InQuarantine { why } => {
            format!("in quarantine: {}", why.as_deref().unwrap_or("the reason was not recorded"))
        }
        Problem::FileMissing { samples } => format!("the file is missing: {} lost", counted(*samples, "sample")),
        Problem::OtherSegment => ANOTHER.to_owned(),
        Problem::LargePart { bytes } => format!(
            "a part claims a size of {bytes} bytes, more than a quarter of this machine's memory: its checksum is \
             correct, but it was not decompressed"
        ),
        Problem::NoFooter { good } => {
            format!(
                "the end of the file is missing: {} can be salvaged; the total is unknown",
                counted(*good, "sample")
            )
        }
        Problem::Empty => "the file is empty: nothing was written, or it was truncated".to_owned(),
    }
}

fn strays(more: u64, what: &str) -> String {
    if more > 0 { format!("{}: {what}", counted(more, "more name")) } else { what.to_owned() }
}
