//! `ringreel export` writes the ring's samples in their order, also after an interruption.

use ringreel::Generator;
use ringreel::fs::{Fs, Posix};
use ringreel_cli::convert::export::{self, Format, Options, Watch};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::recordio::index::entries;
use ringreel_ops::inspect::Subject;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::cli::{self, DATA, LABEL, Place, Said, contents, generate, listing, put, records};

const SAMPLES: u64 = 30;

/// A ring with samples 0 to 29 in generation 1, three to a segment.
fn ring() -> Place {
    let place = Place::new("SAMPLE: [data, label]\nSWAP_CAP: 30\nSEGMENT_SAMPLES: 3");
    generate(&place.config(), 0..SAMPLES);
    place
}

fn export(place: &Place, args: &[&str]) -> Said {
    place.run(&[&["export", "demo.ring", "--json"], args].concat())
}

/// Returns a number of the summary.
fn said(said: &Said, key: &str) -> u64 {
    said.json()[0][key].as_u64().unwrap()
}

/// Reads the files of a directory, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    listing(dir).into_iter().map(|(path, (_, bytes))| (name(&path), bytes)).collect()
}

/// Returns the sample number and the contents of each member of a tar file whose name ends with `end`.
fn members(path: &Path, end: &str) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
    let mut all = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        if name.ends_with(end) {
            all.push((name, bytes));
        }
    }
    all
}

#[test]
fn shard_bytes_accepts_the_configurations_units() {
    let place = ring();
    let run = |bytes, out| {
        let args = ["export", "demo.ring", "-o", out, "--part", "data"];
        place.run(&[&args[..], &["--json", &format!("--shard-bytes={bytes}")]].concat())
    };
    let files = |out| run("0.5 KiB", out).ok().json()[0]["files"].as_array().unwrap().len();
    let plain = run("512", "plain").ok().json()[0]["files"].as_array().unwrap().len();
    assert_eq!(files("units"), plain);
    assert!(plain > 2, "--shard-bytes makes several shards");
    for wrong in ["0", "10GX", "-1", "many"] {
        let said = run(wrong, "wrong");
        assert!(said.code == Some(2) && said.err.contains("as in 10GB or 512MiB"), "{said:?}");
    }
}

#[test]
fn every_export_format_has_all_samples_in_ring_order() {
    let place = ring();
    for format in ["rec", "npy", "wds"] {
        let said_of = export(&place, &["-o", &format!("{format}/x"), "--as", format]).ok();
        assert_eq!((said(&said_of, "samples"), said(&said_of, "skipped"), said(&said_of, "generation")), (30, 0, 1));
    }
    let data = records(&place.path().join("rec/x.data.rec"));
    let label = records(&place.path().join("rec/x.label.rec"));
    let in_tar = members(&place.path().join("wds/x-000000.tar"), ".data.npy");
    let about = members(&place.path().join("wds/x-000000.tar"), ".json");
    assert_eq!((data.len(), label.len(), in_tar.len(), about.len()), (30, 30, 30, 30));
    let index = fs::read(place.path().join("rec/x.data.idx")).unwrap();
    let keys: Vec<String> = entries(&index).map(|entry| entry.unwrap().key.to_owned()).collect();
    for n in 0..SAMPLES {
        let (at, bytes) = (n as usize, contents(n, 0, DATA));
        assert!(data[at] == bytes && label[at] == contents(n, 1, LABEL) && keys[at] == n.to_string());
        assert!(in_tar[at].1.starts_with(b"\x93NUMPY\x01\0") && in_tar[at].1.ends_with(&bytes));
        let json: serde_json::Value = serde_json::from_slice(&about[at].1).unwrap();
        assert_eq!(json["meta"]["n"], n);
        let key = json["id"].as_str().unwrap().replace('.', "-");
        assert_eq!(
            (in_tar[at].0.as_str(), about[at].0.as_str()),
            (&*format!("{key}.data.npy"), &*format!("{key}.json"))
        );
        let npy = fs::read(place.path().join(format!("npy/x/{n:09}.data.npy"))).unwrap();
        assert_eq!(npy, in_tar[at].1);
        let npy_meta = fs::read(place.path().join(format!("npy/x/{n:09}.meta.json"))).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&npy_meta).unwrap(), json);
    }
}

