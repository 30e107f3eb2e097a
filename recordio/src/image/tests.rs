//! Whole epochs: records, labels, pixels, threads, errors.
#![allow(clippy::unwrap_used)]

use super::*;
use ::image::{ImageFormat, RgbImage};
use ringreel_format::recordio::RecordWriter;

/// A file of `count` PNG images, of 12 × 10 to 20 × 18 pixels, labelled by their numbers.
fn file(dir: &Path, count: u64) -> PathBuf {
    let path = dir.join("x.rec");
    let mut writer = RecordWriter::new(std::fs::File::create(&path).unwrap());
    for n in 0..count {
        let size = (12 + n as u32 % 5 * 2, 10 + n as u32 % 3 * 4);
        let mut random = Random::new(n, 0, 0);
        let picture = RgbImage::from_fn(size.0, size.1, |_, _| [0; 3].map(|_| random.up_to(255) as u8).into());
        let mut png = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut png, ImageFormat::Png).unwrap();
        writer.write(&image::encode(n, 0, &[n as f32], &png.into_inner())).unwrap();
    }
    path
}

fn source(path: &Path) -> ImageSource {
    ImageSource {
        records: vec![path.to_owned()],
        index: None,
        labels: None,
        masks: None,
        part: Share::ALL,
        is_equal: false,
    }
}

fn random_options(threads: usize) -> ImageOptions {
    let mut options = ImageOptions::new([3, 8, 8], 4);
    options.threads = threads;
    options.shuffle = true;
    options.augment.geometry =
        Geometry { rand_crop: true, mirror: Mirror::Random, resize: Some(11), ..Geometry::default() };
    options.augment.colour = ColourJitter { brightness: 0.3, random_h: 20, ..ColourJitter::default() };
    options
}

/// All batches of the first `count` epochs.
fn epochs(source: &ImageSource, options: ImageOptions, count: usize) -> Vec<Batch> {
    let reader = ImageReader::open(source, options).unwrap();
    let mut epoch = reader.first_epoch();
    let mut batches = Vec::new();
    for _ in 0..count {
        batches.extend(reader.epoch(epoch).unwrap().map(|batch| batch.unwrap().clone()));
        epoch = reader.epoch_after(epoch, true);
    }
    batches
}

#[test]
fn batches_do_not_depend_on_threads() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&file(dir.path(), 10));
    let one = epochs(&source, random_options(1), 3);
    assert_eq!(one.len(), 8);
    for threads in [2, 7] {
        assert_eq!(epochs(&source, random_options(threads), 3), one);
    }
    let mut labels: Vec<f32> = one.iter().flat_map(|batch| batch.labels.clone()).collect();
    labels.truncate(30);
    labels.sort_by(f32::total_cmp);
    assert!(labels.iter().enumerate().all(|(n, label)| *label == (n / 3) as f32), "each record once in each epoch");
}

#[test]
fn augmentation_does_not_depend_on_parts_or_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 10);
    let by_label = |batches: &[Batch]| {
        let mut found = std::collections::BTreeMap::new();
        for batch in batches {
            for (label, pixels) in batch.labels.iter().zip(batch.pixels.bytes().chunks_exact(8 * 8 * 3 * 4)) {
                found.insert(*label as u32, pixels.to_vec());
            }
        }
        found
    };
    let whole = ImageOptions { batch_size: 10, ..random_options(1) };
    let parts: Vec<Batch> = (0..3)
        .flat_map(|rank| {
            let source = ImageSource { part: Share::new(rank, 3).unwrap(), ..source(&path) };
            let options = ImageOptions { batch_size: 1, shuffle: false, ..random_options(2) };
            epochs(&source, options, 1)
        })
        .collect();
    assert_eq!(by_label(&parts), by_label(&epochs(&source(&path), whole, 1)));
}

