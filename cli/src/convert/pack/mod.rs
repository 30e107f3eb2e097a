//! Files of other formats into RecordIO, or into a ring: in the order in which they are named, by several threads.
//!
//! | file | |
//! |---|---|
//! | here | what all of them share |
//! | [`list`], `shuffle` | `.lst` files of images |
//! | [`im2rec`] | images that such a list names |
//! | [`image`], [`resize`] | what becomes of each |
//! | [`inputs`] | files that go together into a sample |
//! | [`array`](mod@array), [`npy`], [`nifti`] | the tensor that a file holds |
//! | [`target`] | RecordIO files, or a ring |
//! | [`files`] | arrays and lines of text, from inputs to targets |

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
pub mod target;

use ringreel::error::{Error, Result};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest record.
const MAX_RECORD: u64 = (1 << 29) - 1;

/// What was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Samples, or records, written.
    pub samples: u64,
    /// Inputs that could not be packed, and were left out.
    pub skipped: u64,
    /// Inputs that were packed by an earlier attempt.
    pub kept: u64,
    /// Bytes of the files, or of the segments.
    pub bytes: u64,
    /// The files.
    pub files: Vec<PathBuf>,
}

impl Done {
    fn take(&mut self, files: Vec<(PathBuf, u64)>) {
        self.bytes += files.iter().map(|(_, bytes)| bytes).sum::<u64>();
        self.files.extend(files.into_iter().map(|(path, _)| path));
    }
}

/// What the caller is told, and what he may say.
pub use crate::convert::export::Watch;

/// An input is left out, and why; or with `strict`, that is the end.
fn skipped(done: &mut Done, strict: bool, path: &Path, why: &str) -> Result<()> {
    let message = format!("{}: {why}", path.display());
    if strict {
        return Err(Error::Sample(message));
    }
    tracing::warn!("skipped: {message}");
    done.skipped += 1;
    Ok(())
}

/// A plain file of at most `most` bytes, whole. Links are followed; what would never end is refused.
fn read_file(path: &Path, most: u64) -> std::result::Result<Vec<u8>, String> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| error.to_string())?;
    let there = file.metadata().map_err(|error| error.to_string())?;
    if !there.is_file() || there.len() > most {
        return Err(format!("it is no file of at most {most} bytes"));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(there.len() as usize).map_err(|_| format!("there is no room for {} bytes", there.len()))?;
    file.take(most).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}
