//! Mean images in MXNet's file of arrays: one array of f32, of the shape channels, rows, columns, named `mean_img`.
//!
//! | bytes | |
//! |---|---|
//! | 8 + 8 | 0x112, 0 |
//! | 8 | number of arrays |
//! | 4 + 4 | 0xF993FAC9 (or 0xF993FACA), storage type 0; or 0xF993FAC8 alone |
//! | 4 + 8 × axes | number of axes, lengths |
//! | 4 + 4 + 4 | device type, device number, element type (0: f32) |
//! | 4 × elements | the elements |
//! | 8, then 8 + bytes each | number of names; their lengths and bytes |

use ringreel::error::{Error, FsError, Result};
use std::path::Path;

const LIST: u64 = 0x112;
const V1: u32 = 0xF993_FAC8;
const V2: u32 = 0xF993_FAC9;
const V3: u32 = 0xF993_FACA;
const NAME: &[u8] = b"mean_img";

/// A mean for each pixel and channel.
#[derive(Clone, Debug, PartialEq)]
pub struct MeanImage {
    /// Channels, rows, columns.
    pub shape: [usize; 3],
    /// The means, in that order of axes.
    pub values: Vec<f32>,
}

impl MeanImage {
    /// Reads the first array of a file.
    ///
    /// # Errors
    /// What the system says; a file that has no such array.
    pub fn load(path: &Path) -> Result<MeanImage> {
        let bytes = std::fs::read(path).map_err(|source| FsError::new("read", path, source))?;
        parse(&bytes).ok_or_else(|| {
            let path = path.display();
            Error::Sample(format!("{path}: not a file of MXNet's with a mean image (f32; channels, rows, columns)"))
        })
    }

    /// Writes a file that MXNet reads, too. A reader sees all of it or nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let made = path.with_file_name(name);
        std::fs::write(&made, self.encode()).map_err(|source| FsError::new("write", &made, source))?;
        Ok(std::fs::rename(&made, path).map_err(|source| FsError::new("rename", path, source))?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80 + 4 * self.values.len());
        [LIST, 0, 1].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        [V2, 0, 3].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        self.shape.iter().for_each(|len| out.extend_from_slice(&(*len as u64).to_le_bytes()));
        // The CPU, number 0; f32.
        [1_u32, 0, 0].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        self.values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        [1, NAME.len() as u64].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(NAME);
        out
    }
}

fn u32_of(bytes: &mut &[u8]) -> Option<u32> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*word))
}

fn u64_of(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

fn parse(mut bytes: &[u8]) -> Option<MeanImage> {
    let bytes = &mut bytes;
    (u64_of(bytes)? == LIST).then_some(())?;
    u64_of(bytes)?;
    (u64_of(bytes)? > 0).then_some(())?;
    let magic = u32_of(bytes)?;
    match magic {
        V1 => {}
        V2 | V3 => (u32_of(bytes)? == 0).then_some(())?,
        _ => return None,
    }
    (u32_of(bytes)? == 3).then_some(())?;
    let mut shape = [0; 3];
    for len in &mut shape {
        *len = usize::try_from(u64_of(bytes)?).ok()?;
    }
    let count = shape.iter().try_fold(1_usize, |count, len| count.checked_mul(*len))?;
    let (_device, _number) = (u32_of(bytes)?, u32_of(bytes)?);
    (u32_of(bytes)? == 0).then_some(())?;
    let values = bytes.get(..count.checked_mul(4)?)?;
    let values = values.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    Some(MeanImage { shape, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_images_are_read_as_they_are_written() {
        let mean = MeanImage { shape: [3, 2, 2], values: (0..12).map(|n| n as f32 / 7.0).collect() };
        let bytes = mean.encode();
        assert_eq!(parse(&bytes).as_ref(), Some(&mean));
        for len in 0..bytes.len() - 24 {
            assert_eq!(parse(&bytes[..len]), None, "{len}");
        }
    }
}
