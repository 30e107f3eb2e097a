//! Element types and shapes of parts, and the schema that names the parts of a sample.

use crate::describe::FieldKind;
use crate::error::{FormatError, Result};
use crate::wire::{Cursor, Trace, put_text, put_varint};
use std::fmt;

/// Lengths of the axes, outermost first; empty for a scalar (0-d). Row-major (C) order.
pub type Shape = Vec<u64>;

/// Most axes a tensor may have (NumPy's own limit is 64).
pub const MAX_NDIM: usize = 64;
/// Most parts a sample may have.
pub const MAX_PARTS: u64 = 4096;
/// Longest name of a part, and longest NumPy type description, in bytes.
pub const MAX_NAME: u64 = 65_535;

/// The type of a tensor's elements, little endian in the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// Bytes that are not a tensor. The shape has one axis, the length.
    Bytes,
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Two binary32: real, imaginary.
    C64,
    /// Two binary64: real, imaginary.
    C128,
    /// A type of a later version of the format: its elements' size is known, its meaning is not.
    Unknown {
        /// Its code.
        code: u8,
        /// Bytes of one element.
        itemsize: u32,
    },
    /// Any other fixed-size NumPy type (datetimes, fixed strings, records, long double), by its description:
    /// `dtype.str`, or for records the literal of `dtype.descr`. Only NumPy interprets it; here it is bytes.
    Numpy {
        /// The description.
        descr: String,
        /// Bytes of one element.
        itemsize: u32,
    },
}

const NUMPY_CODE: u8 = 0xff;
/// The plain types, with their codes in the file and short names.
const PLAIN: [(DType, u8, &str); 16] = [
    (DType::Bytes, 0, "bytes"),
    (DType::Bool, 1, "bool"),
    (DType::U8, 2, "u8"),
    (DType::U16, 3, "u16"),
    (DType::U32, 4, "u32"),
    (DType::U64, 5, "u64"),
    (DType::I8, 6, "i8"),
    (DType::I16, 7, "i16"),
    (DType::I32, 8, "i32"),
    (DType::I64, 9, "i64"),
    (DType::F16, 10, "f16"),
    (DType::BF16, 11, "bf16"),
    (DType::F32, 12, "f32"),
    (DType::F64, 13, "f64"),
    (DType::C64, 14, "c64"),
    (DType::C128, 15, "c128"),
];

impl DType {
    /// Returns the bytes of one element.
    pub fn itemsize(&self) -> u64 {
        match self {
            DType::Bytes | DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
            DType::Numpy { itemsize, .. } | DType::Unknown { itemsize, .. } => u64::from(*itemsize),
        }
    }

    /// Returns the type with this name (`"u8"`, `"f32"`, `"bytes"`, ..., or NumPy's long name), if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        let short = match name {
            "uint8" => "u8",
            "uint16" => "u16",
            "uint32" => "u32",
            "uint64" => "u64",
            "int8" => "i8",
            "int16" => "i16",
            "int32" => "i32",
            "int64" => "i64",
            "float16" => "f16",
            "bfloat16" => "bf16",
            "float32" => "f32",
            "float64" => "f64",
            "complex64" => "c64",
            "complex128" => "c128",
            other => other,
        };
        PLAIN.iter().find(|row| row.2 == short).map(|row| row.0.clone())
    }

    /// Returns the bytes of a tensor of this type and `shape`.
    ///
    /// # Errors
    /// More than 2^63 - 1 bytes at any step of the product from the left.
    pub fn byte_len(&self, shape: &[u64]) -> Result<u64> {
        let limit = i64::MAX as u64;
        shape
            .iter()
            .try_fold(self.itemsize(), |total, axis| total.checked_mul(*axis).filter(|n| *n <= limit))
            .ok_or(FormatError::TooLarge { what: "bytes of a tensor", value: u64::MAX, limit })
    }

    /// Checks that the type can be read back after it is written.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            DType::Numpy { descr, .. } if descr.len() as u64 > MAX_NAME => {
                let value = descr.len() as u64;
                Err(FormatError::TooLarge { what: "bytes of a NumPy type's description", value, limit: MAX_NAME })
            }
            DType::Unknown { code, .. } if *code == NUMPY_CODE || PLAIN.iter().any(|row| row.1 == *code) => {
                Err(FormatError::Input(format!("dtype code {code} belongs to a known type")))
            }
            _ => Ok(()),
        }
    }

    fn code(&self) -> u8 {
        match self {
            DType::Numpy { .. } => NUMPY_CODE,
            DType::Unknown { code, .. } => *code,
            plain => PLAIN.iter().find(|row| row.0 == *plain).map_or(0, |row| row.1),
        }
    }

    /// Returns the short name of the type with this code; `None` for a type of a later version.
    pub(crate) fn name_of_code(code: u8) -> Option<&'static str> {
        let plain = PLAIN.iter().find(|row| row.1 == code).map(|row| row.2);
        plain.or((code == NUMPY_CODE).then_some("numpy"))
    }

    /// Writes `code u8 | item size varint | description text, for DType::Numpy only`. The size is stored for every
    /// type, so that a reader that does not know the code can still skip the tensor.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.code());
        put_varint(out, self.itemsize());
        if let DType::Numpy { descr, .. } = self {
            put_text(out, descr);
        }
    }

    pub(crate) fn decode<T: Trace>(cursor: &mut Cursor<'_, T>, at: u64) -> Result<DType> {
        let code = cursor.u8(FieldKind::DTypeCode)?;
        let value = cursor.varint(FieldKind::ItemSize)?;
        let limit = u64::from(u32::MAX);
        let itemsize = u32::try_from(value).map_err(|_| FormatError::TooLarge { what: "item size", value, limit })?;
        if code == NUMPY_CODE {
            let descr = cursor.text(MAX_NAME, FieldKind::DescriptionLength, FieldKind::Description)?.to_owned();
            return Ok(DType::Numpy { descr, itemsize });
        }
        match PLAIN.iter().find(|row| row.1 == code) {
            Some(row) if row.0.itemsize() == value => Ok(row.0.clone()),
            Some(_) => Err(FormatError::Malformed { at, what: "a dtype has the wrong item size" }),
            None => Ok(DType::Unknown { code, itemsize }),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DType::Numpy { descr, .. } => write!(f, "numpy:{descr}"),
            DType::Unknown { code, .. } => write!(f, "unknown:{code:#04x}"),
            plain => f.write_str(PLAIN.iter().find(|row| row.0 == *plain).map_or("?", |row| row.2)),
        }
    }
}

