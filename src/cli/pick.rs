//! What is looked at, by path: the arguments that `inspect` and `cat` share.

use super::output;
use crate::error::{Error, Result};
use crate::fs::{Fs, Posix};
use crate::inspect::samples::Samples;
use crate::inspect::{Subject, find};
use crate::segment::SampleId;
use clap::Args;
use ringreel_format::FormatError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A path, and what of it.
#[derive(Args)]
pub struct Pick {
    /// A ring, a generation in it, or a file
    pub path: PathBuf,
    /// The sample at this position, from 0 (of a ring: in its newest generation)
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "id")]
    pub sample: Option<u64>,
    /// The sample with this id, wherever in the ring it is
    #[arg(long, value_name = "SAMPLE_ID")]
    pub id: Option<SampleId>,
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
        let subject = match (named, self.generation, self.id) {
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
        match self.id {
            Some(id) => samples.find(id)?.ok_or_else(|| nowhere(id)),
            None => Ok(self.sample.unwrap_or(0)),
        }
    }
}

fn nowhere(id: SampleId) -> Error {
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
