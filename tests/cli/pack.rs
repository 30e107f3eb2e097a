//! `ringreel pack` turns every valid input into one record or sample, in order, with any number of threads.
//! (python/tests/test_cli_pack_im2rec.py compares lists and records with those of MXNet's im2rec.)

use image::{GrayImage, RgbImage};
use ringreel_format::recordio::image::Image;
use ringreel_format::recordio::index::entries;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use testkit::cli::{Place, Said, eventually, loudly, records};

/// A folder `photos` of eight images in four directories; some names have spaces, capitals or non-ASCII letters.
fn photos() -> Place {
    let place = Place::verbatim("");
    for dir in ["", "b", "a/x", "Ä ö"] {
        let dir = place.path().join("photos").join(dir);
        fs::create_dir_all(&dir).unwrap();
        let seed = dir.as_os_str().len() as u32;
        let noise = |x: u32, y: u32| (x * 7 + y * 13 + x * y + seed) as u8;
        RgbImage::from_fn(40, 24, |x, y| image::Rgb([noise(x, y), noise(y, x), 9])).save(dir.join("UP 1.PNG")).unwrap();
        GrayImage::from_fn(17, 31, |x, y| image::Luma([noise(x, y)])).save(dir.join("gray.png")).unwrap();
        fs::write(dir.join("notes.txt"), "no image").unwrap();
    }
    place
}

fn pack(place: &Place, args: &str) -> Said {
    place.run(&[&["pack", "--json"], &args.split(' ').collect::<Vec<_>>()[..]].concat())
}

/// Returns a number of the summary.
fn said(said: &Said, key: &str) -> u64 {
    said.json()[0][key].as_u64().unwrap()
}

fn keys(path: &Path) -> Vec<String> {
    entries(&fs::read(path).unwrap()).map(|entry| entry.unwrap().key.to_owned()).collect()
}

/// An `.npy` file, by an implementation that is independent of the product's.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({shape}), }}");
    header += &" ".repeat(117 - header.len());
    [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), b"\n", data].concat()
}

#[test]
fn lists_contain_every_image_once_with_its_directory_label() {
    let place = photos();
    symlink("..", place.path().join("photos/b/up")).unwrap();
    fs::write(place.path().join("photos/a/tab\there.png"), "x").unwrap();
    let done = pack(&place, "--list --recursive --no-shuffle train photos");
    let expected = "0\t0.000000\tUP 1.PNG\n1\t0.000000\tgray.png\n2\t1.000000\ta/x/UP 1.PNG\n3\t1.000000\ta/x/gray.png\n\
                    4\t2.000000\tb/UP 1.PNG\n5\t2.000000\tb/gray.png\n6\t3.000000\tÄ ö/UP 1.PNG\n7\t3.000000\tÄ ö/gray.png\n";
    assert_eq!(fs::read_to_string(place.path().join("train.lst")).unwrap(), expected);
    assert_eq!(done.code, Some(1), "two files are skipped: {done:?}");
    assert!(done.err.contains("leads back") && done.err.contains("tab\\there.png"), "{done:?}");
    assert_eq!(done.json()[0]["labels"], serde_json::json!([".", "a/x", "b", "Ä ö"]));

    pack(&place, "--list --no-shuffle --exts .png flat photos").ok();
    assert_eq!(fs::read_to_string(place.path().join("flat.lst")).unwrap().lines().count(), 2);
    // Shuffled and split, the lists contain every image once, with the same numbers and labels.
    pack(&place, "--list --recursive --train-ratio 0.5 --test-ratio 0.25 --chunks 2 part photos");
    let mut lines: Vec<String> = Vec::new();
    for name in ["0_train", "0_test", "0_val", "1_train", "1_test", "1_val"] {
        let text = fs::read_to_string(place.path().join(format!("part_{name}.lst"))).unwrap();
        lines.extend(text.lines().map(|line| line.to_owned() + "\n"));
    }
    assert_ne!(lines.concat(), expected);
    lines.sort();
    assert_eq!(lines.concat(), expected);
    let again = pack(&place, "--list flat photos");
    assert!(again.code == Some(2) && again.err.contains("flat.lst already exists"), "{again:?}");
}

