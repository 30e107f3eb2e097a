//! Parts as files that other programs read.
//!
//! | file | |
//! |---|---|
//! | [`npy`] | NumPy's `.npy`: any part |

pub mod npy;
