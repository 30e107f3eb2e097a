//! Bad input is refused with one message, and leaves all existing files unchanged.

use ringreel::Generator;
use ringreel::fs::{FsResult, Posix, Space};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::cli::{Mount, Place, Running, Said, as_nobody, eventually, generate, ledger, listing, put};
use testkit::fault::{Answer, Call, FaultyFs, Next};
use testkit::hook::{Action, HookFs};

const SMALL: &str = "SWAP_CAP: 4\nSAMPLE: [data, label]\n";
/// Every subcommand that uses a ring. `read --all` represents the reader, because plain `read` would wait for a ring.
const READERS: [&[&str]; 2] = [&["status"], &["read", "--all"]];
const MAKERS: [&[&str]; 2] = [&["manager"], &["generate", "--samples", "1", "--shape", "8"]];

/// Runs a command and checks that it is refused: status 1 or 2, nothing on stdout, one line on stderr that contains
/// all of `words`, and every file under `dir` unchanged.
fn refused_in(dir: &Path, run: impl FnOnce() -> Said, words: &[&str]) -> Said {
    let before = listing(dir);
    let said = run();
    assert!(matches!(said.code, Some(1 | 2)) && said.out.is_empty() && !said.err.contains("panicked"), "{said:?}");
    let sentence = said.err.lines().find(|line| line.starts_with("ringreel: ") || line.starts_with("error: "));
    let sentence = sentence.unwrap_or_else(|| panic!("no error message: {said:?}"));
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in: {sentence}");
    }
    let after = listing(dir);
    let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(new.is_empty(), "refused with {sentence:?}, but created {new:?}");
    assert!(before == after, "refused with {sentence:?}, but changed a file");
    said
}

fn refused(place: &Place, args: &[&str], words: &[&str]) -> Said {
    refused_in(place.path(), || place.run(args), words)
}

#[test]
fn invalid_configurations_are_refused_with_file_and_line() {
    let cases: [(&str, &[&str]); 12] = [
        ("DBNAME: demo\n\nSWAP_CAPP: 3\n", &["config.yaml:3", "SWAP_CAPP", "did you mean SWAP_CAP?"]),
        ("DBNAME: demo\nswap_cap: 3\n", &["config.yaml:2", "did you mean SWAP_CAP?"]),
        ("DBNAME: demo\nSWAP_CAP: -3\n", &["config.yaml:2", "SWAP_CAP", "1 to", "-3"]),
        ("DBNAME: demo\nSWAP_CAP: 0\n", &["config.yaml:2", "SWAP_CAP", "1 to"]),
        ("DBNAME: demo\nSWAP_CAP: 2.5\n", &["config.yaml:2", "SWAP_CAP", "whole number"]),
        ("DBNAME: demo\nSWAP_CAP: 2\nSWAP_CAP: 3\n", &["config.yaml", "YAML", "SWAP_CAP"]),
        ("DBNAME: demo\nSAMPLE: [data\nKEEP: 1\n", &["config.yaml", "YAML", "line"]),
        ("DBNAME: demo\nKEEP: 1\n\tSAMPLE: [data]\n", &["config.yaml", "YAML", "config.yaml:3"]),
        ("", &["config.yaml", "empty"]),
        ("just text\n", &["config.yaml", "KEY: value"]),
        ("SWAP_CAP: 3\nSAMPLE: [data]\n", &["config.yaml", "RING", "DBNAME"]),
        ("DBNAME: demo\nLEASE_SECONDS: 0\n", &["config.yaml:2", "LEASE_SECONDS", "0.001 to"]),
    ];
    let place = Place::verbatim("");
    for (yaml, words) in cases {
        place.configure(yaml);
        for args in MAKERS.into_iter().chain(READERS).chain([&["read"][..], &["config"]]) {
            assert_eq!(refused(&place, args, words).code, Some(2), "{yaml:?}");
        }
    }
}

