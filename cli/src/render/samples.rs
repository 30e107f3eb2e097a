//! Descriptions of a sample, and of samples that cannot be read.

use super::inspect::{codec, range};
use super::record;
use crate::formats::json::meta_json;
use crate::humanize::{counted, human_bytes};
use crate::output::{plain, plain_path};
use ringreel::read::ReadPart;
use ringreel::value_stats::Range;
use ringreel_format::{Codec, Head, Part, PartHead, PartPlace};
use ringreel_ops::inspect::records::Content;
use ringreel_ops::inspect::samples::{Item, Note, Samples};
use serde_json::json;

/// Describes one sample or record.
pub fn item(samples: &Samples, item: &Item, head: Option<&Head>) -> Vec<String> {
    let (position, len) = (item.position, samples.len());
    let of = samples.generation().map_or(String::new(), |n| format!(" of generation {n}"));
    let mut out = vec![match item.id {
        Some(id) => format!("sample {position}{of}: {id}"),
        None => format!("record {position} of {len}"),
    }];
    let place = item.bytes.as_ref().map_or(String::new(), |at| format!(", bytes {} to {}", at.start, at.end));
    out.push(format!("  in     {}{place}", plain_path(&item.file)));
    out.push("parts".to_owned());
    let stored = |n: usize| head.and_then(|head| head.parts.get(n));
    out.extend(item.parts.iter().enumerate().map(|(n, found)| part(found, stored(n))));
    if samples.are_records() {
        let payload = item.parts.first().and_then(|part| part.data().ok().cloned()).unwrap_or_default();
        let content = Content::of(&payload, payload.len() as u64);
        out.push(format!("  content: {}", record::content(&content)));
        return out;
    }
    out.push("meta".to_owned());
    let meta = meta_json(&item.meta);
    out.extend(meta.as_object().into_iter().flatten().map(|(key, value)| plain(&format!("  {key}: {value}"))));
    out
}

/// Describes one sample or record as JSON.
pub fn item_json(samples: &Samples, item: &Item, head: Option<&Head>) -> serde_json::Value {
    let part = |(n, part): (usize, &ReadPart)| {
        let stored = head.and_then(|head| head.parts.get(n));
        json!({
            "name": part.name, "dtype": part.dtype.to_string(), "shape": part.shape, "bytes": part.len(),
            "stored": stored.map(|head| head.stored_len), "codec": stored.map(|head| codec(head.codec)),
            "file_offset": part.file_offset, "range": range_of(part), "readable": part.data().is_ok(),
        })
    };
    json!({
        "position": item.position, "id": item.id.map(|id| id.to_string()), "generation": samples.generation(),
        "file": item.file.to_string_lossy(), "bytes": item.bytes.as_ref().map(|bytes| [bytes.start, bytes.end]),
        "parts": item.parts.iter().enumerate().map(part).collect::<Vec<_>>(), "meta": meta_json(&item.meta),
    })
}

fn range_of(part: &Part) -> Option<Range> {
    Range::of(&part.dtype, part.data().ok()?)
}

/// Describes a part of a sample: dtype, shape, storage and values.
fn part(part: &ReadPart, stored: Option<&PartHead>) -> String {
    let what = plain(&format!("{}: {} {:?}", part.name, part.dtype, part.shape));
    let mut text = format!("  {what}, {}", human_bytes(part.len()));
    if let Some(head) = stored {
        if head.codec != Codec::Plain {
            text += &format!(", stored as {} ({})", human_bytes(head.stored_len), codec(head.codec));
        }
        text += &match (&head.place, part.file_offset) {
            (PartPlace::Inline(_), _) => ", in the head".to_owned(),
            (PartPlace::Large { .. }, Some(at)) => format!(", at byte {at}"),
            (PartPlace::Large { records, .. }, None) => format!(", from byte {}", records.frames().start),
        };
    }
    text += &range_of(part).map_or(String::new(), |found| format!(": {}", range(&found)));
    if let Err(why) = part.data() {
        text += &format!(": {}", plain(&why.to_string()));
    }
    text
}

/// Returns the notes of `samples` as sentences.
pub fn notes(samples: &Samples) -> impl Iterator<Item = String> + '_ {
    samples.notes().iter().map(note)
}

/// Logs a warning for each note.
pub fn warn(samples: &Samples) {
    notes(samples).for_each(|note| tracing::warn!("{note}"));
}

fn note(note: &Note) -> String {
    match note {
        Note::Refused { why } => why.clone(),
        Note::Skipped { path, begin, end, why } => {
            format!("{}: bytes {begin} to {end} were skipped: {why}", path.display())
        }
        Note::DamagedPart { path, sample } => format!("{}: a part of sample {sample} is damaged", path.display()),
        Note::NewestMissing { newest, dir } => {
            format!("the newest generation, {newest}, is missing: {} does not exist", dir.display())
        }
        Note::NoManifest { generation: n } => format!("generation {n} has no manifest: readers do not see it"),
        Note::More(n) => format!("and {}", counted(*n, "more note")),
    }
}
