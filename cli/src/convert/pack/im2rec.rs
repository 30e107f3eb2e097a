//! A `.lst` file and a folder of images into a `.rec` file, as MXNet's `im2rec.py` does it: each record is an `IRHeader`
//! (see [`ringreel_format::recordio::image`]) and an image's file; its key in the `.idx` file is the image's index.

use super::image::{self, converted};
use super::{Done, MAX_RECORD, Watch, read_file, skipped};
use crate::convert::output::RecFile;
use ringreel::error::{Error, FsError, Result};
use ringreel::sched::in_order;
use ringreel_format::recordio::image::encode;
use ringreel_format::recordio::list::{Item, items};
use std::fs;
use std::path::Path;

/// What is wished for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is done with each image.
    pub image: image::Options,
    /// All labels of an image are taken, not the first alone.
    pub pack_label: bool,
    /// Threads that read, decode and encode.
    pub threads: usize,
    /// The first image that cannot be packed ends it.
    pub strict: bool,
}

/// Packs the images that `list` names into `out`, which ends in `.rec`.
///
/// # Errors
/// With `strict`, the first image that cannot be packed, or line that is none; what the filesystem says of the files
/// that are written. Without it, such images are left out, counted, and told to the log.
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
    if record.len() as u64 > MAX_RECORD { Err("it is longer than a record can be".to_owned()) } else { Ok(record) }
}
