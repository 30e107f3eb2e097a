//! The last lines of `ringreel generate`, `put`, `read` and `pack`.

use crate::humanize::human_bytes;
use ringreel::write::generator::Summary;
use serde_json::{Value, json};

/// Describes what `ringreel generate` wrote.
pub fn generated(summary: &Summary, seconds: f64) -> String {
    let Summary { finished, delivered, waiting, bytes, .. } = summary;
    let (rate, size) = (*finished as f64 / seconds.max(1e-9), human_bytes(*bytes));
    format!(
        "{finished} samples finished ({size}) in {seconds:.1} s, {rate:.1} samples/s; {delivered} readable, {waiting} \
         waiting for their generation to fill"
    )
}

/// Returns the last line of `ringreel generate --json` and `put --json`. `refused` is the number of samples that the
/// ring refused, for commands that continue after such a sample.
pub fn written(summary: &Summary, refused: Option<u64>, seconds: f64) -> Value {
    // Names every field, so that a new one is not forgotten.
    let Summary {
        finished,
        delivered,
        waiting,
        bytes,
        waited_seconds,
        waited_room_seconds,
        waited_readers_seconds,
        made_seconds,
        wrote_seconds,
        swaps,
        quarantined,
        discarded,
    } = summary;
    let mut totals = json!({
        "finished": finished, "delivered": delivered, "waiting": waiting, "bytes": bytes,
        "waited_seconds": waited_seconds, "swaps": swaps, "quarantined": quarantined, "discarded": discarded,
        "waited_room_seconds": waited_room_seconds, "waited_readers_seconds": waited_readers_seconds,
        "made_seconds": made_seconds, "wrote_seconds": wrote_seconds, "seconds": seconds,
    });
    if let Some(refused) = refused {
        totals["refused"] = json!(refused);
    }
    json!({ "summary": totals })
}

/// The counts of `ringreel read`.
pub struct Read<'a> {
    pub samples: u64,
    pub bytes: u64,
    pub damaged: u64,
    /// Number of samples of reclaimed generations.
    pub gone: u64,
    pub missing: &'a [u64],
}

/// Describes what `ringreel read` read.
pub fn read(read: &Read<'_>, seconds: f64) -> String {
    let Read { samples, bytes, damaged, gone, missing } = read;
    let (rate, size) = (*samples as f64 / seconds.max(1e-9), human_bytes(*bytes));
    let mut text = format!("{samples} samples read ({size}) in {seconds:.1} s, {rate:.1} samples/s; {damaged} damaged");
    if *gone > 0 {
        text += &format!(", {gone} gone with their reclaimed generations");
    }
    if !missing.is_empty() {
        text += &format!("; missing generations: {missing:?}");
    }
    text
}

/// Describes what `ringreel pack` or `import` wrote; `what` is `samples` or `records`.
pub fn packed(done: &crate::convert::pack::Done, what: &str, seconds: f64) -> String {
    let skipped = if done.skipped > 0 { format!(", {} SKIPPED", done.skipped) } else { String::new() };
    let kept = if done.kept > 0 { format!(", {} from an earlier run", done.kept) } else { String::new() };
    format!("{} {what} ({}) in {seconds:.1} s{kept}{skipped}", done.samples, human_bytes(done.bytes))
}
