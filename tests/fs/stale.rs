//! Rings on a filesystem whose clients cache absent names (`docs/operations/filesystems.md`).

use ringreel::fs::Fs;
use ringreel::fs::atomic_publish::publish;
use ringreel::layout::Layout;
use ringreel::read::Reader;
use ringreel::read::stream::Item;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Generator, SampleId, Stream, StreamOptions};
use ringreel_cli::convert::export::{self, Format, Report};
use ringreel_ops::inspect::Subject;
use ringreel_ops::promote_partial::promote_partial;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::ring::{
    self, Action, HookFs, another, assert_delivered_once, bring_in, config, listed, never, write, write_until,
};
use testkit::stale::{self, Chances, StaleClient};

/// A timeout that only catches hangs.
const HANG: Duration = Duration::from_secs(60);

fn client(dir: &Path) -> Arc<StaleClient> {
    Arc::new(StaleClient::new(dir))
}

/// A new client that writes one generation of three samples and promotes it.
fn sealed_generation(dir: &TempDir, config: &Config) -> Vec<SampleId> {
    let fs = client(dir.path());
    let mut generator = Generator::open_on(fs.clone(), config).unwrap();
    let ids: Vec<SampleId> = (0..3).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    generator.finish(false, &never).unwrap();
    let sealed = promote_partial(&Ring::find(fs, config).unwrap()).unwrap();
    assert_eq!(sealed.promotions.len(), 1);
    ids
}

/// Makes a client cache that generations 1 to 5 have no directories.
fn look_too_early(fs: &StaleClient, config: &Config) {
    let layout = Layout::new(&config.ring);
    for n in 1..6 {
        for path in [layout.read(n), layout.write(n), layout.manifest(n)] {
            let _ = fs.identity(&path);
        }
    }
}

#[test]
fn reader_with_a_stale_cache_gets_every_sample() {
    let dir = ring::scratch();
    let config = config(dir.path(), 10, "KEEP: 5\nINDEX: files\n");
    sealed_generation(&dir, &config);
    let fs = client(dir.path());
    let reader = Reader::open_on(fs.clone(), &config).unwrap();
    look_too_early(&fs, &config);
    sealed_generation(&dir, &config);
    reader.ring().manifests.newest_listed().unwrap();
    let kept = reader.kept().unwrap();
    let read: u64 =
        kept.iter().map(|m| (0..m.summary.samples).filter(|n| reader.sample(m, *n).is_ok()).count() as u64).sum();
    assert!(fs.lies() > 0, "the client never answered from its cache, so the test is void");
    assert_eq!(read, 6);
}

#[test]
fn stream_with_a_stale_cache_gets_the_new_generation() {
    let dir = ring::scratch();
    let config = config(dir.path(), 10, "KEEP: 5\nINDEX: files\n");
    sealed_generation(&dir, &config);
    let fs = client(dir.path());
    let reader = Arc::new(Reader::open_on(fs.clone(), &config).unwrap());
    look_too_early(&fs, &config);
    let fresh: BTreeSet<SampleId> = sealed_generation(&dir, &config).into_iter().collect();
    reader.ring().manifests.newest_listed().unwrap();
    let options = StreamOptions { epochs: Some(1), timeout: Some(HANG), repeat: false, ..StreamOptions::default() };
    let mut stream = Stream::new(reader, options).unwrap();
    let mut seen = BTreeSet::new();
    while let Some(item) = stream.next(&never, &mut |_| ()).unwrap() {
        let Item::Sample(sample) = item else { panic!("{item:?}") };
        seen.insert(sample.id);
    }
    assert!(fs.lies() > 0, "the client never answered from its cache, so the test is void");
    assert_eq!(seen, fresh);
}

/// Reads `generations` epochs of a run, from a separate client.
fn read(config: &Config, run: &str, generations: u64, stop: &dyn Fn() -> bool) -> BTreeSet<SampleId> {
    let fs = client(config.ring.parent().unwrap());
    look_too_early(&fs, config);
    let reader = Arc::new(Reader::open_on(fs, config).unwrap());
    let run = Some(run.to_owned());
    let options = StreamOptions { repeat: false, run, epochs: Some(generations), ..StreamOptions::default() };
    let mut stream = Stream::new(reader, options).unwrap();
    let mut seen = BTreeSet::new();
    while let Some(item) = stream.next(stop, &mut |_| ()).unwrap() {
        let Item::Sample(sample) = item else { panic!("{item:?}") };
        seen.insert(sample.id);
    }
    seen
}

