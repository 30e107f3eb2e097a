//! `ringreel doctor`

use super::RingArgs;
use super::output::{json_line, line, plain, refused};
use super::signals::Stop;
use crate::humanize::counted;
use crate::render::doctor as render;
use clap::Args;
use ringreel::config::Config;
use ringreel_ops::doctor::peer::Times;
use ringreel_ops::doctor::{self, CannotMeasure, Check, Doctor, Verdict};
use ringreel_ops::probe::Subject;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `ringreel doctor`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel doctor -c config.yaml                  check this node before a job is queued
  ringreel doctor -c config.yaml --json           print one JSON object per check
  ringreel doctor -c config.yaml -v               explain why each check matters
  srun -N2 ringreel doctor -c config.yaml --peer  measure how two nodes see each other's changes

The doctor measures in a scratch directory, which it removes; it changes nothing in the ring.
Exit status: 0 no failures (warnings are possible), 1 a check failed, 2 the checks could not run.")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Measure two nodes, in DIR [default: the ring]; run the same command on both at the same time
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    peer: Option<Option<PathBuf>>,
    /// Time to wait for the other node
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    peer_timeout: u64,
}

impl Options {
    /// Returns the configuration. `--peer=DIR` works without one.
    fn config(&self) -> anyhow::Result<Config> {
        match &self.peer {
            Some(Some(dir)) if self.ring.ring.is_none() && !self.ring.common.config.exists() => {
                Ok(Config::of_ring(dir)?)
            }
            _ => self.ring.config(),
        }
    }
}

/// Runs all checks. Returns 1 if one failed, 2 if the checks could not run.
pub fn run(options: &Options, verbose: bool) -> anyhow::Result<i32> {
    let stop = Stop::on_signals()?;
    let mut paper = Paper::new(options.ring.common.json, verbose);
    let config = match options.config() {
        Ok(config) => config,
        Err(error) => {
            match error.downcast_ref::<ringreel::Error>() {
                Some(error) => paper.write(&doctor::config::does_not_load(error)),
                None => tracing::error!("{error:#}"),
            }
            return Ok(2);
        }
    };
    let stop: doctor::Stop = Arc::new(move || stop.is_set());
    let mut doctor = Doctor::new(Subject::system(), stop.clone(), |check| paper.write(&check));
    let looked = match &options.peer {
        None => doctor::examine(&mut doctor, &config),
        Some(dir) => {
            let place = dir.clone().map_or_else(|| doctor::place(&doctor, &config), Ok);
            let times = Times::new(Duration::from_secs(options.peer_timeout), config.lease);
            place.and_then(|place| doctor::peer::examine(&mut doctor, &place, times, &stop))
        }
    };
    let worst = doctor.worst();
    drop(doctor);
    paper.end()?;
    if let Err(CannotMeasure(why)) = looked {
        return Ok(refused(&why));
    }
    Ok(i32::from(worst == Verdict::Failure))
}

/// Prints checks as they are made.
struct Paper {
    json: bool,
    /// Explain passed checks too.
    all: bool,
    colours: bool,
    group: String,
    counts: [usize; 3],
    broken: std::io::Result<()>,
}

impl Paper {
    fn new(json: bool, all: bool) -> Paper {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Paper { json, all, colours, group: String::new(), counts: [0; 3], broken: Ok(()) }
    }

    fn write(&mut self, check: &Check) {
        let written = if self.json { json_line(&render::check_json(check)) } else { self.text(check) };
        self.counts[check.verdict as usize] += 1;
        if self.broken.is_ok() {
            self.broken = written;
        }
    }

    fn text(&mut self, check: &Check) -> std::io::Result<()> {
        if self.group != check.group {
            self.group.clone_from(&check.group);
            line(&check.group)?;
        }
        let (word, colour) = match check.verdict {
            Verdict::Ok => ("ok     ", "32"),
            Verdict::Warning => ("WARNING", "33"),
            Verdict::Failure => ("FAILURE", "31"),
        };
        let mark = if self.colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() };
        writeln!(std::io::stdout(), "  {mark} {:<25} {}", plain(&check.check), plain(&render::measured(check)))?;
        if self.all || check.verdict != Verdict::Ok {
            line(&format!("  {:33} why: {}", "", plain(render::why(check))))?;
        }
        let advice = render::advice(check);
        if !advice.is_empty() {
            line(&format!("  {:33} do:  {}", "", plain(&advice)))?;
        }
        Ok(())
    }

    fn end(self) -> std::io::Result<()> {
        self.broken?;
        let [well, warnings, failures] = self.counts;
        if self.json {
            return Ok(());
        }
        line(&format!("{well} ok, {}, {}", counted(warnings as u64, "warning"), counted(failures as u64, "failure")))
    }
}
