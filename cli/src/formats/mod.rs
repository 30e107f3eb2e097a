//! Writers of files that other programs read. None of them writes any output for a part it cannot represent.
//!
//! | file | |
//! |---|---|
//! | [`npy`] | NumPy `.npy`: any part |
//! | `npz` | NumPy `.npz`: all parts of a sample |
//! | [`nifti`] | NIfTI-1: a volume |
//! | `png` | PNG: an image, or a slice of a volume |
//! | [`json`] | JSON: the values as text |

pub mod json;
pub mod nifti;
pub mod npy;
pub mod npz;
pub mod png;

use ringreel::error::Error;
use std::io;

/// The error for a part that the format cannot represent.
fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
