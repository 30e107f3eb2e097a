//! Verifies every byte of one file: a segment, or any RecordIO file.

use super::finding::{Finding, Kind, NAMED, Problem};
use super::samples::careful;
use super::verify::LISTED;
use bytes::Bytes;
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, MapMode, surely};
use ringreel::manifest::SegmentEntry;
use ringreel::memory::{self, CHECKED};
use ringreel::segment::SampleId;
use ringreel::segment::reader::{Tail, check, check_stored, largest_record, read_tail, record_room};
use ringreel_format::frame::HEADER_LEN;
use ringreel_format::input::{RangeRead, StreamInput};
use ringreel_format::recordio::{ResyncItem, ResyncReader};
use ringreel_format::segment::header::SIGNATURE;
use ringreel_format::segment::part::PART;
use ringreel_format::segment::walk;
use ringreel_format::{Footer, FormatError, Salvage, SalvageItem};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// No part decodes to more than this multiple of its file's size: a larger claim is wrong, even if its checksum is right.
const MAX_RATIO: u64 = 1 << 16;
/// Larger damaged files are mapped instead of read.
const READ_AT_MOST: u64 = 256 << 20;

/// The result for one file.
#[derive(Debug, Default)]
pub struct FileReport {
    /// Whether the file exists and could be read.
    pub was_read: bool,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of readable samples of a segment, or records of a RecordIO file.
    pub good: u64,
    /// Findings, about [`LISTED`] at most.
    pub findings: Vec<Finding>,
    /// Number of findings that are not listed.
    pub more: u64,
    /// The footer; `None` if it is damaged.
    pub footer: Option<Footer>,
}

/// A file to verify.
pub(super) struct Task {
    pub path: PathBuf,
    /// Its entry in the manifest.
    pub listed: Option<SegmentEntry>,
    /// The directory that contains it. If the directory is gone, the missing file is no damage.
    pub within: PathBuf,
    pub bytes: u64,
}

/// Verifies a file. Returns the result and the number of listed samples that cannot be read. Returns `None` if the file
/// was reclaimed meanwhile, or verified already by another name.
pub(super) fn task(fs: &Arc<dyn Fs>, task: &Task, seen: &Mutex<HashSet<(u64, u64)>>) -> Option<(FileReport, u64)> {
    let listed = task.listed.as_ref().map_or(0, |entry| entry.samples);
    let failed = |problem: Problem| {
        let findings = vec![Finding::new(Kind::Damage, &task.path, problem)];
        Some((FileReport { findings, ..FileReport::default() }, listed))
    };
    let identity = match surely(&**fs, &task.path, || fs.identity(&task.path)) {
        Ok(identity) => identity,
        Err(error) if error.is_gone() && (task.listed.is_none() || !fs.exists(&task.within).unwrap_or(true)) => {
            return None;
        }
        Err(error) if error.is_gone() => return failed(Problem::FileMissing { samples: listed }),
        Err(error) => return failed(Problem::refused(error)),
    };
    let is_first = || seen.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.inode);
    if task.listed.is_none() && !is_first() {
        return None;
    }
    let mut checked = match segment(&**fs, &task.path) {
        Ok(checked) => checked,
        Err(Error::Fs { source }) if source.is_gone() && !fs.exists(&task.within).unwrap_or(true) => return None,
        Err(error) => return failed(Problem::refused(error)),
    };
    if task.listed.is_some() && checked.footer.is_none() {
        checked.good = 0; // readers begin at the footer
    }
    if let (Some(entry), Some(footer)) = (&task.listed, &checked.footer)
        && !entry.describes(footer, checked.bytes)
    {
        checked.findings.push(Finding::new(Kind::Damage, &task.path, Problem::OtherSegment));
        checked.good = 0;
    }
    let unreadable = listed.saturating_sub(checked.good);
    // Samples count once, by the name that a manifest lists.
    if task.listed.is_some() && checked.good > 0 && !is_first() {
        checked.good = 0;
    }
    checked.footer = None; // not used any more, and may be large
    Some((checked, unreadable))
}

/// Checks every byte of a finished segment. Decodes compressed parts, each in up to a quarter of the memory; all else
/// needs little memory, however large the segment is. If many threads check segments and the memory is insufficient,
/// some wait.
///
/// # Errors
/// The first damage found; filesystem errors.
pub fn check_whole(fs: &dyn Fs, path: &Path) -> Result<Tail> {
    /// Memory that the parts of previous files took: those of the next one may be as large.
    static USUAL: AtomicU64 = AtomicU64::new(1 << 20);
    let most = memory::bytes() / 4;
    let mut part = USUAL.load(Ordering::Relaxed).min(most);
    loop {
        match check(fs, path, part, |input| walk::check(input, part)) {
            Err(Error::Format { source: FormatError::TooLarge { what: PART, value, .. }, .. })
                if part < most && value <= most =>
            {
                part = value.max(part * 2).min(most);
            }
            done => {
                USUAL.store(part, Ordering::Relaxed);
                return done;
            }
        }
    }
}

