//! `ringreel generate`: seeded random samples, for demonstrations and tests.

use super::Common;
use super::output::{in_words, is_broken_pipe, json_line, line, progress};
use super::signals::Stop;
use crate::humanize::human_bytes;
use crate::render::totals;
use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use ringreel::config::check_names;
use ringreel::segment::SampleId;
use ringreel::write::generator::{Generator, NamedPart, Summary};
use ringreel::{Config, Error};
use ringreel_format::dtype::MAX_NDIM;
use ringreel_format::{DType, Meta, Value};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `ringreel generate`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel generate -c config.yaml --samples 100 --shape 64,64,64 --dtype u8 --promote
                                                      write 100 samples and make them readable
  ringreel generate -c config.yaml --rate 2 --seed 7  write two samples per second until Ctrl-C")]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// Number of samples [default: continue until Ctrl-C or SIGTERM]
    #[arg(long, value_name = "N")]
    samples: Option<u64>,
    /// Shape of each part
    #[arg(long, value_delimiter = ',', value_name = "N,N,...", default_value = "64,64,64")]
    shape: Vec<u64>,
    /// Element type of each part, such as bool, u8, i16 or f32
    #[arg(long, value_name = "DTYPE", default_value = "u8")]
    dtype: String,
    /// Names of the parts [default: SAMPLE of the configuration]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    parts: Option<Vec<String>>,
    /// Random seed; sample n of a seed is always the same
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Maximum number of samples per second, 0.000001 to 1000000000; 0 means no limit
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// Promote the last generation at the end, even if it is not full
    #[arg(long)]
    promote: bool,
    /// Append the id of each finished sample to this file, one per line, flushed after each
    #[arg(long, value_name = "PATH")]
    ledger: Option<PathBuf>,
}

/// Parses `--rate`.
fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate| *rate == 0.0 || (1e-6..=1e9).contains(rate))
        .ok_or_else(|| "expected samples per second, 0.000001 to 1000000000, or 0".to_owned())
}

/// Generates until all samples are written, or a signal arrives. Returns 1 if a finished sample is in quarantine.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let stop = Stop::on_signals()?; // first, so that an early SIGTERM also ends in an orderly exit
    let mut config = super::load(&options.common)?;
    let plan = Plan::new(options, &mut config)?;
    let mut ledger = options.ledger.as_ref().map(Ledger::open).transpose()?;
    let stopped = || stop.is_set();
    let mut generator = Generator::open(&config)?;
    let bar = progress(options.samples, "generating");
    let started = Instant::now();
    let filled = fill(&mut generator, options, &plan, &mut ledger, &stop, &bar);
    let ring = generator.ring().clone();
    ring.check_is_there()?; // first, because a removed ring causes the other errors
    if let Err(error) = &filled
        && !is_broken_pipe(error)
    {
        generator.failed(&in_words(error));
    }
    filled?;
    let summary = generator.finish(options.promote, &stopped);
    ring.check_is_there()?;
    let summary = summary?;
    bar.finish_and_clear();
    tell(options, &summary, started.elapsed().as_secs_f64())?;
    Ok(i32::from(summary.quarantined > 0))
}

/// Writes the samples until the last one or a signal, and seals them.
fn fill(
    generator: &mut Generator,
    options: &Options,
    plan: &Plan,
    ledger: &mut Option<Ledger>,
    stop: &Stop,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let (stopped, started) = (|| stop.is_set(), Instant::now());
    let mut report = |ids: Vec<SampleId>| -> anyhow::Result<()> {
        for id in ids {
            ledger.as_mut().map_or(Ok(()), |ledger| ledger.add(id))?;
            if options.common.json {
                json_line(&json!({ "sample_id": id.to_string() }))?;
            }
        }
        Ok(())
    };
    let mut n = 0;
    while options.samples.is_none_or(|samples| n < samples) && !stop.is_set() {
        if let Some(rate) = options.rate.filter(|rate| *rate > 0.0) {
            let due = Duration::try_from_secs_f64(n as f64 / rate).unwrap_or(Duration::MAX);
            stop.sleep(due.saturating_sub(started.elapsed()));
        }
        match plan.write(generator, n, &stopped) {
            Ok(ids) => report(ids)?,
            Err(Error::Interrupted { .. }) => break,
            Err(error) => return Err(error.into()),
        }
        n += 1;
        bar.inc(1);
    }
    report(generator.seal(&stopped)?)
}

fn tell(options: &Options, summary: &Summary, seconds: f64) -> anyhow::Result<()> {
    match options.common.json {
        true => json_line(&totals::written(summary, None, seconds))?,
        false => line(&totals::generated(summary, seconds))?,
    }
    Ok(())
}

