//! Pictures in memory, and their decoding.

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// A picture of bytes, row by row, the channels of a pixel beside each other: grey, RGB or RGBA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) channels: usize,
    /// The bytes, followed by unused memory of larger pictures.
    pub(super) data: Vec<u8>,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// A rectangle of a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    data: &'a [u8],
    /// Bytes from a row to the next.
    stride: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) channels: usize,
}

impl Picture {
    /// Sets the size, and keeps the memory. The contents are unspecified.
    pub(super) fn reshape(&mut self, width: usize, height: usize, channels: usize) {
        (self.width, self.height, self.channels) = (width, height, channels);
        // Memory that is used again is not cleared.
        if self.data.len() < self.len() {
            self.data.resize(self.len(), 0);
        }
    }

    fn len(&self) -> usize {
        self.width * self.height * self.channels
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data[..self.len()]
    }

    /// Its bytes, for writing.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.data[..len]
    }

    pub(super) fn view(&self) -> View<'_> {
        let Picture { width, height, channels, .. } = *self;
        View { data: self.bytes(), stride: width * channels, width, height, channels }
    }

    /// The rows, for writing.
    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let len = (self.width * self.channels).max(1);
        self.bytes_mut().chunks_exact_mut(len)
    }
}

impl<'a> View<'a> {
    /// The part of it within `rect`, which has to lie in it.
    pub(super) fn crop(self, rect: Rect) -> View<'a> {
        let begin = rect.y * self.stride + rect.x * self.channels;
        View { data: &self.data[begin..], width: rect.width, height: rect.height, ..self }
    }

    /// One row.
    pub(super) fn row(&self, y: usize) -> &'a [u8] {
        &self.data[y * self.stride..][..self.width * self.channels]
    }

    pub(super) fn rows(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.height).map(move |y| self.row(y))
    }

    /// Copies it.
    pub(super) fn copy_to(self, out: &mut Picture) {
        out.reshape(self.width, self.height, self.channels);
        out.rows_mut().zip(self.rows()).for_each(|(to, from)| to.copy_from_slice(from));
    }
}

/// Decodes an image file into 1 (grey), 3 (RGB) or 4 (RGBA) channels, and turns it as its EXIF data say.
///
/// # Errors
/// What is wrong with the file, in words; a file that is neither JPEG nor PNG.
pub(super) fn decode(content: &[u8], channels: usize, out: &mut Picture) -> Result<(), String> {
    if content.starts_with(&[0xff, 0xd8]) && channels != 4 {
        return decode_jpeg(content, channels, out);
    }
    let decoded = image::load_from_memory(content).map_err(|error| format!("cannot be decoded: {error}"))?;
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    match channels {
        4 if !decoded.color().has_alpha() => {
            return Err("has no alpha channel, which a data_shape of 4 channels asks for".to_owned());
        }
        4 => out.data = decoded.into_rgba8().into_raw(),
        3 => out.data = decoded.into_rgb8().into_raw(),
        _ if decoded.color().has_color() => {
            let rgb = decoded.into_rgb8();
            out.data = rgb.pixels().map(|pixel| grey_of_png(pixel.0)).collect();
        }
        _ => out.data = decoded.into_luma8().into_raw(),
    }
    (out.width, out.height, out.channels) = (width, height, channels);
    Ok(())
}

/// The brightness of a pixel, 0.299 R + 0.587 G + 0.114 B, rounded as OpenCV does it.
pub(super) fn grey([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 4899 + u32::from(green) * 9617 + u32::from(blue) * 1868 + (1 << 13)) >> 14) as u8
}

/// The same, rounded as libpng does it for OpenCV: down.
fn grey_of_png([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 9797 + u32::from(green) * 19234 + u32::from(blue) * 3737) >> 15) as u8
}

