//! `ringreel pack`

mod im2rec_words;

use super::output::{json_line, line, plain_path, progress};
use super::signals::Stop;
use crate::convert::output::{RecFile, with_end};
use crate::convert::pack::inputs::{Pattern, find};
use crate::convert::pack::{Done, Watch, files, im2rec, image, list};
use clap::{Args, ValueEnum};
use im2rec_words::Words;
use ringreel::error::Error;
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `ringreel pack`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel pack --list --recursive train photos     train.lst of the images below photos, a label for each directory
  ringreel pack train photos --resize 256           train.rec and train.idx of what train.lst names
  ringreel pack train photos --pass-through         the same, with the files' bytes as they are
  ringreel pack train.lst photos/ train.rec resize=256 label_width=4     as MXNet's C++ im2rec
  ringreel pack --from npy   volumes -o volumes     volumes.rec: an .npy file in each record
  ringreel pack --from text  words.txt -o words     words.rec: a line in each record

Samples in a ring are made by `ringreel import`.

Lists and image records have the format of MXNet's im2rec.py. The output has the order of the
input and is the same for any number of threads. Inputs that cannot be packed are skipped with a
warning.
Exit status: 0 all inputs are packed, 1 inputs were skipped or packing failed, 2 the arguments are
invalid.")]
pub struct Options {
    /// Images: the lists' prefix (or one list), and the folder; or LIST FOLDER OUT.rec key=value ... Others: files
    /// and folders
    #[arg(value_name = "PATH", num_args = 1.., required = true)]
    paths: Vec<PathBuf>,
    /// Write PATH.rec and PATH.idx [default for images: the list's path]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Kind of input
    #[arg(long, value_name = "KIND", value_enum, default_value_t = From::Images)]
    from: From,
    #[command(flatten)]
    lists: Lists,
    #[command(flatten)]
    images: Images,
    /// Number of threads [default: one per processor]
    #[arg(short, long, alias = "num-thread", value_name = "N")]
    threads: Option<usize>,
    /// Stop at the first input that cannot be packed
    #[arg(long)]
    strict: bool,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Print one JSON object per line to stdout
    #[arg(long)]
    json: bool,
}

/// Kinds of input.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    /// Images named by lists
    Images,
    /// Arrays in .npy files
    Npy,
    /// Volumes in .nii and .nii.gz files
    Nifti,
    /// Lines of text
    Text,
}

/// How lists are made.
#[derive(Args)]
#[command(next_help_heading = "Lists of images")]
struct Lists {
    /// Write PREFIX.lst, the list of the images in a folder
    #[arg(long)]
    list: bool,
    /// Include subfolders, one label per folder
    #[arg(long, requires = "list")]
    recursive: bool,
    /// Sort by name instead of shuffling
    #[arg(long, requires = "list")]
    no_shuffle: bool,
    /// Shuffle seed, with the order of Python's random
    #[arg(long, value_name = "N", default_value_t = 100)]
    seed: u64,
    /// Fraction of the images for PREFIX_train.lst, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
    train_ratio: f64,
    /// Fraction of the images for PREFIX_test.lst, 0 to 1; the rest goes to PREFIX_val.lst
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    test_ratio: f64,
    /// Split the images into N sets of lists
    #[arg(long, value_name = "N", default_value_t = 1)]
    chunks: usize,
    /// File name extensions of images
    #[arg(long, value_name = "EXT,...", value_delimiter = ',', default_value = ".jpeg,.jpg,.png")]
    exts: Vec<String>,
}

/// Arguments for images.
#[derive(Args)]
#[command(next_help_heading = "Images")]
struct Images {
    /// Copy the files' bytes without decoding them
    #[arg(long)]
    pass_through: bool,
    /// Resize the shorter side to this length; 0 keeps the size
    #[arg(long, value_name = "PIXELS", default_value_t = 0)]
    resize: u32,
    /// Crop to the square in the centre
    #[arg(long)]
    center_crop: bool,
    /// JPEG quality, 1 to 100, or PNG compression level, 1 to 9
    #[arg(long, value_name = "N", default_value_t = 95)]
    quality: u8,
    /// Image format to encode
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Encoding::Jpg)]
    encoding: Encoding,
    /// Colour mode: 1 for RGB, 0 for gray, -1 to keep the channels, including alpha
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i8).range(-1..=1))]
    color: i8,
    /// Pack all labels of an image instead of the first
    #[arg(long)]
    pack_label: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Encoding {
    /// JPEG
    #[value(name = ".jpg", alias = "jpg")]
    Jpg,
    /// PNG
    #[value(name = ".png", alias = "png")]
    Png,
}

impl Options {
    fn threads(&self) -> usize {
        self.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
    }
}

