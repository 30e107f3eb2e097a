//! `ringreel verify`

use super::output::{failed, json_line, line, progress_bytes};
use crate::render::verify as render;
use clap::Args;
use ringreel::config::{Config, MAX_KEEP};
use ringreel::coordination::Claim;
use ringreel::error::Error;
use ringreel::fs::{Fs, Posix};
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::verify::{Report, verify};
use ringreel_ops::repair;
use ringreel_ops::repair::Liveness;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `ringreel verify`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel verify demo.ring                verify a whole ring, which may be in use
  ringreel verify demo.ring --keep 2       also require two generations before the newest
  ringreel verify demo.ring/read.7 --json  verify one generation; print one JSON line per finding
  ringreel verify train.rec                verify a segment, or any RecordIO file

Verify writes nothing and does not use the index.
Exit status: 0 no damage was found, 1 damage was found, 2 the path could not be examined.")]
pub struct Options {
    /// Path of a ring, a generation's directory, or a file
    path: PathBuf,
    /// Number of generations that must exist besides the newest (KEEP) [default: missing ones count as reclaimed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_KEEP))]
    keep: Option<u64>,
    /// Print one JSON object per line to stdout
    #[arg(long)]
    pub json: bool,
    /// Number of reading threads [default: one per processor]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
}

/// Verifies the path. Returns 1 if there is damage.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    Ok(match look(options) {
        Ok(report) => i32::from(report.is_damaged()),
        Err(error) => failed(&error, 2),
    })
}

fn look(options: &Options) -> anyhow::Result<Report> {
    let fs: Arc<dyn Fs> = Arc::new(Posix);
    let subject = Subject::at(&*fs, &options.path)?;
    if options.keep.is_some() && !matches!(subject, Subject::Ring(_)) {
        return Err(Error::Sample("--keep requires the path of a ring".to_owned()).into());
    }
    let fs = subject.fenced(&fs);
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let started = Instant::now();
    let bar = progress_bytes("checking");
    let report = verify(&fs, &subject, options.keep, threads, &|bytes| bar.set_length(bytes), &|more| bar.inc(more))?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    if options.json {
        for finding in &report.findings {
            json_line(&json!({ "finding": render::finding_json(finding) }))?;
        }
        json_line(&render::report_json(&report, seconds)?)?;
        return Ok(report);
    }
    let next = match &subject {
        Subject::Ring(layout) if report.is_damaged() => Some(render::next(layout.root(), can_repair(layout.root()))),
        _ => None,
    };
    render::report(&report, seconds, next).iter().try_for_each(|text| line(text))?;
    Ok(report)
}

/// Returns whether repair has something to do. Returns true if only the configuration could tell.
fn can_repair(ring: &Path) -> bool {
    let plan = || -> ringreel::Result<bool> {
        let (ring, first) =
            repair::ring_json::find_damaged(Arc::new(Posix), &Config::of_ring(ring)?, Claim::Never, false)?;
        let plan = repair::plan_repair(&ring, &Liveness::Unknown)?;
        // The index may be on a server that only the configuration names.
        Ok(first.is_some() || plan.open().any(|action| action.what != "index"))
    };
    plan().unwrap_or(true)
}