pub(crate) fn encode_shape(shape: &[u64], out: &mut Vec<u8>) {
    out.push(shape.len() as u8);
    for axis in shape {
        put_varint(out, *axis);
    }
}

pub(crate) fn decode_shape<T: Trace>(cursor: &mut Cursor<'_, T>) -> Result<Shape> {
    let ndim = cursor.u8(FieldKind::AxisCount)?;
    if usize::from(ndim) > MAX_NDIM {
        return Err(FormatError::TooLarge { what: "number of axes", value: u64::from(ndim), limit: MAX_NDIM as u64 });
    }
    (0..ndim).map(|n| cursor.varint(FieldKind::Axis(n))).collect()
}

/// A named part as a segment expects it. The dtype and shape of a sample's part may differ; names never do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSchema {
    /// Its name, unique in the schema.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Its usual shape.
    pub shape: Shape,
}

/// The parts of a segment's samples, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The parts.
    pub parts: Vec<PartSchema>,
}

impl Schema {
    /// Creates a schema from `(name, dtype, shape)`.
    ///
    /// # Errors
    /// A name that is empty or occurs twice; more than [`MAX_PARTS`] parts or [`MAX_NDIM`] axes.
    pub fn new<'a>(parts: impl IntoIterator<Item = (&'a str, DType, Shape)>) -> Result<Schema> {
        let parts = parts
            .into_iter()
            .map(|(name, dtype, shape)| PartSchema { name: name.to_owned(), dtype, shape })
            .collect::<Vec<_>>();
        let schema = Schema { parts };
        schema.check().map(|()| schema)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let count = self.parts.len() as u64;
        if count > MAX_PARTS {
            return Err(FormatError::TooLarge { what: "number of parts", value: count, limit: MAX_PARTS });
        }
        let mut names = std::collections::HashSet::new();
        for part in &self.parts {
            if part.name.is_empty() || part.name.len() as u64 > MAX_NAME || !names.insert(&part.name) {
                let name = &part.name;
                return Err(FormatError::Input(format!("part name {name:?} is empty, too long, or occurs twice")));
            }
            if part.shape.len() > MAX_NDIM {
                let value = part.shape.len() as u64;
                return Err(FormatError::TooLarge { what: "number of axes", value, limit: MAX_NDIM as u64 });
            }
            part.dtype.check()?;
            part.dtype.byte_len(&part.shape)?;
        }
        Ok(())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.parts.len() as u64);
        for part in &self.parts {
            put_text(out, &part.name);
            part.dtype.encode(out);
            encode_shape(&part.shape, out);
        }
    }

    pub(crate) fn decode<T: Trace>(cursor: &mut Cursor<'_, T>, at: u64) -> Result<Schema> {
        let count = cursor.varint(FieldKind::PartCount)?;
        if count > MAX_PARTS {
            return Err(FormatError::TooLarge { what: "number of parts", value: count, limit: MAX_PARTS });
        }
        let mut schema = Schema::default();
        let mut names = std::collections::HashSet::new();
        for n in 0..count as usize {
            cursor.trace.part(Some((n, "")));
            let name = cursor.text(MAX_NAME, FieldKind::PartNameLength, FieldKind::PartName)?;
            cursor.trace.part(Some((n, name)));
            if name.is_empty() || !names.insert(name) {
                return Err(FormatError::Malformed { at, what: "a part's name is empty or occurs twice" });
            }
            let dtype = DType::decode(cursor, at)?;
            let shape = decode_shape(cursor)?;
            dtype.byte_len(&shape)?;
            schema.parts.push(PartSchema { name: name.to_owned(), dtype, shape });
        }
        cursor.trace.part(None);
        Ok(schema)
    }
}