/// Packs the inputs, or makes lists. Returns 1 if inputs were skipped.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    match options.from {
        _ if options.lists.list => make_lists(options),
        From::Images if options.paths.len() > 2 => pack_as_cpp(options),
        From::Images => pack_images(options),
        _ => pack_others(options),
    }
}

/// Returns the two paths that images are packed with: lists and folder.
fn prefix_and_root(options: &Options) -> anyhow::Result<(&Path, &Path)> {
    match &options.paths[..] {
        [prefix, root] => Ok((prefix, root)),
        _ => Err(Error::Sample("expected two paths: the prefix of the lists, and the image folder".to_owned()).into()),
    }
}

fn make_lists(options: &Options) -> anyhow::Result<i32> {
    let (prefix, root) = prefix_and_root(options)?;
    let Lists { recursive, no_shuffle, seed, train_ratio, test_ratio, chunks, exts, .. } = &options.lists;
    let wished = list::Options {
        recursive: *recursive,
        shuffle: (!no_shuffle).then_some(*seed),
        train_ratio: *train_ratio,
        test_ratio: *test_ratio,
        chunks: *chunks,
        ends: exts.iter().map(|end| end.to_lowercase()).collect(),
        force: options.force,
    };
    let made = list::make(prefix, root, &wished)?;
    made.notes.iter().for_each(|note| tracing::warn!("skipped: {note}"));
    if options.json {
        let told = |(path, images): &(PathBuf, usize)| json!({ "file": path.to_string_lossy(), "images": images });
        let files: Vec<_> = made.files.iter().map(told).collect();
        json_line(&json!({ "lists": files, "labels": made.labels, "notes": made.notes }))?;
    } else {
        for (label, dir) in made.labels.iter().enumerate().filter(|_| *recursive) {
            line(&format!("{} {label}", plain_path(Path::new(dir))))?;
        }
        for (path, images) in &made.files {
            line(&format!("{}: {images} images", plain_path(path)))?;
        }
    }
    Ok(i32::from(!made.notes.is_empty()))
}

fn pack_images(options: &Options) -> anyhow::Result<i32> {
    let (prefix, root) = prefix_and_root(options)?;
    let lists = lists_of(prefix)?;
    if options.output.is_some() && lists.len() > 1 {
        let names: Vec<_> = lists.iter().map(|path| plain_path(path)).collect();
        let names = names.join(", ");
        return Err(Error::Sample(format!("-o requires one list, but several match the prefix: {names}")).into());
    }
    let Images { pass_through, resize, center_crop, quality, encoding, color, pack_label } = &options.images;
    let color = match color {
        0 => image::Color::Gray,
        1 => image::Color::Rgb,
        _ => image::Color::Unchanged,
    };
    let wished = im2rec::Options {
        image: image::Options {
            pass_through: *pass_through,
            resize: *resize,
            center_crop: *center_crop,
            quality: *quality,
            png: *encoding == Encoding::Png,
            color,
        },
        labels: if *pack_label { im2rec::Labels::All } else { im2rec::Labels::First },
        share: im2rec::Share::ALL,
        threads: options.threads(),
        strict: options.strict,
    };
    let outputs = lists.iter().map(|list| rec_path(options.output.as_ref().unwrap_or(list))).collect::<Vec<_>>();
    pack_lists(options, &lists, root, &outputs, &wished)
}

/// Packs images with the arguments of MXNet's C++ im2rec.
fn pack_as_cpp(options: &Options) -> anyhow::Result<i32> {
    let [list, root, output, words @ ..] = &options.paths[..] else { return Ok(2) };
    let given = &options.images;
    if options.output.is_some() || given.resize > 0 || given.pass_through || given.center_crop || given.pack_label {
        let why = "LIST FOLDER OUT.rec goes with key=value words, and not with -o and the options for images";
        return Err(Error::Sample(why.to_owned()).into());
    }
    let words = Words::parse(words)?;
    let wished = im2rec::Options {
        image: words.image(),
        labels: words.labels(),
        share: words.share(),
        threads: options.threads(),
        strict: options.strict,
    };
    pack_lists(options, std::slice::from_ref(list), root, &[words.output(output)], &wished)
}

fn pack_lists(
    options: &Options,
    lists: &[PathBuf],
    root: &Path,
    outputs: &[PathBuf],
    wished: &im2rec::Options,
) -> anyhow::Result<i32> {
    outputs.iter().try_for_each(|path| not_in_the_way(path, options.force))?;
    let stop = Stop::on_signals()?;
    let mut left_out = 0;
    for (list, output) in lists.iter().zip(outputs) {
        let started = Instant::now();
        let bar = progress(Some(0), "packing");
        let watch = Watch { total: &|n| bar.set_length(n), step: &|| bar.inc(1), stop: &|| stop.is_set() };
        let done = im2rec::pack(list, root, output, wished, &watch);
        bar.finish_and_clear();
        let done = done?;
        tell(options, &done, started.elapsed().as_secs_f64())?;
        left_out += done.skipped;
    }
    Ok(i32::from(left_out > 0))
}

