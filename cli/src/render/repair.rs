//! Output of `ringreel repair`.

use crate::humanize::{counted, human_bytes};
use crate::output::plain_path;
use ringreel::ring::Ring;
use ringreel_ops::held_out::DamagedSample;
use ringreel_ops::inspect::salvage::Saved;
use ringreel_ops::repair::facts::{Blocker, Cause, Rebuilding, Remedy};
use ringreel_ops::repair::liveness_survey::Survey;
use ringreel_ops::repair::{Repair, RepairAction, State};
use serde_json::json;

/// Describes one repair in one line. `applied`: repair ran with `--apply`; `gone`: the problem is gone.
pub fn action_line(action: &RepairAction, applied: bool, gone: bool) -> String {
    let (name, reason) = state(action, applied, gone);
    let reason = reason.map_or(String::new(), |reason| format!(" [not now: {reason}]"));
    let RepairAction { what, path, .. } = action;
    format!("{name:<8} {what:<9} {}: {} -> {}{reason}", plain_path(path), cause(&action.why), remedy(&action.action))
}

/// Describes one repair as JSON.
pub fn action_json(action: &RepairAction, applied: bool, gone: bool) -> serde_json::Value {
    let (name, reason) = state(action, applied, gone);
    json!({
        "what": action.what, "path": action.path.to_string_lossy(), "why": cause(&action.why), "action": remedy(&action.action),
        "state": name, "reason": reason,
    })
}

/// Returns the state of a repair as `--json` names it, and why it is not made.
fn state(action: &RepairAction, applied: bool, gone: bool) -> (&'static str, Option<String>) {
    const TRIED: &str = "the repair had no effect: see the log, then run repair again";
    match &action.state {
        State::Litter => ("litter", None),
        _ if applied && gone => ("repaired", None),
        State::Blocked(blocker) => ("left", Some(blocked(blocker))),
        State::ToDo if applied => ("left", Some(TRIED.to_owned())),
        State::ToDo => ("planned", None),
    }
}

/// Returns the last line; `open` is the number of remaining problems.
pub fn result(ring: &Ring, open: usize, applied: bool, repaired: bool, is_repairable: bool) -> String {
    let problems = counted(open as u64, "problem");
    match open {
        0 if repaired => "all repairs applied".to_owned(),
        0 => format!(
            "no repairs needed (index: {}); repair does not read segments: `ringreel verify {}` checks them, and \
             --salvage DIR copies the intact samples of damaged ones",
            ring.coordination.place(),
            ring.layout.root().display()
        ),
        _ if applied => format!("{problems} could not be repaired"),
        _ if !is_repairable => format!("{problems} cannot be repaired"),
        _ => format!("{problems} found: to repair, run again with --apply"),
    }
}

/// Describes the salvage of one damaged segment.
pub fn salvaged(one: &Saved) -> String {
    let Saved { path, to, samples, of, bytes } = one;
    let path = plain_path(path);
    match to {
        Some(to) => {
            format!("salvaged {path}: {samples} of {of} samples, in {} ({})", plain_path(to), human_bytes(*bytes))
        }
        None => format!("not salvaged {path}: none of its {of} samples is intact"),
    }
}

/// Returns what repair waits for while it watches heartbeats.
pub fn survey(survey: Survey) -> String {
    let Survey { processes, time } = survey;
    let seconds = time.as_secs_f64();
    format!("heartbeats of {processes} processes for {seconds:.1} s (longer if their leases are longer)")
}

fn cause(cause: &Cause) -> String {
    match cause {
        Cause::NoDescriptor => "missing: the ring cannot be opened".to_owned(),
        Cause::BadDescriptor { why } | Cause::DamagedSegment { why } => format!("damaged: {why}"),
        Cause::NoManifest => "missing".to_owned(),
        Cause::NoManifestOfReadable => "missing, but its generation was readable".to_owned(),
        Cause::Refused { why } => why.clone(),
        Cause::OtherRing { ring } => format!("belongs to another ring, {ring}"),
        Cause::TooManyManifestsLost => "was listed by a lost manifest; too many are lost to rebuild it".to_owned(),
        Cause::Promoting { generation: n } => {
            format!("the promotion of generation {n} is unfinished: readers do not see it")
        }
        Cause::Full { generation: n, samples } => {
            format!("generation {n} is full ({}), but no process promotes it", counted(*samples, "sample"))
        }
        Cause::Finished { segments, samples } => format!(
            "{} ({}) of a dead owner not in any generation",
            counted(*segments, "finished segment"),
            counted(*samples, "sample")
        ),
        Cause::LastName { samples } => {
            format!("the last name of {} that no manifest lists", counted(*samples, "sample"))
        }
        Cause::PromotedAlready => "this generation is already promoted".to_owned(),
        Cause::Trash => "being removed".to_owned(),
        Cause::Coordination(repair) => coordination(repair),
        Cause::HeldOut { sample: DamagedSample { generation, position, id, why, .. } } => {
            format!("held-out sample {id} (position {position} of generation {generation}) is damaged: {why}")
        }
    }
}

