//! Sentences about samples that cannot be looked at.

use ringreel::humanize::counted;
use ringreel_ops::inspect::samples::{Note, Samples};

/// The notes of `samples`.
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
            format!("the newest generation, {newest}, is missing: {} is gone", dir.display())
        }
        Note::NoManifest { generation: n } => format!("generation {n} has no manifest: readers do not see it"),
        Note::More(n) => format!("and {} like these", counted(*n, "note")),
    }
}