#[test]
fn binary_configurations_are_refused_by_path() {
    let place = Place::verbatim("DBNAME: demo\n");
    fs::write(place.path().join("binary.yaml"), [0xff, 0xfe, 0, 1]).unwrap();
    fs::create_dir(place.path().join("directory.yaml")).unwrap();
    for file in ["missing.yaml", "binary.yaml", "directory.yaml"] {
        let said = refused(&place, &["status", "-c", file], &[file, "cannot read the configuration"]);
        assert_eq!(said.code, Some(2));
    }
}

#[test]
fn ring_creation_names_the_missing_configuration_key() {
    for (yaml, key) in [("DBNAME: demo\nSAMPLE: [data]\n", "SWAP_CAP"), ("DBNAME: demo\nSWAP_CAP: 3\n", "SAMPLE")] {
        let place = Place::verbatim(yaml);
        refused(&place, &["manager"], &["demo.ring", key, "configuration"]);
    }
}

/// Checks each case in a directory without a ring and in one with a ring.
fn refused_with_and_without_a_ring(cases: &[(&[&str], &[&str])]) {
    let places = [Place::new(SMALL), Place::new(SMALL)];
    generate(&places[1].config(), 0..6);
    for place in &places {
        for (args, words) in cases {
            assert_eq!(refused(place, args, words).code, Some(2), "{args:?}");
        }
    }
}

#[test]
fn invalid_arguments_are_refused_and_change_nothing() {
    refused_with_and_without_a_ring(&[
        (&["generate", "--samples", "1", "--dtype", "float7"], &["--dtype", "float7", "f32"]),
        (&["generate", "--samples", "1", "--shape", "4294967296,4294967296"], &["--shape"]),
        (&["generate", "--samples", "1", "--shape", "9223372036854775808,2"], &["--shape"]),
        (&["generate", "--samples", "1", "--shape", "1099511627777"], &["--shape", "MAX_PART"]),
        (&["generate", "--samples", "1", "--shape=64,-1"], &["--shape", "-1"]),
        (&["generate", "--samples=-1"], &["--samples", "-1"]),
        (&["read", "--rank", "3", "--world-size", "3"], &["rank 3", "world", "3", "from 0"]),
        (&["read", "--rank", "0", "--world-size", "0"], &["rank 0", "world", "0"]),
        (&["read", "--all", "--samples", "3"], &["--all", "--samples"]),
        (&["reed"], &["reed", "unrecognized"]),
    ]);
}

#[test]
fn invalid_timeout_is_refused_by_option_name() {
    refused_with_and_without_a_ring(&[
        (&["read", "--timeout=-1"], &["timeout"]),
        (&["read", "--timeout=nan"], &["timeout"]),
        (&["read", "--timeout=1e300"], &["timeout"]),
    ]);
}

#[test]
fn parts_that_contradict_the_configuration_create_no_ring() {
    refused_with_and_without_a_ring(&[
        (&["generate", "--samples", "1", "--parts", "data,mask"], &["mask", "data, label"]),
        (&["generate", "--samples", "1", "--parts", "data"], &["label", "data, label"]),
        (&["generate", "--samples", "1", "--parts", "data,label,label"], &["label, label"]),
        (&["generate", "--samples", "1", "--parts", ""], &["SAMPLE"]),
    ]);
}

#[test]
fn shapes_with_too_many_axes_create_no_ring() {
    let axes = ["1"; 65].join(",");
    refused_with_and_without_a_ring(&[(&["generate", "--samples", "1", "--shape", &axes], &["65", "64", "axes"])]);
}

#[test]
fn invalid_part_lists_create_no_ring() {
    for parts in ["data,data", "", "data,,label"] {
        let place = Place::new("SWAP_CAP: 4\n");
        refused(&place, &["generate", "--samples", "1", "--parts", parts], &["part"]);
    }
}

