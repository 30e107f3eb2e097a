//! Facts about one file: a segment, or any RecordIO file.

use super::Subject;
use super::issue::Issue;
use super::records::Damage;
use super::records::{What, image_kind, walk};
use super::sample_stats::{SampleStats, glance};
use super::samples::Samples;
use super::verify_file;
use ringreel::error::{Error, Result};
use ringreel::fs::Fs;
use ringreel_format::{Meta, SegmentInfo};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most samples, and most damaged byte ranges, that are listed.
const TOLD: usize = 20;

/// The place of a sample in a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SamplePlace {
    /// Its ordinal in the segment.
    pub ordinal: u64,
    /// File offset of its head.
    pub at: u64,
    /// Size of the sample with all its tensors, in bytes.
    pub bytes: u64,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    /// Path of the file.
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The header; `None` if neither header nor footer is intact.
    pub info: Option<SegmentInfo>,
    /// Number of heads of samples that were found.
    pub samples: u64,
    /// The first samples, at most 20.
    pub first_samples: Vec<SamplePlace>,
    /// File offset of the footer, and its check value, which covers the whole file; `None` without a footer.
    pub footer: Option<(u64, u32)>,
    /// Statistics of some samples.
    pub glance: Option<SampleStats>,
    /// Issues of the file.
    pub issues: Vec<Issue>,
}

/// A RecordIO file.
#[derive(Debug, Default, Serialize)]
pub struct Records {
    /// Path of the file.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Sum of the payloads' sizes in bytes.
    pub payload_bytes: u64,
    /// Size of the shortest payload in bytes.
    pub shortest: Option<u64>,
    /// Size of the longest payload in bytes.
    pub longest: Option<u64>,
    /// Number of records that are split into several frames.
    pub split: u64,
    /// Number of records with MXNet's image header.
    pub with_image_header: u64,
    /// Number of records with an image file of each kind, by their first bytes.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Issues of the file.
    #[serde(skip)]
    pub issues: Vec<Issue>,
}

/// Facts about a file.
#[derive(Debug)]
pub enum File {
    /// A segment.
    Segment(Box<Segment>),
    /// A RecordIO file, or another file that is read as one.
    Records(Records),
}

impl Segment {
    /// Returns the provenance: which process wrote the segment, and where.
    pub fn provenance(&self) -> Option<&Meta> {
        self.info.as_ref().map(|info| &info.provenance)
    }
}

/// Collects facts about a file. At most `most` samples of a segment are read.
///
/// # Errors
/// A segment of another major version; the filesystem's errors.
pub fn file(fs: &Arc<dyn Fs>, path: &Path, most: u64) -> Result<File> {
    if verify_file::is_segment(&**fs, path)? {
        return Ok(File::Segment(Box::new(segment(fs, path, most)?)));
    }
    records(&**fs, path).map(File::Records)
}

fn damage(issues: &mut Vec<Issue>, begin: u64, end: u64, why: Damage) {
    if issues.len() < TOLD {
        issues.push(Issue::Bytes { begin, end, why });
    }
}

fn segment(fs: &Arc<dyn Fs>, path: &Path, most: u64) -> Result<Segment> {
    let bytes = fs.identity(path)?.len;
    let (mut info, mut footer, mut samples) = (None, None, 0);
    let (mut first_samples, mut issues) = (Vec::new(), Vec::new());
    walk(&**fs, path, &mut |record| {
        match record.what {
            What::Header(header) => info = Some(*header),
            What::Head(head) => {
                samples += 1;
                if first_samples.len() < TOLD {
                    first_samples.push(SamplePlace { ordinal: head.ordinal, at: head.at, bytes: head.end - head.at });
                }
            }
            What::Footer(found) => {
                footer = Some((found.at, found.check));
                info.get_or_insert(found.info);
            }
            What::Damage(why) => damage(&mut issues, record.at, record.end, why),
            _ => {}
        }
        true
    })?;
    let glance = match Samples::open(fs.clone(), &Subject::File(path.to_owned())) {
        Ok(samples) => Some(glance(&samples, most)?),
        Err(Error::Fs { source }) => return Err(source.into()),
        Err(_) => None, // the walk has reported the damage
    };
    issues.extend(glance.iter().flat_map(SampleStats::issues));
    Ok(Segment { path: path.to_owned(), bytes, info, samples, first_samples, footer, glance, issues })
}

fn records(fs: &dyn Fs, path: &Path) -> Result<Records> {
    let mut told = Records { path: path.to_owned(), bytes: fs.identity(path)?.len, ..Records::default() };
    walk(fs, path, &mut |record| {
        match record.what {
            What::Plain(content) => {
                told.records += 1;
                told.payload_bytes += record.len;
                told.shortest = Some(told.shortest.map_or(record.len, |len| len.min(record.len)));
                told.longest = told.longest.max(Some(record.len));
                told.split += u64::from(record.splits > 0);
                told.with_image_header += u64::from(content.labels.is_some());
                content.kind.into_iter().for_each(|kind| *told.kinds.entry(kind).or_default() += 1);
            }
            What::Damage(why) => damage(&mut told.issues, record.at, record.end, why),
            _ => {}
        }
        true
    })?;
    if told.records == 0 {
        let mut begin = vec![0; told.bytes.min(16) as usize];
        fs.open(path)?.read_exact_at(&mut begin, 0)?;
        let kind = image_kind(&begin);
        told.issues = vec![if told.bytes == 0 { Issue::Empty } else { Issue::NoRecords { kind } }];
    }
    Ok(told)
}
