//! Images for `im2rec`: decoded, cut, made smaller or larger, and encoded again.

use super::resize::resize;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader};
use std::io::Cursor;

/// Most bytes of an image's pixels.
const MAX_PIXELS: usize = 1 << 30;

/// What is done with each image.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file's bytes are taken as they are.
    pub pass_through: bool,
    /// The length that the shorter side is to have; 0: it keeps its own.
    pub resize: u32,
    /// Only the square in the middle is taken.
    pub center_crop: bool,
    /// Quality of a JPEG file, 1 to 100; compression of a PNG file, 1 to 9.
    pub quality: u8,
    /// Whether it becomes a PNG file, not a JPEG file.
    pub png: bool,
    /// Which channels are taken.
    pub color: Color,
}

/// Which channels are taken, as OpenCV's `imread` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// As they are, transparency included (-1).
    AsTheyAre,
    /// One, gray (0).
    Gray,
    /// Three, transparency left out (1).
    Rgb,
}

/// Pixels of 8 bits a channel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1, 3 or 4: gray, RGB, RGBA.
    pub channels: usize,
    /// The channels of a pixel beside each other.
    pub data: Vec<u8>,
}

/// The file that an image's file becomes.
///
/// # Errors
/// In words, of what is no JPEG or PNG file, is damaged, or too large.
pub fn converted(file: Vec<u8>, options: &Options) -> Result<Vec<u8>, String> {
    if options.pass_through {
        return Ok(file);
    }
    let mut pixels = decode(&file, options.color)?;
    if options.center_crop {
        pixels = middle(&pixels);
    }
    if options.resize > 0 {
        let (width, height) = new_size(&pixels, options.resize as usize)?;
        pixels = resize(&pixels, width, height);
    }
    encode(&pixels, options)
}

/// The size that has `shorter` as its shorter side.
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
    size.ok_or_else(|| format!("{} x {} pixels would become too many", pixels.width, pixels.height))
}

/// The pixels of a JPEG or PNG file, turned as its EXIF orientation says, unless they are taken as they are.
fn decode(file: &[u8], color: Color) -> Result<Pixels, String> {
    let words = |error: image::ImageError| error.to_string();
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(|error| error.to_string())?;
    let is_png = reader.format() == Some(ImageFormat::Png);
    let mut decoder = reader.into_decoder().map_err(words)?;
    if decoder.total_bytes() > MAX_PIXELS as u64 {
        return Err(format!("its pixels are {} bytes, and at most {MAX_PIXELS} are taken", decoder.total_bytes()));
    }
    let orientation = decoder.orientation().map_err(words)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(words)?;
    if color != Color::AsTheyAre {
        image.apply_orientation(orientation);
    }
    let (width, height) = (image.width() as usize, image.height() as usize);
    let (found, mut data) = match image {
        DynamicImage::ImageLuma8(image) => (1, image.into_raw()),
        DynamicImage::ImageLumaA8(image) => (2, image.into_raw()),
        DynamicImage::ImageRgb8(image) => (3, image.into_raw()),
        DynamicImage::ImageRgba8(image) => (4, image.into_raw()),
        _ if color == Color::AsTheyAre => {
            return Err("it has 16 bits a channel: take --color 1 or 0, or --pass-through".to_owned());
        }
        DynamicImage::ImageLuma16(image) => (1, upper(image.into_raw())),
        DynamicImage::ImageLumaA16(image) => (2, upper(image.into_raw())),
        DynamicImage::ImageRgb16(image) => (3, upper(image.into_raw())),
        DynamicImage::ImageRgba16(image) => (4, upper(image.into_raw())),
        _ => return Err("its kind of pixels is not known".to_owned()),
    };
    let pixel = |pixel: &[u8]| match *pixel {
        [y] => [y, y, y, 255],
        [y, a] => [y, y, y, a],
        [r, g, b] => [r, g, b, 255],
        [r, g, b, a] => [r, g, b, a],
        _ => [0; 4],
    };
    let channels = match (color, found) {
        (Color::Gray, _) | (Color::AsTheyAre, 1) => 1,
        (Color::Rgb, _) | (Color::AsTheyAre, 3) => 3,
        (Color::AsTheyAre, _) => 4,
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

/// The upper half of each number, as libpng's `png_set_strip_16` takes it.
fn upper(data: Vec<u16>) -> Vec<u8> {
    data.into_iter().map(|x| (x >> 8) as u8).collect()
}

/// 0.299, 0.587 and 0.114, in 15 bits: as libjpeg takes them, or libpng, which rounds nothing.
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
        _ => jpeg_encoder::ColorType::Rgba, // its last channel is left out
    };
    // As libjpeg does where nothing else is wished for: half the resolution for colours.
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, options.quality.clamp(1, 100));
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
    encoder.set_chroma_subsampling_method(jpeg_encoder::ChromaSubsamplingMethod::Average);
    encoder.encode(&pixels.data, width, height, kind).map_err(|error| error.to_string())?;
    Ok(out)
}
