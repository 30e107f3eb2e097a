//! Chooses how to draw the parts of one sample: as image, as label on top of the images, as curve or as text.

use super::numbers::{Numbers, Window};
use super::panel::{Labels, Panel};
use super::slices::{Drawing, View, drawing};
use super::{SheetOptions, text};
use image::{ImageReader, Limits, RgbImage};
use ringreel::error::{Error, Result};
use ringreel::read::ReadPart;
use ringreel_format::recordio::image as irheader;
use ringreel_format::{DType, FormatError};
use ringreel_ops::inspect::samples::{Item, RECORD};
use std::collections::BTreeSet;
use std::io::Cursor;

/// Maximum number of images per sample.
const IMAGES: usize = 4;
/// Maximum number of distinct values of a label part.
const LABELS: usize = 64;
/// Maximum number of labels in the legend.
const TOLD: usize = 24;
/// Limits on a decoded image file: bytes, and pixels of the longest side.
const UNFOLDED: u64 = 256 << 20;
const LONGEST: u32 = 1 << 15;
/// Maximum number of characters of a value.
const LETTERS: usize = 80;
/// Maximum number of values per sample.
const TEXTS: usize = 4;

/// The drawing of one sample.
#[derive(Default)]
pub(super) struct Cell {
    /// Panels side by side, row by row.
    pub rows: Vec<Vec<Panel>>,
    pub texts: Vec<String>,
    /// Name of the label part, and its labels.
    pub labels: Option<(String, BTreeSet<i64>)>,
    pub notes: Vec<String>,
    drawn: Vec<String>,
}

/// A part drawn as slices.
struct Sliced<'a> {
    part: &'a ReadPart,
    numbers: Numbers<'a>,
    views: Vec<View>,
}

impl Sliced<'_> {
    fn lies_on(&self, other: &Sliced<'_>) -> bool {
        let sizes = |sliced: &Sliced<'_>| sliced.views.iter().map(|view| (view.rows, view.columns)).collect::<Vec<_>>();
        sizes(self) == sizes(other)
    }

    fn window(&self) -> Window {
        let window = Window::of(&self.numbers);
        let as_it_is = *self.numbers.dtype == DType::U8 && self.views.len() == 1 && !window.is_dark();
        if as_it_is { Window::BYTES } else { window }
    }

    fn is_named_label(&self) -> bool {
        let name = self.part.name.to_lowercase();
        ["label", "seg", "mask"].iter().any(|word| name.contains(word))
    }
}

impl Cell {
    /// Chooses the drawing of `item`.
    ///
    /// # Errors
    /// A requested part does not exist or cannot be drawn, or an image file cannot be decoded.
    pub fn of(item: &Item, options: &SheetOptions) -> Result<Cell> {
        for name in [&options.part, &options.label].into_iter().flatten() {
            if !item.parts.iter().any(|part| part.name == *name) {
                let names: Vec<&str> = item.parts.iter().map(|part| part.name.as_str()).collect();
                return Err(Error::Sample(format!("no part {name:?}: the parts are {}", names.join(", "))));
            }
        }
        let mut cell = Cell::default();
        let mut sliced = Vec::new();
        for part in &item.parts {
            let wanted = [&options.part, &options.label].into_iter().any(|name| name.as_ref() == Some(&part.name));
            let is_full = cell.rows.len() >= IMAGES && !wanted;
            if let Some(content) = image_file_in(item, part, &mut cell.texts) {
                if options.part.is_none() && is_full {
                    cell.leave_out(&part.name);
                } else if options.part.is_none() || wanted {
                    let picture = decoded(item, part, content)?;
                    cell.drawn.push(format!("{} {} x {}", part.name, picture.width(), picture.height()));
                    cell.rows.push(vec![Panel::picture(picture)]);
                }
                continue;
            }
            match (Numbers::of(part), drawing(&part.shape, options.axes)) {
                (Some(numbers), Drawing::Slices(views)) => sliced.push(Sliced { part, numbers, views }),
                (Some(_), Drawing::Curve(_)) if options.part.is_none() && is_full => cell.leave_out(&part.name),
                (Some(numbers), Drawing::Curve(_)) if options.part.is_none() || wanted => {
                    let (low, high) = Window::of(&numbers).ends();
                    cell.drawn.push(described(part));
                    cell.texts.push(format!("{}: from {} to {}", part.name, short(low), short(high)));
                    cell.rows.push(vec![Panel::curve(&numbers)]);
                }
                _ if wanted => {
                    return Err(Error::Sample(format!("part {:?} cannot be drawn: {}", part.name, described(part))));
                }
                _ => cell.texts.push(value(part)),
            }
        }
        cell.slices(&sliced, options);
        cell.texts.truncate(TEXTS);
        Ok(cell)
    }

