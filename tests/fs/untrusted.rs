//! A ring that an untrusted user may write to. Whatever he puts in it, no process of ours reads, changes or removes
//! files outside of the ring, blocks, or uses excessive memory.

use ringreel::fs::Posix;
use ringreel::segment::reader::check_stored;
use ringreel::swap::manager::Manager;
use ringreel::{Config, Error, Generator, Reader};
use ringreel_format::FormatError;
use ringreel_format::input::SliceInput;
use ringreel_format::segment::walk;
use ringreel_ops::inspect::verify_file::check_whole;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::cli::{self, Place, eventually, generate, listing, put};

const YAML: &str =
    "SWAP_CAP: 2\nSAMPLE: [data, label]\nKEEP: 0\nINDEX: files\nLEASE_SECONDS: 0.05\nPOLL_SECONDS: 0.01\n";

/// A ring of three generations, and a foreign directory that has all the names that a ring might remove.
fn ring_and_foreign() -> (Place, PathBuf) {
    let place = Place::verbatim(&format!("DBNAME: demo\n{YAML}"));
    (0..3).for_each(|n| generate(&place.config(), 2 * n..2 * n + 2));
    let foreign = place.path().join("foreign");
    for dir in ["", "0", "1", "2", "3", "epochs.x", "dead-1-00000000", "read.1"] {
        let dir = foreign.join(dir);
        fs::create_dir_all(&dir).unwrap();
        for name in
            ["17", "000000.rec", "manager.1", "dead-1-00000000.1", "x.part", "0123456789abcdef0123456789abcdef.rec"]
        {
            fs::write(dir.join(name), "precious").unwrap();
        }
    }
    (place, foreign)
}

