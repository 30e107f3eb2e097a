//! `ringreel preview` draws intensities in the right places, labels in colours, and marks damaged samples.

use base64::Engine;
use image::{Rgb, RgbImage};
use ringreel::format::recordio::{RecordWriter, image as irheader};
use ringreel::fs::Posix;
use ringreel::{Generator, NamedPart};
use ringreel_cli::drawing::terminal::{kitty, png, sixel};
use ringreel_cli::drawing::{Axes, Sheet, SheetOptions, contact_sheet, of_label};
use ringreel_format::{DType, Meta};
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::samples::Samples;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::cli::{Place, Said, listing, loudly};

const BLACK: Rgb<u8> = Rgb([0; 3]);
const WHITE: Rgb<u8> = Rgb([255; 3]);
/// A volume with three different axis lengths, and a box in it that all middle slices intersect.
const SHAPE: [u64; 3] = [40, 60, 50];
const BOX: [std::ops::Range<u64>; 3] = [10..25, 20..50, 22..45];

fn volume(value: impl Fn([u64; 3]) -> f32) -> Vec<u8> {
    let [a, b, c] = SHAPE;
    let all = (0..a * b * c).map(|n| [n / (b * c), n / c % b, n % c]);
    all.flat_map(|at| value(at).to_le_bytes()).collect()
}

fn in_box(at: [u64; 3]) -> bool {
    at.iter().zip(&BOX).all(|(n, range)| range.contains(n))
}

/// A ring of one generation with these samples.
fn ring(parts: &str, samples: &[Vec<NamedPart<'_>>]) -> Place {
    let place = Place::new(&format!("SWAP_CAP: {}\nSAMPLE: [{parts}]\n", samples.len()));
    let mut generator = Generator::open(&place.config()).unwrap();
    samples.iter().for_each(|parts| drop(generator.write(parts, &Meta::new(), &|| false).unwrap()));
    generator.finish(true, &|| false).unwrap();
    place
}

fn open(path: &Path) -> Samples {
    Samples::open(Arc::new(Posix), &Subject::at(&Posix, path).unwrap()).unwrap()
}

fn options(width: u32, samples: usize) -> SheetOptions {
    SheetOptions { width, samples, ..SheetOptions::new("test") }
}

fn sheet(place: &Place, options: &SheetOptions) -> Sheet {
    contact_sheet(&open(&place.ring()), options).unwrap()
}

/// Returns the picture of the only sample.
fn drawn(place: &Place, options: &SheetOptions) -> RgbImage {
    let mut sheet = sheet(place, options);
    assert_eq!(sheet.tiles.len(), 1);
    sheet.tiles.remove(0).picture.unwrap()
}

fn draw(place: &Place, path: &Path, more: &[&str]) -> (Said, Option<RgbImage>) {
    let out = place.path().join("out.png");
    let _ = fs::remove_file(&out);
    let said = place.run(&[&["preview", path.to_str().unwrap(), "-o", out.to_str().unwrap()], more].concat());
    assert!(!said.err.contains("panicked"), "{said:?}");
    (said, fs::read(&out).ok().map(|bytes| image::load_from_memory(&bytes).unwrap().to_rgb8()))
}

fn segments(place: &Place) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(place.ring().join("read.1")).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    found
}

/// Returns where matching pixels begin and end, as fractions of the tile.
fn extent(picture: &RgbImage, x: u32, width: u32, height: u32, is: impl Fn(Rgb<u8>) -> bool) -> [f64; 4] {
    let piece = image::imageops::crop_imm(picture, x, 0, width, height).to_image();
    let found: Vec<_> = piece.enumerate_pixels().filter(|(_, _, pixel)| is(**pixel)).collect();
    assert!(!found.is_empty(), "no matching pixel in the tile at {x}");
    let share = |n: u32, of: u32| f64::from(n) / f64::from(of);
    let ends = |n: Vec<u32>, of| [share(*n.iter().min().unwrap(), of), share(n.iter().max().unwrap() + 1, of)];
    let [left, right] = ends(found.iter().map(|pixel| pixel.0).collect(), width);
    let [top, below] = ends(found.iter().map(|pixel| pixel.1).collect(), height);
    [left, right, top, below]
}

fn near(found: [f64; 4], expected: [f64; 4]) {
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 0.04, "{found:?}, expected {expected:?}");
}

