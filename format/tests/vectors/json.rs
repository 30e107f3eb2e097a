//! The part of JSON that outcomes need, printed in a readable form.

use std::fmt::{self, Display, Write};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i128),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

/// Longest line of an array or object that is not wrapped.
const WIDTH: usize = 110;

impl Json {
    fn put(&self, out: &mut String, indent: usize) {
        let line = self.to_string();
        let (open, close, items): (_, _, Vec<(String, &Json)>) = match self {
            _ if line.len() + indent <= WIDTH => return out.push_str(&line),
            Json::List(items) => ('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
            Json::Object(items) => ('{', '}', items.iter().map(|(key, item)| (format!("\"{key}\": "), item)).collect()),
            _ => return out.push_str(&line),
        };
        out.push(open);
        for (n, (key, item)) in items.into_iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let _ = write!(out, "{comma}\n{:indent$}{key}", "", indent = indent + 2);
            item.put(out, indent + 2);
        }
        let _ = write!(out, "\n{:indent$}{close}", "");
    }

    /// Returns the contents of a file.
    pub fn page(&self) -> String {
        let mut out = String::new();
        self.put(&mut out, 0);
        out + "\n"
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |n: usize| if n > 0 { ", " } else { "" };
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Int(value) => write!(f, "{value}"),
            Json::Text(text) => quoted(text, f),
            Json::List(items) => {
                f.write_str("[")?;
                items.iter().enumerate().try_for_each(|(n, item)| write!(f, "{}{item}", comma(n)))?;
                f.write_str("]")
            }
            Json::Object(items) => {
                f.write_str("{")?;
                items.iter().enumerate().try_for_each(|(n, (key, item))| write!(f, "{}\"{key}\": {item}", comma(n)))?;
                f.write_str("}")
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if (c as u32) < 0x20 || c as u32 == 0x7f => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_str("\"")
}

macro_rules! from_integer {
    ($($kind:ty)*) => {
        $(impl From<$kind> for Json {
            fn from(value: $kind) -> Json {
                Json::Int(value as i128)
            }
        })*
    };
}
from_integer!(u8 u32 u64 usize i128);

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(values: Vec<T>) -> Json {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}

/// Formats as eight hexadecimal digits.
pub fn hex8(value: u32) -> Json {
    Json::Text(format!("{value:08x}"))
}

/// Formats as two hexadecimal digits per byte.
pub fn hex(bytes: &[u8]) -> Json {
    Json::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `{"name": ..., "at": ...}`
pub fn error(name: &str, at: Option<u64>) -> Json {
    Json::Object(vec![("name", name.into()), ("at", at.into())])
}

/// `[begin, end, why]`
pub fn stretch(begin: u64, end: u64, why: &str) -> Json {
    Json::List(vec![begin.into(), end.into(), why.into()])
}
