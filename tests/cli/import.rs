//! `ringreel import`: every input becomes a sample of the ring, once, with the right bytes, label and meta.

use flate2::{Compression, write::GzEncoder};
use image::{GrayImage, RgbImage};
use ringreel::Reader;
use ringreel::read::{ReadPart, ReadSample};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::recordio::image::encode;
use ringreel_format::{DType, Part, Value};
use std::fs;
use std::io::Write;
use std::path::Path;
use testkit::cli::{Place, Said, eventually};

fn import(place: &Place, args: &str) -> Said {
    place.run(&[&["import", "--json"], &args.split(' ').collect::<Vec<_>>()[..]].concat())
}

/// A number of the summary.
fn said(said: &Said, key: &str) -> u64 {
    said.json()[0][key].as_u64().unwrap()
}

/// An `.npy` file, written here a second time.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({shape}), }}");
    header += &" ".repeat(117 - header.len());
    [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), b"\n", data].concat()
}

fn samples(place: &Place) -> Vec<ReadSample> {
    let reader = Reader::open(&place.config()).unwrap();
    let generation = reader.newest().unwrap();
    (0..generation.summary.samples).map(|n| reader.sample(&generation, n).unwrap()).collect()
}

/// The input that a sample is made of.
fn input(sample: &ReadSample) -> &str {
    sample.meta.text("input").unwrap()
}

/// The inputs of all samples that can be read, sorted.
fn all_inputs(place: &Place) -> Vec<String> {
    let reader = Reader::open(&place.config()).unwrap();
    let mut found = Vec::new();
    for generation in reader.kept().unwrap() {
        for position in 0..generation.summary.samples {
            found.push(input(&reader.sample(&generation, position).unwrap()).to_owned());
        }
    }
    found.sort();
    found
}

/// Two volumes, of which one has no segmentation, in files as other programs write them.
fn scans() -> Place {
    let place = Place::new("SAMPLE: [data, label]\nSWAP_CAP: 3");
    let write = |path: &str, bytes: &[u8]| {
        let path = place.path().join("scans").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).unwrap();
        fs::write(path, packed.finish().unwrap()).unwrap();
    };
    for n in 0..5u8 {
        write(&format!("s{n}/x_t1.nii.gz"), &nifti(DType::F32, &[2, 3, 4], &volume(n)));
        write(&format!("s{n}/x_seg.nii.gz"), &nifti(DType::U8, &[2, 3, 4], &[n; 24]));
    }
    fs::remove_file(place.path().join("scans/s3/x_seg.nii.gz")).unwrap();
    place
}

fn volume(n: u8) -> Vec<u8> {
    (0..24u8).flat_map(|i| (f32::from(i) + f32::from(n) * 100.0).to_le_bytes()).collect()
}

/// As `ringreel cat --as nifti` writes it.
fn nifti(dtype: DType, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let part = Part::new(dtype, shape.to_vec(), data.to_vec().into()).unwrap();
    let mut out = Vec::new();
    ringreel_cli::formats::nifti::write(&ReadPart { name: "data".into(), part }, "", &mut out).unwrap();
    out
}

#[test]
fn volumes_that_belong_together_become_samples_of_a_ring() {
    let place = scans();
    let parts = "--part data=*_t1.nii.gz --part label=*_seg.nii.gz";
    let done = import(&place, &format!("scans --journal done {parts}"));
    assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 4, 1), "{done:?}");
    assert!(done.err.contains("\"s3/x\" has no file for the part label"), "{done:?}");
    // Generation 1 held three of them. The last generation is not full, and readable.
    let there = samples(&place);
    assert_eq!((there.len(), input(&there[0])), (1, "s4/x"));
    let (data, label) = (&there[0].parts[0], &there[0].parts[1]);
    assert_eq!(
        (&data.dtype, &data.shape[..], &label.dtype, &label.shape[..]),
        (&DType::F32, &[2, 3, 4][..], &DType::U8, &[2, 3, 4][..])
    );
    assert!(data.data().unwrap()[..] == volume(4) && label.data().unwrap()[..] == [4; 24]);

    // Once more, with the file that was missing: only that sample is new.
    fs::copy(place.path().join("scans/s2/x_seg.nii.gz"), place.path().join("scans/s3/x_seg.nii.gz")).unwrap();
    let done = import(&place, &format!("scans --journal done {parts}")).ok();
    assert_eq!((said(&done, "samples"), said(&done, "kept")), (1, 4), "{done:?}");
    assert_eq!(samples(&place).iter().map(input).collect::<Vec<_>>(), ["s3/x"]);
}

