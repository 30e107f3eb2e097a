//! Operating a ring: inspection, verification, repair and monitoring. These modules return facts; the command turns them
//! into sentences.
//!
//! | module | contents |
//! |---|---|
//! | [`inspect`] | describes rings, generations, segments and samples, by path |
//! | [`inspect::verify`] | verifies all checksums |
//! | [`repair`] | finds damage, plans its repair, and repairs it |
//! | [`mod@missing`] | finds generations that should exist and do not |
//! | [`held_out`] | checks the samples of the validation split |
//! | [`mod@promote_partial`] | promotes a generation that is not full |
//! | [`gc`] | lists what a manager would remove, and removes it |
//! | [`doctor`] | checks whether a directory and a machine are suitable for a ring |
//! | [`probe`] | measures the behaviour of a filesystem, for the doctor |
//! | [`mod@status`] | the state of a ring: generations, fill level, members |
//! | [`history`] | the most recent swaps of a ring |
//! | [`monitor`] | observes status and history repeatedly |
//! | [`metrics`] | formats observations as JSON or in Prometheus format |
#![deny(unsafe_code)]

pub mod doctor;
pub mod gc;
pub mod held_out;
pub mod history;
pub mod inspect;
pub mod metrics;
pub mod missing;
pub mod monitor;
mod phase;
pub mod probe;
pub mod promote_partial;
pub mod repair;
pub mod status;
