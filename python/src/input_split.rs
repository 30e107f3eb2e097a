//! One share of many plain RecordIO files, for `ringreel.InputSplit`.
//!
//! Records cross into Python in chunks. With read-ahead, a thread of the crate fills the next chunks meanwhile.

use crate::errors;
use crate::forked::OwnProcess;
use crate::recordio::refused;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use ringreel::Error;
use ringreel::read::shard::Share;
use ringreel_recordio::Prefetch;
use ringreel_recordio::input_split::{self, Chunk, OnDamage, Position, SplitBy, SplitItem, SplitOptions};
use ringreel_recordio::prefetch::Prefetched;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Size in bytes of a chunk.
const CHUNK: usize = 1 << 20;

enum Records {
    Here(Box<input_split::InputSplit>),
    Ahead(Prefetch<Chunk, Error>),
}

enum Filled {
    Own(Chunk),
    Lent(Prefetched<Chunk>),
}

impl Records {
    fn next(&mut self) -> ringreel::Result<Option<Filled>> {
        match self {
            Records::Here(split) => {
                let mut chunk = Chunk::default();
                Ok(split.next_chunk(&mut chunk, CHUNK)?.then_some(Filled::Own(chunk)))
            }
            Records::Ahead(chunks) => Ok(chunks.next().transpose()?.map(Filled::Lent)),
        }
    }
}

/// The records of one share of many files. It belongs to the process that opened it.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct InputSplit {
    records: OwnProcess<Mutex<Records>>,
    paths: Vec<String>,
    count: Option<u64>,
}

fn raised(py: Python<'_>, error: Error) -> PyErr {
    match error {
        Error::Format { path, source } => refused(py, &path, source),
        error => errors::raise(py, error),
    }
}

#[pymethods]
impl InputSplit {
    /// Opens share `rank` of `world` of the files `paths`, at the byte `at[1]` of the file `at[0]`, or at its
    /// beginning. Reads `depth` chunks ahead in a thread; 0 starts none.
    #[staticmethod]
    #[pyo3(signature = (paths, rank, world, *, by_records, skip_damage, use_index, at=None, depth=0))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        rank: u64,
        world: u64,
        by_records: bool,
        skip_damage: bool,
        use_index: bool,
        at: Option<(usize, u64)>,
        depth: usize,
    ) -> PyResult<InputSplit> {
        let by = if by_records { SplitBy::Records } else { SplitBy::Bytes };
        let on_damage = if skip_damage { OnDamage::Skip } else { OnDamage::Fail };
        let options = SplitOptions { by, on_damage, use_index };
        let opened = py.detach(|| {
            let mut split = input_split::InputSplit::open(&paths, Share::new(rank, world)?, options)?;
            if let Some((file, at)) = at {
                split.seek(Position { file, at })?;
            }
            let paths = split.paths().map(|path| path.to_string_lossy().into_owned()).collect();
            let count = split.records();
            let records = match depth {
                0 => Records::Here(Box::new(split)),
                depth => Records::Ahead(split.prefetch(depth, CHUNK)?),
            };
            Ok(InputSplit { records: OwnProcess::new(Mutex::new(records)), paths, count })
        });
        opened.map_err(|error| raised(py, error))
    }

    /// The files of all shares, in order.
    #[getter]
    fn paths(&self) -> Vec<String> {
        self.paths.clone()
    }

    /// The number of records of this share if it was made by records; otherwise None.
    #[getter]
    fn count(&self) -> Option<u64> {
        self.count
    }

    /// Returns the next records, each as the number of its file, the offsets of its first byte and of the byte after
    /// it, its payload, and None; or for a damaged region None, and the reason. None at the end.
    fn next_chunk<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let records = self.records.get("InputSplit")?;
        let filled = py.detach(|| records.lock().unwrap_or_else(PoisonError::into_inner).next());
        let chunk = match filled.map_err(|error| raised(py, error))? {
            None => return Ok(None),
            Some(filled) => filled,
        };
        let chunk = match &chunk {
            Filled::Own(chunk) => chunk,
            Filled::Lent(chunk) => chunk,
        };
        let list = PyList::empty(py);
        for (item, payload) in chunk.items() {
            match item {
                SplitItem::Record(place) => {
                    let payload = PyBytes::new(py, payload);
                    list.append((place.file, place.at, place.end, payload, None::<String>))?;
                }
                SplitItem::Skipped { file, region } => {
                    let why = region.why.to_string();
                    list.append((*file, region.begin, region.end, None::<Bound<'py, PyBytes>>, why))?;
                }
            }
        }
        Ok(Some(list))
    }
}
