//! A generator: takes parts and meta, and returns ids of finished samples.

use crate::array::Input;
use crate::config::Config;
use crate::detached::{Listeners, Stop, detached};
use crate::exclusive::Exclusive;
use crate::forked::OwnProcess;
use crate::ids::{SampleIds, as_text};
use crate::{errors, logging, meta};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringreel::format::DType;
use ringreel::write::generator::Summary;
use ringreel::{Error, NamedPart};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One part from Python: name, element type, size of one element in bytes, shape, and the bytes.
type Given<'py> = (String, String, u32, Vec<u64>, Bound<'py, PyAny>);

enum State {
    Open(Box<ringreel::Generator>),
    Finished(Summary),
    Lost,
}

impl State {
    /// Seals, commits, and leaves the ring. Returns None if an earlier attempt failed and left nothing to finish.
    fn finish(&mut self, promote: bool, stop: Stop<'_>) -> ringreel::Result<Option<Summary>> {
        if let State::Open(generator) = self {
            match generator.flush(stop) {
                Ok(_) | Err(Error::Interrupted { .. }) => {}
                Err(error) => return Err(error), // the generator is unchanged, so finish can be retried
            }
        }
        let summary = match std::mem::replace(self, State::Lost) {
            State::Open(generator) => leave(*generator, promote, stop)?,
            State::Finished(summary) => summary,
            State::Lost => return Ok(None),
        };
        *self = State::Finished(summary.clone());
        Ok(Some(summary))
    }

    fn snapshot(&self) -> Snapshot {
        match self {
            State::Open(generator) => Snapshot { summary: generator.summary(), written: Some(generator.written()) },
            State::Finished(summary) => Snapshot { summary: summary.clone(), written: None },
            State::Lost => Snapshot::default(),
        }
    }
}

/// The state of a generator after its last completed call.
#[derive(Clone, Default)]
struct Snapshot {
    summary: Summary,
    /// Number of samples written; None once the generator is finished.
    written: Option<u64>,
}

/// What a signal handler can do in the middle of a call.
const ADVICE: &str = "can read summary and written, and call finish, but not write or flush";
const FINISHED: &str = "this generator is finished: open another one";
const GIVEN_UP: &str = "a signal handler finished this generator while this call waited for room: samples without room \
                        are not in the ring";

/// A generator of a ring.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Generator {
    state: OwnProcess<Exclusive<State, Snapshot>>,
    /// The `promote` of a `finish` that a signal handler called in the middle of another call.
    finish_requested: Mutex<Option<bool>>,
    names: Vec<String>,
}

