//! `ringreel verify` names all damage, and reports no intact file, whatever files the ring contains.

use ringreel::fs::Posix;
use ringreel::{Generator, NamedPart};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::{DType, Meta};
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::samples::{Note, Samples};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use testkit::cli::{Place, Said, as_nobody, listing, put};

/// Generations 1 to 3 of ten samples each, and three finished samples of an owner that has exited.
fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 5\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..33).for_each(|n| drop(put(&mut generator, n)));
    drop(generator);
    assert!(place.ring().join("read.3").exists() && place.ring().join("write.4").exists());
    place
}

fn verify(place: &Place, path: &Path) -> Said {
    let before = listing(&place.ring());
    let said = place.run(&["verify", path.to_str().unwrap(), "--json"]);
    assert_eq!(listing(&place.ring()), before, "verify wrote into the ring");
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

/// Returns kinds, paths relative to the ring, and messages.
fn findings(said: &Said, ring: &Path) -> Vec<(String, PathBuf, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let found = said.json().into_iter().filter_map(|line| line.get("finding").cloned());
    found
        .map(|finding| {
            let path = PathBuf::from(text(&finding["path"]));
            let path = path.strip_prefix(ring.canonicalize().unwrap()).map(Path::to_owned).unwrap_or(path);
            (text(&finding["kind"]), path, text(&finding["message"]))
        })
        .collect()
}

fn summary(said: &Said) -> serde_json::Value {
    said.json().pop().unwrap()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn healthy_ring_has_no_damage_and_counts_each_sample_once() {
    let place = ring();
    let said = verify(&place, &place.ring());
    assert_eq!(said.code, Some(0), "{said:?}");
    let found = findings(&said, &place.ring());
    assert!(
        matches!(&found[..], [(kind, path, what)] if kind == "unfinished" && path.starts_with("staging")
        && what.contains("3 finished segments")),
        "{found:?}"
    );
    let summary = summary(&said);
    assert_eq!(
        (&summary["generations"], &summary["readable"], &summary["unreadable"]),
        (&3.into(), &33.into(), &0.into())
    );
    let generation = verify(&place, &place.ring().join("read.2")).ok();
    assert_eq!(self::summary(&generation)["readable"], 10);
    let file = verify(&place, &segments(&place.ring().join("read.2"))[4]).ok();
    assert_eq!((&self::summary(&file)["subject"], &self::summary(&file)["readable"]), (&"segment".into(), &1.into()));
}

#[test]
fn each_damage_is_named_with_its_loss() {
    let place = ring();
    let ring = place.ring();
    // A flipped byte, a truncated segment, a missing segment, a missing manifest, a dead manager's half promotion,
    // three finished samples of a dead owner.
    let of_one = segments(&ring.join("read.1"));
    let mut bytes = fs::read(&of_one[2]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&of_one[2], &bytes).unwrap();
    fs::OpenOptions::new().write(true).open(&of_one[5]).unwrap().set_len(bytes.len() as u64 - 40).unwrap();
    fs::remove_file(&of_one[7]).unwrap();
    fs::remove_file(ring.join("manifests/2")).unwrap();
    fs::rename(ring.join("write.4"), ring.join("read.4")).unwrap();
    let said = verify(&place, &ring);
    assert_eq!(said.code, Some(1), "{said:?}");
    let found = findings(&said, &ring);
    let has = |kind: &str, path: &str, what: &str| {
        let here = |(k, p, w): &&(String, PathBuf, String)| k == kind && p.starts_with(path) && w.contains(what);
        assert!(found.iter().any(|finding| here(&finding)), "{kind} {path} {what}: {found:#?}");
    };
    let name = |path: &Path| format!("read.1/{}", path.file_name().unwrap().to_str().unwrap());
    has("damage", &name(&of_one[2]), "CRC-32");
    has("damage", &name(&of_one[5]), "the end of the file is missing");
    has("damage", &name(&of_one[7]), "the file is missing: 1 sample lost");
    has(
        "damage",
        "manifests/2",
        "the manifest of generation 2 is missing: the samples in its directory cannot be read",
    );
    has("unfinished", "read.4", "the promotion of generation 4 is unfinished");
    has("unfinished", "staging", "3 finished segments");
    assert_eq!(found.iter().filter(|(kind, ..)| kind == "damage").count(), 5, "each is reported once: {found:#?}");
    let summary = summary(&said);
    assert_eq!((&summary["generations"], &summary["unreadable"]), (&2.into(), &3.into()));
    assert_eq!(summary["readable"], 33 - 3);
}

#[test]
fn hostile_files_and_names_are_handled_without_a_panic() {
    let place = ring();
    let dir = place.ring().join("read.2");
    symlink("/etc/passwd", dir.join("000100.rec")).unwrap();
    symlink("/", place.ring().join("read.77")).unwrap();
    fs::write(dir.join("new\nline.rec"), "x").unwrap();
    fs::create_dir(dir.join("000101.rec")).unwrap();
    assert!(Command::new("mkfifo").arg(place.ring().join("write.4/000200.rec")).status().unwrap().success());
    fs::write(place.ring().join("write.4/000201.rec"), "x").unwrap();
    let mut lies = fs::read(&segments(&dir)[0]).unwrap();
    let end = lies.len() - 16;
    lies[end..end + 8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    fs::write(place.ring().join("write.4/000202.rec"), lies).unwrap();
    (0..2000).for_each(|n| fs::write(dir.join(format!("{n}.litter")), "").unwrap());
    let path = place.ring();
    let said = place.run(&["verify", path.to_str().unwrap()]);
    assert!(said.code == Some(1) && !said.err.contains("panicked"), "{said:?}");
    assert!(said.out.lines().all(|line| !line.starts_with("line.rec")), "a name spans several lines: {}", said.out);
    assert!(said.out.lines().count() < 200, "foreign files are counted, not listed: {}", said.out);
    let counted = said.out.lines().rev().nth(2).unwrap();
    assert!(counted.contains("34 samples intact"), "one of them in a copy with a false length: {counted}");
}

#[test]
fn manifest_with_a_huge_number_is_verified_in_bounded_time() {
    let place = ring();
    let far = place.ring().join(format!("manifests/{}", (1u64 << 62) - 1));
    fs::copy(place.ring().join("manifests/3"), far).unwrap();
    let said = verify(&place, &place.ring());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("belongs to generation 3") && said.out.lines().count() < 1100, "{}", said.out);
    for args in [&["status", "demo.ring"][..], &["inspect", "demo.ring"], &["repair", "demo.ring"]] {
        let said = place.run(args);
        assert!(!said.err.contains("panicked") && said.code.is_some(), "{args:?}: {said:?}");
    }
    let before = listing(&place.ring());
    let said = place.run(&["gc", "--apply"]);
    assert!(said.code == Some(1) && said.err.contains("belongs to generation 3"), "gc removed a generation: {said:?}");
    assert_eq!(listing(&place.ring()), before);
}

#[test]
fn every_format_vector_has_its_exit_status() {
    let place = Place::verbatim("");
    let vectors = testkit::workspace().join("format/vectors");
    for (kind, statuses) in [("ok", &[0][..]), ("bad", &[1, 2])] {
        let files = fs::read_dir(vectors.join(kind)).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "rec")).collect();
        assert!(files.len() > 50);
        for file in files {
            let said = place.run(&["verify", file.to_str().unwrap()]);
            // Plain records, or none, are not a segment, but a valid RecordIO file.
            let plain = ["header-plain-record.rec", "cut-empty.rec"]
                .map(Path::new)
                .contains(&Path::new(file.file_name().unwrap()));
            let fits = statuses.contains(&said.code.unwrap()) || plain && said.code == Some(0);
            assert!(fits && !said.err.contains("panicked"), "{}: {said:?}", file.display());
            assert!(!said.out.is_empty() || !said.err.is_empty());
        }
    }
}

