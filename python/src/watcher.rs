//! Observes a ring for monitoring, as JSON text.

use crate::config::Config;
use crate::detached::Listeners;
use crate::exclusive::Exclusive;
use crate::forked::OwnProcess;
use crate::{errors, logging};
use pyo3::prelude::*;
use ringreel_ops::metrics;

/// An observer of a ring, which reads it only.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Watcher {
    watcher: OwnProcess<Exclusive<ringreel_ops::monitor::Watcher, ()>>,
    name: String,
}

#[pymethods]
impl Watcher {
    /// Returns an observer that remembers the last `swaps` swaps. Does not open the ring.
    #[new]
    fn new(config: &Bound<'_, Config>, swaps: usize) -> Watcher {
        let config = config.get().inner.clone();
        let name = config.name.clone();
        let watcher = ringreel_ops::monitor::Watcher::new(config, swaps);
        let watcher = Exclusive::new("watcher", "cannot observe the ring again", watcher, |_| ());
        Watcher { watcher: OwnProcess::new(watcher), name }
    }

    /// Returns the ring's metrics, with `interval` as Wirehead's `poll_interval`, and the remembered swaps as
    /// Wirehead's logs, both as JSON text.
    ///
    /// Raises RingNotFoundError if the ring does not exist, and the errors of reading the ring.
    fn look(&self, py: Python<'_>, interval: f64) -> PyResult<(String, String)> {
        logging::forward();
        let watcher = self.watcher.get("watcher")?;
        let look = watcher.call(py, &Listeners::default(), |watcher, _, _| watcher.look())?;
        let logs = serde_json::to_string(&metrics::wirehead::logs(&look.swaps, &self.name));
        let logs = logs.map_err(|error| errors::defect(&format!("the swaps as JSON: {error}")))?;
        Ok((metrics::json(&look, &self.name, interval).to_string(), logs))
    }
}
