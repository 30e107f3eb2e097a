//! From the bytes of a picture to the numbers of a batch.

use super::mean::MeanImage;
use super::picture::{Picture, Rect, View};
use super::random::Random;
use std::sync::Arc;

/// The order of the axes of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Batch, channel, row, column.
    #[default]
    Nchw,
    /// Batch, row, column, channel.
    Nhwc,
}

/// The element type of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Element {
    /// Bytes as they are decoded: nothing is normalised.
    U8,
    /// Normalised numbers.
    #[default]
    F32,
}

/// How a byte becomes a number: `(byte - mean) × scale × contrast / std + illumination × scale / std`, with the constants
/// of its channel (R, G, B, alpha). The names are MXNet's parameters.
#[derive(Clone, Debug)]
pub struct Normalise {
    /// Means.
    pub mean: [f32; 4],
    /// Standard deviations.
    pub std: [f32; 4],
    /// Factor of all channels.
    pub scale: f32,
    /// The contrast is a random number in 1 ± this.
    pub max_random_contrast: f32,
    /// The illumination is a random number in 0 ± this.
    pub max_random_illumination: f32,
    /// A mean for each pixel and channel, in place of `mean`.
    pub mean_image: Option<Arc<MeanImage>>,
}

impl Default for Normalise {
    fn default() -> Normalise {
        Normalise {
            mean: [0.0; 4],
            std: [1.0; 4],
            scale: 1.0,
            max_random_contrast: 0.0,
            max_random_illumination: 0.0,
            mean_image: None,
        }
    }
}

impl Normalise {
    /// Whether it is the same for all images.
    fn is_fixed(&self) -> bool {
        self.max_random_contrast == 0.0 && self.max_random_illumination == 0.0
    }

    /// Factor and summand of each channel of one image.
    fn draw(&self, random: &mut Random) -> ([f32; 4], [f32; 4]) {
        let contrast = random.within(1.0 - self.max_random_contrast, 1.0 + self.max_random_contrast) * self.scale;
        let illumination = random.within(-self.max_random_illumination, self.max_random_illumination) * self.scale;
        (self.std.map(|std| contrast / std), self.std.map(|std| illumination / std))
    }
}

/// The number of each byte of each channel.
type Table = [[f32; 256]; 4];

/// Writes pictures as numbers.
pub(super) struct Writer {
    normalise: Normalise,
    layout: Layout,
    /// The table of all images, where they share one.
    table: Option<Box<Table>>,
}

impl Writer {
    pub(super) fn new(normalise: Normalise, layout: Layout) -> Writer {
        let mut writer = Writer { normalise, layout, table: None };
        if writer.normalise.is_fixed() && writer.normalise.mean_image.is_none() {
            writer.table = Some(Box::new(writer.tabulate(&mut Random::new(0, 0, 0))));
        }
        writer
    }

    fn tabulate(&self, random: &mut Random) -> Table {
        let (factor, summand) = self.normalise.draw(random);
        let mean = self.normalise.mean;
        [0, 1, 2, 3].map(|channel| {
            std::array::from_fn(|byte| (byte as f32 - mean[channel]) * factor[channel] + summand[channel])
        })
    }

    /// Writes a picture, mirrored or not, as normalised numbers.
    pub(super) fn write_f32(&self, view: View<'_>, is_mirrored: bool, random: &mut Random, out: &mut [f32]) {
        if let Some(mean) = &self.normalise.mean_image {
            let (factor, summand) = self.normalise.draw(random);
            let (height, width, channels) = (view.height, view.width, view.channels);
            for (y, row) in view.rows().enumerate() {
                for (x, pixel) in row.chunks_exact(channels).enumerate() {
                    for (channel, byte) in pixel.iter().enumerate() {
                        let mean = mean.values[(channel * height + y) * width + x];
                        let value = (f32::from(*byte) - mean) * factor[channel] + summand[channel];
                        let x = if is_mirrored { width - 1 - x } else { x };
                        out[match self.layout {
                            Layout::Nchw => (channel * height + y) * width + x,
                            Layout::Nhwc => (y * width + x) * channels + channel,
                        }] = value;
                    }
                }
            }
            return;
        }
        let own;
        let table = match &self.table {
            Some(table) => &**table,
            None => {
                own = self.tabulate(random);
                &own
            }
        };
        write(view, is_mirrored, self.layout, out, |channel, byte| table[channel][usize::from(byte)]);
    }

    /// Writes a picture's bytes.
    pub(super) fn write_u8(&self, view: View<'_>, is_mirrored: bool, out: &mut [u8]) {
        write(view, is_mirrored, self.layout, out, |_, byte| byte);
    }
}

fn write<T>(view: View<'_>, is_mirrored: bool, layout: Layout, out: &mut [T], number: impl Fn(usize, u8) -> T) {
    match (layout, view.channels) {
        (_, 1) => interleaved::<1, T>(view, is_mirrored, out, number),
        (Layout::Nhwc, 3) => interleaved::<3, T>(view, is_mirrored, out, number),
        (Layout::Nhwc, _) => interleaved::<4, T>(view, is_mirrored, out, number),
        (Layout::Nchw, 3) if !is_mirrored => three_planes(view, out, number, |pixels| pixels.iter()),
        (Layout::Nchw, 3) => three_planes(view, out, number, |pixels| pixels.iter().rev()),
        (Layout::Nchw, _) => planes::<4, T>(view, is_mirrored, out, number),
    }
}

