//! No command exits with status 0 on an incomplete ring: each names the required generation that is missing.

use ringreel::{Error, Generator, Reader, Stream, StreamOptions};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use testkit::cli::{Place, Said, as_nobody, generate, put};

/// Generations 1 to 4 of four samples each, all within KEEP.
fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 5\n");
    generate(&place.config(), 0..16);
    assert!((1..=4).all(|n| place.ring().join(format!("read.{n}")).exists()));
    place
}

fn remove_dir(place: &Place, generation: u64) -> PathBuf {
    let dir = place.ring().join(format!("read.{generation}"));
    fs::remove_dir_all(&dir).unwrap();
    dir
}

fn first_file(place: &Place, generation: u64) -> PathBuf {
    let mut files: Vec<_> =
        fs::read_dir(place.ring().join(format!("read.{generation}"))).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files.swap_remove(0)
}

/// Returns the kinds and messages of the findings of `ringreel verify`.
fn findings(said: &Said) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let found = said.json().into_iter().filter_map(|line| line.get("finding").cloned());
    found.map(|finding| (text(&finding["kind"]), text(&finding["message"]))).collect()
}

#[test]
fn read_all_fails_if_a_kept_manifest_is_missing() {
    let place = ring();
    fs::remove_file(place.ring().join("manifests/2")).unwrap();
    let said = place.run(&["read", "--all"]);
    assert!(said.code == Some(1) && said.out.contains("12 samples read"), "{said:?}");
    assert!(said.out.contains("missing generations: [2]"), "{said:?}");
    assert!(said.err.contains("manifests/2 is missing, although KEEP covers it"), "{said:?}");
}

/// Every rank names the missing generation.
#[test]
fn read_all_fails_for_each_rank() {
    let place = ring();
    remove_dir(&place, 2);
    for rank in ["0", "1"] {
        let said = place.run(&["read", "--all", "--rank", rank, "--world-size", "2"]);
        assert!(said.code == Some(1) && said.out.contains("missing generations: [2]"), "{said:?}");
    }
}

#[test]
fn read_all_fails_if_a_directory_is_unreadable() {
    let place = ring();
    let dir = place.ring().join("read.2");
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    let Some(said) = as_nobody("an unreadable generation", &place, &["read", "--all", "--json"]) else { return };
    assert!(said.code == Some(1) && said.err.contains("demo.ring/read.2"), "{said:?}");
}

/// A replay counts the samples of a generation older than KEEP as gone; a generation within KEEP is missing.
#[test]
fn read_replay_fails_if_a_kept_generation_is_missing() {
    for manifest in [false, true] {
        let place = ring();
        place.run(&["read", "--samples", "4", "--run", "seen"]).ok();
        place.run(&["read", "--replay", "seen"]).ok();
        generate(&place.config(), 16..20);
        if manifest {
            fs::remove_file(place.ring().join("manifests/4")).unwrap();
        } else {
            remove_dir(&place, 4);
        }
        let said = place.run(&["read", "--replay", "seen"]);
        assert!(said.code == Some(1) && said.out.contains("missing generations: [4]"), "{said:?}");
        assert!(said.out.contains("4 gone with their reclaimed generations"), "{said:?}");
    }
}

