//! `ringreel put`: samples of programs that have no library of ours, as `.npz` files.

mod folder;
mod stream;

use super::output::{in_words, is_broken_pipe, json_line, line};
use super::signals::Stop;
use crate::convert::import::ring::sample_of;
use crate::convert::pack::array::Array;
use crate::humanize::human_bytes;
use crate::render::totals;
use clap::Args;
use folder::Folder;
use ringreel::Config;
use ringreel::error::{Error, Result};
use ringreel::segment::SampleId;
use ringreel::write::generator::{Generator, NamedPart, Summary};
use ringreel_format::Meta;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stream::Stream;

/// The arguments of `ringreel put`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  simulate | ringreel put -c config.yaml            a stream of .npz files, each after its length: 8 bytes, little endian
  ringreel put -c config.yaml --watch spool         each .npz file that is renamed into spool; Ctrl-C ends it
  ringreel put -c config.yaml --watch spool --once --promote     the files in spool now

Each sample is one .npz file, whose arrays are the parts. When a sample is finished, its id is printed on stdout; a
watched file is removed. The page \"The stream of ringreel put\" of the documentation says what holds after a crash.")]
pub struct Options {
    #[command(flatten)]
    common: super::Common,
    /// Take the .npz files in this folder instead of stdin, and remove each when its sample is finished
    #[arg(long, value_name = "DIR")]
    watch: Option<PathBuf>,
    /// Take the files in the folder now, then end
    #[arg(long, requires = "watch")]
    once: bool,
    /// At the end, make everything visible, even a generation that is not full
    #[arg(long)]
    promote: bool,
}

/// What a source gives.
enum Next {
    /// A sample, by the names of its parts.
    Sample(Vec<(String, Array)>),
    /// A request to seal what was written.
    Seal,
    /// Nothing for now.
    Nothing,
    /// The end of the stream.
    End,
}

/// Where samples come from.
trait Source {
    /// The next sample. Waits for a short time if there is none.
    fn next(&mut self) -> Result<Next>;

    /// Called once, with the generator, before the first sample is written. Returns ids that were not reported before
    /// and the files of their samples.
    fn begin(&mut self, _generator: &mut Generator) -> Result<Vec<Finished>> {
        Ok(Vec::new())
    }

    /// The ring refused the newest sample.
    fn refused(&mut self, error: Error) -> Result<()> {
        Err(error)
    }

    /// These samples are finished, in the order of [`Source::next`].
    fn finished(&mut self, ids: Vec<SampleId>) -> Result<Vec<Finished>> {
        Ok(ids.into_iter().map(|id| Finished { id, file: None }).collect())
    }

    /// Samples that were refused.
    fn refusals(&self) -> u64 {
        0
    }
}

/// A finished sample, and the name of its file, if it had one.
struct Finished {
    id: SampleId,
    file: Option<String>,
}

/// A `put` that is under way.
struct Put<'a> {
    options: &'a Options,
    config: Config,
    source: Box<dyn Source>,
    generator: Option<Generator>,
    stop: &'a Stop,
}

/// Runs until the stream ends, or until a signal.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let stop = Stop::on_signals()?;
    let config = super::load(&options.common)?;
    let source: Box<dyn Source> = match &options.watch {
        Some(dir) => Box::new(Folder::open(dir, options.once, config.poll)?),
        None => Box::new(Stream::of_stdin()?),
    };
    let mut put = Put { options, config, source, generator: None, stop: &stop };
    let started = Instant::now();
    let done = put.work();
    let refusals = put.source.refusals();
    let Some(mut generator) = put.generator.take() else {
        return done.map(|()| i32::from(refusals > 0));
    };
    if let Err(error) = &done
        && !is_broken_pipe(error)
    {
        generator.failed(&in_words(error));
    }
    let summary = generator.finish(options.promote && done.is_ok(), &|| stop.is_set());
    done?;
    let summary = summary?;
    put.report(&summary, started.elapsed().as_secs_f64())?;
    Ok(i32::from(refusals > 0 || summary.quarantined > 0))
}

