//! The real filesystem, confined to one ring: links below the ring's directory are never followed.
//!
//! A user with write access to a ring may replace any of its directories by a link. A manager that
//! empties `trash/` would then remove files elsewhere, with its own permissions instead of that
//! user's. So each call opens the directory in question from the ring's directory on without
//! following a link (openat2(2) with RESOLVE_NO_SYMLINKS; on systems without it, one directory
//! after the other with O_NOFOLLOW), and works on a name in it. The target cannot be replaced
//! between the check and the call. The path of the ring's directory itself may contain links,
//! because the user configured it.

use super::openat::{DirEntryAt, Modes};
use super::posix::Resolve;
use super::{FsError, FsResult};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Once;

/// The confined filesystem; see the module. Paths outside the ring's directory behave as in
/// [`Posix`](super::Posix).
#[derive(Debug)]
pub struct Confined {
    root: PathBuf,
    modes: Option<Modes>,
    /// Completed once a new directory did not keep the setgid bit and a warning was logged.
    warned: Once,
}

impl Confined {
    /// Creates the filesystem for the ring in `root`. New files and directories get `modes`; with
    /// `None`, the umask decides.
    pub fn new(root: &Path, modes: Option<Modes>) -> Confined {
        Confined { root: root.to_owned(), modes, warned: Once::new() }
    }

    /// Opens a file for reading, as [`Fs::open`](super::Fs::open) does, for callers that need the file itself.
    ///
    /// # Errors
    /// System errors; a link on the way.
    pub fn open_file(&self, path: &Path) -> FsResult<File> {
        self.at("open", path)?.open()
    }
}

impl Resolve for Confined {
    fn at<'p>(&'p self, op: &'static str, path: &'p Path) -> FsResult<DirEntryAt<'p>> {
        let (Ok(below), Some(name)) = (path.strip_prefix(&self.root), path.file_name()) else {
            return Ok(DirEntryAt::plain(path));
        };
        let Some(parent) = below.parent() else {
            return Ok(DirEntryAt::plain(path).with_modes(self.modes, &self.warned)); // the ring's own directory
        };
        let opened = open_dir(CWD, &self.root).and_then(|root| descend(root, parent));
        let dir = opened.map_err(|errno| FsError::new(op, path, explained(errno)))?;
        Ok(DirEntryAt::within(dir, Path::new(name), path).with_modes(self.modes, &self.warned))
    }
}

fn open_dir(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the directory at `below`, relative to `root`, without following a link.
fn descend(root: OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve) {
        // The system is too old for openat2(2), or blocks it.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(root, below),
        other => other,
    }
}

/// Like [`descend`], but opens one directory after the other.
fn step_by_step(root: OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    below.components().try_fold(root, |dir, component| match component {
        Component::Normal(name) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&dir, name, flags, Mode::empty())
        }
        _ => Err(Errno::LOOP),
    })
}

fn explained(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP | Errno::XDEV => {
            io::Error::other("a directory of the ring was replaced by a link, which is not followed: remove the link")
        }
        errno => errno.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fs::Fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn descents_find_directories_and_follow_no_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        symlink("../..", dir.path().join("a/up")).unwrap();
        let root = || open_dir(CWD, dir.path()).unwrap();
        for way in [descend, step_by_step] {
            for exists in ["a", "a/b"] {
                assert!(way(root(), Path::new(exists)).is_ok(), "{exists}");
            }
            for link in ["link", "link/b", "a/up", "a/up/a", "..", "a/../../x"] {
                assert!(way(root(), Path::new(link)).is_err(), "{link}");
            }
        }
    }

    #[test]
    fn create_unique_sets_modes_and_follows_no_link() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let fenced = Confined::new(dir.path(), Some(Modes::new(0o660)));
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fenced.create_unique(&file).unwrap().close().unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o660);
        symlink("elsewhere", &link).unwrap();
        assert!(fenced.create_unique(&link).is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