#[test]
fn records_contain_header_labels_and_file_bytes() {
    let place = photos();
    let list = "7\t1.5\t2\t-3\tb/gray.png\n3\t0.25\tÄ ö/UP 1.PNG\n";
    fs::write(place.path().join("train.lst"), list).unwrap();
    pack(&place, "train photos --pass-through").ok();
    pack(&place, "train photos --pass-through --pack-label -o all.rec").ok();
    let file = |path: &str| fs::read(place.path().join("photos").join(path)).unwrap();
    let (first, all) = (records(&place.path().join("train.rec")), records(&place.path().join("all.rec")));
    assert_eq!(keys(&place.path().join("train.idx")), ["7", "3"]);
    let image = Image::decode(&first[0]).unwrap();
    assert_eq!((image.id, image.id2, image.labels().collect::<Vec<_>>()), (7, 0, vec![1.5]));
    assert!(image.content == file("b/gray.png"));
    let image = Image::decode(&all[0]).unwrap();
    assert_eq!((image.id, image.labels().collect::<Vec<_>>()), (7, vec![1.5, 2.0, -3.0]));
    assert!(image.content == file("b/gray.png"));
    assert!(first[1] == all[1] && Image::decode(&all[1]).unwrap().content == file("Ä ö/UP 1.PNG"));
}

/// The record that MXNet's C++ `im2rec` writes: `flag` labels behind the header, and the first one in it.
fn cpp_record(flag: u32, labels: &[f32], id: u64, file: &[u8]) -> Vec<u8> {
    let behind = labels.iter().take(flag as usize).flat_map(|label| label.to_le_bytes());
    let header = [&flag.to_le_bytes()[..], &labels[0].to_le_bytes(), &id.to_le_bytes(), &[0; 8]].concat();
    [header, behind.collect(), file.to_vec()].concat()
}

#[test]
fn words_of_the_cpp_im2rec_are_accepted() {
    let place = photos();
    let file = fs::read(place.path().join("photos/b/gray.png")).unwrap();
    fs::write(place.path().join("four.lst"), "7\t1.5\t2\t-3\t4\tb/gray.png\n").unwrap();
    pack(&place, "four.lst photos/ one.rec label_width=4 unchanged=1").ok();
    pack(&place, "four.lst photos/ all label_width=4 pack_label=1 unchanged=1").ok();
    let labels = [1.5, 2.0, -3.0, 4.0];
    assert_eq!(records(&place.path().join("one.rec")), [cpp_record(0, &labels, 7, &file)]);
    assert_eq!(records(&place.path().join("all.rec")), [cpp_record(4, &labels, 7, &file)]);
    let done = pack(&place, "four.lst photos/ none.rec");
    assert!(done.code == Some(1) && done.err.contains("4 labels, and label_width is 1"), "{done:?}");

    fs::write(place.path().join("one.lst"), "0\t0\tUP 1.PNG\n").unwrap();
    pack(&place, "one.lst photos/ small.rec resize=12 color=0 encoding=.png quality=95 center_crop=1").ok();
    let record = &records(&place.path().join("small.rec"))[0];
    let image = image::load_from_memory(Image::decode(record).unwrap().content).unwrap();
    assert_eq!((image.width(), image.height(), image.color().has_color()), (12, 12, false));
}

#[test]
fn parts_of_the_cpp_im2rec_hold_each_line_once() {
    let place = photos();
    let line = |n: usize| format!("{n}\t0\t{}\n", if n.is_multiple_of(3) { "gray.png" } else { "b/gray.png" });
    fs::write(place.path().join("all.lst"), (0..23).map(line).collect::<String>()).unwrap();
    for nsplit in [1, 2, 5, 40] {
        let mut found: Vec<String> = Vec::new();
        for part in 0..nsplit {
            pack(&place, &format!("all.lst photos/ s.rec unchanged=1 nsplit={nsplit} part={part} --force")).ok();
            let name = if nsplit == 1 { "s.idx".to_owned() } else { format!("s.part{part:03}.idx") };
            found.extend(keys(&place.path().join(name)));
        }
        assert_eq!(found, (0..23).map(|n| n.to_string()).collect::<Vec<_>>(), "{nsplit}");
    }
}

#[test]
fn unknown_words_of_the_cpp_im2rec_are_refused_by_name() {
    let place = photos();
    fs::write(place.path().join("one.lst"), "0\t0\tgray.png\n").unwrap();
    for (words, why) in [
        ("shuffle=1", "shuffle=: unknown; the keys are color, resize"),
        ("resize", "\"resize\" after OUT.rec is not key=value"),
        ("resize=big", "resize=big"),
        ("resize=10 inter_method=2", "inter_method= is 1"),
        ("pack_label=1", "label_width= is at least 1, and at least 2"),
        ("nsplit=2 part=2", "part= is from 0 to nsplit - 1"),
        ("color=2", "color= is -1, 0 or 1"),
        ("encoding=.gif", "encoding= is .jpg or .png"),
        ("unchanged=yes", "expected 0 or 1"),
        ("resize=10 --resize 10", "goes with key=value words"),
    ] {
        let done = pack(&place, &format!("one.lst photos/ out.rec {words}"));
        assert!(done.code == Some(2) && done.err.contains(why) && done.out.is_empty(), "{words}: {done:?}");
    }
    assert!(!place.path().join("out.rec").exists());
}

