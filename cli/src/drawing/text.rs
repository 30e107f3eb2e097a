//! Draws fixed-width text into a picture.

use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_9X18_BOLD};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{DrawTarget, Drawable, OriginDimensions, Pixel, Point, RgbColor, Size};
use embedded_graphics::text::{Baseline, Text};
use image::{Rgb, RgbImage};
use std::convert::Infallible;

/// Font of captions.
pub(super) const SMALL: &MonoFont<'_> = &FONT_7X13;
/// Font of the sheet's title.
pub(super) const LARGE: &MonoFont<'_> = &FONT_9X18_BOLD;

struct Canvas<'a>(&'a mut RgbImage);

impl OriginDimensions for Canvas<'_> {
    fn size(&self) -> Size {
        Size::new(self.0.width(), self.0.height())
    }
}

impl DrawTarget for Canvas<'_> {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(point, colour) in pixels {
            if let (Ok(x), Ok(y)) = (u32::try_from(point.x), u32::try_from(point.y))
                && let Some(pixel) = self.0.get_pixel_mut_checked(x, y)
            {
                *pixel = Rgb([colour.r(), colour.g(), colour.b()]);
            }
        }
        Ok(())
    }
}

/// Distance between lines of text, in pixels.
pub(super) fn line_height(font: &MonoFont<'_>) -> u32 {
    font.character_size.height + 3
}

/// Width of this number of letters, in pixels.
pub(super) fn width_of(letters: usize, font: &MonoFont<'_>) -> u32 {
    u32::try_from(letters).unwrap_or(u32::MAX).saturating_mul(font.character_size.width)
}

/// Writes one line of text, starting at its upper left corner. Text beyond `width` is replaced by two dots.
pub(super) fn write(
    image: &mut RgbImage,
    text: &str,
    (x, y): (u32, u32),
    width: u32,
    font: &MonoFont<'_>,
    colour: Rgb<u8>,
) {
    let text = shortened(text, (width / font.character_size.width) as usize);
    let style = MonoTextStyle::new(font, Rgb888::new(colour.0[0], colour.0[1], colour.0[2]));
    let text = Text::with_baseline(&text, Point::new(x as i32, y as i32), style, Baseline::Top);
    let Ok(_) = text.draw(&mut Canvas(image));
}

/// Shortens text to one line of at most `most` characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    match text.chars().count() {
        n if n <= most => text.chars().map(plain).collect(),
        _ => text.chars().map(plain).take(most.saturating_sub(2)).chain("..".chars().take(most)).collect(),
    }
}
