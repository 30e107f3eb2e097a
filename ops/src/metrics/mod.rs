//! What monitoring wants of a ring, made of one look at it: JSON with our own names and Wirehead's, or Prometheus' text.
//!
//! | file | |
//! |---|---|
//! | here | [`json`]: all that `ringreel status --json` says, and [`wirehead`]'s fields beside it |
//! | [`prometheus`] | metrics in Prometheus' text format |
//! | [`wirehead`] | the fields of Wirehead's logger |

pub mod prometheus;
pub mod wirehead;

use crate::monitor::Observation;
use serde::Serialize;
use serde_json::{Map, Value};

/// One object of all that one look saw. `database` and `interval` (seconds between two looks) are for Wirehead's fields.
#[must_use]
pub fn json(look: &Observation, database: &str, interval: f64) -> Value {
    let mut all = object(&look.status);
    all.extend(object(&wirehead::Snapshot::of(look, database, interval)));
    Value::Object(all)
}

/// What stands for a look that saw nothing, because of `message`.
#[must_use]
pub fn json_of_failure(ring: &str, unix_ms: u64, message: &str) -> Value {
    #[derive(Serialize)]
    struct Failure<'a> {
        ring: &'a str,
        timestamp: f64,
        error: &'a str,
    }
    Value::Object(object(&Failure { ring, timestamp: unix_ms as f64 / 1e3, error: message }))
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(), // none of ours is anything else
    }
}