#[test]
fn non_utf8_paths_are_accepted_and_printed() {
    let place = ring();
    let odd = place.path().join(OsStr::from_bytes(b"od\xffd.ring"));
    fs::rename(place.ring(), &odd).unwrap();
    fs::remove_file(odd.join("manifests/2")).unwrap();
    for json in [&[][..], &["--json"]] {
        let mut command = place.command(&["verify"]);
        let said = command.arg(&odd).args(json).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.code() == Some(1) && text.contains("manifests/2"), "{said:?}");
    }
}

#[test]
fn unlistable_directories_hide_no_other_finding() {
    let place = ring();
    let ring = place.ring();
    let id =
        place.run(&["inspect", "demo.ring", "-n", "0", "--json"]).ok().json()[0]["id"].as_str().unwrap().to_owned();
    let damaged = segments(&ring.join("read.2")).remove(0);
    fs::write(&damaged, "x").unwrap();
    fs::write(ring.join("staging/notes"), "mine").unwrap();
    fs::write(ring.join("read.7"), "mine").unwrap();
    fs::write(ring.join("write.5"), "mine").unwrap();
    fs::write(ring.join("write.99"), "mine").unwrap();
    let foreign = ring.join("staging/foreign");
    fs::create_dir(&foreign).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
    let hidden = ring.join("read.1");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
    let said = verify(&place, &ring);
    assert_eq!(said.code, Some(1), "{said:?}");
    let found = findings(&said, &ring);
    let has = |found: &[(String, PathBuf, String)], kind: &str, path: &str| {
        assert!(found.iter().any(|(k, p, _)| k == kind && p == Path::new(path)), "{kind} {path}: {found:#?}");
    };
    let path = damaged.strip_prefix(&ring).unwrap().to_str().unwrap();
    for (kind, path) in [("damage", path), ("note", "staging/notes"), ("note", "write.5"), ("note", "read.7")] {
        has(&found, kind, path);
    }
    place.run(&["inspect", "demo.ring", "--id", &id]).ok();
    for args in [&["inspect", "demo.ring"][..], &["inspect", "demo.ring", "--tree"]] {
        let said = place.run(args);
        assert!(said.code != Some(2) && said.out.contains("write.99"), "{said:?}");
    }
    let by_nobody = as_nobody("unlistable_directories", &place, &["verify", "demo.ring", "--json"]);
    if let Some(said) = by_nobody {
        let found = findings(&said, &ring);
        let path = damaged.strip_prefix(&ring).unwrap().to_str().unwrap();
        for (kind, path) in [("damage", path), ("note", "staging/foreign"), ("damage", "read.1")] {
            has(&found, kind, path);
        }
        let said = as_nobody("unlistable_directories", &place, &["inspect", "demo.ring"]).unwrap();
        assert!(said.code != Some(2) && said.out.contains("read.3"), "{said:?}");
        as_nobody("unlistable_directories", &place, &["inspect", "demo.ring", "--id", &id]).unwrap().ok();
    }
}