#[test]
fn output_bytes_do_not_depend_on_the_thread_count() {
    let place = ring();
    for format in ["rec", "npy", "wds"] {
        for threads in ["1", "8"] {
            let out = format!("{format}{threads}/x");
            export(&place, &["-o", &out, "--as", format, "--threads", threads, "--shard-samples", "7"]).ok();
        }
        let made = |threads: &str| files(&place.path().join(format!("{format}{threads}")));
        assert!(made("1") == made("8") && made("1").len() >= 6, "{format}");
    }
}

#[test]
fn export_selects_a_part_and_positions() {
    let place = ring();
    export(&place, &["-o", "one.rec", "--part", "label", "--samples", "5..8"]).ok();
    assert_eq!(records(&place.path().join("one.rec")), [5, 6, 7].map(|n| contents(n, 1, LABEL)));
    export(&place, &["-o", "end", "--part", "label", "--samples", "28..99"]).ok();
    assert_eq!(records(&place.path().join("end.rec")), [28, 29].map(|n| contents(n, 1, LABEL)));
    let none = export(&place, &["-o", "none", "--part", "image"]);
    assert!(none.code == Some(2) && none.err.contains("the samples' parts are data, label"), "{none:?}");
}

#[test]
fn foreign_records_are_exported_unchanged() {
    let place = Place::verbatim("");
    let payloads: Vec<Vec<u8>> =
        (0..50u32).map(|n| [&0xced7_230a_u32.to_le_bytes()[..], &n.to_le_bytes()].concat()).collect();
    let mut writer = RecordWriter::new(Vec::new());
    payloads.iter().for_each(|payload| assert!(writer.write(payload).is_ok()));
    let bytes = writer.into_inner();
    fs::write(place.path().join("old.rec"), &bytes).unwrap();
    place.run(&["export", "old.rec", "-o", "new"]).ok();
    assert_eq!(fs::read(place.path().join("new.rec")).unwrap(), bytes);
    place.run(&["export", "old.rec", "-o", "some", "--shard-samples", "20"]).ok();
    let shards: Vec<_> = (0..3).flat_map(|n| records(&place.path().join(format!("some-{n:06}.rec")))).collect();
    assert_eq!(shards, payloads);
    place.run(&["export", "old.rec", "-o", "tar", "--as", "wds"]).ok();
    assert_eq!(
        members(&place.path().join("tar-000000.tar"), "000000049.record.bin"),
        [("000000049.record.bin".to_owned(), payloads[49].clone())]
    );
}

#[test]
fn export_omits_and_names_damaged_samples() {
    let place = ring();
    let segment = place.ring().join("read.1");
    let mut names: Vec<PathBuf> = listing(&segment).into_keys().collect();
    names.sort();
    let mut bytes = fs::read(&names[4]).unwrap();
    let middle = bytes.len() / 2; // in the second of its three samples
    bytes[middle] ^= 1;
    fs::write(&names[4], bytes).unwrap();
    for format in ["rec", "npy", "wds"] {
        let done = export(&place, &["-o", &format!("{format}/x"), "--as", format]);
        assert_eq!((done.code, said(&done, "samples"), said(&done, "skipped")), (Some(1), 29, 1), "{done:?}");
        assert!(done.err.contains("sample 13 skipped") && done.err.contains("CRC-32"), "{done:?}");
        // A second run keeps the finished files and reports the damaged sample again.
        let again = export(&place, &["-o", &format!("{format}/x"), "--as", format]);
        assert_eq!((again.code, said(&again, "kept"), said(&again, "skipped")), (Some(1), 29, 1), "{again:?}");
    }
    let data = records(&place.path().join("rec/x.data.rec"));
    let expected = (0..SAMPLES).filter(|n| *n != 13).map(|n| contents(n, 0, DATA));
    assert_eq!(data, expected.collect::<Vec<_>>());
    let index = fs::read(place.path().join("rec/x.data.idx")).unwrap();
    assert!(!entries(&index).any(|entry| entry.unwrap().key == "13"), "the index uses positions as keys");
}

