//! Limits of the operating system (open files, maps, memory) and missing permissions are errors of the affected
//! process. They never count as damage, and generators and managers survive them.

use ringreel::read::stream::Item;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Error, Generator, NamedPart, Reader, Ring, Stream, StreamOptions};
use ringreel_format::{DType, Meta};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::ring::{self, Action, EACCES, HookFs, a_manager_seems_to_live, never, scratch, write};
use testkit::stream::{World, number};

const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
/// Each limit, and a word that the error must contain.
const LIMITS: [(i32, &str); 3] = [(EMFILE, "ulimit -n"), (ENFILE, "fs.file-max"), (ENOMEM, "memory")];
const SAMPLES: u64 = 6;

/// A ring with one generation of `SAMPLES` segments.
fn world(more: &str) -> World {
    let world = World::new(&format!("SWAP_CAP: {SAMPLES}\n{more}"));
    world.generation(0..SAMPLES);
    world
}

/// A reader on a filesystem whose calls a test can change.
fn hooked(world: &World) -> (Arc<HookFs>, Reader) {
    let fs = Arc::new(HookFs::default());
    (fs.clone(), Reader::open_on(fs, &world.config()).unwrap())
}

/// Makes the opening of every promoted segment fail.
fn refuse_segments(fs: &HookFs, errno: i32) {
    let is_segment = |path: &std::path::Path| path.extension().is_some_and(|end| end == "rec");
    fs.hook(move |_, op, path| if op == "open" && is_segment(path) { Action::Refuse(errno) } else { Action::Pass });
}

#[test]
fn readers_name_the_limit_and_report_no_damage() {
    let world = world("");
    for (errno, named) in [(EACCES, "Permission denied")].into_iter().chain(LIMITS) {
        let (fs, reader) = hooked(&world);
        let newest = reader.newest().unwrap();
        refuse_segments(&fs, errno);
        let errors = [reader.sample(&newest, 2).unwrap_err(), reader.batch(&newest, 0..3).unwrap_err()];
        for error in errors {
            assert!(matches!(&error, Error::Fs { .. }) && error.to_string().contains(named), "{error}");
        }
        assert_eq!(reader.damaged(), 0, "errno {errno}");
        fs.unhook();
        assert_eq!(number(&reader.sample(&newest, 2).unwrap()), 2);
    }
}

/// Runs in a process with a low limit on open files: reads a generation with many more segments.
fn read_with_few_files(place: &str) {
    const FILES: u64 = 40;
    let hard = getrlimit(Resource::Nofile).maximum;
    let yaml = std::fs::read_to_string(place).unwrap();
    let config = ringreel::Config::parse(&yaml, place, std::path::Path::new(place).parent().unwrap(), true).unwrap();
    let reader = Arc::new(Reader::open(&config).unwrap());
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum: hard }).unwrap();
    let options = StreamOptions { epochs: Some(2), threads: 2, prefetch_bytes: 1 << 20, ..StreamOptions::default() };
    let mut stream = Stream::new(reader.clone(), options).unwrap();
    let mut given = 0;
    while let Some(item) = stream.next(&never, &mut |_| {}).unwrap() {
        assert!(matches!(item, Item::Sample(_)), "{item:?}");
        given += 1;
    }
    assert_eq!((given, reader.damaged()), (200, 0));
}

#[test]
fn readers_close_segments_when_files_run_out() {
    let name = testkit::test_name!("readers_close_segments_when_files_run_out");
    if let Ok(place) = std::env::var("RINGREEL_FEW_FILES") {
        return read_with_few_files(&place);
    }
    let dir = scratch();
    let config = ring::config(dir.path(), 100, "");
    let mut generator = Generator::open(&config).unwrap();
    (0..100).for_each(|n| drop(write(&mut generator, n).unwrap()));
    generator.finish(true, &never).unwrap();
    let place = dir.path().join("config.yaml");
    std::fs::write(&place, "DBNAME: t\nSWAP_CAP: 100\nSAMPLE: [data]\n").unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let done = command.args(["--exact", &name]).env("RINGREEL_FEW_FILES", place).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn samples_are_read_if_mapping_fails() {
    const LEN: u64 = 100 << 10; // smaller parts get no private map
    let dir = scratch();
    let config = ring::config(dir.path(), 3, "READ: mmap\nSEGMENT_SAMPLES: 3\n");
    let mut generator = Generator::open(&config).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|n| n as u8).collect();
    for _ in 0..3 {
        generator.write(&[NamedPart::new("data", DType::U8, &[LEN], &bytes)], &Meta::new(), &never).unwrap();
    }
    generator.finish(true, &never).unwrap();
    for private in [false, true] {
        let fs = Arc::new(HookFs::default());
        let reader = Reader::open_on(fs.clone(), &config).unwrap();
        let reader = if private { reader.with_private_maps() } else { reader };
        let newest = reader.newest().unwrap();
        fs.hook(|_, op, _| if op == "map" { Action::Refuse(ENOMEM) } else { Action::Pass });
        for position in 0..3 {
            let sample = reader.sample(&newest, position).unwrap();
            assert_eq!(sample.parts[0].data().unwrap(), &bytes);
        }
        let batch = reader.batch(&newest, 0..3).unwrap();
        assert_eq!(batch.parts[0].data[..], bytes.repeat(3)[..]);
        assert_eq!(reader.damaged(), 0);
    }
}