/// Verifies every byte of a segment.
///
/// # Errors
/// The filesystem's errors.
pub fn segment(fs: &dyn Fs, path: &Path) -> Result<FileReport> {
    let good = |tail: Tail, findings| {
        let (bytes, good) = (tail.len, tail.footer.count);
        FileReport { was_read: true, bytes, good, findings, footer: Some(tail.footer), ..FileReport::default() }
    };
    match check_whole(fs, path) {
        Ok(tail) => Ok(good(tail, Vec::new())),
        Err(Error::Format { source: FormatError::TooLarge { what: PART, value, limit }, .. }) => {
            let large = Finding::new(Kind::Note, path, Problem::LargePart { bytes: value });
            match check_stored(fs, path) {
                Ok(tail) if value / MAX_RATIO <= tail.len => Ok(good(tail, vec![large])),
                _ => damaged_segment(fs, path, FormatError::TooLarge { what: PART, value, limit }),
            }
        }
        Err(Error::Format { source, .. }) => damaged_segment(fs, path, source),
        Err(error) => Err(error),
    }
}

/// Finds out which samples of a damaged segment can be read, and which are affected by the damage.
fn damaged_segment(fs: &dyn Fs, path: &Path, why: FormatError) -> Result<FileReport> {
    let footer = read_tail(fs, path).ok().map(|tail| tail.footer);
    let options = careful();
    let _room = CHECKED.wait_for(READ_AT_MOST + record_room(u64::MAX) + options.max_part); // limits the memory of all threads
    let bytes = whole(fs, path)?;
    let len = bytes.len() as u64;
    let mut checked = FileReport { was_read: true, bytes: len, ..FileReport::default() };
    let mut salvage = Salvage::new(bytes, options);
    let id = footer.as_ref().map(|footer| footer.info.id).or(salvage.info().map(|info| info.id));
    // Damaged regions with their errors, and ordinals of intact samples.
    let (mut regions, mut whole) = (Vec::<(u64, u64, FormatError)>::new(), BTreeSet::new());
    for found in &mut salvage {
        match found {
            SalvageItem::Skipped(_) if regions.len() >= LISTED => checked.more += 1,
            SalvageItem::Skipped(region) => regions.push((region.begin, region.end, region.why)),
            // A sample with a damaged part has a region too.
            SalvageItem::Sample(sample) if sample.parts.iter().all(std::result::Result::is_ok) => {
                whole.insert(sample.ordinal);
            }
            SalvageItem::Sample(_) => {}
        }
    }
    checked.good = whole.len() as u64;
    let lost = |begin: u64, end: u64| -> Vec<String> {
        let (Some(footer), Some(id)) = (&footer, id) else { return Vec::new() };
        let touched = (0..footer.count)
            .filter(|n| !whole.contains(n))
            .filter(|n| footer.extent(*n).ok().flatten().is_none_or(|extent| extent.start < end && begin < extent.end));
        touched.take(NAMED).map(|ordinal| SampleId { segment: id, ordinal }.to_string()).collect()
    };
    if regions.is_empty() {
        regions.push((why.at().unwrap_or(0), len, why));
    }
    checked.findings = regions
        .into_iter()
        .map(|(begin, end, why)| Finding {
            bytes: Some((begin, end)),
            samples: lost(begin, end),
            ..Finding::new(Kind::Damage, path, Problem::refused(why))
        })
        .collect();
    if footer.is_none() {
        checked.findings.push(Finding::new(Kind::Damage, path, Problem::NoFooter { good: checked.good }));
    }
    checked.footer = footer;
    Ok(checked)
}

/// Verifies the frames of a RecordIO file. (The format has no checksums.)
///
/// # Errors
/// The filesystem's errors.
pub fn recordio(fs: &dyn Fs, path: &Path) -> Result<FileReport> {
    let file = fs.open(path)?;
    let len = file.size()?;
    let mut read_at = |buffer: &mut [u8], at| file.read_exact_at(buffer, at).map_err(|error| error.source);
    let _room = CHECKED.wait_for(record_room(len));
    let source = StreamInput::new(RangeRead::new(&mut read_at, 0..len), 0).at_most(largest_record());
    let mut reader = ResyncReader::with_input(source);
    let mut checked = FileReport { was_read: true, bytes: len, ..FileReport::default() };
    if len == 0 {
        checked.findings.push(Finding::new(Kind::Note, path, Problem::Empty));
    }
    while let Some(found) = reader.next().map_err(Error::format("read", path))? {
        match found {
            ResyncItem::Record(_) => checked.good += 1,
            ResyncItem::Skipped(_) if checked.findings.len() >= LISTED => checked.more += 1,
            ResyncItem::Skipped(region) => checked.findings.push(Finding {
                bytes: Some((region.begin, region.end)),
                ..Finding::new(Kind::Damage, path, Problem::refused(region.why))
            }),
        }
    }
    Ok(checked)
}

/// Returns whether a file begins or ends as a segment.
///
/// # Errors
/// The filesystem's errors.
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

/// Returns the bytes of a file, mapped if it is large.
///
/// # Errors
/// The filesystem's errors.
pub(super) fn whole(fs: &dyn Fs, path: &Path) -> Result<Bytes> {
    let file = fs.open(path)?;
    let len = file.size()?;
    if len > READ_AT_MOST.min(memory::bytes() / 16)
        && let Some(map) = file.map(0..len, MapMode::Shared)?
    {
        return Ok(map);
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.into())
}