#[test]
fn unusable_ring_directories_are_refused_and_unchanged() {
    let place = Place::new(SMALL);
    fs::create_dir(place.path().join("full")).unwrap();
    fs::write(place.path().join("full/thesis.tex"), "years of work").unwrap();
    fs::write(place.path().join("file"), "a file").unwrap();
    symlink(place.path().join("nowhere"), place.path().join("dangling")).unwrap();
    let cases: [(&str, &[&str]); 5] = [
        ("nowhere/ring", &["nowhere/ring", "does not exist", "RING"]),
        ("full", &["full", "is not a ring", "thesis.tex", "RING"]),
        ("file", &["file", "RING", "directory"]),
        ("file/ring", &["file/ring", "RING", "directory"]),
        ("dangling", &["dangling", "RING"]),
    ];
    for (ring, words) in cases {
        place.configure(&format!("RING: {ring}\n{SMALL}"));
        for args in MAKERS {
            refused(&place, args, words);
        }
        for args in READERS {
            refused(&place, args, &words[..1]);
        }
    }
}

#[test]
fn empty_directory_and_relative_or_absolute_paths_are_accepted() {
    let place = Place::new(SMALL);
    fs::create_dir(place.path().join("empty")).unwrap();
    let absolute = format!("{}/absolute", place.path().display());
    for ring in ["empty", "./new", &absolute] {
        place.configure(&format!("RING: {ring}\n{SMALL}"));
        place.run(&["generate", "--samples", "3", "--shape", "8", "--promote"]).ok();
        assert_eq!(place.run(&["read", "--all", "--json"]).ok().json().len(), 3);
    }
}

#[test]
fn rings_of_other_names_or_versions_are_refused() {
    let place = Place::new(SMALL);
    generate(&place.config(), 0..6);
    let everybody = || MAKERS.into_iter().chain(READERS).chain([&["read"][..]]);
    let born = fs::read_to_string(place.path().join("demo.ring/ring.json")).unwrap();
    for (yaml, words) in [
        ("SWAP_CAP: 5\nSAMPLE: [data, label]\n", &["demo.ring", "SWAP_CAP 4", "has SWAP_CAP 5", "another RING"]),
        ("SWAP_CAP: 4\nSAMPLE: [data, mask]\n", &["demo.ring", "[data, label]", "[data, mask]", "another RING"]),
        ("SWAP_CAP: 4\nSAMPLE: [label, data]\n", &["demo.ring", "[data, label]", "[label, data]", "another RING"]),
    ] {
        place.configure(&format!("DBNAME: demo\n{yaml}"));
        everybody().for_each(|args| assert_eq!(refused(&place, args, words).code, Some(2)));
    }
    place.configure(&format!("DBNAME: demo\n{SMALL}"));
    let cases: [(String, &[&str]); 5] = [
        (born.replace("\"ringreel\": 1", "\"ringreel\": 2"), &["demo.ring", "version 2", "version 1", "another RING"]),
        (born.replace("\"publish\": \"link\"", "\"publish\": \"carrier pigeon\""), &["demo.ring", "carrier pigeon"]),
        (born.replace("\"swap_cap\": 4", "\"swap_cap\": 0"), &["demo.ring", "ring.json"]),
        (born[..born.len() / 2].to_owned(), &["demo.ring", "ring.json", "is damaged"]),
        (String::new(), &["demo.ring", "ring.json", "is damaged"]),
    ];
    for (text, words) in cases {
        assert_ne!(text, born);
        fs::write(place.path().join("demo.ring/ring.json"), text).unwrap();
        everybody().for_each(|args| assert_eq!(refused(&place, args, words).code, Some(2)));
    }
}

#[test]
fn unwritable_directories_are_refused_by_path() {
    let test = "an unwritable directory";
    let place = Place::new(&format!("RING: closed/ring\n{SMALL}"));
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let close = |mode| {
        let all = listing(&closed).into_keys().filter(|path| path.is_dir()).chain([closed.clone()]);
        all.for_each(|dir| fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap());
    };
    for born in [false, true] {
        if born {
            generate(&place.config(), 0..6);
        }
        close(0o555);
        for args in MAKERS {
            if as_nobody(test, &place, &["--version"]).is_none() {
                return;
            }
            let run = || as_nobody(test, &place, args).unwrap();
            let said = refused_in(
                &closed,
                run,
                &["closed/ring", "Permission denied", "RING_MODE", "belongs to user 0, mode 0"],
            );
            assert_eq!(said.code, Some(1));
        }
        close(0o755);
    }
    let said = as_nobody(test, &place, &["read", "--all", "--json"]).unwrap().ok();
    assert_eq!(said.json().len(), 6, "readers need no write permission");
}

