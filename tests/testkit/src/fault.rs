//! A filesystem whose calls pass through a fault: the only test double that delegates to another filesystem.

use bytes::Bytes;
use ringreel::fs::{FileReader, FileWriter, Fs, FsError, FsResult, Identity, Kind, MapMode, Space};
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

pub const ENOENT: i32 = 2;
pub const EINTR: i32 = 4;
pub const EIO: i32 = 5;
pub const EACCES: i32 = 13;
pub const EBUSY: i32 = 16;
pub const EEXIST: i32 = 17;
pub const ENODEV: i32 = 19;
pub const ENOTDIR: i32 = 20;
pub const EROFS: i32 = 30;
pub const ENAMETOOLONG: i32 = 36;
pub const ENOTEMPTY: i32 = 39;
pub const ESTALE: i32 = 116;
pub const EDQUOT: i32 = 122;

/// A filesystem that other machines share.
pub const NETWORK: Kind = Kind { name: "nfs", local: false };

/// A call to a filesystem, or to a file that was opened on it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The method, such as "open", "list" or "rename"; `create_new` is "create". Calls to open files are "write",
    /// "write_over", "cut", "sync", "close", "size", "read" and "map".
    pub op: &'static str,
    /// The path of the call; for a link or a rename, the new one. Calls on an open file have the path by which it was
    /// opened, and do not look it up again.
    pub path: &'a Path,
    /// The old path of a link or a rename, otherwise empty.
    pub from: &'a Path,
    /// The bytes of a write, otherwise empty.
    pub bytes: &'a [u8],
}

impl<'a> Call<'a> {
    fn new(op: &'static str, path: &'a Path) -> Call<'a> {
        Call { op, path, from: Path::new(""), bytes: &[] }
    }

    /// Returns the same call about another path.
    pub fn at<'b>(self, path: &'b Path) -> Call<'b>
    where
        'a: 'b,
    {
        Call { path, ..self }
    }

    /// Returns the same write, of its first `len` bytes only.
    pub fn shortened(self, len: usize) -> Call<'a> {
        Call { bytes: &self.bytes[..len], ..self }
    }

    /// Returns the error that this call fails with.
    pub fn error(&self, errno: i32) -> FsError {
        FsError::new(self.op, self.path, io::Error::from_raw_os_error(errno))
    }
}

/// What a call returned, one variant for each type.
pub enum Answer {
    Done(()),
    Writer(Box<dyn FileWriter>),
    Reader(Box<dyn FileReader>),
    Names(Vec<String>),
    Identity(Identity),
    Time(SystemTime),
    Space(Space),
    Kind(Kind),
    Size(u64),
    Written(usize),
    Bytes(Vec<u8>),
    Map(Option<Bytes>),
}

/// Lets the layer convert an answer from and to the type that a method of [`Fs`] returns.
macro_rules! answers {
    ($($variant:ident: $type:ty),*) => {$(
        impl From<$type> for Answer {
            fn from(answer: $type) -> Answer {
                Answer::$variant(answer)
            }
        }

        impl From<Answer> for $type {
            fn from(answer: Answer) -> $type {
                match answer {
                    Answer::$variant(answer) => answer,
                    _ => panic!("a fault answered a call with another type than {}", stringify!($type)),
                }
            }
        }
    )*};
}

answers! {
    Done: (), Writer: Box<dyn FileWriter>, Reader: Box<dyn FileReader>, Names: Vec<String>, Identity: Identity,
    Time: SystemTime, Space: Space, Kind: Kind, Size: u64, Written: usize, Bytes: Vec<u8>, Map: Option<Bytes>
}

/// Makes a call on the filesystem below.
pub type Next<'a> = &'a mut dyn FnMut(Call<'_>) -> FsResult<Answer>;

/// A fault of a filesystem. A closure with the arguments of [`Fault::around`] is a fault too.
pub trait Fault: Send + Sync {
    /// Wraps each call. `next` makes the call; a fault that does not run it answers in its place. The caller of the
    /// filesystem gets the result.
    ///
    /// # Errors
    /// Those of `next`, and those that the fault injects.
    fn around(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        next(call)
    }
}

impl<F: Fn(Call<'_>, Next<'_>) -> FsResult<Answer> + Send + Sync> Fault for F {
    fn around(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        self(call, next)
    }
}

/// A filesystem with a fault on it. Clones share the fault.
pub struct FaultyFs<F> {
    inner: Arc<dyn Fs>,
    fault: Arc<F>,
}

impl<F> FaultyFs<F> {
    /// Puts `fault` on `inner`.
    pub fn with(inner: impl Fs + 'static, fault: F) -> FaultyFs<F> {
        FaultyFs { inner: Arc::new(inner), fault: Arc::new(fault) }
    }
}

impl<F> Clone for FaultyFs<F> {
    fn clone(&self) -> FaultyFs<F> {
        FaultyFs { inner: self.inner.clone(), fault: self.fault.clone() }
    }
}

impl<F> Deref for FaultyFs<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fault
    }
}

impl<F> fmt::Debug for FaultyFs<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyFs({:?})", self.inner)
    }
}

impl<F: Fault> FaultyFs<F> {
    fn through<T>(&self, call: Call<'_>, mut make: impl FnMut(Call<'_>) -> FsResult<T>) -> FsResult<T>
    where
        Answer: From<T>,
        T: From<Answer>,
    {
        self.fault.around(call, &mut |call| make(call).map(Answer::from)).map(T::from)
    }
}

