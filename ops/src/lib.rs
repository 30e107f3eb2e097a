//! Operating a ring: what its state is, whether it is whole, and how it is mended. Facts, which the command puts into words.
//!
//! | module | |
//! |---|---|
//! | [`inspect`] | what lies on a disk, by path: rings, generations, segments, samples |
//! | [`inspect::verify`] | whether every byte is as it was written |
//! | [`repair`] | what is damaged and can be mended, and mending it |
//! | [`gc`] | what a manager would remove, and removing it |
//! | [`doctor`] | whether a ring can live in a place, before a job is queued |
//! | [`probe`] | what a filesystem really does, measured for the doctor |
//! | [`mod@status`] | how a ring is doing: generations, fill, members |
//! | [`history`] | its last swaps |
//! | [`monitor`] | both of them, again and again |
//! | [`metrics`] | both of them, as JSON or in Prometheus' text format |
#![deny(unsafe_code)]

pub mod doctor;
pub mod gc;
pub mod history;
pub mod inspect;
pub mod metrics;
pub mod monitor;
pub mod probe;
pub mod repair;
pub mod status;
