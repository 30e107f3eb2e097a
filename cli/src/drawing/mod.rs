//! Samples as pictures: a contact sheet of slices through volumes, labels in colours over them, and images as they are.
//!
//! | file | |
//! |---|---|
//! | here | [`contact_sheet`]: which samples, and what is told of them |
//! | `slices` | from a shape to the slices that are drawn |
//! | `numbers` | elements of any type, and their brightness |
//! | `panel` | one slice, or one curve, as pixels |
//! | `cell` | one sample: which part is an image, which a label, which a text |
//! | `sheet` | all of them on one page |
//! | `colours`, `text` | |
//! | [`terminal`] | a picture in a terminal |
//!
//! One sample is held at a time, and of it, after it is drawn, only the pixels.

mod cell;
mod colours;
mod numbers;
mod panel;
mod sheet;
mod slices;
pub mod terminal;
mod text;

pub use colours::of_label;
pub use slices::Axes;

use cell::Cell;
use image::RgbImage;
use ringreel::error::{Error, Result};
use ringreel::segment::SampleId;
use ringreel_ops::inspect::samples::{Item, Samples};
use std::collections::BTreeSet;

/// Most samples on a sheet.
pub const MOST_SAMPLES: usize = 1000;
/// Widths of a sheet, in pixels.
pub const WIDTHS: std::ops::RangeInclusive<u32> = 64..=8192;

/// What a sheet shows.
#[derive(Clone, Debug)]
pub struct SheetOptions {
    /// What it is of: its first line.
    pub title: String,
    /// Samples, spread over all there are. At most [`MOST_SAMPLES`].
    pub samples: usize,
    /// Its width in pixels, one of [`WIDTHS`].
    pub width: u32,
    /// Samples side by side; by default as many as leave each slice large enough.
    pub columns: Option<u32>,
    /// The one part that is drawn as an image; by default all that can be.
    pub part: Option<String>,
    /// The part that is drawn in colours over the images; by default the one that looks like labels.
    pub label: Option<String>,
    /// How volumes are turned.
    pub axes: Axes,
}

impl SheetOptions {
    /// Six samples in 1200 pixels.
    pub fn new(title: impl Into<String>) -> SheetOptions {
        let title = title.into();
        SheetOptions { title, samples: 6, width: 1200, columns: None, part: None, label: None, axes: Axes::default() }
    }
}

/// One sample on a sheet.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Its position.
    pub position: u64,
    /// Its id; none of a record, or of one that could not be read.
    pub id: Option<SampleId>,
    /// Who generated it, where its meta says so.
    pub generator: Option<String>,
    /// Its slices, on the sheet's background; none where it has nothing that can be drawn.
    pub picture: Option<RgbImage>,
    /// Parts that are no pictures, in words.
    pub texts: Vec<String>,
    /// Why it could not be read.
    pub damage: Option<String>,
}

impl Tile {
    /// Position and short id.
    pub fn caption(&self) -> String {
        let position = self.position;
        match self.id {
            Some(id) => format!("#{position}  {:.8}.{}", id.segment.to_string(), id.ordinal),
            None => format!("#{position}"),
        }
    }
}

/// Samples in pictures.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The samples, in the order of their positions.
    pub tiles: Vec<Tile>,
    /// What else is to be said: what could not be looked at or drawn.
    pub notes: Vec<String>,
    /// Its first line.
    title: String,
    /// What is drawn, in words.
    subtitle: String,
    /// The labels that are there, and the part that holds them.
    legend: Option<(String, BTreeSet<i64>)>,
    layout: sheet::Layout,
}

impl Sheet {
    /// The whole sheet as one picture: captions, legend, and a marked empty place for each sample that cannot be read.
    pub fn image(&self) -> RgbImage {
        sheet::compose(self)
    }

    /// Samples that could not be read.
    pub fn damaged(&self) -> usize {
        self.tiles.iter().filter(|tile| tile.damage.is_some()).count()
    }
}

/// Draws samples from all over `samples`. One that cannot be read is marked, and told in the notes.
///
/// # Errors
/// Nothing that can be drawn: no sample, none that can be read, no part that is an image; a part that is asked for by a
/// name that no sample has.
pub fn contact_sheet(samples: &Samples, options: &SheetOptions) -> Result<Sheet> {
    let count = (options.samples.clamp(1, MOST_SAMPLES) as u64).min(samples.len());
    let mut sheet = Sheet {
        tiles: Vec::new(),
        notes: crate::render::samples::notes(samples).collect(),
        title: options.title.clone(),
        subtitle: String::new(),
        legend: None,
        layout: sheet::Layout::new(options, count),
    };
    let mut why = None;
    for n in 0..count {
        let position = (u128::from(n) * u128::from(samples.len()) / u128::from(count)) as u64;
        match samples.get(position).and_then(|item| Ok((Cell::of(&item, options)?, item))) {
            Ok((cell, item)) => sheet.take(cell, &item),
            Err(error @ Error::Sample(_)) => return Err(error),
            Err(error) => {
                sheet.notes.push(format!("sample {position} is skipped: {error}"));
                let words = match &error {
                    Error::Format { source, .. } => source.to_string(), // the file's name would fill its place
                    other => other.to_string(),
                };
                sheet.tiles.push(Tile::damaged(position, words));
                why.get_or_insert(error);
            }
        }
    }
    if sheet.tiles.iter().all(|tile| tile.picture.is_none()) {
        return Err(match why {
            Some(error) if sheet.damaged() == sheet.tiles.len() => error,
            _ if count == 0 => Error::Sample("there is no sample to be shown".to_owned()),
            _ => Error::Sample("no part of the samples can be drawn: none is an image, a volume or a curve".to_owned()),
        });
    }
    Ok(sheet)
}

impl Sheet {
    fn take(&mut self, cell: Cell, item: &Item) {
        self.layout.settle(&cell);
        if self.subtitle.is_empty() {
            self.subtitle = cell.describe();
        }
        for note in &cell.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        if let Some((name, labels)) = &cell.labels {
            self.legend.get_or_insert_with(|| (name.clone(), BTreeSet::new())).1.extend(labels);
        }
        self.tiles.push(Tile {
            position: item.position,
            id: item.id,
            generator: item.meta.text("generator").map(str::to_owned),
            picture: self.layout.paint(&cell),
            texts: cell.texts,
            damage: None,
        });
    }
}

impl Tile {
    fn damaged(position: u64, why: String) -> Tile {
        Tile { position, id: None, generator: None, picture: None, texts: Vec::new(), damage: Some(why) }
    }
}
