//! Ids of many samples, converted to text on access.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString};
use ringreel::SampleId;

/// Returns the text of each id.
pub fn as_text(ids: &[SampleId]) -> Vec<String> {
    ids.iter().map(SampleId::to_string).collect()
}

/// A sequence of ids.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct SampleIds {
    ids: Vec<SampleId>,
}

impl SampleIds {
    /// Wraps `ids`.
    pub fn new(ids: Vec<SampleId>) -> SampleIds {
        SampleIds { ids }
    }
}

#[pymethods]
impl SampleIds {
    fn __len__(&self) -> usize {
        self.ids.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: Index<'py>) -> PyResult<Bound<'py, PyAny>> {
        let at = match index {
            Index::At(at) => at,
            Index::Some(slice) => {
                let chosen = slice.indices(self.ids.len() as isize)?;
                let places = (0..chosen.slicelength).map(|n| chosen.start + n as isize * chosen.step);
                let found = places.filter_map(|place| self.ids.get(place as usize)).map(SampleId::to_string);
                return Ok(PyList::new(py, found.collect::<Vec<_>>())?.into_any());
            }
        };
        let from_end = || self.ids.len().checked_sub(at.unsigned_abs());
        let place = if at < 0 { from_end() } else { usize::try_from(at).ok() };
        let found = place.and_then(|place| self.ids.get(place));
        let found = found.ok_or_else(|| PyIndexError::new_err(format!("there is no id {at}")))?;
        Ok(PyString::new(py, &found.to_string()).into_any())
    }
}

#[derive(FromPyObject)]
enum Index<'py> {
    At(isize),
    Some(Bound<'py, PySlice>),
}
