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
use ringreel::swap::adopt::UNFINISHED_GRACE_LEASES;
use ringreel_ops::gc::Garbage;
use ringreel_ops::{gc, repair};
use serde_json::json;
use std::sync::Arc;

/// Arguments of `ringreel gc`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel gc -c config.yaml              list what would be removed; change nothing
  ringreel gc -c config.yaml --apply      remove it
  ringreel gc demo.ring --keep 1 --apply  remove it, without a configuration

Gc removes what a manager would remove: generations beyond KEEP that no reader needs, the contents
of trash/, directories that late calls made again, and unfinished files of generators that have
been silent for six leases (gc watches their heartbeats for that time). It never removes an
undelivered sample.
Exit status: 0 success, 1 something could not be removed.")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Remove the listed files
    #[arg(long)]
    apply: bool,
    /// Number of generations to keep besides the newest, at most 1000; required without a configuration
    #[arg(long, value_name = "N", requires = "ring", value_parser = clap::value_parser!(u64).range(..=MAX_KEEP))]
    keep: Option<u64>,
}

/// Lists what no process needs, and removes it with `--apply`. Returns 1 if something was not removed.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let mut config = options.ring.config()?;
    if options.ring.ring.is_some() && options.keep.is_none() {
        let message = "the ring does not record how many generations to keep: give --keep N, or the configuration (-c)";
        return Err(
            ringreel::Error::Config { origin: config.ring.display().to_string(), message: message.to_owned() }.into()
        );
    }
    config.keep = options.keep.unwrap_or(config.keep);
    let claim = if options.apply { Claim::IfUnowned } else { Claim::Never };
    let ring = Ring::find_with(Arc::new(Posix), &config, claim)?;
    if options.ring.ring.is_some() && options.apply && repair::coordination::coordination_is_elsewhere(&ring)? {
        let message = "its index is not in its directory, perhaps in MongoDB, so its readers cannot be seen: use the \
                       configuration (-c config.yaml)";
        return Err(ringreel::Error::RingMismatch { path: config.ring.clone(), message: message.to_owned() }.into());
    }
    let mut found = gc::garbage(&ring)?;
    if gc::has_begun_files(&ring)? {
        repair::liveness_survey::watch_for(&ring, UNFINISHED_GRACE_LEASES, &|survey| tell(&survey_words(survey)))?;
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
