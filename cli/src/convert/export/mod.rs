//! Exports samples to other formats, in the order of [`Samples`].
//!
//! | file | contents |
//! |---|---|
//! | this one | options and control flow |
//! | [`payload`] | the bytes and file names of parts |
//! | [`shards`] | sequences of RecordIO or webdataset's tar files |
//! | [`folder`] | a folder of `.npy` files |
//! | [`journal`] | finished shards, to resume an interrupted export |

pub mod folder;
pub mod journal;
pub mod payload;
pub mod shards;

use crate::formats::json::meta_json;
use payload::Payload;
use ringreel::error::{Error, FsError, Result};
use ringreel::fs::Fs;
use ringreel::layout::GenerationDir;
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::samples::{Item, Samples};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// RecordIO, `.rec` and `.idx`: one record per sample.
    Rec,
    /// A folder of `.npy` files, one per part.
    Npy,
    /// Tar files for webdataset.
    Wds,
}

/// Options of an export.
#[derive(Clone, Debug)]
pub struct Options {
    /// The output format.
    pub format: Format,
    /// The folder, or the prefix of the files.
    pub out: PathBuf,
    /// The parts to export; empty means all.
    pub parts: Vec<String>,
    /// For RecordIO: write only the elements of every part, without dtype and shape.
    pub raw: bool,
    /// The positions to export; those beyond the last sample are ignored.
    pub positions: Range<u64>,
    /// Most samples per file.
    pub shard_samples: Option<u64>,
    /// A file ends after the sample that reaches this size in bytes.
    pub shard_bytes: Option<u64>,
    /// Number of reading threads.
    pub threads: usize,
    /// Whether existing files are overwritten.
    pub force: bool,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The generation of the samples, if they belong to one.
    pub generation: Option<u64>,
    /// Number of exported samples, including those of earlier attempts.
    pub samples: u64,
    /// Number of samples exported by earlier attempts.
    pub kept: u64,
    /// Number of damaged samples, which were skipped.
    pub skipped: u64,
    /// Size of the files in bytes.
    pub bytes: u64,
    /// The files, except in a folder of `.npy` files.
    pub files: Vec<PathBuf>,
    /// What could not be read: byte ranges of a file, segments without a footer.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns whether samples are missing from the files.
    pub fn is_incomplete(&self) -> bool {
        self.skipped > 0 || !self.notes.is_empty()
    }
}

/// Callbacks for progress and cancellation.
pub struct Watch<'a> {
    /// Called with the number of samples to write.
    pub total: &'a dyn Fn(u64),
    /// Called after each sample.
    pub step: &'a dyn Fn(),
    /// Returns whether to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// The destination of samples.
trait Sink {
    /// Takes the next sample; `None` if it is damaged.
    fn take(&mut self, position: u64, sample: Option<Sample>) -> Result<()>;
    /// Counts the next sample, which an earlier attempt has written.
    fn keep(&mut self);
    /// Completes the output after the last sample.
    fn finish(&mut self) -> Result<()>;
}

/// A sample, ready to be written.
struct Sample {
    key: String,
    parts: Vec<Payload>,
    /// Its meta, id and position.
    about: serde_json::Value,
}

/// Exports the samples of `subject`; of a ring, those of `generation`, or of the newest one that has any. Damaged samples
/// are not an error: they are skipped, counted and logged.
///
/// # Errors
/// A ring without samples; a reclaimed generation; existing files; the filesystem's errors.
pub fn export(
    fs: &Arc<dyn Fs>,
    subject: Subject,
    generation: Option<u64>,
    options: &Options,
    watch: &Watch<'_>,
) -> Result<Report> {
    let subject = match (subject, generation) {
        (Subject::Ring(layout), Some(n)) => Subject::Generation(layout, GenerationDir::Read(n)),
        (subject, None) => subject,
        (_, Some(_)) => return Err(Error::Sample("--generation requires the path of a ring".to_owned())),
    };
    if let Subject::Generation(layout, GenerationDir::Read(n)) = &subject
        && !fs.exists(&layout.read(*n))?
    {
        return Err(Error::Reclaimed { generation: *n });
    }
    let samples = Samples::open(fs.clone(), &subject)?;
    crate::render::samples::warn(&samples);
    let positions = options.positions.start.min(samples.len())..options.positions.end.min(samples.len());
    let notes = crate::render::samples::notes(&samples).collect();
    let mut report = Report { generation: samples.generation(), notes, ..Report::default() };
    let plan = plan(&**fs, &subject, &samples, options, &positions)?;
    match options.format {
        Format::Npy => {
            let mut folder = folder::Folder::open(options, &plan, &mut report)?;
            let wanted = |n| !folder::is_there(&options.out, n);
            run(&samples, &subject, &**fs, options, positions, &wanted, watch, &mut folder)?;
        }
        _ => {
            let mut shards = shards::Shards::open(options, &plan, positions.start, &mut report)?;
            let left = shards.next()..positions.end;
            run(&samples, &subject, &**fs, options, left, &|_| true, watch, &mut shards)?;
        }
    }
    Ok(report)
}

