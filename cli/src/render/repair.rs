//! Sentences of `ringreel repair`.

use crate::output::plain_path;
use ringreel::ring::Ring;
use ringreel::ring::validation_split::DamagedSample;
use ringreel_ops::repair::facts::{Blocker, Cause, Rebuilding, Remedy};
use ringreel_ops::repair::liveness_survey::Survey;
use ringreel_ops::repair::{Repair, RepairAction, State};
use serde_json::json;

/// Returns one line. `applied`: repair ran with `--apply`; `gone`: the problem is gone.
pub fn mend(mend: &RepairAction, applied: bool, gone: bool) -> String {
    let (name, reason) = state(mend, applied, gone);
    let reason = reason.map_or(String::new(), |reason| format!(" [not now: {reason}]"));
    let RepairAction { what, path, .. } = mend;
    format!("{name:<8} {what:<9} {}: {} -> {}{reason}", plain_path(path), cause(&mend.why), action(&mend.action))
}

/// The same as JSON.
pub fn mend_json(mend: &RepairAction, applied: bool, gone: bool) -> serde_json::Value {
    let (name, reason) = state(mend, applied, gone);
    json!({
        "what": mend.what, "path": mend.path.to_string_lossy(), "why": cause(&mend.why), "action": action(&mend.action),
        "state": name, "reason": reason,
    })
}

fn state(mend: &RepairAction, applied: bool, gone: bool) -> (&'static str, Option<String>) {
    const TRIED: &str = "it was tried, and is still so: see the log, and run it again";
    match &mend.state {
        State::Litter => ("litter", None),
        _ if applied && gone => ("mended", None),
        State::Blocked(blocker) => ("left", Some(blocked(blocker))),
        State::ToDo if applied => ("left", Some(TRIED.to_owned())),
        State::ToDo => ("planned", None),
    }
}

/// The last line: `open` is how much is left to be mended.
pub fn result(ring: &Ring, open: usize, applied: bool, mended: bool, can_mend: bool) -> String {
    match open {
        0 if mended => "all that could be mended is mended".to_owned(),
        0 => format!(
            "nothing is to be mended ({}); repair does not read segments: `ringreel verify {}` does, and --salvage DIR \
             saves what is whole of damaged ones",
            ring.coordination.place(),
            ring.layout.root().display()
        ),
        n if applied => format!("{n} could not be mended"),
        n if !can_mend => format!("{n} cannot be repaired"),
        n => format!("{n} to mend: run it again with --apply"),
    }
}

/// Whose heartbeats are waited for.
pub fn survey(survey: Survey) -> String {
    let Survey { processes, time } = survey;
    let seconds = time.as_secs_f64();
    format!("heartbeats of {processes} processes, for {seconds:.1} s (longer where their leases are longer)")
}

fn cause(cause: &Cause) -> String {
    match cause {
        Cause::NoDescriptor => "it is missing: nobody can open the ring".to_owned(),
        Cause::BadDescriptor { why } | Cause::DamagedSegment { why } => format!("it is damaged: {why}"),
        Cause::NoManifest => "it is missing".to_owned(),
        Cause::NoManifestOfReadable => "it is missing, and its generation was readable".to_owned(),
        Cause::Refused { why } => why.clone(),
        Cause::OtherRing { ring } => format!("it is of ring {ring}, which is another one"),
        Cause::TooManyManifestsLost => {
            "a manifest that is lost listed it, and too many are lost to tell what".to_owned()
        }
        Cause::Promoting { generation: n } => {
            format!("the promotion of generation {n} was begun, and not finished: readers do not see it")
        }
        Cause::Full { generation: n, samples } => {
            format!("generation {n} is full ({samples} samples), and nobody promotes it")
        }
        Cause::Finished { segments, samples } => {
            format!("{segments} finished segments ({samples} samples) of a dead owner are in no generation")
        }
        Cause::LastName { samples } => {
            format!("{samples} samples that no manifest lists, and this is their last name")
        }
        Cause::PromotedAlready => "this generation was promoted already".to_owned(),
        Cause::Trash => "it is being removed".to_owned(),
        Cause::Coordination(repair) => coordination(repair),
        Cause::HeldOut { sample: DamagedSample { generation, position, id, why, .. } } => {
            format!("held-out sample {id} (position {position} of generation {generation}) is damaged: {why}")
        }
    }
}

