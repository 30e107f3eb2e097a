//! Writes `.lst` files of the images below a directory, byte for byte like `im2rec.py --list` of MXNet 1.9.1: one line
//! `index <TAB> label <TAB> path` per image, numbered in the order in which they are found (names sorted, a directory's
//! files before its subdirectories), labelled by directory, then shuffled and split.

use super::shuffle::shuffle;
use crate::convert::output::put;
use ringreel::error::{Error, FsError, Result};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Options of lists.
#[derive(Clone, Debug)]
pub struct Options {
    /// Include subdirectories; each directory with an image is a separate label.
    pub recursive: bool,
    /// The shuffle seed; `None` does not shuffle. The default of im2rec is 100.
    pub shuffle: Option<u64>,
    /// Fraction of the images for training; with 1 there is one list.
    pub train_ratio: f64,
    /// Fraction of the images for testing; the rest is for validation.
    pub test_ratio: f64,
    /// Number of sets of lists.
    pub chunks: usize,
    /// Extensions of image files, in lower case, with the dot.
    pub ends: Vec<String>,
    /// Whether existing lists are overwritten.
    pub force: bool,
}

/// The written lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    /// The lists, and the number of images in each.
    pub files: Vec<(PathBuf, usize)>,
    /// The directories with images, relative to the root; the index of a directory is its label.
    pub labels: Vec<String>,
    /// What could not be listed.
    pub notes: Vec<String>,
}

/// An image below a folder.
#[derive(Clone, Debug)]
pub struct Image {
    index: usize,
    /// The place of its directory among the labels.
    pub label: usize,
    /// Its path, relative to the folder.
    pub path: String,
}

/// The images below a folder.
#[derive(Debug)]
pub struct Found {
    /// The images, in the order of `im2rec --list --recursive --no-shuffle`.
    pub images: Vec<Image>,
    /// As [`Lists::labels`].
    pub labels: Vec<String>,
    /// As [`Lists::notes`].
    pub notes: Vec<String>,
}

/// Finds the images below `root` whose names end in one of `ends`.
///
/// # Errors
/// No directory there; what the filesystem says.
pub fn images(root: &Path, ends: &[&str]) -> Result<Found> {
    let ends = ends.iter().map(|end| (*end).to_owned()).collect();
    let (train_ratio, test_ratio) = (1.0, 0.0);
    let options = Options { recursive: true, shuffle: None, train_ratio, test_ratio, chunks: 1, ends, force: false };
    let mut lists = Lists::default();
    let images = find(root, &options, &mut lists)?;
    Ok(Found { images, labels: lists.labels, notes: lists.notes })
}

/// Maximum of `chunks`.
const MAX_CHUNKS: usize = 1 << 16;

/// Writes the lists `<prefix>.lst`, `<prefix>_train.lst`, ... of the images below `root`.
///
/// # Errors
/// A root that is not a directory; invalid ratios; existing lists; the filesystem's errors.
pub fn make(prefix: &Path, root: &Path, options: &Options) -> Result<Lists> {
    let (train, test) = (options.train_ratio, options.test_ratio);
    if !(0.0..=1.0).contains(&train) || !(0.0..=1.0).contains(&test) || !(1..=MAX_CHUNKS).contains(&options.chunks) {
        let why = format!("--train-ratio and --test-ratio must be from 0 to 1, --chunks from 1 to {MAX_CHUNKS}");
        return Err(Error::Sample(why));
    }
    let mut lists = Lists::default();
    let mut images = find(root, options, &mut lists)?;
    if u32::try_from(images.len()).is_err() {
        return Err(Error::Sample(format!("{} images are too many for a list", images.len())));
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

/// A directory to search: its path relative to the root, and the identities of its parents.
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
                    .push(format!("{path:?} cannot be listed: its name is not UTF-8, or contains a tab or a line end"));
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
                    lists.notes.push(format!("{} leads back to one of its parent directories", path.display()));
                }
                _ => todo.push((path, above.clone())),
            }
        }
    }
    Ok(images)
}

/// Returns the sorted names of the files and of the directories in `dir`. Follows links.
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

/// Returns whether the name has one of the extensions `ends`, as in Python's `os.path.splitext`, which ignores leading
/// dots.
fn is_image(name: &std::ffi::OsStr, ends: &[String]) -> bool {
    let name = name.to_string_lossy();
    let name = name.trim_start_matches('.');
    name.rfind('.').is_some_and(|dot| ends.iter().any(|end| *end == name[dot..].to_lowercase()))
}
