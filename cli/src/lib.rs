//! The command `ringreel`: one file per subcommand, and below them what puts the facts of `ringreel_ops` into sentences
//! ([`render`]), converts ([`convert`]), draws ([`drawing`]) and writes parts as files of other programs ([`formats`]).
//! Results go to stdout, everything else to stderr; with `--json`, stdout holds one JSON object a line.
#![deny(unsafe_code)]

mod cat;
mod config;
pub mod convert;
mod doctor;
pub mod drawing;
mod export;
pub mod formats;
mod gc;
mod generate;
mod http;
mod index;
mod inspect;
mod manager;
mod metrics;
mod output;
mod pack;
mod preview;
mod promote;
mod read;
pub mod render;
mod repair;
pub mod report;
mod salvage;
mod shell;
mod signals;
mod status;
mod target_args;
mod terminal;
mod top;
mod verify;

use clap::{Args, CommandFactory, Parser, Subcommand};
use ringreel::config::Config;
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel_ops::status::Status;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

/// A ring of record segments on a shared filesystem, between sample generators and a training job.
#[derive(Parser)]
#[command(
    name = "ringreel",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  ringreel doctor   -c config.yaml                        before a job is queued: whether a ring can live here
  ringreel manager  -c config.yaml                        keep the ring turning
  ringreel generate -c config.yaml --samples 100 --promote   put random samples in
  ringreel read     -c config.yaml --all --json           what is there, a line per sample
  ringreel status   -c config.yaml                        how it goes; live: ringreel top
  ringreel inspect  demo.ring                             what is there; what it looks like: ringreel preview
  ringreel verify   demo.ring                             whether every byte is as it was written
  ringreel repair   -c config.yaml                        what is damaged and can be mended"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log at level debug to stderr; RINGREEL_LOG=error, warn, info or debug sets the level
    #[arg(short, long, global = true)]
    verbose: bool,
}

/// What every subcommand takes.
#[derive(Args)]
struct Common {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = "config.yaml")]
    config: PathBuf,
    /// One JSON object a line on stdout
    #[arg(long)]
    json: bool,
}

/// What subcommands take that look at a ring.
#[derive(Args)]
struct RingArgs {
    /// The ring's directory, where no configuration is at hand
    #[arg(value_name = "RING", conflicts_with = "config")]
    ring: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl RingArgs {
    /// The configuration, or what stands in for it.
    fn config(&self) -> anyhow::Result<Config> {
        match &self.ring {
            Some(ring) => Ok(Config::of_ring(ring)?),
            None => load(&self.common),
        }
    }

    /// Removes from `status` what follows from KEEP, which is not known of a ring given by its
    /// directory: by default, one generation before the newest is kept.
    fn forget_guesses(&self, status: &mut Status) {
        if self.ring.is_some() {
            status.missing.retain(|n| n.saturating_add(1) != status.newest);
        }
    }

    /// The ring, to be looked at: nothing is written, and an index that is away is borne.
    fn look(&self) -> anyhow::Result<Ring> {
        Ok(Ring::find(Arc::new(Posix), &self.config()?)?)
    }
}

#[derive(Subcommand)]
enum Command {
    /// Check whether a ring can live here: configuration, filesystem, index, machine, a pair of nodes
    Doctor(doctor::Options),
    /// Promote full generations, reclaim old ones, bring in what dead generators finished
    #[command(after_help = "\
Examples:
  ringreel manager -c config.yaml                 until Ctrl-C or SIGTERM; a second one stands by
  ringreel manager -c config.yaml --json          a line for each swap")]
    Manager(Common),
    /// Put seeded random samples into the ring
    Generate(generate::Options),
    /// Take samples out
    Read(read::Options),
    /// Make the generation that fills readable as it is
    Promote(promote::Options),
    /// Show generations, fill, rates, and who takes part
    Status(status::Options),
    /// Show the same and more on the terminal, live
    Top(top::Options),
    /// Tell monitoring how it goes: JSON lines, or Prometheus' text
    Metrics(metrics::Options),
    /// Write a page about a ring: what it is, how it went, how it is
    Report(report::Options),
    /// Say what a ring, a generation, a file or a sample is, by path
    Inspect(inspect::Options),
    /// Draw samples: slices through volumes, labels in colours, images
    Preview(preview::Options),
    /// Give a sample, or a part of it, as a file that other programs read
    Cat(cat::Options),
    /// Check every byte of a ring, a generation or a file, by path
    Verify(verify::Options),
    /// Say what is damaged and can be mended, and mend it
    Repair(repair::Options),
    /// Remove what a manager would remove
    Gc(gc::Options),
    /// Write samples as RecordIO, .npy or webdataset files
    Export(export::Options),
    /// Make RecordIO files, or samples in a ring, of images, .npy, NIfTI or text
    Pack(pack::Options),
    /// Show the values in effect, and where each came from
    #[command(after_help = "\
Examples:
  ringreel config -c config.yaml                  every key, its value, and the line it came from")]
    Config(Common),
    /// Show the index, or move it
    Index(index::Options),
    /// Print what a shell completes
    Completions(shell::Completions),
    /// Print the manual, or write its pages
    Man(shell::ManPages),
}

impl Command {
    /// Whether lines on stderr would spoil what it shows.
    fn owns_the_terminal(&self) -> bool {
        matches!(self, Command::Top(options) if !options.once) && std::io::stderr().is_terminal()
    }
}

/// Returns the definition of the command: subcommands, options and their help.
pub fn command() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}

