//! A stream: one sample after the other, for one worker.

use crate::config::Config;
use crate::detached::{Listeners, Stop, Tell, time_limit};
use crate::exclusive::Exclusive;
use crate::forked::OwnProcess;
use crate::interpreter::with_python;
use crate::reader::{Generation, Handed, Reader, hand_over};
use crate::{errors, logging};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringreel::read::checkpoint::State;
use ringreel::read::leave_out::LeaveOut;
use ringreel::read::shard::{Equal, Share};
use ringreel::read::stream::{Item, Position};
use ringreel::run_log::Turn;
use ringreel::{Error, StreamOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What a signal handler can do in the middle of a call.
const ADVICE: &str = "can call state_dict and close, and read epochs and run, but not request the next sample";

/// A stream that opens its ring when it is first used.
struct Lazy {
    config: ringreel::Config,
    options: StreamOptions,
    /// Whether each sample gets private, writable memory.
    own: bool,
    /// Whether the stream ends without leaving its run.
    suspends: Arc<AtomicBool>,
    stream: Option<ringreel::Stream>,
}

impl Drop for Lazy {
    fn drop(&mut self) {
        if self.suspends.load(Ordering::Relaxed)
            && let Some(stream) = self.stream.take()
        {
            stream.suspend();
        }
    }
}

impl Lazy {
    /// Returns the stream. The first call opens the ring, and waits for its first sample.
    fn open(&mut self, stop: Stop<'_>, tell: Tell<'_>) -> ringreel::Result<&mut ringreel::Stream> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let opened = Instant::now();
                let reader = ringreel::Reader::wait_for(&self.config, self.options.timeout, stop, tell)?;
                let reader = if self.own { reader.with_private_maps() } else { reader };
                let stream = ringreel::Stream::new(Arc::new(reader), self.options.clone())?;
                stream.add_wait(opened.elapsed());
                stream
            }
        };
        Ok(self.stream.insert(stream))
    }
}

/// A stream of samples.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Stream {
    /// The stream. Its snapshot is None until the ring is open.
    stream: OwnProcess<Exclusive<Lazy, Option<Position>>>,
    closed: AtomicBool,
    /// What the function that chooses the samples to leave out raised.
    raised: Raised,
    suspends: Arc<AtomicBool>,
}

/// An exception that a call out of Rust raised.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// An item: a sample, the error of a sample that could not be read, or both if another sample replaced it; whether the
/// sample is a padding sample; and the number, in the run, of its epoch.
type Given<'py> = (Option<Handed<'py>>, bool, u64, Option<Bound<'py, PyAny>>);

/// Epochs before the current one; steps left in that one, and steps of another epoch of its generation.
type StepsLeft = (u64, Option<(u64, u64)>);

impl Stream {
    /// Runs `work` on the open stream without the GIL. Returns None if the stream is closed during the call.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        tell: Option<Py<PyAny>>,
        work: impl FnOnce(&mut ringreel::Stream, Stop<'_>, Tell<'_>) -> ringreel::Result<Option<T>> + Send,
    ) -> PyResult<Option<T>> {
        let listeners = Listeners { stop: None, tell };
        let done = self.stream.get("stream")?.call(py, &listeners, |lazy, stop, tell| {
            let stop = || stop() || self.closed.load(Ordering::Relaxed);
            match lazy.open(&stop, tell).and_then(|stream| work(stream, &stop, tell)) {
                Err(Error::Interrupted { .. }) if self.closed.load(Ordering::Relaxed) => Ok(None),
                done => done,
            }
        });
        match self.raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) if done.is_err() => Err(error),
            _ => done,
        }
    }

    fn position(&self) -> PyResult<Option<Position>> {
        Ok(self.stream.get("stream")?.snapshot())
    }
}

