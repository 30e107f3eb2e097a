//! Records of RecordIO files of MXNet and dmlc-core: images with an `IRHeader`, or payloads of any bytes.

use super::images::set_labels;
use super::picture;
use super::ring::Tensor;
use super::{Import, Loaded, Refusal};
use crate::convert::pack::inputs::where_they_are;
use ringreel::error::{Error, FsError, Result};
use ringreel_format::Meta;
use ringreel_format::recordio::image::Image;
use ringreel_format::recordio::{ResyncItem, ResyncReader};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Most records that are read before they are decoded together.
const BATCH: usize = 256;
/// Bytes of records after which no more are read before they are decoded.
const BATCH_BYTES: usize = 64 << 20;

/// What a record becomes.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Its whole payload, as bytes.
    Raw,
    /// The image behind an `IRHeader`; with a second part for the label.
    Image {
        /// Whether the samples have a part for the label.
        has_label: bool,
        /// How images are stored.
        options: picture::Options,
    },
}

/// One record.
struct Record {
    name: String,
    path: PathBuf,
    at: u64,
    payload: Vec<u8>,
}

/// Imports the records of the files at `paths`. Damaged stretches are left out.
///
/// # Errors
/// As [`Import::all`].
pub fn import(import: &mut Import<'_>, paths: &[PathBuf], content: Content) -> Result<()> {
    paths.iter().try_for_each(|path| file(import, path, content))
}

fn file(import: &mut Import<'_>, path: &Path, content: Content) -> Result<()> {
    let file = File::open(path).map_err(|error| FsError::new("open", path, error))?;
    let place = where_they_are(&[path.to_owned()]);
    let mut reader = ResyncReader::new(file);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(item) = reader.next().map_err(Error::format("read", path))? {
        match item {
            ResyncItem::Record(record) => {
                bytes += record.payload.len();
                let (name, payload) = (format!("{place}@{}", record.at), record.payload.to_vec());
                batch.push(Record { name, path: path.to_owned(), at: record.at, payload });
            }
            ResyncItem::Skipped(region) => {
                let at = format!("{}: bytes {} to {}", path.display(), region.begin, region.end);
                import.leave_out(&at, &region.why.to_string())?;
            }
        }
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            import.all(&batch, |record| record.name.clone(), |record| load(record, content))?;
            batch.clear();
            bytes = 0;
        }
    }
    import.all(&batch, |record| record.name.clone(), |record| load(record, content))
}

fn load(record: &Record, content: Content) -> Loaded {
    let mut meta = Meta::new();
    meta.set("file", record.path.to_string_lossy().as_ref());
    meta.set("offset", record.at);
    let Content::Image { has_label, options } = content else {
        return Ok((vec![Tensor::bytes(record.payload.clone())], meta));
    };
    let refused = |why: String| Refusal { at: format!("{}: record at {}", record.path.display(), record.at), why };
    let image = Image::decode(&record.payload)
        .map_err(|error| refused(format!("no IRHeader: {error} (--raw stores the payload as it is)")))?;
    let stored = picture::tensor(image.content.to_vec(), &options);
    let stored = stored.map_err(|why| {
        refused(format!("{why} (--encoded stores what follows the IRHeader, --raw the whole payload)"))
    })?;
    let labels: Vec<f32> = image.labels().collect();
    meta.set("id", image.id);
    if image.id2 != 0 {
        meta.set("id2", image.id2);
    }
    set_labels(&mut meta, &labels);
    let mut parts = vec![stored];
    if has_label {
        parts.push(Tensor::labels(&labels));
    }
    Ok((parts, meta))
}
