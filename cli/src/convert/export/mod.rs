//! Samples into other formats: what [`Samples`] finds, in its order.
//!
//! | file | |
//! |---|---|
//! | here | what is wished for, and the course of it |
//! | [`payload`] | the bytes of a part, and names for files |
//! | [`shards`] | RecordIO and webdataset's tar files, one behind the other |
//! | [`folder`] | a folder of `.npy` files |
//! | [`journal`] | what is finished, for whoever goes on after an interruption |

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

/// Into what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// RecordIO, `.rec` and `.idx`: a record for each sample.
    Rec,
    /// A folder of `.npy` files, a file for each part.
    Npy,
    /// Tar files as webdataset reads them.
    Wds,
}

/// What is wished for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Into what.
    pub format: Format,
    /// The folder; or where the names of the files begin.
    pub out: PathBuf,
    /// The parts that are written; empty: all of them.
    pub parts: Vec<String>,
    /// In RecordIO, the bare elements of every part, without dtype and shape.
    pub raw: bool,
    /// Positions; what is beyond the last sample is left out.
    pub positions: Range<u64>,
    /// Most samples in a file.
    pub shard_samples: Option<u64>,
    /// A file ends with the sample with which it comes to so many bytes.
    pub shard_bytes: Option<u64>,
    /// Threads that read.
    pub threads: usize,
    /// Whether what is in the way is written over.
    pub force: bool,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The generation that the samples are of, where they are of one.
    pub generation: Option<u64>,
    /// Samples in the files, those of earlier attempts included.
    pub samples: u64,
    /// Of these, written by an earlier attempt and left as they are.
    pub kept: u64,
    /// Samples that are damaged, and left out.
    pub skipped: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The files, but for those in a folder of `.npy` files: how many.
    pub files: Vec<PathBuf>,
    /// What could not be looked at, in words: stretches of a file, segments without an end.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether something is missing from the files.
    pub fn is_incomplete(&self) -> bool {
        self.skipped > 0 || !self.notes.is_empty()
    }
}

/// What the caller is told, and what he may say.
pub struct Watch<'a> {
    /// How many samples there are to write.
    pub total: &'a dyn Fn(u64),
    /// One more is done.
    pub step: &'a dyn Fn(),
    /// Whether to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// Where samples are put, one after the other.
trait Sink {
    /// Takes the next sample: position, name, payloads and meta as JSON; or nothing, where it is damaged.
    fn take(&mut self, position: u64, sample: Option<Sample>) -> Result<()>;
    /// The next sample stands there already.
    fn keep(&mut self);
    /// All samples were taken.
    fn finish(&mut self) -> Result<()>;
}

/// A sample, ready to be written.
struct Sample {
    key: String,
    parts: Vec<Payload>,
    /// Its meta, its id and where it came from.
    about: serde_json::Value,
}

/// Writes the samples of `subject`: of a ring, those of `generation`, or of the newest one that holds any.
///
/// # Errors
/// A ring without samples; a generation that is gone; files in the way; what the filesystem says. Damaged samples are
/// no error: they are left out, counted, and told to the log.
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

#[allow(clippy::too_many_arguments)] // once, and each is another thing
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
                tracing::warn!("sample {n} is skipped: {error}");
                sink.take(n, None)
            }
        }
    })?;
    sink.finish()
}

/// An error of one sample alone.
///
/// # Errors
/// Itself, where it is of all that are left: of what was asked for, of the filesystem, of a directory that is gone.
fn of_one_sample(fs: &dyn Fs, subject: &Subject, samples: &Samples, error: Error) -> Result<Error> {
    let source = match error {
        Error::Sample(message) if message.starts_with("--part") => return Err(Error::Sample(message)),
        Error::Fs { source } => source,
        damaged => return Ok(damaged),
    };
    // The file ends before its sample does: that is damage.
    if source.source.kind() == io::ErrorKind::UnexpectedEof {
        return Ok(source.into());
    }
    if !source.is_gone() {
        return Err(source.into());
    }
    match (subject, samples.generation()) {
        (Subject::Generation(layout, GenerationDir::Write(n)), _) if !fs.exists(&layout.write(*n))? => {
            let dir = layout.write(*n);
            let why = format!("{} is not there any more: generation {n} was promoted", dir.display());
            Err(Error::Sample(format!("{why}; export it once more, with --generation {n}")))
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
    // A foreign record is bytes of which nothing is known.
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

/// What is written, and of what: two attempts with the same plan write the same bytes.
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
            // Without a manifest, the directory may still fill: then what is there now counts.
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
