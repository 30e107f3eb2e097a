//! The arguments of `inspect` and `cat` that select a ring, generation, file or sample.

use super::output;
use clap::Args;
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, Posix};
use ringreel::layout::parse_number;
use ringreel::segment::SampleId;
use ringreel_format::{FormatError, SegmentId};
use ringreel_ops::inspect::samples::Samples;
use ringreel_ops::inspect::{Subject, find};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// A path, and the selected sample or generation in it.
#[derive(Args)]
pub struct Pick {
    /// Path of a ring, a generation's directory, or a file
    pub path: PathBuf,
    /// Select the sample at position N, from 0; in a ring, of its newest generation
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "id")]
    pub sample: Option<u64>,
    /// Select the sample with this id, in any generation; a unique prefix of at least 4 digits is enough,
    /// as in 3160cb0b.0
    #[arg(long, value_name = "SAMPLE_ID")]
    pub id: Option<IdPrefix>,
    /// Select generation N of the ring [default: the newest]
    #[arg(long, value_name = "N")]
    pub generation: Option<u64>,
}

impl Pick {
    /// Returns the filesystem to read with, and what the path names. In a ring, this is the generation of `--generation`
    /// or the one that contains the sample of `--id`.
    pub fn subject(&self) -> Result<(Arc<dyn Fs>, Subject)> {
        let fs: Arc<dyn Fs> = Arc::new(Posix);
        let named = Subject::at(&*fs, &self.path)?;
        let fs = named.fenced(&fs);
        let id = self.id.as_ref().map(|id| id.complete(&fs, &named)).transpose()?;
        let subject = match (named, self.generation, id) {
            (Subject::Ring(layout), Some(n), _) => find::generation(&*fs, &layout, n)?,
            (Subject::Ring(layout), None, Some(id)) => find::holder(&fs, &layout, id)?.ok_or_else(|| nowhere(id))?,
            (_, Some(_), _) => {
                return Err(Error::Sample(format!(
                    "{}: --generation requires the path of a ring",
                    self.path.display()
                )));
            }
            (subject, ..) => subject,
        };
        Ok((fs, subject))
    }

    /// Returns the position of the selected sample; 0 if none was selected.
    pub fn position(&self, samples: &Samples) -> Result<u64> {
        match &self.id {
            Some(prefix) => {
                let id = prefix.among(samples.segment_ids()?)?;
                samples.find(id)?.ok_or_else(|| nowhere(id))
            }
            None => Ok(self.sample.unwrap_or(0)),
        }
    }
}

/// A sample id, or a prefix of its segment id with the ordinal: `3160cb0b.0`.
#[derive(Clone, Debug)]
pub struct IdPrefix {
    digits: String,
    ordinal: u64,
}

impl FromStr for IdPrefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<IdPrefix, String> {
        let hex = |digits: &str| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let parts = text.split_once('.').filter(|(digits, _)| (4..=32).contains(&digits.len()) && hex(digits));
        let found = parts.and_then(|(digits, ordinal)| Some((digits.to_owned(), parse_number(ordinal)?)));
        let (digits, ordinal) = found.ok_or("expected a sample id: 4 to 32 hexadecimal digits, a dot, a number")?;
        Ok(IdPrefix { digits, ordinal })
    }
}

impl IdPrefix {
    /// Returns the complete id, by the segments of `subject`.
    fn complete(&self, fs: &Arc<dyn Fs>, subject: &Subject) -> Result<SampleId> {
        match (subject, self.digits.parse()) {
            (_, Ok(segment)) => Ok(SampleId { segment, ordinal: self.ordinal }),
            (Subject::Ring(layout), _) => self.among(find::segments(fs, layout)?),
            _ => self.among(Samples::open(fs.clone(), subject)?.segment_ids()?),
        }
    }

    /// Returns the only id of `segments` that begins with these digits.
    fn among(&self, segments: Vec<SegmentId>) -> Result<SampleId> {
        if let Ok(segment) = self.digits.parse() {
            return Ok(SampleId { segment, ordinal: self.ordinal });
        }
        let begins = segments.into_iter().filter(|id| id.to_string().starts_with(&self.digits));
        let found: BTreeSet<SegmentId> = begins.collect();
        match (found.len(), found.first()) {
            (1, Some(segment)) => Ok(SampleId { segment: *segment, ordinal: self.ordinal }),
            (0, _) => Err(nowhere(format!("{}.{}", self.digits, self.ordinal))),
            (n, _) => Err(Error::Sample(format!("{n} segment ids begin with {}: give more digits", self.digits))),
        }
    }
}

fn nowhere(id: impl Display) -> Error {
    Error::Sample(format!("no sample {id}: it may belong to a reclaimed generation or to another ring"))
}

/// Prints the error to stderr. Returns the exit status: 1 data is damaged or the output could not be written; 2 the
/// arguments are invalid or the input could not be read.
pub fn failed(error: &anyhow::Error) -> i32 {
    let code = match error.downcast_ref::<Error>() {
        Some(Error::Format { source: FormatError::Version { .. }, .. }) => 2,
        Some(Error::Format { .. } | Error::Manifest { .. } | Error::Damaged { .. }) => 1,
        Some(_) => 2,
        None => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::InvalidData | io::ErrorKind::AlreadyExists) => 2, // unsuitable format; needs --force
            _ => 1,
        },
    };
    output::failed(error, code)
}
