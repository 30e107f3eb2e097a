//! Files of other formats into RecordIO: in the order in which they are named, by several threads.
//!
//! | file | contents |
//! |---|---|
//! | here | what all of them share |
//! | [`list`], `shuffle` | `.lst` files of images |
//! | [`im2rec`] | images that such a list names |
//! | [`image`], [`resize`] | what becomes of each |
//! | [`inputs`] | files that go together into a sample |
//! | [`array`](mod@array), [`npy`], [`nifti`] | the tensor that a file holds |
//! | [`files`] | arrays and lines of text |

pub mod array;
pub mod files;
pub mod im2rec;
pub mod image;
pub mod inputs;
pub mod list;
pub mod nifti;
pub mod npy;
pub mod resize;
mod shuffle;

use ringreel::error::{Error, Result};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest record.
pub(super) const MAX_RECORD: u64 = (1 << 29) - 1;

/// The result of packing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Number of written samples or records.
    pub samples: u64,
    /// Number of inputs that could not be packed and were skipped.
    pub skipped: u64,
    /// Number of inputs that an earlier attempt has packed.
    pub kept: u64,
    /// Size of the files or segments in bytes.
    pub bytes: u64,
    /// The output files.
    pub files: Vec<PathBuf>,
}

impl Done {
    fn take(&mut self, files: Vec<(PathBuf, u64)>) {
        self.bytes += files.iter().map(|(_, bytes)| bytes).sum::<u64>();
        self.files.extend(files.into_iter().map(|(path, _)| path));
    }
}

/// Callbacks for progress and cancellation.
pub use crate::convert::export::Watch;

/// Skips an input and logs why; with `strict`, returns an error instead.
pub(super) fn skipped(done: &mut Done, strict: bool, path: &Path, why: &str) -> Result<()> {
    let message = format!("{}: {why}", path.display());
    if strict {
        return Err(Error::Sample(message));
    }
    tracing::warn!("skipped: {message}");
    done.skipped += 1;
    Ok(())
}

/// A plain file of at most `most` bytes, whole. Links are followed; what would never end is refused.
pub(super) fn read_file(path: &Path, most: u64) -> std::result::Result<Vec<u8>, String> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| error.to_string())?;
    let there = file.metadata().map_err(|error| error.to_string())?;
    if !there.is_file() || there.len() > most {
        return Err(format!("not a regular file of at most {most} bytes"));
    }
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(there.len() as usize)
        .map_err(|_| format!("not enough memory for {} bytes", there.len()))?;
    file.take(most).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}
