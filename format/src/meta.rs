//! The small map that is stored with a sample: a strict subset of CBOR (RFC 8949).
//!
//! Allowed are null, booleans, integers of 65 bits with sign, 64-bit floats, text, bytes, arrays, and maps with text
//! keys; with definite lengths, shortest heads, and at most [`MAX_DEPTH`] levels. So every value has exactly one
//! encoding, any CBOR tool reads it, and it cannot contain code.

use crate::error::{FormatError, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Most levels of nested arrays and maps.
pub const MAX_DEPTH: usize = 16;
/// Most values in a meta map, on all levels together. This bounds the memory that a hostile map can take.
pub const MAX_VALUES: usize = 65_536;
/// Longest encoded meta map, in bytes.
pub const MAX_META: u64 = 16 << 20;

/// A value in a [`Meta`] map.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer from -2^64 to 2^64 - 1.
    Int(i128),
    /// A 64-bit float, NaN included.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
    /// A map.
    Map(Meta),
}

impl Value {
    /// Returns the number of values in it, itself included.
    fn count(&self) -> usize {
        1 + match self {
            Value::Array(values) => values.iter().map(Value::count).sum(),
            Value::Map(meta) => meta.values(),
            _ => 0,
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Int(i128::from(n))
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Value {
        Value::Float(x)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Int(i128::from(n))
    }
}

/// A map from text to [`Value`], in insertion order; each key occurs once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    entries: Vec<(String, Value)>,
}

/// Keeps the last of several values of a key, at the place of the first.
impl FromIterator<(String, Value)> for Meta {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Meta {
        let mut meta = Meta::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (key, value) in entries {
            match places.entry(key) {
                Entry::Occupied(place) => meta.entries[*place.get()].1 = value,
                Entry::Vacant(place) => {
                    meta.entries.push((place.key().clone(), value));
                    place.insert(meta.entries.len() - 1);
                }
            }
        }
        meta
    }
}

impl Meta {
    /// Creates an empty map.
    pub fn new() -> Meta {
        Meta::default()
    }

    /// Sets `key` to `value`, in place of any previous value. Searches all keys: use `collect` to build a large map.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.entries.iter_mut().find(|entry| entry.0 == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key, value)),
        }
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.0 == key).map(|entry| &entry.1)
    }

    /// Returns the text of `key`, if its value is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of values in it, on all levels.
    fn values(&self) -> usize {
        self.entries.iter().map(|(_, value)| value.count()).sum()
    }

    /// Encodes the map as in the file.
    ///
    /// # Errors
    /// An integer beyond 65 bits, nesting beyond [`MAX_DEPTH`], more than [`MAX_VALUES`] values or [`MAX_META`] bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        encode_map(self, 0, &mut out)?;
        let values = self.values();
        if values > MAX_VALUES {
            let limit = MAX_VALUES as u64;
            return Err(FormatError::TooLarge { what: "values of meta", value: values as u64, limit });
        }
        if out.len() as u64 > MAX_META {
            return Err(FormatError::TooLarge { what: "bytes of meta", value: out.len() as u64, limit: MAX_META });
        }
        Ok(out)
    }

    /// Decodes the map in `bytes`, which are at file offset `at` (for messages).
    ///
    /// # Errors
    /// Anything outside the subset, and bytes left over.
    #[inline(never)] // most samples have no meta
    pub fn decode(bytes: &[u8], at: u64) -> Result<Meta> {
        let mut input = Input { bytes, at, values: 0 };
        let (_, count) = input.head(&[5], "meta is not a map")?;
        let meta = input.map(count, 0)?;
        if input.bytes.is_empty() { Ok(meta) } else { Err(input.bad("meta has bytes left over")) }
    }
}

fn put_head(major: u8, n: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    match n {
        0..=23 => out.push(major | n as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, n as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(n as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&n.to_be_bytes());
        }
    }
}

fn encode_map(meta: &Meta, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    put_head(5, meta.entries.len() as u64, out);
    for (key, value) in &meta.entries {
        put_head(3, key.len() as u64, out);
        out.extend_from_slice(key.as_bytes());
        encode_value(value, depth + 1, out)?;
    }
    Ok(())
}