#[test]
fn bright_boxes_are_drawn_in_place_and_to_scale() {
    let bytes = volume(|at| if in_box(at) { 900.0 } else { 100.0 });
    let place = ring("data", &[vec![NamedPart::new("data", DType::F32, &SHAPE, &bytes)]]);
    let picture = drawn(&place, &options(600, 1));
    // Two gaps of 4 pixels; 40 + 40 + 60 columns of the volume share the rest.
    let scale = f64::from(picture.width() - 8) / 140.0;
    let wide = |len: f64| (len * scale) as u32;
    assert_eq!(picture.height(), wide(60.0), "the height is that of the tallest slice, 60 rows");
    let bright = |pixel| pixel == WHITE;
    let share = |range: &std::ops::Range<u64>, len: f64| [range.start as f64 / len, range.end as f64 / len];
    let ([x0, x1], [y0, y1], [z0, z1]) = (share(&BOX[0], 40.0), share(&BOX[1], 60.0), share(&BOX[2], 50.0));
    let above = extent(&picture, 0, wide(40.0), wide(60.0), bright);
    near(above, [x0, x1, 1.0 - y1, 1.0 - y0]); // anterior is on top
    // The other two slices have 50 rows and are centred in the row of 60.
    let off = f64::from((wide(60.0) - wide(50.0)) / 2) / f64::from(wide(60.0));
    let up = |z: f64| off + (1.0 - z) * 50.0 / 60.0;
    near(extent(&picture, wide(40.0) + 4, wide(40.0), wide(60.0), bright), [x0, x1, up(z1), up(z0)]);
    near(extent(&picture, 2 * wide(40.0) + 8, wide(60.0), wide(60.0), bright), [y0, y1, up(z1), up(z0)]);
    // Drawn as a stack of images, the outermost axis points down.
    let picture = drawn(&place, &SheetOptions { axes: Axes::Zyx, ..options(600, 1) });
    let scale = f64::from(picture.width() - 8) / 160.0;
    let first = (50.0 * scale) as u32;
    near(extent(&picture, 0, first, (60.0 * scale) as u32, bright), [z0, z1, y0, y1]);
}

#[test]
fn labels_are_drawn_translucent_in_distinct_colours() {
    let image = volume(|at| if in_box(at) { 900.0 } else { 100.0 });
    // Label 2 covers the left half, label 1 the right half of the box.
    let labels: Vec<u8> = volume(|[x, y, z]| if x < 15 { 2.0 } else { f32::from(in_box([x, y, z])) })
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()) as u8)
        .collect();
    let (one, two) = (of_label(1).unwrap(), of_label(2).unwrap());
    let half =
        |below: Rgb<u8>, over: Rgb<u8>| Rgb([0, 1, 2].map(|n| ((u16::from(below[n]) + u16::from(over[n])) / 2) as u8));
    // A part is a label by its name, or because it has few integer values; but only if its shape is the image's.
    for (name, dtype) in [("label", DType::I8), ("brain_seg", DType::U8), ("b", DType::U8)] {
        let parts = vec![NamedPart::new("a", DType::F32, &SHAPE, &image), NamedPart::new(name, dtype, &SHAPE, &labels)];
        let place = ring(&format!("a, {name}"), &[parts]);
        let picture = drawn(&place, &options(600, 1));
        let tall = (60.0 * f64::from(picture.width() - 8) / 140.0) as u32;
        assert_eq!(picture.height(), 2 * tall + 4, "{name}: one row of images, one row with labels");
        let pixels: Vec<_> = picture.enumerate_pixels().filter(|pixel| pixel.1 >= tall + 4).map(|p| *p.2).collect();
        for expected in [half(WHITE, one), half(WHITE, two), half(BLACK, two), BLACK] {
            assert!(pixels.iter().filter(|pixel| **pixel == expected).count() > 100, "{name}: {expected:?}");
        }
        assert!(!pixels.contains(&half(BLACK, one)), "{name}: label 1 is outside the box");
        // Drawn alone on request.
        let alone =
            drawn(&place, &SheetOptions { part: Some("a".to_owned()), label: Some("a".to_owned()), ..options(600, 1) });
        assert!(alone.pixels().all(|pixel| *pixel != half(WHITE, two)));
    }
    let small = vec![1u8; 60];
    let parts =
        vec![NamedPart::new("a", DType::F32, &SHAPE, &image), NamedPart::new("label", DType::U8, &[3, 4, 5], &small)];
    let picture = drawn(&ring("a, label", &[parts]), &options(600, 1));
    assert!(!picture.pixels().any(|pixel| *pixel == half(WHITE, one)));
}

