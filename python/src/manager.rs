//! The manager, which runs until a stop is requested.

use crate::config::Config;
use crate::detached::{Listeners, detached};
use crate::logging;
use pyo3::prelude::*;
use ringreel::Error;
use ringreel::swap::manager::{Manager, until};

/// Runs a manager until `stop` returns true or a signal handler raises.
///
/// # Errors Returns an error if the ring does not match the configuration or cannot be created, and what a signal
/// handler raised.
#[pyfunction]
pub fn run_manager(py: Python<'_>, config: &Bound<'_, Config>, stop: Py<PyAny>) -> PyResult<()> {
    logging::forward();
    let config = &config.get().inner;
    let listeners = Listeners { stop: Some(stop), tell: None };
    detached(py, &listeners, |stop, _| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime =
            runtime.map_err(|error| Error::Coordination(format!("no event loop for the manager: {error}")))?;
        let manager = Manager::open(config)?;
        runtime.block_on(manager.run(until(stop), |_| {}))
    })
}
