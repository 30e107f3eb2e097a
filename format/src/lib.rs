//! The record format of ringreel: the meaning of each byte, and nothing else.
//!
//! RecordIO [`frame`]s as dmlc and MXNet write them, and on top of them a [`segment`]: a header, samples of several
//! named tensors each, a footer and a trailer. `SPEC.md` beside this crate is the specification; this code follows
//! it.
//!
//! This crate opens no files and contains no `unsafe` code. Its only thread computes the checksums of a sample of 8
//! MiB or more while the writer writes it. Every length from outside is compared with the rest of the input before
//! memory is allocated (the caller limits the size to which a compressed part may decode), and errors name byte
//! offsets.
//!
//! ```
//! use ringreel_format::{DType, Meta, PartRef, SampleRef, SegmentId, SegmentInfo, Schema, SegmentWriter, WriteOptions, SegmentSlice};
//!
//! let schema = Schema::new([("data", DType::U8, vec![2, 3])])?;
//! let info = SegmentInfo { id: SegmentId([7; 16]), born: 1, created_unix_ms: 0, first_number: 0, schema, provenance: Meta::new() };
//! let mut file = Vec::new();
//! let mut writer = SegmentWriter::begin(&mut file, info, WriteOptions::default())?;
//! writer.sample(&mut file, &SampleRef { parts: &[PartRef::new(DType::U8, &[2, 3], &[1, 2, 3, 4, 5, 6])], meta: &Meta::new(), unix_ms: 0 })?;
//! writer.finish(&mut file)?;
//!
//! let segment = SegmentSlice::open(file.into())?;
//! assert_eq!(&segment.sample(0)?.parts[0].data()?[..], &[1, 2, 3, 4, 5, 6]);
//! # Ok::<(), ringreel_format::FormatError>(())
//! ```
#![forbid(unsafe_code)]

pub mod describe;
pub mod dtype;
pub mod error;
pub mod frame;
pub mod input;
pub mod meta;
pub mod recordio;
pub mod segment;
mod wire;

pub use dtype::{DType, PartSchema, Schema, Shape};
pub use error::{FormatError, Result};
pub use meta::{Meta, Value};
pub use recordio::Region;
pub use segment::footer::{Footer, TRAILER_LEN, Trailer};
pub use segment::head::{Codec, Head, PartHead, PartPlace};
pub use segment::header::SegmentInfo;
pub use segment::part::{Part, ReadOptions};
pub use segment::salvage::{Salvage, SalvageItem, SalvagedSample};
pub use segment::sink::Sink;
pub use segment::slice::{Sample, SegmentSlice};
pub use segment::walk::SegmentWalk;
pub use segment::writer::{PartRef, SampleRef, Sealed, SegmentWriter, WriteOptions};
pub use segment::{FORMAT_MAJOR, FORMAT_MINOR, SegmentId};
