//! What is looked at, by path: the arguments that `inspect` and `cat` share.

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

/// A path, and what of it.
#[derive(Args)]
pub struct Pick {
    /// A ring, a generation in it, or a file
    pub path: PathBuf,
    /// The sample at this position, from 0 (of a ring: in its newest generation)
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "id")]
    pub sample: Option<u64>,
    /// The sample with this id, wherever in the ring it is; the first 4 or more digits are enough where
    /// they are unique, as in 3160cb0b.0
    #[arg(long, value_name = "SAMPLE_ID")]
    pub id: Option<IdPrefix>,
    /// Generation N of the ring
    #[arg(long, value_name = "N")]
    pub generation: Option<u64>,
}

impl Pick {
    /// What the path leads to; in a ring, the generation that was asked for, or the one that has the sample. And the
    /// filesystem to look at it with.
    pub fn subject(&self) -> Result<(Arc<dyn Fs>, Subject)> {
        let fs: Arc<dyn Fs> = Arc::new(Posix);
        let named = Subject::at(&*fs, &self.path)?;
        let fs = named.fenced(&fs);
        let id = self.id.as_ref().map(|id| id.complete(&fs, &named)).transpose()?;
        let subject = match (named, self.generation, id) {
            (Subject::Ring(layout), Some(n), _) => find::generation(&*fs, &layout, n)?,
            (Subject::Ring(layout), None, Some(id)) => find::holder(&fs, &layout, id)?.ok_or_else(|| nowhere(id))?,
            (_, Some(_), _) => {
                return Err(Error::Sample(format!("{}: --generation is for a ring", self.path.display())));
            }
            (subject, ..) => subject,
        };
        Ok((fs, subject))
    }

    /// The position of the sample that was asked for: 0 where none was.
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

/// A sample's id, or the first digits of its segment's id and its number: `3160cb0b.0`.
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
    /// The whole id, as what is at `subject` tells it.
    fn complete(&self, fs: &Arc<dyn Fs>, subject: &Subject) -> Result<SampleId> {
        match (subject, self.digits.parse()) {
            (_, Ok(segment)) => Ok(SampleId { segment, ordinal: self.ordinal }),
            (Subject::Ring(layout), _) => self.among(find::segments(fs, layout)?),
            _ => self.among(Samples::open(fs.clone(), subject)?.segment_ids()?),
        }
    }

    /// The one of `segments` that begins with these digits.
    fn among(&self, segments: Vec<SegmentId>) -> Result<SampleId> {
        if let Ok(segment) = self.digits.parse() {
            return Ok(SampleId { segment, ordinal: self.ordinal });
        }
        let begins = segments.into_iter().filter(|id| id.to_string().starts_with(&self.digits));
        let found: BTreeSet<SegmentId> = begins.collect();
        match (found.len(), found.first()) {
            (1, Some(segment)) => Ok(SampleId { segment: *segment, ordinal: self.ordinal }),
            (0, _) => Err(nowhere(format!("{}.{}", self.digits, self.ordinal))),
            (n, _) => Err(Error::Sample(format!("{n} segments begin with {}: give more digits", self.digits))),
        }
    }
}

fn nowhere(id: impl Display) -> Error {
    Error::Sample(format!("sample {id} is not here: it may be of a generation that is gone, or of another ring"))
}

/// Says what went wrong on stderr. Returns the exit status: 1 something is damaged, or the output could not be written; 2
/// what was asked for makes no sense, or could not be looked at.
pub fn failed(error: &anyhow::Error) -> i32 {
    let code = match error.downcast_ref::<Error>() {
        Some(Error::Format { source: FormatError::Version { .. }, .. }) => 2,
        Some(Error::Format { .. } | Error::Manifest { .. } | Error::Damaged { .. }) => 1,
        Some(_) => 2,
        None => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::InvalidData | io::ErrorKind::AlreadyExists) => 2, // no such format of this; --force
            _ => 1,
        },
    };
    output::failed(error, code)
}
