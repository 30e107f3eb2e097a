//! `ringreel verify`

use super::output::{failed, json_line, line, progress_bytes};
use crate::render::verify as render;
use clap::Args;
use ringreel::config::{Config, MAX_KEEP};
use ringreel::coordination::Claim;
use ringreel::error::{Error, REPAIR};
use ringreel::fs::{Fs, Posix};
use ringreel::humanize::{counted, human_bytes};
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::verify::{Report, verify};
use ringreel_ops::repair;
use ringreel_ops::repair::Liveness;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What it takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel verify demo.ring                    a whole ring, which may be in use
  ringreel verify demo.ring --keep 2           and two generations before the newest one must be there
  ringreel verify demo.ring/read.7 --json      one generation, a line per finding
  ringreel verify train.rec                    a segment, or anybody's RecordIO file

Nothing is written, and no index is asked. Exit status: 0 nothing is damaged, 1 damage was found, 2 it could not look.")]
pub struct Options {
    /// A ring, a generation in it, or a file
    path: PathBuf,
    /// Number of generations that must exist besides the newest (KEEP); without it, absent ones count as reclaimed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_KEEP))]
    keep: Option<u64>,
    /// One JSON object a line on stdout
    #[arg(long)]
    pub json: bool,
    /// Threads that read; by default one for each processor
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
}

/// Checks all that can be checked.
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
        return Err(Error::Sample("--keep is for a ring: this path is none".to_owned()).into());
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
        let Report { subject, generations, files, bytes, readable, unreadable, more, .. } = &report;
        json_line(&json!({
            "subject": subject, "generations": generations, "files": files, "bytes": bytes, "readable": readable,
            "unreadable": unreadable, "findings_not_listed": more, "damaged": report.is_damaged(), "seconds": seconds,
        }))?;
        return Ok(report);
    }
    for finding in &report.findings {
        line(&render::finding(finding))?;
    }
    if report.more > 0 {
        line(&format!("and {} like these", counted(report.more, "finding")))?;
    }
    let what = if report.subject == "RecordIO file" { "record" } else { "sample" };
    line(&format!(
        "a {}: {}, {} read in {seconds:.1} s: {} can be read{}",
        report.subject,
        counted(report.files, "file"),
        human_bytes(report.bytes),
        counted(report.readable, what),
        match report.unreadable {
            0 => String::new(),
            n => format!(", {n} that are listed cannot"),
        }
    ))?;
    if report.is_damaged() {
        line("DAMAGED")?;
        if let Subject::Ring(layout) = &subject {
            line(&format!("next: {}", next(layout.root())))?;
        }
        return Ok(report);
    }
    line(match report.subject {
        "RecordIO file" => "its frames are whole (RecordIO has no checksums: what is in them cannot be checked)",
        _ => "nothing is damaged",
    })?;
    Ok(report)
}

/// The command that mends a damaged ring or, where repair finds nothing to mend, the one that saves
/// what is left of its damaged segments.
fn next(ring: &Path) -> String {
    let plan = || -> ringreel::Result<bool> {
        let (ring, first) =
            repair::ring_json::find_damaged(Arc::new(Posix), &Config::of_ring(ring)?, Claim::Never, false)?;
        let plan = repair::plan_repair(&ring, &Liveness::Unknown)?;
        // Its index may be on a server, of which only a configuration knows.
        Ok(first.is_some() || plan.open().any(|mend| mend.what != "index"))
    };
    // Where repair needs the configuration to say more, `plan` fails.
    if plan().unwrap_or(true) {
        return format!("{REPAIR} (repair cannot mend damaged segments: --salvage DIR saves what is whole of them)");
    }
    format!("`ringreel repair {} --salvage DIR` saves what is whole; readers skip the rest", ring.display())
}