#[test]
fn a_journal_tells_files_of_the_same_name_apart() {
    let place = Place::new("SAMPLE: [data]\nSWAP_CAP: 100");
    for day in ["day1", "day2"] {
        fs::create_dir(place.path().join(day)).unwrap();
        for n in 0..3u8 {
            fs::write(place.path().join(format!("{day}/{n}.npy")), npy("|u1", false, "2,", &[n; 2])).unwrap();
        }
        fs::write(place.path().join(format!("{day}/words.txt")), "one\ntwo\n").unwrap();
    }
    let args = "-c config.yaml --journal done";
    for (kind, from, samples, kept) in [
        ("npy", "day1", 3, 0),
        ("npy", "day2", 3, 0),
        ("npy", "day1", 0, 3),
        ("npy", "day2/../day1 day2/1.npy", 0, 4),
        ("text", "day1/words.txt", 2, 0),
        ("text", "day2/words.txt", 2, 0),
        ("text", "./day2/words.txt", 0, 2),
    ] {
        let done = import(&place, &format!("--from {kind} {from} {args}")).ok();
        assert_eq!((said(&done, "samples"), said(&done, "kept")), (samples, kept), "{from}: {done:?}");
    }
}

#[test]
fn files_that_are_given_one_by_one_go_together_by_the_patterns() {
    let place = scans();
    let given = "scans/s0/x_seg.nii.gz scans/s1/x_t1.nii.gz scans/s0/x_t1.nii.gz scans/s1/x_seg.nii.gz";
    let parts = "--part data=*_t1.nii.gz --part label=*_seg.nii.gz";
    let done = import(&place, &format!("{given} scans/s2 {parts}")).ok();
    assert_eq!((said(&done, "samples"), said(&done, "skipped")), (3, 0), "{done:?}");
    assert_eq!(all_inputs(&place).len(), 3);
}

#[test]
fn arrays_of_any_order_become_row_major() {
    let place = Place::new("SAMPLE: [data]\nSWAP_CAP: 2");
    fs::create_dir(place.path().join("in")).unwrap();
    let big: Vec<u8> = (0..6u16).flat_map(u16::to_be_bytes).collect();
    let fortran: Vec<u8> = [0u16, 3, 1, 4, 2, 5].iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(place.path().join("in/a.npy"), npy(">u2", false, "2, 3", &big)).unwrap();
    fs::write(place.path().join("in/b.npy"), npy("<u2", true, "2, 3", &fortran)).unwrap();
    import(&place, "in").ok();
    let expected: Vec<u8> = (0..6u16).flat_map(u16::to_le_bytes).collect();
    let there = samples(&place);
    assert_eq!(there.iter().map(input).collect::<Vec<_>>(), ["a.npy", "b.npy"]);
    for sample in there {
        assert_eq!((&sample.parts[0].shape[..], &sample.parts[0].data().unwrap()[..]), (&[2, 3][..], &expected[..]));
    }
}

/// A folder `photos` with one colour and one grey image in each of two folders.
fn photos(yaml: &str) -> Place {
    let place = Place::new(yaml);
    for (n, class) in ["cat", "dog"].into_iter().enumerate() {
        let dir = place.path().join("photos").join(class);
        fs::create_dir_all(&dir).unwrap();
        color(n as u8).save(dir.join("color.png")).unwrap();
        GrayImage::from_fn(5, 7, |x, y| image::Luma([(x * 7 + y) as u8])).save(dir.join("gray.png")).unwrap();
    }
    place
}

fn color(n: u8) -> RgbImage {
    RgbImage::from_fn(6, 4, |x, y| image::Rgb([x as u8, y as u8, n]))
}

fn label(sample: &ReadSample) -> (Vec<u64>, Vec<f32>) {
    let part = &sample.parts[1];
    assert_eq!((part.name.as_str(), &part.dtype), ("label", &DType::F32));
    let numbers = part.data().unwrap().chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
    (part.shape.clone(), numbers.collect())
}

