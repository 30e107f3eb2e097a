//! `ringreel repair`

use super::output::{failed, json_line, line};
use super::{RingArgs, output};
use crate::render::repair as render;
use clap::Args;
use ringreel::config::IndexPlace;
use ringreel::coordination::Claim;
use ringreel::fs::Posix;
use ringreel_ops::repair;
use ringreel_ops::repair::{RepairAction, State};
use serde_json::json;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `ringreel repair`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel repair demo.ring               list the repairs; change nothing
  ringreel repair -c config.yaml --apply  apply the repairs
  ringreel repair -c config.yaml --apply --salvage saved
                                          also copy intact samples of damaged segments to saved/
  ringreel repair -c config.yaml --json   print one JSON object per line

Repair never deletes samples. If a repair depends on which processes are alive, it first watches
all heartbeats for one lease (LEASE_SECONDS). For a ring with its index in MongoDB, --apply needs
the configuration (-c), not the directory.
Exit status: 0 no repairs are left, 1 repairs are left or failed, 2 the ring could not be
examined.")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Apply the repairs
    #[arg(long)]
    apply: bool,
    /// Discard the index of another ring at this ring's index location
    #[arg(long, requires = "apply")]
    take_over: bool,
    /// Copy the intact samples of damaged segments into new segments in this directory, outside the ring
    #[arg(long, value_name = "DIR")]
    salvage: Option<PathBuf>,
}

/// Makes a plan, and applies it with `--apply`. Returns 1 if problems remain.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    match find_and_apply(options) {
        Err(error) if !options.apply && !output::is_broken_pipe(&error) => Ok(failed(&error, 2)),
        other => other,
    }
}

fn find_and_apply(options: &Options) -> anyhow::Result<i32> {
    let config = options.ring.config()?;
    let claim = match (options.apply, options.take_over) {
        (true, true) => Claim::TakeOver,
        (true, false) => Claim::IfUnowned,
        _ => Claim::Never,
    };
    let (ring, first) = repair::ring_json::find_damaged(Arc::new(Posix), &config, claim, options.apply)?;
    let by_path = options.ring.ring.is_some() && config.index == IndexPlace::Files;
    if by_path && options.apply && repair::coordination::coordination_is_elsewhere(&ring)? {
        let message = "its index is not in its directory, perhaps in MongoDB, so its live processes cannot be seen: use \
                       the configuration (-c config.yaml)";
        return Err(ringreel::Error::RingMismatch { path: config.ring.clone(), message: message.to_owned() }.into());
    }
    let (plan, life) = repair::plan_repair_watching(&ring, &|survey| output::tell(&render::survey(survey)))?;
    let lost = repair::held_out_damage(&ring)?;
    let before: Vec<&RepairAction> = first.iter().chain(&plan.actions).collect();
    let mut open = before.iter().filter(|action| action.state != State::Litter).count();
    if options.apply && plan.open().next().is_some() {
        repair::apply_repair(&ring, &plan, &life)?;
        let after = repair::plan_repair(&ring, &life)?;
        let left: HashSet<_> = after.open().map(|action| (action.what, &action.path)).collect();
        for action in &before {
            tell(options, action, !left.contains(&(action.what, &action.path)))?;
        }
        let known: HashSet<_> = before.iter().map(|action| (action.what, &action.path)).collect();
        for action in after.open().filter(|action| !known.contains(&(action.what, &action.path))) {
            tell(options, action, false)?;
        }
        open = after.open().count();
    } else {
        for action in &before {
            tell(options, action, options.apply)?;
        }
        open -= if options.apply { usize::from(first.is_some()) } else { 0 };
    }
    let is_repairable = before.iter().any(|action| action.state == State::ToDo);
    for action in &lost {
        tell(options, action, false)?;
    }
    open += lost.len();
    if let Some(dir) = &options.salvage {
        super::salvage::run(&ring, dir, options.ring.common.json)?;
    }
    if !options.ring.common.json {
        let repaired = options.apply && !before.is_empty();
        line(&render::result(&ring, open, options.apply, repaired, is_repairable))?;
    }
    Ok(i32::from(open > 0))
}

fn tell(options: &Options, action: &RepairAction, gone: bool) -> anyhow::Result<()> {
    if options.ring.common.json {
        return Ok(json_line(&json!({ "repair": render::action_json(action, options.apply, gone) }))?);
    }
    Ok(line(&render::action_line(action, options.apply, gone))?)
}
