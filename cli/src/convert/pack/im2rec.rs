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
    /// Which labels are stored.
    pub labels: Labels,
    /// The part of the list that is packed.
    pub share: Share,
    /// Threads that read, decode and encode.
    pub threads: usize,
    /// Fail at the first image that cannot be packed.
    pub strict: bool,
}

/// Which labels of an image are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// The first one.
    First,
    /// All of them.
    All,
    /// As the C++ `im2rec`: each line has `count` labels. The first one is in the header; if `all`, all follow it.
    Exactly {
        /// Labels of each line.
        count: usize,
        /// Whether all are stored.
        all: bool,
    },
}

/// A part of a list, of `of` parts of about as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub part: u64,
    /// How many there are.
    pub of: u64,
}

impl Share {
    /// The whole list.
    pub const ALL: Share = Share { part: 0, of: 1 };

    /// The lines of this part, as dmlc's `InputSplit` divides a text: a part begins with the first line that begins
    /// behind its first byte.
    pub fn lines(self, bytes: &[u8]) -> &[u8] {
        let step = (bytes.len() as u64).div_ceil(self.of.max(1));
        let border = |n: u64| {
            let at = usize::try_from(n.saturating_mul(step)).unwrap_or(usize::MAX).min(bytes.len());
            if at == 0 {
                return 0;
            }
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let line_end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |n| at + n);
            bytes[line_end..].iter().position(|byte| !is_end(byte)).map_or(bytes.len(), |n| line_end + n)
        };
        &bytes[border(self.part)..border(self.part.saturating_add(1))]
    }
}

/// Packs the images that `list` names into `out`, which ends in `.rec`.
///
/// # Errors
/// With `strict`, the first image that cannot be packed, or invalid line; the filesystem's errors for the output.
pub fn pack(list: &Path, root: &Path, out: &Path, options: &Options, watch: &Watch<'_>) -> Result<Done> {
    let bytes = fs::read(list).map_err(|error| FsError::new("read", list, error))?;
    let mut done = Done::default();
    let mut wanted: Vec<Item<'_>> = Vec::new();
    for item in items(options.share.lines(&bytes)) {
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
    let record = match options.labels {
        Labels::First => encode(item.index, 0, &labels[..1.min(labels.len())], &content),
        Labels::All => encode(item.index, 0, &labels, &content),
        Labels::Exactly { count, .. } if count != labels.len() => {
            return Err(format!("its line has {} labels, and label_width is {count}", labels.len()));
        }
        Labels::Exactly { all: false, .. } => encode(item.index, 0, &labels[..1], &content),
        Labels::Exactly { all: true, .. } => {
            let mut record = encode(item.index, 0, &labels, &content);
            record[4..8].copy_from_slice(&labels[0].to_le_bytes());
            record
        }
    };
    if record.len() as u64 > MAX_RECORD { Err("it is longer than a record can be".to_owned()) } else { Ok(record) }
}
