//! Draws samples on a contact sheet: slices through volumes, labels in colour on top of them, and images.
//!
//! | file | |
//! |---|---|
//! | this file | [`contact_sheet`]: choice of samples, notes |
//! | `slices` | from a shape to the slices to draw |
//! | `numbers` | elements of any type, and their brightness |
//! | `panel` | one slice or one curve as pixels |
//! | `cell` | one sample: image, label, curve and text parts |
//! | `sheet` | the layout of the page |
//! | `colours`, `text` | colours and text drawing |
//! | [`terminal`] | pictures in a terminal |
//!
//! Only one sample is in memory at a time. After it is drawn, only the pixels remain.

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

/// Maximum number of samples on a sheet.
pub const MOST_SAMPLES: usize = 1000;
/// Allowed widths of a sheet, in pixels.
pub const WIDTHS: std::ops::RangeInclusive<u32> = 64..=8192;

/// Options of a contact sheet.
#[derive(Clone, Debug)]
pub struct SheetOptions {
    /// Title, the first line.
    pub title: String,
    /// Number of samples, spread evenly over all samples. At most [`MOST_SAMPLES`].
    pub samples: usize,
    /// Width in pixels, in [`WIDTHS`].
    pub width: u32,
    /// Samples side by side. By default as many as leave each slice large enough.
    pub columns: Option<u32>,
    /// The part to draw as an image. By default all parts that can be drawn.
    pub part: Option<String>,
    /// The part to draw in colours on top of the images. By default the one that looks like labels.
    pub label: Option<String>,
    /// Orientation of volumes.
    pub axes: Axes,
}

impl SheetOptions {
    /// Options for six samples and a width of 1200 pixels.
    pub fn new(title: impl Into<String>) -> SheetOptions {
        let title = title.into();
        SheetOptions { title, samples: 6, width: 1200, columns: None, part: None, label: None, axes: Axes::default() }
    }
}

/// One sample on a sheet.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Position of the sample.
    pub position: u64,
    /// Sample id; `None` for a plain record, or if the sample could not be read.
    pub id: Option<SampleId>,
    /// Name of the generator, if the meta contains it.
    pub generator: Option<String>,
    /// The slices, on the card's background; `None` if no part can be drawn.
    pub picture: Option<RgbImage>,
    /// Descriptions of the other parts.
    pub texts: Vec<String>,
    /// The reason why the sample could not be read.
    pub damage: Option<String>,
}

impl Tile {
    /// The position and the short id.
    pub fn caption(&self) -> String {
        let position = self.position;
        match self.id {
            Some(id) => format!("#{position}  {:.8}.{}", id.segment.to_string(), id.ordinal),
            None => format!("#{position}"),
        }
    }
}

/// A contact sheet.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The samples, in the order of their positions.
    pub tiles: Vec<Tile>,
    /// Notes for the user about anything that could not be read or drawn.
    pub notes: Vec<String>,
    /// The first line.
    title: String,
    /// Description of the drawn parts.
    subtitle: String,
    /// Name of the label part, and the labels found in it.
    legend: Option<(String, BTreeSet<i64>)>,
    layout: sheet::Layout,
}

impl Sheet {
    /// The whole sheet as one picture, with captions, a legend, and a marked empty place for each unreadable sample.
    pub fn image(&self) -> RgbImage {
        sheet::compose(self)
    }

    /// Number of samples that could not be read.
    pub fn damaged(&self) -> usize {
        self.tiles.iter().filter(|tile| tile.damage.is_some()).count()
    }
}

/// Draws samples spread evenly over `samples`. A sample that cannot be read is marked and reported in the notes.
///
/// # Errors
/// Nothing can be drawn: no sample, no readable one, no part that is an image; or a requested part does not exist or
/// cannot be drawn.
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
                sheet.notes.push(format!("sample {position} skipped: {error}"));
                let words = match &error {
                    Error::Format { source, .. } => source.to_string(), // without the path, which is too long for the card
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
            _ if count == 0 => Error::Sample("no samples".to_owned()),
            _ => Error::Sample("no part can be drawn: the samples contain no image, volume or curve".to_owned()),
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
