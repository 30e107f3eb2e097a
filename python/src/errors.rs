//! Converts each error of the crate into the matching exception of `ringreel/_errors.py`.

use pyo3::exceptions::{PyIndexError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use ringreel::Error;
use ringreel::error::FsError;
use ringreel::escape::escape;

const EXCEPTIONS: &str = "ringreel._errors";

/// Returns the exception for `error`.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    instance(py, &error).unwrap_or_else(|failure| failure)
}

/// Returns a RingreelError.
pub fn plain(message: &str) -> PyErr {
    Python::attach(|py| named(py, "RingreelError", message)).unwrap_or_else(|failure| failure)
}

/// Returns a SampleError.
pub fn sample(py: Python<'_>, message: &str) -> PyErr {
    named(py, "SampleError", message).unwrap_or_else(|failure| failure)
}

fn instance(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let message = error.to_string();
    let name = match error {
        Error::OutOfRange { .. } => return Ok(PyIndexError::new_err(escape(&message).into_owned())),
        Error::Fs { source } => match source.source.raw_os_error() {
            Some(errno) => return os_error(py, source, errno, &message),
            None => "RingreelError",
        },
        Error::Damaged { generation, position, sample, path, .. } => {
            let exception = named(py, "DamagedSampleError", &message)?;
            let value = exception.value(py);
            value.setattr("generation", generation)?;
            value.setattr("position", position)?;
            value.setattr("sample_id", sample)?;
            value.setattr("path", path.to_string_lossy())?;
            return Ok(exception);
        }
        Error::Config { .. } => "ConfigError",
        Error::RingNotFound { .. } => "RingNotFoundError",
        Error::RingMismatch { .. } => "RingMismatchError",
        Error::Reclaimed { .. } => "ReclaimedError",
        Error::Stale { .. } => "StaleError",
        Error::CoordinationUnavailable { .. } => "CoordinationUnavailableError",
        Error::CoordinationDenied { .. } => "CoordinationDeniedError",
        Error::Sample(_) => "SampleError",
        Error::Timeout { .. } => "RingTimeoutError",
        Error::Interrupted { .. } => "StoppedError",
        _ => "RingreelError",
    };
    named(py, name, &message)
}

/// Returns the exception `name`. Escapes `message`, because other users may have chosen parts of it.
fn named(py: Python<'_>, name: &str, message: &str) -> PyResult<PyErr> {
    let exception = py.import(EXCEPTIONS)?.getattr(name)?.call1((escape(message),))?;
    Ok(PyErr::from_value(exception))
}

/// Returns an OSError of the subclass for `errno`. The failed operation and the advice follow the system's message.
fn os_error(py: Python<'_>, source: &FsError, errno: i32, message: &str) -> PyResult<PyErr> {
    let said: String = py.import("os")?.getattr("strerror")?.call1((errno,))?.extract()?;
    let advice = message.strip_prefix(&source.to_string()).unwrap_or_default();
    let text = format!("{said} ({} failed){}", source.op, escape(advice));
    let path = source.path.to_string_lossy().into_owned();
    let exception = py.get_type::<PyOSError>().call1((errno, text, path))?;
    Ok(PyErr::from_value(exception))
}

/// Returns the exception for a defect of this program.
pub fn defect(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{what}: this is a defect of ringreel"))
}
