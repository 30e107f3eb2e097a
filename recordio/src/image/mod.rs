//! Batches of decoded and augmented images out of `.rec` files, as MXNet's `ImageRecordIter` has them.
//!
//! | file | |
//! |---|---|
//! | here | [`ImageOptions`] and [`ImageReader`]: single images, and epochs of batches |
//! | `batch` | [`Batch`], and the threads that fill it |
//! | `order` | which records form which batch |
//! | `pipeline` | one image from its record to its slot |
//! | `picture` | pictures in memory, decoding |
//! | `geometry`, `affine`, `resize` | geometric augmentation |
//! | `masks`, `objects` | masks and boxes, which take the steps of their image |
//! | `colour` | random changes of colour |
//! | `output`, `mean` | normalisation, layout, mean images |
//! | `random` | random numbers of a seed, an epoch and a record |
//!
//! Records, batches and pixels are those of MXNet 1.9.1 where nothing is random. Its resizing and its affine
//! transformations are OpenCV's, whose fixed-point arithmetic is repeated here. JPEG files are decoded by `zune-jpeg`.
//! Of 97 million bytes of images of 256x256 to 500x375 pixels 75 % are equal to those of MXNet, 0.04 % differ by more than
//! 2, and no difference is larger than 8.
//!
//! Random choices depend on the seed, the epoch and the record alone: neither on the number of threads nor on the order
//! in which they work. They are not MXNet's choices, but they have the same distributions.

mod affine;
mod batch;
mod colour;
mod geometry;
mod masks;
mod mean;
mod objects;
mod order;
mod output;
mod picture;
mod pipeline;
mod random;
mod resize;

pub use batch::{Batch, Pixels};
pub use colour::ColourJitter;
pub use geometry::{AffineRange, Crop, Geometry, Mirror};
pub use masks::MaskSource;
pub use mean::MeanImage;
pub use objects::Objects;
pub use output::{Element, Layout, Normalise};
pub use resize::Interpolation;

use crate::input_split::places::{Place, Places};
use crate::prefetch::Prefetch;
use batch::{Filler, Pool, Slot};
use masks::Masks;
use order::{Epoch, Order};
use output::Writer;
use pipeline::{Pipeline, Workspace};
use random::Random;
use ringreel::error::{Error, FsError, Result};
use ringreel::read::shard::Share;
use ringreel_format::input::SliceInput;
use ringreel_format::recordio::{RecordReader, image, list};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which records are read.
#[derive(Clone, Debug)]
pub struct ImageSource {
    /// `.rec` files, or directories of some.
    pub records: Vec<PathBuf>,
    /// The `.idx` file of the only `.rec` file. Without it the headers of all records are read when it is opened.
    pub index: Option<PathBuf>,
    /// A `.lst` file, whose labels replace those of the records. Its indices are the ids in the records' headers.
    pub labels: Option<PathBuf>,
    /// The masks of the images, if they have masks.
    pub masks: Option<MaskSource>,
    /// Which part of the records.
    pub part: Share,
    /// Whether all parts have the same number of records, and up to one record less than there are parts is left out.
    /// Otherwise parts are cut as MXNet cuts them: by records where there is an index, else by bytes.
    pub is_equal: bool,
}

/// How batches are made of images.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// Channels (1, 3 or 4), rows, columns of an image.
    pub shape: [usize; 3],
    /// Images in a batch.
    pub batch_size: usize,
    /// Labels of an image.
    pub label_width: usize,
    /// How objects with boxes are read from the labels; none: labels are plain numbers. `label_width` has no meaning with
    /// objects.
    pub objects: Option<Objects>,
    /// The element type.
    pub element: Element,
    /// The order of the axes.
    pub layout: Layout,
    /// Whether the last batch of an epoch is completed with images of the next one.
    pub round_batch: bool,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// The seed of that order.
    pub seed: u64,
    /// The seed of random augmentation.
    pub seed_aug: u64,
    /// Threads that decode.
    pub threads: usize,
    /// Batches that are made ahead.
    pub prefetch: usize,
    /// Augmentation and normalisation.
    pub augment: Augment,
}

/// Augmentation and normalisation.
#[derive(Clone, Debug, Default)]
pub struct Augment {
    /// Geometric augmentation.
    pub geometry: Geometry,
    /// Random changes of colour.
    pub colour: ColourJitter,
    /// How bytes become numbers.
    pub normalise: Normalise,
}

