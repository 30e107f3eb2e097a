//! A client of a filesystem that remembers absent names, as an NFS client does.
#![allow(clippy::unwrap_used)]

use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, Posix, Space};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Answers every lookup of a name that it once found absent with "absent", until the name's parent
/// directory is opened for reading, or this client creates the name. Each instance is a client of its
/// own; all share the real filesystem below `root`. Creating and linking ask the server, as on NFS.
#[derive(Debug)]
pub struct StaleClient {
    root: PathBuf,
    absent: Mutex<HashSet<PathBuf>>,
    /// Lookups that memory answered and the server would have answered differently.
    lies: AtomicU64,
}

impl StaleClient {
    pub fn new(root: &Path) -> StaleClient {
        StaleClient { root: root.to_owned(), absent: Mutex::default(), lies: AtomicU64::new(0) }
    }

    pub fn lies(&self) -> u64 {
        self.lies.load(Ordering::Relaxed)
    }

    /// Looks up each component of `path` below the root, as a kernel does.
    fn walk(&self, path: &Path) -> FsResult<()> {
        let mut absent = self.absent.lock().unwrap();
        let Ok(below) = path.strip_prefix(&self.root) else { return Ok(()) };
        let mut here = self.root.clone();
        for name in below.components() {
            here.push(name);
            let is_there = here.symlink_metadata().is_ok();
            if absent.contains(&here) {
                self.lies.fetch_add(u64::from(is_there), Ordering::Relaxed);
            } else if is_there {
                continue;
            }
            absent.insert(here);
            return Err(FsError::new("look up", path, io::Error::from(io::ErrorKind::NotFound)));
        }
        Ok(())
    }

    fn walk_to_parent(&self, path: &Path) -> FsResult<()> {
        path.parent().map_or(Ok(()), |parent| self.walk(parent))
    }

    /// Asks the server to make the name `path`, after which this client knows that it exists.
    fn make<T>(&self, path: &Path, call: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        self.walk_to_parent(path)?;
        let made = call();
        self.absent.lock().unwrap().remove(path);
        made
    }
}

impl Fs for StaleClient {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.make(path, || Posix.create_new(path))
    }
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        self.walk(path).and_then(|()| Posix.open(path))
    }
    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        self.refresh(dir).and_then(|()| Posix.list(dir))
    }
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.walk(dir)?;
        Posix.refresh(dir)?;
        self.absent.lock().unwrap().retain(|path| path.parent() != Some(dir));
        Ok(())
    }
    fn make_dir(&self, path: &Path) -> FsResult<()> {
        self.make(path, || Posix.make_dir(path))
    }
    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.walk(from)?;
        self.make(to, || Posix.link(from, to))
    }
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.walk(from)?;
        self.make(to, || Posix.rename(from, to))
    }
    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.walk(path).and_then(|()| Posix.remove_file(path))
    }
    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.walk(path).and_then(|()| Posix.remove_dir(path))
    }
    fn identity(&self, path: &Path) -> FsResult<Identity> {
        self.walk(path).and_then(|()| Posix.identity(path))
    }
    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        self.walk(path).and_then(|()| Posix.sync_dir(path))
    }
    fn space(&self, path: &Path) -> FsResult<Space> {
        Posix.space(path)
    }
    fn kind(&self, _path: &Path) -> FsResult<Kind> {
        Ok(Kind { name: "nfs", local: false })
    }
}