/// Runs everything that removes, moves or creates files: a manager, with the files of earlier and dead processes, a
/// generator, and the commands. Returns their errors, which may be of any kind.
fn run_all_roles_and_commands(place: &Place) -> Vec<String> {
    let mut said = Vec::new();
    let mut note = |result: Result<(), Error>| said.extend(result.err().map(|error| error.to_string()));
    let config = place.config();
    let generating = || -> Result<(), Error> {
        let mut generator = Generator::open(&config)?;
        let waited = Instant::now();
        let stop = move || waited.elapsed() > Duration::from_millis(300);
        for n in 0..5 {
            cli::try_put(&mut generator, n, &stop)?;
        }
        generator.finish(true, &stop).map(drop)
    };
    note(generating());
    match Manager::open(&config) {
        Ok(mut manager) => {
            let begun = Instant::now();
            // Longer than the time after which unfinished files of dead owners are removed.
            while begun.elapsed() < Duration::from_millis(700) {
                note(manager.turn().map(drop));
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Err(error) => note(Err(error)),
    }
    for args in [
        &["gc", "-c", "config.yaml", "--apply"][..],
        &["repair", "-c", "config.yaml", "--apply"],
        &["status"],
        &["read", "--all", "--json"],
        &["verify", "demo.ring"],
        &["inspect", "demo.ring"],
        &["inspect", "demo.ring", "--tree"],
        &["cat", "demo.ring", "--as", "json"],
    ] {
        let done = place.run(args);
        assert!(done.code.is_some() && !done.err.contains("panicked"), "{args:?}: {done:?}");
        said.push(done.err);
    }
    said
}

/// Replaces the file at `path`, if it exists, with a link to `to`.
fn replace(path: &Path, to: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else if path.exists() {
        fs::remove_file(path).unwrap();
    }
    symlink(to, path).unwrap();
}

fn unchanged(before: &BTreeMap<PathBuf, (String, Vec<u8>)>, foreign: &Path, what: &str) {
    let after = listing(foreign);
    let gone: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
    let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(gone.is_empty() && new.is_empty() && after == *before, "{what}: gone {gone:?}, new {new:?}");
}

#[test]
fn links_in_place_of_directories_are_not_followed() {
    let places = [
        "trash",
        "trash/read.0.00000000",
        "staging",
        "staging/dead-1-00000000",
        "manifests",
        "quarantine",
        "write.4",
        "read.3",
        "read.2",
        "read.1",
        "index",
        "index/counter",
        "index/counter/1",
        "index/members",
        "index/status",
        "index/leases",
        "index/notes",
        "index/notes/epochs.x",
        "index/tmp",
    ];
    std::thread::scope(|scope| {
        for some in places.chunks(5) {
            scope.spawn(move || {
                for at in some {
                    let (place, foreign) = ring_and_foreign();
                    let before = listing(&foreign);
                    replace(&place.ring().join(at), &foreign);
                    let said = run_all_roles_and_commands(&place);
                    unchanged(&before, &foreign, &format!("{at}: {said:?}"));
                }
            });
        }
    });
}

#[test]
fn readers_refuse_links_even_to_identical_bytes() {
    for at in ["read.3", "manifests", "manifests/3", "ring.json"] {
        let (place, _) = ring_and_foreign();
        let (path, elsewhere) = (place.ring().join(at), place.path().join("elsewhere"));
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let read = Reader::open(&place.config()).and_then(|reader| {
            let newest = reader.newest()?;
            reader.sample(&newest, 0)
        });
        let Err(error) = read else { panic!("{at} was followed") };
        assert!(error.to_string().contains(at.split('/').next().unwrap()), "{at}: {error}");
    }
}

#[test]
fn linked_owner_directory_does_not_block_other_segments() {
    let (place, foreign) = ring_and_foreign();
    symlink(&foreign, place.ring().join("staging/a-1-00000000")).unwrap();
    let mut generator = Generator::open(&place.config()).unwrap();
    let owner = generator.ring().layout.staging_of(&generator.ring().me);
    let id = put(&mut generator, 0)[0].segment;
    // Another process wrote it, and died before it could link it.
    let dead = place.ring().join("staging/b-1-00000000");
    fs::create_dir(&dead).unwrap();
    fs::rename(owner.join(format!("{id}.rec")), dead.join(format!("{id}.rec"))).unwrap();
    let linked = || fs::read_dir(place.ring().join("write.4")).unwrap().map(|entry| entry.unwrap().path());
    linked().for_each(|path| fs::remove_file(path).unwrap());
    let mut manager = Manager::open(&place.config()).unwrap();
    eventually("the segment is linked", || {
        manager.turn().unwrap();
        linked().count() == 1
    });
}

#[test]
fn link_in_the_trash_is_removed_and_its_target_is_kept() {
    let (place, foreign) = ring_and_foreign();
    let (before, link) = (listing(&foreign), place.ring().join("trash/read.0.00000000"));
    symlink(&foreign, &link).unwrap();
    Manager::open(&place.config()).unwrap().ring().reclaim().unwrap();
    unchanged(&before, &foreign, "reclaim");
    assert!(fs::symlink_metadata(&link).is_err(), "the link itself is litter");
}

#[test]
fn ring_directory_may_be_a_symbolic_link() {
    let (place, _) = ring_and_foreign();
    symlink(place.ring(), place.path().join("link.ring")).unwrap();
    let config: Config = place.with("RING: link.ring");
    assert_eq!(Reader::open(&config).unwrap().newest().unwrap().summary.generation, 3);
    assert_eq!(place.run(&["verify", "link.ring"]).code, Some(0));
}

#[test]
fn pipe_or_device_in_place_of_a_file_blocks_no_process() {
    for at in [
        "ring.json",
        "manifests/3",
        "read.3/000000.rec",
        "staging/x-1-00000000",
        "index/status/3",
        "index/members/a-1-00000000.1",
    ] {
        let (place, _) = ring_and_foreign();
        let path = place.ring().join(at);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        run_all_roles_and_commands(&place);
    }
}

#[test]
fn huge_sparse_files_are_refused_without_reading() {
    for at in ["ring.json", "manifests/3", "index/status/3", "index/leases/manager.1", "index/members/a-1-00000000.1"] {
        let (place, _) = ring_and_foreign();
        let path = place.ring().join(at);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        for args in ["status", "read --all --json", "gc --apply", "repair"] {
            // With less memory than any of these files claims.
            let run = format!("ulimit -v 4000000; exec {} {args} -c config.yaml", testkit::binary());
            let done = Command::new("sh").args(["-c", &run]).current_dir(place.path()).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(matches!(done.status.code(), Some(0..=2)) && !said.contains("panicked"), "{at}, {args}: {done:?}");
        }
    }
}

#[test]
fn parts_with_excessive_lengths_are_checked_but_not_decoded() {
    let place = Place::verbatim(&format!("DBNAME: demo\n{YAML}COMPRESS: 3\n"));
    generate(&place.config(), 0..2);
    let path = place.ring().join("read.1/000000.rec");
    let mut bytes = fs::read(&path).unwrap();
    let within = |limit| walk::check(SliceInput::new(&bytes, 0), limit);
    assert!(within(1 << 20).is_ok() && check_whole(&Posix, &path).is_ok() && check_stored(&Posix, &path).is_ok());
    assert!(matches!(within(1000), Err(FormatError::TooLarge { .. })));
    assert!(walk::check_stored(SliceInput::new(&bytes, 0)).is_ok());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(check_stored(&Posix, &path).is_err());
}
