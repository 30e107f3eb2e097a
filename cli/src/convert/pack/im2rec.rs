//! Packs the images of a `.lst` file into a `.rec` file, like MXNet's `im2rec.py`: each record is an `IRHeader` (see
//! [`ringreel_format::recordio::image`]) and an image file; its key in the `.idx` file is the image's index.

use super::image::{self, converted};
use super::{Done, MAX_RECORD, Watch, read_file, skipped};
use crate::convert::output::RecFile;
use ringreel::error::{Error, FsError, Result};
use ringreel::sched::in_order;
use ringreel_format::recordio::image::encode;
use ringreel_format::recordio::list::{Item, items};
use std::fs;
use std::path::Path;

/// Options of packing images.
#[derive(Clone, Debug)]
pub struct Options {
    /// Conversion of each image.
    pub image: image::Options,
    /// Pack all labels of an image, not only the first.
    pub pack_label: bool,
    /// Number of threads that read, decode and encode.
    pub threads: usize,
    /// Fail at the first image that cannot be packed.
    pub strict: bool,
}

/// Packs the images of `list` into `out`, which ends in `.rec`. Without `strict`, images that cannot be packed and invalid
/// lines are skipped, counted and logged.
///
/// # Errors
/// With `strict`, the first image that cannot be packed, or invalid line; the filesystem's errors for the output.
pub fn pack(list: &Path, root: &Path, out: &Path, options: &Options, watch: &Watch<'_>) -> Result<Done> {
    let bytes = fs::read(list).map_err(|error| FsError::new("read", list, error))?;
    let mut done = Done::default();
    let mut wanted: Vec<Item<'_>> = Vec::new();
    for item in items(&bytes) {
        match item {
            Ok(item) => wanted.push(item),
            Err(error) => skipped(&mut done, options.strict, list, &error.to_string())?,
        }
    }
    (watch.total)(wanted.len() as u64);
    let mut file = RecFile::begin(out)?;
    let work = |n: u64| record(&wanted[n as usize], root, options);
    in_order(0..wanted.len() as u64, options.threads, &work, |n, record| {
        let item = &wanted[n as usize];
        if (watch.stop)() {
            return Err(Error::Interrupted { what: format!("the end of the packing (at {})", item.path) });
        }
        (watch.step)();
        match record {
            Ok(record) => {
                file.write(item.index, &record)?;
                done.samples += 1;
                Ok(())
            }
            Err(why) => skipped(&mut done, options.strict, &root.join(item.path), &why),
        }
    })?;
    done.take(file.finish()?);
    Ok(done)
}

fn record(item: &Item<'_>, root: &Path, options: &Options) -> std::result::Result<Vec<u8>, String> {
    let content = converted(read_file(&root.join(item.path), MAX_RECORD)?, &options.image)?;
    let labels: Vec<f32> = item.labels().collect();
    let labels = if options.pack_label { &labels[..] } else { &labels[..1.min(labels.len())] };
    let record = encode(item.index, 0, labels, &content);
    if record.len() as u64 > MAX_RECORD { Err("too long for a record".to_owned()) } else { Ok(record) }
}
