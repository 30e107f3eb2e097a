//! Samples by generation and position, and the ring's status.

use crate::array::Part;
use crate::buffers::{lent, with_room};
use crate::config::Config;
use crate::detached::{Listeners, detached, time_limit};
use crate::forked::OwnProcess;
use crate::ids::SampleIds;
use crate::{errors, logging, meta};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringreel::SampleId;
use ringreel::escape::escape;
use ringreel::fs::Posix;
use ringreel::manifest::Manifest;
use ringreel::read::{ReadPart, ReadSample};
use std::ops::Range;
use std::sync::Arc;

/// A sample for Python: parts by name, meta, id, generation, position.
pub type Handed<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, String, u64, u64);

/// Converts one sample. `own` says whether its memory is private and writable (see `array.rs`).
///
/// # Errors
/// Returns an error if memory runs out.
pub fn hand_over(py: Python<'_>, sample: ReadSample, own: bool) -> PyResult<Handed<'_>> {
    let parts = PyDict::new(py);
    for ReadPart { name, part } in sample.parts {
        let dtype = part.dtype.to_string();
        let handed = match part.data() {
            Ok(data) => {
                let place = part.file_offset.map(|offset| (sample.file.clone(), offset));
                Part::over(dtype, part.shape.clone(), data.clone(), own).with_place(place)
            }
            Err(why) => Part::unreadable(dtype, part.shape.clone(), escape(&why.to_string()).into_owned()),
        };
        parts.set_item(name, Bound::new(py, handed)?)?;
    }
    let meta = meta::to_python(py, &sample.meta)?;
    Ok((parts, meta, sample.id.to_string(), sample.generation, sample.position))
}

/// The samples of a generation that are served: those for training, or the held-out ones.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Generation {
    manifest: Arc<Manifest>,
    positions: Range<u64>,
    /// The positions that were chosen among these; `None`: all.
    chosen: Option<Vec<u64>>,
}

impl Generation {
    /// Returns the samples of a generation that are served for training.
    pub fn for_training(reader: &ringreel::Reader, manifest: Arc<Manifest>) -> Generation {
        Generation { positions: reader.ring().training(&manifest), manifest, chosen: None }
    }

    fn count(&self) -> u64 {
        self.chosen.as_ref().map_or(self.positions.end - self.positions.start, |chosen| chosen.len() as u64)
    }

    /// Returns the position of the sample at `index` among those that are served.
    ///
    /// # Errors
    /// There is no such sample.
    fn position(&self, index: u64) -> Result<u64, ringreel::Error> {
        let found = match &self.chosen {
            Some(chosen) => chosen.get(index as usize).copied(),
            None => self.positions.start.checked_add(index).filter(|position| *position < self.positions.end),
        };
        let (generation, samples) = (self.manifest.summary.generation, self.count());
        found.ok_or(ringreel::Error::OutOfRange { position: index, generation, samples })
    }
}

#[pymethods]
impl Generation {
    /// The generation's number.
    #[getter]
    fn number(&self) -> u64 {
        self.manifest.summary.generation
    }

    /// Returns the number of samples that are served.
    fn __len__(&self) -> usize {
        self.count() as usize
    }

    /// Returns the ids of the samples that are served, in order. Opens no file.
    fn sample_ids(&self) -> Vec<String> {
        let positions = (0..self.count()).filter_map(|index| self.position(index).ok());
        let located = positions.filter_map(|position| self.manifest.locate(position));
        located.map(|(entry, ordinal)| SampleId { segment: entry.id, ordinal }.to_string()).collect()
    }

    /// Returns the generation with only the samples at `indices` among those that are served.
    fn only(&self, py: Python<'_>, indices: Vec<u64>) -> PyResult<Generation> {
        let chosen: Result<Vec<u64>, _> = indices.into_iter().map(|index| self.position(index)).collect();
        let chosen = chosen.map_err(|beyond| errors::raise(py, beyond))?;
        Ok(Generation { manifest: self.manifest.clone(), positions: self.positions.clone(), chosen: Some(chosen) })
    }
}

/// A ring that is open for reading.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct Reader {
    reader: OwnProcess<Arc<ringreel::Reader>>,
}

impl Reader {
    /// Wraps a reader of this process.
    pub fn of(reader: Arc<ringreel::Reader>) -> Reader {
        Reader { reader: OwnProcess::new(reader) }
    }
}

#[pymethods]
impl Reader {
    /// Opens a ring. Waits up to `timeout` seconds for it and its first sample that is not held out, and calls `tell`
    /// with a description of the wait. `own` says whether each sample gets private, writable memory.
    #[staticmethod]
    #[pyo3(signature = (config, timeout=None, tell=None, own=false))]
    fn open(
        py: Python<'_>,
        config: &Bound<'_, Config>,
        timeout: Option<f64>,
        tell: Option<Py<PyAny>>,
        own: bool,
    ) -> PyResult<Reader> {
        logging::forward();
        let (config, timeout) = (&config.get().inner, time_limit(timeout)?);
        let listeners = Listeners { stop: None, tell };
        let reader = detached(py, &listeners, |stop, tell| ringreel::Reader::wait_for(config, timeout, stop, tell))?;
        Ok(Reader::of(Arc::new(if own { reader.with_private_maps() } else { reader })))
    }

