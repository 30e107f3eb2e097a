//! Rings with damaged files: each damage is found, reported and counted, the other samples are delivered, and no reader
//! dies. No wrong byte is ever delivered as a sample.

use ringreel::layout::Layout;
use ringreel::read::stream::Item;
use ringreel::{Config, Error, Generator, Reader, Stream, StreamOptions};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use testkit::cli::{DATA, LABEL, Place, checked, contents, eventually, generate, put};

const SAMPLES: u64 = 8;
const YAML: &str = "SWAP_CAP: 8\nSAMPLE: [data, label]\n";
const READS: [&str; 2] = ["READ: mmap\n", "READ: pread\n"];
const VERIFIES: [&str; 2] = ["VERIFY: first\n", "VERIFY: always\n"];

/// A kind of damage to a segment's file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Harm {
    TruncatedToNothing,
    TruncatedToHalf,
    TruncatedByOneByte,
    LongerByOneByte,
    Zeroed,
    Scribbled,
    OverwrittenByAnother,
    ReplacedByAnother,
    Deleted,
    Link,
    Fifo,
    Directory,
}

use Harm::*;

/// Whether the file that a reader has open is changed.
const IN_PLACE: [Harm; 7] =
    [TruncatedToNothing, TruncatedToHalf, TruncatedByOneByte, LongerByOneByte, Zeroed, Scribbled, OverwrittenByAnother];
/// Whether the name refers to a new file; a reader with the old file open still has it.
const BY_NAME: [Harm; 5] = [ReplacedByAnother, Deleted, Link, Fifo, Directory];

fn harm(harm: Harm, victim: &Path, another: &Path) {
    let len = fs::metadata(victim).unwrap().len();
    let file = || OpenOptions::new().write(true).open(victim).unwrap();
    let gone = || fs::remove_file(victim).unwrap();
    match harm {
        TruncatedToNothing => file().set_len(0).unwrap(),
        TruncatedToHalf => file().set_len(len / 2).unwrap(),
        TruncatedByOneByte => file().set_len(len - 1).unwrap(),
        LongerByOneByte => file().set_len(len + 1).unwrap(),
        Zeroed => file().write_all_at(&vec![0; len as usize], 0).unwrap(),
        Scribbled => file().write_all_at(&vec![0xa5; len as usize], 0).unwrap(),
        OverwrittenByAnother => file().write_all_at(&fs::read(another).unwrap(), 0).unwrap(),
        ReplacedByAnother => {
            let copy = victim.with_extension("copy");
            fs::copy(another, &copy).unwrap();
            fs::rename(&copy, victim).unwrap();
        }
        Deleted => gone(),
        Link => {
            let elsewhere = victim.with_extension("elsewhere"); // a link is damage even if the bytes are the same
            fs::rename(victim, &elsewhere).unwrap();
            symlink(&elsewhere, victim).unwrap();
        }
        Fifo => {
            gone();
            assert!(Command::new("mkfifo").arg(victim).status().unwrap().success());
        }
        Directory => {
            gone();
            fs::create_dir(victim).unwrap();
        }
    }
}

/// A ring of one generation; returns the files of the samples at positions 3 (the victim) and 5.
fn ring_of_eight(more: &str) -> (Place, PathBuf, PathBuf) {
    let place = Place::new(&format!("{YAML}{more}"));
    generate(&place.config(), 0..SAMPLES);
    let (victim, another) = (file_of(&place.config(), 3), file_of(&place.config(), 5));
    (place, victim, another)
}

fn file_of(config: &Config, position: u64) -> PathBuf {
    let reader = Reader::open(config).unwrap();
    let newest = reader.newest().unwrap();
    let file = newest.locate(position).unwrap().0.file();
    reader.ring().layout.read(newest.summary.generation).join(file)
}

/// Reads every position; returns the damaged ones.
fn read_every_position(reader: &Reader) -> Vec<u64> {
    let newest = reader.newest().unwrap();
    let mut damaged = Vec::new();
    for position in 0..newest.summary.samples {
        match reader.sample(&newest, position) {
            Ok(sample) => assert_eq!(checked(&sample), position, "one generator writes in order"),
            Err(error) => {
                is_damage(&error, position, reader);
                damaged.push(position);
            }
        }
    }
    damaged
}