impl<F: Fault + 'static> Fs for FaultyFs<F> {
    fn create_new(&self, path: &Path) -> FsResult<Box<dyn FileWriter>> {
        let inner = self.through(Call::new("create", path), |call| self.inner.create_new(call.path))?;
        Ok(Box::new(FaultyWriter { inner: Some(inner), fs: self.clone(), path: path.to_owned() }))
    }
    fn open(&self, path: &Path) -> FsResult<Box<dyn FileReader>> {
        let inner = self.through(Call::new("open", path), |call| self.inner.open(call.path))?;
        Ok(Box::new(FaultyReader { inner, fs: self.clone(), path: path.to_owned() }))
    }
    fn list(&self, dir: &Path) -> FsResult<Vec<String>> {
        self.through(Call::new("list", dir), |call| self.inner.list(call.path))
    }
    fn refresh(&self, dir: &Path) -> FsResult<()> {
        self.through(Call::new("refresh", dir), |call| self.inner.refresh(call.path))
    }
    fn make_dir(&self, path: &Path) -> FsResult<()> {
        self.through(Call::new("make_dir", path), |call| self.inner.make_dir(call.path))
    }
    fn link(&self, from: &Path, to: &Path) -> FsResult<()> {
        let call = Call { from, ..Call::new("link", to) };
        self.through(call, |call| self.inner.link(call.from, call.path))
    }
    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        let call = Call { from, ..Call::new("rename", to) };
        self.through(call, |call| self.inner.rename(call.from, call.path))
    }
    fn remove_file(&self, path: &Path) -> FsResult<()> {
        self.through(Call::new("remove_file", path), |call| self.inner.remove_file(call.path))
    }
    fn remove_dir(&self, path: &Path) -> FsResult<()> {
        self.through(Call::new("remove_dir", path), |call| self.inner.remove_dir(call.path))
    }
    fn identity(&self, path: &Path) -> FsResult<Identity> {
        self.through(Call::new("identity", path), |call| self.inner.identity(call.path))
    }
    fn changed(&self, path: &Path) -> FsResult<SystemTime> {
        self.through(Call::new("changed", path), |call| self.inner.changed(call.path))
    }
    fn sync_dir(&self, path: &Path) -> FsResult<()> {
        self.through(Call::new("sync_dir", path), |call| self.inner.sync_dir(call.path))
    }
    fn space(&self, path: &Path) -> FsResult<Space> {
        self.through(Call::new("space", path), |call| self.inner.space(call.path))
    }
    fn kind(&self, path: &Path) -> FsResult<Kind> {
        self.through(Call::new("kind", path), |call| self.inner.kind(call.path))
    }
}

struct FaultyWriter<F> {
    /// None after the file was closed.
    inner: Option<Box<dyn FileWriter>>,
    fs: FaultyFs<F>,
    path: PathBuf,
}

impl<F: Fault> FaultyWriter<F> {
    fn through<T>(
        &mut self,
        op: &'static str,
        bytes: &[u8],
        mut make: impl FnMut(&mut dyn FileWriter, &[u8]) -> FsResult<T>,
    ) -> FsResult<T>
    where
        Answer: From<T>,
        T: From<Answer>,
    {
        let Self { inner, fs, path } = self;
        let inner = inner.as_deref_mut().unwrap();
        fs.through(Call { bytes, ..Call::new(op, path) }, |call| make(inner, call.bytes))
    }
}

impl<F: Fault> io::Write for FaultyWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.through("write", bytes, |file, bytes| {
            file.write(bytes).map_err(|source| FsError::new("write", Path::new(""), source))
        });
        written.map_err(|error| error.source)
    }

    /// Makes one call of all slices, like a file.
    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.write(&slices.iter().map(|slice| &**slice).collect::<Vec<_>>().concat())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.as_mut().unwrap().flush()
    }
}

impl<F: Fault> FileWriter for FaultyWriter<F> {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> FsResult<()> {
        self.through("write_over", bytes, |file, bytes| file.write_over(at, bytes))
    }

    fn cut(&mut self, len: u64) -> FsResult<()> {
        self.through("cut", &[], |file, _| file.cut(len))
    }

    fn sync(&mut self) -> FsResult<()> {
        self.through("sync", &[], |file, _| file.sync())
    }

    fn close(self: Box<Self>) -> FsResult<()> {
        let Self { mut inner, fs, path } = *self;
        fs.through(Call::new("close", &path), |_| inner.take().unwrap().close())
    }
}

struct FaultyReader<F> {
    inner: Box<dyn FileReader>,
    fs: FaultyFs<F>,
    path: PathBuf,
}

impl<F: Fault> FileReader for FaultyReader<F> {
    fn size(&self) -> FsResult<u64> {
        self.fs.through(Call::new("size", &self.path), |_| self.inner.size())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> FsResult<()> {
        let bytes: Vec<u8> = self.fs.through(Call::new("read", &self.path), |_| {
            let mut bytes = vec![0; buffer.len()];
            self.inner.read_exact_at(&mut bytes, offset).map(|()| bytes)
        })?;
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    fn map(&self, range: Range<u64>, mode: MapMode) -> FsResult<Option<Bytes>> {
        self.fs.through(Call::new("map", &self.path), |_| self.inner.map(range.clone(), mode))
    }
}