#[test]
fn item_equals_its_slot_of_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&file(dir.path(), 6));
    let options = ImageOptions { shuffle: false, batch_size: 6, ..random_options(2) };
    let batch = epochs(&source, options.clone(), 1).remove(0);
    let reader = ImageReader::open(&source, options).unwrap();
    assert_eq!(reader.len(), 6);
    for n in 0..6 {
        let item = reader.item(n, 0).unwrap();
        assert_eq!(item.labels, [n as f32]);
        assert_eq!(item.pixels.bytes(), &batch.pixels.bytes()[n * 768..(n + 1) * 768]);
    }
    assert!(reader.item(6, 0).is_err());
}

#[test]
fn empty_slots_are_zero_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&file(dir.path(), 5));
    let mut options = ImageOptions::new([3, 8, 8], 3);
    (options.round_batch, options.element, options.prefetch) = (false, Element::U8, 1);
    let batches = epochs(&source, options, 2);
    for last in [&batches[1], &batches[3]] {
        assert_eq!((last.pad, &last.labels[..], &last.ids[..]), (1, &[3.0, 4.0, 0.0][..], &[3, 4, 0][..]));
        assert!(last.pixels.bytes()[2 * 192..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn mean_image_is_the_mean_of_all_crops() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&file(dir.path(), 5));
    let mut options = ImageOptions::new([3, 8, 8], 3);
    let reader = ImageReader::open(&source, options.clone()).unwrap();
    let mean = reader.mean_image().unwrap();
    options.element = Element::U8;
    let (reader, mut sums) = (ImageReader::open(&source, options.clone()).unwrap(), vec![0_u32; 192]);
    for n in 0..5 {
        let item = reader.item(n, 0).unwrap();
        sums.iter_mut().zip(item.pixels.bytes()).for_each(|(sum, byte)| *sum += u32::from(*byte));
    }
    assert!(mean.values.iter().zip(&sums).all(|(mean, sum)| (mean - *sum as f32 / 5.0).abs() < 1e-4));
    options.element = Element::F32;
    options.augment.normalise.mean_image = Some(Arc::new(mean));
    let batches = epochs(&source, ImageOptions { batch_size: 5, ..options }, 1);
    let Pixels::F32(numbers) = &batches[0].pixels else { unreachable!() };
    assert!(numbers.iter().sum::<f32>().abs() < 0.1);
}

#[test]
fn broken_images_are_errors_that_name_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.rec");
    let good = std::fs::read(file(dir.path(), 4)).unwrap();
    let mut writer = RecordWriter::new(std::fs::File::create(&path).unwrap());
    writer.write(&image::encode(9, 0, &[9.0], b"no image")).unwrap();
    drop(writer);
    let broken = std::fs::read(&path).unwrap();
    std::fs::write(&path, [broken, good].concat()).unwrap();
    let reader = ImageReader::open(&source(&path), ImageOptions::new([3, 8, 8], 2)).unwrap();
    let mut batches = reader.epoch(reader.first_epoch()).unwrap();
    let error = batches.next().unwrap().err().unwrap().to_string();
    assert!(error.contains("x.rec: the image at byte 0 cannot be decoded"), "{error}");
    assert_eq!(batches.next().unwrap().unwrap().labels, [1.0, 2.0]);
}

#[test]
fn labels_come_from_the_list_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, list) = (file(dir.path(), 3), dir.path().join("x.lst"));
    std::fs::write(&list, "2\t7\t0.5\tc\n0\t5\t0.25\ta\n1\t6\t0\tb\n").unwrap();
    let source = ImageSource { labels: Some(list.clone()), ..source(&path) };
    let options = ImageOptions { label_width: 2, ..ImageOptions::new([3, 8, 8], 3) };
    assert_eq!(epochs(&source, options.clone(), 1)[0].labels, [5.0, 0.25, 6.0, 0.0, 7.0, 0.5]);
    assert!(ImageReader::open(&source, ImageOptions { label_width: 1, ..options.clone() }).is_err());
    std::fs::write(&list, "0\t5\t0.25\ta\n").unwrap();
    let reader = ImageReader::open(&source, options).unwrap();
    let error = reader.epoch(reader.first_epoch()).unwrap().next().unwrap().err().unwrap().to_string();
    assert!(error.contains("has the id 1, which path_imglist does not list"), "{error}");
}

