//! `ringreel import`

use super::output::{json_line, line, progress};
use super::signals::Stop;
use crate::convert::import::images::{self, Images};
use crate::convert::import::journal::Journal;
use crate::convert::import::records::{self, Content};
use crate::convert::import::ring::{Target, check_parts, sample_of};
use crate::convert::import::{self, Import, files, lines, picture};
use crate::convert::pack::inputs::{Input, Pattern, find};
use crate::convert::pack::{Done, Watch};
use clap::{Args, ValueEnum};
use ringreel::error::{Error, FsError, Result};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The arguments of `ringreel import`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel import -c config.yaml volumes --journal done.txt     one sample per .npy file below volumes
  ringreel import -c config.yaml scans --part 'data=*_t1.nii.gz' --part 'label=*_seg.nii.gz'
                                                     samples of two parts, matched by the *
  ringreel import -c config.yaml photos --resize 256     images; folders of images give the label
  ringreel import -c config.yaml train.lst --root photos     images and labels of an im2rec list
  ringreel import -c config.yaml train.rec --journal done.txt     images and labels of an MXNet .rec file

Parts: images and records give an image and, if SAMPLE has two parts, its label; SAMPLE names both, in this order. The
meta of a sample says which input it was made of. Samples become visible at the end. Exit status: 0 all inputs are
imported, 1 some were skipped or the import failed, 2 wrong usage.")]
pub struct Options {
    /// Files and folders
    #[arg(value_name = "PATH", num_args = 1.., required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    common: super::Common,
    /// What the paths hold; by default their file names decide
    #[arg(long, value_name = "KIND", value_enum)]
    from: Option<From>,
    /// Files of one part: a path below the folder with one *, which matches the same text in all parts
    #[arg(long = "part", value_name = "NAME=PATTERN", value_parser = Pattern::parse)]
    parts: Vec<Pattern>,
    /// Note finished inputs in this file, and leave out those that are noted
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Number of threads; by default one per processor
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// End at the first input that cannot be imported
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    images: ImageOptions,
}

/// How images are stored.
#[derive(Args)]
#[command(next_help_heading = "Images and records")]
struct ImageOptions {
    /// Folder of the images that lists name; by default the list's folder
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Store the bytes of the image file, not its pixels
    #[arg(long, conflicts_with_all = ["resize", "center_crop", "color"])]
    encoded: bool,
    /// Length of the shorter side; 0: unchanged
    #[arg(long, value_name = "PIXELS", default_value_t = 0)]
    resize: u32,
    /// Store the square in the middle
    #[arg(long)]
    center_crop: bool,
    /// 1: three channels; 0: one channel; by default as in the file, without transparency
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i8).range(0..=1))]
    color: Option<i8>,
    /// Records: store the whole payload as bytes
    #[arg(long, conflicts_with_all = ["encoded", "resize", "center_crop", "color"])]
    raw: bool,
}

/// What is imported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum From {
    /// JPEG and PNG files, folders of them, and .lst files
    Images,
    /// Records of .rec files
    Rec,
    /// Arrays in .npy files
    Npy,
    /// Volumes in .nii and .nii.gz files
    Nifti,
    /// Lines of text
    Text,
}

/// The inputs of an import.
enum Inputs {
    Files(Vec<Input>),
    Images(Images),
    Records(Vec<PathBuf>),
    Text,
}

/// Imports.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let stop = Stop::on_signals()?;
    let config = super::load(&options.common)?;
    let sample = sample_of(&config)?;
    let (inputs, names, notes) = inputs(options, sample.as_deref())?;
    check_parts(&names, sample.as_deref())?;
    if let Some(note) = notes.first().filter(|_| options.strict) {
        return Err(Error::Sample(note.clone()).into());
    }
    notes.iter().for_each(|note| tracing::warn!("skipped: {note}"));
    let journal = options.journal.as_ref().map(|path| Journal::open(path)).transpose()?;
    let stopped = || stop.is_set();
    let target = Target::open(&config, &names, journal, &stopped)?;
    let started = Instant::now();
    let total = match &inputs {
        Inputs::Files(files) => Some(files.len() as u64),
        Inputs::Images(found) => Some(found.images.len() as u64),
        Inputs::Records(_) | Inputs::Text => None,
    };
    let bar = progress(total, "importing");
    let watch = Watch { total: &|n| bar.set_length(n), step: &|| bar.inc(1), stop: &stopped };
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let mut import = Import::new(target, import::Options { threads, strict: options.strict }, &watch);
    let imported = feed(&mut import, options, &inputs, &names);
    let done = import.end(imported);
    bar.finish_and_clear();
    let mut done = done?;
    done.skipped += notes.len() as u64;
    report(options, &done, started.elapsed().as_secs_f64())?;
    Ok(i32::from(done.skipped > 0))
}

