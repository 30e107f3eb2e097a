//! Converts images for `im2rec`: decodes, crops, resizes and encodes them.

use super::resize::resize;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader};
use std::io::Cursor;

/// Most bytes of an image's pixels.
const MAX_PIXELS: usize = 1 << 30;

/// Conversion options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Copy the file's bytes.
    pub pass_through: bool,
    /// Length of the shorter side; 0 keeps the size.
    pub resize: u32,
    /// Crop to the square in the centre.
    pub center_crop: bool,
    /// JPEG quality, 1 to 100, or PNG compression level, 1 to 9.
    pub quality: u8,
    /// Encode as PNG instead of JPEG.
    pub png: bool,
    /// The channels to keep.
    pub color: Color,
}

/// The channels to keep, as in OpenCV's `imread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// All channels, including alpha (-1).
    Unchanged,
    /// One gray channel (0).
    Gray,
    /// Three channels, without alpha (1).
    Rgb,
}

/// Pixels with 8 bits per channel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Pixels per row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// 1, 3 or 4: gray, RGB or RGBA.
    pub channels: usize,
    /// The pixels, with interleaved channels.
    pub data: Vec<u8>,
}

/// Converts an image file.
///
/// # Errors
/// A file that is not JPEG or PNG, is damaged or too large; the error as text.
pub fn converted(file: Vec<u8>, options: &Options) -> Result<Vec<u8>, String> {
    if options.pass_through {
        return Ok(file);
    }
    encode(&pixels(&file, options.color, options.center_crop, options.resize)?, options)
}

/// The pixels of an image's file, cut to the square in the middle and resized so that the shorter side has `shorter`
/// pixels (0: unchanged).
///
/// # Errors
/// As [`converted`].
pub fn pixels(file: &[u8], color: Color, center_crop: bool, shorter: u32) -> Result<Pixels, String> {
    let mut pixels = decode(file, color)?;
    if center_crop {
        pixels = middle(&pixels);
    }
    if shorter > 0 {
        let (width, height) = new_size(&pixels, shorter as usize)?;
        pixels = resize(&pixels, width, height);
    }
    Ok(pixels)
}

/// What the header of an image's file says of its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Whether it has more than one channel, transparency not counted.
    pub has_color: bool,
    /// Bits of each channel.
    pub bits_per_channel: u16,
}

/// Reads the header of an image's file.
///
/// # Errors
/// In words: the file is no JPEG or PNG file, or is damaged.
pub fn kind(file: &[u8]) -> Result<Kind, String> {
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(|error| error.to_string())?;
    let decoder = reader.into_decoder().map_err(|error| error.to_string())?;
    let color = decoder.color_type();
    let bits_per_channel = color.bits_per_pixel() / u16::from(color.channel_count());
    Ok(Kind { has_color: color.has_color(), bits_per_channel })
}

/// Returns the size with `shorter` as its shorter side.
fn new_size(pixels: &Pixels, shorter: usize) -> Result<(usize, usize), String> {
    let longer = |long: usize, short: usize| long.checked_mul(shorter).map(|product| product / short);
    let size = if pixels.height > pixels.width {
        (Some(shorter), longer(pixels.height, pixels.width))
    } else {
        (longer(pixels.width, pixels.height), Some(shorter))
    };
    let fits = |(width, height): &(usize, usize)| {
        width.checked_mul(*height).and_then(|n| n.checked_mul(pixels.channels)).is_some_and(|n| n <= MAX_PIXELS)
    };
    let size = size.0.zip(size.1).filter(fits);
    size.ok_or_else(|| format!("{} x {} pixels would become too large", pixels.width, pixels.height))
}

