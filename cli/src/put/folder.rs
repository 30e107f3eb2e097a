//! A watched folder: each `.npz` file that is renamed into it is one sample, and is removed when the sample is finished.
//!
//! A journal in the folder names the files of each segment before it is sealed. A `put` that is started after a kill
//! finds out from it and from the ring which files have finished samples, removes those, and takes the others.

use super::{Finished, Next, Source};
use crate::convert::import::journal::Journal;
use crate::formats::npz;
use ringreel::error::{Error, FsError, Result};
use ringreel::segment::SampleId;
use ringreel::write::generator::Generator;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The journal's name in the folder.
const JOURNAL: &str = ".ringreel-put";
/// Time between two listings, where POLL_SECONDS does not say it.
const POLL: Duration = Duration::from_millis(200);
/// Longest wait of [`Source::next`].
const SLICE: Duration = Duration::from_millis(50);

/// A watched folder.
pub struct Folder {
    dir: PathBuf,
    journal: Journal,
    /// Whether to end after the files of the first listing.
    once: bool,
    /// Time between two listings of the folder.
    poll: Duration,
    listed: Option<Instant>,
    /// Files to take, in the order of their names.
    queue: VecDeque<String>,
    /// Files that were taken and are not removed yet, and files that were refused: as they were then.
    taken: HashMap<String, String>,
    /// The name of the file that was taken last.
    newest: String,
    refusals: u64,
}

impl Folder {
    /// Watches `dir`. `poll` is the time between two listings.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open(dir: &Path, once: bool, poll: Option<Duration>) -> Result<Folder> {
        let journal = Journal::open(&dir.join(JOURNAL))?;
        let (queue, taken) = (VecDeque::new(), HashMap::new());
        let (dir, poll) = (dir.to_owned(), poll.unwrap_or(POLL));
        Ok(Folder { dir, journal, once, poll, listed: None, queue, taken, newest: String::new(), refusals: 0 })
    }

    /// Queues the files that were not taken yet, and removes those whose samples are finished.
    fn list(&mut self) -> Result<()> {
        let dir = self.dir.clone();
        let bad = |error| FsError::new("list", &dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir).map_err(bad)? {
            let name = entry.map_err(bad)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.ends_with(".npz") && !name.starts_with('.')) else {
                continue;
            };
            let Some(file) = self.look(name)? else { continue };
            let state = state_of(name, &file);
            if self.journal.has(&state) {
                self.remove(name)?;
            } else if self.taken.get(name) != Some(&state) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        self.queue = names.into();
        Ok(())
    }

    /// The metadata of a plain file; none if it is gone.
    fn look(&self, name: &str) -> Result<Option<Metadata>> {
        let path = self.dir.join(name);
        match fs::symlink_metadata(&path) {
            Ok(file) => Ok(Some(file).filter(Metadata::is_file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FsError::new("look at", &path, error).into()),
        }
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.taken.remove(name);
        let path = self.dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FsError::new("remove", &path, error).into()),
            _ => Ok(()),
        }
    }

    /// Reads a file. Returns nothing for a file that was removed or is refused.
    fn take(&mut self, name: String) -> Result<Option<Next>> {
        let Some(file) = self.look(&name)? else { return Ok(None) };
        let path = self.dir.join(&name);
        let state = state_of(&name, &file);
        self.taken.insert(name.clone(), state.clone());
        self.newest = name;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.leave(&error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(FsError::new("read", &path, error).into()),
        };
        match npz::read(&bytes) {
            Ok(parts) => {
                self.journal.writing(state);
                Ok(Some(Next::Sample(parts)))
            }
            Err(why) => {
                self.leave(&why);
                Ok(None)
            }
        }
    }

    fn leave(&mut self, why: &str) {
        tracing::warn!("{}: {why}; the file stays", self.dir.join(&self.newest).display());
        self.refusals += 1;
    }

    /// Removes the files of finished samples.
    fn remove_finished(&mut self, samples: Vec<(SampleId, String)>) -> Result<Vec<Finished>> {
        let mut finished = Vec::new();
        for (id, state) in samples {
            let name = name_in(&state);
            // A file of the same name that was put in its place is another sample.
            if self.look(&name)?.is_some_and(|file| state_of(&name, &file) == state) {
                self.remove(&name)?;
            }
            finished.push(Finished { id, file: Some(name) });
        }
        if !finished.is_empty() {
            self.journal.forget_finished()?;
        }
        Ok(finished)
    }
}

impl Source for Folder {
    fn next(&mut self) -> Result<Next> {
        while let Some(name) = self.queue.pop_front() {
            if let Some(next) = self.take(name)? {
                return Ok(next);
            }
        }
        match self.listed.map(|listed| self.poll.saturating_sub(listed.elapsed())) {
            Some(_) if self.once => return Ok(Next::End),
            Some(left) if !left.is_zero() => thread::sleep(left.min(SLICE)),
            _ => {
                self.list()?;
                self.listed = Some(Instant::now());
            }
        }
        Ok(Next::Nothing)
    }

    fn begin(&mut self, generator: &mut Generator) -> Result<Vec<Finished>> {
        let found = self.journal.follow(generator)?;
        // Files whose samples were noted as finished, and which were not removed.
        self.list()?;
        self.queue.clear();
        self.remove_finished(found)
    }

    fn refused(&mut self, error: Error) -> Result<()> {
        self.journal.refused();
        self.leave(&error.to_string());
        Ok(())
    }

    fn finished(&mut self, ids: Vec<SampleId>) -> Result<Vec<Finished>> {
        let files = self.journal.finished(&ids)?;
        self.remove_finished(ids.into_iter().zip(files).collect())
    }

    fn refusals(&self) -> u64 {
        self.refusals
    }
}

/// A file as the journal knows it: a file of the same name that replaces it is another one.
fn state_of(name: &str, file: &Metadata) -> String {
    format!("{} {} {}.{:09} {name}", file.ino(), file.len(), file.mtime(), file.mtime_nsec())
}

/// The name in such a text.
fn name_in(state: &str) -> String {
    state.splitn(4, ' ').nth(3).unwrap_or_default().to_owned()
}
