//! The journal of an import: which inputs have a finished sample in the ring.
//!
//! One JSON value per line:
//!
//! - `{"sealing": ID, "owner": ..., "born": ..., "inputs": [...]}`, written before a segment is sealed;
//! - `{"sealed": ID}`, written after it;
//! - a text: one finished input (ringreel 0.1.0 wrote these).
//!
//! A process that is killed between the first two lines leaves a segment that may be sealed or not. The next process
//! looks for it in the ring, so that each input has exactly one sample.

use ringreel::error::{Error, FsError, Result};
use ringreel::ring::Ring;
use ringreel::segment::SampleId;
use ringreel::write::generator::{Generator, Sealing};
use ringreel_format::SegmentId;
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A line of the journal.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// A segment is about to be sealed.
    Sealing(Announced),
    /// It was sealed.
    Sealed { sealed: String },
    /// One finished input.
    Finished(String),
}

/// A segment, and the inputs of its samples.
#[derive(Clone, Serialize, Deserialize)]
struct Announced {
    sealing: String,
    owner: String,
    born: u64,
    inputs: Vec<String>,
}

/// The journal. Its clones are the same journal.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<State>>);

struct State {
    path: PathBuf,
    file: fs::File,
    /// Whether each line is synced before the segment is sealed.
    sync: bool,
    finished: HashSet<String>,
    /// Inputs whose samples are written, in no announced segment yet.
    waiting: VecDeque<String>,
    /// Segments whose ids the generator has not returned yet.
    announced: VecDeque<Announced>,
}

impl Journal {
    /// Opens the journal at `path`, or makes it. It stays locked until the journal is dropped.
    ///
    /// # Errors
    /// Another process has it open; the file is no journal; what the filesystem says.
    pub fn open(path: &Path) -> Result<Journal> {
        let bad = |op| move |error| FsError::new(op, path, error);
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).custom_flags(flags);
        let mut file = options.open(path).map_err(bad("open"))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::Sample(format!("{}: another process uses this journal", path.display())));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(bad("read"))?;
        // A line without its end was cut off when the process was killed: its segment was not sealed.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let lines = whole.lines().map(serde_json::from_str::<Line>).collect::<std::result::Result<Vec<_>, _>>();
        let lines = lines.map_err(|_| Error::Sample(format!("{} is not the journal of an import", path.display())))?;
        file.set_len(whole.len() as u64).map_err(bad("cut"))?;
        let (mut finished, mut announced) = (HashSet::new(), VecDeque::<Announced>::new());
        for line in lines {
            match line {
                Line::Finished(input) => drop(finished.insert(input)),
                Line::Sealing(segment) => announced.push_back(segment),
                Line::Sealed { sealed } => {
                    while let Some(at) = announced.iter().position(|segment| segment.sealing == sealed) {
                        finished.extend(announced.remove(at).map(|segment| segment.inputs).unwrap_or_default());
                    }
                }
            }
        }
        let state = State { path: path.to_owned(), file, sync: false, finished, waiting: VecDeque::new(), announced };
        Ok(Journal(Arc::new(Mutex::new(state))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what became of the segments that an earlier process announced, and announces those of `generator` from
    /// now on. Returns the ids of the samples that were finished without a note of it, each with its input.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn follow(&self, generator: &mut Generator) -> Result<Vec<(SampleId, String)>> {
        let found = self.lock().settle(generator.ring())?;
        let journal = self.clone();
        generator.before_seal(move |sealing| journal.lock().announce(sealing));
        Ok(found)
    }

    /// Whether the sample of this input is finished.
    pub fn has(&self, input: &str) -> bool {
        self.lock().finished.contains(input)
    }

    /// Notes that the next sample that the generator writes is made of `input`.
    pub fn writing(&self, input: String) {
        self.lock().waiting.push_back(input);
    }

    /// Forgets the newest input: its sample was refused.
    pub fn refused(&self) {
        self.lock().waiting.pop_back();
    }

    /// Notes that these samples, whole segments in their order, are finished. Returns their inputs.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn finished(&self, ids: &[SampleId]) -> Result<Vec<String>> {
        let mut state = self.lock();
        let mut inputs = Vec::new();
        for id in ids.iter().filter(|id| id.ordinal == 0) {
            let segment = id.segment.to_string();
            state.append(&Line::Sealed { sealed: segment.clone() })?;
            if let Some(at) = state.announced.iter().position(|announced| announced.sealing == segment) {
                inputs.extend(state.announced.remove(at).map(|announced| announced.inputs).unwrap_or_default());
            }
        }
        state.finished.extend(inputs.iter().cloned());
        Ok(inputs)
    }

    /// Empties the journal, for a caller that has removed all finished inputs. Does nothing while a segment is being
    /// sealed.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn forget_finished(&self) -> Result<()> {
        let mut state = self.lock();
        if !state.announced.is_empty() {
            return Ok(());
        }
        state.finished.clear();
        let cut = state.file.set_len(0);
        Ok(cut.map_err(|error| FsError::new("cut", &state.path, error))?)
    }
}

impl State {
    fn announce(&mut self, sealing: Sealing<'_>) -> Result<()> {
        if sealing.discarded > 0 {
            // The inputs of these samples can no longer be told from the others: nothing more is sealed.
            let why = io::Error::other("the disk failed, and some samples are not in the ring: run it again");
            return Err(FsError::new("note a segment in", &self.path, why).into());
        }
        let id = sealing.id.to_string();
        if self.announced.iter().any(|announced| announced.sealing == id) {
            return Ok(()); // sealing it is tried again
        }
        let samples = (sealing.samples as usize).min(self.waiting.len());
        let inputs: Vec<String> = self.waiting.iter().take(samples).cloned().collect();
        let announced = Announced { sealing: id, owner: sealing.owner.to_owned(), born: sealing.born, inputs };
        self.append(&Line::Sealing(announced.clone()))?;
        if self.sync {
            self.file.sync_data().map_err(|error| FsError::new("sync", &self.path, error))?;
        }
        self.waiting.drain(..samples);
        self.announced.push_back(announced);
        Ok(())
    }

    fn settle(&mut self, ring: &Ring) -> Result<Vec<(SampleId, String)>> {
        self.sync = ring.syncs_files();
        let mut found = Vec::new();
        for announced in std::mem::take(&mut self.announced) {
            let Announced { sealing, owner, born, inputs } = announced;
            let segment: SegmentId = sealing
                .parse()
                .map_err(|_| Error::Sample(format!("{} is not the journal of an import", self.path.display())))?;
            if !ring.is_sealed(&owner, segment, born)? {
                continue;
            }
            self.append(&Line::Sealed { sealed: sealing })?;
            self.finished.extend(inputs.iter().cloned());
            found.extend((0..).map(|ordinal| SampleId { segment, ordinal }).zip(inputs));
        }
        Ok(found)
    }

    fn append(&mut self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).map_err(io::Error::from);
        let wrote = text.and_then(|text| self.file.write_all((text + "\n").as_bytes()));
        Ok(wrote.map_err(|error| FsError::new("write", &self.path, error))?)
    }
}
