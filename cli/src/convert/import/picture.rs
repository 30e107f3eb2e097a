//! What an encoded image becomes: a tensor of its pixels, or its bytes.

use super::ring::Tensor;
use crate::convert::pack::image::{self, Color};
use ringreel_format::DType;

/// How images are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The bytes of the file are stored, not its pixels.
    pub encoded: bool,
    /// Length of the shorter side; 0: unchanged.
    pub resize: u32,
    /// Only the square in the middle is stored.
    pub center_crop: bool,
    /// 0: one channel; 1: three; none: as in the file, without transparency.
    pub color: Option<i8>,
}

/// The part that the file of an image becomes: `u8` of shape `[height, width, 3]`, or `[height, width]` for one
/// channel.
///
/// # Errors
/// In words: no JPEG or PNG file, a damaged one, more than 8 bits per channel.
pub fn tensor(file: Vec<u8>, options: &Options) -> Result<Tensor, String> {
    if options.encoded {
        return if file.is_empty() { Err("the file is empty".to_owned()) } else { Ok(Tensor::bytes(file)) };
    }
    let kind = image::kind(&file)?;
    if kind.bits_per_channel > 8 {
        return Err(format!("it has {} bits per channel: --encoded stores the file as it is", kind.bits_per_channel));
    }
    let color = match options.color {
        Some(0) => Color::Gray,
        None if !kind.has_color => Color::Gray,
        _ => Color::Rgb,
    };
    let pixels = image::pixels(&file, color, options.center_crop, options.resize)?;
    let mut shape = vec![pixels.height as u64, pixels.width as u64];
    if pixels.channels > 1 {
        shape.push(pixels.channels as u64);
    }
    Ok(Tensor { dtype: DType::U8, shape, data: pixels.data })
}