#[test]
fn every_number_type_is_drawn_despite_nan_and_infinity() {
    let gradient = |size: usize, of: &dyn Fn(f64) -> Vec<u8>| -> Vec<u8> {
        let bytes: Vec<u8> = (0..16 * 16).flat_map(|n| of(f64::from(n % 16))).collect();
        assert_eq!(bytes.len(), 256 * size);
        bytes
    };
    let cases: Vec<(DType, Vec<u8>)> = vec![
        (DType::Bool, gradient(1, &|x| vec![u8::from(x >= 8.0)])),
        (DType::U8, gradient(1, &|x| vec![x as u8 * 17])),
        (DType::I8, gradient(1, &|x| (x as i8 - 8).to_le_bytes().to_vec())),
        (DType::U16, gradient(2, &|x| (x as u16 * 4000).to_le_bytes().to_vec())),
        (DType::I16, gradient(2, &|x| (x as i16 * 100 - 900).to_le_bytes().to_vec())),
        (DType::U32, gradient(4, &|x| (x as u32 * 99).to_le_bytes().to_vec())),
        (DType::I32, gradient(4, &|x| (x as i32 - 5).to_le_bytes().to_vec())),
        (DType::U64, gradient(8, &|x| (x as u64).to_le_bytes().to_vec())),
        (DType::I64, gradient(8, &|x| (x as i64).to_le_bytes().to_vec())),
        (DType::F16, gradient(2, &|x| half::f16::from_f64(x / 16.0).to_le_bytes().to_vec())),
        (DType::BF16, gradient(2, &|x| half::bf16::from_f64(x / 16.0).to_le_bytes().to_vec())),
        (DType::F64, gradient(8, &|x| (if x == 8.0 { f64::NAN } else { x * 1e307 }).to_le_bytes().to_vec())),
        (DType::F32, gradient(4, &|x| (if x == 8.0 { f32::INFINITY } else { x as f32 }).to_le_bytes().to_vec())),
        (DType::C64, gradient(8, &|x| [(x as f32).to_le_bytes(), 0f32.to_le_bytes()].concat())),
        (DType::C128, gradient(16, &|x| [x.to_le_bytes(), 0f64.to_le_bytes()].concat())),
    ];
    for (dtype, bytes) in cases {
        let place = ring("data", &[vec![NamedPart::new("data", dtype.clone(), &[16, 16], &bytes)]]);
        let picture = drawn(&place, &options(300, 1));
        let at = |column: u32| picture.get_pixel((2 * column + 1) * picture.width() / 32, 7).0[0];
        assert_eq!((at(0), at(15)), (0, 255), "{dtype}");
        assert!(at(4) <= at(6) && at(6) <= at(11) && (dtype == DType::Bool || at(4) < at(11)), "{dtype}");
    }
    let nothing = [f32::NAN; 256].map(f32::to_le_bytes).concat();
    let place = ring("data", &[vec![NamedPart::new("data", DType::F32, &[16, 16], &nothing)]]);
    assert!(drawn(&place, &options(300, 1)).pixels().all(|pixel| *pixel == BLACK));
}