#[test]
fn folders_of_images_become_pixels_with_labels() {
    let place = photos("SAMPLE: [image, label]\nSWAP_CAP: 100");
    fs::write(place.path().join("photos/dog/broken.png"), b"\x89PNG\r\n\x1a\n and no more").unwrap();
    let done = import(&place, "photos");
    assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 4, 1), "{done:?}");
    assert!(done.err.contains("photos/dog/broken.png"), "{done:?}");
    let there = samples(&place);
    assert_eq!(
        there.iter().map(input).collect::<Vec<_>>(),
        ["cat/color.png", "cat/gray.png", "dog/color.png", "dog/gray.png"]
    );
    for (n, sample) in there.iter().enumerate() {
        let (shape, class): (&[u64], _) = (if n % 2 == 0 { &[4, 6, 3] } else { &[7, 5] }, ["cat", "dog"][n / 2]);
        assert_eq!((&sample.parts[0].shape[..], &sample.parts[0].dtype), (shape, &DType::U8));
        assert_eq!((label(sample), sample.meta.text("class")), ((vec![], vec![(n / 2) as f32]), Some(class)));
    }
    assert_eq!(there[2].parts[0].data().unwrap()[..], color(1).into_raw()[..]);
}

#[test]
fn lists_give_images_their_labels() {
    let place = photos("SAMPLE: [image, label]\nSWAP_CAP: 100");
    let list = "7\t1.5\t2\tdog/color.png\nnonsense\n3\t0.25\tcat/gray.png\n4\t0\tno.png\n";
    fs::write(place.path().join("train.lst"), list).unwrap();
    let done = import(&place, "train.lst --root photos --journal done");
    assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 2, 2), "{done:?}");
    assert!(done.err.contains("line 2") && done.err.contains("no.png"), "{done:?}");
    let there = samples(&place);
    assert_eq!(there.iter().map(label).collect::<Vec<_>>(), [(vec![2], vec![1.5, 2.0]), (vec![], vec![0.25])]);
    assert_eq!(there[0].meta.get("id"), Some(&Value::Int(7)));
    assert_eq!(said(&import(&place, "train.lst --root photos --journal done"), "kept"), 2);
}

#[test]
fn images_are_stored_encoded_or_resized_as_the_options_say() {
    for (options, shape) in [
        ("--encoded", None),
        ("--resize 2", Some(&[2, 3, 3][..])),
        ("--center-crop --color 0", Some(&[4, 4])),
        ("--color 1", Some(&[4, 6, 3])),
    ] {
        let place = photos("SAMPLE: [picture]\nSWAP_CAP: 100");
        import(&place, &format!("photos/dog/color.png {options}")).ok();
        let part = &samples(&place)[0].parts[0];
        let file = fs::read(place.path().join("photos/dog/color.png")).unwrap();
        match shape {
            Some(shape) => assert_eq!((part.dtype.clone(), &part.shape[..]), (DType::U8, shape), "{options}"),
            None => assert!(part.dtype == DType::Bytes && part.data().unwrap()[..] == file[..]),
        }
    }
}

#[test]
fn deep_images_are_refused_unless_they_stay_encoded() {
    let place = Place::new("SAMPLE: [image]\nSWAP_CAP: 100");
    let deep = image::ImageBuffer::from_fn(3, 2, |x, _| image::Luma([x as u16 * 1000]));
    deep.save(place.path().join("deep.png")).unwrap();
    let done = import(&place, "deep.png");
    assert!(done.code == Some(1) && done.err.contains("16 bits per channel: --encoded"), "{done:?}");
    import(&place, "deep.png --encoded").ok();
}

/// A `.rec` file of three images, one of them with two labels, and of a record that holds none.
fn write_records(path: &Path) {
    let mut writer = RecordWriter::new(fs::File::create(path).unwrap());
    for (n, labels) in [&[2.5][..], &[1.0, -3.0], &[4.0]].into_iter().enumerate() {
        let mut png = std::io::Cursor::new(Vec::new());
        color(n as u8).write_to(&mut png, image::ImageFormat::Png).unwrap();
        writer.write(&encode(10 + n as u64, 0, labels, png.get_ref())).unwrap();
    }
    writer.write(b"no header").unwrap();
}

