//! `ringreel pack`

use super::output::{human_bytes, json_line, line, plain_path, progress};
use super::signals::Stop;
use crate::convert::output::with_end;
use crate::convert::pack::{Done, Watch, im2rec, image, list};
use crate::error::Error;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What it takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel pack --list --recursive train photos     train.lst of the images below photos, a label for each directory
  ringreel pack train photos --resize 256           train.rec and train.idx of what train.lst names
  ringreel pack train photos --pass-through         the same, with the files' bytes as they are

As MXNet's im2rec.py. Order is that of the input, and the bytes are the same for any number of threads. What cannot be
packed is named and left out. Exit status: 0 all is packed, 1 something was left out or failed, 2 it was asked for
something that makes no sense.")]
pub struct Options {
    /// The lists' prefix (or one list), and the folder of the images
    #[arg(value_name = "PATH", num_args = 1.., required = true)]
    paths: Vec<PathBuf>,
    /// Where to: NAME.rec and NAME.idx; by default beside the list
    #[arg(short, long, value_name = "NAME")]
    output: Option<PathBuf>,
    #[command(flatten)]
    lists: Lists,
    #[command(flatten)]
    images: Images,
    /// Threads; by default one for each processor
    #[arg(short, long, alias = "num-thread", value_name = "N")]
    threads: Option<usize>,
    /// End at the first input that cannot be packed
    #[arg(long)]
    strict: bool,
    /// Write over what is in the way
    #[arg(long)]
    force: bool,
    /// One JSON object a line on stdout
    #[arg(long)]
    json: bool,
    /// More on stderr (RINGREEL_LOG=debug does the same)
    #[arg(short, long)]
    pub verbose: bool,
}

/// How lists are made.
#[derive(Args)]
#[command(next_help_heading = "Lists of images")]
struct Lists {
    /// Make PREFIX.lst of the images in a folder
    #[arg(long)]
    list: bool,
    /// With its subfolders, each a label of its own
    #[arg(long, requires = "list")]
    recursive: bool,
    /// In the order of the names
    #[arg(long, requires = "list")]
    no_shuffle: bool,
    /// Shuffle as Python's random does with this seed
    #[arg(long, value_name = "N", default_value_t = 100)]
    seed: u64,
    /// Part of the images for PREFIX_train.lst
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    train_ratio: f64,
    /// Part of the images for PREFIX_test.lst; the rest is for PREFIX_val.lst
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    test_ratio: f64,
    /// Divide them into so many lists first
    #[arg(long, value_name = "N", default_value_t = 1)]
    chunks: usize,
    /// How names of images end
    #[arg(long, value_name = "EXT,...", value_delimiter = ',', default_value = ".jpeg,.jpg,.png")]
    exts: Vec<String>,
}

/// What becomes of images.
#[derive(Args)]
#[command(next_help_heading = "Images")]
struct Images {
    /// The files' bytes as they are, not decoded
    #[arg(long)]
    pass_through: bool,
    /// Length of the shorter side; 0: as it is
    #[arg(long, value_name = "PIXELS", default_value_t = 0)]
    resize: u32,
    /// Take the square in the middle
    #[arg(long)]
    center_crop: bool,
    /// Quality of JPEG, 1 to 100; compression of PNG, 1 to 9
    #[arg(long, value_name = "N", default_value_t = 95)]
    quality: u8,
    /// Into which format
    #[arg(long, value_enum, default_value_t = Encoding::Jpg)]
    encoding: Encoding,
    /// 1: three channels; 0: gray; -1: as they are, with transparency
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i8).range(-1..=1))]
    color: i8,
    /// All labels of an image, not the first alone
    #[arg(long)]
    pack_label: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Encoding {
    #[value(name = ".jpg", alias = "jpg")]
    Jpg,
    #[value(name = ".png", alias = "png")]
    Png,
}

impl Options {
    fn threads(&self) -> usize {
        self.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
    }
}

/// Packs.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    if options.lists.list { make_lists(options) } else { pack_images(options) }
}