fn is_damage(error: &Error, at: u64, reader: &Reader) {
    let Error::Damaged { position, path, message, .. } = error else { panic!("not reported as damage: {error}") };
    let newest = reader.newest().unwrap();
    let file = reader.ring().layout.read(newest.summary.generation).join(newest.locate(at).unwrap().0.file());
    assert_eq!((*position, path), (at, &file));
    assert!(!message.is_empty() && error.to_string().contains(&path.display().to_string()), "{error}");
}

fn each_way_of_reading(mut test: impl FnMut(&str)) {
    READS.iter().for_each(|read| VERIFIES.iter().for_each(|verify| test(&format!("{read}{verify}"))));
}

#[test]
fn late_readers_report_a_damaged_segment_and_deliver_the_rest() {
    each_way_of_reading(|how| {
        for kind in IN_PLACE.into_iter().chain(BY_NAME) {
            let (place, victim, another) = ring_of_eight(how);
            harm(kind, &victim, &another);
            let reader = Reader::open(&place.config()).unwrap();
            assert_eq!(read_every_position(&reader), [3], "{kind:?} {how}");
            assert_eq!(reader.damaged(), 1);
            let again = reader.sample(&reader.newest().unwrap(), 3);
            assert!(matches!(again, Err(Error::Damaged { .. })), "{kind:?}");
            assert_eq!(reader.damaged(), 2, "each damaged sample is counted");
        }
    });
}

#[test]
fn readers_with_an_open_segment_survive_and_report_damage() {
    each_way_of_reading(|how| {
        for kind in IN_PLACE.into_iter().chain(BY_NAME) {
            let (place, victim, another) = ring_of_eight(how);
            let reader = Reader::open(&place.config()).unwrap();
            assert_eq!(read_every_position(&reader), [0; 0]);
            harm(kind, &victim, &another);
            let damaged = read_every_position(&reader);
            // Damage to the name leaves the file intact, so the reader returns its bytes or an error.
            let fine = damaged == [3] || BY_NAME.contains(&kind) && damaged.is_empty();
            assert!(fine, "{kind:?} {how}: {damaged:?}");
            assert_eq!(reader.damaged(), damaged.len() as u64);
        }
    });
}

fn next(stream: &mut Stream) -> Result<Option<Item>, Error> {
    stream.next(&|| false, &mut |_| {})
}

#[test]
fn stream_skips_a_segment_damaged_between_two_passes() {
    for read in READS {
        for kind in IN_PLACE {
            let (place, victim, another) = ring_of_eight(&format!("{read}VERIFY: always\n"));
            let reader = Arc::new(Reader::open(&place.config()).unwrap());
            let options = StreamOptions { epochs: Some(3), ..StreamOptions::default() };
            let mut stream = Stream::new(reader.clone(), options).unwrap();
            let mut seen = vec![(0, 0); 3];
            while let Some(item) = next(&mut stream).unwrap() {
                let pass = stream.epochs() as usize;
                match item {
                    Item::Sample(sample) => {
                        checked(&sample);
                        seen[pass].0 += 1;
                    }
                    Item::Damaged(error) => {
                        is_damage(&error, 3, &reader);
                        seen[pass].1 += 1;
                    }
                    Item::Replaced(..) => panic!("replaced, although equal steps were not requested"),
                }
                if seen[0] == (SAMPLES, 0) && seen[1].0 == 0 {
                    harm(kind, &victim, &another);
                }
            }
            assert_eq!(seen, [(8, 0), (7, 1), (7, 1)], "{kind:?} {read}");
            assert_eq!(reader.damaged(), 2);
        }
    }
}

#[test]
fn damage_alone_is_reported_once_and_then_waited_out() {
    let (place, ..) = ring_of_eight("");
    for position in 0..SAMPLES {
        fs::write(file_of(&place.config(), position), "rubbish").unwrap();
    }
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    let timeout = Some(Duration::from_millis(300));
    let mut stream = Stream::new(reader.clone(), StreamOptions { timeout, ..StreamOptions::default() }).unwrap();
    for _ in 0..SAMPLES {
        assert!(matches!(next(&mut stream).unwrap(), Some(Item::Damaged(_))));
    }
    let error = next(&mut stream).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains("generation 2"), "{error}");
    generate(&place.config(), 0..SAMPLES);
    let Some(Item::Sample(sample)) = next(&mut stream).unwrap() else { panic!("no sample") };
    assert_eq!((sample.generation, reader.damaged()), (2, SAMPLES));
}

