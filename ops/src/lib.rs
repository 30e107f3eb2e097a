//! Operating a ring: inspection, verification, repair and monitoring. These modules return facts; the command puts them into
//! words.
//!
//! | module | |
//! |---|---|
//! | [`inspect`] | what lies on a disk, by path: rings, generations, segments, samples |
//! | [`inspect::verify`] | compares every byte with its checksum |
//! | [`repair`] | finds damage, plans its repair, and repairs it |
//! | [`gc`] | lists what a manager would remove, and removes it |
//! | [`doctor`] | checks whether a place can hold a ring, before a job is queued |
//! | [`probe`] | measures what a filesystem does, for the doctor |
//! | [`mod@status`] | the state of a ring: generations, fill, members |
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
