//! Looking into what lies on a disk: by path, without a configuration, an index or the right to write.
//!
//! | file | |
//! |---|---|
//! | here | [`Subject`]: what a path leads to |
//! | [`verify`], [`finding`] | everything that can be checked of it, and what is found |
//! | [`verify_file`] | one segment, or one RecordIO file |
//! | [`salvage`] | what is left of damaged segments |
//! | [`samples`] | the samples there, by position |
//! | [`find`] | where in a ring the sample with an id is |
//! | [`summary`] | what a ring or a generation is, in facts |
//! | [`mod@file`] | what a file is, in facts |
//! | [`issue`] | what is not as it should be in them |
//! | [`tree`] | what each name in a ring is |
//! | [`sample_stats`] | some samples: their parts, how they are stored, their values |
//! | [`records`] | the records of a file, and what each is |
//! | [`fields`] | the bytes of a record, and what each is |

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

/// What a path leads to.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A ring: a directory with a `ring.json`.
    Ring(Layout),
    /// The directory of one generation, in a ring.
    Generation(Layout, GenerationDir),
    /// A file: a segment, or a RecordIO file of somebody else's.
    File(PathBuf),
}

impl Subject {
    /// What is at `path`.
    ///
    /// # Errors
    /// Nothing there; a directory that is neither a ring nor a generation in one; what the filesystem says.
    pub fn at(fs: &dyn Fs, path: &Path) -> Result<Subject> {
        let path = std::path::absolute(path).map_err(|error| FsError::new("stat", path, error))?;
        // Whoever looks may be given a link, even to a file. What lies below is not followed.
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
        let why = "this directory is no ring (it holds no ring.json), and no generation of one (read.<n> or write.<n>)";
        Err(Error::Fs { source: FsError::new("stat", &path, io::Error::other(why)) })
    }

    /// The filesystem to look at it with: in a ring, one that follows no link. (A file is what the user named.)
    pub fn fenced(&self, fs: &Arc<dyn Fs>) -> Arc<dyn Fs> {
        match self {
            Subject::Ring(layout) | Subject::Generation(layout, _) => within(fs.clone(), layout.root(), None),
            Subject::File(_) => fs.clone(),
        }
    }
}

/// A path in JSON, whatever bytes are in it.
fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
