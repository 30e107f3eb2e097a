//! Samples by generation and position, and the ring's status.

use crate::array::Part;
use crate::config::Config;
use crate::detached::{Listeners, detached, time_limit};
use crate::forked::OwnProcess;
use crate::{errors, logging, meta};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringreel::fs::Posix;
use ringreel::reader::{ReadPart, ReadSample};
use ringreel::ring::manifest::Manifest;
use std::sync::Arc;

/// A sample as the package builds its own from: parts by name, meta, id, generation, position.
pub type Handed<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, String, u64, u64);

/// One sample for Python. Its parts lie in memory of their own (see `array.rs`): the reader has private maps.
///
/// # Errors
/// When memory runs out.
pub fn hand_over(py: Python<'_>, sample: ReadSample) -> PyResult<Handed<'_>> {
    let parts = PyDict::new(py);
    for ReadPart { name, part } in sample.parts {
        let dtype = part.dtype.to_string();
        let handed = match part.data() {
            Ok(data) => Part::over(dtype, part.shape.clone(), data.clone()),
            Err(why) => Part::unreadable(dtype, part.shape.clone(), why.to_string()),
        };
        parts.set_item(name, Bound::new(py, handed)?)?;
    }
    let meta = meta::to_python(py, &sample.meta)?;
    Ok((parts, meta, sample.id.to_string(), sample.generation, sample.position))
}

/// Waits for a ring and its first sample, for at most `timeout` seconds.
///
/// # Errors
/// As [`ringreel::Reader::wait_for`].
pub fn open_reader(
    py: Python<'_>,
    config: &Bound<'_, Config>,
    timeout: Option<f64>,
    tell: Option<Py<PyAny>>,
) -> PyResult<ringreel::Reader> {
    logging::forward();
    let (config, timeout) = (&config.get().inner, time_limit(timeout)?);
    let listeners = Listeners { stop: None, tell };
    detached(py, &listeners, |stop, tell| ringreel::Reader::wait_for(config, timeout, stop, tell))
        .map(ringreel::Reader::with_private_maps)
}

/// A generation that was listed by its manifest.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Generation {
    manifest: Arc<Manifest>,
}

#[pymethods]
impl Generation {
    /// Its number.
    #[getter]
    fn number(&self) -> u64 {
        self.manifest.summary.generation
    }

    /// How many samples it holds.
    fn __len__(&self) -> usize {
        self.manifest.summary.samples as usize
    }
}

/// A ring that is open for reading.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Reader {
    reader: OwnProcess<ringreel::Reader>,
}

#[pymethods]
impl Reader {
    /// Waits for a ring and its first sample, for at most `timeout` seconds. `tell` is called with what it waits for.
    #[staticmethod]
    #[pyo3(signature = (config, timeout=None, tell=None))]
    fn open(
        py: Python<'_>,
        config: &Bound<'_, Config>,
        timeout: Option<f64>,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<Reader> {
        Ok(Reader { reader: OwnProcess::new(open_reader(py, config, timeout, tell)?) })
    }

    /// The newest generation that holds a sample.
    fn newest(&self, py: Python<'_>) -> PyResult<Generation> {
        let reader = self.reader.get("dataset")?;
        let manifest = detached(py, &Listeners::default(), |_, _| reader.newest())?;
        Ok(Generation { manifest })
    }

    /// Generation `number`; None when its manifest is not there, or lists no sample.
    fn generation(&self, py: Python<'_>, number: u64) -> PyResult<Option<Generation>> {
        let reader = self.reader.get("dataset")?;
        let found = detached(py, &Listeners::default(), |_, _| reader.ring().manifests.get(number))?;
        Ok(found.filter(|manifest| manifest.summary.samples > 0).map(|manifest| Generation { manifest }))
    }

    /// The sample at `position` of `generation`.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        generation: &Bound<'py, Generation>,
        position: u64,
    ) -> PyResult<Handed<'py>> {
        let reader = self.reader.get("dataset")?;
        let manifest = &generation.get().manifest;
        let sample = detached(py, &Listeners::default(), |_, _| reader.sample(manifest, position))?;
        hand_over(py, sample)
    }
}

/// What the ring looks like now, as JSON text. Takes no part in it.
///
/// # Errors
/// No ring; another ring; what the filesystem says.
#[pyfunction]
pub fn status(py: Python<'_>, config: &Bound<'_, Config>) -> PyResult<String> {
    logging::forward();
    let config = &config.get().inner;
    let status = detached(py, &Listeners::default(), |_, _| {
        let ring = ringreel::Ring::find(Arc::new(Posix), config)?;
        ringreel::status::status(&ring)
    })?;
    serde_json::to_string(&status).map_err(|error| errors::defect(&format!("the status as JSON: {error}")))
}