#[test]
fn link_to_another_segment_is_damage() {
    let place = ring();
    let of_one = segments(&place.ring().join("read.1"));
    fs::remove_file(&of_one[3]).unwrap();
    fs::hard_link(&of_one[2], &of_one[3]).unwrap();
    let said = verify(&place, &place.ring());
    assert_eq!(said.code, Some(1), "{said:?}");
    let summary = summary(&said);
    assert_eq!((&summary["readable"], &summary["unreadable"]), (&32.into(), &1.into()));
    place.run(&["verify", "demo.ring", "--threads", "100000"]);
}

#[test]
fn many_findings_are_counted_instead_of_listed() {
    let place = Place::verbatim("");
    let mut writer = RecordWriter::new(Vec::new());
    writer.write(&[7; 8]).unwrap();
    let damaged = [&writer.into_inner()[..], b"junk"].concat().repeat(10_010);
    fs::write(place.path().join("x.rec"), damaged).unwrap();
    let said = place.run(&["verify", "x.rec", "--json"]);
    let lines = said.json();
    assert_eq!((said.code, lines.len()), (Some(1), 10_001));
    assert_eq!((&lines[10_000]["readable"], &lines[10_000]["findings_not_listed"]), (&10_010.into(), &10.into()));
    let subject = Subject::File(place.path().join("x.rec"));
    let samples = Samples::open(Arc::new(Posix), &subject).unwrap();
    assert_eq!((samples.len(), samples.notes().len()), (10_010, 10_001));
    assert_eq!(samples.notes()[10_000], Note::More(10));
}