/// The reader blocks in a full pipe when the signal arrives.
#[test]
fn read_all_fails_if_a_signal_ends_it() {
    let place = Place::new("SWAP_CAP: 3000\nSEGMENT_SAMPLES: 3000\nSAMPLE: [data, label]\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..3000).for_each(|n| drop(put(&mut generator, n)));
    drop(generator);
    let mut reader =
        place.command(&["read", "--all", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    assert!(Command::new("kill").args(["-TERM", &reader.id().to_string()]).status().unwrap().success());
    let mut read = 1;
    for line in lines {
        line.unwrap();
        read += 1;
        std::thread::sleep(Duration::from_millis(2)); // gives the reader time to notice the signal
    }
    let done = reader.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(read < 3000 && done.status.code() == Some(1), "{read} samples, {done:?}");
    assert!(err.contains("interrupted before all samples were read"), "{err}");
}

/// No file of the ring records KEEP: without `--keep`, a gap is reported and counts as reclaimed.
#[test]
fn verify_names_a_gap_and_fails_if_keep_covers_it() {
    let place = ring();
    let ring = place.ring();
    let ring = ring.to_str().unwrap();
    assert_eq!(findings(&place.run(&["verify", ring, "--json", "--keep", "3"]).ok()), []);
    remove_dir(&place, 2);
    let said = place.run(&["verify", ring, "--json"]).ok();
    let found = findings(&said);
    assert!(matches!(&found[..], [(kind, what)] if kind == "note" && what.contains("--keep N")), "{found:?}");
    assert!(findings(&place.run(&["verify", ring, "--json", "--keep", "1"]).ok()).is_empty());
    let said = place.run(&["verify", ring, "--json", "--keep", "2"]);
    let found = findings(&said);
    let lost = "the directory of generation 2 is missing: 4 samples lost";
    assert!(said.code == Some(1) && found == [("damage".to_owned(), lost.to_owned())], "{said:?}");
    assert_eq!(said.json().pop().unwrap()["unreadable"], 4);
    // Without an older generation, a gap is invisible unless `--keep` is given.
    remove_dir(&place, 1);
    assert!(findings(&place.run(&["verify", ring, "--json"]).ok()).is_empty());
    assert_eq!(findings(&place.run(&["verify", ring, "--json", "--keep", "5"])).len(), 2);
    let said = place.run(&["verify", &format!("{ring}/read.3"), "--keep", "1"]);
    assert!(said.code == Some(2) && said.err.contains("--keep requires the path of a ring"), "{said:?}");
}

#[test]
fn verify_needs_no_keep_for_newest_and_held_out_generations() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 0\nVALIDATION: 6\n");
    generate(&place.config(), 0..20);
    let ring = place.ring();
    let ring = ring.to_str().unwrap();
    // Of generations 1 to 5, the first two contain the validation split, and generation 5 is the newest.
    assert!(!place.ring().join("read.3").exists() && place.ring().join("read.2").exists());
    assert!(findings(&place.run(&["verify", ring, "--json"]).ok()).is_empty(), "reclaimed generations are not a gap");
    for generation in [2, 5] {
        remove_dir(&place, generation);
        let said = place.run(&["verify", ring, "--json"]);
        let lost = format!("the directory of generation {generation} is missing: 4 samples lost");
        assert!(said.code == Some(1) && findings(&said).contains(&("damage".to_owned(), lost)), "{said:?}");
    }
    let said = place.run(&["read", "--all"]);
    assert!(said.code == Some(1) && said.out.contains("missing generations: [2, 5]"), "{said:?}");
    fs::remove_file(place.ring().join("manifests/2")).unwrap();
    let said = place.run(&["read", "--all"]);
    assert!(said.code == Some(1) && said.err.contains("of 6 held-out samples"), "{said:?}");
}

#[test]
fn export_fails_if_a_generation_or_segment_is_missing() {
    let place = ring();
    let ring = place.ring();
    let ring = ring.to_str().unwrap();
    let export = |args: &[&str]| {
        let _ = fs::remove_dir_all(place.path().join("out"));
        place.run(&[&["export", ring, "-o", "out", "--as", "npy"], args].concat())
    };
    assert_eq!(export(&["--generation", "2"]).code, Some(0));
    fs::remove_file(first_file(&place, 2)).unwrap();
    let said = export(&["--generation", "2"]);
    assert!(said.code == Some(1) && said.out.contains("1 DAMAGED and skipped"), "{said:?}");
    remove_dir(&place, 2);
    let said = export(&["--generation", "2"]);
    assert!(said.code == Some(1) && said.err.contains("generation 2 is not available"), "{said:?}");
    remove_dir(&place, 4);
    let said = export(&[]);
    assert!(said.code == Some(1) && said.err.contains("the newest generation, 4, is missing"), "{said:?}");
}

#[test]
fn inspect_names_missing_generations_and_files() {
    let place = ring();
    fs::remove_file(first_file(&place, 3)).unwrap();
    let said = place.run(&["inspect", "demo.ring", "--generation", "3"]);
    assert!(said.code == Some(1) && said.out.contains("1 of 4 samples cannot be read"), "{said:?}");
    remove_dir(&place, 2);
    let said = place.run(&["inspect", "demo.ring"]).ok();
    assert!(said.out.contains("generation 2 is missing, but an older one exists"), "{said:?}");
    let said = place.run(&["inspect", "demo.ring", "--generation", "2"]);
    assert!(said.code == Some(2) && said.err.contains("has no generation 2"), "{said:?}");
}

/// A ring's directory alone does not tell KEEP, so only the newest generation is required.
#[test]
fn status_and_report_name_missing_generations() {
    let place = ring();
    let missing = |args: &[&str]| place.run(&[&["status", "--json"], args].concat()).ok().json()[0]["missing"].clone();
    assert_eq!(missing(&[]), serde_json::json!([]));
    remove_dir(&place, 3);
    fs::remove_file(place.ring().join("manifests/1")).unwrap();
    assert_eq!(missing(&[]), serde_json::json!([1, 3]));
    assert_eq!(missing(&["demo.ring"]), serde_json::json!([]));
    let said = place.run(&["status"]).ok();
    assert!(said.out.contains("MISSING    generations [1, 3], although KEEP covers them"), "{said:?}");
    let page = place.run(&["report", "-o", "-"]).ok();
    assert!(page.out.contains("Missing generations that KEEP covers: [1, 3]."), "{page:?}");
}

/// Reading by position, in batches and as a stream names the missing generation, once.
#[test]
fn readers_and_streams_count_a_missing_generation() {
    let place = ring();
    remove_dir(&place, 4);
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    let newest = reader.newest().unwrap();
    assert!(matches!(reader.sample(&newest, 0), Err(Error::Reclaimed { generation: 4 })));
    assert_eq!(reader.missing(), [4]);
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    assert!(reader.batch(&newest, 0..4).is_err());
    assert_eq!(reader.missing(), [4]);
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    let timeout = Some(Duration::from_secs(3)); // LEASE_SECONDS is 1
    let options = StreamOptions { epochs: Some(1), repeat: false, timeout, ..StreamOptions::default() };
    let mut stream = Stream::new(reader.clone(), options).unwrap();
    assert!(matches!(stream.next(&|| false, &mut |_| ()), Err(Error::Timeout { .. })));
    assert_eq!((reader.missing(), stream.position().missing()), (vec![4], vec![4]));
}
