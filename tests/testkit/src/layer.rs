//! A filesystem that passes each call to another one, unless a test changes it.

use ringreel::fs::{FileReader, FileWriter, Fs, FsResult, Identity, Kind, Space};
use std::fmt::Debug;
use std::ops::Deref;
use std::path::Path;
use std::time::SystemTime;

/// What a test changes of a filesystem. Every method calls the same one of [`Layer::inner`] unless it is overridden.
///
/// For a fault at a certain call, [`HookFs`](crate::ring::HookFs) and a closure are shorter. A layer is for what changes
/// the answer of a call.
pub trait Layer: Debug + Send + Sync {
    /// The filesystem below.
    fn inner(&self) -> &dyn Fs;

    /// A file that was just created, to be written to.
    fn writing(&self, _path: &Path, file: Box<dyn FileWriter>) -> Box<dyn FileWriter> {
        file
    }
    /// A file that was just opened.
    fn reading(&self, _path: &Path, file: Box<dyn FileReader>) -> Box<dyn FileReader> {
        file
    }
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.inner().create_new(path).map(|file| self.writing(path, file))
    }
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        self.inner().open(path).map(|file| self.reading(path, file))
    }
    fn read(&self, path: &Path, limit: u64) -> FsResult<Vec<u8>> {
        self.inner().read(path, limit)
    }
    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        self.inner().list(dir)
    }
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.inner().refresh(dir)
    }
    fn make_dir(&self, path: &Path) -> FsResult<()> {
        self.inner().make_dir(path)
    }
    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.inner().link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.inner().rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.inner().remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.inner().remove_dir(path)
    }
    fn identity(&self, path: &Path) -> FsResult<Identity> {
        self.inner().identity(path)
    }
    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        self.inner().changed(path)
    }
    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        self.inner().sync_dir(path)
    }
    fn space(&self, path: &Path) -> FsResult<Space> {
        self.inner().space(path)
    }
    fn kind(&self, path: &Path) -> FsResult<Kind> {
        self.inner().kind(path)
    }
}

/// A filesystem with a layer on it.
#[derive(Clone, Debug)]
pub struct Layered<L>(pub L);

impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}

impl<L: Layer> Fs for Layered<L> {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        self.0.create_new(path)
    }
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        self.0.open(path)
    }
    fn read(&self, path: &Path, limit: u64) -> FsResult<Vec<u8>> {
        self.0.read(path, limit)
    }
    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        self.0.list(dir)
    }
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.0.refresh(dir)
    }
    fn make_dir(&self, path: &Path) -> FsResult<()> {
        self.0.make_dir(path)
    }
    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.0.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.0.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.0.remove_dir(path)
    }
    fn identity(&self, path: &Path) -> FsResult<Identity> {
        self.0.identity(path)
    }
    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        self.0.changed(path)
    }
    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        self.0.sync_dir(path)
    }
    fn space(&self, path: &Path) -> FsResult<Space> {
        self.0.space(path)
    }
    fn kind(&self, path: &Path) -> FsResult<Kind> {
        self.0.kind(path)
    }
}
