//! Inspection by path. It needs no configuration, no index and no write permission.
//!
//! | file | contents |
//! |---|---|
//! | this one | [`Subject`]: what a path names |
//! | [`verify`], [`finding`] | verification of rings and generations, and its findings |
//! | [`verify_file`] | verification of a segment or a RecordIO file |
//! | [`salvage`] | copies the intact samples of damaged segments |
//! | [`samples`] | access to samples by position |
//! | [`find`] | finds a sample by its id in a ring |
//! | [`summary`] | facts about a ring or a generation |
//! | [`mod@file`] | facts about a file |
//! | [`issue`] | issues of rings, generations and files |
//! | [`tree`] | explains each name in a ring |
//! | [`sample_stats`] | statistics of some samples: parts, storage, values |
//! | [`records`] | lists the records of a file |
//! | [`fields`] | decodes the bytes of a record |

pub mod fields;
pub mod file;
pub mod find;
pub mod finding;
pub mod issue;
pub mod records;
pub mod salvage;
pub mod sample_stats;
pub mod samples;
pub mod summary;
pub mod tree;
pub mod verify;
pub mod verify_file;

use ringreel::error::{Error, FsError, Result};
use ringreel::fs::{Fs, within};
use ringreel::layout::{GenerationDir, Layout};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a path names.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A ring: a directory with a `ring.json`.
    Ring(Layout),
    /// The directory of one generation, in a ring.
    Generation(Layout, GenerationDir),
    /// A file: a segment, or any RecordIO file.
    File(PathBuf),
}

impl Subject {
    /// Returns what `path` names.
    ///
    /// # Errors
    /// The path does not exist, is a directory that is neither a ring nor a generation, or a filesystem error.
    pub fn at(fs: &dyn Fs, path: &Path) -> Result<Subject> {
        let path = std::path::absolute(path).map_err(|error| FsError::new("stat", path, error))?;
        // The user may name a link, even to a file. Links below it are not followed.
        let path = std::fs::canonicalize(&path).map_err(|error| FsError::new("stat", &path, error))?;
        if !fs.identity(&path)?.is_dir {
            return Ok(Subject::File(path));
        }
        let layout = Layout::new(&path);
        if fs.exists(&layout.ring_json())? || fs.exists(&layout.manifests())? {
            return Ok(Subject::Ring(layout));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        if let (Some(dir), Some(ring)) = (name.and_then(GenerationDir::parse), path.parent().map(Layout::new))
            && fs.exists(&ring.ring_json())?
        {
            return Ok(Subject::Generation(ring, dir));
        }
        let why = "the directory is neither a ring (no ring.json) nor a generation in one (read.<n> or write.<n>)";
        Err(Error::Fs { source: FsError::new("stat", &path, io::Error::other(why)) })
    }

    /// Returns the filesystem to read with: in a ring, one that follows no links. (A file was named by the user.)
    pub fn fenced(&self, fs: &Arc<dyn Fs>) -> Arc<dyn Fs> {
        match self {
            Subject::Ring(layout) | Subject::Generation(layout, _) => within(fs.clone(), layout.root(), None),
            Subject::File(_) => fs.clone(),
        }
    }
}

/// Serializes a path; bytes that are not UTF-8 are replaced.
fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
