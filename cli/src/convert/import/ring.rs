//! The ring that samples are imported into.

use super::journal::Journal;
use crate::convert::pack::Done;
use ringreel::Config;
use ringreel::config::check_names;
use ringreel::error::{Error, FsError, Result};
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel::write::generator::{Generator, NamedPart};
use ringreel_format::{DType, Meta};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// One part of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// The elements, little endian, row-major.
    pub data: Vec<u8>,
}

impl Tensor {
    /// Bytes that are no tensor.
    pub fn bytes(data: Vec<u8>) -> Tensor {
        Tensor { dtype: DType::Bytes, shape: vec![data.len() as u64], data }
    }

    /// Labels as MXNet's `recordio.unpack` returns them: one number without an axis, several as a vector.
    pub fn labels(labels: &[f32]) -> Tensor {
        let shape = if labels.len() == 1 { Vec::new() } else { vec![labels.len() as u64] };
        Tensor { dtype: DType::F32, shape, data: labels.iter().flat_map(|label| label.to_le_bytes()).collect() }
    }
}

/// A sample: its parts in the order of the target's names, and its meta.
pub type Sample = (Vec<Tensor>, Meta);

/// A ring, and the journal of the inputs whose samples are in it.
pub struct Target<'a> {
    generator: Generator,
    names: Vec<String>,
    journal: Option<Journal>,
    stop: &'a dyn Fn() -> bool,
}

/// The names of a ring's parts: SAMPLE, or those of the ring if it exists. None: neither is known.
///
/// # Errors
/// As [`Ring::find`], except that there is no ring.
pub fn sample_of(config: &Config) -> Result<Option<Vec<String>>> {
    if let Some(sample) = &config.sample {
        return Ok(Some(sample.clone()));
    }
    match Ring::find(Arc::new(Posix), config) {
        Ok(ring) => Ok(Some(ring.descriptor.sample.clone())),
        Err(Error::RingNotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that a sample can have the parts `names`, and that they are those of `sample`, in any order.
///
/// # Errors
/// [`Error::Sample`] that names both.
pub fn check_parts(names: &[String], sample: Option<&[String]>) -> Result<()> {
    check_names(names).map_err(|why| Error::Sample(format!("the parts {}: {why}", names.join(", "))))?;
    let sorted = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
    match sample {
        Some(sample) if sorted(sample) != sorted(names) => {
            let (given, wanted) = (names.join(", "), sample.join(", "));
            Err(Error::Sample(format!("the input has the parts [{given}], and SAMPLE is [{wanted}]")))
        }
        _ => Ok(()),
    }
}

/// The error after the disk failed. It is not [`Error::Sample`], which is about one input.
fn lost_samples(ring: &Ring, lost: u64) -> Error {
    let why = io::Error::other(format!("the disk failed, and {lost} samples are not in the ring: run it again"));
    FsError::new("write into", ring.layout.root(), why).into()
}

impl<'a> Target<'a> {
    /// Opens the ring of `config`, or makes it with the parts `names`.
    ///
    /// # Errors
    /// As [`Generator::open`] and [`Journal::follow`].
    pub fn open(
        config: &Config,
        names: &[String],
        journal: Option<Journal>,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Target<'a>> {
        let mut config = config.clone();
        if config.sample.is_none() {
            config.sample = Some(sample_of(&config)?.unwrap_or_else(|| names.to_vec()));
        }
        let mut generator = Generator::open(&config)?;
        if let Some(journal) = &journal {
            let found = journal.follow(&mut generator)?.len();
            if found > 0 {
                tracing::info!("{found} samples of an interrupted import are in the ring");
            }
        }
        Ok(Target { generator, names: names.to_vec(), journal, stop })
    }

    /// Whether the sample of this input is finished.
    pub fn has(&self, input: &str) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.has(input))
    }

    /// Writes the sample that is made of `input`.
    ///
    /// # Errors
    /// As [`Generator::write`].
    pub fn put(&mut self, input: &str, (parts, meta): &Sample) -> Result<()> {
        let named = self.names.iter().zip(parts);
        let named: Vec<_> =
            named.map(|(name, part)| NamedPart::new(name, part.dtype.clone(), &part.shape, &part.data)).collect();
        if let Some(journal) = &self.journal {
            journal.writing(input.to_owned());
        }
        match (self.generator.write(&named, meta, self.stop), &self.journal) {
            (Ok(ids), Some(journal)) => journal.finished(&ids).map(drop)?,
            (Err(error @ Error::Sample(_)), Some(journal)) => {
                journal.refused();
                return Err(error);
            }
            (done, _) => drop(done?),
        }
        self.check_discarded()
    }

    /// Seals, and makes everything visible.
    ///
    /// # Errors
    /// As [`Generator::finish`].
    pub fn finish(mut self, done: &mut Done) -> Result<()> {
        self.seal()?;
        let summary = self.generator.finish(true, self.stop)?;
        done.bytes = summary.bytes;
        done.skipped += summary.quarantined;
        Ok(())
    }

    /// Ends after an error. Finished samples stay in the ring; nothing is promoted.
    pub fn abandon(mut self, error: &Error) {
        if !matches!(error, Error::Interrupted { .. }) {
            self.generator.failed(&error.to_string());
        }
        let sealed = self.seal();
        if let Err(error) = sealed.and_then(|()| self.generator.finish(false, self.stop).map(drop)) {
            tracing::warn!("{error}");
        }
    }

    fn seal(&mut self) -> Result<()> {
        let ids = self.generator.seal(self.stop)?;
        if let Some(journal) = &self.journal {
            journal.finished(&ids)?;
        }
        self.check_discarded()
    }

    fn check_discarded(&self) -> Result<()> {
        match self.generator.summary().discarded {
            0 => Ok(()),
            lost => Err(lost_samples(self.generator.ring(), lost)),
        }
    }
}