#[test]
fn interrupted_export_resumes_after_complete_files() {
    let place = ring();
    let options = ["--as", "wds", "--shard-samples", "4"];
    export(&place, &[&["-o", "clean/x"], &options[..]].concat()).ok();
    export(&place, &[&["-o", "torn/x"], &options[..]].concat()).ok();
    let clean = files(&place.path().join("clean"));
    let torn = place.path().join("torn");
    // An export that was killed in the sixth file: the fourth is complete, but its line in the journal is missing.
    let journal = fs::read_to_string(torn.join("x.export.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    fs::write(torn.join("x.export.jsonl"), format!("{}\n{}", lines[..4].join("\n"), &lines[4][..9])).unwrap();
    (5..8).for_each(|n| fs::remove_file(torn.join(format!("x-{n:06}.tar"))).unwrap());
    fs::write(torn.join("x-000004.tar.part"), "the beginning of something").unwrap();
    // The third file was truncated later.
    let third = torn.join("x-000002.tar");
    let bytes = fs::read(&third).unwrap();
    fs::write(&third, &bytes[..bytes.len() - 512]).unwrap();
    let done = export(&place, &[&["-o", "torn/x"], &options[..]].concat()).ok();
    assert_eq!((said(&done, "samples"), said(&done, "kept")), (30, 8), "two files were complete: {done:?}");
    assert!(files(&torn) == clean);
    let again = export(&place, &[&["-o", "torn/x"], &options[..]].concat()).ok();
    assert_eq!(said(&again, "kept"), 30);
}

#[test]
fn killed_export_leaves_no_incomplete_file_under_a_final_name() {
    let place = Place::new("SAMPLE: [data, label]\nSWAP_CAP: 200\nSEGMENT_SAMPLES: 100");
    generate(&place.config(), 0..200);
    for format in ["rec", "npy", "wds"] {
        let args = |out: &str| {
            let words = format!("export demo.ring --json --as {format} --shard-samples 10 -o {out}/x");
            words.split(' ').map(str::to_owned).collect::<Vec<_>>()
        };
        let run = |out: &str| args(out).iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let (clean, torn) = (format!("{format}-clean"), format!("{format}-torn"));
        place.run(&run(&clean).split(' ').collect::<Vec<_>>()).ok();
        let running = place.start(&run(&torn).split(' ').collect::<Vec<_>>());
        let first = place.path().join(&torn).join(match format {
            "rec" => "x-000002.data.rec",
            "npy" => "x/000000025.meta.json",
            _ => "x-000002.tar",
        });
        cli::eventually("the first files exist", || first.exists());
        drop(running); // SIGKILL
        let whole = files(&place.path().join(&clean));
        for (name, bytes) in files(&place.path().join(&torn)) {
            let known = name.ends_with(".part") || name.ends_with(".jsonl") || whole.get(&name) == Some(&bytes);
            assert!(known, "{format}: {name} looks complete");
        }
        let done = place.run(&run(&torn).split(' ').collect::<Vec<_>>()).ok();
        assert_eq!(said(&done, "samples"), 200);
        assert!(said(&done, "kept") >= 20, "{done:?}");
        let mut there = files(&place.path().join(&torn));
        there.retain(|name, _| !name.ends_with(".part")); // sample n may have been in progress
        assert!(there == whole, "{format}");
    }
}

#[test]
fn export_never_overwrites_foreign_files() {
    let place = ring();
    fs::create_dir(place.path().join("x")).unwrap();
    fs::write(place.path().join("x/precious.txt"), "mine").unwrap();
    fs::write(place.path().join("train.data.rec"), "mine").unwrap();
    fs::write(place.path().join("train-000003.tar"), "mine").unwrap();
    for (out, format) in [("x", "npy"), ("train", "rec"), ("train", "wds"), ("x", "rec")] {
        let before = files(place.path());
        let done = export(&place, &["-o", out, "--as", format]);
        assert!(done.code == Some(2) && done.out.is_empty() && files(place.path()) == before, "{done:?}");
        if format != "rec" || out != "x" {
            export(&place, &["-o", out, "--as", format, "--force"]).ok();
        }
    }
    assert_eq!(fs::read(place.path().join("x/precious.txt")).unwrap(), b"mine");
    // Files of another export with the same name are kept too; `--force` removes all of them.
    export(&place, &["-o", "s", "--as", "wds", "--shard-samples", "5"]).ok();
    let other = export(&place, &["-o", "s", "--as", "wds", "--shard-samples", "20"]);
    assert!(other.code == Some(2) && other.err.contains("another export"), "{other:?}");
    export(&place, &["-o", "s", "--as", "wds", "--shard-samples", "20", "--force"]).ok();
    let shards = files(place.path()).into_keys().filter(|name| name.starts_with("s-")).count();
    assert_eq!(shards, 2);
}

#[test]
fn samples_removed_during_export_are_not_called_damaged() {
    let place = Place::new("SAMPLE: [data, label]\nSWAP_CAP: 30\nSEGMENT_SAMPLES: 3");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..15).for_each(|n| drop(put(&mut generator, n)));
    drop(generator);
    let fs: Arc<dyn Fs> = Arc::new(Posix);
    let (write, read) = (place.ring().join("write.1"), place.ring().join("read.1"));
    let export = |path: &Path, meanwhile: &dyn Fn()| {
        let options = Options {
            format: Format::Rec,
            out: place.path().join("x"),
            parts: Vec::new(),
            raw: false,
            positions: 0..u64::MAX,
            shard_samples: Some(1),
            shard_bytes: None,
            threads: 1,
            force: true,
        };
        let watch = Watch { total: &|_| meanwhile(), step: &|| {}, stop: &|| false };
        let subject = Subject::at(&*fs, path).unwrap();
        export::export(&fs, subject, None, &options, &watch).unwrap_err().to_string()
    };
    let promoted = export(&write, &|| fs::rename(&write, &read).unwrap());
    assert!(promoted.contains("generation 1 was promoted"), "{promoted}");
    // An error of the filesystem is not damage either, because a later read may succeed.
    fs::rename(&read, &write).unwrap();
    let first = listing(&write).into_keys().next().unwrap();
    let denied = export(&write, &|| {
        fs::remove_file(&first).unwrap();
        fs::create_dir(&first).unwrap();
    });
    assert!(denied.contains("not a plain file"), "{denied}");
}

#[test]
fn invalid_arguments_exit_with_status_2() {
    let place = ring();
    let senseless: [&[&str]; 6] = [
        &["--samples", "5..5"],
        &["--samples", "5"],
        &["--as", "npy", "--raw"],
        &["--shard-samples", "0"],
        &["--as", "zip"],
        &["--part", "nobody"],
    ];
    for args in senseless {
        let done = export(&place, &[&["-o", "x"], args].concat());
        assert!(done.code == Some(2) && done.out.is_empty(), "{args:?}: {done:?}");
    }
    let nothing = place.run(&["export", "nothing", "-o", "x"]);
    assert!(nothing.code == Some(2) && nothing.err.lines().count() == 1, "{nothing:?}");
    let gone = export(&place, &["-o", "x", "--generation", "9"]);
    assert!(gone.code == Some(1) && gone.err.contains("generation 9 is not available"), "{gone:?}");
}
