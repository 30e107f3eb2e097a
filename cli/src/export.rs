//! `ringreel export`

use super::output::{failed, json_line, line, plain_path, progress};
use super::signals::Stop;
use crate::convert::export::{Format, Options as Wished, Report, Watch, export};
use crate::humanize::human_bytes;
use clap::{Args, ValueEnum};
use ringreel::config::bytes_option;
use ringreel::error::Error;
use ringreel::fs::{Fs, Posix};
use ringreel_ops::inspect::Subject;
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `ringreel export`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel export demo.ring -o train                      write train.rec and train.idx
  ringreel export demo.ring -o volumes --as npy           write one .npy file per part and sample
  ringreel export demo.ring -o shards/train --as wds      write shards/train-000000.tar, ...
  ringreel export demo.ring -o few --samples 0..10        export ten samples
  ringreel export old.rec   -o new --shard-samples 10000  split a RecordIO file into smaller ones

The output has the order of the input and is the same for any number of threads. To resume an
interrupted export, repeat the command: complete files are kept. Damaged samples are skipped with
a warning.
Exit status: 0 all samples are exported, 1 samples were skipped or the export failed, 2 the
arguments are invalid.")]
pub struct Options {
    /// Path of a ring, a generation's directory, a segment, or a RecordIO file
    path: PathBuf,
    /// Output folder for npy; for other formats, the prefix of the output files
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Output format
    #[arg(long = "as", value_name = "FORMAT", value_enum, default_value_t = As::Rec)]
    format: As,
    /// Export generation N of the ring [default: the newest]
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Export only this part; may be given several times
    #[arg(long = "part", value_name = "NAME")]
    parts: Vec<String>,
    /// With rec: write only the elements of every part, without dtype and shape
    #[arg(long)]
    raw: bool,
    /// Export positions A to B - 1; A.. and ..B leave one end open [default: all]
    #[arg(long, value_name = "A..B", value_parser = range)]
    samples: Option<Range<u64>>,
    /// Maximum number of samples per file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    shard_samples: Option<u64>,
    /// Start a new file after the sample that reaches this size, as in 512MiB [default for wds: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes_option)]
    shard_bytes: Option<u64>,
    /// Number of reading threads [default: one per processor]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Print one JSON object per line to stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum As {
    /// RecordIO with one record per sample and one file per part; bytes and u8 vectors unchanged, other arrays as .npy
    Rec,
    /// A folder of <position>.<part>.npy and <position>.meta.json
    Npy,
    /// Tar files of <id>.<part>.npy and <id>.json, for webdataset
    Wds,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bad = || format!("{text:?} is not a range such as 0..10, 10.. or ..10");
    let (begin, end) = text.split_once("..").ok_or_else(bad)?;
    let number = |text: &str, none: u64| if text.is_empty() { Ok(none) } else { text.parse().map_err(|_| bad()) };
    let range = number(begin, 0)?..number(end, u64::MAX)?;
    if range.is_empty() { Err(format!("the range {text:?} is empty")) } else { Ok(range) }
}

/// Exports the samples. Returns 1 if the export is incomplete.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let started = Instant::now();
    match work(options) {
        Ok(report) => {
            tell(options, &report, started.elapsed().as_secs_f64())?;
            Ok(i32::from(report.is_incomplete()))
        }
        // A path that does not exist gives the same exit status as one that is not a ring or a file of records.
        Err(error) if matches!(error.downcast_ref(), Some(Error::Fs { source }) if source.op == "stat") => {
            Ok(failed(&error, 2))
        }
        Err(error) => Err(error),
    }
}

fn work(options: &Options) -> anyhow::Result<Report> {
    let fs: Arc<dyn Fs> = Arc::new(Posix);
    let subject = Subject::at(&*fs, &options.path)?;
    let fs = subject.fenced(&fs);
    let format = match options.format {
        As::Rec => Format::Rec,
        As::Npy => Format::Npy,
        As::Wds => Format::Wds,
    };
    if options.raw && format != Format::Rec {
        return Err(Error::Sample("--raw requires --as rec: the other formats store dtype and shape".to_owned()).into());
    }
    let end = if format == Format::Wds { ".tar" } else { ".rec" };
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let wished = Wished {
        format,
        out: without_end(&options.output, if format == Format::Npy { "" } else { end }),
        parts: options.parts.clone(),
        raw: options.raw,
        positions: options.samples.clone().unwrap_or(0..u64::MAX),
        shard_samples: options.shard_samples,
        shard_bytes: options.shard_bytes,
        threads,
        force: options.force,
    };
    let stop = Stop::on_signals()?;
    let bar = progress(Some(0), "exporting");
    let watch = Watch { total: &|n| bar.set_length(n), step: &|| bar.inc(1), stop: &|| stop.is_set() };
    let report = export(&fs, subject, options.generation, &wished, &watch);
    bar.finish_and_clear();
    Ok(report?)
}

/// Removes the extension, because `-o train.rec` means `-o train`.
fn without_end(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.and_then(|name| name.strip_suffix(end)) {
        Some(name) if !name.is_empty() => path.with_file_name(name),
        _ => path.to_owned(),
    }
}

fn tell(options: &Options, report: &Report, seconds: f64) -> anyhow::Result<()> {
    let Report { generation, samples, kept, skipped, bytes, files, notes } = report;
    if options.json {
        return Ok(json_line(&json!({
            "generation": generation, "samples": samples, "kept": kept, "skipped": skipped, "bytes": bytes,
            "files": files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(), "notes": notes, "seconds": seconds,
        }))?);
    }
    let records = files.iter().filter(|path| path.extension().is_none_or(|end| end != "idx"));
    for path in records.clone().take(20) {
        line(&plain_path(path))?;
    }
    match records.count() {
        n @ 21.. => line(&format!("and {} more", n - 20))?,
        0 => line(&plain_path(&options.output))?,
        _ => {}
    }
    let of = generation.map_or(String::new(), |n| format!(" of generation {n}"));
    let kept = if *kept > 0 { format!(", {kept} of them from an earlier export") } else { String::new() };
    let skipped = if *skipped > 0 { format!(", {skipped} DAMAGED and skipped") } else { String::new() };
    line(&format!("{samples} samples{of} ({}) in {seconds:.1} s{kept}{skipped}", human_bytes(*bytes)))?;
    Ok(())
}
