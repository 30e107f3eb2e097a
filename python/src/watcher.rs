//! Looking at a ring again and again: what monitoring wants of it, as JSON text.

use crate::config::Config;
use crate::detached::Listeners;
use crate::exclusive::Exclusive;
use crate::forked::OwnProcess;
use crate::{errors, logging};
use pyo3::prelude::*;
use ringreel_ops::metrics;

/// One who looks at a ring, and takes no part in it.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Watcher {
    watcher: OwnProcess<Exclusive<ringreel_ops::monitor::Watcher, ()>>,
    name: String,
}

#[pymethods]
impl Watcher {
    /// One who remembers the last `swaps`. Opens nothing.
    #[new]
    fn new(config: &Bound<'_, Config>, swaps: usize) -> Watcher {
        let config = config.get().inner.clone();
        let name = config.name.clone();
        let watcher = ringreel_ops::monitor::Watcher::new(config, swaps);
        let watcher = Exclusive::new("watcher", "cannot look at the ring again", watcher, |_| ());
        Watcher { watcher: OwnProcess::new(watcher), name }
    }

    /// What is to be seen now, as JSON text: the metrics, with `interval` as Wirehead's `poll_interval`; and the swaps
    /// that are remembered, as Wirehead's logs.
    ///
    /// Raises RingNotFoundError when there is no ring (yet), and what else a look may meet.
    fn look(&self, py: Python<'_>, interval: f64) -> PyResult<(String, String)> {
        logging::forward();
        let watcher = self.watcher.get("watcher")?;
        let look = watcher.call(py, &Listeners::default(), |watcher, _, _| watcher.look())?;
        let logs = serde_json::to_string(&metrics::wirehead::logs(&look.swaps, &self.name));
        let logs = logs.map_err(|error| errors::defect(&format!("the swaps as JSON: {error}")))?;
        Ok((metrics::json(&look, &self.name, interval).to_string(), logs))
    }
}