#[test]
fn output_bytes_do_not_depend_on_the_thread_count() {
    let place = photos();
    pack(&place, "--list --recursive train photos").ok();
    for options in ["--pass-through", "--resize 20 --center-crop --encoding .png --quality 1", "--quality 60"] {
        pack(&place, &format!("train photos {options} --threads 1 -o one --force")).ok();
        pack(&place, &format!("train photos {options} --threads 8 -o eight --force")).ok();
        let file = |name: &str| fs::read(place.path().join(name)).unwrap();
        assert!(file("one.rec") == file("eight.rec") && file("one.idx") == file("eight.idx"), "{options}");
        assert_eq!(records(&place.path().join("one.rec")).len(), 8);
    }
}

#[test]
fn images_have_the_requested_size_and_channels() {
    let place = photos();
    fs::write(place.path().join("train.lst"), "0\t0\tUP 1.PNG\n").unwrap();
    for (options, size, gray) in [
        ("--encoding .png", (40, 24), false),
        ("--encoding .png --resize 12 --color 0", (20, 12), true),
        ("--resize 30 --center-crop", (30, 30), false),
        ("--encoding .png --color -1", (40, 24), false),
    ] {
        pack(&place, &format!("train photos {options} --force")).ok();
        let record = &records(&place.path().join("train.rec"))[0];
        let image = image::load_from_memory(Image::decode(record).unwrap().content).unwrap();
        assert_eq!(((image.width(), image.height()), image.color().has_color()), (size, !gray), "{options}");
    }
    let same = image::open(place.path().join("photos/UP 1.PNG")).unwrap();
    let record = &records(&place.path().join("train.rec"))[0];
    assert!(image::load_from_memory(Image::decode(record).unwrap().content).unwrap() == same);
}

#[test]
fn pack_omits_and_names_broken_inputs() {
    let place = photos();
    fs::write(place.path().join("photos/b/broken.png"), b"\x89PNG\r\n\x1a\n and no more").unwrap();
    assert!(Command::new("mkfifo").arg(place.path().join("photos/b/fifo.png")).status().unwrap().success());
    let list = "0\t0\tb/gray.png\n1\t0\tb/broken.png\nnonsense\n2\t0\tb/fifo.png\n3\t0\tnothing.png\n4\t0\tgray.png\n";
    fs::write(place.path().join("train.lst"), list).unwrap();
    let done = pack(&place, "train photos");
    assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 2, 4), "{done:?}");
    for name in ["b/broken.png", "line 3", "b/fifo.png", "nothing.png"] {
        assert!(done.err.contains(name), "{name}: {done:?}");
    }
    assert_eq!(keys(&place.path().join("train.idx")), ["0", "4"]);
    let strict = pack(&place, "train photos --strict -o other");
    assert!(strict.code == Some(2) && strict.out.is_empty(), "{strict:?}");
    let left =
        fs::read_dir(place.path()).unwrap().any(|entry| entry.unwrap().path().to_string_lossy().contains("other"));
    assert!(!left, "unfinished output is removed");
}

#[test]
fn killed_pack_leaves_no_complete_looking_file() {
    let place = photos();
    let list: String = (0..3000).map(|n| format!("{n}\t0\tUP 1.PNG\n")).collect();
    fs::write(place.path().join("train.lst"), list).unwrap();
    let args = ["pack", "train", "photos", "--encoding", ".png", "--resize", "64"];
    let running = place.start(&args);
    eventually("packing has begun", || place.path().join("train.rec.part").exists());
    drop(running); // SIGKILL
    if place.path().join("train.rec").exists() {
        loudly("SKIPPED: killed_pack_leaves_no_complete_looking_file: it ended before it was killed");
        return;
    }
    assert!(!place.path().join("train.idx").exists());
    fs::write(place.path().join("train.lst"), "0\t0\tUP 1.PNG\n").unwrap();
    place.run(&args).ok();
    assert_eq!(records(&place.path().join("train.rec")).len(), 1);
    assert!(!place.path().join("train.rec.part").exists());
    let again = place.run(&args);
    assert!(again.code == Some(2) && again.err.contains("already exists"), "{again:?}");
}