#[test]
fn masks_and_boxes_take_the_steps_of_their_image() {
    let dir = tempfile::tempdir().unwrap();
    let (path, masks, index) = (dir.path().join("x.rec"), dir.path().join("m.rec"), dir.path().join("m.idx"));
    let mut writers = [&path, &masks].map(|path| RecordWriter::new(std::fs::File::create(path).unwrap()));
    let png = |content: ::image::DynamicImage| {
        let mut png = std::io::Cursor::new(Vec::new());
        content.write_to(&mut png, ImageFormat::Png).unwrap();
        png.into_inner()
    };
    // A white rectangle, the mask that marks it, and its box.
    let is_inside = |x, y| (16..32).contains(&x) && (8..40).contains(&y);
    let picture = RgbImage::from_fn(64, 48, |x, y| [if is_inside(x, y) { 255 } else { 0 }; 3].into());
    let mask = ::image::GrayImage::from_fn(64, 48, |x, y| [u8::from(is_inside(x, y))].into());
    let labels = [2.0, 5.0, 9.0, 0.25, 8.0 / 48.0, 0.5, 40.0 / 48.0];
    writers[0].write(&image::encode(77, 0, &labels, &png(picture.into()))).unwrap();
    let at = writers[1].write(&image::encode(77, 0, &[0.0], &png(mask.into()))).unwrap();
    drop(writers);
    std::fs::write(&index, format!("77\t{at}\n")).unwrap();
    let source = ImageSource { masks: Some(MaskSource { records: masks, index, fill: 200 }), ..source(&path) };
    let mut options = ImageOptions { element: Element::U8, ..ImageOptions::new([1, 30, 30], 64) };
    options.objects = Some(Objects { most: 2, width: 5, min_coverage: 0.0 });
    let affine = AffineRange { max_rotate_angle: 0, scale: (0.8, 1.2), ..AffineRange::default() };
    options.augment.geometry = Geometry {
        resize: Some(40),
        rand_crop: true,
        mirror: Mirror::Random,
        affine,
        inter_method: Interpolation::Nearest,
        fill_value: 0,
        ..Geometry::default()
    };
    let batch = epochs(&source, options, 1).remove(0);
    for (n, pixels) in batch.pixels.bytes().chunks_exact(900).enumerate() {
        let (mask, object) = (&batch.masks[n * 900..][..900], &batch.labels[n * 10..][..10]);
        let mut bounds = [f32::MAX, f32::MAX, 0.0, 0.0];
        for (at, (pixel, mask)) in pixels.iter().zip(mask).enumerate() {
            assert!(*mask == u8::from(*pixel == 255) || *mask == 200, "{n} {at}");
            if *mask == 1 {
                let (x, y) = ((at % 30) as f32, (at / 30) as f32);
                bounds = [bounds[0].min(x), bounds[1].min(y), bounds[2].max(x + 1.0), bounds[3].max(y + 1.0)];
            }
        }
        // Edges are rounded to whole pixels, so that a sliver may be in the mask alone, or in the box alone.
        let width = |edges: &[f32]| (edges[2] - edges[0]).min(edges[3] - edges[1]);
        if bounds[2] == 0.0 || object[0] == -1.0 {
            assert!(width(&bounds) < 1.5 && width(&object[1..]) * 30.0 < 1.5, "{object:?} {bounds:?}");
            continue;
        }
        assert!(object[0] == 9.0 && object[5..] == [-1.0; 5], "{object:?}");
        let off = object[1..5].iter().zip(bounds).map(|(edge, bound)| (edge * 30.0 - bound).abs());
        assert!(off.fold(0.0, f32::max) <= 1.5, "{n}: {object:?} {bounds:?}");
    }
}