fn decode_jpeg(content: &[u8], channels: usize, out: &mut Picture) -> Result<(), String> {
    let decoder = |colours| {
        let options = DecoderOptions::new_fast().jpeg_set_out_colorspace(colours);
        JpegDecoder::new_with_options(ZCursor::new(content), options)
    };
    let failed = |error| format!("cannot be decoded: {error}");
    let mut reader = decoder(if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB });
    reader.decode_headers().map_err(failed)?;
    let has_luma = matches!(reader.input_colorspace(), Some(ColorSpace::YCbCr | ColorSpace::Luma));
    let becomes_grey = channels == 1 && !has_luma;
    if becomes_grey {
        reader = decoder(ColorSpace::RGB);
        reader.decode_headers().map_err(failed)?;
    }
    let (width, height) = reader.dimensions().ok_or("cannot be decoded: its size is unknown")?;
    out.reshape(width, height, if becomes_grey { 3 } else { channels });
    reader.decode_into(out.bytes_mut()).map_err(failed)?;
    if becomes_grey {
        out.data = out.bytes().as_chunks::<3>().0.iter().map(|pixel| grey(*pixel)).collect();
        out.channels = 1;
    }
    let orientation = reader.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    if let Some(orientation) = orientation.filter(|found| *found != Orientation::NoTransforms) {
        *out = turned(out, orientation);
    }
    Ok(())
}

/// The picture as `orientation` says that it is to be shown.
fn turned(from: &Picture, orientation: Orientation) -> Picture {
    let (width, height) = (from.width, from.height);
    // Where pixel (x, y) of the result comes from.
    let (is_transposed, mirrors_x, mirrors_y) = match orientation {
        Orientation::NoTransforms => (false, false, false),
        Orientation::FlipHorizontal => (false, true, false),
        Orientation::Rotate180 => (false, true, true),
        Orientation::FlipVertical => (false, false, true),
        Orientation::Rotate90FlipH => (true, false, false),
        Orientation::Rotate90 => (true, false, true),
        Orientation::Rotate270FlipH => (true, true, true),
        Orientation::Rotate270 => (true, true, false),
    };
    let mut out = Picture::default();
    let (columns, rows) = if is_transposed { (height, width) } else { (width, height) };
    out.reshape(columns, rows, from.channels);
    let (view, channels) = (from.view(), from.channels);
    for (y, row) in out.rows_mut().enumerate() {
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            let (x, y) = if is_transposed { (y, x) } else { (x, y) };
            let x = if mirrors_x { width - 1 - x } else { x };
            let y = if mirrors_y { height - 1 - y } else { y };
            pixel.copy_from_slice(&view.row(y)[x * channels..][..channels]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(width: usize, height: usize) -> Picture {
        let data = (0..(width * height) as u8).collect();
        Picture { width, height, channels: 1, data }
    }

    #[test]
    fn pictures_are_turned_as_their_orientation_says() {
        let picture = numbered(3, 2); // 0 1 2 / 3 4 5
        let turned = |exif| {
            let out = turned(&picture, Orientation::from_exif(exif).unwrap_or(Orientation::NoTransforms));
            (out.width, out.data)
        };
        assert_eq!(turned(1), (3, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(turned(2), (3, vec![2, 1, 0, 5, 4, 3]));
        assert_eq!(turned(3), (3, vec![5, 4, 3, 2, 1, 0]));
        assert_eq!(turned(4), (3, vec![3, 4, 5, 0, 1, 2]));
        assert_eq!(turned(5), (2, vec![0, 3, 1, 4, 2, 5]));
        assert_eq!(turned(6), (2, vec![3, 0, 4, 1, 5, 2]));
        assert_eq!(turned(7), (2, vec![5, 2, 4, 1, 3, 0]));
        assert_eq!(turned(8), (2, vec![2, 5, 1, 4, 0, 3]));
    }

    #[test]
    fn crops_are_views_of_the_same_memory() {
        let picture = numbered(4, 3);
        let mut out = Picture::default();
        picture.view().crop(Rect { x: 1, y: 1, width: 2, height: 2 }).copy_to(&mut out);
        assert_eq!(out.data, [5, 6, 9, 10]);
    }

    #[test]
    fn what_is_no_image_is_an_error() {
        for content in [&b""[..], b"text", b"\xff\xd8\xff\xe0broken", b"\x89PNG\r\n\x1a\nbroken"] {
            assert!(decode(content, 3, &mut Picture::default()).is_err());
        }
    }
}