#[test]
fn arrays_become_records_of_npy_files() {
    let place = Place::verbatim("");
    let dir = place.path().join("arrays");
    fs::create_dir(&dir).unwrap();
    for n in 0..20u8 {
        fs::write(dir.join(format!("{n:02}.npy")), npy("<i2", false, "2, 3", &[n; 12])).unwrap();
    }
    fs::write(dir.join("05.npy"), npy("|O", false, "1,", &[0; 8])).unwrap();
    fs::write(dir.join("06.npy"), &npy("<i2", false, "2, 3", &[6; 12])[..130]).unwrap();
    for threads in ["1", "8"] {
        let done = pack(&place, &format!("--from npy arrays -o {threads} --threads {threads}"));
        assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 18, 2), "{done:?}");
        assert!(done.err.contains("05.npy: it has elements |O") && done.err.contains("06.npy"), "{done:?}");
    }
    let expected: Vec<_> =
        (0..20).filter(|n| ![5, 6].contains(n)).map(|n| npy("<i2", false, "2, 3", &[n; 12])).collect();
    assert_eq!(records(&place.path().join("1.rec")), expected);
    assert_eq!(fs::read(place.path().join("1.rec")).unwrap(), fs::read(place.path().join("8.rec")).unwrap());
}

#[test]
fn lines_become_records() {
    let place = Place::verbatim("");
    fs::write(place.path().join("a.txt"), "first\r\n\nthird, long ä\nlast").unwrap();
    fs::write(place.path().join("b.txt"), "another\n").unwrap();
    pack(&place, "--from text a.txt b.txt -o words").ok();
    let expected = ["first", "", "third, long ä", "last", "another"];
    assert_eq!(records(&place.path().join("words.rec")), expected.map(|line| line.as_bytes().to_vec()));
}

#[test]
fn failed_writes_keep_the_existing_output() {
    let place = Place::verbatim("");
    fs::write(place.path().join("a.txt"), "old\n").unwrap();
    pack(&place, "--from text a.txt -o words").ok();
    let old = fs::read(place.path().join("words.rec")).unwrap();
    fs::write(place.path().join("a.txt"), "new\n".repeat(5000)).unwrap();
    let limited = "trap '' XFSZ; ulimit -f 16; exec \"$0\" pack --from text a.txt -o words --force";
    let said = Command::new("sh").args(["-c", limited, testkit::binary()]).current_dir(place.path()).output();
    let said = said.unwrap();
    assert!(!said.status.success(), "{said:?}");
    assert_eq!(fs::read(place.path().join("words.rec")).unwrap(), old);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4, "no .part is left: a.txt, config.yaml, .rec, .idx");
}

#[test]
fn non_utf8_paths_are_accepted_and_printed() {
    let place = Place::verbatim("");
    fs::write(place.path().join("a.txt"), "one\n").unwrap();
    let odd = OsStr::from_bytes(b"odd\xff.rec");
    let run = |args: &[&OsStr]| {
        let said = Command::new(testkit::binary()).args(args).current_dir(place.path()).output().unwrap();
        assert!(said.status.success(), "{said:?}");
    };
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    run(&[&words("pack --from text a.txt --json -o"), &[odd][..]].concat());
    run(&[&words("export --json -o again.rec"), &[odd][..]].concat());
    run(&[&words("export again.rec --json -o"), &[OsStr::from_bytes(b"more\xfe")][..]].concat());
}

#[test]
fn what_makes_no_sense_is_two() {
    let place = Place::new("SAMPLE: [data]\nSWAP_CAP: 3");
    fs::write(place.path().join("a.txt"), "line\n").unwrap();
    ["none", "scans"].iter().for_each(|dir| fs::create_dir(place.path().join(dir)).unwrap());
    fs::write(place.path().join("scans/a.nii"), "x").unwrap();
    for args in [
        "only-one-path",
        "nolist scans",
        "--list --train-ratio 1.5 x scans",
        "--from nifti scans",
        "--from nifti scans -o x --part data=*",
        "--from npy none -o x",
        "--from text a.txt -o x -c config.yaml",
        "--color 2 a b",
    ] {
        let done = pack(&place, args);
        assert!(done.code == Some(2) && done.out.is_empty(), "{args}: {done:?}");
    }
    assert!(!place.ring().exists());
}