#[test]
fn read_only_filesystems_refuse_writers_and_allow_readers() {
    let Some(mount) = Mount::tmpfs("a read-only filesystem", "size=4m") else { return };
    let place = Place::new(&format!("RING: {}/ring\n{SMALL}", mount.path().display()));
    for born in [false, true] {
        if born {
            generate(&place.config(), 0..6);
        }
        mount.remount("ro");
        for args in MAKERS {
            let run = || place.run(args);
            refused_in(mount.path(), run, &["/ring", "Read-only file system", "is mounted read-only"]);
        }
        if born {
            assert_eq!(place.run(&["read", "--all", "--json"]).ok().json().len(), 6);
            place.run(&["status"]).ok();
        }
        mount.remount("rw");
    }
}

#[test]
fn operating_system_error_is_printed_once() {
    let name = "long".repeat(100);
    let place = Place::new(&format!("RING: {name}\n{SMALL}"));
    let said = refused(&place, &["manager"], &[&name, "too long"]);
    assert_eq!(said.err.matches("(os error").count(), 1, "{}", said.err);
}

/// Creates a ring where space or inodes may not suffice; returns whether they did. A failed creation leaves no files,
/// or, if `ring.json` is already published (another process may have found it), a retry completes the ring.
fn creation_succeeds_on_full_disk(mount: &Mount, place: &Place, reclaim_before_promote: impl FnOnce()) -> bool {
    let before = listing(mount.path());
    let said = place.run(&["generate", "--samples", "0"]);
    if said.code == Some(0) {
        return true;
    }
    let sentence = said.err.lines().find(|line| line.starts_with("ringreel: ")).unwrap_or_default();
    for word in ["/ring", "No space left", "free some space or inodes"] {
        assert!(sentence.contains(word), "{word:?} is not in: {said:?}");
    }
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    if !mount.path().join("ring/ring.json").exists() {
        assert!(listing(mount.path()) == before, "files were left: {:?}", listing(mount.path()).keys());
    }
    reclaim_before_promote();
    place.run(&["generate", "--samples", "3", "--shape", "8", "--promote"]).ok();
    assert_eq!(place.run(&["read", "--all", "--json"]).ok().json().len(), 3);
    false
}

#[test]
fn failed_ring_creation_on_a_full_disk_leaves_no_files() {
    for pages in 0.. {
        let Some(mount) = Mount::tmpfs("ring creation on a full disk", "size=512k") else { return };
        let place = Place::new(&format!("RING: {}/ring\n{SMALL}", mount.path().display()));
        mount.fill_up(pages);
        if creation_succeeds_on_full_disk(&mount, &place, || fs::remove_file(mount.path().join("filler")).unwrap()) {
            assert!(pages > 0 && pages < 20, "{pages} pages were enough");
            return;
        }
    }
}

#[test]
fn failed_ring_creation_without_inodes_leaves_no_files() {
    for inodes in 1.. {
        let Some(mount) = Mount::tmpfs("few inodes", &format!("size=2m,nr_inodes={inodes}")) else { return };
        let place = Place::new(&format!("RING: {}/ring\n{SMALL}", mount.path().display()));
        if creation_succeeds_on_full_disk(&mount, &place, || mount.remount("nr_inodes=1000")) {
            assert!(inodes > 8 && inodes < 40, "{inodes} inodes were enough");
            return;
        }
    }
}

