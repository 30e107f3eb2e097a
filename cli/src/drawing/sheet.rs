//! Lays out the page: a title, cards side by side, each with a caption above its slices, and a legend of the labels.

use super::cell::Cell;
use super::colours::{BAD, BRIGHT, CARD, DIM, PAGE, of_label};
use super::panel::Panel;
use super::text::{LARGE, SMALL, line_height, shortened, width_of, write};
use super::{Sheet, SheetOptions, Tile, WIDTHS};
use image::imageops::replace;
use image::{Rgb, RgbImage};

/// Pixels around a card's contents, and between cards.
const PADDING: u32 = 12;
/// Pixels between slices.
const GAP: u32 = 4;
/// Preferred minimum width of a slice.
const SLICE: u32 = 150;
/// The height of the picture area on a card without a picture.
const EMPTY: u32 = 90;

/// The arrangement of the cards.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    width: u32,
    wanted: Option<u32>,
    count: u32,
    /// Cards side by side, set by the first sample with a picture.
    columns: Option<u32>,
}

impl Layout {
    pub fn new(options: &SheetOptions, count: u64) -> Layout {
        let width = options.width.clamp(*WIDTHS.start(), *WIDTHS.end());
        Layout { width, wanted: options.columns, count: u32::try_from(count).unwrap_or(1).max(1), columns: None }
    }

    /// Sets the number of columns from the first sample that has a picture.
    pub fn settle(&mut self, cell: &Cell) {
        let Some(panels) = cell.rows.iter().map(Vec::len).max() else { return };
        let roomy = (self.width - PADDING) / (panels as u32 * (SLICE + GAP) + 3 * PADDING);
        let columns = self.wanted.unwrap_or(roomy).clamp(1, self.count).min(self.width / 48);
        self.columns.get_or_insert(columns.max(1));
    }

    fn columns(&self) -> u32 {
        self.columns.unwrap_or(1)
    }

    fn card(&self) -> u32 {
        (self.width - PADDING) / self.columns() - PADDING
    }

    /// Width of a card's contents.
    fn inner(&self) -> u32 {
        self.card().saturating_sub(2 * PADDING).max(1)
    }

    /// Draws a sample's slices as large as possible.
    pub fn paint(&self, cell: &Cell) -> Option<RgbImage> {
        let rows: Vec<Vec<RgbImage>> = cell.rows.iter().map(|row| paint_row(row, self.inner())).collect();
        let tallest = |row: &Vec<RgbImage>| row.iter().map(RgbImage::height).max().unwrap_or(0);
        let height = rows.iter().map(|row| tallest(row) + GAP).sum::<u32>().checked_sub(GAP)?;
        let mut painted = RgbImage::from_pixel(self.inner(), height, CARD);
        let mut y = 0;
        for row in rows {
            let mut x = 0;
            for panel in &row {
                replace(&mut painted, panel, i64::from(x), i64::from(y + (tallest(&row) - panel.height()) / 2));
                x += panel.width() + GAP;
            }
            y += tallest(&row) + GAP;
        }
        Some(painted)
    }
}

/// Draws a row with one scale for all slices, so that they keep the proportions of the volume.
fn paint_row(row: &[Panel], width: u32) -> Vec<RgbImage> {
    let gaps = GAP * (row.len() as u32).saturating_sub(1);
    let sizes: Vec<(f64, f64)> = row.iter().filter_map(Panel::size).collect();
    let (wide, high) = sizes.iter().fold((0.0, 0.0), |(w, h): (f64, f64), size| (w + size.0, h.max(size.1)));
    let room = f64::from(width.saturating_sub(gaps).max(1));
    let scale = (room / wide).min(f64::from(width) * 1.5 / high);
    let side = |len: f64| ((len * scale) as u32).max(1);
    let paint = |panel: &Panel| match panel.size() {
        Some((w, h)) => panel.paint(side(w), side(h)),
        None => panel.paint(width, (width / 4).max(16)),
    };
    row.iter().map(paint).collect()
}