    fn leave_out(&mut self, name: &str) {
        if self.notes.is_empty() {
            self.notes.push(format!("only {IMAGES} parts are drawn, without {name:?}: choose a part with --part NAME"));
        }
    }

    /// Description of the drawn parts.
    pub fn describe(&self) -> String {
        self.drawn.join("   ")
    }

    fn slices(&mut self, sliced: &[Sliced<'_>], options: &SheetOptions) {
        let label = label_of(sliced, options);
        let is_image = |n: usize| match &options.part {
            Some(name) => sliced[n].part.name == *name,
            None => Some(n) != label,
        };
        let images: Vec<usize> = (0..sliced.len()).filter(|n| is_image(*n)).collect();
        if images.len() > IMAGES {
            self.leave_out(&sliced[images[IMAGES]].part.name);
        }
        let mut first = 0; // slices go above curves
        for n in images.iter().copied().take(IMAGES) {
            let image = &sliced[n];
            let window = image.window();
            let over = label.map(|n| &sliced[n]).filter(|label| label.lies_on(image));
            let plain = image.views.iter().map(|view| Panel::slice(&image.numbers, view, window, None));
            let mut rows = vec![plain.collect::<Vec<_>>()];
            self.drawn.push(described(image.part));
            if let Some(label) = over {
                let views = image.views.iter().zip(&label.views);
                let panel = |(view, of): (&View, &View)| {
                    Panel::slice(&image.numbers, view, window, Some(self.labels(label, of)))
                };
                let labelled: Vec<Panel> = views.map(panel).collect();
                match &mut rows[..] {
                    [row] if row.len() == 1 => row.extend(labelled), // side by side
                    _ => rows.push(labelled),
                }
            }
            let count = rows.len();
            self.rows.splice(first..first, rows);
            first += count;
        }
        match label.map(|n| &sliced[n]) {
            Some(label) if images.is_empty() => {
                let panel = |view: &View| Panel::labels(view, self.labels(label, view));
                let row = label.views.iter().map(panel).collect();
                self.rows.insert(0, row);
                self.drawn.push(format!("{} in colours", described(label.part)));
            }
            Some(label) if self.labels.is_some() => self.drawn.push(format!("{} in colours", described(label.part))),
            _ => {}
        }
    }

    fn labels(&mut self, label: &Sliced<'_>, view: &View) -> Labels {
        let labels = Labels::of(&label.numbers, view);
        let (_, different) = self.labels.get_or_insert_with(|| (label.part.name.clone(), BTreeSet::new()));
        labels.different(TOLD, different);
        labels
    }
}

/// The label part: the requested one; or one with a label-like name; or one with few distinct integers that has the size
/// of an image part.
fn label_of(sliced: &[Sliced<'_>], options: &SheetOptions) -> Option<usize> {
    if let Some(name) = &options.label {
        return sliced.iter().position(|sliced| sliced.part.name == *name);
    }
    let is_image = |n: usize| options.part.as_ref() == Some(&sliced[n].part.name);
    let free = || (0..sliced.len()).filter(|n| !is_image(*n));
    let on_another = |n: usize| (0..sliced.len()).any(|m| m != n && sliced[n].lies_on(&sliced[m]));
    let named = free().find(|n| sliced[*n].is_named_label() && (on_another(*n) || sliced.len() == 1));
    named.or_else(|| {
        let image = match &options.part {
            Some(name) => sliced.iter().position(|sliced| sliced.part.name == *name)?,
            None => 0,
        };
        free().find(|n| *n != image && sliced[*n].lies_on(&sliced[image]) && sliced[*n].numbers.are_few(LABELS))
    })
}

/// The image file in a part, or in an MXNet image record, whose labels are added to `texts`.
fn image_file_in<'a>(item: &Item, part: &'a ReadPart, texts: &mut Vec<String>) -> Option<&'a [u8]> {
    let plain = matches!(part.dtype, DType::Bytes | DType::U8) && part.shape.len() == 1;
    let content = &part.data().ok().filter(|_| plain)?[..];
    if !is_image_file(content) && part.name == RECORD && item.id.is_none() {
        let image = irheader::Image::decode(content).ok().filter(|image| is_image_file(image.content))?;
        let labels: Vec<String> = image.labels().take(8).map(|label| label.to_string()).collect();
        texts.push(format!("label {}", labels.join(", ")));
        return Some(image.content);
    }
    is_image_file(content).then_some(content)
}