#[test]
fn generators_on_a_full_disk_wait_while_readers_continue() {
    let Some(mount) = Mount::tmpfs("a generator on a full disk", "size=1m") else { return };
    let ring = mount.path().join("ring");
    let place = Place::new(&format!("RING: {}\nSWAP_CAP: 10\nSAMPLE: [data]\nKEEP: 500\n", ring.display()));
    let mut generator = place.start(&["generate", "--shape", "6000", "--ledger", "ledger"]);
    let finished = || ledger(&place.path().join("ledger"));
    eventually("the disk is full", || finished().len() >= 20);
    generator.await_err("room on the disk");
    let last = finished().len();
    let visible = place.run(&["read", "--all", "--json"]).ok().values("sample_id").len();
    assert!(visible > 0 && visible.is_multiple_of(10) && visible <= last, "{visible} of {last}");
    eventually("status names the missing resource", || {
        place.run(&["status"]).ok().out.contains("waiting for room on the disk")
    });
    for n in 0..20 {
        fs::write(mount.path().join(format!("noise.{n}")), [1]).unwrap(); // another program uses the remaining space
        std::thread::sleep(Duration::from_millis(30));
    }
    let lines = generator.err().matches("room on the disk").count();
    assert!(lines <= 3, "the wait was logged {lines} times");

    generator.terminate();
    let said = generator.finish().ok();
    assert!(said.out.contains("samples finished"), "{said:?}");
    let finished = finished();
    let status = &place.run(&["status", "--json"]).ok().json()[0];
    let all = finished.len() as u64;
    assert_eq!(status["samples_generated"], all, "status counts all finished samples");

    mount.remount("size=16m");
    let manager = place.start(&["manager"]);
    eventually("all samples are delivered", || {
        place.run(&["generate", "--samples", "10", "--seed", "1", "--shape", "8", "--promote"]).ok();
        place.run(&["status", "--json"]).ok().json()[0]["samples_waiting"] == 0
    });
    manager.terminate();
    manager.finish().ok();
    let delivered = place.run(&["read", "--all", "--json"]).ok().values("sample_id");
    let once: BTreeSet<String> = delivered.iter().cloned().collect();
    assert_eq!(once.len(), delivered.len(), "a sample was delivered twice");
    assert!(finished.is_subset(&once), "lost: {:?}", finished.difference(&once));
}

/// A server that reports free space although writes fail with ENOSPC.
fn roomy(call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
    if call.op == "space" { Ok(Space { bytes: 1 << 40, inodes: None }.into()) } else { next(call) }
}

#[test]
fn writes_on_a_full_disk_are_retried_after_space_is_freed() {
    let Some(mount) = Mount::tmpfs("a write to a full disk", "size=256k") else { return };
    let ring = mount.path().join("ring");
    for more in ["", "SEGMENT_SAMPLES: 7\n"] {
        let place =
            Place::new(&format!("RING: {}\nSWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 500\n{more}", ring.display()));
        let mut generator = Generator::open_on(Arc::new(FaultyFs::with(Posix, roomy)), &place.config()).unwrap();
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100 {
                    put(&mut generator, n);
                    written.store(n + 1, Ordering::SeqCst);
                }
                let summary = generator.finish(true, &|| false).unwrap();
                assert_eq!((summary.finished, summary.delivered, summary.quarantined), (100, 100, 0));
            });
            let mut last = written.load(Ordering::SeqCst);
            eventually("the disk is full", || {
                std::thread::sleep(Duration::from_millis(300));
                std::mem::replace(&mut last, written.load(Ordering::SeqCst)) == last && last > 0
            });
            assert!(last < 100, "the disk was never full");
            mount.remount("size=16m");
        });
        let said = place.run(&["read", "--all", "--json"]).ok();
        let numbers: Vec<u64> = said.json().iter().map(|line| line["meta"]["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers.len(), 100);
        assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>().len(), 100, "a sample was delivered twice");
        fs::remove_dir_all(&ring).unwrap();
        mount.remount("size=256k");
    }
}

