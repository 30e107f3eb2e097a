//! `.lst` files of the images below a directory, as `im2rec.py --list` of MXNet 1.9.1 makes them, byte for byte: a line
//! `index <TAB> label <TAB> path` for each image, numbered in the order in which they were found (names sorted, a
//! directory's files before its directories), labelled by directory, then shuffled and divided.

use super::shuffle::shuffle;
use crate::convert::output::put;
use ringreel::error::{Error, FsError, Result};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is wished for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Also what is in directories below the root; each directory that holds an image is a label of its own.
    pub recursive: bool,
    /// With which number the order is mixed up, if it is. im2rec's is 100.
    pub shuffle: Option<u64>,
    /// The part of the images that is for training; 1: there is one list.
    pub train_ratio: f64,
    /// The part of them that is for testing; what is left is for validation.
    pub test_ratio: f64,
    /// Into how many lists they are divided first.
    pub chunks: usize,
    /// How names of images end, in small letters, with the dot.
    pub ends: Vec<String>,
    /// Whether lists that are there are written over.
    pub force: bool,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    /// The lists, and how many images each names.
    pub files: Vec<(PathBuf, usize)>,
    /// The directories that hold images, relative to the root; each one's place is its label.
    pub labels: Vec<String>,
    /// What could not be listed, in words.
    pub notes: Vec<String>,
}

struct Image {
    index: usize,
    label: usize,
    path: String,
}

/// Most lists of one kind.
const MAX_CHUNKS: usize = 1 << 16;

/// Makes the lists `<prefix>.lst`, `<prefix>_train.lst`, ... of the images below `root`.
///
/// # Errors
/// No directory there; ratios that are none; lists in the way; what the filesystem says.
pub fn make(prefix: &Path, root: &Path, options: &Options) -> Result<Lists> {
    let (train, test) = (options.train_ratio, options.test_ratio);
    if !(0.0..=1.0).contains(&train) || !(0.0..=1.0).contains(&test) || !(1..=MAX_CHUNKS).contains(&options.chunks) {
        let why =
            format!("--train-ratio and --test-ratio are numbers from 0 to 1, --chunks is one from 1 to {MAX_CHUNKS}");
        return Err(Error::Sample(why));
    }
    let mut lists = Lists::default();
    let mut images = find(root, options, &mut lists)?;
    if u32::try_from(images.len()).is_err() {
        return Err(Error::Sample(format!("{} images are more than a list can hold", images.len())));
    }
    if let Some(seed) = options.shuffle {
        shuffle(&mut images, seed);
    }
    let size = images.len().div_ceil(options.chunks);
    let (train_len, test_len) = ((size as f64 * train) as usize, (size as f64 * test) as usize);
    let mut wanted: Vec<(PathBuf, &[Image])> = Vec::new();
    for n in 0..options.chunks {
        let cut =
            |from: usize, to: usize| &images[from.min(images.len())..to.min(images.len()).max(from.min(images.len()))];
        let (begin, end) = (n * size, (n + 1) * size);
        let chunk = if options.chunks > 1 { format!("_{n}") } else { String::new() };
        let name = |end: &str| crate::convert::output::with_end(prefix, &format!("{chunk}{end}.lst"));
        if train == 1.0 {
            wanted.push((name(""), cut(begin, end)));
            continue;
        }
        if test > 0.0 {
            wanted.push((name("_test"), cut(begin, end.min(begin + test_len))));
        }
        if train + test < 1.0 {
            wanted.push((name("_val"), cut(begin + test_len + train_len, end)));
        }
        wanted.push((name("_train"), cut(begin + test_len, end.min(begin + test_len + train_len))));
    }
    if let Some((path, _)) = wanted.iter().find(|(path, _)| !options.force && path.symlink_metadata().is_ok()) {
        return Err(Error::Sample(format!("{} already exists: choose another prefix, or use --force", path.display())));
    }
    for (path, images) in wanted {
        let mut text = String::new();
        for image in images {
            let _ = writeln!(text, "{}\t{}.000000\t{}", image.index, image.label, image.path); // into memory
        }
        put(&path, text.as_bytes())?;
        lists.files.push((path, images.len()));
    }
    Ok(lists)
}

/// A directory that is to be looked through: its path, relative to the root, and what is above it.
type Todo = (PathBuf, Vec<(u64, u64)>);

fn find(root: &Path, options: &Options, lists: &mut Lists) -> Result<Vec<Image>> {
    let mut images = Vec::new();
    let mut todo: Vec<Todo> = vec![(PathBuf::new(), Vec::new())];
    while let Some((dir, mut above)) = todo.pop() {
        let (files, dirs) = match entries(&root.join(&dir)) {
            Ok(found) => found,
            Err(error) if dir.as_os_str().is_empty() => return Err(error.into()),
            Err(error) => {
                lists.notes.push(error.to_string());
                continue;
            }
        };
        let mut label = None;
        for name in files {
            let path = dir.join(&name);
            if !is_image(&name, &options.ends) {
                continue;
            }
            let Some(path) = path.to_str().filter(|path| !path.contains(['\t', '\n', '\r'])) else {
                lists
                    .notes
                    .push(format!("{path:?} cannot stand in a list: it is not UTF-8, or holds a TAB or a line end"));
                continue;
            };
            let label = *label.get_or_insert_with(|| {
                lists.labels.push(if dir.as_os_str().is_empty() {
                    ".".to_owned()
                } else {
                    dir.to_string_lossy().into()
                });
                lists.labels.len() - 1
            });
            images.push(Image { index: images.len(), label, path: path.to_owned() });
        }
        if !options.recursive {
            break;
        }
        let here = fs::metadata(root.join(&dir)).map_err(|error| FsError::new("stat", &root.join(&dir), error))?;
        above.push((here.dev(), here.ino()));
        for name in dirs.into_iter().rev() {
            let path = dir.join(&name);
            match fs::metadata(root.join(&path)) {
                Ok(there) if above.contains(&(there.dev(), there.ino())) => {
                    lists.notes.push(format!("{} leads back to a directory that it lies in", path.display()));
                }
                _ => todo.push((path, above.clone())),
            }
        }
    }
    Ok(images)
}

/// The names of the files and of the directories in `dir`, sorted; links are what they lead to.
#[allow(clippy::type_complexity)]
fn entries(dir: &Path) -> std::result::Result<(Vec<std::ffi::OsString>, Vec<std::ffi::OsString>), FsError> {
    let bad = |error| FsError::new("list", dir, error);
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(bad)? {
        let name = entry.map_err(bad)?.file_name();
        match fs::metadata(dir.join(&name)) {
            Ok(there) if there.is_dir() => dirs.push(name),
            Ok(there) if there.is_file() => files.push(name),
            _ => {}
        }
    }
    files.sort();
    dirs.sort();
    Ok((files, dirs))
}

/// Whether the name ends in one of `ends`, as Python's `os.path.splitext` sees it: dots at its beginning are no end.
fn is_image(name: &std::ffi::OsStr, ends: &[String]) -> bool {
    let name = name.to_string_lossy();
    let name = name.trim_start_matches('.');
    name.rfind('.').is_some_and(|dot| ends.iter().any(|end| *end == name[dot..].to_lowercase()))
}