fn interleaved<const C: usize, T>(view: View<'_>, is_mirrored: bool, out: &mut [T], number: impl Fn(usize, u8) -> T) {
    let put = |out: &mut [T; C], pixel: &[u8; C]| {
        for channel in 0..C {
            out[channel] = number(channel, pixel[channel]);
        }
    };
    for (row, out) in view.rows().zip(out.chunks_exact_mut(view.width * C)) {
        let (out, row) = (out.as_chunks_mut::<C>().0, row.as_chunks::<C>().0);
        if is_mirrored {
            out.iter_mut().rev().zip(row).for_each(|(out, pixel)| put(out, pixel));
        } else {
            out.iter_mut().zip(row).for_each(|(out, pixel)| put(out, pixel));
        }
    }
}

/// Writes all channels of a row in one go. `order`: the pixels of a row from left to right.
fn three_planes<'a, T, I: Iterator<Item = &'a [u8; 3]>>(
    view: View<'a>,
    out: &mut [T],
    number: impl Fn(usize, u8) -> T,
    order: impl Fn(&'a [[u8; 3]]) -> I,
) {
    let (reds, rest) = out.split_at_mut(view.width * view.height);
    let (greens, blues) = rest.split_at_mut(view.width * view.height);
    let planes = [reds, greens, blues].map(|plane| plane.chunks_exact_mut(view.width));
    let [reds, greens, blues] = planes;
    for (((row, reds), greens), blues) in view.rows().zip(reds).zip(greens).zip(blues) {
        let pixels = order(row.as_chunks::<3>().0);
        for (((pixel, red), green), blue) in pixels.zip(reds).zip(greens).zip(blues) {
            *red = number(0, pixel[0]);
            *green = number(1, pixel[1]);
            *blue = number(2, pixel[2]);
        }
    }
}

fn planes<const C: usize, T>(view: View<'_>, is_mirrored: bool, out: &mut [T], number: impl Fn(usize, u8) -> T) {
    let (width, plane) = (view.width, view.width * view.height);
    for (y, row) in view.rows().enumerate() {
        let row = row.as_chunks::<C>().0;
        for channel in 0..C {
            let out = &mut out[channel * plane + y * width..][..width];
            if is_mirrored {
                out.iter_mut().rev().zip(row).for_each(|(out, pixel)| *out = number(channel, pixel[channel]));
            } else {
                out.iter_mut().zip(row).for_each(|(out, pixel)| *out = number(channel, pixel[channel]));
            }
        }
    }
}

/// Adds `by` pixels of `fill` on each side.
pub(super) fn pad(from: View<'_>, by: usize, fill: u8, out: &mut Picture) {
    out.reshape(from.width + 2 * by, from.height + 2 * by, from.channels);
    out.bytes_mut().fill(fill);
    let inner = by * from.channels..(by + from.width) * from.channels;
    out.rows_mut().skip(by).zip(from.rows()).for_each(|(to, from)| to[inner.clone()].copy_from_slice(from));
}

/// All of a picture.
pub(super) fn whole(picture: &Picture) -> Rect {
    Rect { x: 0, y: 0, width: picture.width, height: picture.height }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(channels: usize) -> Picture {
        let data = (0..(6 * channels) as u8).map(|n| n * 10).collect();
        Picture { width: 3, height: 2, channels, data }
    }

    #[test]
    fn numbers_are_normalised_by_channel_in_both_layouts() {
        let normalise =
            Normalise { mean: [10.0, 20.0, 30.0, 40.0], std: [2.0, 4.0, 5.0, 8.0], scale: 0.5, ..Normalise::default() };
        for channels in [1, 3, 4] {
            let picture = picture(channels);
            for (layout, is_mirrored) in
                [(Layout::Nchw, false), (Layout::Nchw, true), (Layout::Nhwc, false), (Layout::Nhwc, true)]
            {
                let mut out = vec![0.0; picture.data.len()];
                let writer = Writer::new(normalise.clone(), layout);
                writer.write_f32(picture.view(), is_mirrored, &mut Random::new(0, 0, 0), &mut out);
                let mut bytes = vec![0; picture.data.len()];
                writer.write_u8(picture.view(), is_mirrored, &mut bytes);
                for (n, byte) in picture.data.iter().enumerate() {
                    let (c, x, y) = (n % channels, n / channels % 3, n / channels / 3);
                    let x = if is_mirrored { 2 - x } else { x };
                    let at = if layout == Layout::Nchw { c * 6 + y * 3 + x } else { (y * 3 + x) * channels + c };
                    assert_eq!(bytes[at], *byte);
                    let want = (f32::from(*byte) - normalise.mean[c]) * (0.5 / normalise.std[c]);
                    assert_eq!(out[at], want, "{channels} {layout:?} {is_mirrored} {n}");
                }
            }
        }
    }

    #[test]
    fn contrast_and_illumination_stay_within_their_ranges() {
        let normalise = Normalise { max_random_contrast: 0.2, max_random_illumination: 5.0, ..Normalise::default() };
        let writer = Writer::new(normalise, Layout::Nchw);
        let picture = Picture { width: 2, height: 1, channels: 1, data: vec![0, 100] };
        let (mut darkest, mut flattest) = (0.0_f32, 1.0_f32);
        for record in 0..300 {
            let mut out = [0.0; 2];
            writer.write_f32(picture.view(), false, &mut Random::new(0, 0, record), &mut out);
            let contrast = (out[1] - out[0]) / 100.0;
            assert!((0.799..=1.201).contains(&contrast) && out[0].abs() <= 5.0);
            (darkest, flattest) = (darkest.min(out[0]), flattest.min(contrast));
        }
        assert!(darkest < -4.5 && flattest < 0.82);
    }

    #[test]
    fn padding_surrounds_the_picture() {
        let mut out = Picture::default();
        pad(Picture { width: 1, height: 1, channels: 1, data: vec![7] }.view(), 1, 9, &mut out);
        assert_eq!(out.data, [9, 9, 9, 9, 7, 9, 9, 9, 9]);
    }
}