    /// Opens a ring. Waits, as `open` does, for all samples that it holds out. Returns the reader, and these samples by
    /// generation.
    #[staticmethod]
    #[pyo3(signature = (config, timeout=None, tell=None))]
    fn open_held_out(
        py: Python<'_>,
        config: &Bound<'_, Config>,
        timeout: Option<f64>,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<(Reader, Vec<Generation>)> {
        logging::forward();
        let (config, timeout) = (&config.get().inner, time_limit(timeout)?);
        let listeners = Listeners { stop: None, tell };
        let (reader, held_out) =
            detached(py, &listeners, |stop, tell| ringreel::Reader::wait_for_held_out(config, timeout, stop, tell))?;
        let held_out =
            held_out.into_iter().map(|(manifest, positions)| Generation { manifest, positions, chosen: None });
        Ok((Reader::of(Arc::new(reader)), held_out.collect()))
    }

    /// The ring's id.
    #[getter]
    fn ring_id(&self) -> PyResult<String> {
        Ok(self.reader.get("dataset")?.ring().descriptor.ring_id.clone())
    }

    /// The names of a sample's parts.
    #[getter]
    fn parts(&self) -> PyResult<Vec<String>> {
        Ok(self.reader.get("dataset")?.ring().descriptor.sample.clone())
    }

    /// Returns the newest generation that has a sample for training.
    fn newest(&self, py: Python<'_>) -> PyResult<Generation> {
        let reader = self.reader.get("dataset")?;
        let manifest = detached(py, &Listeners::default(), |_, _| reader.newest())?;
        Ok(Generation::for_training(reader, manifest))
    }

    /// Returns generation `number`, or None if its manifest does not exist or lists no sample for training.
    fn generation(&self, py: Python<'_>, number: u64) -> PyResult<Option<Generation>> {
        let reader = self.reader.get("dataset")?;
        let found = detached(py, &Listeners::default(), |_, _| reader.manifest(number))?;
        let found = found.map(|manifest| Generation::for_training(reader, manifest));
        Ok(found.filter(|generation| generation.count() > 0))
    }

    /// The generations that KEEP covers and whose directories or manifests were missing.
    #[getter]
    fn missing(&self) -> PyResult<Vec<u64>> {
        Ok(self.reader.get("dataset")?.missing())
    }

    /// Returns the sample at `index` among the served samples of `generation`.
    fn sample<'py>(&self, py: Python<'py>, generation: &Bound<'py, Generation>, index: u64) -> PyResult<Handed<'py>> {
        let reader = self.reader.get("dataset")?;
        let served = generation.get();
        let position = served.position(index).map_err(|beyond| errors::raise(py, beyond))?;
        let sample = detached(py, &Listeners::default(), |_, _| reader.sample(&served.manifest, position))?;
        hand_over(py, sample, !reader.lends_maps())
    }

    /// Returns the samples at `indices` among the served samples of `generation`, stacked part by part.
    fn batch(&self, py: Python<'_>, generation: &Bound<'_, Generation>, indices: Indices) -> PyResult<Stacked> {
        let reader = self.reader.get("dataset")?;
        let served = generation.get();
        let (manifest, start) = (&served.manifest, served.positions.start);
        let beyond = match &indices {
            Indices::Range((begin, end)) if begin < end => Some(end - 1),
            Indices::Range(_) => None,
            Indices::Listed(indices) => indices.iter().max().copied(),
        };
        if let Some(Err(beyond)) = beyond.map(|index| served.position(index)) {
            return Err(errors::raise(py, beyond));
        }
        let batch = detached(py, &Listeners::default(), |_, _| match (indices, &served.chosen) {
            (Indices::Range((begin, end)), None) => {
                reader.batch_in(manifest, start + begin..start + end, &mut with_room)
            }
            (Indices::Listed(indices), None) => {
                reader.batch_in(manifest, indices.iter().map(|n| start + n), &mut with_room)
            }
            (Indices::Range((begin, end)), Some(chosen)) => {
                reader.batch_in(manifest, (begin..end).map(|n| chosen[n as usize]), &mut with_room)
            }
            (Indices::Listed(indices), Some(chosen)) => {
                reader.batch_in(manifest, indices.iter().map(|n| chosen[*n as usize]), &mut with_room)
            }
        })?;
        let count = batch.ids.len() as u64;
        let parts = batch.parts.into_iter().map(|part| {
            let shape = match part.shape {
                Some(one) => std::iter::once(count).chain(one).collect(),
                None => vec![part.data.len() as u64],
            };
            let ends = part.ends.into_iter().map(|end| end as u64).collect();
            (part.name, Part::over(part.dtype.to_string(), shape, lent(part.data), true), ends)
        });
        Ok((batch.generation, SampleIds::new(batch.ids), parts.collect()))
    }
}

/// Positions among the served samples of a generation.
#[derive(FromPyObject)]
enum Indices {
    /// Start and end; the end is exclusive.
    Range((u64, u64)),
    Listed(Vec<u64>),
}

/// Samples, part by part: their generation, their ids, and per part its name, its bytes in all samples one after the
/// other, and, for bytes of different lengths, the end of each sample's bytes.
type Stacked = (u64, SampleIds, Vec<(String, Part, Vec<u64>)>);

/// Returns the state of the ring as JSON text. Reads the ring only.
///
/// # Errors
/// Returns an error if the ring does not exist or does not match the configuration, and errors of the filesystem.
#[pyfunction]
pub fn status(py: Python<'_>, config: &Bound<'_, Config>) -> PyResult<String> {
    logging::forward();
    let config = &config.get().inner;
    let status = detached(py, &Listeners::default(), |_, _| {
        let ring = ringreel::Ring::find(Arc::new(Posix), config)?;
        ringreel_ops::status::status(&ring)
    })?;
    serde_json::to_string(&status).map_err(|error| errors::defect(&format!("the status as JSON: {error}")))
}
