//! Files in memory, whose reads are counted and may fail.

use bytes::Bytes;
use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Space};
use ringreel::read::shard::Share;
use ringreel_recordio::input_split::{InputSplit, SplitOptions};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug, Default)]
pub struct MemFs {
    pub files: Arc<Mutex<BTreeMap<PathBuf, Arc<Vec<u8>>>>>,
    pub read: Arc<AtomicU64>,
    /// Reads until one fails, from 1; 0: none does.
    pub fail_in: Arc<AtomicU64>,
}

pub struct MemFile(MemFs, Arc<Vec<u8>>);

pub fn errno<T>(path: &Path, errno: i32) -> FsResult<T> {
    Err(FsError::new("test", path, io::Error::from_raw_os_error(errno)))
}

impl FileReader for MemFile {
    fn size(&self) -> FsResult<u64> {
        Ok(self.1.len() as u64)
    }
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        if self.0.fail_in.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) == Ok(1) {
            return errno(Path::new("read"), 5);
        }
        self.0.read.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        let from = self.1.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(from.expect("nothing is read beyond the end"));
        Ok(())
    }
    fn map(&self, _: Range<u64>, _: MapMode) -> FsResult<Option<Bytes>> {
        Ok(None)
    }
}

impl MemFs {
    pub fn of(files: &[Vec<u8>]) -> (MemFs, Vec<PathBuf>) {
        let fs = MemFs::default();
        let paths: Vec<_> = (0..files.len()).map(|n| PathBuf::from(format!("/d/{n}.rec"))).collect();
        for (path, file) in paths.iter().zip(files) {
            fs.put(path, file);
        }
        (fs, paths)
    }
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        self.files.lock().unwrap().insert(path.to_owned(), Arc::new(bytes.to_vec()));
    }
    pub fn split(
        &self,
        paths: &[PathBuf],
        rank: u64,
        world: u64,
        options: SplitOptions,
    ) -> ringreel::Result<InputSplit> {
        InputSplit::open_on(Arc::new(self.clone()), paths, Share { rank, world }, options)
    }
}

impl Fs for MemFs {
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        match self.files.lock().unwrap().get(path) {
            Some(file) => Ok(Box::new(MemFile(self.clone(), file.clone()))),
            None => errno(path, 2),
        }
    }
    fn identity(&self, path: &Path) -> FsResult<Identity> {
        let files = self.files.lock().unwrap();
        let Some(n) = files.keys().position(|name| name == path) else { return errno(path, 2) };
        Ok(Identity { inode: (0, n as u64), len: files[path].len() as u64, is_dir: false })
    }
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        errno(path, 30)
    }
    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        errno(dir, 30)
    }
    fn make_dir(&self, path: &Path) -> FsResult<()> {
        errno(path, 30)
    }
    fn link(&self, path: &Path, _: &Path) -> FsResult<()> {
        errno(path, 30)
    }
    fn rename(&self, path: &Path, _: &Path) -> FsResult<()> {
        errno(path, 30)
    }
    fn remove_file(&self, path: &Path) -> FsResult<()> {
        errno(path, 30)
    }
    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        errno(path, 30)
    }
    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        errno(path, 30)
    }
    fn space(&self, path: &Path) -> FsResult<Space> {
        errno(path, 30)
    }
    fn kind(&self, path: &Path) -> FsResult<Kind> {
        errno(path, 30)
    }
}