#[test]
fn file_contents_reach_the_terminal_escaped() {
    let place = Place::new("SWAP_CAP: 1\nSAMPLE: [\"da\\e[2Jta\"]\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    let descr = "V4\x1b[2J".to_owned();
    let part = NamedPart::new("da\x1b[2Jta", DType::Numpy { descr, itemsize: 4 }, &[1], &[0; 4]);
    let mut meta = Meta::new();
    meta.set("say", "\u{9b}2J\u{7f}");
    generator.write(&[part], &meta, &|| false).unwrap();
    drop(generator);
    let ring = place.ring();
    fs::write(ring.join("quarantine/x.rec"), "x").unwrap();
    fs::write(ring.join("quarantine/x.why"), "broken\x1b[2J\nDAMAGE").unwrap();
    let segment = segments(&ring.join("read.1")).remove(0);
    let segment = segment.to_str().unwrap();
    for args in [
        &["verify", "demo.ring"][..],
        &["inspect", "demo.ring"],
        &["inspect", "demo.ring", "--tree"],
        &["inspect", "demo.ring", "-n", "0"],
        &["inspect", segment],
        &["inspect", segment, "--tree"],
        &["inspect", "\x1b[2J"],
        &["export", "demo.ring", "-o", "x", "--part", "\x1b[2J"],
    ] {
        let said = place.run(args);
        for text in [&said.out, &said.err] {
            let obeyed = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(obeyed) && !text.lines().any(|line| line == "DAMAGE"), "{args:?}: {text:?}");
        }
    }
}

#[test]
fn unverifiable_paths_exit_with_status_2() {
    let place = Place::verbatim("");
    for path in ["nothing", "."] {
        let said = place.run(&["verify", path]);
        assert!(said.code == Some(2) && said.out.is_empty() && said.err.lines().count() == 1, "{said:?}");
    }
}

/// Two generations of four samples, one of them damaged; a sealed segment of two samples; and a sample that is not sealed.
#[test]
fn status_inspect_and_verify_count_the_same_samples() {
    let place = Place::new(
        "SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 5\nSEGMENT_SAMPLES: 2\nSEGMENT_SECONDS: 1000\nVALIDATION: 1\n",
    );
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..11).for_each(|n| drop(put(&mut generator, n)));
    let segment = &segments(&place.ring().join("read.2"))[0];
    let mut bytes = fs::read(segment).unwrap();
    let quarter = bytes.len() / 4; // in the first of its two samples
    bytes[quarter] ^= 1;
    fs::write(segment, &bytes).unwrap();

    let path = place.ring();
    let json = |command: &str| summary(&place.run(&[command, path.to_str().unwrap(), "--json"]));
    let (status, inspected, verified) = (json("status"), json("inspect"), json("verify"));
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
    let sum = |told: &serde_json::Value, state: Option<&str>| {
        let generations = told["generations"].as_array().unwrap().iter();
        generations
            .filter(|one| state.is_none_or(|state| one["state"] == state))
            .map(|one| number(&one["samples"]))
            .sum()
    };
    let readable: u64 = sum(&status, None);
    assert_eq!((readable, number(&status["samples_delivered"]), number(&inspected["delivered"])), (8, 8, 8));
    assert_eq!(sum(&inspected, Some("readable")), readable);
    assert_eq!((number(&verified["readable"]), number(&verified["unreadable"])), (9, 1), "{verified}");
    assert_eq!(
        number(&verified["readable"]) - number(&verified["unlisted"]) + number(&verified["unreadable"]),
        readable
    );

    let waiting = number(&status["samples_waiting"]);
    assert_eq!((waiting, number(&status["writing"]["samples"]), number(&verified["unlisted"])), (2, 2, 2));
    assert_eq!(sum(&inspected, Some("filling")), waiting);
    for key in ["files", "bytes"] {
        assert_eq!(status[key], verified[key], "{key}");
    }
    let text = |command: &str| place.run(&[command, path.to_str().unwrap()]).out;
    for (command, words) in [
        ("status", "delivered  8 samples in 2 swaps since the ring was created"),
        ("status", " in 5 files of the readable generations and the filling one"),
        ("inspect", " in 2 generations since the ring was created"),
        ("inspect", "readable samples, by owner"),
        ("verify", ": 9 samples intact, 2 of them not in a readable generation; 1 listed but not readable"),
    ] {
        let said = text(command);
        assert!(said.contains(words), "{words}: {said}");
    }
}
