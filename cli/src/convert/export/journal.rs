//! What is finished: a file of JSON lines beside the exported ones. The first line is the plan, each further one a
//! finished shard. Whoever exports once more by the same plan goes on behind the last shard that is whole; by another
//! plan, or where files lie without a journal, nothing is written over unless that is wished for.

use crate::convert::output::put;
use ringreel::error::{Error, FsError, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest journal that is read.
const LIMIT: u64 = 256 << 20;

/// One finished shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The position behind its last sample.
    pub next: u64,
    /// Samples in it.
    pub samples: u64,
    /// Damaged samples that are not in it, though they should be.
    pub skipped: u64,
    /// Its files, by their names, and the bytes of each.
    pub files: Vec<(String, u64)>,
}

/// The journal of one export.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Option<File>,
    /// The shards that are finished.
    pub shards: Vec<Shard>,
    /// Whether it was there, for this plan: files that bear the export's names are its own then.
    pub is_ours: bool,
}

impl Journal {
    /// Finds the journal, or begins one. Its shards are those whose files are still there, each with its length.
    ///
    /// # Errors
    /// A journal of another plan, unless `force`: then its files are removed. What the filesystem says.
    pub fn open(path: &Path, plan: &serde_json::Value, force: bool) -> Result<Journal> {
        let mut journal = Journal { path: path.to_owned(), file: None, shards: Vec::new(), is_ours: false };
        let Some(text) = read(path)? else { return Ok(journal) };
        let mut lines = text.lines();
        let is_plan = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok_and(|there| there == *plan);
        journal.is_ours = lines.next().is_some_and(is_plan);
        // The last line may have been cut off.
        let shards: Vec<Shard> = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        if journal.is_ours && !force {
            journal.shards = shards.into_iter().take_while(|shard| journal.is_whole(shard)).collect();
            return Ok(journal);
        }
        if !force {
            let why = "was written by another export (of other samples, or with other options)";
            return Err(Error::Sample(format!("{} {why}: choose another name, or --force", path.display())));
        }
        for (name, _) in shards.iter().flat_map(|shard| &shard.files).filter(|(name, _)| !name.contains('/')) {
            remove(&path.with_file_name(name))?;
        }
        journal.is_ours = true;
        Ok(journal)
    }

    /// Writes the plan, and the shards that are whole.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn begin(&mut self, plan: &serde_json::Value) -> Result<()> {
        let mut text = format!("{plan}\n");
        for shard in &self.shards {
            text.push_str(&line(shard));
        }
        put(&self.path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&self.path);
        self.file = Some(file.map_err(|error| FsError::new("open", &self.path, error))?);
        Ok(())
    }

    /// Notes that a shard is finished.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn add(&mut self, shard: Shard) -> Result<()> {
        let wrote = self.file.as_mut().map_or(Ok(()), |file| file.write_all(line(&shard).as_bytes()));
        wrote.map_err(|error| FsError::new("write", &self.path, error))?;
        self.shards.push(shard);
        Ok(())
    }

    fn is_whole(&self, shard: &Shard) -> bool {
        let there = |name: &str| fs::symlink_metadata(self.path.with_file_name(name)).map(|there| there.len());
        shard.files.iter().all(|(name, bytes)| there(name).is_ok_and(|len| len == *bytes))
    }
}

fn line(shard: &Shard) -> String {
    serde_json::to_string(shard).unwrap_or_default() + "\n"
}

/// The text of a small file; none where there is no such file.
///
/// # Errors
/// What the filesystem says; a file that is not text, or too long.
fn read(path: &Path) -> Result<Option<String>> {
    let is_plain = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FsError::new("stat", path, error).into()),
        Ok(there) => there.is_file() && there.len() <= LIMIT,
    };
    if !is_plain {
        let why = io::Error::other("it is not the journal of an export");
        return Err(FsError::new("read", path, why).into());
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LIMIT).read_to_string(&mut text));
    read.map_err(|error| FsError::new("read", path, error))?;
    Ok(Some(text))
}

/// Removes a file that may be gone.
///
/// # Errors
/// What the filesystem says.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FsError::new("remove", path, error).into()),
        _ => Ok(()),
    }
}
