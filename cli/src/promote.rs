//! `ringreel promote`

use super::Common;
use super::output::{json_line, line};
use crate::render::promote as render;
use clap::Args;
use ringreel::coordination::Claim;
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel_ops::promote_partial::promote_partial;
use serde_json::json;
use std::sync::Arc;

/// Arguments of `ringreel promote`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel promote -c config.yaml         make all samples generated so far readable
  ringreel promote -c config.yaml --json  the same, printed as JSON

The filling generation becomes readable with the samples it has; generators continue in the next
one. Finished segments of dead generators that are not linked yet are left to the manager (or
`ringreel repair --apply`).
Exit status: 0 the generation is readable, 1 there was nothing to promote, or readers block it
(REUSE min).")]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
}

/// Promotes the filling generation. Returns 1 if there was nothing to promote, or if readers block it.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let config = super::load(&options.common)?;
    let ring = Ring::find_with(Arc::new(Posix), &config, Claim::IfUnowned)?;
    let done = promote_partial(&ring)?;
    for promotion in &done.promotions {
        let summary = &promotion.manifest.summary;
        let (generation, samples) = (summary.generation, summary.samples);
        if options.common.json {
            json_line(&json!({ "promoted": { "generation": generation, "samples": samples } }))?;
        } else {
            line(&render::promoted(summary))?;
        }
    }
    let Some(why) = render::why_not(&done) else { return Ok(0) };
    if options.common.json {
        json_line(&json!({ "promoted": null, "why": why }))?;
    } else {
        line(&why)?;
    }
    Ok(i32::from(!done.by_another))
}