fn pack_others(options: &Options) -> anyhow::Result<i32> {
    let ends: &[&str] = match options.from {
        From::Npy => &[".npy"],
        _ => &[".nii", ".nii.gz"],
    };
    let stop = Stop::on_signals()?;
    let (mut inputs, mut notes) = (Vec::new(), Vec::new());
    if options.from != From::Text {
        (inputs, notes) = find(&options.paths, &[Pattern::of_ends(ends)])?;
    }
    if options.strict && !notes.is_empty() {
        return Err(Error::Sample(notes.remove(0)).into());
    }
    notes.iter().for_each(|note| tracing::warn!("skipped: {note}"));
    let Some(output) = &options.output else {
        return Err(Error::Sample("-o NAME is missing (`ringreel import` writes into a ring)".to_owned()).into());
    };
    let output = if output.extension() == Some(OsStr::new("rec")) { output.clone() } else { with_end(output, ".rec") };
    not_in_the_way(&output, options.force)?;
    let out = RecFile::begin(&output)?;
    let started = Instant::now();
    let bar = progress((options.from != From::Text).then_some(0), "packing");
    let watch = Watch { total: &|n| bar.set_length(n), step: &|| bar.inc(1), stop: &|| stop.is_set() };
    let how = files::Options { threads: options.threads(), strict: options.strict };
    let done = match options.from {
        From::Text => files::lines(&options.paths, out, &watch),
        _ => files::arrays(&inputs, out, how, &watch),
    };
    bar.finish_and_clear();
    let mut done = done?;
    done.skipped += notes.len() as u64;
    tell(options, &done, started.elapsed().as_secs_f64())?;
    Ok(i32::from(done.skipped > 0))
}

/// The lists whose path begins with `prefix`, as im2rec takes them; or the one that it is.
fn lists_of(prefix: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if prefix.extension() == Some(OsStr::new("lst")) {
        return Ok(vec![prefix.to_owned()]);
    }
    let (dir, name) = match (prefix.is_dir(), prefix.parent(), prefix.file_name()) {
        (false, Some(dir), Some(name)) => (dir, name.to_owned()),
        _ => (prefix, OsStr::new("").to_owned()),
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let begins = |path: &Path| {
        path.file_name().is_some_and(|there| there.as_encoded_bytes().starts_with(name.as_encoded_bytes()))
    };
    let mut lists = Vec::new();
    let entries = std::fs::read_dir(dir).map_err(|error| ringreel::fs::FsError::new("list", dir, error));
    for entry in entries.map_err(Error::from)? {
        let path = entry.map_err(|error| Error::from(ringreel::fs::FsError::new("list", dir, error)))?.path();
        if path.extension() == Some(OsStr::new("lst")) && begins(&path) && path.is_file() {
            lists.push(if dir == Path::new(".") { path.strip_prefix(".").unwrap_or(&path).to_owned() } else { path });
        }
    }
    lists.sort();
    if lists.is_empty() {
        let prefix = prefix.display();
        return Err(Error::Sample(format!("no list {prefix}*.lst: make one with --list")).into());
    }
    Ok(lists)
}

/// Returns `NAME.rec` for NAME, NAME.rec or NAME.lst.
fn rec_path(path: &Path) -> PathBuf {
    match path.extension().and_then(OsStr::to_str) {
        Some("rec" | "lst") => path.with_extension("rec"),
        _ => with_end(path, ".rec"),
    }
}

fn not_in_the_way(path: &Path, force: bool) -> anyhow::Result<()> {
    for path in [path.to_owned(), path.with_extension("idx")] {
        if !force && path.symlink_metadata().is_ok() {
            return Err(Error::Sample(format!(
                "{} already exists: choose another name, or use --force",
                path.display()
            ))
            .into());
        }
    }
    Ok(())
}

fn tell(options: &Options, done: &Done, seconds: f64) -> anyhow::Result<()> {
    let Done { samples, skipped, bytes, files, .. } = done;
    if options.json {
        let files: Vec<_> = files.iter().map(|path| path.to_string_lossy()).collect();
        return Ok(json_line(&json!({
            "files": files, "samples": samples, "skipped": skipped, "bytes": bytes, "seconds": seconds,
        }))?);
    }
    for path in files.iter().filter(|path| path.extension().is_none_or(|end| end != "idx")) {
        line(&plain_path(path))?;
    }
    Ok(line(&crate::render::totals::packed(done, "records", seconds))?)
}