#[test]
fn only_the_damaged_samples_of_a_segment_are_lost() {
    for read in READS {
        let (place, file, _) = ring_of_eight(&format!("SEGMENT_SAMPLES: 8\n{read}"));
        let (bytes, wanted) = (fs::read(&file).unwrap(), contents(3, 0, DATA));
        let at = bytes.windows(DATA).position(|window| window == wanted).unwrap();
        OpenOptions::new().write(true).open(&file).unwrap().write_all_at(&[0xff; 100], at as u64 + 1000).unwrap();
        let reader = Reader::open(&place.config()).unwrap();
        assert_eq!(read_every_position(&reader), [3], "{read}");
    }
}

#[test]
fn flipped_bytes_are_found_at_the_first_read() {
    let (place, victim, _) = ring_of_eight("");
    let bytes = fs::read(&victim).unwrap();
    let find = |part: u64, len: usize| {
        let wanted = contents(3, part, len);
        bytes.windows(len).position(|window| window == wanted).unwrap()
    };
    let (data, label) = (find(0, DATA), find(1, LABEL));
    let places = (data..data + DATA).step_by(13).chain([data + DATA - 1]).chain(label..label + LABEL);
    let file = OpenOptions::new().write(true).open(&victim).unwrap();
    let configs = READS.map(|read| place.with(&format!("{read}VERIFY: first")));
    for (n, at) in places.enumerate() {
        file.write_all_at(&[bytes[at] ^ (1 << (n % 8))], at as u64).unwrap();
        for config in &configs {
            let reader = Reader::open(config).unwrap();
            let read = reader.sample(&reader.newest().unwrap(), 3);
            is_damage(&read.expect_err(&format!("byte {at}")), 3, &reader);
        }
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
    assert!(read_every_position(&Reader::open(&configs[0]).unwrap()).is_empty());
}

#[test]
fn bytes_flipped_after_a_read_are_found_with_verify_always() {
    for read in READS {
        let (place, victim, _) = ring_of_eight(&format!("{read}VERIFY: always\n"));
        let bytes = fs::read(&victim).unwrap();
        let wanted = contents(3, 0, DATA);
        let at = bytes.windows(DATA).position(|window| window == wanted).unwrap() + DATA / 2;
        let reader = Reader::open(&place.config()).unwrap();
        assert!(read_every_position(&reader).is_empty());
        let file = OpenOptions::new().write(true).open(&victim).unwrap();
        file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
        assert_eq!(read_every_position(&reader), [3], "{read}");
    }
}

#[test]
fn read_prints_each_damage_and_exits_with_1() {
    for read in READS {
        for kind in IN_PLACE.into_iter().chain(BY_NAME) {
            let (place, victim, another) = ring_of_eight(read);
            if kind == TruncatedToNothing {
                let said = place.run(&["read", "--all", "--json"]).ok();
                assert_eq!((said.json().len(), said.values("error").len()), (8, 0));
            }
            harm(kind, &victim, &another);
            let said = place.run(&["read", "--all", "--json"]);
            assert_eq!(said.code, Some(1), "{kind:?}: {said:?}");
            assert_eq!(said.values("sample_id").len(), 7);
            let (errors, paths) = (said.values("error"), said.values("path"));
            assert_eq!((errors.len(), paths.len(), said.json().len()), (1, 1, 8));
            assert!(Path::new(&paths[0]).ends_with(victim.strip_prefix(place.path()).unwrap()), "{said:?}");
            assert!(errors[0].contains(&paths[0]) && said.err.contains(&paths[0]), "{said:?}");
            let said = place.run(&["read", "--samples", "14", "--json"]);
            assert_eq!((said.code, said.values("sample_id").len()), (Some(1), 14), "{said:?}");
        }
    }
}

/// (Mapped: tests/process/truncated_maps.rs and tests/hostile.rs.)
#[test]
fn readers_survive_truncation_during_a_pread() {
    let place = Place::new("SWAP_CAP: 6\nSAMPLE: [data]\nREAD: pread\nVERIFY: always\n");
    place.run(&["generate", "--samples", "6", "--shape", "4000000", "--promote"]).ok();
    let reader = place.start(&["read", "--json", "--timeout", "1"]);
    for n in 0..5 {
        std::thread::sleep(Duration::from_millis(60));
        let file = place.ring().join(format!("read.1/{n:06}.rec"));
        OpenOptions::new().write(true).open(file).unwrap().set_len(1000).unwrap();
    }
    // The last truncated file was reported in two passes.
    eventually("the reader passed all of them twice", || reader.err().matches("000004.rec: ").count() > 1);
    reader.terminate();
    let said = reader.finish();
    assert_eq!(said.code, Some(1), "{:?}: {}", said.status, said.err);
    let last: Vec<_> = said.json().into_iter().rev().take(6).collect();
    assert_eq!(last.iter().filter(|line| line.get("error").is_some()).count(), 5, "{last:?}");
    assert_eq!(last.iter().filter(|line| line.get("sample_id").is_some()).count(), 1, "{last:?}");
}

#[test]
fn streams_continue_with_the_newest_after_a_removed_one() {
    for read in READS {
        let (place, ..) = ring_of_eight(&format!("KEEP: 5\n{read}"));
        let reader = Arc::new(Reader::open(&place.config()).unwrap());
        let mut stream = Stream::new(reader.clone(), StreamOptions::default()).unwrap();
        let Some(Item::Sample(first)) = next(&mut stream).unwrap() else { panic!("no sample") };
        assert_eq!((first.generation, first.position), (1, 0));
        generate(&place.config(), 8..16);
        fs::remove_dir_all(place.ring().join("read.1")).unwrap();
        let Some(Item::Sample(second)) = next(&mut stream).unwrap() else { panic!("no sample") };
        assert_eq!((second.generation, second.position, checked(&second)), (2, 0, 8));
        assert_eq!(reader.damaged(), 0, "a removed generation counts as damage");
        assert_eq!(checked(&first), 0, "a delivered sample has changed");
    }
}

#[test]
fn streams_wait_for_the_next_when_the_newest_is_removed() {
    let (place, ..) = ring_of_eight("KEEP: 5\n");
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    let timeout = Some(Duration::from_millis(300));
    let mut stream = Stream::new(reader.clone(), StreamOptions { timeout, ..StreamOptions::default() }).unwrap();
    assert!(matches!(next(&mut stream).unwrap(), Some(Item::Sample(_))));
    fs::remove_dir_all(place.ring().join("read.1")).unwrap();
    // Open segments can still be read; after them, nothing remains.
    let ended = (0..10).find_map(|_| next(&mut stream).err()).unwrap();
    assert!(matches!(ended, Error::Timeout { .. }), "{ended}");
    generate(&place.config(), 8..16);
    let Some(Item::Sample(sample)) = next(&mut stream).unwrap() else { panic!("no sample") };
    assert_eq!((sample.generation, checked(&sample), reader.damaged()), (2, 8, 0));
}

type NamedHarm = (&'static str, Box<dyn Fn()>);

/// The ways to damage the newest of three manifests.
fn manifest_harms(ring: &Path) -> Vec<NamedHarm> {
    let layout = Layout::new(ring);
    let (path, before) = (layout.manifest(3), layout.manifest(2));
    let bytes = fs::read(&path).unwrap();
    let write = |bytes: Vec<u8>| -> Box<dyn Fn()> {
        let path = path.clone();
        Box::new(move || fs::write(&path, &bytes).unwrap())
    };
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 4;
    let instead = |make: fn(&Path)| -> Box<dyn Fn()> {
        let path = path.clone();
        Box::new(move || {
            fs::remove_file(&path).unwrap();
            make(&path);
        })
    };
    let text = String::from_utf8(bytes.clone()).unwrap();
    let lines = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    let elsewhere = lines.replace("\"000000.rec\"", "\"../read.2/000000.rec\"");
    let crc32 = format!("{:08x}", crc32fast::hash(elsewhere.as_bytes()));
    let end = text[lines.len()..].replace(&format!("{:08x}", crc32fast::hash(lines.as_bytes())), &crc32);
    assert!(elsewhere.len() > lines.len() && end.contains(&crc32));
    vec![
        ("empty", write(Vec::new())),
        ("half", write(bytes[..bytes.len() / 2].to_vec())),
        ("truncated", write(bytes[..bytes.len() - 1].to_vec())),
        ("zeroed", write(vec![0; bytes.len()])),
        ("a flipped bit", write(flipped)),
        ("a name that leaves the directory", write((elsewhere + &end).into_bytes())),
        ("another generation's manifest", write(fs::read(before).unwrap())),
        ("a directory", instead(|path| fs::create_dir(path).unwrap())),
        ("a FIFO", instead(|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()))),
        ("a link", instead(|path| symlink(path.with_file_name("2"), path).unwrap())),
    ]
}

fn ring_of_three_generations() -> Place {
    let place = Place::new(&format!("{YAML}KEEP: 5\n"));
    (0..3).for_each(|n| generate(&place.config(), n * 8..n * 8 + 8));
    place
}

#[test]
fn damaged_manifests_are_errors_and_cause_no_panic() {
    let harms = manifest_harms(&ring_of_three_generations().ring()).len();
    for n in 0..harms {
        let place = ring_of_three_generations();
        let (name, harm) = manifest_harms(&place.ring()).swap_remove(n);
        harm();
        let Err(error) = Reader::open(&place.config()).unwrap().newest() else { panic!("{name}: accepted") };
        assert!(error.to_string().contains("manifests/3"), "{name}: {error}");
        for args in [&["read", "--all", "--json"][..], &["read", "--samples", "1"], &["status"]] {
            let said = place.run(args);
            assert_eq!(said.code, Some(1), "{name}, {args:?}: {said:?}");
            let sentence = said.err.lines().find(|line| line.starts_with("ringreel: ")).unwrap();
            assert!(sentence.contains("manifests/3") && !said.err.contains("panicked"), "{name}, {args:?}: {said:?}");
        }
        // A manager needs this manifest. It may wait for a repair (a file may be half visible for a while), or exit.
        if name != "a link" {
            let mut generator = Generator::open(&place.config()).unwrap();
            (0..8).for_each(|n| drop(put(&mut generator, n)));
            let mut manager = place.start(&["manager"]);
            eventually("the manager names the manifest", || {
                manager.err().contains("manifests/3") || !manager.is_running()
            });
            manager.terminate();
            let said = manager.finish();
            assert!(matches!(said.code, Some(0 | 1)) && said.err.contains("manifests/3"), "{name}: {said:?}");
        }
    }
}

#[test]
fn damaged_old_manifests_do_not_hide_the_newest() {
    let place = ring_of_three_generations();
    fs::write(place.ring().join("manifests/1"), "rubbish").unwrap();
    let said = place.run(&["read", "--samples", "8", "--json"]).ok();
    assert!(said.values("generation").iter().all(|generation| generation == "3"));
    generate(&place.config(), 24..32);
    assert_eq!(place.run(&["read", "--samples", "8", "--json"]).ok().values("generation"), ["4"; 8]);
}

/// `read` without `--all` continues with the next generation, and exits with 1 in the end.
#[test]
fn read_names_a_kept_generation_that_is_missing() {
    let (place, ..) = ring_of_eight("KEEP: 5\n");
    fs::remove_dir_all(place.ring().join("read.1")).unwrap();
    let mut reader = place.start(&["read", "--generations", "1"]);
    reader.await_err("read.1 is missing, although KEEP covers it");
    generate(&place.config(), 8..16);
    let said = reader.finish();
    assert!(said.code == Some(1) && said.out.contains("8 samples read"), "{said:?}");
    assert!(said.out.contains("missing generations: [1]"), "{said:?}");
}

/// `read --all` names a missing generation that KEEP covers, and exits with 1.
#[test]
fn read_all_fails_if_a_kept_generation_is_missing() {
    let (place, ..) = ring_of_eight("KEEP: 5\n");
    generate(&place.config(), 8..16);
    assert_eq!(place.run(&["read", "--all", "--json"]).code, Some(0));
    fs::remove_dir_all(place.ring().join("read.1")).unwrap();
    let said = place.run(&["read", "--all"]);
    assert!(said.code == Some(1) && said.out.contains("missing generations: [1]"), "{said:?}");
    assert!(said.err.contains("read.1 is missing, although KEEP covers it"), "{said:?}");
}