impl Generator {
    /// Runs `work` without the GIL. If a signal handler calls `finish` meanwhile, `work` is stopped, and the generator
    /// finishes without waiting.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        stop: Option<Py<PyAny>>,
        work: impl FnOnce(&mut State, Stop<'_>) -> ringreel::Result<T> + Send,
    ) -> PyResult<Result<T, &'static str>> {
        let listeners = Listeners { stop, tell: None };
        self.state.get("generator")?.call(py, &listeners, |state, stop, _| {
            let done = work(state, &|| stop() || self.finish_requested().is_some());
            let Some(promote) = self.finish_requested().take() else { return done.map(Ok) };
            state.finish(promote, &|| true)?;
            match done {
                Err(Error::Interrupted { .. }) => Ok(Err(GIVEN_UP)),
                done => done.map(Ok),
            }
        })
    }

    /// Runs `work` on the open generator, as `call` does.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        stop: Option<Py<PyAny>>,
        work: impl FnOnce(&mut ringreel::Generator, Stop<'_>) -> ringreel::Result<T> + Send,
    ) -> PyResult<T> {
        let done = self.call(py, stop, |state, stop| match state {
            State::Open(generator) => work(generator, stop).map(Ok),
            State::Finished(_) | State::Lost => Ok(Err(FINISHED)),
        })?;
        done.flatten().map_err(errors::plain)
    }

    fn finish_requested(&self) -> MutexGuard<'_, Option<bool>> {
        self.finish_requested.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Generator {
    /// Opens or creates the ring, and joins it.
    #[staticmethod]
    fn open(py: Python<'_>, config: &Bound<'_, Config>) -> PyResult<Generator> {
        logging::forward();
        let config = &config.get().inner;
        // Without the GIL, because the generator's thread may log while the first snapshot waits for that thread.
        let (names, state) = detached(py, &Listeners::default(), |_, _| {
            let generator = ringreel::Generator::open(config)?;
            let names = generator.ring().descriptor.sample.clone();
            Ok((names, Exclusive::new("generator", ADVICE, State::Open(Box::new(generator)), State::snapshot)))
        })?;
        Ok(Generator { state: OwnProcess::new(state), finish_requested: Mutex::default(), names })
    }

    /// The names of the parts, in order: the ring's SAMPLE.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Writes one sample, and returns the ids of the samples that were finished since the previous call.
    #[pyo3(signature = (parts, meta, stop=None))]
    fn write(
        &self,
        py: Python<'_>,
        parts: Vec<Given<'_>>,
        meta: &Bound<'_, PyDict>,
        stop: Option<Py<PyAny>>,
    ) -> PyResult<Vec<String>> {
        let meta = meta::from_python(meta)?;
        let owned = inputs(py, &parts)?;
        let ids = self.with(py, stop, |generator, stop| {
            let named =
                owned.iter().map(|(name, dtype, shape, data)| NamedPart::new(name, dtype.clone(), shape, data.bytes()));
            generator.write(&named.collect::<Vec<_>>(), &meta, stop)
        })?;
        Ok(as_text(&ids))
    }

    /// Writes `count` samples, and returns the ids of the samples that were finished since the previous call. `parts`
    /// hold the samples one after the other, and have the shape of one sample.
    #[pyo3(signature = (parts, count, stop=None))]
    fn write_batch(
        &self,
        py: Python<'_>,
        parts: Vec<Given<'_>>,
        count: usize,
        stop: Option<Py<PyAny>>,
    ) -> PyResult<SampleIds> {
        let given = inputs(py, &parts)?;
        let ids = self.with(py, stop, |generator, stop| {
            let named =
                given.iter().map(|(name, dtype, shape, data)| NamedPart::new(name, dtype.clone(), shape, data.bytes()));
            generator.write_batch(&named.collect::<Vec<_>>(), count, stop)
        })?;
        Ok(SampleIds::new(ids))
    }

    /// Seals and commits what was written, and returns the ids of the samples that were finished since the previous
    /// call.
    #[pyo3(signature = (stop=None))]
    fn flush(&self, py: Python<'_>, stop: Option<Py<PyAny>>) -> PyResult<Vec<String>> {
        let ids = self.with(py, stop, |generator, stop| generator.flush(stop))?;
        Ok(as_text(&ids))
    }

    /// Seals, commits, and leaves the ring; with `promote`, waits until everything is readable. Returns the summary,
    /// also when called again. In the middle of another call of the same thread, requests that this call finish, and
    /// returns the summary so far.
    #[pyo3(signature = (promote, stop=None))]
    fn finish<'py>(&self, py: Python<'py>, promote: bool, stop: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state.get("generator")?;
        if state.is_used_here() {
            *self.finish_requested() = Some(promote);
            return as_dict(py, &state.snapshot().summary);
        }
        let done = self.call(py, stop, |state, stop| state.finish(promote, stop))?.map_err(errors::plain)?;
        let lost = || errors::plain("this generator could not be finished before: open another one");
        as_dict(py, &done.ok_or_else(lost)?)
    }

    /// The number of samples written as of the last completed call, finished or not.
    #[getter]
    fn written(&self) -> PyResult<u64> {
        self.state.get("generator")?.snapshot().written.ok_or_else(|| errors::plain(FINISHED))
    }

    /// Returns the counts as of the last completed call.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.state.get("generator")?.snapshot().summary)
    }

    /// Publishes, in the generator's last report, the error that ended it.
    fn failed(&self, py: Python<'_>, message: &str) -> PyResult<()> {
        self.with(py, None, |generator, _| {
            generator.failed(message);
            Ok(())
        })
    }
}

/// Ends a generator that was flushed. It leaves the ring even if `stop` ends its wait.
fn leave(generator: ringreel::Generator, promote: bool, stop: &dyn Fn() -> bool) -> ringreel::Result<Summary> {
    let before = generator.summary();
    match generator.finish(promote, stop) {
        Err(Error::Interrupted { .. }) => Ok(before),
        other => other,
    }
}

/// A part's name, element type, shape and bytes, borrowed for the time of one call.
type Borrowed<'a> = (&'a str, DType, &'a [u64], Input);

fn inputs<'a>(py: Python<'_>, parts: &'a [Given<'_>]) -> PyResult<Vec<Borrowed<'a>>> {
    let input = |(name, dtype, itemsize, shape, data): &'a Given<'_>| {
        Ok((name.as_str(), dtype_of(py, dtype, *itemsize)?, shape.as_slice(), Input::of(data)?))
    };
    parts.iter().map(input).collect()
}

fn dtype_of(py: Python<'_>, name: &str, itemsize: u32) -> PyResult<DType> {
    if let Some(descr) = name.strip_prefix("numpy:") {
        return Ok(DType::Numpy { descr: descr.to_owned(), itemsize });
    }
    DType::from_name(name).ok_or_else(|| errors::sample(py, &format!("there is no element type {name:?}")))
}

fn as_dict<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("finished", summary.finished)?;
    dict.set_item("delivered", summary.delivered)?;
    dict.set_item("waiting", summary.waiting)?;
    dict.set_item("bytes", summary.bytes)?;
    dict.set_item("waited_seconds", summary.waited_seconds)?;
    dict.set_item("swaps", summary.swaps)?;
    dict.set_item("quarantined", summary.quarantined)?;
    dict.set_item("discarded", summary.discarded)?;
    dict.set_item("waited_room_seconds", summary.waited_room_seconds)?;
    dict.set_item("waited_readers_seconds", summary.waited_readers_seconds)?;
    dict.set_item("made_seconds", summary.made_seconds)?;
    dict.set_item("wrote_seconds", summary.wrote_seconds)?;
    Ok(dict)
}