#[pymethods]
impl Stream {
    /// Returns a stream that opens the ring when it is first used. The options are those of `ringreel.Ring.stream`.
    #[new]
    #[pyo3(signature = (config, *, worker, workers, shuffle, seed, equal, pad_value, pad_values, epochs, goes_on, repeat,
                        timeout, prefetch_bytes, threads, run, replay, own=false, leave_out=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        config: &Bound<'_, Config>,
        worker: u64,
        workers: u64,
        shuffle: bool,
        seed: u64,
        equal: Option<&str>,
        pad_value: f64,
        pad_values: BTreeMap<String, f64>,
        epochs: Option<u64>,
        goes_on: Option<(u64, String)>,
        repeat: bool,
        timeout: Option<f64>,
        prefetch_bytes: Option<u64>,
        threads: usize,
        run: Option<String>,
        replay: Option<String>,
        own: bool,
        leave_out: Option<Py<PyAny>>,
    ) -> PyResult<Stream> {
        logging::forward();
        let config = config.get().inner.clone();
        let raised = Raised::default();
        let leave_out = leave_out.map_or_else(LeaveOut::default, |choose| chosen_by(choose, raised.clone()));
        let options = StreamOptions {
            share: Share::new(worker, workers).map_err(|error| errors::raise(py, error))?,
            shuffle,
            seed,
            equal: equal_of(equal)?,
            pad_value,
            pad_values,
            epochs,
            goes_on: goes_on.map(|(rank, token)| Turn { rank, token }),
            repeat,
            timeout: time_limit(timeout)?,
            prefetch_bytes: prefetch_bytes.unwrap_or(config.prefetch_bytes),
            threads,
            run,
            replay,
            leave_out,
        };
        let position = |lazy: &Lazy| lazy.stream.as_ref().map(ringreel::Stream::position);
        let suspends = Arc::new(AtomicBool::new(false));
        let lazy = Lazy { config, options, own, suspends: suspends.clone(), stream: None };
        let stream = Exclusive::new("stream", ADVICE, lazy, position);
        Ok(Stream { stream: OwnProcess::new(stream), closed: AtomicBool::new(false), suspends, raised })
    }

    /// Returns the next item: (sample or None, whether it is a padding sample, the number of its epoch in the run,
    /// DamagedSampleError or None). Returns None at the end, and once the stream is closed.
    #[pyo3(signature = (tell=None))]
    fn next<'py>(&self, py: Python<'py>, tell: Option<Py<PyAny>>) -> PyResult<Option<Given<'py>>> {
        let next = self.with(py, tell, |stream, stop, tell| {
            let own = !stream.reader().lends_maps();
            Ok(stream.next(stop, tell)?.map(|item| (item, own, stream.epoch())))
        })?;
        let Some((item, own, epoch)) = next else { return Ok(None) };
        let raised = |error| errors::raise(py, error).into_value(py).into_bound(py).into_any();
        let (sample, error) = match item {
            Item::Sample(sample) => (Some(sample), None),
            Item::Damaged(error) => (None, Some(error)),
            Item::Replaced(sample, error) => (Some(sample), Some(error)),
        };
        let is_padding = sample.as_ref().is_some_and(|sample| sample.is_padding);
        let sample = sample.map(|sample| hand_over(py, *sample, own)).transpose()?;
        Ok(Some((sample, is_padding, epoch, error.map(raised))))
    }

    /// Closes the stream. Ends a call that waits, in this thread or another one.
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Closes the stream like `close`, and makes it stay in its run when it is dropped.
    fn suspend(&self) {
        self.suspends.store(true, Ordering::Relaxed);
        self.close();
    }

    /// The number of epochs that were completed when the last call returned.
    #[getter]
    fn epochs(&self) -> PyResult<u64> {
        Ok(self.position()?.map_or(0, |position| position.epochs()))
    }

    /// Returns the number of epochs before the current one, and of that one the steps that are left, and the steps of
    /// another epoch of its generation (None before it is chosen). Returns None until the ring is open.
    fn steps_left(&self) -> PyResult<Option<StepsLeft>> {
        Ok(self.position()?.map(|position| position.steps_left()))
    }

    /// The generations that KEEP covers and whose directories were missing.
    #[getter]
    fn missing(&self) -> PyResult<Vec<u64>> {
        Ok(self.position()?.map_or_else(Vec::new, |position| position.missing()))
    }

    /// The name of the stream's run, or None until the ring is open.
    #[getter]
    fn run(&self) -> PyResult<Option<String>> {
        Ok(self.position()?.map(|position| position.run().to_owned()))
    }

    /// Returns the times and counts up to now, or None until the ring is open.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(position) = self.position()? else { return Ok(None) };
        let stats = position.stats();
        let dict = PyDict::new(py);
        dict.set_item("starved", stats.starved())?;
        dict.set_item("waited_seconds", stats.waited_seconds)?;
        dict.set_item("read_seconds", stats.read_seconds)?;
        dict.set_item("step_seconds", stats.step_seconds)?;
        dict.set_item("distinct", stats.distinct)?;
        dict.set_item("offered", stats.offered)?;
        dict.set_item("share_read", stats.share_read)?;
        dict.set_item("reads_per_sample", stats.reads_per_sample)?;
        dict.set_item("age_seconds", stats.age_seconds)?;
        Ok(Some(dict))
    }

    /// Joins the run, so that the state says where the stream starts. Does nothing while another call is running.
    #[pyo3(signature = (tell=None))]
    fn prepare(&self, py: Python<'_>, tell: Option<Py<PyAny>>) -> PyResult<()> {
        if self.stream.get("stream")?.is_used() {
            return Ok(());
        }
        self.with(py, tell, |stream, _, _| stream.prepare().map(Some)).map(drop)
    }

    /// Returns the position when the last call returned, as JSON text, or None until the ring is open.
    fn state(&self) -> PyResult<Option<String>> {
        let Some(position) = self.position()? else { return Ok(None) };
        let state = serde_json::to_string(&position.state());
        state.map(Some).map_err(|error| errors::defect(&format!("a state as JSON: {error}")))
    }

    /// Continues from a state, or from the states of all workers, each as JSON text.
    #[pyo3(signature = (states, tell=None))]
    fn load(&self, py: Python<'_>, states: Vec<String>, tell: Option<Py<PyAny>>) -> PyResult<()> {
        let parse = |text: &String| serde_json::from_str::<State>(text);
        let states: Vec<State> = states
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(|error| PyValueError::new_err(format!("state: expected the state of a stream: {error}")))?;
        let loaded = self.with(py, tell, |stream, _, _| match &states[..] {
            [state] => stream.load(state).map(Some),
            states => stream.load_all(states).map(Some),
        });
        loaded.map(drop)
    }
}

