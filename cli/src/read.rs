//! `ringreel read`

use super::Common;
use super::output::{json_line, line, progress, tell};
use super::signals::Stop;
use crate::formats::json::meta_json;
use crate::render::totals;
use clap::Args;
use indicatif::ProgressBar;
use ringreel::error::Error;
use ringreel::manifest::Manifest;
use ringreel::read::shard::{Equal, Share};
use ringreel::read::shuffle::Order;
use ringreel::read::stream::{Item, Stream, StreamOptions};
use ringreel::read::{ReadSample, Reader};
use ringreel::run_log::Epoch;
use ringreel::segment::SampleId;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Arguments of `ringreel read`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel read -c config.yaml --all --json  print one JSON line per sample of the ring
  ringreel read -c config.yaml --rank 0 --world-size 4 --generations 2
                                             read a quarter of the next two generations
  ringreel read -c config.yaml --replay      list the runs whose logs are kept
  ringreel read -c config.yaml --replay RUN --json
                                             print the samples that a run has read, in its order

Exit status: 0 success, 1 a sample is damaged, a generation that KEEP covers is missing, the
timeout expired, or a signal interrupted --all or --replay.")]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// Rank of this reader, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u64,
    /// Number of readers that share the samples
    #[arg(long, value_name = "N", default_value_t = 1)]
    world_size: u64,
    /// Stop after N samples; a generation is read again until there is a newer one
    #[arg(long, value_name = "N", conflicts_with_all = ["generations", "all"])]
    samples: Option<u64>,
    /// Stop after N generations; each is read once, waiting for new ones
    #[arg(long, value_name = "N", conflicts_with = "all")]
    generations: Option<u64>,
    /// Read every sample of all existing generations once, without waiting
    #[arg(long)]
    all: bool,
    /// Shuffle the samples of each epoch
    #[arg(long)]
    shuffle: bool,
    /// Shuffle seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Join this run; all readers of a run read the same sequence of generations
    #[arg(long, value_name = "RUN", conflicts_with = "all")]
    run: Option<String>,
    /// Read the samples that this run has read, in its order; without RUN, list the runs whose logs are kept
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["all", "run", "shuffle", "seed"])]
    replay: Option<String>,
    /// Exit with an error after waiting this long for samples
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Counts of what was read.
struct Tally<'a> {
    options: &'a Options,
    bar: ProgressBar,
    samples: u64,
    bytes: u64,
    damaged: u64,
    gone: u64,
    /// Generations within KEEP whose directories or manifests are missing.
    missing: Vec<u64>,
    /// Whether a signal ended `--all` or `--replay` before all was read.
    interrupted: bool,
}

/// Reads until the requested samples are read, or a signal arrives. Returns 1 if a sample was damaged, a generation
/// within KEEP was missing, or a signal interrupted `--all` or `--replay`.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let stop = Stop::on_signals()?; // first, so that an early SIGTERM also ends in an orderly exit
    let config = super::load(&options.common)?;
    let share = Share::new(options.rank, options.world_size)?;
    let stopped = || stop.is_set();
    let timeout = options.timeout;
    let started = Instant::now();
    if options.replay.as_deref() == Some("") {
        return list_runs(&config, options.common.json);
    }
    let mut tally = Tally {
        options,
        bar: ProgressBar::hidden(),
        samples: 0,
        bytes: 0,
        damaged: 0,
        gone: 0,
        missing: Vec::new(),
        interrupted: false,
    };
    let reader = if options.all {
        let reader = Arc::new(Reader::open(&config)?);
        read_all(&reader, share, &stopped, &mut tally)?;
        reader
    } else if let Some(run) = &options.replay {
        let reader = Arc::new(Reader::open(&config)?);
        replay(&reader, run, share, &stopped, &mut tally)?;
        reader
    } else {
        let opened = std::time::Instant::now();
        let reader = match Reader::wait_for(&config, timeout, &stopped, &mut tell) {
            Err(Error::Interrupted { .. }) => return Ok(0),
            other => Arc::new(other?),
        };
        let waited = opened.elapsed();
        let stream = StreamOptions {
            share,
            shuffle: options.shuffle,
            seed: options.seed,
            epochs: options.generations,
            repeat: options.generations.is_none(),
            timeout,
            prefetch_bytes: config.prefetch_bytes,
            run: options.run.clone(),
            ..StreamOptions::default()
        };
        let stream = Stream::new(reader.clone(), stream)?;
        stream.add_wait(waited);
        read_stream(stream, &stopped, &mut tally)?;
        reader
    };
    tally.missing = reader.missing();
    tally.bar.finish_and_clear();
    tally.tell(started.elapsed().as_secs_f64())?;
    if tally.interrupted {
        tracing::error!("interrupted before all samples were read");
    }
    Ok(i32::from(tally.damaged > 0 || !tally.missing.is_empty() || tally.interrupted))
}

