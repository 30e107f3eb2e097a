//! The facts of a report: the ring's descriptor, history and state, and pictures of samples.
//!
//! They are read from the ring's directory and its index. Only the samples that are drawn are read.

use crate::drawing::terminal::png;
use crate::drawing::{SheetOptions, contact_sheet};
use ringreel::error::Result;
use ringreel::ring::Ring;
use ringreel_ops::history::{History, Swap};
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::samples::Samples;
use ringreel_ops::status::{Status, status};
use std::collections::HashMap;
use std::time::Duration;

/// Most swaps in a report.
pub const MOST_SWAPS: usize = 100_000;

/// The contents of a report.
pub struct Facts {
    /// Time of the report by this machine's clock, as Unix time in milliseconds.
    pub unix_ms: u64,
    /// State of the ring.
    pub status: Status,
    /// The most recent swaps, oldest first.
    pub swaps: Vec<Swap>,
    /// STALE_AFTER: the age from which the newest generation is stale.
    pub stale_after: Duration,
    /// Samples as a PNG file, or the reason why they cannot be drawn.
    pub pictures: std::result::Result<Vec<u8>, String>,
    /// Notes on the pictures.
    pub notes: Vec<String>,
    /// Number of samples that were to be drawn and are damaged.
    pub damaged: usize,
}

impl Facts {
    /// Collects the facts of `ring`, with at most `swaps` swaps, and draws `samples` samples of its newest generation.
    ///
    /// # Errors
    /// The filesystem's errors. Damage is not an error: the report shows it.
    pub fn of(ring: &Ring, swaps: usize, samples: usize, stale_after: Duration) -> Result<Facts> {
        let mut history = History::of_last(swaps.clamp(1, MOST_SWAPS));
        history.update(ring)?;
        let mut facts = Facts {
            unix_ms: ringreel::unix_ms(),
            status: status(ring)?,
            swaps: history.swaps().cloned().collect(),
            stale_after,
            pictures: Err("not requested (--samples 0)".to_owned()),
            notes: Vec::new(),
            damaged: 0,
        };
        if samples > 0 {
            facts.draw(ring, samples);
        }
        Ok(facts)
    }

    fn draw(&mut self, ring: &Ring, samples: usize) {
        let subject = Subject::Ring(ring.layout.clone());
        let sheet = Samples::open(ring.fs.clone(), &subject).and_then(|all| {
            let name = ring.layout.root().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let generation = all.generation().unwrap_or_default();
            let title = format!("{name}   generation {generation}   {} samples", all.len());
            contact_sheet(&all, &SheetOptions { samples, ..SheetOptions::new(title) })
        });
        self.pictures = match sheet {
            Ok(sheet) => {
                self.damaged = sheet.damaged();
                self.notes.extend(sheet.notes.iter().cloned());
                png(&sheet.image()).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
    }

    /// Returns the time span of the report.
    pub(super) fn span(&self) -> (u64, u64) {
        let first = self.swaps.iter().map(|swap| swap.unix_ms).min().unwrap_or(self.unix_ms);
        (first, self.unix_ms.max(first))
    }

    /// Returns the age of the newest generation over time, in seconds: it grows until the next swap.
    pub(super) fn staleness(&self) -> Vec<super::plots::Point> {
        let mut points = Vec::with_capacity(2 * self.swaps.len() + 1);
        let mut before: Option<u64> = None;
        for at in self.swaps.iter().map(|swap| swap.unix_ms) {
            let age = before.map_or(0, |before| at.saturating_sub(before));
            points.extend([(at, Some(age as f64 / 1e3)), (at, Some(0.0))]);
            before = Some(at);
        }
        points.extend(before.map(|last| (self.unix_ms, Some(self.unix_ms.saturating_sub(last) as f64 / 1e3))));
        points
    }

    /// Returns the periods in which the newest generation was stale.
    pub(super) fn gaps(&self) -> Vec<(u64, u64)> {
        let most = self.stale_after.as_millis() as u64;
        let ends = self.swaps.iter().map(|swap| swap.unix_ms).skip(1).chain([self.unix_ms]);
        let pairs = self.swaps.iter().map(|swap| swap.unix_ms).zip(ends);
        pairs.filter(|(from, to)| to.saturating_sub(*from) > most).collect()
    }

    /// Returns the number of samples per generator in these swaps, for the `most` largest, and the sum of all others.
    pub(super) fn shares(&self, most: usize) -> (Vec<(String, u64)>, u64) {
        let mut by_name = HashMap::<&str, u64>::new();
        let mut others = 0u64;
        for swap in &self.swaps {
            others = others.saturating_add(swap.others);
            for share in &swap.generators {
                let samples = by_name.entry(&share.name).or_default();
                *samples = samples.saturating_add(share.samples);
            }
        }
        let mut all: Vec<(String, u64)> = by_name.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let rest = all.split_off(all.len().min(most));
        (all, rest.iter().fold(others, |sum, (_, n)| sum.saturating_add(*n)))
    }

    /// Returns how many manifests are missing or unreadable from the first to the newest swap.
    pub(super) fn missing(&self) -> u64 {
        let (Some(first), Some(last)) = (self.swaps.first(), self.swaps.last()) else { return 0 };
        let span = last.generation.max(self.status.newest) - first.generation + 1;
        span.saturating_sub(self.swaps.len() as u64)
    }
}