impl ImageOptions {
    /// Batches of centre crops of `shape` (channels, rows, columns), in the order of the files.
    pub fn new(shape: [usize; 3], batch_size: usize) -> ImageOptions {
        ImageOptions {
            shape,
            batch_size,
            label_width: 1,
            objects: None,
            element: Element::F32,
            layout: Layout::Nchw,
            round_batch: true,
            shuffle: false,
            seed: 0,
            seed_aug: 0,
            threads: 4,
            prefetch: 4,
            augment: Augment::default(),
        }
    }

    /// Numbers of an image's labels.
    fn label_len(&self) -> usize {
        self.objects.map_or(self.label_width, |objects| objects.most * objects.width)
    }

    /// Pixels of an image.
    fn mask_len(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    /// # Errors
    /// The first value that cannot be used, in words.
    fn check(&self) -> std::result::Result<(), String> {
        let [channels, height, width] = self.shape;
        let Augment { geometry, normalise, .. } = &self.augment;
        let fault = |is_wrong: bool, what: &str| if is_wrong { Err(what.to_owned()) } else { Ok(()) };
        fault(!matches!(channels, 1 | 3 | 4), "data_shape: expected 1, 3 or 4 channels")?;
        fault(height == 0 || width == 0, "data_shape: an image needs rows and columns")?;
        fault(self.batch_size == 0, "batch_size: expected at least 1")?;
        fault(self.label_width == 0, "label_width: expected at least 1")?;
        let is_short = |objects: Objects| objects.most == 0 || objects.width < 5;
        fault(self.objects.is_some_and(is_short), "object_width: expected 5 or more, and max_objects 1 or more")?;
        fault(geometry.resize == Some(0), "resize: expected at least 1")?;
        match geometry.crop {
            Crop::Square { min, max } => {
                fault(min == 0 || min > max, "min_crop_size: expected 1 to max_crop_size")?;
            }
            Crop::RandomResized { area: (low, high), aspect: (narrow, wide) } => {
                fault(!(low > 0.0 && low <= high), "min_random_area: expected more than 0, up to max_random_area")?;
                fault(!(narrow > 0.0 && narrow <= wide), "min_aspect_ratio: expected more than 0, up to the largest")?;
            }
            Crop::Fixed => {}
        }
        fault(geometry.affine.scale.0 > geometry.affine.scale.1, "min_random_scale: is above max_random_scale")?;
        fault(geometry.affine.max_rotate_angle < 0, "max_rotate_angle: expected 0 or more")?;
        let has_mean = |mean: &Arc<MeanImage>| mean.shape != self.shape;
        fault(normalise.mean_image.as_ref().is_some_and(has_mean), "mean_img: has another shape than data_shape")
    }
}

/// The images of one part of `.rec` files.
///
/// ```
/// use ringreel::format::recordio::{RecordWriter, image};
/// use ringreel::read::shard::Share;
/// use ringreel_recordio::image::{ImageOptions, ImageReader, ImageSource};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.rec");
/// # let mut writer = RecordWriter::new(std::fs::File::create(&path)?);
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # ::image::RgbImage::new(40, 30).write_to(&mut png, ::image::ImageFormat::Png)?;
/// # let png = png.into_inner();
/// for id in 0..5 {
///     writer.write(&image::encode(id, 0, &[id as f32], &png))?;
/// }
/// let source = ImageSource { records: vec![path], index: None, labels: None, masks: None, part: Share::ALL, is_equal: false };
/// let reader = ImageReader::open(&source, ImageOptions::new([3, 28, 28], 2))?;
/// let mut labels = Vec::new();
/// for batch in reader.epoch(reader.first_epoch())? {
///     let batch = batch?;
///     labels.push((batch.labels.clone(), batch.pad));
/// }
/// // The last batch is completed with an image of the next epoch.
/// assert_eq!(labels, [(vec![0.0, 1.0], 0), (vec![2.0, 3.0], 0), (vec![4.0, 0.0], 1)]);
/// # Ok(())
/// # }
/// ```
pub struct ImageReader {
    shared: Arc<Shared>,
}

/// An epoch of an [`ImageReader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageEpoch {
    number: u64,
    epoch: Epoch,
}

impl ImageEpoch {
    /// Its number, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many batches it has.
    pub fn batches(&self) -> u64 {
        self.epoch.batches
    }
}

/// The state that all threads share; it does not change.
struct Shared {
    places: Places,
    labels: Option<HashMap<u64, Vec<f32>>>,
    masks: Option<Masks>,
    options: ImageOptions,
    pipeline: Pipeline,
    order: Order,
    pool: Arc<Pool>,
}

