//! The command `ringreel`.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command with `args`, of which the first is its name, and returns its exit status.
#[pyfunction]
pub fn run_command(py: Python<'_>, args: Vec<OsString>) -> i32 {
    py.detach(|| ringreel_cli::run_from(args))
}
