//! The files of a split: which files, in which order, and where their concatenation is cut.

use super::Position;
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, FsResult};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Follows links.
pub(super) type Resolve = fn(&Path) -> FsResult<PathBuf>;

/// One file of records.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The path as the caller named it.
    pub(super) path: PathBuf,
    /// The path that is opened: the same, or the target of a link.
    pub(super) real: PathBuf,
    /// Length in bytes when it was listed.
    pub(super) len: u64,
    /// The index with which its records are compared, if one is used.
    pub(super) index: Option<PathBuf>,
}

/// Returns the files that `paths` name, sorted by the bytes of their paths. `resolve` follows links.
///
/// # Errors
/// No path; a directory without `.rec` files; a file that is named twice; filesystem errors.
pub(super) fn list<P: AsRef<Path>>(fs: &dyn Fs, paths: &[P], resolve: Resolve) -> Result<Vec<Source>> {
    if paths.is_empty() {
        return Err(Error::Sample("no file to read: give .rec files, or directories with .rec files".to_owned()));
    }
    let mut sources = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let dir = resolve(path)?;
        if !fs.identity(&dir)?.is_dir {
            sources.push(source(fs, path, resolve)?);
            continue;
        }
        let mut names = fs.list(&dir)?;
        names.retain(|name| name.ends_with(".rec"));
        if names.is_empty() {
            return Err(Error::Sample(format!("{}: the directory has no .rec files", path.display())));
        }
        for name in names {
            sources.push(source(fs, &path.join(name), resolve)?);
        }
    }
    let mut seen = HashMap::new();
    for Listed { source, inode } in &sources {
        if let Some(other) = seen.insert(*inode, &source.path) {
            let (a, b) = (other.display(), source.path.display());
            return Err(Error::Sample(format!("{b} is the same file as {a}, so its records would be read twice")));
        }
    }
    let mut sources: Vec<_> = sources.into_iter().map(|listed| listed.source).collect();
    sources.sort_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    Ok(sources)
}

struct Listed {
    source: Source,
    inode: (u64, u64),
}

fn source(fs: &dyn Fs, path: &Path, resolve: Resolve) -> Result<Listed> {
    let real = resolve(path)?;
    let found = fs.identity(&real)?;
    Ok(Listed { source: Source { path: path.to_owned(), real, len: found.len, index: None }, inode: found.inode })
}

/// Returns where the split of rank `rank` of `world` begins: byte `total × rank / world` of the concatenation,
/// rounded down, and then rounded up to a multiple of 4 of its file's offset. (No record begins in between.)
pub(super) fn cut(sources: &[Source], rank: u64, world: u64) -> Position {
    let total: u128 = sources.iter().map(|source| u128::from(source.len)).sum();
    let mut left = total * u128::from(rank) / u128::from(world);
    for (file, source) in sources.iter().enumerate() {
        let len = u128::from(source.len);
        if left < len {
            let at = (left as u64).next_multiple_of(4);
            return if at < source.len { Position { file, at } } else { Position { file: file + 1, at: 0 } };
        }
        left -= len;
    }
    Position { file: sources.len(), at: 0 }
}