#[allow(clippy::too_many_arguments)] // called in one function
fn run(
    samples: &Samples,
    subject: &Subject,
    fs: &dyn Fs,
    options: &Options,
    positions: Range<u64>,
    wanted: &(dyn Fn(u64) -> bool + Sync),
    watch: &Watch<'_>,
    sink: &mut dyn Sink,
) -> Result<()> {
    (watch.total)(positions.end.saturating_sub(positions.start));
    let work = |n| wanted(n).then(|| samples.get(n).and_then(|item| prepared(&item, options)));
    ringreel::sched::in_order(positions, options.threads, &work, |n, sample| {
        if (watch.stop)() {
            return Err(Error::Interrupted { what: format!("the end of the export (at sample {n})") });
        }
        (watch.step)();
        match sample {
            None => {
                sink.keep();
                Ok(())
            }
            Some(Ok(sample)) => sink.take(n, Some(sample)),
            Some(Err(error)) => {
                let error = of_one_sample(fs, subject, samples, error)?;
                tracing::warn!("sample {n} skipped: {error}");
                sink.take(n, None)
            }
        }
    })?;
    sink.finish()
}

/// Returns the error if it concerns one sample alone.
///
/// # Errors
/// An error that concerns all further samples: of the options, of the filesystem, of a removed directory.
fn of_one_sample(fs: &dyn Fs, subject: &Subject, samples: &Samples, error: Error) -> Result<Error> {
    let source = match error {
        Error::Sample(message) if message.starts_with("--part") => return Err(Error::Sample(message)),
        Error::Fs { source } => source,
        damaged => return Ok(damaged),
    };
    // A file that ends within a sample is damaged.
    if source.source.kind() == io::ErrorKind::UnexpectedEof {
        return Ok(source.into());
    }
    if !source.is_gone() {
        return Err(source.into());
    }
    match (subject, samples.generation()) {
        (Subject::Generation(layout, GenerationDir::Write(n)), _) if !fs.exists(&layout.write(*n))? => {
            let dir = layout.write(*n);
            let why = format!("{} does not exist any more: generation {n} was promoted", dir.display());
            Err(Error::Sample(format!("{why}; export again, with --generation {n}")))
        }
        (Subject::Ring(layout) | Subject::Generation(layout, GenerationDir::Read(_)), Some(generation))
            if !fs.exists(&layout.read(generation))? =>
        {
            Err(Error::Reclaimed { generation })
        }
        (Subject::File(_), _) => Err(source.into()),
        _ => Ok(source.into()),
    }
}

fn prepared(item: &Item, options: &Options) -> Result<Sample> {
    let wanted = |name: &str| options.parts.is_empty() || options.parts.iter().any(|part| part == name);
    for name in &options.parts {
        if !item.parts.iter().any(|part| part.name == *name) {
            let there: Vec<_> = item.parts.iter().map(|part| part.name.as_str()).collect();
            return Err(Error::Sample(format!("--part {name}: the samples' parts are {}", there.join(", "))));
        }
    }
    // A record of a RecordIO file is bytes of unknown type.
    let bare = |part: &ringreel_format::Part| {
        item.id.is_none() || options.format == Format::Rec && (options.raw || payload::is_plain(part))
    };
    let parts = item.parts.iter().filter(|part| wanted(&part.name));
    let parts = parts.map(|part| Payload::of(part, bare(part))).collect::<Result<Vec<_>>>()?;
    // A dot would end the key: https://github.com/webdataset/webdataset, "the name up to the first dot".
    let key = item.id.map_or_else(|| format!("{:09}", item.position), |id| id.to_string().replace('.', "-"));
    let shapes = item
        .parts
        .iter()
        .filter(|part| wanted(&part.name))
        .map(|part| (part.name.clone(), json!({ "dtype": part.dtype.to_string(), "shape": part.shape })));
    let about = json!({
        "id": item.id.map(|id| id.to_string()), "position": item.position,
        "parts": shapes.collect::<serde_json::Map<_, _>>(), "meta": meta_json(&item.meta),
    });
    Ok(Sample { key, parts, about })
}

/// Returns a description of input and options: two attempts with the same plan write the same bytes.
fn plan(
    fs: &dyn Fs,
    subject: &Subject,
    samples: &Samples,
    options: &Options,
    positions: &Range<u64>,
) -> Result<serde_json::Value> {
    let file = |path: &Path| -> Result<serde_json::Value> {
        let there = std::fs::metadata(path).map_err(|error| FsError::new("stat", path, error))?;
        Ok(
            json!({ "path": path.to_string_lossy(), "bytes": there.len(), "changed": (there.mtime(), there.mtime_nsec()) }),
        )
    };
    let of = match (subject, samples.generation()) {
        (Subject::File(path), _) => file(path)?,
        (Subject::Ring(layout) | Subject::Generation(layout, _), Some(n)) => {
            let manifest = layout.manifest(n);
            let listed =
                if fs.exists(&manifest)? { Some(crc32fast::hash(&fs.read(&manifest, 1 << 30)?)) } else { None };
            // Without a manifest, the directory may still fill, so the number of samples is part of the plan.
            json!({ "ring": layout.root().to_string_lossy(), "generation": n, "manifest_crc32": listed, "samples": samples.len() })
        }
        (subject, None) => return Err(Error::Sample(format!("{subject:?} has no generation"))),
    };
    let Options { format, parts, raw, shard_samples, shard_bytes, .. } = options;
    Ok(json!({
        "of": of, "as": format, "first": positions.start, "end": positions.end, "parts": parts, "raw": raw,
        "shard_samples": shard_samples, "shard_bytes": shard_bytes,
    }))
}