fn list_runs(config: &ringreel::Config, json: bool) -> anyhow::Result<i32> {
    let ring = ringreel::Ring::find(Arc::new(ringreel::fs::Posix), config)?;
    for name in ring.run_names()? {
        let epochs = ring.run(&name)?.epochs()?;
        if json {
            let epochs: Vec<_> =
                epochs.iter().map(|(number, epoch)| json!({ "number": number, "epoch": epoch })).collect();
            json_line(&json!({ "run": name, "epochs": epochs }))?;
        } else {
            let generations: Vec<String> = epochs.iter().map(|(_, epoch)| epoch.generation.to_string()).collect();
            let count: u64 =
                epochs.iter().fold(0, |sum, (_, epoch)| epoch.repeats.saturating_add(1).saturating_add(sum));
            line(&format!("{name}: {count} epochs of generations {}", generations.join(", ")))?;
        }
    }
    Ok(0)
}

/// Reads this reader's share of the samples that a run has read, in its order. Counts reclaimed samples as gone, and names
/// them if their manifest still exists.
fn replay(
    reader: &Reader,
    run: &str,
    share: Share,
    stop: &dyn Fn() -> bool,
    tally: &mut Tally<'_>,
) -> anyhow::Result<()> {
    let ring = reader.ring();
    let epochs = ring.run(run)?.epochs()?;
    anyhow::ensure!(
        !epochs.is_empty(),
        "no log of run {run:?} in the ring at {}: for the existing ones, run `ringreel read --replay`",
        ring.layout.root().display()
    );
    for (last, epoch) in &epochs {
        let manifest = reader.manifest(epoch.generation)?;
        let training = manifest.as_ref().map_or(0..epoch.samples, |manifest| ring.training(manifest));
        let is_rebuilt = manifest.as_ref().is_some_and(|manifest| manifest.summary.lost > 0);
        anyhow::ensure!(
            is_rebuilt || training.end - training.start == epoch.samples,
            "run {run:?} left samples out by a rule (hold_out): replay it in Python, with the same rule"
        );
        let first = training.start;
        for number in last.saturating_sub(epoch.repeats)..=*last {
            let order = Order::of(epoch, number);
            for n in share.positions(epoch.samples) {
                if stop() {
                    tally.interrupted = true;
                    return Ok(());
                }
                let position = first + order.at(n);
                match manifest.as_ref().map(|manifest| reader.sample(manifest, position)) {
                    Some(Ok(sample)) => tally.sample(&sample)?,
                    Some(Err(error @ Error::Damaged { .. })) => tally.damage(&error)?,
                    Some(Err(Error::Reclaimed { .. })) | None => {
                        tally.gone(manifest.as_deref(), position, number, epoch)?;
                    }
                    Some(Err(error)) => return Err(error.into()),
                }
            }
        }
    }
    Ok(())
}

