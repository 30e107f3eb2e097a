//! One file, from its first byte to its last: a segment, or a RecordIO file of somebody else's.

use super::verify::{Finding, Kind};
use crate::error::{Error, Result};
use crate::fs::{Fs, MapMode};
use crate::segment::SampleId;
use crate::segment::reader::{check_whole, read_tail};
use bytes::Bytes;
use ringreel_format::frame::HEADER_LEN;
use ringreel_format::input::{RangeRead, StreamInput};
use ringreel_format::recordio::{Found, ResyncReader};
use ringreel_format::segment::header::SIGNATURE;
use ringreel_format::{Footer, FormatError, ReadOptions, Salvage, Salvaged};
use std::collections::BTreeSet;
use std::path::Path;

/// Larger files are mapped where what is left of them is looked for.
const READ_AT_MOST: u64 = 256 << 20;

/// What was found in one file.
#[derive(Debug, Default)]
pub struct Checked {
    /// Whether it was there, and could be read.
    pub was_read: bool,
    /// Its bytes.
    pub bytes: u64,
    /// Samples of a segment that can be read, or records of a RecordIO file.
    pub good: u64,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
    /// Its footer, where that is whole.
    pub footer: Option<Footer>,
}

/// Checks a segment: every byte of it.
///
/// # Errors
/// What the filesystem says.
pub fn segment(fs: &dyn Fs, path: &Path) -> Result<Checked> {
    match check_whole(fs, path) {
        Ok(tail) => {
            let (bytes, good) = (tail.len, tail.footer.count);
            Ok(Checked { was_read: true, bytes, good, footer: Some(tail.footer), ..Checked::default() })
        }
        Err(Error::Format { source, .. }) => damaged_segment(fs, path, source),
        Err(error) => Err(error),
    }
}

/// What of a damaged segment can be read, and which samples the damage touches.
fn damaged_segment(fs: &dyn Fs, path: &Path, why: FormatError) -> Result<Checked> {
    let footer = read_tail(fs, path).ok().map(|tail| tail.footer);
    let bytes = whole(fs, path)?;
    let len = bytes.len() as u64;
    let mut checked = Checked { was_read: true, bytes: len, ..Checked::default() };
    let mut salvage = Salvage::new(bytes, ReadOptions::default());
    let id = footer.as_ref().map(|footer| footer.info.id).or(salvage.info().map(|info| info.id));
    // Regions, with what is wrong there; and samples that are whole.
    let (mut regions, mut whole) = (Vec::<(u64, u64, FormatError)>::new(), BTreeSet::new());
    for found in &mut salvage {
        match found {
            Salvaged::Skipped(region) => regions.push((region.begin, region.end, region.why)),
            // Where a part of it is not whole, a region says so.
            Salvaged::Sample(sample) if sample.parts.iter().all(std::result::Result::is_ok) => {
                whole.insert(sample.ordinal);
            }
            Salvaged::Sample(_) => {}
        }
    }
    checked.good = whole.len() as u64;
    let lost = |begin: u64, end: u64| -> Vec<String> {
        let (Some(footer), Some(id)) = (&footer, id) else { return Vec::new() };
        let touched = (0..footer.count)
            .filter(|n| !whole.contains(n))
            .filter(|n| footer.extent(*n).ok().flatten().is_none_or(|extent| extent.start < end && begin < extent.end));
        touched.map(|ordinal| SampleId { segment: id, ordinal }.to_string()).collect()
    };
    if regions.is_empty() {
        regions.push((why.at().unwrap_or(0), len, why));
    }
    checked.findings = regions
        .into_iter()
        .map(|(begin, end, why)| Finding {
            bytes: Some((begin, end)),
            samples: lost(begin, end),
            ..Finding::new(Kind::Damage, path, why.to_string())
        })
        .collect();
    if footer.is_none() {
        let message = format!(
            "its end is missing: of its samples {} can be salvaged, how many there were is not known",
            checked.good
        );
        checked.findings.push(Finding::new(Kind::Damage, path, message));
    }
    checked.footer = footer;
    Ok(checked)
}

/// Checks a RecordIO file: its frames. (It has no checksums.)
///
/// # Errors
/// What the filesystem says.
pub fn recordio(fs: &dyn Fs, path: &Path) -> Result<Checked> {
    let file = fs.open(path)?;
    let len = file.size()?;
    let mut read_at = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(|error| error.source);
    let mut reader = ResyncReader::with_input(StreamInput::new(RangeRead::new(&mut read_at, 0..len), 0));
    let mut checked = Checked { was_read: true, bytes: len, ..Checked::default() };
    if len == 0 {
        checked.findings.push(Finding::new(Kind::Note, path, "it is empty: nothing was written, or all was cut off"));
    }
    while let Some(found) = reader.next().map_err(Error::format("read", path))? {
        match found {
            Found::Record(_) => checked.good += 1,
            Found::Skipped(region) => checked.findings.push(Finding {
                bytes: Some((region.begin, region.end)),
                ..Finding::new(Kind::Damage, path, region.why.to_string())
            }),
        }
    }
    Ok(checked)
}

/// Whether a file begins as a segment does, or ends as one.
///
/// # Errors
/// What the filesystem says.
pub fn is_segment(fs: &dyn Fs, path: &Path) -> Result<bool> {
    match read_tail(fs, path) {
        Ok(_) => return Ok(true),
        Err(Error::Format { source: FormatError::Version { .. }, .. }) => return Ok(true),
        Err(Error::Format { .. }) => {}
        Err(error) => return Err(error),
    }
    let file = fs.open(path)?;
    let mut begin = vec![0; file.size()?.min(HEADER_LEN + SIGNATURE.len() as u64) as usize];
    file.read_exact_at(&mut begin, 0)?;
    Ok(begin.ends_with(SIGNATURE))
}

/// The bytes of a file; mapped where it is large.
///
/// # Errors
/// What the filesystem says.
pub(super) fn whole(fs: &dyn Fs, path: &Path) -> Result<Bytes> {
    let file = fs.open(path)?;
    let len = file.size()?;
    if len > READ_AT_MOST
        && let Some(map) = file.map(0..len, MapMode::Shared)?
    {
        return Ok(map);
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.into())
}
