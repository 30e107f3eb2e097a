//! Batches of images for `ringreel.image`.
//!
//! An [`ImageReader`] holds open files alone, so forked children may use it. [`ImageBatches`] have threads.

use crate::array::Part;
use crate::errors;
use crate::forked::OwnProcess;
use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringreel::Error;
use ringreel::read::shard::Share;
use ringreel_recordio::Prefetch;
use ringreel_recordio::image::{
    self, AffineRange, Augment, Batch, ColourJitter, Crop, Element, Geometry, ImageOptions, ImageSource, Interpolation,
    Layout, MaskSource, MeanImage, Mirror, Normalise, Objects, Pixels,
};
use ringreel_recordio::prefetch::Prefetched;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Pixels, labels, ids and masks of a batch, and how many of its last slots are padding.
type Given = (Part, Part, Part, Option<Part>, usize);

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SourceArguments {
    path_imgrec: Vec<PathBuf>,
    path_imgidx: Option<PathBuf>,
    path_imglist: Option<PathBuf>,
    part_index: u64,
    num_parts: u64,
    equal_parts: bool,
    path_maskrec: Option<PathBuf>,
    path_maskidx: Option<PathBuf>,
    mask_fill_value: u8,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct BatchArguments {
    data_shape: [usize; 3],
    batch_size: usize,
    label_width: usize,
    max_objects: usize,
    object_width: usize,
    min_eject_coverage: f32,
    dtype: String,
    layout: String,
    round_batch: bool,
    shuffle: bool,
    seed: u64,
    seed_aug: u64,
    preprocess_threads: usize,
    prefetch_buffer: usize,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GeometryArguments {
    resize: i64,
    pad: usize,
    fill_value: u8,
    rand_crop: bool,
    mirror: bool,
    rand_mirror: bool,
    inter_method: u32,
    random_resized_crop: bool,
    min_random_area: f32,
    max_random_area: f32,
    min_crop_size: i64,
    max_crop_size: i64,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct AffineArguments {
    rotate: i32,
    max_rotate_angle: i32,
    max_shear_ratio: f32,
    min_random_scale: f32,
    max_random_scale: f32,
    /// Least and largest ratio of width to height.
    aspect: (f32, f32),
    min_img_size: f32,
    max_img_size: f32,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ColourArguments {
    brightness: f32,
    contrast: f32,
    saturation: f32,
    random_h: i32,
    random_s: i32,
    random_l: i32,
    pca_noise: f32,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct NormaliseArguments {
    mean: [f32; 4],
    std: [f32; 4],
    scale: f32,
    max_random_contrast: f32,
    max_random_illumination: f32,
    mean_img: Option<PathBuf>,
}

fn refused(name: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{name}: expected {expected}"))
}

fn geometry_of(given: &Bound<'_, PyAny>) -> PyResult<Geometry> {
    let affine: AffineArguments = given.extract()?;
    let geometry: GeometryArguments = given.extract()?;
    let edge = |name: &str, len: i64| usize::try_from(len).map_err(|_| refused(name, "a number of pixels, or -1"));
    let (min, max) = (geometry.min_crop_size, geometry.max_crop_size);
    let crop = if geometry.random_resized_crop {
        Crop::RandomResized { area: (geometry.min_random_area, geometry.max_random_area), aspect: affine.aspect }
    } else if (min, max) != (-1, -1) {
        Crop::Square { min: edge("min_crop_size", min)?, max: edge("max_crop_size", max)? }
    } else {
        Crop::Fixed
    };
    let mirror = match (geometry.mirror, geometry.rand_mirror) {
        (true, _) => Mirror::Always,
        (false, true) => Mirror::Random,
        (false, false) => Mirror::Never,
    };
    Ok(Geometry {
        resize: if geometry.resize == -1 { None } else { Some(edge("resize", geometry.resize)?) },
        affine: AffineRange {
            rotate: (affine.rotate > 0).then_some(affine.rotate),
            max_rotate_angle: affine.max_rotate_angle,
            max_shear_ratio: affine.max_shear_ratio,
            scale: (affine.min_random_scale, affine.max_random_scale),
            aspect: if geometry.random_resized_crop { (1.0, 1.0) } else { affine.aspect },
            size: (affine.min_img_size, affine.max_img_size),
        },
        pad: geometry.pad,
        fill_value: geometry.fill_value,
        crop,
        rand_crop: geometry.rand_crop,
        mirror,
        inter_method: match geometry.inter_method {
            0 => Interpolation::Nearest,
            1 => Interpolation::Linear,
            2 => Interpolation::Cubic,
            3 => Interpolation::Area,
            9 => Interpolation::Auto,
            10 => Interpolation::Random,
            _ => return Err(refused("inter_method", "0, 1, 2, 3, 9 or 10")),
        },
    })
}

fn augment_of(given: &Bound<'_, PyAny>) -> PyResult<(Augment, Option<PathBuf>)> {
    let colour: ColourArguments = given.extract()?;
    let normalise: NormaliseArguments = given.extract()?;
    let augment = Augment {
        geometry: geometry_of(given)?,
        colour: ColourJitter {
            brightness: colour.brightness,
            contrast: colour.contrast,
            saturation: colour.saturation,
            random_h: colour.random_h,
            random_s: colour.random_s,
            random_l: colour.random_l,
            pca_noise: colour.pca_noise,
        },
        normalise: Normalise {
            mean: normalise.mean,
            std: normalise.std,
            scale: normalise.scale,
            max_random_contrast: normalise.max_random_contrast,
            max_random_illumination: normalise.max_random_illumination,
            mean_image: None,
        },
    };
    Ok((augment, normalise.mean_img))
}

fn options_of(given: &Bound<'_, PyAny>, augment: Augment) -> PyResult<ImageOptions> {
    let batch: BatchArguments = given.extract()?;
    Ok(ImageOptions {
        shape: batch.data_shape,
        batch_size: batch.batch_size,
        label_width: batch.label_width,
        objects: (batch.max_objects > 0).then_some(Objects {
            most: batch.max_objects,
            width: batch.object_width,
            min_coverage: batch.min_eject_coverage,
        }),
        element: match batch.dtype.as_str() {
            "uint8" => Element::U8,
            "float32" => Element::F32,
            _ => return Err(refused("dtype", "\"float32\" or \"uint8\"")),
        },
        layout: match batch.layout.as_str() {
            "NCHW" => Layout::Nchw,
            "NHWC" => Layout::Nhwc,
            _ => return Err(refused("layout", "\"NCHW\" or \"NHWC\"")),
        },
        round_batch: batch.round_batch,
        shuffle: batch.shuffle,
        seed: batch.seed,
        seed_aug: batch.seed_aug,
        threads: batch.preprocess_threads,
        prefetch: batch.prefetch_buffer,
        augment,
    })
}

/// The images of one part of RecordIO files.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct ImageReader {
    reader: image::ImageReader,
}

/// An epoch of an [`ImageReader`].
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct ImageEpoch {
    epoch: image::ImageEpoch,
}

#[pymethods]
impl ImageEpoch {
    /// Its number, from 0.
    #[getter]
    fn number(&self) -> u64 {
        self.epoch.number()
    }

    /// How many batches it has.
    #[getter]
    fn batches(&self) -> u64 {
        self.epoch.batches()
    }
}

#[pymethods]
impl ImageReader {
    /// Opens the files. `arguments`: a dict of the parameters of `ringreel.image.ImageRecordIter`. The mean image is made
    /// and saved if it is missing.
    #[new]
    fn new(py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<ImageReader> {
        let source: SourceArguments = arguments.extract()?;
        let (augment, mean_path) = augment_of(arguments)?;
        let options = options_of(arguments, augment)?;
        let raise = |error| errors::raise(py, error);
        let masks = match (source.path_maskrec, source.path_maskidx) {
            (Some(records), Some(index)) => Some(MaskSource { records, index, fill: source.mask_fill_value }),
            (None, None) => None,
            _ => return Err(refused("path_maskrec", "path_maskidx beside it, whose keys are the ids of the images")),
        };
        let source = ImageSource {
            masks,
            records: source.path_imgrec,
            index: source.path_imgidx,
            labels: source.path_imglist,
            part: Share::new(source.part_index, source.num_parts).map_err(raise)?,
            is_equal: source.equal_parts,
        };
        let reader = py.detach(|| open(&source, options, mean_path)).map_err(raise)?;
        Ok(ImageReader { reader })
    }

    fn __len__(&self) -> usize {
        self.reader.len()
    }

    /// The epoch that is read first.
    fn first_epoch(&self) -> ImageEpoch {
        ImageEpoch { epoch: self.reader.first_epoch() }
    }

    /// The epoch after `epoch`, which was read to its end or not.
    fn epoch_after(&self, epoch: &Bound<'_, ImageEpoch>, is_complete: bool) -> ImageEpoch {
        ImageEpoch { epoch: self.reader.epoch_after(epoch.get().epoch, is_complete) }
    }

    /// The batches of `epoch`.
    fn batches(&self, py: Python<'_>, epoch: &Bound<'_, ImageEpoch>) -> PyResult<ImageBatches> {
        let batches = self.reader.epoch(epoch.get().epoch).map_err(|error| errors::raise(py, error))?;
        let shape = self.shape();
        Ok(ImageBatches { batches: OwnProcess::new(Mutex::new(batches)), shape })
    }

    /// One image, as a batch of one, with the random choices of epoch `epoch`.
    fn item(&self, py: Python<'_>, index: usize, epoch: u64) -> PyResult<Given> {
        let batch = py.detach(|| self.reader.item(index, epoch)).map_err(|error| errors::raise(py, error))?;
        Ok(given(Arc::new(Whole(batch)), self.shape()))
    }
}

impl ImageReader {
    /// The lengths of an image's axes.
    fn shape(&self) -> [u64; 3] {
        let options = self.reader.options();
        let [channels, height, width] = options.shape.map(|len| len as u64);
        match options.layout {
            Layout::Nchw => [channels, height, width],
            Layout::Nhwc => [height, width, channels],
        }
    }
}

fn open(
    source: &ImageSource,
    mut options: ImageOptions,
    mean_path: Option<PathBuf>,
) -> ringreel::Result<image::ImageReader> {
    if let Some(path) = mean_path {
        let mean = if path.exists() {
            MeanImage::load(&path)?
        } else {
            let mean = image::ImageReader::open(source, options.clone())?.mean_image()?;
            mean.save(&path)?;
            mean
        };
        options.augment.normalise.mean_image = Some(Arc::new(mean));
    }
    image::ImageReader::open(source, options)
}

/// The batches of one epoch, in order.
#[pyclass(frozen, module = "ringreel._ringreel")]
pub struct ImageBatches {
    batches: OwnProcess<Mutex<Prefetch<Batch, Error>>>,
    shape: [u64; 3],
}

#[pymethods]
impl ImageBatches {
    /// The next batch; None at the end of the epoch. Its memory is used again when its arrays are gone.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Given>> {
        let batches = self.batches.get("image iterator")?;
        let next = py.detach(|| batches.lock().unwrap_or_else(PoisonError::into_inner).next());
        let batch = next.transpose().map_err(|error| errors::raise(py, error))?;
        Ok(batch.map(|batch| given(Arc::new(batch), self.shape)))
    }
}

/// A batch whose memory is freed with it.
struct Whole(Batch);

trait HasBatch: Send + Sync + 'static {
    fn batch(&self) -> &Batch;
}

impl HasBatch for Whole {
    fn batch(&self) -> &Batch {
        &self.0
    }
}

impl HasBatch for Prefetched<Batch> {
    fn batch(&self) -> &Batch {
        self
    }
}

/// The pixels of a batch.
struct PixelsOf<B>(Arc<B>);

impl<B: HasBatch> AsRef<[u8]> for PixelsOf<B> {
    fn as_ref(&self) -> &[u8] {
        self.0.batch().pixels.bytes()
    }
}

/// A batch for Python, its pixels without a copy.
fn given<B: HasBatch>(owner: Arc<B>, [a, b, c]: [u64; 3]) -> Given {
    let batch = owner.batch();
    let (images, pad) = (batch.ids.len() as u64, batch.pad);
    let dtype = match batch.pixels {
        Pixels::U8(_) => "u8",
        Pixels::F32(_) => "f32",
    };
    let width = batch.labels.len() as u64 / images.max(1);
    let labels = batch.labels.iter().flat_map(|label| label.to_ne_bytes()).collect::<Vec<u8>>();
    let ids = batch.ids.iter().flat_map(|id| id.to_ne_bytes()).collect::<Vec<u8>>();
    let masks = (!batch.masks.is_empty()).then(|| {
        let area = batch.masks.len() as u64 / images.max(1);
        Part::over("u8".to_owned(), vec![images, area], Bytes::from(batch.masks.clone()), true)
    });
    let labels = Part::over("f32".to_owned(), vec![images, width], Bytes::from(labels), true);
    let ids = Part::over("u64".to_owned(), vec![images], Bytes::from(ids), true);
    let pixels = Part::over(dtype.to_owned(), vec![images, a, b, c], Bytes::from_owner(PixelsOf(owner)), true);
    (pixels, labels, ids, masks, pad)
}
