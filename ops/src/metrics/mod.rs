//! Formats an observation for monitoring: as JSON with our fields and Wirehead's, or in Prometheus format.
//!
//! | file | contents |
//! |---|---|
//! | this one | [`json`]: the fields of `ringreel status --json`, and those of [`wirehead`] |
//! | [`prometheus`] | metrics in Prometheus format |
//! | [`wirehead`] | the fields of Wirehead's logger |

pub mod prometheus;
pub mod wirehead;

use crate::monitor::Observation;
use serde::Serialize;
use serde_json::{Map, Value};

/// Returns an observation as one object. `database` and `interval` (seconds between two observations) are for Wirehead's
/// fields.
#[must_use]
pub fn json(look: &Observation, database: &str, interval: f64) -> Value {
    let mut all = object(&look.status);
    all.extend(object(&wirehead::Snapshot::of(look, database, interval)));
    Value::Object(all)
}

/// Returns the object for an observation that failed with `message`.
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
        _ => Map::new(), // not reached: all our types are objects
    }
}
