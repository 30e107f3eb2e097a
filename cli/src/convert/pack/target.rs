//! The destination of packed samples: RecordIO files or a ring.

use super::{Done, MAX_RECORD};
use crate::convert::export::payload::file_name;
use crate::convert::output::{RecFile, with_end};
use ringreel::Config;
use ringreel::error::{Error, FsError, Result};
use ringreel::write::generator::{Generator, NamedPart};
use ringreel_format::{DType, Meta};
use std::collections::{HashSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One part of a packed sample.
#[derive(Clone, Debug)]
pub struct NewPart {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// The elements, little-endian, row-major.
    pub data: Vec<u8>,
    /// The payload of the record, if it is not the elements.
    pub record: Option<Vec<u8>>,
}

/// A destination for samples with known parts.
pub enum Target<'a> {
    /// One `.rec` file per part.
    Rec(Vec<RecFile>),
    /// A ring.
    Ring(Box<RingTarget<'a>>),
}

/// A ring, and the journal of finished inputs.
pub struct RingTarget<'a> {
    generator: Generator,
    names: Vec<String>,
    journal: Option<Journal>,
    /// The inputs whose samples are not finished yet.
    waiting: VecDeque<String>,
    stop: &'a dyn Fn() -> bool,
}

/// The names of inputs whose samples are finished: one JSON string per line.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: fs::File,
    there: HashSet<String>,
}

impl Journal {
    /// Opens or creates the journal.
    ///
    /// # Errors
    /// The filesystem's errors; a file that is not a journal.
    pub fn open(path: &Path) -> Result<Journal> {
        let bad = |op| move |error| FsError::new(op, path, error);
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(bad("read"))?,
        };
        // If the last line is incomplete, its sample is packed again.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let names = whole.lines().map(serde_json::from_str::<String>).collect::<std::result::Result<HashSet<_>, _>>();
        let names = names.map_err(|_| Error::Sample(format!("{} is not the journal of a pack", path.display())))?;
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(bad("open"))?;
        file.set_len(whole.len() as u64).map_err(bad("truncate"))?;
        Ok(Journal { path: path.to_owned(), file, there: names })
    }

    /// Returns whether the sample of this input is finished.
    pub fn has(&self, name: &str) -> bool {
        self.there.contains(name)
    }

    fn add(&mut self, name: &str) -> Result<()> {
        let line = serde_json::Value::from(name).to_string() + "\n";
        let wrote = self.file.write_all(line.as_bytes());
        Ok(wrote.map_err(|error| FsError::new("write", &self.path, error))?)
    }
}

impl<'a> Target<'a> {
    /// Begins RecordIO files: `out.rec`, or `out.<part>.rec` for several parts.
    ///
    /// # Errors
    /// As [`RecFile::begin`].
    pub fn rec(out: &Path, parts: &[String]) -> Result<Target<'a>> {
        let files = rec_paths(out, parts).iter().map(|path| RecFile::begin(path)).collect::<Result<_>>()?;
        Ok(Target::Rec(files))
    }

    /// Opens a ring for samples of these parts.
    ///
    /// # Errors
    /// As [`Generator::open`]; parts that differ from SAMPLE.
    pub fn ring(
        config: &Config,
        parts: &[String],
        journal: Option<Journal>,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Target<'a>> {
        let mut config = config.clone();
        config.sample.get_or_insert_with(|| parts.to_vec());
        let generator = Generator::open(&config)?;
        Ok(Target::Ring(Box::new(RingTarget {
            generator,
            names: parts.to_vec(),
            journal,
            waiting: VecDeque::new(),
            stop,
        })))
    }

    /// Writes sample number `key`, made of the input `name`.
    ///
    /// # Errors
    /// A sample that is too long or does not match the ring; the filesystem's errors.
    pub fn put(&mut self, key: u64, name: &str, parts: &[NewPart], meta: &Meta) -> Result<()> {
        match self {
            Target::Rec(files) => {
                let too_long =
                    parts.iter().any(|part| part.record.as_ref().unwrap_or(&part.data).len() as u64 > MAX_RECORD);
                if too_long {
                    return Err(Error::Sample("too long for a record".to_owned()));
                }
                for (file, part) in files.iter_mut().zip(parts) {
                    file.write(key, part.record.as_ref().unwrap_or(&part.data))?;
                }
                Ok(())
            }
            Target::Ring(ring) => ring.put(name, parts, meta),
        }
    }

    /// Returns whether finished inputs are recorded.
    pub fn has_journal(&self) -> bool {
        matches!(self, Target::Ring(ring) if ring.journal.is_some())
    }

    /// Returns whether this input's sample is already written.
    pub fn has(&self, name: &str) -> bool {
        matches!(self, Target::Ring(ring) if ring.journal.as_ref().is_some_and(|journal| journal.has(name)))
    }

    /// Completes the output: files get their names; in a ring, all samples become readable.
    ///
    /// # Errors
    /// The filesystem's errors.
    pub fn finish(self, done: &mut Done) -> Result<()> {
        match self {
            Target::Rec(files) => {
                for file in files {
                    done.take(file.finish()?);
                }
            }
            Target::Ring(mut ring) => {
                let ids = ring.generator.seal(ring.stop)?.len();
                ring.note(ids)?;
                let summary = ring.generator.finish(true, ring.stop)?;
                done.bytes = summary.bytes;
                done.skipped += summary.quarantined;
            }
        }
        Ok(())
    }

    /// Ends the output after an error: files are removed; finished samples in a ring stay.
    pub fn abandon(self, error: &Error) {
        if let Target::Ring(mut ring) = self {
            if !matches!(error, Error::Interrupted { .. }) {
                ring.generator.failed(&error.to_string());
            }
            let sealed = ring.generator.seal(ring.stop).and_then(|ids| ring.note(ids.len()));
            if let Err(error) = sealed.and_then(|()| ring.generator.finish(false, ring.stop).map(drop)) {
                tracing::warn!("{error}");
            }
        }
    }
}

/// Returns the files that [`Target::rec`] writes.
pub fn rec_paths(out: &Path, parts: &[String]) -> Vec<PathBuf> {
    match parts {
        [_] => vec![with_end(out, ".rec")],
        many => many.iter().map(|part| with_end(out, &format!(".{}.rec", file_name(part)))).collect(),
    }
}

impl RingTarget<'_> {
    fn put(&mut self, name: &str, parts: &[NewPart], meta: &Meta) -> Result<()> {
        let named = self.names.iter().zip(parts);
        let named: Vec<_> =
            named.map(|(name, part)| NamedPart::new(name, part.dtype.clone(), &part.shape, &part.data)).collect();
        self.waiting.push_back(name.to_owned());
        match self.generator.write(&named, meta, self.stop) {
            Ok(ids) => self.note(ids.len()),
            Err(error) => {
                self.waiting.pop_back();
                Err(error)
            }
        }
    }

    /// Records that `finished` more samples are finished.
    fn note(&mut self, finished: usize) -> Result<()> {
        let discarded = self.generator.summary().discarded;
        if discarded > 0 {
            return Err(Error::Sample(format!(
                "the disk failed, so {discarded} samples are not in the ring: run the command again"
            )));
        }
        for name in self.waiting.drain(..finished.min(self.waiting.len())) {
            self.journal.as_mut().map_or(Ok(()), |journal| journal.add(&name))?;
        }
        Ok(())
    }
}
