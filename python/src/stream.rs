//! One sample after the other, for one worker.

use crate::config::Config;
use crate::detached::{Listeners, detached, time_limit};
use crate::errors;
use crate::forked::OwnProcess;
use crate::reader::{Handed, hand_over, open_reader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringreel::StreamOptions;
use ringreel::reader::resume::State;
use ringreel::reader::split::{Equal, Share};
use ringreel::reader::stream::Item;
use ringreel::ring::runs::Turn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream of samples.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Stream {
    stream: OwnProcess<Mutex<ringreel::Stream>>,
}

/// An item: a sample, the error of one that could not be read, or both, where one was put into its place.
type Given<'py> = (Option<Handed<'py>>, bool, Option<Bound<'py, PyAny>>);

#[pymethods]
impl Stream {
    /// Waits for a ring and its first sample. `options` are those of `ringreel.Ring.stream`, by name.
    #[staticmethod]
    #[pyo3(signature = (config, *, worker, workers, shuffle, seed, equal, fill, epochs, goes_on, repeat, timeout,
                        prefetch_bytes, threads, run, replay, tell=None))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        py: Python<'_>,
        config: &Bound<'_, Config>,
        worker: u64,
        workers: u64,
        shuffle: bool,
        seed: u64,
        equal: Option<&str>,
        fill: f64,
        epochs: Option<u64>,
        goes_on: Option<(u64, String)>,
        repeat: bool,
        timeout: Option<f64>,
        prefetch_bytes: Option<u64>,
        threads: usize,
        run: Option<String>,
        replay: Option<String>,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<Stream> {
        let share = Share::new(worker, workers).map_err(|error| errors::raise(py, error))?;
        let equal = match equal {
            None => Equal::No,
            Some("drop") => Equal::Drop,
            Some("pad") => Equal::Pad,
            Some("mask") => Equal::Mask,
            Some(other) => {
                let message = format!("equal: expected \"drop\", \"pad\", \"mask\" or None, found {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let prefetch_bytes = prefetch_bytes.unwrap_or(config.get().inner.prefetch_bytes);
        let wait = time_limit(timeout)?;
        let reader = Arc::new(open_reader(py, config, timeout, tell)?);
        let options = StreamOptions {
            share,
            shuffle,
            seed,
            equal,
            fill,
            epochs,
            goes_on: goes_on.map(|(rank, token)| Turn { rank, token }),
            repeat,
            timeout: wait,
            prefetch_bytes,
            threads,
            run,
            replay,
        };
        let stream = detached(py, &Listeners::default(), |_, _| ringreel::Stream::new(reader, options))?;
        Ok(Stream { stream: OwnProcess::new(Mutex::new(stream)) })
    }

    /// The next item: (sample or None, whether it is masked, DamagedSampleError or None); None at the end.
    #[pyo3(signature = (tell=None))]
    fn next<'py>(&self, py: Python<'py>, tell: Option<Py<PyAny>>) -> PyResult<Option<Given<'py>>> {
        let stream = self.stream.get("stream")?;
        let listeners = Listeners { stop: None, tell };
        let item = detached(py, &listeners, |stop, tell| lock(stream).next(stop, tell))?;
        let raised = |error| errors::raise(py, error).into_value(py).into_bound(py).into_any();
        let (sample, error) = match item {
            None => return Ok(None),
            Some(Item::Sample(sample)) => (Some(sample), None),
            Some(Item::Damaged(error)) => (None, Some(error)),
            Some(Item::Replaced(sample, error)) => (Some(sample), Some(error)),
        };
        let masked = sample.as_ref().is_some_and(|sample| sample.masked);
        let sample = sample.map(|sample| hand_over(py, *sample)).transpose()?;
        Ok(Some((sample, masked, error.map(raised))))
    }

    /// Epochs that were finished.
    #[getter]
    fn epochs(&self, py: Python<'_>) -> PyResult<u64> {
        let stream = self.stream.get("stream")?;
        Ok(py.detach(|| lock(stream).epochs()))
    }

    /// The run's number of the epoch that is read, or comes next.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        let stream = self.stream.get("stream")?;
        Ok(py.detach(|| lock(stream).epoch()))
    }

    /// The name of its run.
    #[getter]
    fn run(&self, py: Python<'_>) -> PyResult<String> {
        let stream = self.stream.get("stream")?;
        Ok(py.detach(|| lock(stream).run().to_owned()))
    }

    /// Takes its place in its run, so that the state says where it begins.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.stream.get("stream")?;
        detached(py, &Listeners::default(), |_, _| lock(stream).prepare())
    }

    /// Where it is, as JSON text.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let stream = self.stream.get("stream")?;
        let state = py.detach(|| lock(stream).state());
        serde_json::to_string(&state).map_err(|error| errors::defect(&format!("a state as JSON: {error}")))
    }

    /// Goes on from a state, or from the states of all workers, each as JSON text.
    fn load(&self, py: Python<'_>, states: Vec<String>) -> PyResult<()> {
        let stream = self.stream.get("stream")?;
        let parse = |text: &String| serde_json::from_str::<State>(text);
        let states: Vec<State> = states
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(|error| PyValueError::new_err(format!("this is no state of a stream: {error}")))?;
        detached(py, &Listeners::default(), |_, _| {
            let mut stream = lock(stream);
            match &states[..] {
                [state] => stream.load(state),
                states => stream.load_all(states),
            }
        })
    }
}

fn lock(stream: &Mutex<ringreel::Stream>) -> MutexGuard<'_, ringreel::Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}
