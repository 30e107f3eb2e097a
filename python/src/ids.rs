//! Ids of many samples: made into text when they are asked for.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use ringreel::SampleId;

/// A sequence of ids.
#[pyclass(frozen, sequence, module = "ringreel._ringreel")]
pub struct SampleIds {
    ids: Vec<SampleId>,
}

impl SampleIds {
    /// These.
    pub fn new(ids: Vec<SampleId>) -> SampleIds {
        SampleIds { ids }
    }
}

#[pymethods]
impl SampleIds {
    fn __len__(&self) -> usize {
        self.ids.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<String> {
        let from_end = || self.ids.len().checked_sub(index.unsigned_abs());
        let place = if index < 0 { from_end() } else { usize::try_from(index).ok() };
        let found = place.and_then(|place| self.ids.get(place));
        found.map(SampleId::to_string).ok_or_else(|| PyIndexError::new_err(format!("there is no id {index}")))
    }
}
