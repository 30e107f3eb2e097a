//! Parts as files that other programs read. Each writes nothing at all where a part cannot be such a file.
//!
//! | file | |
//! |---|---|
//! | [`npy`] | NumPy's `.npy`: any part |
//! | `npz` | NumPy's `.npz`: all parts of a sample |
//! | [`nifti`] | NIfTI-1: a volume |
//! | `png` | an image, or a slice of a volume |
//! | [`json`] | the values as text |

pub mod json;
pub mod nifti;
pub mod npy;
pub mod npz;
pub mod png;

use ringreel::error::Error;
use std::io;

/// A part that cannot be such a file.
fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