/// Each role has a separate client. With REUSE min 1, a generation is promoted only after the previous one was read,
/// so the reader sees every sample unless it skips a generation.
#[test]
fn roles_with_stale_clients_deliver_and_read_everything() {
    const GENERATIONS: u64 = 4;
    let dir = ring::scratch();
    let config = config(dir.path(), 6, "KEEP: 1\nREUSE: { min: 1 }\nINDEX: files\n");
    Ring::find_or_make(client(dir.path()), &config).unwrap();
    let over = AtomicBool::new(false);
    let started = Instant::now();
    let hangs = || started.elapsed() > HANG;
    let (over, hangs) = (&over, &hangs);
    let stop = || over.load(Ordering::SeqCst) || hangs();
    let stop = &stop;
    let (ids, seen) = std::thread::scope(|scope| {
        let manager = Manager::open_on(client(dir.path()), &config).unwrap();
        let managing = scope.spawn(|| ring::manage(manager, stop));
        let reader = scope.spawn(|| read(&config, "r", GENERATIONS, &hangs));
        let generate = |of: u64| {
            let mut generator = Generator::open_on(client(dir.path()), &config).unwrap();
            let mut ids = Vec::new();
            for n in (of..).take_while(|_| !stop()) {
                match write_until(&mut generator, n, &stop) {
                    Ok(written) => ids.extend(written),
                    Err(_) if stop() => break,
                    Err(error) => panic!("{error}"),
                }
            }
            ids
        };
        let generators = [0, 1 << 32].map(|of| scope.spawn(move || generate(of)));
        let seen = reader.join().unwrap();
        over.store(true, Ordering::SeqCst);
        let ids: Vec<SampleId> = generators.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        managing.join().unwrap();
        (ids, seen)
    });
    assert!(!hangs(), "a role hangs");
    let all: BTreeSet<SampleId> =
        listed(&config.ring).into_iter().filter(|(_, of)| of[0] <= GENERATIONS).map(|(id, _)| id).collect();
    assert_eq!(seen, all, "the reader skipped samples");
    // Commits what the generators left in staging.
    bring_in(&another(&ring::config(dir.path(), 6, "KEEP: 1\nINDEX: files\n")));
    assert_delivered_once(&config.ring, &ids, "all");
}

/// The reply to the rename that seals a segment is lost, the server answers the repeated request with ENOENT, and the
/// client still caches that the new name is absent.
#[test]
fn seal_with_a_lost_reply_is_recognized() {
    let dir = ring::scratch();
    let config = config(dir.path(), 10, "INDEX: files\n");
    let fs = client(dir.path());
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    stale::begin(0, Chances { lost_reply: 1000, ..Chances::ABSENT });
    let asked = AtomicUsize::new(0);
    let ids = write_until(&mut generator, 0, &|| asked.fetch_add(1, Ordering::Relaxed) > 1000).unwrap();
    stale::begin(0, Chances::ABSENT);
    assert!(fs.lies() > 0, "the client never answered from its cache, so the test is void");
    assert_eq!(ids.len(), 1);
    drop(generator);
    bring_in(&another(&config));
    assert_eq!(listed(&config.ring).keys().collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
}

/// The publisher paused until its temporary file was removed as litter.
#[test]
fn publisher_without_its_temporary_file_knows_it_lost() {
    let dir = ring::scratch();
    let (temp, target) = (dir.path().join("temp"), dir.path().join("target"));
    std::fs::write(&target, "first").unwrap();
    let (fs, swept) = (HookFs::default(), temp.clone());
    fs.hook(move |_, op, path| {
        if op == "identity" && path != swept {
            std::fs::remove_file(&swept).unwrap();
        }
        Action::Pass
    });
    assert!(!publish(&fs, &temp, &target, b"second", false).unwrap());
    assert!(!temp.exists() && std::fs::read(&target).unwrap() == b"first");
}

/// A client that looked while the ring was created may cache that some of its directories are absent.
#[test]
fn recovery_with_a_stale_cache_finds_staged_segments() {
    for seed in 0..50 {
        let dir = ring::scratch();
        let config = config(dir.path(), 10, "INDEX: files\n");
        let mut generator = Generator::open_on(client(dir.path()), &config).unwrap();
        let ids = write(&mut generator, 0).unwrap();
        drop(generator);
        stale::begin(seed, Chances { absent: 500, ..Chances::ABSENT });
        let ring = Ring::find(client(dir.path()), &config).unwrap();
        ring.recover(&mut FailureDetector::new(Duration::ZERO)).unwrap();
        assert!(ring.promote(PromoteWhen::NotEmpty).unwrap().done().is_some(), "seed {seed}");
        assert_delivered_once(&config.ring, &ids, "all");
    }
}

fn exported(fs: Arc<StaleClient>, dir: &Path, generation: Option<u64>) -> Report {
    let ring = Layout::new(&dir.join("t.ring"));
    let (format, out) = (Format::Npy, dir.join(format!("out.{generation:?}")));
    let options = export::Options {
        format,
        out,
        parts: Vec::new(),
        raw: false,
        positions: 0..u64::MAX,
        shard_samples: None,
        shard_bytes: None,
        threads: 1,
        force: false,
    };
    let watch = export::Watch { total: &|_| (), step: &|| (), stop: &never };
    let fs: Arc<dyn Fs> = fs;
    export::export(&fs, Subject::Ring(ring), generation, &options, &watch).unwrap()
}

#[test]
fn export_with_a_stale_cache_has_every_sample() {
    let dir = ring::scratch();
    let config = config(dir.path(), 10, "KEEP: 5\nINDEX: files\n");
    sealed_generation(&dir, &config);
    let fs = client(dir.path());
    look_too_early(&fs, &config);
    sealed_generation(&dir, &config);
    let report = exported(fs.clone(), dir.path(), Some(2));
    assert!(fs.lies() > 0, "the client never answered from its cache, so the test is void");
    assert_eq!((report.generation, report.samples, report.is_incomplete()), (Some(2), 3, false));
    std::fs::remove_dir_all(Layout::new(&config.ring).read(2)).unwrap();
    let report = exported(client(dir.path()), dir.path(), None);
    assert_eq!((report.generation, report.is_incomplete()), (Some(1), true), "{:?}", report.notes);
}
