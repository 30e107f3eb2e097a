//! Writes `.png` files: an image, or a slice of a volume, to look at.

use super::invalid;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder, ImageError};
use ringreel::error::Error;
use ringreel::read::ReadPart;
use ringreel::value_stats::{Range, decoder};
use ringreel_format::DType;
use std::io::{self, Write};

/// The first bytes of a PNG file.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The slice of a volume to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// The axis to cut, from 0. The default is 0.
    pub axis: Option<usize>,
    /// The position on this axis. The default is the middle.
    pub place: Option<u64>,
}

/// A picture in memory, row by row.
struct Picture {
    width: u32,
    height: u32,
    color: ExtendedColorType,
    bytes: Vec<u8>,
}

/// Writes a part as a PNG: two axes give a grey image, three axes with a last one of 3 or 4 give RGB or RGBA, and other
/// parts with three axes give a slice. If there are more than three axes, those of length 1 are ignored. Elements of
/// type u8 and u16 are unchanged. All others are scaled so that the smallest becomes 0 and the largest 255; NaN and
/// infinity become 0. A part that contains a PNG file is copied. Returns notes for the user: the slice chosen by default,
/// and how the values were scaled.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a part that cannot be a picture. An error of `out`.
pub fn write(part: &ReadPart, slice: Slice, out: &mut (impl Write + ?Sized)) -> io::Result<Vec<String>> {
    let data = part.data().map_err(invalid)?;
    if part.shape.len() == 1 && data.starts_with(SIGNATURE) {
        out.write_all(data)?;
        return Ok(Vec::new());
    }
    let mut notes = Vec::new();
    let picture = picture(part, data, slice, &mut notes).map_err(|why| {
        invalid(Error::Sample(format!(
            "part {:?}, {} {:?}, cannot be a picture: {why}",
            part.name, part.dtype, part.shape
        )))
    })?;
    let mut encoded = Vec::new();
    let done = PngEncoder::new(&mut encoded).write_image(&picture.bytes, picture.width, picture.height, picture.color);
    done.map_err(|error| match error {
        ImageError::IoError(error) => error,
        other => invalid(Error::Sample(format!("part {:?} cannot be a PNG file: {other}", part.name))),
    })?;
    out.write_all(&encoded)?;
    out.flush()?;
    Ok(notes)
}

fn picture(part: &ReadPart, data: &[u8], slice: Slice, notes: &mut Vec<String>) -> Result<Picture, String> {
    let decode = decoder(&part.dtype).ok_or("its elements are not numbers")?;
    let mut shape: Vec<usize> = part.shape.iter().map(|axis| *axis as usize).collect();
    if shape.contains(&0) {
        return Err("it is empty".to_owned());
    }
    while shape.len() > 3
        && let Some(one) = shape.iter().position(|axis| *axis == 1)
    {
        shape.remove(one);
    }
    let colors = |last: usize| matches!(last, 3 | 4) && slice.axis.is_none() && slice.place.is_none();
    // Memory layout of the picture: first element, height and row step, width and column step, colours per pixel.
    let (first, (height, down), (width, right), channels) = match shape[..] {
        [height, width] if slice.axis.is_none() && slice.place.is_none() => (0, (height, width), (width, 1), 1),
        [_, _] => return Err("--axis and --slice need three axes, it has two".to_owned()),
        [height, width, last] if colors(last) => (0, (height, width * last), (width, last), last),
        [a, b, c] => {
            let axes = [(a, b * c), (b, c), (c, 1)];
            let axis = slice.axis.unwrap_or(0);
            let (len, step) = *axes.get(axis).ok_or(format!("no axis {axis}: the axes are 0, 1 and 2"))?;
            let place = slice.place.unwrap_or(len as u64 / 2);
            if place >= len as u64 {
                return Err(format!("no slice {place} on axis {axis}: the slices are 0 to {}", len - 1));
            }
            if slice.place.is_none() {
                notes.push(format!("slice {place} of {len} on axis {axis} (choose another with --axis and --slice)"));
            }
            let others: Vec<_> = (0..3).filter(|n| *n != axis).map(|n| axes[n]).collect();
            (place as usize * step, others[0], others[1], 1)
        }
        _ => return Err("a picture needs two axes, a volume three".to_owned()),
    };
    let size = |n: usize| u32::try_from(n).ok().filter(|n| *n < 1 << 31).ok_or(format!("{n} pixels are too many"));
    let picture =
        Picture { width: size(width)?, height: size(height)?, color: color(&part.dtype, channels), bytes: Vec::new() };
    let itemsize = part.dtype.itemsize() as usize;
    let places = (0..height)
        .flat_map(|y| (0..width).map(move |x| first + y * down + x * right))
        .flat_map(|place| place..place + channels);
    let elements = places.map(|place| &data[place * itemsize..][..itemsize]);
    let bytes = match part.dtype {
        DType::U8 | DType::Bytes => elements.flatten().copied().collect(),
        DType::U16 => elements.flat_map(|two| u16::from_le_bytes([two[0], two[1]]).to_ne_bytes()).collect(),
        _ => scaled(&elements.map(|element| decode(element).to_f64()).collect::<Vec<_>>(), notes),
    };
    Ok(Picture { bytes, ..picture })
}

fn color(dtype: &DType, channels: usize) -> ExtendedColorType {
    match (*dtype == DType::U16, channels) {
        (false, 3) => ExtendedColorType::Rgb8,
        (false, 4) => ExtendedColorType::Rgba8,
        (false, _) => ExtendedColorType::L8,
        (true, 3) => ExtendedColorType::Rgb16,
        (true, 4) => ExtendedColorType::Rgba16,
        (true, _) => ExtendedColorType::L16,
    }
}

/// Scales the smallest value to 0 and the largest to 255. If all values are equal, all become 0.
fn scaled(values: &[f64], notes: &mut Vec<String>) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let range = Range::of(&DType::F64, &bytes).unwrap_or_default();
    let (min, max) = (range.min.unwrap_or(0.0), range.max.unwrap_or(0.0));
    notes.push(format!("scaled: {min} is black, {max} is white"));
    if range.nan + range.infinite > 0 {
        notes.push(format!("{} elements are NaN or infinite: black", range.nan + range.infinite));
    }
    // Halves, because the difference of two finite numbers can overflow.
    let span = max / 2.0 - min / 2.0;
    let gray = |x: &f64| match x.is_finite() && span > 0.0 {
        true => ((x / 2.0 - min / 2.0) / span * 255.0).round() as u8,
        false => 0,
    };
    values.iter().map(gray).collect()
}
