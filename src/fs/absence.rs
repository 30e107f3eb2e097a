//! Confirms that a name is missing. One failed lookup is never enough for that.
//!
//! A network client caches failed lookups and answers later ones from this cache: on NFS for
//! `acdirmin` to `acdirmax` (30 to 60 s by default), even if the name was created on the server
//! meanwhile. The code calls such an answer a false "not found". Opening the parent directory for
//! reading makes the client ask the server whether the directory changed; if it did, the client
//! drops its cached lookups of that directory. The measurements are in
//! `docs/operations/filesystems.md`.

use super::{Fs, FsError, FsResult};
use std::io::ErrorKind;
use std::path::Path;

/// Runs `look`, a lookup of `path`. If it does not find the name, refreshes the directories above
/// `path` and runs `look` once more.
///
/// For an existing name, this costs one lookup, as without this function. A missing one costs two
/// lookups and opening its parent directory; if the parent is missing too, also opening the nearest
/// existing ancestor and the directories between. Nothing is cached.
///
/// # Errors
/// Errors of `look`.
pub fn surely<T>(fs: &(impl Fs + ?Sized), path: &Path, look: impl Fn() -> FsResult<T>) -> FsResult<T> {
    match look() {
        Err(error) if is_absence(&error) && refresh_above(fs, path) => look(),
        answer => answer,
    }
}

/// Returns whether the error means that the name is missing. A stale handle does not.
fn is_absence(error: &FsError) -> bool {
    error.source.kind() == ErrorKind::NotFound
}

/// Opens the parent directory of `path` for reading. Returns whether it exists.
fn refresh_above(fs: &(impl Fs + ?Sized), path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match fs.refresh(parent) {
        Ok(()) => true,
        // The client may have cached that the parent itself is missing.
        Err(error) if is_absence(&error) && parent != Path::new(".") => {
            refresh_above(fs, parent) && fs.refresh(parent).is_ok()
        }
        // If the parent cannot be opened, the answer of the lookup stands.
        Err(_) => false,
    }
}