/// Returns the choice of `choose`, which is called with a reader and a generation and returns the indices, among the
/// samples for training, of those that are left out. An exception goes to `raised`.
fn chosen_by(choose: Py<PyAny>, raised: Raised) -> LeaveOut {
    LeaveOut::new(move |reader, manifest| {
        let start = reader.ring().training(manifest).start;
        let generation = Generation::for_training(reader, manifest.clone());
        let call = |py: Python<'_>| {
            let chosen = choose.call1(py, (Reader::of(reader.clone()), generation))?;
            chosen.extract::<Vec<u64>>(py)
        };
        let failed = |why: &str| Error::Sample(format!("cannot choose the samples that hold_out leaves out: {why}"));
        match with_python(call) {
            Some(Ok(chosen)) => Ok(chosen.into_iter().map(|index| start.saturating_add(index)).collect()),
            Some(Err(error)) => {
                let is = |kind: fn(&PyErr, Python<'_>) -> bool| with_python(|py| kind(&error, py)) == Some(true);
                if is(is_reclaimed) {
                    return Err(Error::Reclaimed { generation: manifest.summary.generation });
                }
                let why = error.to_string();
                let stops = !is(|error, py| error.is_instance_of::<PyException>(py));
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(if stops { Error::Interrupted { what: why } } else { failed(&why) })
            }
            None => Err(failed("the interpreter ends")),
        }
    })
}

/// Whether the generation was reclaimed, so that the stream reads another one.
fn is_reclaimed(error: &PyErr, py: Python<'_>) -> bool {
    error.get_type(py).name().is_ok_and(|name| name == "ReclaimedError")
}

fn equal_of(name: Option<&str>) -> PyResult<Equal> {
    Ok(match name {
        None => Equal::No,
        Some("drop") => Equal::Drop,
        Some("wrap") => Equal::Wrap,
        Some("pad") => Equal::Pad,
        Some(other) => {
            let message = format!("equal: expected \"drop\", \"wrap\", \"pad\" or None, found {other:?}");
            return Err(PyValueError::new_err(message));
        }
    })
}
