//! Writes part values and meta maps as JSON. Values are nested lists, as from `ndarray.tolist()`.

use ringreel::read::ReadPart;
use ringreel::value_stats::{Number, decoder};
use ringreel_format::{DType, Meta, Value};
use serde_json::json;
use std::io::{self, Write};

/// Writes `{"dtype": ..., "shape": [...], "values": [...]}`. A complex number is a list of two numbers; NaN and the
/// infinities are strings. A bytes part is one hexadecimal string; other elements that are not numbers are one
/// hexadecimal string each. The values of a part that only a later version can read are null.
///
/// # Errors
/// An error of `out`.
pub fn write(part: &ReadPart, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let dtype = serde_json::Value::from(part.dtype.to_string());
    let shape = serde_json::Value::from(part.shape.clone());
    write!(out, "{{\"dtype\": {dtype}, \"shape\": {shape}, \"values\": ")?;
    match part.data() {
        Ok(data) if part.dtype == DType::Bytes => hex(data, out)?,
        // No elements, or any number of zero-size elements.
        Ok(data) if data.is_empty() => out.write_all(b"[]")?,
        Ok(data) => values(part, &part.shape, &mut &data[..], out)?,
        Err(_) => out.write_all(b"null")?,
    }
    out.write_all(b"}")
}

/// Writes the elements of `shape` from the front of `rest`, and advances `rest`.
fn values(part: &ReadPart, shape: &[u64], rest: &mut &[u8], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let Some((len, inner)) = shape.split_first() else {
        let (element, after) = rest.split_at(part.dtype.itemsize() as usize);
        *rest = after;
        return match decoder(&part.dtype) {
            Some(decode) => number(decode(element), &part.dtype, out),
            None => hex(element, out),
        };
    };
    out.write_all(b"[")?;
    for n in 0..*len {
        if n > 0 {
            out.write_all(b", ")?;
        }
        values(part, inner, rest, out)?;
    }
    out.write_all(b"]")
}

fn number(number: Number, dtype: &DType, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let float = |x: f64, out: &mut dyn Write| match dtype {
        _ if !x.is_finite() => write!(out, "\"{x}\""),
        // The shortest text that parses to the same 32-bit number.
        DType::F32 | DType::F16 | DType::BF16 | DType::C64 => write!(out, "{:?}", x as f32),
        _ => write!(out, "{x:?}"),
    };
    match number {
        Number::Whole(n) if *dtype == DType::Bool => write!(out, "{}", n != 0),
        Number::Whole(n) => write!(out, "{n}"),
        Number::Float(x) => float(x, &mut &mut *out),
        Number::Complex(re, im) => {
            out.write_all(b"[")?;
            float(re, &mut &mut *out)?;
            out.write_all(b", ")?;
            float(im, &mut &mut *out)?;
            out.write_all(b"]")
        }
    }
}

fn hex(bytes: &[u8], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    out.write_all(b"\"")?;
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
    out.write_all(b"\"")
}

/// A meta map as JSON. Bytes become hexadecimal strings; numbers that JSON cannot hold become strings.
pub fn meta_json(meta: &Meta) -> serde_json::Value {
    meta.iter().map(|(key, value)| (key.to_owned(), value_json(value))).collect::<serde_json::Map<_, _>>().into()
}

fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(b) => json!(b),
        Value::Int(n) => match (u64::try_from(*n), i64::try_from(*n)) {
            (Ok(n), _) => json!(n),
            (_, Ok(n)) => json!(n),
            _ => json!(n.to_string()),
        },
        Value::Float(x) if x.is_finite() => json!(x),
        Value::Float(x) => json!(x.to_string()),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => json!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        Value::Array(values) => values.iter().map(value_json).collect(),
        Value::Map(meta) => meta_json(meta),
    }
}