/// Runs the command with these arguments, the first being its own name. Returns its exit status: 0 well, 1 damage was
/// found or something failed, 2 it was asked for something that makes no sense.
pub fn run_from(args: Vec<OsString>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    if !cli.command.owns_the_terminal() {
        log_to_stderr(cli.verbose);
    }
    let done = match &cli.command {
        Command::Doctor(options) => doctor::run(options, cli.verbose),
        Command::Manager(common) => manager::run(common),
        Command::Generate(options) => generate::run(options),
        Command::Read(options) => read::run(options),
        Command::Promote(options) => promote::run(options),
        Command::Status(options) => status::run(options),
        Command::Top(options) => top::run(options),
        Command::Metrics(options) => metrics::run(options),
        Command::Report(options) => report::run(options),
        Command::Inspect(options) => inspect::run(options),
        Command::Preview(options) => preview::run(options),
        Command::Cat(options) => cat::run(options),
        Command::Verify(options) => verify::run(options),
        Command::Repair(options) => repair::run(options),
        Command::Gc(options) => gc::run(options),
        Command::Export(options) => export::run(options),
        Command::Pack(options) => pack::run(options),
        Command::Config(common) => config::run(common),
        Command::Index(options) => index::run(options),
        Command::Completions(options) => shell::completions(options),
        Command::Man(options) => shell::man(options),
    };
    done.unwrap_or_else(|error| {
        let senseless = matches!(
            error.downcast_ref::<ringreel::Error>(),
            Some(ringreel::Error::Config { .. } | ringreel::Error::RingMismatch { .. } | ringreel::Error::Sample(_))
        );
        output::failed(&error, if senseless { 2 } else { 1 })
    })
}

fn log_to_stderr(verbose: bool) {
    let default = if verbose { "ringreel=debug" } else { "ringreel=info" };
    let filter = EnvFilter::try_from_env("RINGREEL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi);
    let log = log.with_timer(output::Clock).with_writer(move || output::PlainLog { colours: ansi });
    let _ = log.with_target(false).try_init(); // a program that runs us may log in its own way
}

fn load(common: &Common) -> anyhow::Result<Config> {
    let config = Config::load(&common.config)?;
    config.notes.iter().for_each(|note| tracing::info!("{note}"));
    Ok(config)
}