#[test]
fn records_become_images_labels_and_ids() {
    let place = Place::new("SAMPLE: [image, label]\nSWAP_CAP: 100");
    write_records(&place.path().join("train.rec"));
    let done = import(&place, "train.rec --journal done");
    assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 3, 1), "{done:?}");
    assert!(done.err.contains("train.rec: record at ") && done.err.contains("--raw"), "{done:?}");
    let there = samples(&place);
    let expected = [(vec![], vec![2.5]), (vec![2], vec![1.0, -3.0]), (vec![], vec![4.0])];
    assert_eq!(there.iter().map(label).collect::<Vec<_>>(), expected);
    for (n, sample) in there.iter().enumerate() {
        assert_eq!(sample.meta.get("id"), Some(&Value::Int(10 + n as i128)));
        assert_eq!(sample.parts[0].shape, [4, 6, 3]);
        assert_eq!(sample.parts[0].data().unwrap()[..], color(n as u8).into_raw()[..]);
    }
    assert_eq!(said(&import(&place, "train.rec --journal done"), "kept"), 3);
}

#[test]
fn raw_records_keep_every_byte_and_damage_is_left_out() {
    let place = Place::new("SAMPLE: [payload]\nSWAP_CAP: 100");
    let path = place.path().join("train.rec");
    write_records(&path);
    let payloads = testkit::cli::records(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 1; // the magic of the first record
    fs::write(&path, bytes).unwrap();
    let done = import(&place, "train.rec --raw");
    assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 3, 1), "{done:?}");
    let there = samples(&place);
    let stored = there.iter().map(|sample| sample.parts[0].data().unwrap().to_vec());
    assert_eq!(stored.collect::<Vec<_>>(), payloads[1..]);
}

#[test]
fn an_image_and_an_array_can_be_parts_of_a_sample() {
    let place = photos("SAMPLE: [image, mask]\nSWAP_CAP: 100");
    for class in ["cat", "dog"] {
        let mask = npy("|u1", false, "2,", &[class.as_bytes()[0]; 2]);
        fs::write(place.path().join(format!("photos/{class}/mask.npy")), mask).unwrap();
    }
    import(&place, "photos --part image=*/color.png --part mask=*/mask.npy").ok();
    let there = samples(&place);
    assert_eq!(there.iter().map(input).collect::<Vec<_>>(), ["cat", "dog"]);
    assert_eq!((&there[1].parts[0].shape[..], &there[1].parts[1].data().unwrap()[..]), (&[4, 6, 3][..], &b"dd"[..]));
}

#[test]
fn lines_become_samples_of_bytes() {
    let place = Place::new("SAMPLE: [text]\nSWAP_CAP: 100");
    fs::write(place.path().join("a.txt"), "first\r\n\nthird, long ä\nlast").unwrap();
    fs::write(place.path().join("b.txt"), "another\n").unwrap();
    import(&place, "a.txt b.txt").ok();
    let there = samples(&place);
    let text = |sample: &ReadSample| String::from_utf8(sample.parts[0].data().unwrap().to_vec()).unwrap();
    assert_eq!(there.iter().map(text).collect::<Vec<_>>(), ["first", "", "third, long ä", "last", "another"]);
    assert_eq!((there[3].meta.text("file"), there[3].meta.get("line")), (Some("a.txt"), Some(&Value::Int(4))));
}

#[test]
fn wrong_usage_is_two() {
    let place = scans();
    fs::write(place.path().join("a.txt"), "line\n").unwrap();
    fs::write(place.path().join("b.bin"), "line\n").unwrap();
    fs::create_dir(place.path().join("none")).unwrap();
    for args in [
        "scans",
        "scans --part data=*_t1.nii.gz",
        "scans --part data=nothing",
        "--from npy none",
        "none",
        "a.txt --part a=*",
        "a.txt --raw",
        "a.txt b.bin scans",
        "b.bin",
        "photos --encoded --resize 3",
        "no-such-file",
    ] {
        let done = import(&place, args);
        let expected = if args == "no-such-file" { 1 } else { 2 };
        assert!(done.code == Some(expected) && done.out.is_empty(), "{args}: {done:?}");
    }
    assert!(!place.ring().exists());
}

