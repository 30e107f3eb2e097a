//! `ringreel report`: [`facts`] are gathered, and [`page()`] makes HTML of them.

pub mod facts;
mod page;
mod plots;
mod text;

use super::RingArgs;
use super::output::{file_of, json_line, may_write, plain_path, refused, replace};
use crate::drawing::MOST_SAMPLES;
use clap::Args;
use facts::{Facts, MOST_SWAPS};
pub use page::page;
use ringreel::humanize::human_bytes;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// What it takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel report demo.ring -o report.html                 a page for a mail, or for later
  ringreel report -c config.yaml -o report.html --samples 0    without pictures of samples

The page needs no other file, no script and no network. It tells what manifests, index and directories say: it does not read
every byte, as ringreel verify does.")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    /// Write the page to this file; `-`: to stdout
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Samples in pictures; 0: none
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u16).range(0..=MOST_SAMPLES as i64))]
    samples: u16,
    /// Swaps that are told, the last ones
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=MOST_SWAPS as i64))]
    swaps: u32,
}

/// Writes the page.
pub(crate) fn run(options: &Options) -> anyhow::Result<i32> {
    let config = options.ring.config()?;
    let file = file_of(Some(&options.out));
    if file.is_none() && options.ring.common.json {
        return Ok(refused("-o - and --json both write to stdout: give a file for the page"));
    }
    if let Some(file) = file
        && let Err(error) = may_write(file, &config.ring)
    {
        return Ok(refused(&format!("{error:#}")));
    }
    let ring = options.ring.look()?;
    let mut facts = Facts::of(&ring, options.swaps as usize, options.samples.into(), config.stale_after)?;
    options.ring.forget_guesses(&mut facts.status);
    let html = page(&facts);
    let Some(file) = file else {
        std::io::stdout().write_all(html.as_bytes())?;
        return Ok(0);
    };
    replace(file, &html)?;
    if options.ring.common.json {
        json_line(&json!({
            "report": file.display().to_string(), "bytes": html.len(), "ring": facts.status.ring, "swaps": facts.swaps.len(),
            "pictures": facts.pictures.is_ok(), "damaged": facts.damaged, "notes": facts.notes,
        }))?;
    } else {
        tracing::info!("{}: {}", plain_path(file), human_bytes(html.len() as u64));
    }
    Ok(0)
}
