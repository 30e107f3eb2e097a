//! Files in memory; reads are counted, and may fail.

use ringreel::fs::{Fs, FsResult};
use ringreel::read::shard::Share;
use ringreel_recordio::input_split::{InputSplit, SplitOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::disk::{Disk, Lie};
use testkit::fault::{Answer, Call, EIO, EROFS, Fault, FaultyFs, Next};

/// Counts the bytes that are read, lets one read fail, and refuses all calls but lookups and reads.
#[derive(Clone, Debug, Default)]
struct Reads {
    read: Arc<AtomicU64>,
    fail_in: Arc<AtomicU64>,
}

impl Fault for Reads {
    fn around(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        match call.op {
            "read" => {}
            "open" | "identity" | "size" | "map" => return next(call),
            _ => return Err(call.error(EROFS)),
        }
        if self.fail_in.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) == Ok(1) {
            return Err(call.error(EIO));
        }
        let bytes: Vec<u8> = next(call).expect("a read beyond the end").into();
        self.read.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(bytes.into())
    }
}

pub struct MemFs {
    disk: Disk,
    fs: Arc<FaultyFs<Reads>>,
    pub read: Arc<AtomicU64>,
    /// The number of the read that fails, from 1; 0: none.
    pub fail_in: Arc<AtomicU64>,
}

impl MemFs {
    pub fn of(files: &[Vec<u8>]) -> (MemFs, Vec<PathBuf>) {
        let (disk, reads) = (Disk::new(Lie::None), Reads::default());
        disk.make_dir(Path::new("/d")).unwrap();
        let (read, fail_in) = (reads.read.clone(), reads.fail_in.clone());
        let fs = MemFs { fs: Arc::new(FaultyFs::with(disk.clone(), reads)), disk, read, fail_in };
        let paths: Vec<_> = (0..files.len()).map(|n| PathBuf::from(format!("/d/{n}.rec"))).collect();
        for (path, file) in paths.iter().zip(files) {
            fs.put(path, file);
        }
        (fs, paths)
    }
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        self.disk.forget_file(path).unwrap();
        self.disk.create_new(path).unwrap().write_all(bytes).unwrap();
    }
    pub fn split(
        &self,
        paths: &[PathBuf],
        rank: u64,
        world: u64,
        options: SplitOptions,
    ) -> ringreel::Result<InputSplit> {
        InputSplit::open_on(self.fs.clone(), paths, Share { rank, world }, options)
    }
}