/// Describes how the index contradicts the directory.
pub fn coordination(repair: &Repair) -> String {
    match repair {
        Repair::Counter { generation, handed_out, free } => {
            format!("the counter of generation {generation} is at {handed_out}, but indices below {free} are in use")
        }
        Repair::Status { says: Some(says), newest } => {
            format!("the swap status names generation {says}, but the newest is {newest}")
        }
        Repair::Status { says: None, newest } => {
            format!("the swap status is missing; the newest generation is {newest}")
        }
        Repair::Future { says, newest } => {
            format!("the swap status names generation {says}, which does not exist (the newest is {newest})")
        }
    }
}

fn remedy(action: &Remedy) -> String {
    let text = match action {
        Remedy::RebuildFrom(rebuilding) => return rebuild(rebuilding),
        Remedy::QuarantineDamaged { why } => return format!("move it to quarantine: damaged: {why}"),
        Remedy::RemakeDescriptor => "recreate it with the ring id of the manifests and the configured values",
        Remedy::Rebuild => "rebuild it",
        Remedy::RemakeEmpty => "recreate the empty manifest",
        Remedy::NothingIsKnown => "none, because its correct contents are unknown",
        Remedy::LeaveWhole => "none, because it appears intact",
        Remedy::RestoreManifests => "restore manifests/ from a copy, or save its samples with `ringreel export`",
        Remedy::FinishPromotion => "finish the promotion",
        Remedy::Promote => "promote it",
        Remedy::Link => "link them into the filling generation",
        Remedy::StageAgain => "stage it again, and link it into the filling generation",
        Remedy::Quarantine => "move it to quarantine",
        Remedy::Reclaim => "removed by a manager or by `ringreel gc --apply`",
        Remedy::UpdateIndex => "update it from the directory",
        Remedy::RestoreFile => "restore this file from a copy; until then readers skip the sample",
    };
    text.to_owned()
}

fn rebuild(rebuilding: &Rebuilding) -> String {
    let Rebuilding { generation: n, samples: has, segments, listed, damaged, unclear, .. } = rebuilding;
    let mut text = if rebuilding.is_there {
        let count = match listed {
            Some(listed) if listed == has => ", as many as it listed".to_owned(),
            Some(listed) if listed > has => format!(" of the {listed} that it listed; the others are missing"),
            Some(listed) => format!(", but by the adjacent manifests it listed {listed}"),
            None => ", all that it can have listed".to_owned(),
        };
        let (samples, segments) = (counted(*has, "sample"), counted(*segments as u64, "segment"));
        format!("rebuild it from read.{n}: {samples} in {segments}{count}")
    } else {
        let lost = listed.map_or("its samples".to_owned(), |listed| format!("the {listed} samples that it listed"));
        format!("replace it with an empty manifest that records {lost} as lost, because its generation is gone")
    };
    if *damaged > 0 {
        text += &format!(" ({} in the directory)", counted(*damaged as u64, "damaged file"));
    }
    if *unclear > 0 {
        let segments = counted(*unclear as u64, "staged segment");
        text += &format!("; move {segments} to quarantine, because they may have been delivered already");
    }
    text
}

fn blocked(blocker: &Blocker) -> String {
    match blocker {
        Blocker::ManifestFirst { generation: n } => format!("the manifest of generation {n} must be repaired first"),
        Blocker::ManifestsFirst => "lost manifests must be repaired first".to_owned(),
        Blocker::RestoreManifest => "restore the correct manifest from a copy".to_owned(),
        Blocker::OtherVersion => "use a ringreel of that version".to_owned(),
        Blocker::ManifestsLost { path } => {
            format!("{} and other manifests are lost: restore manifests/ from a copy", path.display())
        }
        Blocker::UnreadableManifest => "a manifest that may list it cannot be read".to_owned(),
        Blocker::HeldBack { by } => format!("it waits for {by}"),
        Blocker::IndexAway => "run repair again when the index is reachable".to_owned(),
        Blocker::NotWatched => "heartbeats have not been watched yet".to_owned(),
        Blocker::Unheard => "the index is unreachable, so it is unknown which processes are alive".to_owned(),
        Blocker::Living { count, one } => {
            format!("managers or generators are alive ({count}, such as {one}): stop them first")
        }
        Blocker::NoCopy => "the ring holds no second copy of a sample".to_owned(),
    }
}