/// Draws the whole page.
pub(super) fn compose(sheet: &Sheet) -> RgbImage {
    let layout = &sheet.layout;
    let rows: Vec<&[Tile]> = sheet.tiles.chunks(layout.columns() as usize).collect();
    let heights: Vec<u32> = rows.iter().map(|row| row.iter().map(card_height).max().unwrap_or(0)).collect();
    let head = line_height(LARGE) + line_height(SMALL) + 2 * PADDING;
    let foot = if sheet.legend.is_some() { line_height(SMALL) + PADDING } else { 0 };
    let height = head + heights.iter().map(|height| height + PADDING).sum::<u32>() + foot;
    let mut page = RgbImage::from_pixel(layout.width, height, PAGE);
    let room = layout.width - 2 * PADDING;
    write(&mut page, &sheet.title, (PADDING, PADDING), room, LARGE, BRIGHT);
    write(&mut page, &sheet.subtitle, (PADDING, PADDING + line_height(LARGE)), room, SMALL, DIM);
    let mut y = head;
    for (row, height) in rows.iter().zip(&heights) {
        for (tile, n) in row.iter().zip(0..) {
            card(&mut page, tile, (PADDING + n * (layout.card() + PADDING), y), (layout.card(), *height));
        }
        y += height + PADDING;
    }
    legend(&mut page, sheet, y);
    page
}

fn card_height(tile: &Tile) -> u32 {
    let picture = tile.picture.as_ref().map_or(EMPTY, RgbImage::height);
    let lines = 1 + u32::from(tile.generator.is_some());
    (lines + tile.texts.len() as u32) * line_height(SMALL) + picture + 2 * PADDING + GAP
}

fn card(page: &mut RgbImage, tile: &Tile, (x, y): (u32, u32), (width, height): (u32, u32)) {
    fill(page, (x, y), (width, height), CARD);
    let (x, mut y, room) = (x + PADDING, y + PADDING, width.saturating_sub(2 * PADDING));
    let line = |page: &mut RgbImage, y: &mut u32, text: &str, colour| {
        write(page, text, (x, *y), room, SMALL, colour);
        *y += line_height(SMALL);
    };
    line(page, &mut y, &tile.caption(), BRIGHT);
    if let Some(generator) = &tile.generator {
        line(page, &mut y, generator, DIM);
    }
    y += GAP;
    if let Some(why) = &tile.damage {
        frame(page, (x, y), (room, EMPTY), BAD);
        cross(page, (x, y), (room, EMPTY), BAD);
        fill(page, (x + 1, y + EMPTY / 2 - 10), (room.saturating_sub(2), 20), CARD);
        let words = shortened(&format!("damaged: {why}"), (room / SMALL.character_size.width) as usize);
        write(page, &words, (x + GAP, y + EMPTY / 2 - 6), room.saturating_sub(2 * GAP), SMALL, BAD);
        return;
    }
    if let Some(picture) = &tile.picture {
        replace(page, picture, i64::from(x), i64::from(y));
    }
    y += tile.picture.as_ref().map_or(EMPTY, RgbImage::height) + GAP;
    for text in &tile.texts {
        line(page, &mut y, text, DIM);
    }
}

/// Draws the colours of the labels, as many as fit on one line.
fn legend(page: &mut RgbImage, sheet: &Sheet, y: u32) {
    let Some((name, labels)) = &sheet.legend else { return };
    let mut x = PADDING;
    write(page, name, (x, y), width_of(24, SMALL), SMALL, DIM);
    x += width_of(name.chars().count().min(24) + 2, SMALL);
    for label in labels {
        let (Some(colour), number) = (of_label(*label), label.to_string()) else { continue };
        let width = 12 + 6 + width_of(number.len() + 2, SMALL);
        if x + width > page.width() {
            write(page, "..", (x, y), width_of(2, SMALL), SMALL, DIM);
            return;
        }
        fill(page, (x, y + 1), (12, 12), colour);
        write(page, &number, (x + 18, y), width, SMALL, BRIGHT);
        x += width;
    }
}

fn fill(page: &mut RgbImage, (x, y): (u32, u32), (width, height): (u32, u32), colour: Rgb<u8>) {
    for y in y..y.saturating_add(height).min(page.height()) {
        for x in x..x.saturating_add(width).min(page.width()) {
            page.put_pixel(x, y, colour);
        }
    }
}

fn frame(page: &mut RgbImage, (x, y): (u32, u32), (width, height): (u32, u32), colour: Rgb<u8>) {
    let (right, below) = (x + width.saturating_sub(1), y + height.saturating_sub(1));
    fill(page, (x, y), (width, 1), colour);
    fill(page, (x, below), (width, 1), colour);
    fill(page, (x, y), (1, height), colour);
    fill(page, (right, y), (1, height), colour);
}

fn cross(page: &mut RgbImage, (x, y): (u32, u32), (width, height): (u32, u32), colour: Rgb<u8>) {
    for n in 0..width {
        let down = n * height.saturating_sub(1) / width.max(1);
        fill(page, (x + n, y + down), (1, 1), colour);
        fill(page, (x + n, y + height.saturating_sub(1) - down), (1, 1), colour);
    }
}
