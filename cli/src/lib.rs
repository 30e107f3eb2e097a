//! The command `ringreel`. Each subcommand has one file. [`render`] turns the facts of `ringreel_ops` into sentences,
//! [`convert`] packs and exports samples, [`drawing`] draws them, and [`formats`] writes parts in the file formats of
//! other programs. Results go to stdout, everything else to stderr; with `--json`, stdout has one JSON object per line.
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
mod humanize;
mod import;
mod index;
mod inspect;
mod manager;
mod metrics;
mod output;
mod pack;
mod preview;
mod promote;
mod put;
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
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A ring of record segments on a shared filesystem, between sample generators and a training job
#[derive(Parser)]
#[command(
    name = "ringreel",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  ringreel doctor   -c config.yaml               check node and filesystem before queueing a job
  ringreel manager  -c config.yaml               promote and reclaim generations until Ctrl-C
  ringreel generate -c config.yaml --samples 100 write random samples
  ringreel read     -c config.yaml --all --json  print one JSON line per sample
  ringreel status   -c config.yaml               show the ring's state; live: ringreel top
  ringreel inspect  demo.ring                    describe the contents; pictures: ringreel preview
  ringreel verify   demo.ring                    verify all checksums
  ringreel repair   -c config.yaml               list the possible repairs"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log at level debug to stderr; RINGREEL_LOG sets another level: error, warn, info or debug
    #[arg(short, long, global = true)]
    verbose: bool,
}

/// Arguments of every subcommand that takes a configuration.
#[derive(Args)]
struct Common {
    /// Use this configuration file
    #[arg(short, long, value_name = "PATH", default_value = "config.yaml")]
    config: PathBuf,
    /// Print one JSON object per line to stdout
    #[arg(long)]
    json: bool,
}

/// Arguments of subcommands that accept a ring's directory in place of a configuration.
#[derive(Args)]
struct RingArgs {
    /// Use the ring in this directory instead of a configuration
    #[arg(value_name = "PATH", conflicts_with = "config")]
    ring: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl RingArgs {
    /// Returns the configuration; for a ring given by its directory, one with default values.
    fn config(&self) -> anyhow::Result<Config> {
        match &self.ring {
            Some(ring) => Ok(Config::of_ring(ring)?),
            None => load(&self.common),
        }
    }

    /// Removes from `status` what depends on KEEP if the ring was given by its directory, because KEEP is then unknown.
    /// The default keeps one generation before the newest.
    fn forget_guesses(&self, status: &mut Status) {
        if self.ring.is_some() {
            status.missing.retain(|n| n.saturating_add(1) != status.newest);
        }
    }

    /// Opens the ring without writing to it. An unreachable index is not an error.
    fn look(&self) -> anyhow::Result<Ring> {
        Ok(Ring::find(Arc::new(Posix), &self.config()?)?)
    }
}

#[derive(Subcommand)]
enum Command {
    /// Check configuration, filesystem, index and machine before running a ring
    Doctor(doctor::Options),
    /// Run maintenance: promote full generations, reclaim old ones, adopt segments
    #[command(after_help = "\
Examples:
  ringreel manager -c config.yaml         run until Ctrl-C; a second manager waits as standby
  ringreel manager -c config.yaml --json  print a JSON line after each swap

The manager promotes full generations, reclaims generations beyond KEEP, and adopts the finished
segments of dead generators. Ctrl-C and SIGTERM stop it; its lease then passes to a standby.")]
    Manager(Common),
    /// Write seeded random samples to the ring
    Generate(generate::Options),
    /// Write the samples of another program to the ring: .npz files on stdin or in a folder
    Put(put::Options),
    /// Read samples from the ring
    Read(read::Options),
    /// Promote the filling generation before it is full
    Promote(promote::Options),
    /// Show generations, fill level, rates and members
    Status(status::Options),
    /// Show the ring's state live in the terminal
    Top(top::Options),
    /// Export metrics as JSON lines or in Prometheus format
    Metrics(metrics::Options),
    /// Write an HTML report on the ring's state and history
    Report(report::Options),
    /// Describe a ring, generation, file or sample
    Inspect(inspect::Options),
    /// Draw samples: slices of volumes, labels in colour, images
    Preview(preview::Options),
    /// Write a sample or one of its parts in a common file format
    Cat(cat::Options),
    /// Verify all checksums of a ring, generation or file
    Verify(verify::Options),
    /// List possible repairs of a ring, or apply them
    Repair(repair::Options),
    /// List or remove files that no process needs
    Gc(gc::Options),
    /// Export samples as RecordIO, .npy or webdataset files
    Export(export::Options),
    /// Import images, .rec, .npy, NIfTI or text into a ring
    Import(import::Options),
    /// Pack images, .npy, NIfTI or text into RecordIO files
    Pack(pack::Options),
    /// Show the effective configuration and the origin of each value
    #[command(after_help = "\
Examples:
  ringreel config -c config.yaml  print every key with its value and where it was set")]
    Config(Common),
    /// Show the index, or move it to another backend
    Index(index::Options),
    /// Generate shell completions
    Completions(shell::Completions),
    /// Print the manual page, or write all pages to a directory
    Man(shell::ManPages),
}

impl Command {
    /// Returns true if log lines on stderr would corrupt the display.
    fn owns_the_terminal(&self) -> bool {
        matches!(self, Command::Top(options) if !options.once) && std::io::stderr().is_terminal()
    }
}

/// Returns the definition of the command: subcommands, options and their help.
pub fn command() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}

/// Runs the command with these arguments, the first being the program's name. Returns the exit status: 0 success, 1
/// damage was found or an operation failed, 2 the arguments, the configuration or the ring are not usable.
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
        Command::Put(options) => put::run(options),
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
        Command::Import(options) => import::run(options),
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
    let default = if verbose { Level::DEBUG } else { Level::INFO };
    let filter = std::env::var("RINGREEL_LOG").ok().and_then(|levels| levels.parse().ok());
    let filter: Targets = filter.unwrap_or_else(|| Targets::new().with_target("ringreel", default));
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt::layer().with_ansi(ansi).with_target(false);
    let log = log.with_timer(output::Clock).with_writer(move || output::PlainLog { colours: ansi });
    // Fails if the calling program has set a logger already.
    let _ = tracing_subscriber::registry().with(log).with(filter).try_init();
}

fn load(common: &Common) -> anyhow::Result<Config> {
    let config = Config::load(&common.config)?;
    config.notes.iter().for_each(|note| tracing::info!("{note}"));
    Ok(config)
}
