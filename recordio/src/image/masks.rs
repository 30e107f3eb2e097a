//! Segmentation masks: PNG files of one byte for each pixel, in a `.rec` file of their own.

use super::picture::Picture;
use crate::input_split::places::{Place, Places};
use ringreel::error::{Error, FsError, Result};
use ringreel::read::shard::Share;
use ringreel_format::recordio::index;
use std::collections::HashMap;
use std::path::PathBuf;

/// The files of the masks.
#[derive(Clone, Debug)]
pub struct MaskSource {
    /// The `.rec` file of the masks.
    pub records: PathBuf,
    /// Its `.idx` file. The key of a mask is the id in the header of its image.
    pub index: PathBuf,
    /// Value of pixels outside the image.
    pub fill: u8,
}

/// The masks of a file by their ids.
pub(super) struct Masks {
    pub(super) places: Places,
    by_id: HashMap<u64, usize>,
    pub(super) fill: u8,
}

impl Masks {
    /// Opens the files.
    ///
    /// # Errors
    /// Files that cannot be read, or are no index; a key that is no number.
    pub(super) fn open(source: &MaskSource) -> Result<Masks> {
        let path = &source.index;
        let places = Places::list(std::slice::from_ref(&source.records), Some(path), Share::ALL, false)?;
        let by_offset: HashMap<u64, usize> = places.records.iter().enumerate().map(|(n, at)| (at.at, n)).collect();
        let bytes = std::fs::read(path).map_err(|source| FsError::new("read", path, source))?;
        let mut by_id = HashMap::new();
        for entry in index::entries(&bytes) {
            let entry = entry.map_err(|source| Error::Format { path: path.clone(), source })?;
            let Ok(id) = entry.key.parse() else {
                return Err(Error::Sample(format!("{}: the key {:?} is no id of an image", path.display(), entry.key)));
            };
            by_id.extend(by_offset.get(&entry.offset).map(|place| (id, *place)));
        }
        Ok(Masks { places, by_id, fill: source.fill })
    }

    /// The place of the mask of image `id`.
    pub(super) fn place(&self, id: u64) -> Option<Place> {
        self.by_id.get(&id).map(|place| self.places.records[*place])
    }
}

/// Decodes a PNG file of greys, or of numbers in a palette, without a change of its numbers.
///
/// # Errors
/// What is wrong with the file, in words.
pub(super) fn decode(content: &[u8], out: &mut Picture) -> std::result::Result<(), String> {
    let failed = |error: png::DecodingError| format!("has a mask that cannot be decoded: {error}");
    let mut decoder = png::Decoder::new(std::io::Cursor::new(content));
    decoder.set_transformations(png::Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(failed)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    let (colours, depth) = reader.output_color_type();
    if !matches!(colours, png::ColorType::Grayscale | png::ColorType::Indexed) || depth as usize > 8 {
        return Err(format!("has a mask of {colours:?}, {depth:?} bits: expected one byte for each pixel"));
    }
    let size = reader.output_buffer_size().ok_or("has a mask that is too large")?;
    let mut packed = vec![0; size];
    let frame = reader.next_frame(&mut packed).map_err(failed)?;
    out.reshape(width, height, 1);
    let depth = depth as usize;
    let lines = packed.chunks_exact(frame.line_size.max(1));
    for (row, line) in out.rows_mut().zip(lines) {
        for (x, pixel) in row.iter_mut().enumerate() {
            let bit = x * depth;
            let shift = 8 - depth - bit % 8;
            *pixel = (line[bit / 8] >> shift) & (0xff >> (8 - depth)) as u8;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_palettes_and_few_bits_stay_as_they_are() {
        for (colours, depth, packed) in [
            (png::ColorType::Grayscale, png::BitDepth::Eight, vec![1, 0, 3, 2, 3, 1]),
            (png::ColorType::Indexed, png::BitDepth::Eight, vec![1, 0, 3, 2, 3, 1]),
            (png::ColorType::Indexed, png::BitDepth::Two, vec![0b0100_1100, 0b1011_0100]),
            (png::ColorType::Grayscale, png::BitDepth::Four, vec![0x10, 0x30, 0x23, 0x10]),
        ] {
            let mut content = Vec::new();
            let mut encoder = png::Encoder::new(&mut content, 3, 2);
            encoder.set_color(colours);
            encoder.set_depth(depth);
            encoder.set_palette(vec![0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]);
            encoder.write_header().unwrap().write_image_data(&packed).unwrap();
            let mut out = Picture::default();
            decode(&content, &mut out).unwrap();
            assert_eq!(
                (out.width, out.height, &out.data[..]),
                (3, 2, &[1, 0, 3, 2, 3, 1][..]),
                "{colours:?} {depth:?}"
            );
        }
        assert!(decode(b"no mask", &mut Picture::default()).is_err());
    }
}