/// Decodes an image file.
fn decoded(item: &Item, part: &ReadPart, content: &[u8]) -> Result<RgbImage> {
    let bad = |error: image::ImageError| {
        let input = FormatError::Input(format!("the image in part {:?} cannot be decoded: {error}", part.name));
        Error::Format { path: item.file.to_path_buf(), source: input }
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST);
    limits.max_image_height = Some(LONGEST);
    limits.max_alloc = Some(UNFOLDED);
    let mut reader = ImageReader::new(Cursor::new(content)).with_guessed_format().map_err(|error| bad(error.into()))?;
    reader.limits(limits);
    Ok(reader.decode().map_err(bad)?.to_rgb8())
}

/// Whether the bytes are a PNG or JPEG file.
fn is_image_file(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n") || bytes.starts_with(&[0xff, 0xd8, 0xff])
}

fn described(part: &ReadPart) -> String {
    let shape: Vec<String> = part.shape.iter().map(u64::to_string).collect();
    format!("{} {} {}", part.name, part.dtype, if shape.is_empty() { "scalar".to_owned() } else { shape.join("x") })
}

/// A number in short form.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        1e-3..1e6 => format!("{number:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => format!("{number:.3e}"),
    }
}

/// Text for a part that is not drawn.
fn value(part: &ReadPart) -> String {
    let name = &part.name;
    let Ok(bytes) = part.data() else { return format!("{name}: needs a later version") };
    if let Some(numbers) = Numbers::of(part)
        && (1..=16).contains(&numbers.len())
    {
        let values: Vec<String> = (0..numbers.len()).map(|n| short(numbers.at(n))).collect();
        return format!("{name}: {}", text::shortened(&values.join(", "), LETTERS));
    }
    let words = match &part.dtype {
        DType::Bytes => std::str::from_utf8(&bytes[..bytes.len().min(4 * LETTERS)]).ok().map(str::to_owned),
        DType::Numpy { descr, .. } if descr.starts_with("<U") && part.shape.is_empty() => {
            let letters = bytes.chunks_exact(4).filter_map(|four| four.try_into().ok().map(u32::from_le_bytes));
            Some(letters.take_while(|letter| *letter != 0).take(2 * LETTERS).filter_map(char::from_u32).collect())
        }
        _ => None,
    };
    match words {
        Some(words) if !words.is_empty() => format!("{name}: {}", text::shortened(&words, LETTERS)),
        _ => format!("{}, not drawn", described(part)),
    }
}
