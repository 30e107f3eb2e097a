//! The journal of an export: a file of JSON lines beside the exported files. The first line is the plan, each further line
//! a finished shard. A second export with the same plan continues after the last complete shard. With another plan, or if
//! files exist without a journal, nothing is overwritten without `force`.

use crate::convert::output::put;
use ringreel::error::{Error, FsError, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest journal that is read, in bytes.
const LIMIT: u64 = 256 << 20;

/// One finished shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The position after its last sample.
    pub next: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of damaged samples that were skipped.
    pub skipped: u64,
    /// Names of its files, and their sizes in bytes.
    pub files: Vec<(String, u64)>,
}

/// The journal of one export.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Option<File>,
    /// The finished shards.
    pub shards: Vec<Shard>,
    /// Whether the journal existed for this plan, so that files with the export's names belong to it.
    pub is_ours: bool,
}

impl Journal {
    /// Opens the journal, or begins a new one. Keeps the shards whose files still exist with the recorded sizes. With
    /// `force`, removes the files of an earlier export.
    ///
    /// # Errors
    /// A journal of another plan, without `force`; the filesystem's errors.
    pub fn open(path: &Path, plan: &serde_json::Value, force: bool) -> Result<Journal> {
        let mut journal = Journal { path: path.to_owned(), file: None, shards: Vec::new(), is_ours: false };
        let Some(text) = read(path)? else { return Ok(journal) };
        let mut lines = text.lines();
        let is_plan = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok_and(|there| there == *plan);
        journal.is_ours = lines.next().is_some_and(is_plan);
        // The last line may be incomplete.
        let shards: Vec<Shard> = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        if journal.is_ours && !force {
            journal.shards = shards.into_iter().take_while(|shard| journal.is_whole(shard)).collect();
            return Ok(journal);
        }
        if !force {
            let why = "belongs to another export (of other samples, or with other options)";
            return Err(Error::Sample(format!("{} {why}: choose another name, or use --force", path.display())));
        }
        for (name, _) in shards.iter().flat_map(|shard| &shard.files).filter(|(name, _)| !name.contains('/')) {
            remove(&path.with_file_name(name))?;
        }
        journal.is_ours = true;
        Ok(journal)
    }

    /// Writes the plan and the complete shards.
    ///
    /// # Errors
    /// The filesystem's errors.
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

    /// Records a finished shard.
    ///
    /// # Errors
    /// The filesystem's errors.
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

/// Reads a small text file; returns `None` if it does not exist.
///
/// # Errors
/// The filesystem's errors; a file that is not text or too long.
fn read(path: &Path) -> Result<Option<String>> {
    let is_plain = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FsError::new("stat", path, error).into()),
        Ok(there) => there.is_file() && there.len() <= LIMIT,
    };
    if !is_plain {
        let why = io::Error::other("not the journal of an export");
        return Err(FsError::new("read", path, why).into());
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LIMIT).read_to_string(&mut text));
    read.map_err(|error| FsError::new("read", path, error))?;
    Ok(Some(text))
}

/// Removes a file that may not exist.
///
/// # Errors
/// The filesystem's errors.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FsError::new("remove", path, error).into()),
        _ => Ok(()),
    }
}