impl ImageReader {
    /// Opens the files, and lists their records.
    ///
    /// # Errors
    /// Options that cannot be used; files that cannot be read, or are no files of records, indexes or lists.
    pub fn open(source: &ImageSource, options: ImageOptions) -> Result<ImageReader> {
        options.check().map_err(Error::Sample)?;
        let places = Places::list(&source.records, source.index.as_deref(), source.part, source.is_equal)?;
        let labels = source.labels.as_deref().map(|path| labels_of(path, &options)).transpose()?;
        let masks = source.masks.as_ref().map(Masks::open).transpose()?;
        let Augment { geometry, colour, normalise } = options.augment.clone();
        let [channels, height, width] = options.shape;
        let writer = Writer::new(normalise, options.layout);
        let pipeline = Pipeline { channels, size: (width, height), geometry, colour, writer };
        let order = Order {
            records: places.records.len(),
            batch_size: options.batch_size,
            round_batch: options.round_batch,
            shuffle: options.shuffle.then_some(options.seed),
        };
        let pool = Arc::new(Pool::new(options.prefetch + 2));
        Ok(ImageReader { shared: Arc::new(Shared { places, labels, masks, options, pipeline, order, pool }) })
    }

    /// Images of this part.
    pub fn len(&self) -> usize {
        self.shared.places.records.len()
    }

    /// Whether this part has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The options it was opened with.
    pub fn options(&self) -> &ImageOptions {
        &self.shared.options
    }

    /// The epoch that is read first.
    pub fn first_epoch(&self) -> ImageEpoch {
        ImageEpoch { number: 0, epoch: self.shared.order.first() }
    }

    /// The epoch after `epoch`. `is_complete`: whether that was read to its end; else the next one begins with the first
    /// image of its order.
    pub fn epoch_after(&self, epoch: ImageEpoch, is_complete: bool) -> ImageEpoch {
        ImageEpoch { number: epoch.number + 1, epoch: self.shared.order.after(epoch.epoch, is_complete) }
    }

    /// The batches of `epoch`, made ahead in threads.
    ///
    /// # Errors
    /// What the system says against another thread. The iterator gives the error of the first image of a batch that has
    /// one, in place of the batch; then it continues behind that batch.
    pub fn epoch(&self, epoch: ImageEpoch) -> Result<Prefetch<Batch, Error>> {
        let mut filler = Filler::new(self.shared.clone(), epoch.epoch);
        let prefetch = Prefetch::new(self.shared.options.prefetch, move |batch: &mut Batch| filler.fill(batch));
        Ok(prefetch.map_err(|source| FsError::new("start a thread to read", Path::new("images"), source))?)
    }

    /// Image `index` of this part, in the order of the files, with the random choices of epoch `round`: a batch of one.
    ///
    /// # Errors
    /// An index that is not below the number of images; an image that cannot be read or decoded.
    pub fn item(&self, index: usize, round: u64) -> Result<Batch> {
        let shared = &*self.shared;
        if index >= self.len() {
            return Err(Error::Sample(format!("there is no image {index}: this part has {}", self.len())));
        }
        let mut batch = Batch::default();
        batch.reshape(&shared.options, shared.masks.is_some(), 1);
        if let Some(slot) = batch.slots(&shared.options).next() {
            shared.image(index, round, &mut Workspace::default(), slot)?;
        }
        Ok(batch)
    }

    /// The mean of all images of this part before they are normalised, augmented as in the first epoch. It reads all of
    /// them, with all threads.
    ///
    /// # Errors
    /// An image that cannot be read or decoded; a part without images.
    pub fn mean_image(&self) -> Result<MeanImage> {
        let shared = &self.shared;
        if self.is_empty() {
            return Err(Error::Sample("mean_img: there are no images to make a mean of".to_owned()));
        }
        let options = ImageOptions { element: Element::U8, ..shared.options.clone() };
        let order = Order { round_batch: false, shuffle: None, ..shared.order };
        let size = options.shape.iter().product();
        let mut filler = Filler::new(shared.clone(), order.first()).with(order, &options);
        let (mut sums, mut batch) = (vec![0_u64; size], Batch::default());
        while filler.fill(&mut batch)? {
            if let Pixels::U8(pixels) = &batch.pixels {
                let images = pixels.chunks_exact(size).take(options.batch_size - batch.pad);
                images.for_each(|image| sums.iter_mut().zip(image).for_each(|(sum, byte)| *sum += u64::from(*byte)));
            }
        }
        let [channels, height, width] = options.shape;
        let plane = height * width;
        let place = |n: usize| match options.layout {
            Layout::Nchw => n,
            Layout::Nhwc => n % plane * channels + n / plane,
        };
        let values = (0..size).map(|n| (sums[place(n)] as f64 / self.len() as f64) as f32).collect();
        Ok(MeanImage { shape: options.shape, values })
    }
}