fn encode_value(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(FormatError::TooLarge { what: "levels of meta", value: depth as u64, limit: MAX_DEPTH as u64 });
    }
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(b) => out.push(0xf4 + u8::from(*b)),
        Value::Int(n) => {
            let (major, magnitude) = if *n >= 0 { (0, *n) } else { (1, -1 - *n) };
            let magnitude = u64::try_from(magnitude)
                .map_err(|_| FormatError::Input(format!("meta: the integer {n} needs more than 64 bits")))?;
            put_head(major, magnitude, out);
        }
        Value::Float(x) => {
            out.push(0xfb);
            out.extend_from_slice(&x.to_bits().to_be_bytes());
        }
        Value::Text(text) => {
            put_head(3, text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Bytes(bytes) => {
            put_head(2, bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Value::Array(values) => {
            put_head(4, values.len() as u64, out);
            for value in values {
                encode_value(value, depth + 1, out)?;
            }
        }
        Value::Map(meta) => encode_map(meta, depth, out)?,
    }
    Ok(())
}

struct Input<'a> {
    bytes: &'a [u8],
    at: u64,
    values: usize,
}

impl<'a> Input<'a> {
    fn bad(&self, what: &'static str) -> FormatError {
        FormatError::Malformed { at: self.at, what }
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let have = self.bytes.len() as u64;
        if n > have {
            return Err(FormatError::Truncated { at: self.at, what: "meta", need: n, have });
        }
        let (head, tail) = self.bytes.split_at(n as usize);
        self.bytes = tail;
        Ok(head)
    }

    /// Returns the major type, which must be one of `allowed` (else the error says `what`), and its argument.
    fn head(&mut self, allowed: &[u8], what: &'static str) -> Result<(u8, u64)> {
        let first = self.take(1)?[0];
        let (major, low) = (first >> 5, first & 31);
        if !allowed.contains(&major) {
            return Err(self.bad(what));
        }
        if major == 7 {
            return Ok((major, u64::from(low)));
        }
        let width = match low {
            0..=23 => return Ok((major, u64::from(low))),
            24..=27 => 1u64 << (low - 24),
            _ => return Err(self.bad("meta holds a length that is indefinite or reserved")),
        };
        let n = self.take(width)?.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let shortest = match width {
            1 => n >= 24,
            2 => n > 0xff,
            4 => n > 0xffff,
            _ => n > 0xffff_ffff,
        };
        if shortest { Ok((major, n)) } else { Err(self.bad("meta holds a number that is not in its shortest form")) }
    }

    fn text(&mut self, len: u64) -> Result<String> {
        let bytes = self.take(len)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.bad("meta holds text that is not UTF-8"))
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Meta> {
        let mut meta = Meta::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..count {
            let (_, len) = self.head(&[3], "meta has a key that is not text")?;
            let key = self.text(len)?;
            if !seen.insert(key.clone()) {
                return Err(self.bad("meta has the same key twice"));
            }
            let value = self.value(depth + 1)?;
            meta.entries.push((key, value));
        }
        Ok(meta)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            let (value, limit) = (depth as u64, MAX_DEPTH as u64);
            return Err(FormatError::TooLarge { what: "levels of meta", value, limit });
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            let (value, limit) = (self.values as u64, MAX_VALUES as u64);
            return Err(FormatError::TooLarge { what: "values of meta", value, limit });
        }
        const KIND: &str = "meta holds a kind of value that the format does not allow";
        let (major, n) = self.head(&[0, 1, 2, 3, 4, 5, 7], KIND)?;
        Ok(match (major, n) {
            (0, n) => Value::Int(i128::from(n)),
            (1, n) => Value::Int(-1 - i128::from(n)),
            (2, n) => Value::Bytes(self.take(n)?.to_vec()),
            (3, n) => Value::Text(self.text(n)?),
            (4, n) => {
                let mut values = Vec::new();
                for _ in 0..n {
                    values.push(self.value(depth + 1)?);
                }
                Value::Array(values)
            }
            (5, n) => Value::Map(self.map(n, depth)?),
            (7, 20) => Value::Bool(false),
            (7, 21) => Value::Bool(true),
            (7, 22) => Value::Null,
            (7, 27) => {
                let bits = self.take(8)?.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
                Value::Float(f64::from_bits(bits))
            }
            _ => return Err(self.bad(KIND)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_round_trips_as_cbor() -> Result<()> {
        let mut meta = Meta::new();
        meta.set("seed", u64::MAX);
        meta.set("neg", Value::Int(-1 - i128::from(u64::MAX)));
        meta.set("x", Value::Float(1.5));
        meta.set("list", Value::Array(vec![Value::Null, Value::Bool(true), Value::Bytes(vec![1, 2])]));
        let mut inner = Meta::new();
        inner.set("a", "b");
        meta.set("map", Value::Map(inner));
        assert_eq!(Meta::decode(&meta.encode()?, 0)?, meta);
        let mut small = Meta::new();
        small.set("a", Value::Int(1));
        assert_eq!(small.encode()?, [0xa1, 0x61, b'a', 0x01]); // RFC 8949, appendix A, by analogy
        Ok(())
    }

    #[test]
    fn hostile_meta_is_refused() {
        let deep = [&[0xa1, 0x61, b'a'][..], &[0x81; 40], &[0xf6]].concat();
        let cases: [&[u8]; 8] = [
            &deep,
            &[0x80],                                                           // not a map
            &[0xbf, 0xff],                                                     // indefinite
            &[0xa1, 0x61, b'a', 0x18, 0x01],                                   // not shortest
            &[0xa2, 0x61, b'a', 0x01, 0x61, b'a', 0x01],                       // same key twice
            &[0xa1, 0x61, b'a', 0x5b, 255, 255, 255, 255, 255, 255, 255, 255], // claims 2^64 bytes
            &[0xa1, 0x61, b'a', 0xc0, 0x01],                                   // a tag
            &[0xa0, 0x00],                                                     // left over
        ];
        for case in cases {
            assert!(Meta::decode(case, 0).is_err(), "{case:x?}");
        }
    }
}
