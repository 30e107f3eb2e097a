//! Looking at a ring again and again: what monitoring wants of it, as JSON text.

use crate::config::Config;
use crate::detached::{Listeners, detached};
use crate::forked::OwnProcess;
use crate::{errors, logging};
use pyo3::prelude::*;
use ringreel::metrics;
use std::sync::{Mutex, PoisonError};

/// One who looks at a ring, and takes no part in it.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Watcher {
    watcher: OwnProcess<Mutex<ringreel::watch::Watcher>>,
    name: String,
}

#[pymethods]
impl Watcher {
    /// One who remembers the last `swaps`. Opens nothing.
    #[new]
    fn new(config: &Bound<'_, Config>, swaps: usize) -> Watcher {
        let config = config.get().inner.clone();
        let name = config.name.clone();
        Watcher { watcher: OwnProcess::new(Mutex::new(ringreel::watch::Watcher::new(config, swaps))), name }
    }

    /// What is to be seen now, as JSON text: the metrics, with `interval` as Wirehead's `poll_interval`; and the swaps
    /// that are remembered, as Wirehead's logs.
    ///
    /// Raises NoRingError when there is no ring (yet), and what else a look may meet.
    fn look(&self, py: Python<'_>, interval: f64) -> PyResult<(String, String)> {
        logging::forward();
        let watcher = self.watcher.get("watcher")?;
        let look =
            detached(py, &Listeners::default(), |_, _| watcher.lock().unwrap_or_else(PoisonError::into_inner).look())?;
        let logs = serde_json::to_string(&metrics::wirehead::logs(&look.swaps, &self.name));
        let logs = logs.map_err(|error| errors::defect(&format!("the swaps as JSON: {error}")))?;
        Ok((metrics::json(&look, &self.name, interval).to_string(), logs))
    }
}
