//! A configuration that can be pickled: its text, and the directory of relative paths in it.

use crate::errors;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::path::{Path, PathBuf};

/// A configuration that was read and checked.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Config {
    /// The parsed configuration.
    pub inner: ringreel::Config,
    given: (String, String, PathBuf, bool),
}

#[pymethods]
impl Config {
    /// Parses the configuration in `text` (YAML or JSON). `origin` names it in messages; relative paths start at
    /// `base`.
    #[new]
    fn new(py: Python<'_>, text: String, origin: String, base: PathBuf, has_lines: bool) -> PyResult<Config> {
        let inner = ringreel::Config::parse(&text, &origin, &base, has_lines);
        let inner = inner.map_err(|error| errors::raise(py, error))?;
        Ok(Config { inner, given: (text, origin, base, has_lines) })
    }

    /// Reads the configuration in the file `path`. Relative paths in it start at its directory.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Config> {
        let Ok(text) = std::fs::read_to_string(&path) else {
            let inner = ringreel::Config::load(&path).map_err(|error| errors::raise(py, error))?;
            return Ok(Config { inner, given: (String::new(), path.display().to_string(), path, true) });
        };
        // Absolute, so that the path stays valid after a change of directory and in another process.
        let base = std::path::absolute(&path)?.parent().unwrap_or(Path::new("/")).to_owned();
        Config::new(py, text, path.display().to_string(), base, true)
    }

    /// The ring's directory.
    #[getter]
    fn ring(&self) -> String {
        self.inner.ring.to_string_lossy().into_owned()
    }

    /// The names of the parts, in order, or None if the configuration leaves them to the ring.
    #[getter]
    fn sample(&self) -> Option<Vec<String>> {
        self.inner.sample.clone()
    }

    /// Messages about keys that are accepted but have no effect.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.inner.notes.clone()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Config>) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
        let (text, origin, base, has_lines) = &slf.get().given;
        Ok((slf.get_type(), (text, origin, base.as_os_str(), has_lines).into_pyobject(slf.py())?))
    }
}