/// What an index says, and should not.
pub fn coordination(repair: &Repair) -> String {
    match repair {
        Repair::Counter { generation, handed_out, free } => {
            format!("the counter of generation {generation} is at {handed_out}, and numbers below {free} are taken")
        }
        Repair::Status { says: Some(says), newest } => {
            format!("the swap status says generation {says}, and the newest is {newest}")
        }
        Repair::Status { says: None, newest } => {
            format!("there is no swap status, and the newest generation is {newest}")
        }
        Repair::Future { says, newest } => {
            format!("the swap status says generation {says}, which is not there (the newest is {newest})")
        }
    }
}

fn action(action: &Remedy) -> String {
    let text = match action {
        Remedy::RebuildFrom(rebuilding) => return rebuild(rebuilding),
        Remedy::QuarantineDamaged { why } => return format!("it goes to quarantine: it is damaged: {why}"),
        Remedy::RemakeDescriptor => {
            "it is made again, with the id that the manifests name and what the configuration says"
        }
        Remedy::Rebuild => "it is rebuilt",
        Remedy::RemakeEmpty => "the empty one is made again",
        Remedy::NothingIsKnown => "nothing is known of the right one",
        Remedy::LeaveWhole => "it is whole, as far as is known",
        Remedy::RestoreManifests => "put manifests/ back from a copy; or take its samples out with `ringreel export`",
        Remedy::FinishPromotion => "it is finished, as a manager would do it",
        Remedy::Promote => "it becomes readable",
        Remedy::Link => "they are linked into the generation that fills",
        Remedy::StageAgain => "it is staged again, and linked into the generation that fills",
        Remedy::Quarantine => "it goes to quarantine",
        Remedy::Reclaim => "a manager removes it, or `ringreel gc --apply`",
        Remedy::UpdateIndex => "it is told what the directory says",
        Remedy::RestoreFile => "restore this file from a copy; until then readers leave the sample out",
    };
    text.to_owned()
}

fn rebuild(rebuilding: &Rebuilding) -> String {
    let Rebuilding { generation: n, samples: has, segments, listed, damaged, unclear, .. } = rebuilding;
    let mut text = if rebuilding.is_there {
        let count = match listed {
            Some(listed) if listed == has => ", as many as it listed".to_owned(),
            Some(listed) if listed > has => format!(" of the {listed} that it listed; the others are not there"),
            Some(listed) => format!(", where its neighbours count {listed}"),
            None => ": all that can have been listed".to_owned(),
        };
        format!("it is rebuilt from read.{n}: {has} samples in {segments} segments{count}")
    } else {
        let lost = listed.map_or("its samples".to_owned(), |listed| format!("the {listed} samples that it listed"));
        format!("its generation is gone: one that lists nothing takes its place, and says that {lost} were there")
    };
    if *damaged > 0 {
        text += &format!(" ({damaged} files there are damaged)");
    }
    if *unclear > 0 {
        text += &format!("; {unclear} staged segments go to quarantine: whether they were delivered cannot be told");
    }
    text
}

fn blocked(blocker: &Blocker) -> String {
    match blocker {
        Blocker::ManifestFirst { generation: n } => format!("the manifest of generation {n} comes first"),
        Blocker::ManifestsFirst => "manifests that are lost come first".to_owned(),
        Blocker::RestoreManifest => "put the right one back".to_owned(),
        Blocker::OtherVersion => "use a ringreel of that version".to_owned(),
        Blocker::ManifestsLost { path } => {
            format!("{} and more manifests are lost: put manifests/ back from a copy", path.display())
        }
        Blocker::UnreadableManifest => "a manifest that may list it cannot be read".to_owned(),
        Blocker::HeldBack { by } => format!("it waits for {by}"),
        Blocker::IndexAway => "it can be asked again when it answers".to_owned(),
        Blocker::NotWatched => "whether anybody lives was not watched yet".to_owned(),
        Blocker::Unheard => "whether anybody lives cannot be told while the index is away".to_owned(),
        Blocker::Living { count, one } => format!("{count} managers and generators live ({one}): stop them first"),
        Blocker::NoCopy => "the ring holds no second copy of a sample".to_owned(),
    }
}
