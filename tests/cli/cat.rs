//! `ringreel cat` writes a part unchanged, in every format, and modifies nothing else.

use ringreel::{Generator, NamedPart};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::recordio::image::encode;
use ringreel_format::{DType, Meta};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use testkit::cli::{self, Place, contents, generate, listing, loudly};

/// Two generations of five samples.
fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\nKEEP: 3\n");
    generate(&place.config(), 0..10);
    place
}

/// A generation of one sample with the given parts.
fn sample_of(parts: &[NamedPart<'_>]) -> Place {
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    let place = Place::new(&format!("SWAP_CAP: 1\nSAMPLE: [{}]\n", names.join(", ")));
    let mut generator = Generator::open(&place.config()).unwrap();
    generator.write(parts, &Meta::new(), &|| false).unwrap();
    generator.finish(true, &|| false).unwrap();
    place
}

fn bytes_of<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

fn segment(place: &Place) -> PathBuf {
    fs::read_dir(place.ring().join("read.1")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn cat_writes_part_bytes_unchanged_and_leaves_ring_untouched() {
    let place = ring();
    let before = listing(&place.ring());
    let out = place.path().join("x.bin");
    place.run(&["cat", "demo.ring", "-n", "3", "--part", "data", "-o", "x.bin"]).ok();
    assert!(fs::read(&out).unwrap() == contents(8, 0, cli::DATA), "generation 2 is the newest");
    place.run(&["cat", "demo.ring", "--generation", "1", "--part", "label", "-o", "y.bin"]).ok();
    assert!(fs::read(place.path().join("y.bin")).unwrap() == contents(0, 1, cli::LABEL));
    // A pipe gets the same bytes.
    let said = place.command(&["cat", "demo.ring", "-n", "3", "--part", "data"]).output().unwrap();
    assert!(said.status.success() && said.stdout == fs::read(&out).unwrap());
    assert_eq!(listing(&place.ring()), before);
}

#[test]
fn cat_finds_a_sample_id_in_every_directory_of_the_ring() {
    let place = ring();
    let mut generator = Generator::open(&place.config()).unwrap();
    let waiting = cli::put(&mut generator, 77)[0].to_string();
    drop(generator);
    let said = place.run(&["cat", "demo.ring", "--generation", "1", "-n", "2", "--as", "json"]).ok();
    let old = said.json()[0]["id"].as_str().unwrap().to_owned();
    for (id, n) in [(old, 2), (waiting, 77)] {
        let said = place.run(&["cat", "demo.ring", "--id", &id, "--as", "json"]).ok();
        assert_eq!((&said.json()[0]["id"], &said.json()[0]["meta"]["n"]), (&id.as_str().into(), &n.into()));
        let values = &said.json()[0]["parts"]["label"]["values"];
        assert_eq!(*values, serde_json::to_value(contents(n, 1, cli::LABEL)).unwrap());
    }
    let nowhere = place.run(&["cat", "demo.ring", "--id", &format!("{}.0", "0".repeat(32)), "--as", "json"]);
    assert!(nowhere.code == Some(2) && nowhere.err.contains("no sample "), "{nowhere:?}");
}

#[test]
fn cat_keeps_existing_files_and_removes_failed_output() {
    let place = ring();
    let file = place.path().join("x.npy");
    let cat = |more: &[&str]| place.run(&[&["cat", "demo.ring", "--part", "data", "-o", "x.npy"], more].concat());
    fs::write(&file, "mine").unwrap();
    let said = cat(&[]);
    assert!(said.code == Some(2) && said.err.contains("--force"), "{said:?}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    cat(&["--force"]).ok();
    assert_eq!(fs::read(&file).unwrap().len(), 128 + cli::DATA);
    // An axis of 4096 elements cannot be drawn; the image is longer than NIfTI-1 allows; two parts need a choice.
    for args in [&["--part", "data", "-o", "no.png"][..], &["-o", "no.npy"], &["--part", "nothing", "-o", "no.npy"]] {
        let said = place.run(&[&["cat", "demo.ring"], args].concat());
        assert!(said.code == Some(2) && said.err.lines().count() == 1, "{said:?}");
        assert!(!place.path().join(args[args.len() - 1]).exists());
    }
    let unnamed = place.run(&["cat", "demo.ring"]);
    assert!(unnamed.err.contains("data, label") && unnamed.out.is_empty(), "{unnamed:?}");
    for args in [&["-n", "5"][..], &["--generation", "9"], &["--id", "x"], &["-n", "1", "-o", "x.nii.gz"]] {
        assert_eq!(place.run(&[&["cat", "demo.ring", "--part", "data"], args].concat()).code, Some(2), "{args:?}");
    }
}

#[test]
fn binary_is_not_written_to_a_terminal() {
    let place = ring();
    let command = format!("{} cat demo.ring --part data", testkit::binary());
    let run = Command::new("script").args(["-qec", &command, "/dev/null"]).current_dir(place.path()).output();
    let Ok(said) = run else {
        return loudly("SKIPPED: binary_is_not_written_to_a_terminal: the command `script` is missing");
    };
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.code() == Some(2) && text.contains("-o PATH") && text.len() < 400, "{said:?}");
}

#[test]
fn nifti_image_has_the_first_axis_fastest() {
    let values: Vec<i16> = (0..24).collect();
    let data = bytes_of(values.iter().map(|n| n.to_le_bytes()));
    let place = sample_of(&[NamedPart::new("data", DType::I16, &[2, 3, 4], &data)]);
    place.run(&["cat", "demo.ring", "-o", "x.nii"]).ok();
    let file = fs::read(place.path().join("x.nii")).unwrap();
    let short = |at: usize| i16::from_le_bytes([file[at], file[at + 1]]);
    assert_eq!((file[0..4].to_vec(), &file[344..348]), (348i32.to_le_bytes().to_vec(), &b"n+1\0"[..]));
    assert_eq!([40, 42, 44, 46, 48, 70, 72].map(short), [3, 2, 3, 4, 1, 4, 16]);
    assert_eq!(file.len(), 352 + 48);
    let [i, j, k] = [1, 2, 3];
    assert_eq!(short(352 + 2 * (i + 2 * j + 6 * k)), (i * 12 + j * 4 + k) as i16);
}

#[test]
fn png_keeps_u8_values_and_scales_other_types() {
    let gray: Vec<u8> = (0..6).collect();
    let wide = bytes_of([0u16, 1, 300, 65535].map(u16::to_le_bytes));
    let volume = bytes_of((0..30).map(|n| (n as f32 - 3.0).to_le_bytes()));
    let place = sample_of(&[
        NamedPart::new("gray", DType::U8, &[2, 3], &gray),
        NamedPart::new("wide", DType::U16, &[2, 2], &wide),
        NamedPart::new("rgb", DType::U8, &[1, 2, 3], &gray),
        NamedPart::new("volume", DType::F32, &[1, 2, 3, 5], &volume),
    ]);
    let picture = |part: &str, more: &[&str]| {
        let args = [&["cat", "demo.ring", "--part", part, "-o", "x.png", "--force"], more].concat();
        let said = place.run(&args).ok();
        (image::open(place.path().join("x.png")).unwrap(), said.err)
    };
    let (gray_png, said) = picture("gray", &[]);
    assert_eq!((gray_png.as_luma8().unwrap().as_raw(), gray_png.width(), &*said), (&gray, 3, ""));
    assert_eq!(picture("wide", &[]).0.as_luma16().unwrap().as_raw(), &[0, 1, 300, 65535]);
    assert_eq!(picture("rgb", &[]).0.as_rgb8().unwrap().as_raw(), &gray);
    let (slice, said) = picture("volume", &["--axis", "1", "--slice", "2"]);
    // Elements [i, 2, k]: 10 to 14 and 25 to 29, less 3.
    let want = [0, 1, 2, 3, 4, 15, 16, 17, 18, 19].map(|x| (f64::from(x) / 19.0 * 255.0).round() as u8);
    assert_eq!((slice.as_luma8().unwrap().as_raw().as_slice(), slice.width()), (&want[..], 5));
    assert!(said.contains("7 is black, 26 is white"), "{said}");
    assert!(picture("volume", &[]).1.contains("slice 1 of 2 on axis 0"));
    for wrong in [&["--axis", "3"][..], &["--axis", "0", "--slice", "2"]] {
        let args = [&["cat", "demo.ring", "--part", "volume", "-o", "no.png"], wrong].concat();
        assert_eq!(place.run(&args).code, Some(2));
    }
}

#[test]
fn json_prints_exact_values() {
    let floats = bytes_of([0.1f32, f32::NAN, f32::NEG_INFINITY, 1e30].map(f32::to_le_bytes));
    let place = sample_of(&[
        NamedPart::new("floats", DType::F32, &[2, 2], &floats),
        NamedPart::new("big", DType::U64, &[1], &u64::MAX.to_le_bytes()),
        NamedPart::new("bool", DType::Bool, &[], &[1]),
        NamedPart::new("complex", DType::C64, &[1], &floats[..8]),
        NamedPart::new("bytes", DType::Bytes, &[2], &[0, 255]),
        NamedPart::new("empty", DType::I8, &[0, 3], &[]),
        NamedPart::new("time", DType::Numpy { descr: "<M8[s]".into(), itemsize: 8 }, &[1], &[1; 8]),
    ]);
    let said = place.run(&["cat", "demo.ring", "--as", "json"]).ok();
    let value = |part: &str| said.json()[0]["parts"][part]["values"].clone();
    assert_eq!(value("floats"), serde_json::json!([[0.1, "NaN"], ["-inf", 1e30]]));
    assert_eq!((value("big"), value("bool")), (serde_json::json!([u64::MAX]), true.into()));
    assert_eq!(value("complex"), serde_json::json!([[0.1, "NaN"]]));
    assert_eq!((value("bytes"), value("empty")), ("00ff".into(), serde_json::json!([])));
    assert_eq!(value("time"), serde_json::json!(["0101010101010101"]));
}

#[test]
fn mxnet_image_record_is_written_without_its_header() {
    let place = Place::verbatim("");
    let mut file = Vec::new();
    let mut writer = RecordWriter::new(&mut file);
    writer.write(&encode(7, 0, &[1.0, 2.0], b"\xff\xd8\xffpixels")).unwrap();
    writer.write(b"short").unwrap();
    fs::write(place.path().join("train.rec"), file).unwrap();
    place.run(&["cat", "train.rec", "--part", "image", "-o", "0.jpg"]).ok();
    assert_eq!(fs::read(place.path().join("0.jpg")).unwrap(), b"\xff\xd8\xffpixels");
    place.run(&["cat", "train.rec", "-o", "0.bin"]).ok();
    assert_eq!(fs::read(place.path().join("0.bin")).unwrap().len(), 24 + 8 + 9);
    let short = place.run(&["cat", "train.rec", "-n", "1", "--part", "image", "-o", "1.jpg"]);
    assert!(short.code == Some(2) && short.err.contains("not an MXNet image record"), "{short:?}");
    assert!(!place.path().join("1.jpg").exists());
}

#[test]
fn cat_fails_for_damaged_samples_only() {
    let place = ring();
    let file = segment(&place);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let codes: Vec<_> = (0..5)
        .map(|n| {
            let n = n.to_string();
            place.run(&["cat", "demo.ring", "--generation", "1", "-n", &n, "--as", "json"]).code
        })
        .collect();
    assert_eq!(
        (codes.iter().filter(|code| **code == Some(0)).count(), codes.contains(&Some(1))),
        (4, true),
        "{codes:?}"
    );
}

#[test]
fn every_format_vector_gives_a_status_and_one_message() {
    let place = Place::verbatim("");
    let vectors = testkit::workspace().join("format/vectors");
    for kind in ["ok", "bad"] {
        for entry in fs::read_dir(vectors.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end == "json") {
                continue;
            }
            for format in ["npz", "json"] {
                let args = ["cat", path.to_str().unwrap(), "--sample", "0", "--as", format];
                let said = place.command(&args).output().unwrap();
                let err = String::from_utf8_lossy(&said.stderr);
                assert!(!err.contains("panicked"), "{args:?}: {err}");
                match said.status.code() {
                    Some(0) => assert!(!said.stdout.is_empty()),
                    Some(1 | 2) => assert!(said.stdout.is_empty() && !err.is_empty(), "{args:?}: {said:?}"),
                    _ => panic!("{args:?}: {said:?}"),
                }
            }
        }
    }
}