#[test]
fn streams_wait_a_lease_for_a_limit_and_then_fail() {
    let world = world("LEASE_SECONDS: 0.3");
    for errno in [EMFILE, ENOMEM] {
        let (fs, reader) = hooked(&world);
        let mut stream = Stream::new(Arc::new(reader), StreamOptions::default()).unwrap();
        refuse_segments(&fs, errno);
        let mut told = String::new();
        let error = stream.next(&never, &mut |what| told.push_str(what)).unwrap_err();
        assert!(matches!(error, Error::Fs { .. }), "{error}");
        assert_eq!(told, error.to_string(), "the wait reports the error that it waits for");
        fs.unhook();
        let Some(Item::Sample(sample)) = stream.next(&never, &mut |_| {}).unwrap() else { panic!("no sample") };
        assert_eq!(number(&sample), 0, "the failed sample is returned next");
    }
}

#[test]
fn generators_wait_out_file_limits_at_any_call() {
    for durability in ["", "DURABILITY: node\n"] {
        for at in 0.. {
            let dir = scratch();
            let fs = Arc::new(HookFs::default());
            let config = ring::config(dir.path(), 4, &format!("SEGMENT_SAMPLES: 2\n{durability}"));
            let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
            let refused = Arc::new(AtomicUsize::new(0));
            let count = refused.clone();
            fs.hook(move |_, op, _| {
                // Calls on an open file need no further descriptor.
                let opens =
                    !matches!(op, "write" | "write_over" | "cut" | "sync" | "close" | "size" | "read" | "space");
                let is_it = opens && count.fetch_add(1, Ordering::SeqCst) == at;
                if is_it { Action::Refuse(EMFILE) } else { Action::Pass }
            });
            for n in 0..10 {
                write(&mut generator, n).unwrap();
            }
            assert_eq!(generator.written(), 10, "no open segment is discarded ({durability}call {at})");
            let summary = generator.finish(true, &never).unwrap();
            assert_eq!((summary.finished, summary.delivered), (10, 10), "{durability}call {at}");
            if refused.load(Ordering::SeqCst) <= at {
                break; // each call of a run has failed once
            }
        }
    }
}

#[test]
fn managers_survive_a_lack_of_file_descriptors() {
    let dir = scratch();
    let fs = Arc::new(HookFs::default());
    let config = ring::config(dir.path(), 4, "");
    a_manager_seems_to_live(&config);
    let mut generator = Generator::open(&config).unwrap();
    (0..4).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let mut manager = Manager::open_on(fs.clone(), &config).unwrap();
    fs.hook(|_, _, _| Action::Refuse(EMFILE));
    for _ in 0..3 {
        let error = manager.turn().unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains("ulimit -n"), "{error}");
    }
    // A process that opens the ring waits too, and names the limit when it times out.
    let mut config = ring::config(dir.path(), 4, "");
    config.lease = std::time::Duration::from_millis(100);
    let error = Ring::find_or_make(fs, &config).map(drop).unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
}

#[test]
fn promotion_omits_no_segment_for_lack_of_descriptors() {
    let dir = scratch();
    let config = ring::config(dir.path(), 4, "");
    a_manager_seems_to_live(&config);
    let mut generator = Generator::open(&config).unwrap();
    (0..4).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let fs = Arc::new(HookFs::default());
    let ring = Ring::find_or_make(fs.clone(), &config).unwrap();
    // Another process began a segment, and died.
    std::fs::create_dir(ring.layout.write(2)).unwrap();
    std::fs::rename(ring.layout.write(1), ring.layout.read(1)).unwrap();
    let victim = ring.layout.read(1).join(ringreel::layout::segment_name(2, 1));
    fs.hook(move |_, op, path| if op == "open" && path == victim { Action::Refuse(EMFILE) } else { Action::Pass });
    let error = ring.promote(PromoteWhen::Full).map(drop).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("ulimit -n"), "{error}");
    fs.unhook();
    assert_eq!(ring.promote(PromoteWhen::Full).unwrap().done().unwrap().manifest.summary.samples, 4);
}