impl Shared {
    /// Reads, decodes and augments image `index` with the random choices of epoch `round`.
    fn image(&self, index: usize, round: u64, space: &mut Workspace, slot: Slot<'_>) -> Result<()> {
        let place = self.places.records[index];
        let mut record = std::mem::take(&mut space.record);
        let made = with_record(&self.places, place, &mut record, |payload| {
            let image = image::Image::decode(payload).map_err(|error| format!("is none: {error}"))?;
            let mut random = Random::new(self.options.seed_aug, round, place.at ^ ((place.file as u64) << 48));
            let taken = self.pipeline.run(image.content, &mut random, space, slot.pixels)?;
            self.write_labels(&image, &taken, slot.labels)?;
            *slot.id = image.id;
            Ok((image.id, taken))
        });
        if let (Ok((id, taken)), Some(masks), Some(mask)) = (&made, &self.masks, slot.mask) {
            let Some(place) = masks.place(*id) else {
                return Err(Error::Sample(format!("path_maskidx: there is no mask of the image with the id {id}")));
            };
            with_record(&masks.places, place, &mut record, |payload| {
                let content = image::Image::decode(payload).map_err(|error| format!("is no mask: {error}"))?.content;
                self.pipeline.run_mask(content, taken, masks.fill, space, mask)
            })?;
        }
        space.record = record;
        made.map(|_| ())
    }

    fn write_labels(
        &self,
        image: &image::Image<'_>,
        taken: &pipeline::Taken,
        labels: &mut [f32],
    ) -> std::result::Result<(), String> {
        let own: Vec<f32>;
        let found = match &self.labels {
            None => {
                own = image.labels().collect();
                &own
            }
            Some(list) => {
                let missing = || format!("has the id {}, which path_imglist does not list", image.id);
                list.get(&image.id).ok_or_else(missing)?
            }
        };
        if let Some(objects) = &self.options.objects {
            return objects.transform(found, &taken.steps, taken.source, labels);
        }
        if found.len() != labels.len() {
            return Err(format!("has {} labels, but label_width is {}", found.len(), labels.len()));
        }
        labels.copy_from_slice(found);
        Ok(())
    }
}

/// Reads the record at `place` into `record` and calls `make` with its payload. The file and the byte are put before the
/// text of an error of `make`.
fn with_record<T>(
    places: &Places,
    place: Place,
    record: &mut Vec<u8>,
    make: impl FnOnce(&[u8]) -> std::result::Result<T, String>,
) -> Result<T> {
    let (path, file) = &places.files[place.file];
    let len = (place.end - place.at) as usize;
    if record.len() < len {
        record.resize(len, 0);
    }
    let record = &mut record[..len];
    file.read_exact_at(record, place.at)?;
    let damaged = |source| Error::Format { path: path.clone(), source };
    let mut reader = RecordReader::with_input(SliceInput::new(record, place.at));
    let Some(found) = reader.next().map_err(damaged)? else {
        return Err(Error::Sample(format!("{}: no record begins at byte {}", path.display(), place.at)));
    };
    make(found.payload)
        .map_err(|what| Error::Sample(format!("{}: the image at byte {} {what}", path.display(), place.at)))
}

/// The labels of a `.lst` file by the index of their image.
fn labels_of(path: &Path, options: &ImageOptions) -> Result<HashMap<u64, Vec<f32>>> {
    let bytes = std::fs::read(path).map_err(|source| FsError::new("read", path, source))?;
    let mut found = HashMap::new();
    for item in list::items(&bytes) {
        let item = item.map_err(|source| Error::Format { path: path.to_owned(), source })?;
        let labels: Vec<f32> = item.labels().collect();
        if options.objects.is_none() && labels.len() != options.label_width {
            let (path, index, count, width) = (path.display(), item.index, labels.len(), options.label_width);
            return Err(Error::Sample(format!("{path}: index {index} has {count} labels, but label_width is {width}")));
        }
        found.insert(item.index, labels);
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
