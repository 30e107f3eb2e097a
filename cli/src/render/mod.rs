//! Sentences for people: what the facts of [`ringreel_ops`] read like, one file per subcommand. No other module has any.

pub mod gc;
pub mod inspect;
pub mod record;
pub mod repair;
pub mod verify;
