//! Converts meta maps to and from Python values.

use crate::errors;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use ringreel::format::meta::MAX_DEPTH;
use ringreel::format::{Meta, Value};

/// Converts a dict. NumPy's scalars and arrays of numbers, and all other objects with `tolist`, become plain values.
///
/// # Errors Returns a SampleError that names the key if a key is not text, a value has an unsupported type, or the
/// nesting exceeds the limit.
pub fn from_python(given: &Bound<'_, PyDict>) -> PyResult<Meta> {
    map(given, "meta", 0)
}

fn bad(py: Python<'_>, place: &str, what: &str) -> PyErr {
    errors::sample(py, &format!("{place}: {what}"))
}

fn map(given: &Bound<'_, PyDict>, place: &str, depth: usize) -> PyResult<Meta> {
    let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let text = key.cast::<PyString>().map_err(|_| {
            bad(given.py(), place, &format!("the key {} is {}; keys are text", shown(&key), type_name(&key)))
        })?;
        let text = utf8(text, place)?;
        let place = format!("{place}[{text:?}]");
        Ok((text.to_owned(), value_of(&value, &place, depth + 1)?))
    };
    given.iter().map(entry).collect()
}

fn value_of(given: &Bound<'_, PyAny>, place: &str, depth: usize) -> PyResult<Value> {
    let py = given.py();
    if depth > MAX_DEPTH {
        return Err(bad(py, "meta", &format!("more than {MAX_DEPTH} levels of lists and dicts inside one another")));
    }
    if given.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(truth) = given.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if given.is_instance_of::<PyInt>() {
        let fits = |number: &i128| (-(1i128 << 64)..1i128 << 64).contains(number);
        let number = given.extract::<i128>().ok().filter(fits);
        return number.map(Value::Int).ok_or_else(|| bad(py, place, "an integer is from -2**64 to 2**64 - 1"));
    }
    if let Ok(number) = given.cast::<PyFloat>() {
        return Ok(Value::Float(number.value()));
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Value::Text(utf8(text, place)?));
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = given.cast::<PyByteArray>() {
        return Ok(Value::Bytes(bytes.to_vec()));
    }
    if let Ok(dict) = given.cast::<PyDict>() {
        return map(dict, place, depth).map(Value::Map);
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let items = given.try_iter()?.enumerate();
        let values = items.map(|(n, item)| value_of(&item?, &format!("{place}[{n}]"), depth + 1));
        return values.collect::<PyResult<_>>().map(Value::Array);
    }
    if let Ok(tolist) = given.getattr("tolist") {
        let plain = tolist.call0()?;
        if !plain.get_type().is(given.get_type()) {
            return value_of(&plain, place, depth);
        }
    }
    let what = "it may be None, bool, int, float, str, bytes, list, tuple, dict, or a NumPy scalar or array of numbers";
    Err(bad(py, place, &format!("{} cannot be stored; {what}", type_name(given))))
}

fn utf8(text: &Bound<'_, PyString>, place: &str) -> PyResult<String> {
    text.extract().map_err(|_| bad(text.py(), place, "text that cannot be written as UTF-8"))
}

fn shown(object: &Bound<'_, PyAny>) -> String {
    object.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string_lossy().into_owned())
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Converts `meta` to a dict.
///
/// # Errors
/// Returns an error if memory runs out.
pub fn to_python<'py>(py: Python<'py>, meta: &Meta) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in meta.iter() {
        dict.set_item(key, value_to_python(py, value)?)?;
    }
    Ok(dict)
}

fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => PyFloat::new(py, *number).into_any(),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Array(values) => {
            let values = values.iter().map(|value| value_to_python(py, value));
            PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Value::Map(map) => to_python(py, map)?.into_any(),
    })
}