/// A folder `in` of small arrays.
fn arrays(place: &Place, count: u16) -> Vec<String> {
    fs::create_dir(place.path().join("in")).unwrap();
    let names: Vec<String> = (0..count).map(|n| format!("{n:04}.npy")).collect();
    for (n, name) in names.iter().enumerate() {
        fs::write(place.path().join("in").join(name), npy("<u2", false, "1,", &(n as u16).to_le_bytes())).unwrap();
    }
    names
}

#[test]
fn killed_import_with_a_journal_has_each_input_once() {
    let place = Place::new("SAMPLE: [data]\nSWAP_CAP: 5000\nKEEP: 50\nSEGMENT_SAMPLES: 2");
    let names = arrays(&place, 600);
    let args = ["import", "in", "--journal", "done", "--threads", "2"];
    let lines = || fs::read_to_string(place.path().join("done")).map_or(0, |text| text.lines().count());
    let mut killed = 0;
    for round in 1..=8 {
        let wanted = lines() + 20 * round;
        let mut running = place.start(&args);
        eventually("it has noted some inputs", || lines() >= wanted || !running.is_running());
        killed += u32::from(running.is_running());
        drop(running); // SIGKILL
    }
    assert!(killed > 2, "the import ended too early to be killed: {killed}");
    place.run(&args).ok();
    // Segments of dead processes become visible when a manager adopts them.
    let manager = place.start(&["manager"]);
    eventually("all samples are visible", || {
        place.run(&["promote"]);
        all_inputs(&place).len() >= names.len()
    });
    drop(manager);
    assert_eq!(all_inputs(&place), names);
}

#[test]
fn journal_finds_a_segment_that_was_sealed_and_not_noted() {
    let place = Place::new("SAMPLE: [data]\nSWAP_CAP: 100\nKEEP: 50\nSEGMENT_SAMPLES: 2");
    let names = arrays(&place, 6);
    let journal = place.path().join("done");
    import(&place, "in --journal done").ok();
    let text = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("{\"sealing\"")).count(), 3, "{text}");
    // The note after the seal is missing, and the line after it is cut off.
    fs::write(&journal, format!("{}\n{{\"sealing\": \"00", lines[..lines.len() - 1].join("\n"))).unwrap();
    let done = import(&place, "in --journal done").ok();
    assert_eq!((said(&done, "samples"), said(&done, "kept")), (0, 6), "{done:?}");
    assert!(done.err.contains("2 samples of an interrupted import are in the ring"), "{done:?}");
    // A segment that was announced and never sealed does not count.
    let unknown = lines[lines.len() - 2].replace(&lines[lines.len() - 2][12..44], &"0".repeat(32));
    fs::write(&journal, format!("{}\n{unknown}\n", lines[..lines.len() - 2].join("\n"))).unwrap();
    let done = import(&place, "in --journal done").ok();
    assert_eq!((said(&done, "samples"), said(&done, "kept")), (2, 4), "{done:?}");
    assert_eq!(all_inputs(&place).len(), names.len() + 2, "the journal was falsified");
}

#[test]
fn journal_is_for_one_import_at_a_time() {
    let place = Place::new("SAMPLE: [data]\nSWAP_CAP: 100");
    arrays(&place, 3);
    let journal = fs::File::create(place.path().join("done")).unwrap();
    journal.lock().unwrap();
    let done = import(&place, "in --journal done");
    assert!(done.code == Some(2) && done.err.contains("another process uses this journal"), "{done:?}");
    journal.unlock().unwrap();
    // The journals of version 0.1.0 hold names alone.
    let path = fs::canonicalize(place.path().join("in/0001.npy")).unwrap();
    fs::write(place.path().join("done"), format!("{}\n", serde_json::json!(path))).unwrap();
    assert_eq!(said(&import(&place, "in --journal done").ok(), "kept"), 1);
    fs::write(place.path().join("done"), "a text\n").unwrap();
    let done = import(&place, "in --journal done");
    assert!(done.code == Some(2) && done.err.contains("is not the journal of an import"), "{done:?}");
}
