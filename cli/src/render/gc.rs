//! What `ringreel gc` says of what it removes.

use crate::output::plain_path;
use ringreel::humanize::human_bytes;
use ringreel_ops::gc::{Garbage, Stays, Unneeded};
use serde_json::json;

/// One line.
pub fn garbage(garbage: &Garbage, gone: bool) -> String {
    let Garbage { path, files, bytes, .. } = garbage;
    let name = if gone { "remove" } else { "stays " };
    let reason = match stays(garbage) {
        Some(stays) => format!(" [{stays}]"),
        None if !gone => " [in use, or another user's]".to_owned(),
        None => String::new(),
    };
    format!("{name} {}: {files} files, {}: {}{reason}", plain_path(path), human_bytes(*bytes), why(garbage))
}

/// The same as JSON.
pub fn garbage_json(garbage: &Garbage, gone: bool) -> serde_json::Value {
    json!({
        "path": garbage.path.to_string_lossy(), "why": why(garbage), "files": garbage.files, "bytes": garbage.bytes,
        "gone": gone, "stays": stays(garbage),
    })
}

/// The last line: bytes that are freed, or would be, and how many things stay.
pub fn result(freed: u64, stays: usize, applied: bool) -> String {
    let would = if applied { "freed" } else { "would be freed" };
    let stays = if stays > 0 { format!(", {stays} stay") } else { String::new() };
    format!("{} {would}{stays}", human_bytes(freed))
}

fn why(garbage: &Garbage) -> String {
    match garbage.why {
        Unneeded::BeyondKeep(keep) => format!("it is older than the newest generation and KEEP ({keep})"),
        Unneeded::PromotedAlready => "this generation was promoted already".to_owned(),
        Unneeded::Trash => "it is being removed".to_owned(),
        Unneeded::Begun => "its owner began it, and is dead".to_owned(),
        Unneeded::Empty => "it is empty, and its owner is dead".to_owned(),
    }
}

fn stays(garbage: &Garbage) -> Option<String> {
    garbage.stays.as_ref().map(|stays| match stays {
        Stays::Needed(why) => why.clone(),
        Stays::Refused(why) => format!("it cannot be looked at: {why}"),
    })
}