#[test]
fn budgets_are_filled_but_not_exceeded_and_waits_are_logged() {
    for (budget, segments, most) in
        [("MAX_BYTES: 60000", "1", 13), ("MAX_FILES: 9", "1", 9), ("MAX_BYTES: 60000", "auto", 13)]
    {
        let place = Place::new(&format!("SWAP_CAP: 100\nSAMPLE: [data]\nSEGMENT_SAMPLES: {segments}\n{budget}\n"));
        let mut generator = place.start(&["generate", "--shape", "4300"]);
        generator.await_err(&format!("room under {}", budget.split(':').next().unwrap()));
        generator.terminate();
        generator.finish().ok();
        let status = &place.run(&["status", "--json"]).ok().json()[0];
        let (samples, bytes) = (status["samples_generated"].as_u64().unwrap(), status["bytes"].as_u64().unwrap());
        assert!((most - 1..=most).contains(&samples) && bytes <= 60_000, "{samples} samples, {bytes} bytes: {budget}");
    }
}

#[test]
fn concurrent_creation_by_two_processes_makes_one_ring() {
    let place = Place::new(SMALL);
    let (ring, config) = (place.ring(), place.config());
    let fs = HookFs::default();
    fs.hook(move |_, op, path| {
        if op == "make_dir" && path == ring && !ring.exists() {
            generate(&config, 0..8); // another process creates and fills the ring first
        }
        Action::Pass
    });
    let mut late = Generator::open_on(Arc::new(fs), &place.config()).unwrap();
    (8..12).for_each(|n| drop(put(&mut late, n)));
    late.finish(true, &|| false).unwrap();
    assert_eq!(place.run(&["status", "--json"]).ok().json()[0]["samples_delivered"], 12);
}

#[test]
fn delivery_survives_removed_counter_directories() {
    let place = Place::new(SMALL);
    let left = AtomicU64::new(5);
    let fs = HookFs::default();
    fs.hook(move |_, op, path| {
        let dir = path.parent().unwrap();
        let counts = op == "create" && dir.parent().is_some_and(|dir| dir.ends_with("counter"));
        if counts && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            let _ = fs::remove_dir_all(dir);
        }
        Action::Pass
    });
    let mut generator = Generator::open_on(Arc::new(fs), &place.config()).unwrap();
    (0..12).for_each(|n| drop(put(&mut generator, n)));
    assert_eq!(generator.finish(true, &|| false).unwrap().delivered, 12);
}

#[test]
fn concurrent_creation_by_many_processes_makes_one_ring() {
    for round in 0..6 {
        let place = Place::new(&format!("SWAP_CAP: {}\nSAMPLE: [data]\nKEEP: 500\n", [1, 4][round % 2]));
        let name = |n: usize| format!("ledger.{n}");
        let generators: Vec<_> = (0..6)
            .map(|n| {
                place.start(&[
                    "generate",
                    "--samples",
                    "6",
                    "--shape",
                    "8",
                    "--promote",
                    "--ledger",
                    &name(n),
                    "--seed",
                    &n.to_string(),
                ])
            })
            .collect();
        let managers = [place.start(&["manager"]), place.start(&["manager"])];
        generators.into_iter().for_each(|generator| drop(generator.finish().ok()));
        managers.iter().for_each(Running::terminate);
        managers.into_iter().for_each(|manager| drop(manager.finish().ok()));
        let finished: BTreeSet<String> = (0..6).flat_map(|n| ledger(&place.path().join(name(n)))).collect();
        let delivered = place.run(&["read", "--all", "--json"]).ok().values("sample_id");
        assert_eq!((finished.len(), delivered.len()), (36, 36));
        assert_eq!(finished, delivered.into_iter().collect());
        let manifests = fs::read_dir(place.ring().join("manifests")).unwrap();
        let rings: BTreeSet<_> = manifests
            .map(|entry| {
                let text = fs::read_to_string(entry.unwrap().path()).unwrap();
                let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
                first["ring"].as_str().unwrap().to_owned()
            })
            .collect();
        let status = &place.run(&["status", "--json"]).ok().json()[0];
        assert_eq!(rings.into_iter().collect::<Vec<_>>(), [status["ring_id"].as_str().unwrap()]);
    }
}
