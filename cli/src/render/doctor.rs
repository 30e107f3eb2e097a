//! Output of `ringreel doctor`: measurements, the reasons why they matter, and advice.

mod advice;
mod measured;
mod why;

pub use advice::advice;
pub use measured::measured;
pub use why::why;

use ringreel_ops::doctor::Check;
use serde_json::json;

/// One line of `--json`.
pub fn check_json(check: &Check) -> serde_json::Value {
    json!({
        "group": check.group, "check": check.check, "verdict": check.verdict, "measured": measured(check),
        "why": why(check), "advice": advice(check),
    })
}