/// The two paths that images are packed with.
fn prefix_and_root(options: &Options) -> anyhow::Result<(&Path, &Path)> {
    match &options.paths[..] {
        [prefix, root] => Ok((prefix, root)),
        _ => {
            Err(Error::Sample("two paths are needed: PREFIX of the lists, and the folder of the images".to_owned())
                .into())
        }
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
    made.notes.iter().for_each(|note| tracing::warn!("left out: {note}"));
    if options.json {
        let files: Vec<_> = made.files.iter().map(|(path, images)| json!({ "file": path, "images": images })).collect();
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
        return Err(Error::Sample(format!("-o is for one list, and these begin so: {}", names.join(", "))).into());
    }
    let Images { pass_through, resize, center_crop, quality, encoding, color, pack_label } = &options.images;
    let color = match color {
        0 => image::Color::Gray,
        1 => image::Color::Rgb,
        _ => image::Color::AsTheyAre,
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
        pack_label: *pack_label,
        threads: options.threads(),
        strict: options.strict,
    };
    let outputs: Vec<PathBuf> = lists.iter().map(|list| options.output.as_ref().unwrap_or(list).clone()).collect();
    let outputs: Vec<PathBuf> = outputs.iter().map(|path| rec_path(path)).collect();
    outputs.iter().try_for_each(|path| not_in_the_way(path, options.force))?;
    let stop = Stop::on_signals()?;
    let mut left_out = 0;
    for (list, output) in lists.iter().zip(&outputs) {
        let started = Instant::now();
        let bar = progress(Some(0), "packing");
        let watch = Watch { total: &|n| bar.set_length(n), step: &|| bar.inc(1), stop: &|| stop.is_set() };
        let done = im2rec::pack(list, root, output, &wished, &watch);
        bar.finish_and_clear();
        let done = done?;
        tell(options, &done, started.elapsed().as_secs_f64())?;
        left_out += done.skipped;
    }
    Ok(i32::from(left_out > 0))
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
    let entries = std::fs::read_dir(dir).map_err(|error| crate::fs::FsError::new("list", dir, error));
    for entry in entries.map_err(Error::from)? {
        let path = entry.map_err(|error| Error::from(crate::fs::FsError::new("list", dir, error)))?.path();
        if path.extension() == Some(OsStr::new("lst")) && begins(&path) && path.is_file() {
            lists.push(if dir == Path::new(".") { path.strip_prefix(".").unwrap_or(&path).to_owned() } else { path });
        }
    }
    lists.sort();
    if lists.is_empty() {
        let prefix = prefix.display();
        return Err(Error::Sample(format!("there is no list {prefix}*.lst: make one with --list")).into());
    }
    Ok(lists)
}

/// `NAME.rec`, for NAME, NAME.rec or NAME.lst.
fn rec_path(path: &Path) -> PathBuf {
    match path.extension().and_then(OsStr::to_str) {
        Some("rec" | "lst") => path.with_extension("rec"),
        _ => with_end(path, ".rec"),
    }
}

fn not_in_the_way(path: &Path, force: bool) -> anyhow::Result<()> {
    for path in [path.to_owned(), path.with_extension("idx")] {
        if !force && path.symlink_metadata().is_ok() {
            return Err(
                Error::Sample(format!("{} is in the way: choose another name, or --force", path.display())).into()
            );
        }
    }
    Ok(())
}

fn tell(options: &Options, done: &Done, seconds: f64) -> anyhow::Result<()> {
    let Done { samples, skipped, bytes, files } = done;
    if options.json {
        let summary =
            json!({ "files": files, "samples": samples, "skipped": skipped, "bytes": bytes, "seconds": seconds });
        return Ok(json_line(&summary)?);
    }
    for path in files.iter().filter(|path| path.extension().is_none_or(|end| end != "idx")) {
        line(&plain_path(path))?;
    }
    let skipped = if *skipped > 0 { format!(", {skipped} LEFT OUT") } else { String::new() };
    Ok(line(&format!("{samples} records ({}) in {seconds:.1} s{skipped}", human_bytes(*bytes)))?)
}