fn read_all(reader: &Reader, share: Share, stop: &dyn Fn() -> bool, tally: &mut Tally<'_>) -> anyhow::Result<()> {
    let kept = reader.kept()?;
    let samples = |manifest: &Arc<Manifest>| share.equal_steps(manifest.summary.samples, Equal::No);
    tally.bar = progress(Some(kept.iter().map(samples).sum()), "reading");
    for manifest in kept {
        for position in share.positions(manifest.summary.samples) {
            if stop() {
                tally.interrupted = true;
                return Ok(());
            }
            match reader.sample(&manifest, position) {
                Ok(sample) => tally.sample(&sample)?,
                Err(error @ Error::Damaged { .. }) => tally.damage(&error)?,
                Err(Error::Reclaimed { generation }) => {
                    if !reader.missing().contains(&generation) {
                        tracing::info!(generation, "generation was reclaimed while it was read");
                    }
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn read_stream(mut stream: Stream, stop: &dyn Fn() -> bool, tally: &mut Tally<'_>) -> anyhow::Result<()> {
    tally.bar = progress(tally.options.samples, "reading");
    while tally.options.samples.is_none_or(|samples| tally.samples < samples) && !stop() {
        match stream.next(stop, &mut tell) {
            Ok(Some(Item::Sample(sample))) => tally.sample(&sample)?,
            Ok(Some(Item::Damaged(error) | Item::Replaced(_, error))) => tally.damage(&error)?,
            Ok(None) | Err(Error::Interrupted { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Tally<'_> {
    fn sample(&mut self, sample: &ReadSample) -> anyhow::Result<()> {
        if self.options.common.json {
            let part = |part: &ringreel::read::ReadPart| {
                let mut told = json!({ "dtype": part.dtype.to_string(), "shape": part.shape });
                match part.data() {
                    Ok(data) => told["crc32"] = crc32fast::hash(data).into(),
                    Err(error) => told["error"] = error.to_string().into(),
                }
                (part.name.clone(), told)
            };
            let parts: serde_json::Map<_, _> = sample.parts.iter().map(part).collect();
            if let Err(error) = sample.check_whole() {
                return self.damage(&error);
            }
            json_line(&json!({
                "generation": sample.generation,
                "position": sample.position,
                "sample_id": sample.id.to_string(),
                "parts": parts,
                "meta": meta_json(&sample.meta),
            }))?;
        }
        self.samples += 1;
        self.bytes += sample.parts.iter().map(|part| part.len()).sum::<u64>();
        self.bar.inc(1);
        Ok(())
    }

    /// Counts a sample of a reclaimed generation.
    fn gone(&mut self, manifest: Option<&Manifest>, position: u64, number: u64, epoch: &Epoch) -> anyhow::Result<()> {
        self.gone += 1;
        if self.options.common.json {
            let listed = manifest.and_then(|manifest| manifest.locate(position));
            let id = listed.map(|(entry, ordinal)| SampleId { segment: entry.id, ordinal }.to_string());
            json_line(&json!({
                "generation": epoch.generation,
                "position": position,
                "sample_id": id,
                "generator": listed.map(|(entry, _)| &*entry.owner),
                "gone": true,
                "epoch": number,
                "seed": epoch.seed,
            }))?;
        }
        Ok(())
    }

    fn damage(&mut self, error: &Error) -> anyhow::Result<()> {
        self.damaged += 1;
        if let (true, Error::Damaged { path, .. }) = (self.options.common.json, error) {
            json_line(&json!({ "error": error.to_string(), "path": path.display().to_string() }))?;
        }
        tracing::error!("{error}");
        Ok(())
    }

    fn tell(&self, seconds: f64) -> anyhow::Result<()> {
        let Tally { samples, bytes, damaged, gone, missing, .. } = self;
        let counts = totals::Read { samples: *samples, bytes: *bytes, damaged: *damaged, gone: *gone, missing };
        let text = totals::read(&counts, seconds);
        if self.options.common.json {
            tracing::info!("{text}");
            return Ok(());
        }
        Ok(line(&text)?)
    }
}