impl Put<'_> {
    fn work(&mut self) -> anyhow::Result<()> {
        if let Some(sample) = sample_of(&self.config)? {
            self.open(&sample)?;
        }
        let taken = self.take_all();
        // What was written before an error is sealed, so that its ids are printed.
        let sealed = self.seal();
        taken.and(sealed)
    }

    fn take_all(&mut self) -> anyhow::Result<()> {
        let is_auto = self.config.segment_samples.is_none();
        let mut last = Instant::now();
        while !self.stop.is_set() {
            match self.source.next()? {
                Next::Sample(parts) => {
                    self.write(&parts)?;
                    last = Instant::now();
                }
                Next::Seal => self.seal()?,
                // By now the generator has sealed the segment; its ids are returned by a call.
                Next::Nothing if is_auto && last.elapsed() >= self.config.segment_time + GRACE => {
                    self.seal()?;
                    last = Instant::now();
                }
                Next::Nothing => {}
                Next::End => break,
            }
        }
        Ok(())
    }

    fn open(&mut self, sample: &[String]) -> anyhow::Result<()> {
        let mut config = self.config.clone();
        config.sample = Some(sample.to_vec());
        let mut generator = Generator::open(&config)?;
        let found = self.source.begin(&mut generator);
        self.generator = Some(generator);
        self.print(found?)
    }

    fn write(&mut self, parts: &[(String, Array)]) -> anyhow::Result<()> {
        if self.generator.is_none() {
            let names: Vec<String> = parts.iter().map(|(name, _)| name.clone()).collect();
            self.open(&names)?;
        }
        let Some(generator) = &mut self.generator else { return Ok(()) };
        let named = parts
            .iter()
            .map(|(name, array)| NamedPart::new(name, array.dtype.clone(), &array.shape, &array.data))
            .collect::<Vec<_>>();
        let stop = self.stop;
        match generator.write(&named, &Meta::new(), &|| stop.is_set()) {
            Ok(ids) => self.finished(ids),
            Err(Error::Interrupted { .. }) => Ok(()),
            Err(error @ Error::Sample(_)) => Ok(self.source.refused(error)?),
            Err(error) => Err(error.into()),
        }
    }

    fn seal(&mut self) -> anyhow::Result<()> {
        let Some(generator) = &mut self.generator else { return Ok(()) };
        let ids = generator.seal(&|| self.stop.is_set())?;
        self.finished(ids)
    }

    fn finished(&mut self, ids: Vec<SampleId>) -> anyhow::Result<()> {
        let discarded = self.generator.as_ref().map_or(0, |generator| generator.summary().discarded);
        if discarded > 0 {
            anyhow::bail!("the disk failed, and {discarded} samples are not in the ring");
        }
        let finished = self.source.finished(ids)?;
        self.print(finished)
    }

    fn print(&self, finished: Vec<Finished>) -> anyhow::Result<()> {
        for Finished { id, file } in finished {
            match (self.options.common.json, file) {
                (true, Some(file)) => json_line(&json!({ "sample_id": id.to_string(), "file": file }))?,
                (true, None) => json_line(&json!({ "sample_id": id.to_string() }))?,
                (false, Some(file)) => line(&format!("{id} {file}"))?,
                (false, None) => line(&id.to_string())?,
            }
        }
        Ok(())
    }

    fn report(&self, summary: &Summary, seconds: f64) -> anyhow::Result<()> {
        if self.options.common.json {
            return Ok(json_line(&totals::written(summary, Some(self.source.refusals()), seconds))?);
        }
        tracing::info!("{} samples finished ({}) in {seconds:.1} s", summary.finished, human_bytes(summary.bytes));
        Ok(())
    }
}

/// How much longer than `SEGMENT_SECONDS` to wait for the generator's thread to seal a segment.
const GRACE: Duration = Duration::from_millis(100);