/// Rejects samples that do not fit into memory, before anything is allocated.
fn check_memory(part: u64, parts: usize) -> ringreel::Result<()> {
    let (sample, most) = (part.saturating_mul(parts as u64), ringreel::memory::bytes() / 2);
    if sample <= most {
        return Ok(());
    }
    let (sample, most) = (human_bytes(sample), human_bytes(most));
    Err(Error::Sample(format!("--shape: a sample of {sample} exceeds half of this machine's memory, {most}")))
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

struct Plan {
    dtype: DType,
    shape: Vec<u64>,
    len: usize,
    names: Vec<String>,
    seed: u64,
}

impl Plan {
    fn new(options: &Options, config: &mut Config) -> anyhow::Result<Plan> {
        let dtype = DType::from_name(&options.dtype).ok_or_else(|| {
            Error::Sample(format!("--dtype: unknown type {:?}; expected bool, u8, i16, f32, ...", options.dtype))
        })?;
        let shape = options.shape.clone();
        let len = dtype.byte_len(&shape).map_err(|error| Error::Sample(format!("--shape: {error}")))?;
        if len > config.max_part {
            return Err(
                Error::Sample(format!("--shape: a part of {len} bytes exceeds MAX_PART {}", config.max_part)).into()
            );
        }
        check_memory(len, options.parts.as_ref().or(config.sample.as_ref()).map_or(1, Vec::len))?;
        if shape.len() > MAX_NDIM {
            return Err(Error::Sample(format!("--shape: {} axes exceed the limit of {MAX_NDIM}", shape.len())).into());
        }
        let names = match (&options.parts, &config.sample) {
            (Some(parts), Some(sample)) if sorted(parts) != sorted(sample) => {
                let (given, wanted) = (parts.join(", "), sample.join(", "));
                let message = format!("--parts is [{given}], but SAMPLE is [{wanted}]: they must be the same");
                return Err(Error::Sample(message).into());
            }
            (Some(parts), _) => parts.clone(),
            (None, Some(sample)) => sample.clone(),
            (None, None) => return Err(Error::Sample("no names of parts: set SAMPLE or --parts".to_owned()).into()),
        };
        check_names(&names).map_err(|why| Error::Sample(format!("--parts {names:?}: {why}")))?;
        config.sample.get_or_insert_with(|| names.clone());
        Ok(Plan { dtype, shape, len: len as usize, names, seed: options.seed })
    }

    /// Writes sample `n`. Its meta has the seed, `n`, and each part's CRC-32, so that readers can check it.
    fn write(&self, generator: &mut Generator, n: u64, stop: &dyn Fn() -> bool) -> ringreel::Result<Vec<SampleId>> {
        let (mut crcs, mut buffers) = (Meta::new(), Vec::new());
        for (part, name) in self.names.iter().enumerate() {
            let data = random_bytes(self.len, &self.dtype, self.seed, n, part as u64);
            crcs.set(name.as_str(), u64::from(crc32fast::hash(&data)));
            buffers.push(data);
        }
        let mut meta = Meta::new();
        meta.set("seed", self.seed);
        meta.set("n", n);
        meta.set("crc32", Value::Map(crcs));
        let named = self.names.iter().zip(&buffers);
        let parts: Vec<_> =
            named.map(|(name, data)| NamedPart::new(name, self.dtype.clone(), &self.shape, data)).collect();
        generator.write(&parts, &meta, stop)
    }
}

/// Returns random bytes of SplitMix64 (Steele, Lea, Flood 2014), seeded by `seed`, `n` and `part`. Floats are in [1, 2),
/// booleans 0 or 1.
fn random_bytes(len: usize, dtype: &DType, seed: u64, n: u64, part: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.rotate_left(32) ^ part.rotate_left(56);
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (keep, set): (u64, u64) = match dtype {
        DType::Bool => (0x0101_0101_0101_0101, 0),
        DType::F16 => (0x03ff_03ff_03ff_03ff, 0x3c00_3c00_3c00_3c00),
        DType::BF16 => (0x007f_007f_007f_007f, 0x3f80_3f80_3f80_3f80),
        DType::F32 | DType::C64 => (0x007f_ffff_007f_ffff, 0x3f80_0000_3f80_0000),
        DType::F64 | DType::C128 => (0x000f_ffff_ffff_ffff, 0x3ff0_0000_0000_0000),
        _ => (u64::MAX, 0),
    };
    let mut out = vec![0; len];
    for word in out.chunks_mut(8) {
        word.copy_from_slice(&(next() & keep | set).to_le_bytes()[..word.len()]);
    }
    out
}

struct Ledger(File, PathBuf);

impl Ledger {
    fn open(path: &PathBuf) -> anyhow::Result<Ledger> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Ledger(file.with_context(|| format!("the ledger {}", path.display()))?, path.clone()))
    }

    fn add(&mut self, id: SampleId) -> anyhow::Result<()> {
        self.0.write_all(format!("{id}\n").as_bytes()).with_context(|| format!("the ledger {}", self.1.display()))
    }
}
