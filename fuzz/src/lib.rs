//! Properties of the decoders for arbitrary input.
//!
//! Each target is a function that takes any bytes and panics if a property is violated. libFuzzer calls it (through one
//! program per target in `fuzz_targets`, run by `scripts/fuzz.sh`), and so do ordinary tests (`tests/replay.rs`), with
//! the vectors of the format, the corpora, and a little noise.
//!
//! | file | contents |
//! |---|---|
//! | `records` | plain RecordIO, with a model of it |
//! | `segments` | segments and their records |
//! | `model` | a simple model of the decoder of heads |
//! | `damage` | files that are written from a plan and then damaged |
//! | `texts` | manifests, `.idx` and `.lst` files, the configuration, headers of images |
//! | [`repair`] | makes checksums match, so that the checks behind them are reached |
//! | [`alloc`] | counts allocations |
//! | [`seeds`], [`source`] | initial input; noise; a source that returns pieces of odd lengths |
#![deny(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a target fails by a panic

pub mod alloc;
mod damage;
mod model;
mod records;
pub mod repair;
pub mod seeds;
mod segments;
pub mod source;
mod texts;

pub use damage::{record_damage, segment_damage};
pub use records::{frame, resync};
pub use segments::{footer, head, meta, segment};
pub use texts::{config, idx, image, lst, manifest};

/// A target: its name, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 13] = [
    ("frame", frame),
    ("resync", resync),
    ("segment", segment),
    ("head", head),
    ("footer", footer),
    ("meta", meta),
    ("manifest", manifest),
    ("idx", idx),
    ("lst", lst),
    ("image", image),
    ("config", config),
    ("segment_damage", segment_damage),
    ("record_damage", record_damage),
];
