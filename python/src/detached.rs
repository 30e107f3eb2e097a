//! Work without the GIL that Python's signal handlers can interrupt.

use crate::errors;
use crate::interpreter::with_python;
use pyo3::prelude::*;
use ringreel::escape::escape;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Called about every 50 ms during a wait. Returns true to end the wait.
pub type Stop<'a> = &'a dyn Fn() -> bool;
/// Called with a description of the wait.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// The Python functions that are called during a wait. Both are optional.
#[derive(Default)]
pub struct Listeners {
    /// Called without arguments, after Python's signal handlers; a true result ends the wait.
    pub stop: Option<Py<PyAny>>,
    /// Called with the escaped description of the wait.
    pub tell: Option<Py<PyAny>>,
}

/// Runs `work` without the GIL. While it waits, Python's signal handlers run (in the main thread), and so do
/// `listeners`.
///
/// # Errors
/// Returns what a signal handler or a listener raised, and otherwise the exception for the error of `work`.
pub fn detached<T: Send>(
    py: Python<'_>,
    listeners: &Listeners,
    work: impl FnOnce(Stop<'_>, Tell<'_>) -> ringreel::Result<T> + Send,
) -> PyResult<T> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let hold = |error: PyErr| {
        raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let done = py.detach(|| {
        let stop = || {
            if raised.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return true;
            }
            with_python(|py| ask(py, listeners)).unwrap_or(Ok(true)).unwrap_or_else(|error| {
                hold(error);
                true
            })
        };
        let mut tell = |what: &str| {
            if let Some(tell) = &listeners.tell {
                with_python(|py| tell.call1(py, (escape(what),)).map(|_| ())).unwrap_or(Ok(())).unwrap_or_else(hold);
            }
        };
        work(&stop, &mut tell)
    });
    match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => done.map_err(|error| errors::raise(py, error)),
    }
}

fn ask(py: Python<'_>, listeners: &Listeners) -> PyResult<bool> {
    py.check_signals()?;
    match &listeners.stop {
        Some(stop) => stop.call0(py)?.is_truthy(py),
        None => Ok(false),
    }
}

/// Converts a time limit in seconds. None and infinity mean no limit.
///
/// # Errors
/// Returns a ValueError for a negative number or NaN.
pub fn time_limit(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => Ok(Duration::try_from_secs_f64(seconds).ok()),
        Some(seconds) => {
            let message = format!("timeout: expected seconds, 0 or more, or None, found {seconds}");
            Err(pyo3::exceptions::PyValueError::new_err(message))
        }
    }
}
