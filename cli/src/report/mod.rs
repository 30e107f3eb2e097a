//! `ringreel report`: collects [`facts`], and renders them as HTML by [`page()`].

pub mod facts;
mod page;
mod plots;
mod text;

use super::RingArgs;
use super::output::{file_of, json_line, may_write, plain_path, refused, replace};
use crate::drawing::MOST_SAMPLES;
use crate::humanize::human_bytes;
use clap::Args;
use facts::{Facts, MOST_SWAPS};
pub use page::page;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `ringreel report`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel report demo.ring -o report.html                   write a self-contained HTML page
  ringreel report -c config.yaml -o report.html --samples 0  leave out the pictures of samples

The page needs no other file, no script and no network. It is based on manifests, index and
directories; to check every byte, run `ringreel verify`.")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    /// Write the page to this file; `-` means stdout
    #[arg(short, long, value_name = "PATH")]
    out: PathBuf,
    /// Number of samples to draw; 0 draws none
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(0..=MOST_SAMPLES as i64))]
    samples: u16,
    /// Number of most recent swaps to include
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=MOST_SWAPS as i64))]
    swaps: u32,
}

/// Writes the page.
pub(crate) fn run(options: &Options) -> anyhow::Result<i32> {
    let config = options.ring.config()?;
    let file = file_of(Some(&options.out));
    if file.is_none() && options.ring.common.json {
        return Ok(refused("-o - and --json both write to stdout: write the page to a file, with -o PATH"));
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