fn feed(import: &mut Import<'_>, options: &Options, inputs: &Inputs, names: &[String]) -> Result<()> {
    let ImageOptions { encoded, resize, center_crop, color, raw, .. } = options.images;
    let stored = picture::Options { encoded, resize, center_crop, color };
    let has_label = names.len() > 1;
    match inputs {
        Inputs::Files(inputs) => files::import(import, inputs, names, &stored),
        Inputs::Images(found) => images::import(import, &found.images, has_label, &stored),
        Inputs::Records(paths) if raw => records::import(import, paths, Content::Raw),
        Inputs::Records(paths) => records::import(import, paths, Content::Image { has_label, options: stored }),
        Inputs::Text => lines::import(import, &options.paths),
    }
}

/// The inputs, the parts of their samples, and what was skipped.
fn inputs(options: &Options, sample: Option<&[String]>) -> Result<(Inputs, Vec<String>, Vec<String>)> {
    let paths = &options.paths;
    if !options.parts.is_empty() {
        if matches!(options.from, Some(From::Rec | From::Text)) {
            return Err(Error::Sample("--part is for files: a record or a line is the whole of its sample".to_owned()));
        }
        let (files, notes) = find(paths, &options.parts)?;
        let names = options.parts.iter().filter_map(|pattern| pattern.part.clone()).collect();
        return Ok((Inputs::Files(files), names, notes));
    }
    let from = options.from.map_or_else(|| kind_of(paths), Ok)?;
    if options.images.raw && from != From::Rec {
        return Err(Error::Sample("--raw is for records".to_owned()));
    }
    match from {
        From::Npy => one_part(paths, &[".npy"], sample),
        From::Nifti => one_part(paths, &[".nii", ".nii.gz"], sample),
        From::Text => Ok((Inputs::Text, names(&["data"], sample)?, Vec::new())),
        From::Rec => {
            let given: &[&str] = if options.images.raw { &["data"] } else { &["image", "label"] };
            let (files, notes) = find(paths, &[Pattern::of_ends(&[".rec"])])?;
            let files = files.into_iter().flat_map(|input| input.files).collect();
            Ok((Inputs::Records(files), names(given, sample)?, notes))
        }
        From::Images => {
            let mut found = images::find(paths, options.images.root.as_deref())?;
            let names = names(if found.have_labels { &["image", "label"] } else { &["image"] }, sample)?;
            let notes = std::mem::take(&mut found.notes);
            Ok((Inputs::Images(found), names, notes))
        }
    }
}

fn one_part(paths: &[PathBuf], ends: &[&str], sample: Option<&[String]>) -> Result<(Inputs, Vec<String>, Vec<String>)> {
    let names = names(&["data"], sample)?;
    let (files, notes) = find(paths, &[Pattern::of_ends(ends)])?;
    Ok((Inputs::Files(files), names, notes))
}

/// The names of the parts that an input gives, at most `given`: those of SAMPLE, if it has as many or only the first.
fn names(given: &[&str], sample: Option<&[String]>) -> Result<Vec<String>> {
    match sample {
        None => Ok(given.iter().map(|name| (*name).to_owned()).collect()),
        Some(sample) if sample.len() == 1 || sample.len() == given.len() => Ok(sample.to_vec()),
        Some(sample) => {
            let (has, parts) = (given.join(", "), sample.join(", "));
            let why = format!("an input gives {has}, and SAMPLE is [{parts}]: --part says which files are which part");
            Err(Error::Sample(why))
        }
    }
}

/// The kind that the names of files say, of those at `paths` and below them.
fn kind_of(paths: &[PathBuf]) -> Result<From> {
    let mut kinds = BTreeSet::new();
    for path in paths {
        let there = std::fs::metadata(path).map_err(|error| FsError::new("look at", path, error))?;
        if there.is_dir() {
            // A folder that holds nothing of a kind is an error of `find`; one that is not readable, too.
            let any = Pattern::of_ends(&[""]);
            let (found, _) = find(std::slice::from_ref(path), &[any])?;
            kinds.extend(found.iter().flat_map(|input| &input.files).filter_map(|file| kind_of_name(file)));
        } else {
            kinds.extend(kind_of_name(path));
        }
    }
    match kinds.iter().copied().collect::<Vec<_>>()[..] {
        [kind] => Ok(kind),
        [] => Err(Error::Sample("the names of the files do not say what they hold: --from KIND does".to_owned())),
        _ => Err(Error::Sample("there are files of several kinds: --from KIND chooses one of them".to_owned())),
    }
}

fn kind_of_name(path: &Path) -> Option<From> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let kinds = [
        (From::Npy, &[".npy"][..]),
        (From::Nifti, &[".nii", ".nii.gz"]),
        (From::Images, &[".lst"]),
        (From::Images, &files::IMAGES),
        (From::Rec, &[".rec"]),
        (From::Text, &[".txt"]),
    ];
    kinds.iter().find(|(_, ends)| ends.iter().any(|end| name.ends_with(end))).map(|(kind, _)| *kind)
}

fn report(options: &Options, done: &Done, seconds: f64) -> anyhow::Result<()> {
    let Done { samples, skipped, kept, bytes, .. } = done;
    if options.common.json {
        return Ok(json_line(&json!({
            "samples": samples, "skipped": skipped, "kept": kept, "bytes": bytes, "seconds": seconds,
        }))?);
    }
    Ok(line(&crate::render::totals::packed(done, "samples", seconds))?)
}
