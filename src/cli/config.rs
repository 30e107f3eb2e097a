//! `ringreel config`

use super::Common;
use super::output::{json_line, line};
use clap::Args;
use serde_json::json;

/// What it takes.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
}

/// Shows the values in effect.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let config = super::load(&options.common)?;
    for row in &config.effective {
        if options.common.json {
            json_line(&json!({ "key": row.key, "value": row.value, "origin": row.origin }))?;
        } else if row.origin != "default" || !row.value.is_empty() {
            line(&format!("{:<19} {:<40} {}", row.key, row.value, row.origin))?;
        }
    }
    Ok(0)
}
