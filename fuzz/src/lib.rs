//! What the decoders promise for any input.
//!
//! Each target is a function that takes any bytes and fails, by a panic, where a promise is broken. libFuzzer calls it (one
//! program for each in `fuzz_targets`, run by `scripts/fuzz.sh`), and ordinary tests do (`tests/replay.rs`), with the vectors
//! of the format, with the corpora, and with a little noise.
//!
//! | file | what it holds |
//! |---|---|
//! | `records` | plain RecordIO, beside a model of it |
//! | `segments` | segments and their records |
//! | `model` | the slow twin of the decoder of heads |
//! | `damage` | files that are written from a plan and then damaged |
//! | `texts` | manifests, `.idx` and `.lst` files, the configuration, headers of images |
//! | [`repair`] | makes checksums match, so that what is behind them is reached |
//! | [`alloc`] | counts what is asked for |
//! | [`seeds`], [`source`] | input to begin with; noise; a source that gives its bytes in odd pieces |
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

/// A target: its name, and what it does with any bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
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
