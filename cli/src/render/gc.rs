//! Output of `ringreel gc`.

use crate::humanize::{counted, human_bytes};
use crate::output::plain_path;
use ringreel_ops::gc::{Garbage, Stays, Unneeded};
use serde_json::json;

/// Describes what is removed, or why it is kept, in one line.
pub fn garbage(garbage: &Garbage, gone: bool) -> String {
    let Garbage { path, files, bytes, .. } = garbage;
    let name = if gone { "remove" } else { "stays " };
    let reason = match stays(garbage) {
        Some(stays) => format!(" [{stays}]"),
        None if !gone => " [in use, or owned by another user]".to_owned(),
        None => String::new(),
    };
    format!("{name} {}: {files} files, {}: {}{reason}", plain_path(path), human_bytes(*bytes), why(garbage))
}

/// Describes what is removed, or why it is kept, as JSON.
pub fn garbage_json(garbage: &Garbage, gone: bool) -> serde_json::Value {
    json!({
        "path": garbage.path.to_string_lossy(), "why": why(garbage), "files": garbage.files, "bytes": garbage.bytes,
        "gone": gone, "stays": stays(garbage),
    })
}

/// Returns the last line: bytes that are or would be freed, and the number of items that are not removed.
pub fn result(freed: u64, stays: usize, applied: bool) -> String {
    let would = if applied { "freed" } else { "would be freed" };
    let stays = if stays > 0 { format!(", {} not removed", counted(stays as u64, "item")) } else { String::new() };
    format!("{} {would}{stays}", human_bytes(freed))
}

fn why(garbage: &Garbage) -> String {
    match garbage.why {
        Unneeded::BeyondKeep(keep) => format!("generation beyond KEEP ({keep})"),
        Unneeded::PromotedAlready => "this generation is already promoted".to_owned(),
        Unneeded::Trash => "already in trash/".to_owned(),
        Unneeded::Begun => "unfinished file of a dead owner".to_owned(),
        Unneeded::Empty => "empty directory of a dead owner".to_owned(),
    }
}

fn stays(garbage: &Garbage) -> Option<String> {
    garbage.stays.as_ref().map(|stays| match stays {
        Stays::Needed(why) => why.clone(),
        Stays::Refused(why) => format!("cannot be examined: {why}"),
    })
}
