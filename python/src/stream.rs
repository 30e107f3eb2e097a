//! One sample after the other, for one rank.

use crate::config::Config;
use crate::detached::{Listeners, detached, time_limit};
use crate::errors;
use crate::forked::OwnProcess;
use crate::reader::{hand_over, open_reader};
use pyo3::prelude::*;
use ringreel::StreamOptions;
use ringreel::reader::split::Share;
use ringreel::reader::stream::Item;
use std::sync::{Arc, Mutex, PoisonError};

/// A stream of samples.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Stream {
    stream: OwnProcess<Mutex<ringreel::Stream>>,
}

#[pymethods]
impl Stream {
    /// Waits for a ring and its first sample, and begins with the newest generation.
    #[staticmethod]
    #[pyo3(signature = (config, rank, world_size, epochs=None, repeat=true, timeout=None, tell=None))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        py: Python<'_>,
        config: &Bound<'_, Config>,
        rank: u64,
        world_size: u64,
        epochs: Option<u64>,
        repeat: bool,
        timeout: Option<f64>,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<Stream> {
        let share = Share::new(rank, world_size).map_err(|error| errors::raise(py, error))?;
        let options = StreamOptions { share, epochs, repeat, timeout: time_limit(timeout)? };
        let reader = Arc::new(open_reader(py, config, timeout, tell)?);
        let stream = ringreel::Stream::new(reader, options);
        Ok(Stream { stream: OwnProcess::new(Mutex::new(stream)) })
    }

    /// The next item: a sample; a DamagedSampleError, not raised, in the place of one that was skipped; None at the end.
    #[pyo3(signature = (tell=None))]
    fn next<'py>(&self, py: Python<'py>, tell: Option<Py<PyAny>>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let stream = self.stream.get("stream")?;
        let listeners = Listeners { stop: None, tell };
        let item = detached(py, &listeners, |stop, tell| {
            stream.lock().unwrap_or_else(PoisonError::into_inner).next(stop, tell)
        })?;
        Ok(match item {
            None => None,
            Some(Item::Sample(sample)) => Some(hand_over(py, *sample)?.into_pyobject(py)?.into_any()),
            Some(Item::Damaged(error)) => Some(errors::raise(py, error).into_value(py).into_bound(py).into_any()),
        })
    }

    /// Passes over generations that were finished.
    #[getter]
    fn epochs(&self, py: Python<'_>) -> PyResult<u64> {
        let stream = self.stream.get("stream")?;
        Ok(py.detach(|| stream.lock().unwrap_or_else(PoisonError::into_inner).epochs()))
    }
}
