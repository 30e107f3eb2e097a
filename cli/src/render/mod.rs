//! Turns the facts of [`ringreel_ops`] into sentences, in one file per subcommand.

pub mod doctor;
pub(crate) mod gc;
pub(crate) mod index;
pub(crate) mod inspect;
pub(crate) mod promote;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod samples;
pub(crate) mod status;
pub(crate) mod times;
pub(crate) mod totals;
pub(crate) mod verify;