#[test]
fn preview_draws_images_and_curves_and_prints_other_parts() {
    let colours: Vec<u8> = (0..20 * 30).flat_map(|n| if n % 30 < 15 { [200, 30, 40] } else { [10, 120, 60] }).collect();
    let curve: Vec<u8> = (0..500u16).flat_map(|n| (n % 50).to_le_bytes()).collect();
    let age = 42.5f64.to_le_bytes();
    let parts = vec![
        NamedPart::new("photo", DType::U8, &[20, 30, 3], &colours),
        NamedPart::new("curve", DType::U16, &[500], &curve),
        NamedPart::new("age", DType::F64, &[], &age),
        NamedPart::new("name", DType::Bytes, &[6], &"Jürgen".as_bytes()[..6]),
        NamedPart::new("empty", DType::F64, &[0, 3], &[]),
    ];
    let place = ring("photo, curve, age, name, empty", &[parts]);
    let sheet = sheet(&place, &options(400, 1));
    let tile = &sheet.tiles[0];
    let picture = tile.picture.as_ref().unwrap();
    assert_eq!(picture.get_pixel(picture.width() / 4, 20), &Rgb([200, 30, 40]));
    assert_eq!(picture.get_pixel(picture.width() * 3 / 4, 20), &Rgb([10, 120, 60]));
    assert!(picture.height() > picture.width() * 2 / 3 + picture.width() / 5, "a curve is below the image");
    assert_eq!(tile.texts, ["curve: from 0 to 49", "age: 42.5", "name: Jürge", "empty f64 0x3, not drawn"]);
    // A selected part, and a part that does not exist.
    let (said, _) = draw(&place, &place.ring(), &["--part", "photo"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (said, none) = draw(&place, &place.ring(), &["--part", "phot"]);
    assert_eq!((said.code, none), (Some(2), None));
    assert!(said.err.contains("the parts are photo, curve, age, name, empty"), "{said:?}");
    let (said, _) = draw(&place, &place.ring(), &["--part", "age"]);
    assert!(said.code == Some(2) && said.err.contains("cannot be drawn"), "{said:?}");
}

#[test]
fn preview_limits_the_number_of_images_and_curves() {
    let (curve, photo) = ([1u8; 40], png(&RgbImage::new(20, 30)).unwrap());
    let shape = [photo.len() as u64];
    let names: Vec<String> = (0..10).map(|n| format!("part{n}")).collect();
    let parts = names.iter().enumerate().map(|(n, name)| match n {
        0..5 => NamedPart::new(name, DType::Bytes, &shape, &photo),
        _ => NamedPart::new(name, DType::U8, &[40], &curve),
    });
    let place = ring(&names.join(", "), &[parts.collect()]);
    let sheet = sheet(&place, &options(400, 1));
    assert!(sheet.notes.iter().any(|note| note.contains("only 4 parts are drawn, without \"part4\"")));
    // A selected part is always drawn.
    for part in ["part4", "part9"] {
        let (said, drawn) = draw(&place, &place.ring(), &["--part", part]);
        assert!(said.code == Some(0) && drawn.is_some(), "{said:?}");
    }
}

#[test]
fn preview_spreads_samples_over_the_generation() {
    let image = [7u8; 256];
    let samples: Vec<_> = (0..20).map(|_| vec![NamedPart::new("data", DType::U8, &[16, 16], &image)]).collect();
    let place = ring("data", &samples);
    let (said, picture) = draw(&place, &place.ring(), &["--samples", "4", "--json", "--width", "500"]);
    let told = &said.ok().json()[0];
    let positions: Vec<_> =
        told["samples"].as_array().unwrap().iter().map(|s| s["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, [0, 5, 10, 15]);
    let picture = picture.unwrap();
    assert_eq!((told["width"].as_u64(), picture.width()), (Some(500), 500));
    assert_eq!((told["generation"].as_u64(), told["there"].as_u64()), (Some(1), Some(20)));
    assert!(told["samples"][0]["generator"].as_str().is_some_and(|name| !name.is_empty()));
    let (said, _) = draw(&place, &place.ring(), &["--generation", "1", "--samples", "1000"]);
    said.ok();
    let (said, _) = draw(&place, &place.ring(), &["--generation", "9"]);
    assert!(said.code == Some(2) && said.err.contains("no generation 9"), "{said:?}");
}

#[test]
fn preview_marks_and_reports_damaged_samples() {
    let image = volume(|at| if in_box(at) { 900.0 } else { 100.0 });
    let samples: Vec<_> = (0..3).map(|_| vec![NamedPart::new("data", DType::F32, &SHAPE, &image)]).collect();
    let place = ring("data", &samples);
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    flip(&segments(&place)[1]);
    let before = listing(&place.ring());
    let (said, picture) = draw(&place, &place.ring(), &["--json"]);
    assert_eq!(listing(&place.ring()), before, "preview wrote into the ring");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("sample 1 skipped") && said.err.contains("CRC-32"), "{said:?}");
    let told = &said.json()[0];
    let damage = |n: usize| told["samples"][n]["damage"].is_string();
    assert_eq!((damage(0), damage(1), damage(2), told["damaged"].as_u64()), (false, true, false, Some(1)));
    let words = told["samples"][1]["damage"].as_str().unwrap();
    assert!(words.contains("CRC-32") && !words.contains(".rec"), "the caption must be short: {words}");
    let red = |pixel: &&Rgb<u8>| pixel.0 == [235, 87, 87];
    assert!(picture.unwrap().pixels().filter(red).count() > 500, "the damaged sample's tile is marked");
    [0, 2].iter().for_each(|n| flip(&segments(&place)[*n]));
    let (said, none) = draw(&place, &place.ring(), &[]);
    assert_eq!((said.code, none), (Some(2), None), "no sample can be drawn");
}

#[test]
fn recordio_images_are_drawn_with_and_without_mxnet_headers() {
    let place = Place::verbatim("");
    let red = RgbImage::from_pixel(30, 20, Rgb([250, 0, 0]));
    let green = RgbImage::from_pixel(20, 20, Rgb([0, 250, 0]));
    let mut jpeg = Vec::new();
    green.write_with_encoder(image::codecs::jpeg::JpegEncoder::new(&mut jpeg)).unwrap();
    let records =
        [png(&red).unwrap(), irheader::encode(7, 0, &[3.0], &jpeg), irheader::encode(8, 0, &[1.0, 2.5], &jpeg)];
    let write = |name: &str, records: &[Vec<u8>]| {
        let mut writer = RecordWriter::new(Vec::new());
        records.iter().for_each(|record| assert!(writer.write(record).unwrap() < 1 << 20));
        let path = place.path().join(name);
        fs::write(&path, writer.into_inner()).unwrap();
        path
    };
    let path = write("train.rec", &records);
    let sheet = contact_sheet(&open(&path), &options(600, 9)).unwrap();
    let texts: Vec<_> = sheet.tiles.iter().map(|tile| tile.texts.join(" ")).collect();
    assert_eq!(texts, ["", "label 3", "label 1, 2.5"]);
    let (said, picture) = draw(&place, &path, &[]);
    said.ok();
    let picture = picture.unwrap();
    let count = |channel: usize| {
        picture
            .pixels()
            .filter(|p| p.0[channel] > 230 && p.0[(channel + 1) % 3] < 40 && p.0[(channel + 2) % 3] < 40)
            .count()
    };
    assert!(count(0) > 1000 && count(1) > 1000, "{} red, {} green", count(0), count(1));
    // A truncated image, an image that claims a huge size, and a record that is not an image.
    let mut huge = png(&red).unwrap();
    huge[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    let crc = crc32fast::hash(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.to_be_bytes());
    let path = write("bad.rec", &[records[0].clone(), jpeg[..60].to_vec(), huge, b"text".to_vec()]);
    let (said, picture) = draw(&place, &path, &["--json"]);
    assert!(said.code == Some(1) && picture.is_some(), "{said:?}");
    assert_eq!(said.json()[0]["damaged"], 2);
    let path = write("text.rec", &[b"text".to_vec()]);
    let (said, _) = draw(&place, &path, &[]);
    assert!(said.code == Some(2) && said.err.contains("can be drawn"), "{said:?}");
}

#[test]
fn preview_without_terminal_or_file_suggests_an_option() {
    let place = ring("data", &[vec![NamedPart::new("data", DType::U8, &[16, 16], &[200; 256])]]);
    let path = place.ring();
    let run = |more: &[&str]| place.run(&[&["preview", path.to_str().unwrap()], more].concat());
    let said = run(&[]);
    assert!(said.code == Some(2) && said.err.contains("with -o FILE.png") && said.out.is_empty(), "{said:?}");
    let said = run(&["-o", "sheet.bmp"]);
    assert!(said.code == Some(2) && said.err.contains(".png or .jpg"), "{said:?}");
    let said = place.run(&["preview", "nowhere", "-o", "x.png"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let blocks = run(&["--as", "blocks", "--width", "80"]).ok().out;
    assert!(blocks.contains("\x1b[38;2;200;200;200;48;2;200;200;200m▀"), "{blocks:?}");
    assert!(blocks.starts_with("#0  "), "captions must be text: {blocks:?}");
    assert!(run(&["--as", "kitty"]).ok().out.starts_with("\x1b_Ga=T,f=100,q=2,"));
    let sixels = run(&["--as", "sixel", "--width", "200"]).ok().out;
    assert!(sixels.starts_with("\x1bPq\"1;1;200;") && sixels.ends_with("\x1b\\\n"));
}

/// Decodes sixels as a terminal does.
fn from_sixels(text: &str) -> RgbImage {
    let body = text.strip_prefix("\x1bPq\"").unwrap().strip_suffix("\x1b\\\n").unwrap();
    let (raster, body) = body.split_at(body.find('#').unwrap());
    let size: Vec<u32> = raster.split(';').map(|n| n.parse().unwrap()).collect();
    let mut picture = RgbImage::new(size[2], size[3]);
    let (mut palette, mut colour, mut x, mut y) = (vec![BLACK; 256], 0, 0, 0);
    let mut rest = body;
    let number = |rest: &mut &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        *rest = after;
        digits.parse::<u32>().unwrap()
    };
    while let Some(c) = rest.chars().next() {
        rest = &rest[1..];
        let mut run = 1;
        let mut sixel = c;
        match c {
            '#' => {
                colour = number(&mut rest) as usize;
                if rest.starts_with(";2;") {
                    rest = &rest[2..];
                    palette[colour] = Rgb([0; 3].map(|_: u8| {
                        rest = &rest[1..];
                        (number(&mut rest) * 255 / 100) as u8
                    }));
                }
                continue;
            }
            '$' => {
                x = 0;
                continue;
            }
            '-' => {
                (x, y) = (0, y + 6);
                continue;
            }
            '!' => {
                run = number(&mut rest);
                sixel = rest.chars().next().unwrap();
                rest = &rest[1..];
            }
            _ => {}
        }
        for x in x..x + run {
            (0..6)
                .filter(|bit| (sixel as u32 - 63) >> bit & 1 == 1)
                .for_each(|bit| picture.put_pixel(x, y + bit, palette[colour]));
        }
        x += run;
    }
    picture
}

#[test]
fn terminal_and_file_output_show_the_same_picture() {
    let picture = RgbImage::from_fn(37, 23, |x, y| Rgb([(x * 6) as u8, (y * 11) as u8, 255 - (x * 6) as u8]));
    let coded: String =
        kitty(&picture).unwrap().split("\x1b\\").filter_map(|command| command.split_once(';')).map(|c| c.1).collect();
    let file = base64::engine::general_purpose::STANDARD.decode(coded).unwrap();
    assert_eq!(image::load_from_memory(&file).unwrap().to_rgb8(), picture);
    let shown = from_sixels(&sixel(&picture));
    assert_eq!(shown.dimensions(), picture.dimensions());
    // The palette is small and dithered, so only means of neighbourhoods are compared.
    for (x, y) in [(0, 0), (13, 3), (25, 11)] {
        for channel in 0..3 {
            let mean = |of: &RgbImage| {
                let piece = image::imageops::crop_imm(of, x, y, 12, 12).to_image();
                piece.pixels().map(|pixel| f64::from(pixel.0[channel])).sum::<f64>() / 144.0
            };
            assert!(
                (mean(&shown) - mean(&picture)).abs() < 8.0,
                "{x} {y} {channel}: {} {}",
                mean(&shown),
                mean(&picture)
            );
        }
    }
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let mut meta = Meta::new();
    meta.set("generator", "\x1b[2Jme\n");
    let place = Place::new("SWAP_CAP: 1\nSAMPLE: [data, \"\\e[31mbad\"]\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    let parts = [
        NamedPart::new("data", DType::U8, &[16, 16], &[200; 256]),
        NamedPart::new("\x1b[31mbad", DType::Bytes, &[5], b"\x1b[32m"),
    ];
    generator.write(&parts, &meta, &|| false).unwrap();
    generator.finish(true, &|| false).unwrap();
    let said = place.run(&["preview", place.ring().to_str().unwrap(), "--as", "blocks"]).ok();
    assert!(!["\x1b[2J", "\x1b[31m", "\x1b[32m"].iter().any(|bad| said.out.contains(bad)), "{said:?}");
    draw(&place, &place.ring(), &[]).0.ok();
}

#[test]
fn every_format_vector_is_drawn_or_refused() {
    let vectors = testkit::workspace().join("format/vectors");
    let (mut whole, mut damaged, mut refused) = (0, 0, 0);
    for kind in ["ok", "bad"] {
        for file in fs::read_dir(vectors.join(kind)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|end| end == "rec") {
                let subject = Subject::at(&Posix, &file).unwrap();
                let samples = Samples::open(Arc::new(Posix), &subject);
                match samples.and_then(|samples| contact_sheet(&samples, &options(200, 6))) {
                    Ok(sheet) if sheet.image().height() < 50 => panic!("{} is not drawn", file.display()),
                    Ok(sheet) if sheet.notes.is_empty() => whole += 1,
                    Ok(_) => damaged += 1,
                    Err(error) => refused += usize::from(!error.to_string().is_empty()),
                }
            }
        }
    }
    loudly(&format!("vectors drawn: {whole}, with damage: {damaged}, refused: {refused}"));
    assert!(whole > 20 && damaged > 20 && refused > 20);
    let place = Place::verbatim("");
    for (name, code) in [("ok/golden.rec", 0), ("bad/crc-part.rec", 1), ("bad/both-major-2.rec", 2)] {
        let (said, picture) = draw(&place, &vectors.join(name), &["--width", "300"]);
        assert_eq!((said.code, picture.is_some()), (Some(code), code < 2), "{name}: {said:?}");
    }
}
