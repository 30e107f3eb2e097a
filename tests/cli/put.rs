//! `ringreel put`: each sample of a stream or of a watched folder is in the ring once, also where `put` is killed.

use ringreel::Reader;
use ringreel::read::{ReadPart, ReadSample};
use ringreel_format::{DType, Part};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use testkit::cli::{Place, Running, Said, eventually};

const YAML: &str = "SAMPLE: [data, label]\nSWAP_CAP: 5000\nKEEP: 50";

/// The bytes of an `.npz` file with sample `n`.
fn npz(n: u64) -> Vec<u8> {
    arrays(&[("label", &[n as u8]), ("data", &n.to_le_bytes())])
}

/// As `ringreel cat --as npz` writes it.
fn arrays(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let part = |(name, data): &(&str, &[u8])| {
        let (dtype, shape) = if data.len() == 8 { (DType::U64, vec![]) } else { (DType::U8, vec![data.len() as u64]) };
        ReadPart { name: (*name).into(), part: Part::new(dtype, shape, data.to_vec().into()).unwrap() }
    };
    let mut out = Vec::new();
    ringreel_cli::formats::npz::write(&parts.iter().map(part).collect::<Vec<_>>(), &mut out).unwrap();
    out
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// Puts a file into the watched folder, as a generator does.
fn rename_into(dir: &Path, name: &str, bytes: &[u8]) {
    let temporary = dir.join(format!(".{name}.tmp"));
    fs::write(&temporary, bytes).unwrap();
    fs::rename(temporary, dir.join(name)).unwrap();
}

fn number(sample: &ReadSample) -> u64 {
    assert_eq!((sample.parts[0].name.as_str(), sample.parts[1].name.as_str()), ("data", "label"));
    let n = u64::from_le_bytes(sample.parts[0].data().unwrap()[..].try_into().unwrap());
    assert_eq!(sample.parts[1].data().unwrap()[..], [n as u8]);
    n
}

/// The numbers of all samples that can be read, by their ids.
fn numbers(place: &Place) -> BTreeMap<String, u64> {
    let reader = Reader::open(&place.config()).unwrap();
    let mut found = BTreeMap::new();
    for generation in reader.kept().unwrap() {
        for position in 0..generation.summary.samples {
            let sample = reader.sample(&generation, position).unwrap();
            assert!(found.insert(sample.id.to_string(), number(&sample)).is_none());
        }
    }
    found
}

fn sorted(numbers: &BTreeMap<String, u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = numbers.values().copied().collect();
    numbers.sort_unstable();
    numbers
}

/// Waits until a manager has made this many samples visible.
fn await_samples(place: &Place, count: usize) -> BTreeMap<String, u64> {
    let manager = place.start(&["manager"]);
    eventually("all samples are visible", || {
        place.run(&["promote"]);
        numbers(place).len() >= count
    });
    drop(manager);
    numbers(place)
}

#[test]
fn stream_prints_one_id_per_finished_sample_in_order() {
    let place = Place::new(&format!("{YAML}\nSEGMENT_SAMPLES: 3"));
    let (running, mut input) = Running::start_with_input(place.command(&["put", "--promote"]));
    (0..4).for_each(|n| input.write_all(&frame(&npz(n))).unwrap());
    eventually("three ids are printed", || running.out().lines().count() == 3);
    input.write_all(&frame(b"")).unwrap(); // seals what was written
    eventually("the fourth id is printed", || running.out().lines().count() == 4);
    input.write_all(&frame(&npz(4))).unwrap();
    drop(input);
    let said = running.finish().ok();
    let found = numbers(&place);
    assert_eq!(said.out.lines().map(|id| found[id]).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn stream_with_automatic_segments_prints_ids_while_it_waits() {
    let place = Place::new(YAML);
    let (running, mut input) = Running::start_with_input(place.command(&["put", "--json"]));
    (0..3).for_each(|n| input.write_all(&frame(&npz(n))).unwrap());
    eventually("all ids are printed", || running.out().lines().count() == 3);
    running.terminate();
    let said = running.finish().ok();
    assert_eq!(said.values("sample_id").len(), 3);
    assert_eq!(said.json()[3]["summary"]["finished"], 3, "{said:?}");
    drop(input);
}

/// The keys of the last line of a command with `--json`.
fn summary_keys(said: &Said) -> Vec<String> {
    let lines = said.json();
    lines.last().unwrap()["summary"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn json_summary_is_that_of_generate_with_the_refused_samples() {
    let generated = Place::new(YAML).run(&["generate", "--samples", "1", "--shape", "1", "--json"]).ok();
    let place = Place::new(YAML);
    let (running, mut input) = Running::start_with_input(place.command(&["put", "--json"]));
    input.write_all(&frame(&npz(0))).unwrap();
    drop(input);
    let put = running.finish().ok();
    let mut expected = summary_keys(&generated);
    expected.push("refused".to_owned());
    let (mut keys, summary) = (summary_keys(&put), &put.json()[1]["summary"]);
    expected.sort_unstable();
    keys.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(summary["refused"], 0);
}

#[test]
fn sigterm_finishes_the_samples_that_were_received() {
    let place = Place::new(&format!("{YAML}\nSEGMENT_SAMPLES: 2"));
    let (running, mut input) = Running::start_with_input(place.command(&["put"]));
    (0..3).for_each(|n| input.write_all(&frame(&npz(n))).unwrap());
    eventually("the first segment is sealed", || running.out().lines().count() == 2);
    std::thread::sleep(std::time::Duration::from_millis(500)); // the third sample waits for a fourth one
    assert_eq!(running.out().lines().count(), 2);
    running.terminate();
    let said = running.finish().ok();
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    assert_eq!(sorted(&await_samples(&place, 3)), [0, 1, 2]);
    drop(input);
}

#[test]
fn new_ring_gets_the_parts_of_the_first_sample() {
    let place = Place::new("SWAP_CAP: 10");
    let (running, mut input) = Running::start_with_input(place.command(&["put", "--promote"]));
    input.write_all(&frame(&arrays(&[("b", &[1, 2]), ("a", &[3])]))).unwrap();
    drop(input);
    running.finish().ok();
    let said = place.run(&["read", "--all", "--json"]).ok();
    let parts = said.json()[0]["parts"].clone();
    assert!(parts.get("b").is_some() && parts.get("a").is_some(), "{said:?}");
}

#[test]
fn broken_stream_ends_after_the_samples_before_it() {
    let second = frame(&npz(1));
    for (bad, code, why) in [
        (second[..second.len() - 1].to_vec(), 1, "the stream ends after"),
        (second[..5].to_vec(), 1, "inside a length"),
        (b"PK\x03\x04 this is no length".to_vec(), 1, "expected 8 bytes"),
        (frame(b"no zip"), 2, "sample 2: not a complete .npz file"),
        (frame(&arrays(&[("data", &[1])])), 2, "sample 2: part \"label\" is missing"),
    ] {
        let place = Place::new(YAML);
        let (running, mut input) = Running::start_with_input(place.command(&["put"]));
        input.write_all(&frame(&npz(0))).unwrap();
        input.write_all(&bad).unwrap();
        drop(input);
        let said = running.finish();
        assert!(said.code == Some(code) && said.err.contains(why), "{why}: {said:?}");
        assert_eq!(said.out.lines().count(), 1, "{why}: {said:?}");
    }
}

#[test]
fn watched_files_are_removed_when_their_samples_are_finished() {
    let place = Place::new(YAML);
    let spool = place.path().join("spool");
    fs::create_dir(&spool).unwrap();
    (0..5).for_each(|n| rename_into(&spool, &format!("{n}.npz"), &npz(n)));
    fs::write(spool.join("notes.txt"), "not a sample").unwrap();
    rename_into(&spool, "broken.npz", &npz(9)[..50]);
    rename_into(&spool, "other.npz", &arrays(&[("data", &[1])]));
    let said = place.run(&["put", "--watch", "spool", "--once", "--promote"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("broken.npz: not a complete") && said.err.contains("other.npz: part \"label\""),
        "{said:?}"
    );
    let found = numbers(&place);
    let printed: Vec<(u64, &str)> =
        said.out.lines().map(|line| line.split_once(' ').unwrap()).map(|(id, file)| (found[id], file)).collect();
    assert_eq!(printed, [(0, "0.npz"), (1, "1.npz"), (2, "2.npz"), (3, "3.npz"), (4, "4.npz")]);
    let mut left: Vec<_> = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".ringreel-put", "broken.npz", "notes.txt", "other.npz"]);
    // A refused file that is replaced is taken.
    rename_into(&spool, "broken.npz", &npz(9));
    place.run(&["put", "--watch", "spool", "--once", "--promote"]);
    assert_eq!(sorted(&numbers(&place)), [0, 1, 2, 3, 4, 9]);
}

#[test]
fn file_of_a_finished_sample_is_not_taken_again() {
    let place = Place::new(YAML);
    let spool = place.path().join("spool");
    fs::create_dir(&spool).unwrap();
    rename_into(&spool, "a.npz", &npz(1));
    let copy = fs::metadata(spool.join("a.npz")).unwrap();
    fs::hard_link(spool.join("a.npz"), place.path().join("kept")).unwrap();
    let journal = spool.join(".ringreel-put");
    let mut running = place.start(&["put", "--watch", "spool"]);
    eventually("the file is removed", || !spool.join("a.npz").exists());
    assert!(running.is_running());
    drop(running); // SIGKILL
    // As if it had been killed before the removal, and before its note of the seal.
    fs::rename(place.path().join("kept"), spool.join("a.npz")).unwrap();
    let staged: Vec<_> = staged(&place);
    let [(owner, segment)] = &staged[..] else { panic!("{staged:?}") };
    let state = format!("{} {} {}.{:09} a.npz", copy.ino(), copy.len(), copy.mtime(), copy.mtime_nsec());
    let line = serde_json::json!({ "sealing": segment, "owner": owner, "born": 1, "inputs": [state] });
    fs::write(&journal, format!("{line}\n")).unwrap();
    let said = place.run(&["put", "--watch", "spool", "--once"]).ok();
    assert_eq!(said.out, format!("{segment}.0 a.npz\n"));
    assert!(!spool.join("a.npz").exists());
    assert_eq!(sorted(&await_samples(&place, 1)), [1]);
}

/// Owner and id of each sealed segment in staging.
fn staged(place: &Place) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for owner in fs::read_dir(place.ring().join("staging")).unwrap() {
        let owner = owner.unwrap();
        for segment in fs::read_dir(owner.path()).unwrap() {
            let name = segment.unwrap().file_name().into_string().unwrap();
            if let Some(id) = name.strip_suffix(".rec") {
                found.push((owner.file_name().into_string().unwrap(), id.to_owned()));
            }
        }
    }
    found
}

#[test]
fn killed_put_loses_and_doubles_no_watched_file() {
    let place = Place::new(&format!("{YAML}\nSEGMENT_SECONDS: 0.02"));
    let spool = place.path().join("spool");
    fs::create_dir(&spool).unwrap();
    let count = 400;
    let writer = {
        let spool = spool.clone();
        std::thread::spawn(move || {
            for n in 0..count {
                rename_into(&spool, &format!("{n:04}.npz"), &npz(n));
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        })
    };
    let left = || {
        fs::read_dir(&spool)
            .unwrap()
            .filter(|entry| entry.as_ref().is_ok_and(|it| it.path().extension().is_some_and(|end| end == "npz")))
            .count()
    };
    let mut printed = BTreeMap::new();
    let mut keep = |out: &str| {
        let lines = out.rsplit_once('\n').map_or("", |(whole, _)| whole);
        printed.extend(
            lines.lines().filter_map(|line| line.split_once(' ')).map(|(id, file)| (id.to_owned(), file.to_owned())),
        );
    };
    let mut kills = 0;
    while !writer.is_finished() || left() > 0 {
        let running = place.start(&["put", "--watch", "spool"]);
        let wanted = 1 + kills % 7;
        eventually("some ids are printed", || {
            running.out().lines().count() > wanted || writer.is_finished() && left() == 0
        });
        keep(&running.out());
        kills += 1;
        drop(running); // SIGKILL
    }
    writer.join().unwrap();
    assert!(kills > 5, "{kills}");
    let found = await_samples(&place, count as usize);
    assert_eq!(sorted(&found), (0..count).collect::<Vec<_>>());
    for (id, file) in printed {
        assert_eq!(format!("{:04}.npz", found[&id]), file);
    }
}

#[test]
fn folder_is_for_one_put_at_a_time() {
    let place = Place::new(YAML);
    fs::create_dir(place.path().join("spool")).unwrap();
    let journal = fs::File::create(place.path().join("spool/.ringreel-put")).unwrap();
    journal.lock().unwrap();
    let said = place.run(&["put", "--watch", "spool", "--once"]);
    assert!(said.code == Some(2) && said.err.contains("another process uses this journal"), "{said:?}");
    let said = place.run(&["put", "--watch", "none", "--once"]);
    assert!(said.code == Some(1) && said.err.contains("none"), "{said:?}");
}
