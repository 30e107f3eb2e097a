//! `ringreel config`

use super::Common;
use super::output::{json_line, line};
use serde_json::json;

/// Prints the effective values.
pub fn run(common: &Common) -> anyhow::Result<i32> {
    let config = super::load(common)?;
    for row in &config.effective {
        if common.json {
            json_line(&json!({ "key": row.key, "value": row.value, "origin": row.origin }))?;
        } else if row.origin != "default" || !row.value.is_empty() {
            line(&format!("{:<19} {:<40} {}", row.key, row.value, row.origin))?;
        }
    }
    Ok(0)
}
