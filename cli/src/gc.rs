//! `ringreel gc`

use super::RingArgs;
use super::output::{json_line, line, tell};
use crate::render::gc as render;
use crate::render::repair::survey as survey_words;
use clap::Args;
use ringreel::config::MAX_KEEP;
use ringreel::coordination::Claim;
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel::swap::adopt::GRACE;
use ringreel_ops::gc::Garbage;
use ringreel_ops::{gc, repair};
use serde_json::json;
use std::sync::Arc;

/// What it takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel gc -c config.yaml               what would be removed; nothing is changed
  ringreel gc -c config.yaml --apply       remove it
  ringreel gc demo.ring --keep 1 --apply   without a configuration

It removes what a manager would: generations beyond KEEP that no reader needs, what lies in trash/, directories of late
calls, and what generators had begun who are dead for six leases (they are watched for so long). No sample that was not
delivered is removed. Exit status: 0 well, 1 something stays that should go.")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Remove it
    #[arg(long)]
    apply: bool,
    /// Generations to keep besides the newest, at most 1000: needed where there is no configuration that says it
    #[arg(long, value_name = "N", requires = "ring", value_parser = clap::value_parser!(u64).range(..=MAX_KEEP))]
    keep: Option<u64>,
}

/// Removes it. 1 when something stays where it is.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let mut config = options.ring.config()?;
    if options.ring.ring.is_some() && options.keep.is_none() {
        let message = "how many generations are kept is said by no file in it: give --keep, or the configuration (-c)";
        return Err(
            ringreel::Error::Config { origin: config.ring.display().to_string(), message: message.to_owned() }.into()
        );
    }
    config.keep = options.keep.unwrap_or(config.keep);
    let claim = if options.apply { Claim::IfUnowned } else { Claim::Never };
    let ring = Ring::find_with(Arc::new(Posix), &config, claim)?;
    if options.ring.ring.is_some() && options.apply && repair::coordination::coordination_is_elsewhere(&ring)? {
        let message = "its index is not in its directory (in a MongoDB?), so who reads in it cannot be seen: give the \
                       configuration (-c config.yaml)";
        return Err(ringreel::Error::RingMismatch { path: config.ring.clone(), message: message.to_owned() }.into());
    }
    let mut found = gc::garbage(&ring)?;
    if gc::has_begun_files(&ring)? {
        repair::liveness_survey::watch_for(&ring, GRACE, &|survey| tell(&survey_words(survey)))?;
        found.extend(gc::garbage_of_the_dead(&ring)?);
    }
    if options.apply {
        gc::gc(&ring)?;
    }
    let (mut freed, mut stays) = (0, 0);
    for garbage in &found {
        let gone = garbage.stays.is_none() && (!options.apply || !ring.fs.exists(&garbage.path)?);
        freed += if gone { garbage.bytes } else { 0 };
        stays += usize::from(!gone);
        say(options, garbage, gone)?;
    }
    if options.ring.common.json {
        json_line(&json!({ "bytes": freed, "removed": options.apply, "stays": stays }))?;
    } else {
        line(&render::result(freed, stays, options.apply))?;
    }
    Ok(i32::from(stays > 0))
}

fn say(options: &Options, garbage: &Garbage, gone: bool) -> anyhow::Result<()> {
    if options.ring.common.json {
        return Ok(json_line(&json!({ "garbage": render::garbage_json(garbage, gone) }))?);
    }
    Ok(line(&render::garbage(garbage, gone))?)
}
