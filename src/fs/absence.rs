//! Absence is never concluded from a lookup alone.
//!
//! A network client remembers that a name was absent, and answers later lookups from that memory: on
//! NFS for `acdirmin` to `acdirmax` (30 to 60 s by default), whatever happened on the server since.
//! Opening the parent directory for reading makes the client ask the server whether the directory
//! changed; if it did, the client drops what it remembers about its names. `docs/operations/filesystems.md` has
//! the measurements.

use super::{Fs, FsError, FsResult};
use std::io::ErrorKind;
use std::path::Path;

/// Runs `look`, a lookup of `path`. If it answers that the name is absent, refreshes the directories
/// above `path` and runs `look` once more.
///
/// A name that is present costs one lookup, as without this function. An absent one costs two
/// lookups and the opening of its parent directory; if the parent is absent too, also that of the
/// nearest directory above that exists, and of those between. Nothing is cached.
///
/// # Errors
/// Those of `look`.
pub fn surely<T>(fs: &(impl Fs + ?Sized), path: &Path, look: impl Fn() -> FsResult<T>) -> FsResult<T> {
    match look() {
        Err(error) if is_absence(&error) && refresh_above(fs, path) => look(),
        answer => answer,
    }
}

/// A stale handle does not say that the name is absent.
fn is_absence(error: &FsError) -> bool {
    error.source.kind() == ErrorKind::NotFound
}

/// Opens the parent directory of `path` for reading. Returns whether it exists.
fn refresh_above(fs: &(impl Fs + ?Sized), path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match fs.refresh(parent) {
        Ok(()) => true,
        // The client may remember the parent itself as absent.
        Err(error) if is_absence(&error) && parent != Path::new(".") => {
            refresh_above(fs, parent) && fs.refresh(parent).is_ok()
        }
        // What cannot be opened cannot be asked: the answer of the lookup stands.
        Err(_) => false,
    }
}
