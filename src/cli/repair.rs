//! `ringreel repair`

use super::Common;
use super::output::{json_line, line};
use crate::fs::Posix;
use crate::index::Claim;
use crate::ring::Ring;
use clap::Args;
use serde_json::json;
use std::sync::Arc;

/// What it takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel repair -c config.yaml                  what would be mended
  ringreel repair -c config.yaml --apply          mend it")]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// Do it; without this, only say what would be done
    #[arg(long)]
    apply: bool,
    /// Throw away the index of another ring that is in the place of this one's
    #[arg(long, requires = "apply")]
    take_over: bool,
}

/// Compares the index with the directory. 1 when it says something else, and that was not mended.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let config = super::load(&options.common)?;
    let claim = match (options.apply, options.take_over) {
        (true, true) => Claim::TakeOver,
        (true, false) => Claim::Hold,
        _ => Claim::Look,
    };
    let ring = Ring::find_with(Arc::new(Posix), &config, claim)?;
    ring.index.ping()?;
    let repairs = ring.repair_index(&*ring.index, options.apply)?;
    for repair in &repairs {
        if options.common.json {
            json_line(&json!({ "index": repair.to_string(), "mended": options.apply }))?;
        } else {
            line(&format!("index: {repair}{}", if options.apply { ": mended" } else { "" }))?;
        }
    }
    if options.common.json {
        return Ok(i32::from(!repairs.is_empty() && !options.apply));
    }
    line(&match (repairs.len(), options.apply) {
        (0, _) => format!("the index says what the directory says ({})", ring.index.place()),
        (n, true) => format!("{n} mended ({})", ring.index.place()),
        (n, false) => format!("{n} to mend ({}): run it again with --apply", ring.index.place()),
    })?;
    Ok(i32::from(!repairs.is_empty() && !options.apply))
}
