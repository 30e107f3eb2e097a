//! Images with labels: a folder for each label, as `im2rec --list --recursive` numbers them, or `.lst` files.

use super::files::IMAGES;
use super::picture;
use super::ring::Tensor;
use super::{Import, Loaded, Refusal};
use crate::convert::pack::inputs::where_they_are;
use crate::convert::pack::list;
use crate::convert::pack::{MAX_RECORD, read_file};
use ringreel::error::{Error, FsError, Result};
use ringreel_format::recordio::list::items;
use ringreel_format::{Meta, Value};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// One image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The journal's name of it.
    name: String,
    file: PathBuf,
    /// Its path below the folder, or as the list has it.
    path: String,
    id: u64,
    labels: Vec<f32>,
    /// The folder that gives the label.
    class: Option<String>,
}

/// The images of some folders, lists and files, and what could not be listed.
#[derive(Debug, Default)]
pub struct Images {
    /// The images, in their order.
    pub images: Vec<Image>,
    /// Whether each of them has a label.
    pub have_labels: bool,
    /// What was left out, in words.
    pub notes: Vec<String>,
}

/// Finds the images at `paths`. Below a folder, each folder that holds images is a label. The paths in a list are
/// relative to `root`, or to the list's folder.
///
/// # Errors
/// No image; what the filesystem says.
pub fn find(paths: &[PathBuf], root: Option<&Path>) -> Result<Images> {
    let mut found = Images { have_labels: true, ..Images::default() };
    for path in paths {
        if path.extension() == Some(OsStr::new("lst")) {
            of_list(path, root, &mut found)?;
        } else if path.is_dir() {
            of_folder(path, &mut found)?;
        } else {
            fs::metadata(path).map_err(|error| FsError::new("look at", path, error))?;
            found.have_labels = false;
            found.images.push(Image {
                name: where_they_are(std::slice::from_ref(path)),
                file: path.clone(),
                path: path.to_string_lossy().into_owned(),
                id: found.images.len() as u64,
                labels: Vec::new(),
                class: None,
            });
        }
    }
    if found.images.is_empty() && found.notes.is_empty() {
        return Err(Error::Sample("no image was found: their names end in .jpg, .jpeg or .png".to_owned()));
    }
    Ok(found)
}

fn of_list(path: &Path, root: Option<&Path>, found: &mut Images) -> Result<()> {
    let bytes = fs::read(path).map_err(|error| FsError::new("read", path, error))?;
    let root = root.or(path.parent()).unwrap_or(Path::new(""));
    let place = where_they_are(&[path.to_owned()]);
    for (number, item) in (1..).zip(items(&bytes)) {
        match item {
            Ok(item) => found.images.push(Image {
                name: format!("{place}:{number}"),
                file: root.join(item.path),
                path: item.path.to_owned(),
                id: item.index,
                labels: item.labels().collect(),
                class: None,
            }),
            Err(error) => found.notes.push(format!("{}: {error}", path.display())),
        }
    }
    Ok(())
}

fn of_folder(path: &Path, found: &mut Images) -> Result<()> {
    let listed = list::images(path, &IMAGES)?;
    // One folder of images gives no labels.
    let have_labels = listed.labels.len() > 1;
    found.have_labels &= have_labels;
    found.notes.extend(listed.notes);
    for (n, image) in (0..).zip(listed.images) {
        let file = path.join(&image.path);
        found.images.push(Image {
            name: where_they_are(std::slice::from_ref(&file)),
            file,
            path: image.path,
            id: n,
            labels: if have_labels { vec![image.label as f32] } else { Vec::new() },
            class: have_labels.then(|| listed.labels[image.label].clone()),
        });
    }
    Ok(())
}

/// Imports images. `has_label`: the samples have a second part, the label.
///
/// # Errors
/// As [`Import::all`].
pub fn import(import: &mut Import<'_>, images: &[Image], has_label: bool, options: &picture::Options) -> Result<()> {
    import.all(images, |image| image.name.clone(), |image| load(image, has_label, options))
}

fn load(image: &Image, has_label: bool, options: &picture::Options) -> Loaded {
    let refused = |why| Refusal::of(&image.file, why);
    let file = read_file(&image.file, MAX_RECORD).map_err(refused)?;
    let mut parts = vec![picture::tensor(file, options).map_err(refused)?];
    if has_label {
        parts.push(Tensor::labels(&image.labels));
    }
    let mut meta = Meta::new();
    meta.set("input", image.path.as_str());
    meta.set("file", image.file.to_string_lossy().as_ref());
    meta.set("id", image.id);
    set_labels(&mut meta, &image.labels);
    if let Some(class) = &image.class {
        meta.set("class", class.as_str());
    }
    Ok((parts, meta))
}

/// Stores labels in the meta: one as a number, several as a list.
pub fn set_labels(meta: &mut Meta, labels: &[f32]) {
    let value = match labels {
        [] => return,
        [only] => f64::from(*only).into(),
        many => Value::Array(many.iter().map(|label| f64::from(*label).into()).collect()),
    };
    meta.set("label", value);
}
