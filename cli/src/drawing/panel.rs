//! Draws one slice or one curve, at the resolution of its data and then at the final size.

use super::colours::{BRIGHT, CARD, CURVE, blend, of_label};
use super::numbers::{Numbers, Window};
use super::slices::View;
use image::imageops::{FilterType, resize};
use image::{Rgb, RgbImage};
use std::collections::BTreeSet;

/// Maximum side of a slice in memory. Longer sides are subsampled, so that memory use is bounded.
const LONGEST: usize = 2048;
/// Slices smaller than this are enlarged without smoothing, so that each element is a square.
const SQUARES: u32 = 64;
/// Maximum number of columns of a curve.
const COLUMNS: usize = 512;
/// Number of values examined per column of a curve.
const PER_COLUMN: usize = 256;

/// One picture on a card.
pub(super) enum Panel {
    /// A slice, with optional labels on top.
    Slice { picture: RgbImage, over: Option<Labels>, width: usize, height: usize },
    /// A curve: minimum and maximum of each column, from 0 (bottom) to 1 (top).
    Curve(Vec<Option<(f64, f64)>>),
}

/// Labels of a slice, row by row.
pub(super) struct Labels {
    columns: usize,
    rows: usize,
    values: Vec<i64>,
}

impl Labels {
    pub fn of(numbers: &Numbers<'_>, view: &View) -> Labels {
        let (rows, columns) = (thinned(view.rows), thinned(view.columns));
        let value = |n| numbers.at(element(view, (rows, columns), (n / columns, n % columns), 0)).round() as i64;
        Labels { columns, rows, values: (0..rows * columns).map(value).collect() }
    }

    /// Adds the labels except the background, until there are `most`.
    pub fn different(&self, most: usize, into: &mut BTreeSet<i64>) {
        for value in self.values.iter().filter(|value| **value != 0) {
            if into.len() >= most {
                return;
            }
            into.insert(*value);
        }
    }

    /// The label at pixel (x, y) of a picture of this size.
    fn at(&self, (x, y): (u32, u32), (width, height): (u32, u32)) -> i64 {
        let column = (2 * x as usize + 1) * self.columns / (2 * width as usize);
        let row = (2 * y as usize + 1) * self.rows / (2 * height as usize);
        self.values[row * self.columns + column]
    }
}

fn thinned(len: usize) -> usize {
    len.min(LONGEST)
}

/// The element of a view at a pixel of a picture that can be smaller than the view.
fn element(view: &View, (rows, columns): (usize, usize), (row, column): (usize, usize), colour: usize) -> usize {
    view.element(row * view.rows / rows, column * view.columns / columns, colour)
}

impl Panel {
    /// A slice of an image.
    pub fn slice(numbers: &Numbers<'_>, view: &View, window: Window, over: Option<Labels>) -> Panel {
        let (rows, columns) = (thinned(view.rows), thinned(view.columns));
        let picture = RgbImage::from_fn(columns as u32, rows as u32, |x, y| {
            let grey =
                |colour| window.grey(numbers.at(element(view, (rows, columns), (y as usize, x as usize), colour)));
            if view.is_coloured() { Rgb([grey(0), grey(1), grey(2)]) } else { Rgb([grey(0); 3]) }
        });
        Panel::Slice { picture, over, width: view.columns, height: view.rows }
    }

    /// Labels without an image.
    pub fn labels(view: &View, labels: Labels) -> Panel {
        let picture = RgbImage::new(labels.columns as u32, labels.rows as u32);
        Panel::Slice { picture, over: Some(labels), width: view.columns, height: view.rows }
    }

    /// A decoded picture.
    pub fn picture(picture: RgbImage) -> Panel {
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let longest = LONGEST as f64 / width.max(height).max(1) as f64;
        let shorter = |side: usize| ((side as f64 * longest) as u32).max(1);
        let picture = if longest < 1.0 {
            resize(&picture, shorter(width), shorter(height), FilterType::Triangle)
        } else {
            picture
        };
        Panel::Slice { picture, over: None, width, height }
    }

    /// A curve.
    pub fn curve(numbers: &Numbers<'_>) -> Panel {
        let (len, window) = (numbers.len(), Window::of(numbers));
        let columns = len.min(COLUMNS);
        let column = |n: usize| {
            let (begin, end) = (n * (len / columns) + n * (len % columns) / columns, (n + 1) * len / columns);
            let values = (begin..end.max(begin + 1)).step_by(((end.saturating_sub(begin)) / PER_COLUMN).max(1));
            let values = values.map(|index| numbers.at(index)).filter(|value| value.is_finite());
            values.map(|value| window.part_of(value)).fold(None, |ends: Option<(f64, f64)>, value| {
                Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
            })
        };
        Panel::Curve((0..columns).map(column).collect())
    }

    /// Width and height in elements; `None` for a curve, which fits any size.
    pub fn size(&self) -> Option<(f64, f64)> {
        match self {
            Panel::Slice { width, height, .. } => Some((*width as f64, *height as f64)),
            Panel::Curve(_) => None,
        }
    }

    /// Draws the panel at its final size.
    pub fn paint(&self, width: u32, height: u32) -> RgbImage {
        match self {
            Panel::Slice { picture, over, .. } => {
                let filter = match (picture.width().max(picture.height()), picture.width() < width) {
                    (..SQUARES, true) => FilterType::Nearest,
                    (_, true) => FilterType::CatmullRom,
                    _ => FilterType::Triangle,
                };
                let mut painted = resize(picture, width, height, filter);
                if let Some(labels) = over {
                    for (x, y, pixel) in painted.enumerate_pixels_mut() {
                        if let Some(colour) = of_label(labels.at((x, y), (width, height))) {
                            *pixel = blend(*pixel, colour);
                        }
                    }
                }
                painted
            }
            Panel::Curve(columns) => curve(columns, width, height),
        }
    }
}

fn curve(columns: &[Option<(f64, f64)>], width: u32, height: u32) -> RgbImage {
    let mut painted = RgbImage::from_pixel(width, height, blend(CARD, Rgb([0; 3])));
    let bottom = height.saturating_sub(1);
    let y = |share: f64| (f64::from(bottom) * (1.0 - share)).round() as u32;
    let mut before: Option<(u32, u32)> = None;
    for x in 0..width {
        let ends = columns[x as usize * columns.len() / width as usize];
        let Some((high, low)) = ends.map(|(low, high)| (y(high), y(low))) else {
            before = None;
            continue;
        };
        // Connect to the column before, so that a steep curve has no gaps.
        let (from, to) = before.map_or((high, low), |(top, end)| (high.min(end), low.max(top)));
        for y in from..=to.min(bottom) {
            painted.put_pixel(x, y, if (high..=low).contains(&y) { BRIGHT } else { CURVE });
        }
        before = Some((high, low));
    }
    painted
}
