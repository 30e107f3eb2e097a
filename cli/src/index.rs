//! `ringreel index`

use super::Common;
use super::output::{json_line, line};
use crate::render;
use clap::{Args, Subcommand, ValueEnum};
use ringreel::Config;
use ringreel::coordination::{Backend, Claim, IfUnreachable};
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel::role::Role;
use ringreel_ops::repair;
use serde_json::json;
use std::sync::Arc;

/// Arguments of `ringreel index`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel index show -c config.yaml             print the index's location and contents
  ringreel index move -c config.yaml --to files  move it into files of the ring")]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Show the index's location and contents
    Show(Common),
    /// Move the index to another backend
    Move(Move),
}

#[derive(Args)]
struct Move {
    #[command(flatten)]
    common: Common,
    /// Backend to move the index to
    #[arg(long, value_name = "BACKEND")]
    to: Kind,
    /// Discard the index of another ring if there is one at the target
    #[arg(long)]
    take_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Kind {
    /// Files in the ring's directory
    Files,
    /// The MongoDB server of the configuration
    Mongodb,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Files => "files",
            Kind::Mongodb => "mongodb",
        }
    }
}

/// Shows or moves the index.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    match &options.action {
        Action::Show(common) => show(common),
        Action::Move(options) => move_to(options),
    }
}

fn show(common: &Common) -> anyhow::Result<i32> {
    let ring = Ring::find(Arc::new(Posix), &super::load(common)?)?;
    let index = &*ring.coordination;
    index.ping()?;
    let (status, lease) = (index.status()?, index.lease(Role::Manager.as_str())?);
    let filling = status.as_ref().map_or(0, |status| status.generation).saturating_add(1);
    let (handed_out, members) = (index.handed_out(filling)?, index.members()?);
    if common.json {
        json_line(&json!({
            "place": index.place(),
            "ring_id": ring.descriptor.ring_id,
            "status": status,
            "filling": filling,
            "handed_out": handed_out,
            "manager": lease.map(|lease| json!({
                "holder": lease.holder, "token": lease.token, "released": lease.released,
            })),
            "members": members.iter().map(|(name, beat)| json!({ "name": name, "beat": beat })).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let contents = render::index::Contents {
        place: &index.place(),
        status: status.as_ref(),
        filling,
        handed_out,
        manager: lease.as_ref(),
        members: &members,
    };
    for text in render::index::contents(&contents) {
        line(&text)?;
    }
    Ok(0)
}

fn move_to(options: &Move) -> anyhow::Result<i32> {
    let from = if options.to == Kind::Files { Kind::Mongodb } else { Kind::Files };
    let path = &options.common.config;
    let target = Config::load_with_index(path, Some(options.to.name()))?;
    let ring = match Config::load_with_index(path, Some(from.name())) {
        Ok(source) => Ring::find(Arc::new(Posix), &source)?,
        Err(error) if options.to == Kind::Files => {
            return Err(ringreel::Error::Config {
                origin: path.display().to_string(),
                message: render::index::cannot_move(&error),
            }
            .into());
        }
        Err(error) => return Err(error.into()),
    };
    let claim = if options.take_over { Claim::TakeOver } else { Claim::IfUnowned };
    let index =
        Backend::connect(&target.index, IfUnreachable::Fail)?.open(ring.fs.clone(), ring.ring_context(), claim)?;
    index.ping()?;
    let using = ring.coordination.members().map_or(0, |members| members.len());
    let told = repair::coordination::move_coordination(&ring, &*index)?;
    if options.common.json {
        let told: Vec<_> = told.iter().map(render::repair::coordination).collect();
        json_line(&json!({ "from": ring.coordination.place(), "to": index.place(), "told": told, "using": using }))?;
        return Ok(0);
    }
    for text in render::index::moved(&ring.coordination.place(), &index.place(), options.to.name(), path, using) {
        line(&text)?;
    }
    Ok(0)
}
