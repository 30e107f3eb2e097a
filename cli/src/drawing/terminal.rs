//! Shows a picture in a terminal: with kitty graphics, sixels, or half blocks in 24-bit colour.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::imageops::{ColorMap, dither};
use image::{ExtendedColorType, ImageEncoder, ImageResult, Rgb, RgbImage};
use std::fmt::Write;

/// Maximum bytes per kitty command.
const CHUNK: usize = 4096;

/// Encodes the picture as a PNG file.
///
/// # Errors
/// An error of the encoder, which does not occur in practice.
pub fn png(picture: &RgbImage) -> ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let (width, height) = picture.dimensions();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive);
    encoder.write_image(picture, width, height, ExtendedColorType::Rgb8)?;
    Ok(bytes)
}

/// Encodes the picture for the kitty graphics protocol: a PNG in base64, in chunks. The terminal does not answer (`q=2`).
/// <https://sw.kovidgoyal.net/kitty/graphics-protocol/>
///
/// # Errors
/// As [`png`].
pub fn kitty(picture: &RgbImage) -> ImageResult<String> {
    let text = STANDARD.encode(png(picture)?);
    let chunks: Vec<&[u8]> = text.as_bytes().chunks(CHUNK).collect();
    let mut out = String::new();
    for (n, chunk) in chunks.iter().enumerate() {
        let first = if n == 0 { "a=T,f=100,q=2," } else { "" };
        let more = u8::from(n + 1 < chunks.len());
        let _ = write!(out, "\x1b_G{first}m={more};{}\x1b\\", String::from_utf8_lossy(chunk));
    }
    out.push('\n');
    Ok(out)
}

/// A palette of all colours of 6 reds, 6 greens and 6 blues, and 25 greys.
struct Palette;

const STEPS: usize = 6;
const CUBE: usize = STEPS * STEPS * STEPS;
const GREYS: usize = 25;

impl Palette {
    fn colour(index: usize) -> [u8; 3] {
        if index >= CUBE {
            return [((index - CUBE) * 255 / (GREYS - 1)) as u8; 3];
        }
        [index / 36, index / 6 % 6, index % 6].map(|step| (step * 255 / (STEPS - 1)) as u8)
    }
}

impl ColorMap for Palette {
    type Color = Rgb<u8>;

    fn index_of(&self, colour: &Rgb<u8>) -> usize {
        let [r, g, b] = colour.0.map(usize::from);
        let step = |value: usize| (value * (STEPS - 1) + 127) / 255;
        let cube = step(r) * 36 + step(g) * 6 + step(b);
        let grey = CUBE + ((r + g + b) / 3 * (GREYS - 1) + 127) / 255;
        let off = |index| {
            let near = Palette::colour(index).map(usize::from);
            near[0].abs_diff(r).pow(2) + near[1].abs_diff(g).pow(2) + near[2].abs_diff(b).pow(2)
        };
        if off(grey) < off(cube) { grey } else { cube }
    }

    fn map_color(&self, colour: &mut Rgb<u8>) {
        *colour = Rgb(Palette::colour(self.index_of(colour)));
    }
}

/// Encodes the picture as sixels (DEC, VT330/VT340): bands of six lines, colour by colour, run-length encoded. The
/// palette is fixed, because crates that choose one have many dependencies.
pub fn sixel(picture: &RgbImage) -> String {
    let mut picture = picture.clone();
    dither(&mut picture, &Palette);
    let (width, height) = picture.dimensions();
    let mut out = format!("\x1bPq\"1;1;{width};{height}");
    for index in 0..CUBE + GREYS {
        let [r, g, b] = Palette::colour(index).map(|value| u32::from(value) * 100 / 255);
        let _ = write!(out, "#{index};2;{r};{g};{b}");
    }
    for top in (0..height).step_by(6) {
        // For each colour and column, a bit per line that has the colour.
        let mut bands = vec![Vec::new(); CUBE + GREYS];
        for x in 0..width {
            for y in top..height.min(top + 6) {
                let band = &mut bands[Palette.index_of(picture.get_pixel(x, y))];
                if band.is_empty() {
                    band.resize(width as usize, 0u8);
                }
                band[x as usize] |= 1 << (y - top);
            }
        }
        for (index, band) in bands.iter().enumerate().filter(|(_, band)| !band.is_empty()) {
            let _ = write!(out, "#{index}");
            for run in band.chunk_by(|a, b| a == b) {
                let sixel = char::from(63 + run[0]);
                let _ = if run.len() > 3 {
                    write!(out, "!{}{sixel}", run.len())
                } else {
                    run.iter().try_for_each(|_| out.write_char(sixel))
                };
            }
            out.push('$');
        }
        out.push('-');
    }
    out.push_str("\x1b\\\n");
    out
}

/// Encodes the picture as lines of half blocks. Each character is two pixels, one above the other.
pub fn blocks(picture: &RgbImage) -> Vec<String> {
    let line = |y: u32| {
        let mut line = String::new();
        let mut set = None;
        for x in 0..picture.width() {
            let upper = *picture.get_pixel(x, y);
            let lower = picture.get_pixel_checked(x, y + 1).copied().unwrap_or(upper);
            if set != Some((upper, lower)) {
                let ([r, g, b], [lr, lg, lb]) = (upper.0, lower.0);
                let _ = write!(line, "\x1b[38;2;{r};{g};{b};48;2;{lr};{lg};{lb}m");
                set = Some((upper, lower));
            }
            line.push('▀');
        }
        line + "\x1b[0m"
    };
    (0..picture.height()).step_by(2).map(line).collect()
}