/// Decodes a JPEG or PNG file, and applies its EXIF orientation except for [`Color::Unchanged`].
fn decode(file: &[u8], color: Color) -> Result<Pixels, String> {
    let words = |error: image::ImageError| error.to_string();
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(|error| error.to_string())?;
    let is_png = reader.format() == Some(ImageFormat::Png);
    let mut decoder = reader.into_decoder().map_err(words)?;
    if decoder.total_bytes() > MAX_PIXELS as u64 {
        return Err(format!("its pixels have {} bytes, more than the limit of {MAX_PIXELS}", decoder.total_bytes()));
    }
    let orientation = decoder.orientation().map_err(words)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(words)?;
    if color != Color::Unchanged {
        image.apply_orientation(orientation);
    }
    let (width, height) = (image.width() as usize, image.height() as usize);
    let (found, mut data) = match image {
        DynamicImage::ImageLuma8(image) => (1, image.into_raw()),
        DynamicImage::ImageLumaA8(image) => (2, image.into_raw()),
        DynamicImage::ImageRgb8(image) => (3, image.into_raw()),
        DynamicImage::ImageRgba8(image) => (4, image.into_raw()),
        _ if color == Color::Unchanged => {
            return Err("it has 16 bits per channel: use --color 1 or 0, or --pass-through".to_owned());
        }
        DynamicImage::ImageLuma16(image) => (1, upper(image.into_raw())),
        DynamicImage::ImageLumaA16(image) => (2, upper(image.into_raw())),
        DynamicImage::ImageRgb16(image) => (3, upper(image.into_raw())),
        DynamicImage::ImageRgba16(image) => (4, upper(image.into_raw())),
        _ => return Err("unknown pixel format".to_owned()),
    };
    let pixel = |pixel: &[u8]| match *pixel {
        [y] => [y, y, y, 255],
        [y, a] => [y, y, y, a],
        [r, g, b] => [r, g, b, 255],
        [r, g, b, a] => [r, g, b, a],
        _ => [0; 4],
    };
    let channels = match (color, found) {
        (Color::Gray, _) | (Color::Unchanged, 1) => 1,
        (Color::Rgb, _) | (Color::Unchanged, 3) => 3,
        (Color::Unchanged, _) => 4,
    };
    if channels != found {
        let pixels = data.chunks_exact(found).map(pixel);
        data = match channels {
            1 if found < 3 => pixels.map(|[y, ..]| y).collect(),
            1 => pixels.map(|pixel| gray(pixel, is_png)).collect(),
            n => pixels.flat_map(|pixel| pixel.into_iter().take(n)).collect(),
        };
    }
    Ok(Pixels { width, height, channels, data })
}

/// Returns the upper byte of each number, like libpng's `png_set_strip_16`.
fn upper(data: Vec<u16>) -> Vec<u8> {
    data.into_iter().map(|x| (x >> 8) as u8).collect()
}

/// Converts to gray with the weights 0.299, 0.587 and 0.114 in 15 bits: like libjpeg, or like libpng, which does not round.
fn gray([r, g, b, _]: [u8; 4], is_png: bool) -> u8 {
    let ([wr, wg, wb], half) = if is_png { ([9797, 19234, 3737], 0) } else { ([9798, 19235, 3735], 1 << 14) };
    ((u32::from(r) * wr + u32::from(g) * wg + u32::from(b) * wb + half) >> 15) as u8
}

fn middle(pixels: &Pixels) -> Pixels {
    let side = pixels.width.min(pixels.height);
    let (left, top) = ((pixels.width - side) / 2, (pixels.height - side) / 2);
    let row = |y: usize| &pixels.data[((top + y) * pixels.width + left) * pixels.channels..][..side * pixels.channels];
    let data = (0..side).flat_map(row).copied().collect();
    Pixels { width: side, height: side, channels: pixels.channels, data }
}

fn encode(pixels: &Pixels, options: &Options) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    if options.png {
        let kind = match pixels.channels {
            1 => ExtendedColorType::L8,
            3 => ExtendedColorType::Rgb8,
            _ => ExtendedColorType::Rgba8,
        };
        let compression = CompressionType::Level(options.quality.min(9));
        let encoder = PngEncoder::new_with_quality(&mut out, compression, FilterType::Adaptive);
        let done = encoder.write_image(&pixels.data, pixels.width as u32, pixels.height as u32, kind);
        return done.map(|()| out).map_err(|error| error.to_string());
    }
    let (Ok(width), Ok(height)) = (u16::try_from(pixels.width), u16::try_from(pixels.height)) else {
        return Err(format!("a JPEG file cannot have {} x {} pixels", pixels.width, pixels.height));
    };
    let kind = match pixels.channels {
        1 => jpeg_encoder::ColorType::Luma,
        3 => jpeg_encoder::ColorType::Rgb,
        _ => jpeg_encoder::ColorType::Rgba, // the encoder drops alpha
    };
    // As by default in libjpeg: half the resolution for chroma.
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, options.quality.clamp(1, 100));
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
    encoder.set_chroma_subsampling_method(jpeg_encoder::ChromaSubsamplingMethod::Average);
    encoder.encode(&pixels.data, width, height, kind).map_err(|error| error.to_string())?;
    Ok(out)
}
