//! Roles that wait or poll do not repeat calls to the filesystem without need: these tests count calls.

use ringreel::config::{IndexPlace, Reuse};
use ringreel::coordination::Report;
use ringreel::format::{DType, Meta};
use ringreel::read::stream::{Stream, StreamOptions};
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::times::{GeneratorTimes, StreamStats};
use ringreel::{Config, Error, Generator, NamedPart, Reader};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::ring::{
    self, Action, EIO, HookFs, a_manager_seems_to_live, another, config, manage, never, scratch, write, write_until,
};

/// Counts, from now on, calls of this name whose path contains `within`.
fn count(fs: &HookFs, op: &'static str, within: &'static str) -> Arc<AtomicU32> {
    let counted = Arc::new(AtomicU32::new(0));
    let counts = counted.clone();
    fs.hook(move |_, called: &str, path: &Path| {
        let is_it = called == op && path.to_string_lossy().contains(within);
        counts.fetch_add(u32::from(is_it), Ordering::SeqCst);
        Action::Pass
    });
    counted
}

#[test]
fn managers_do_not_relist_generations_without_news() {
    let dir = scratch();
    let config = config(dir.path(), 10, "");
    let fs = HookFs::default();
    let manager = Manager::open_on(Arc::new(fs.clone()), &config).unwrap();
    let mut generator = Generator::open(&config).unwrap();
    write(&mut generator, 0).unwrap();
    let (lists, stop) = (count(&fs, "list", "write.1"), AtomicBool::new(false));
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| manage(manager, || stop.load(Ordering::SeqCst)));
        std::thread::sleep(Duration::from_secs(1)); // about 1,000 polls
        stop.store(true, Ordering::SeqCst);
    });
    let (lists, seconds) = (lists.load(Ordering::SeqCst), started.elapsed().as_secs());
    assert!((1..10 + seconds as u32).contains(&lists), "{lists} times in {seconds} s");
    // It still promotes a generation that fills later.
    drop(generator);
    let (manager, stop) = (Manager::open(&config).unwrap(), AtomicBool::new(false));
    let ring = manager.ring().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| manage(manager, || stop.load(Ordering::SeqCst)));
        std::thread::sleep(Duration::from_millis(100));
        let mut generator = Generator::open(&config).unwrap();
        (1..10).for_each(|n| drop(write(&mut generator, n).unwrap()));
        while ring.manifests.newest().unwrap() == 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "the manager never promotes");
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::SeqCst);
    });
}

/// Listing 100,000 names takes long, and a full generation gets no new name.
#[test]
fn manager_waiting_for_readers_does_not_list_the_generation() {
    let dir = scratch();
    let config = config(dir.path(), 10, "REUSE: {min: 1, max: 0}\n");
    let fs = HookFs::default();
    let manager = Manager::open_on(Arc::new(fs.clone()), &config).unwrap();
    let (onlooker, stop) = (another(&config), AtomicBool::new(false));
    let looks = Arc::new(AtomicU32::new(0));
    let lists = Arc::new(AtomicU32::new(0));
    let counted = (looks.clone(), lists.clone());
    fs.hook(move |_, op, path| {
        let path = path.to_string_lossy();
        counted.0.fetch_add(u32::from(op == "list" && path.contains("index/notes")), Ordering::SeqCst);
        counted.1.fetch_add(u32::from(op == "list" && path.contains("write.2")), Ordering::SeqCst);
        Action::Pass
    });
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| manage(manager, || stop.load(Ordering::SeqCst)));
        let mut generator = Generator::open(&config).unwrap();
        (0..20).for_each(|n| drop(write(&mut generator, n).unwrap()));
        let waits =
            || onlooker.count_samples(2).is_ok_and(|fill| fill == 10) && onlooker.held_back().unwrap().is_some();
        while !waits() || looks.load(Ordering::SeqCst) < 500 {
            assert!(started.elapsed() < Duration::from_secs(120), "the manager does not poll the readers");
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let (lists, seconds) = (lists.load(Ordering::SeqCst), started.elapsed().as_secs());
    assert!((1..40 + seconds as u32).contains(&lists), "{lists} times in {seconds} s");
}

#[test]
fn waiting_generators_do_not_list_the_generation_they_filled() {
    let dir = scratch();
    let mut config = config(dir.path(), 4, "");
    config.poll = Some(Duration::from_secs(60));
    a_manager_seems_to_live(&config);
    let fs = HookFs::default();
    let mut generator = Generator::open_on(Arc::new(fs.clone()), &config).unwrap();
    (0..4).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let (lists, started) = (count(&fs, "list", "write.1"), Instant::now());
    write(&mut generator, 4).unwrap(); // the generation is full, so this segment has no index yet
    drop(write_until(&mut generator, 5, &|| started.elapsed() > Duration::from_millis(300)));
    assert!(started.elapsed() > Duration::from_millis(300), "the generator does not wait");
    assert_eq!(lists.load(Ordering::SeqCst), 0);
    // It still notices that the next generation fills.
    std::fs::create_dir(config.ring.join("write.2")).unwrap();
    std::fs::rename(config.ring.join("write.1"), config.ring.join("read.1")).unwrap();
    let started = Instant::now();
    drop(write_until(&mut generator, 6, &|| started.elapsed() > Duration::from_secs(60)));
    assert_eq!(std::fs::read_dir(config.ring.join("write.2")).unwrap().count(), 3);
}

#[test]
fn waiting_readers_open_no_file_of_the_filling_generation() {
    let dir = scratch();
    let config = config(dir.path(), 100, "");
    let mut generator = Generator::open(&config).unwrap();
    (0..170).for_each(|n| drop(write(&mut generator, n).unwrap())); // the first generation, and 70 files of the second
    let fs = HookFs::default();
    let reader = Arc::new(Reader::open_on(Arc::new(fs.clone()), &config).unwrap());
    let timeout = Some(Duration::from_millis(50));
    let mut stream = Stream::new(reader, StreamOptions { repeat: false, timeout, ..StreamOptions::default() }).unwrap();
    let opened = count(&fs, "open", "write.2");
    (0..100).for_each(|_| drop(stream.next(&never, &mut |_| ()).unwrap()));
    let error = stream.next(&never, &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("generation 2 holds 70 files, 100 samples when it is full"), "{error}");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[test]
fn recovery_does_not_reopen_linked_files_of_dead_owners() {
    let dir = scratch();
    let config = config(dir.path(), 100, "");
    let mut generator = Generator::open(&config).unwrap();
    let ids: Vec<_> = (0..20).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    generator.finish(false, &never).unwrap();
    let fs = HookFs::default();
    let ring = Ring::find_or_make(Arc::new(fs.clone()), &config).unwrap();
    let mut watch = FailureDetector::new(Duration::ZERO);
    for _ in 0..2 {
        ring.recover(&mut watch).unwrap(); // an owner is never dead at the first observation
        std::thread::sleep(Duration::from_millis(1));
    }
    let (calls, opened) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (calls.clone(), opened.clone());
    fs.hook(move |_, op, path| {
        counts.0.fetch_add(1, Ordering::SeqCst);
        counts.1.fetch_add(u32::from(op == "open" && path.to_string_lossy().contains("staging")), Ordering::SeqCst);
        Action::Pass
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(ring.recover(&mut watch).unwrap(), ringreel::swap::adopt::Recovered::default());
    }
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    let calls = calls.load(Ordering::SeqCst);
    assert!((1..3 * 20).contains(&calls), "{calls} calls in 3 rounds for 20 files");
    ring.promote(PromoteWhen::NotEmpty).unwrap().done().unwrap();
    ring::assert_delivered_once(ring.layout.root(), &ids, "linked by a dead generator");
}

#[test]
fn generators_leave_promotion_checks_to_a_live_manager() {
    let dir = scratch();
    let mut config = config(dir.path(), 2, "");
    (config.reuse, config.lease) = (Reuse { min: 1, max: 0 }, Duration::from_secs(2));
    let (manager, stop) = (Manager::open(&config).unwrap(), AtomicBool::new(false));
    let (ring, started) = (manager.ring().clone(), Instant::now());
    let fs = HookFs::default();
    std::thread::scope(|scope| {
        scope.spawn(|| manage(manager, || stop.load(Ordering::SeqCst)));
        // A generator without a manager does its work until the generator checks for one again.
        while ring.coordination.lease("manager").unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(60), "the manager never takes its lease");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut generator = Generator::open_on(Arc::new(fs.clone()), &config).unwrap();
        (0..5).for_each(|n| drop(write(&mut generator, n).unwrap())); // a readable generation, a full one, and a sample
        let (lists, started) = (count(&fs, "list", "trash"), Instant::now());
        let waits = || started.elapsed() > Duration::from_secs(2); // about 2,000 polls
        let one_more = NamedPart::new("data", DType::U64, &[1], &[5; 8]);
        let waited = generator.write(&[one_more], &Meta::new(), &waits);
        assert!(matches!(waited, Err(Error::Interrupted { .. }) | Ok(_)), "{waited:?}");
        assert!(started.elapsed() > Duration::from_secs(2), "the generator did not wait for readers");
        let leases = (started.elapsed().as_secs_f64() / 2.0) as u32 + 1;
        let lists = lists.load(Ordering::SeqCst);
        stop.store(true, Ordering::SeqCst);
        assert!(lists <= 8 * leases, "{lists} times in {leases} leases");
    });
}

/// A manager that promotes, and dies before it removes any staging name.
fn promote_and_die(config: &Config) {
    let fs = HookFs::default();
    let ring = Ring::find_or_make(Arc::new(fs.clone()), config).unwrap();
    fs.hook(|_, op, _| if op == "remove_file" { Action::Refuse(EIO) } else { Action::Pass });
    assert!(ring.promote(PromoteWhen::NotEmpty).is_err());
}

#[test]
fn cleanup_is_spread_over_the_samples_of_a_generation() {
    let dir = scratch();
    let config = config(dir.path(), 500, "");
    let fs = HookFs::default();
    let mut generator = Generator::open_on(Arc::new(fs.clone()), &config).unwrap();
    let staging = generator.ring().layout.staging_of(&generator.ring().me);
    let (mut ids, mut most, mut removed) = (Vec::new(), 0, 0);
    for n in 0..1200 {
        if n == 400 || n == 800 {
            promote_and_die(&config);
        }
        let here = count(&fs, "remove_file", "staging");
        ids.extend(write(&mut generator, n).unwrap());
        (most, removed) = (most.max(here.load(Ordering::SeqCst)), removed + here.load(Ordering::SeqCst));
    }
    assert!((1..50).contains(&most), "{most} removals in one call");
    // Still, the names of a generation are removed before the next one is full.
    assert!(removed >= 800, "{removed}");
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 400);
    generator.finish(true, &never).unwrap();
    assert!(!staging.exists(), "{staging:?}");
    ring::assert_delivered_once(&config.ring, &ids, "many names");
}

#[test]
fn blocked_generator_keeps_no_names_of_delivered_segments() {
    let dir = scratch();
    let config = config(dir.path(), 500, "MAX_FILES: 100");
    let mut generator = Generator::open(&config).unwrap();
    let staging = generator.ring().layout.staging_of(&generator.ring().me);
    (0..100).for_each(|n| drop(write(&mut generator, n).unwrap()));
    promote_and_die(&config);
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 100);
    let asked = AtomicU32::new(0);
    let soon = || asked.fetch_add(1, Ordering::SeqCst) > 2;
    let waited = generator.write(&[NamedPart::new("data", DType::U64, &[1], &[5; 8])], &Meta::new(), &soon);
    assert!(matches!(waited, Err(Error::Interrupted { .. })), "{waited:?}");
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0);
}

#[test]
fn waiting_reader_is_woken_by_the_first_generation() {
    let dir = scratch();
    let mut config = config(dir.path(), 2, "");
    let mut generator = Generator::open(&config).unwrap();
    config.poll = Some(Duration::from_secs(3600));
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let begun = Instant::now();
            let stop = || begun.elapsed() > Duration::from_secs(60);
            Reader::wait_for(&config, None, &stop, &mut |what| told.send(what.to_owned()).unwrap()).map(drop)
        });
        let what = tells.recv().unwrap();
        assert!(what.contains("the first generation of"), "{what}");
        std::thread::sleep(Duration::from_millis(200)); // the reader sleeps by now
        (0..3).for_each(|n| drop(write(&mut generator, n).unwrap()));
        waits.join().unwrap().unwrap();
    });
}

/// A ring with one generation and half of the next one, and its generator.
fn one_and_a_half_generations(dir: &Path, poll: Duration) -> (Config, Generator) {
    let config = Config { poll: Some(poll), ..config(dir, 10, "") };
    let mut generator = Generator::open(&config).unwrap();
    (0..15).for_each(|n| drop(write(&mut generator, n).unwrap()));
    (config, generator)
}

/// A waiting reader looks up the next manifest; it polls everything else less often.
#[test]
fn reader_that_waits_makes_fewer_than_two_calls_per_poll() {
    let dir = scratch();
    let (config, _generator) = one_and_a_half_generations(dir.path(), Duration::from_millis(10));
    let fs = HookFs::default();
    let reader = Arc::new(Reader::open_on(Arc::new(fs.clone()), &config).unwrap());
    let options = StreamOptions { repeat: false, ..StreamOptions::default() };
    let mut stream = Stream::new(reader, options).unwrap();
    (0..10).for_each(|_| drop(stream.next(&never, &mut |_| ()).unwrap()));
    let calls = Calls::of(&fs);
    let started = Instant::now();
    let stopped = stream.next(&|| calls.of_name("identity", "manifests/2") >= 400, &mut |_| ());
    assert!(matches!(stopped, Err(Error::Interrupted { .. })), "{stopped:?}");
    let (polls, seconds) = (calls.of_name("identity", "manifests/2"), started.elapsed().as_secs() as u32);
    // Every twentieth poll has more calls, which determine what it waits for; a listing runs every 2 s.
    let most = polls + polls * 4 / 20 + 40 + 4 * seconds;
    assert!(calls.all() < most, "{polls} polls in {seconds} s: {calls:#?}");
}

/// A manager on a network filesystem, which does not announce new names, polls less and less often while no file
/// arrives, down to twice a lease. It still promotes a generation that fills.
#[test]
fn idle_manager_polls_less_often() {
    let dir = scratch();
    let (config, mut generator) = one_and_a_half_generations(dir.path(), Duration::from_millis(10));
    let config = Config { lease: Duration::from_millis(800), ..config };
    let fs = HookFs::on_a_network();
    let manager = Manager::open_on(Arc::new(fs.clone()), &config).unwrap();
    let ring = manager.ring().clone();
    let calls = Calls::of(&fs);
    let started = Instant::now();
    let stop = AtomicBool::new(false);
    let (looks, reclaims, all, seconds, promoted) = std::thread::scope(|scope| {
        scope.spawn(|| manage(manager, || stop.load(Ordering::SeqCst)));
        std::thread::sleep(Duration::from_secs(5)); // 500 polls
        let (looks, reclaims, all) = (calls.of_name("list", "write.2"), calls.of_name("list", "trash"), calls.all());
        let seconds = started.elapsed().as_secs_f64();
        (15..20).for_each(|n| drop(write(&mut generator, n).unwrap()));
        let promoted = || ring.manifests.newest().unwrap() == 2;
        while !promoted() && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::SeqCst);
        (looks, reclaims, all, seconds, promoted())
    });
    // About 40 polls until the interval is 320 ms, and 8 more.
    assert!((3..80).contains(&looks), "{looks} polls in {seconds} s");
    // Each poll makes a lookup and two calls on the generation; the rest is per lease.
    let leases = (seconds / config.lease.as_secs_f64()) as u32 + 1;
    assert!(all < 4 * looks + 40 * leases, "{all} calls in {looks} polls and {leases} leases");
    // A reclaim that removes nothing suffices for six leases.
    assert!((1..=1 + leases / 6).contains(&reclaims), "{reclaims} reclaims in {leases} leases");
    assert!(promoted, "the manager never promotes");
}

/// A heartbeat with an unchanged report is one rename, however many preceded it. Readers of its file compute the time
/// and the rate of the report from the number of heartbeats.
#[test]
fn heartbeat_without_news_is_one_rename() {
    let dir = scratch();
    let fs = HookFs::default();
    let config = Config { index: IndexPlace::Files, ..config(dir.path(), 8, "") };
    let ring = Ring::find_or_make(Arc::new(fs.clone()), &config).unwrap();
    let index = ring.coordination.clone();
    // With a lease of 8 s, heartbeats are 2 s apart.
    let report = |n: u64, samples: u64, doing: &str| {
        let (lease_seconds, doing, unix_ms) = (8.0, doing.to_owned(), n * 2000);
        let per_second = samples as f64 / (n * 2) as f64;
        Report { unix_ms, lease_seconds, samples, per_second, doing, ..Report::default() }
    };
    let beat = |beat, report: &Report| {
        let calls = Calls::of(&fs);
        index.beat("me", beat, report).unwrap();
        assert_eq!(index.members().unwrap(), [("me".to_owned(), beat)]);
        let renames = calls.of_name("rename", &format!("members/me.{beat}"));
        (renames, calls.all() - 1) // the listing
    };
    let (one_rename, a_report) = ((1, 1), (1, 5)); // (renames, calls); a report: create, write, close, rename, remove
    assert_eq!(beat(1, &report(1, 0, "")).0, 1);
    let others = another(&config).coordination; // knows only the files' contents
    for n in 2..40 {
        assert_eq!(beat(n, &report(n, 0, "")), one_rename, "{n}");
        assert_eq!(others.report("me", n).unwrap(), Some(report(n, 0, "")));
    }
    // A changed report is published at once, except for details of a wait, which wait for the third heartbeat.
    assert_eq!(beat(40, &report(40, 1, "")), a_report);
    assert_eq!(beat(41, &report(41, 1, "waiting for room")), a_report);
    assert_eq!(beat(42, &report(42, 1, "waiting for more room")), one_rename);
    assert_eq!(beat(43, &report(43, 1, "waiting for more room")), one_rename);
    assert_eq!(others.report("me", 43).unwrap(), Some(report(43, 1, "waiting for room")));
    assert_eq!(beat(44, &report(44, 1, "waiting for more room")), a_report);
    // A heartbeat that is later than its number implies publishes its time.
    assert_eq!(beat(45, &report(46, 1, "waiting for more room")), one_rename);
    assert_eq!(beat(46, &report(48, 1, "waiting for more room")), a_report);
    assert_eq!(others.report("me", 46).unwrap(), Some(report(48, 1, "waiting for more room")));
    // After the index was removed, a heartbeat publishes the report again.
    std::fs::remove_dir_all(ring.layout.root().join("index")).unwrap();
    beat(47, &report(49, 1, "waiting for more room"));
    assert_eq!(others.report("me", 47).unwrap(), Some(report(49, 1, "waiting for more room")));
    // A rename with a lost reply counts. A failed one is an error, and the next heartbeat retries it.
    fs.hook(|_, op, _| if op == "rename" { Action::LoseReply(2) } else { Action::Pass });
    index.beat("me", 48, &report(50, 1, "waiting for more room")).unwrap();
    fs.hook(|_, op, _| if op == "rename" { Action::Refuse(EIO) } else { Action::Pass });
    index.beat("me", 49, &report(51, 1, "waiting for more room")).unwrap_err();
    fs.hook(|_, _, _| Action::Pass);
    assert_eq!(index.members().unwrap(), [("me".to_owned(), 48)]);
    index.beat("me", 50, &report(52, 1, "waiting for more room")).unwrap();
    assert_eq!(index.members().unwrap(), [("me".to_owned(), 50)]);
}

/// The seconds of the current activity grow with the clock; readers of the file compute them from the number of
/// heartbeats. Another activity, or other seconds, are news.
#[test]
fn heartbeat_of_a_waiting_reader_is_one_rename() {
    let dir = scratch();
    let fs = HookFs::default();
    let config = Config { index: IndexPlace::Files, ..config(dir.path(), 8, "") };
    let ring = Ring::find_or_make(Arc::new(fs.clone()), &config).unwrap();
    // With a lease of 8 s, heartbeats are 2 s apart.
    let report = |beat: u64, now: &str, [waited, made]: [f64; 2]| {
        let reading = StreamStats { waited_seconds: waited, now: now.to_owned(), ..StreamStats::default() };
        let generating = GeneratorTimes { made_seconds: made, now: "made".to_owned(), ..GeneratorTimes::default() };
        let (unix_ms, lease_seconds) = (beat * 2000, 8.0);
        let (reading, generating) = (Some(reading), Some(generating));
        Report { unix_ms, lease_seconds, reading, generating, ..Report::default() }
    };
    let calls = |beat, report: &Report| {
        let calls = Calls::of(&fs);
        ring.coordination.beat("me", beat, report).unwrap();
        calls.all()
    };
    assert!(calls(1, &report(1, "waited", [10.0, 50.0])) > 1);
    let others = another(&config).coordination; // knows only the files' contents
    for beat in 2..9 {
        let later = report(beat, "waited", [8.0 + 2.0 * beat as f64, 48.0 + 2.0 * beat as f64]);
        assert_eq!(calls(beat, &later), 1, "{beat}");
        assert_eq!(others.report("me", beat).unwrap(), Some(later));
    }
    assert!(calls(9, &report(9, "step", [26.0, 66.0])) > 1, "another activity");
    assert!(calls(10, &report(10, "step", [27.0, 68.0])) > 1, "it has waited in between");
}

#[test]
fn status_opens_each_waiting_segment_once() {
    let dir = scratch();
    let (config, _) = one_and_a_half_generations(dir.path(), Duration::from_millis(20));
    let fs = HookFs::default();
    let ring = Ring::find(Arc::new(fs.clone()), &config).unwrap();
    let opened = count(&fs, "open", ".rec");
    let seen = ringreel_ops::status::status(&ring).unwrap();
    assert!(seen.samples_waiting > 0 && seen.samples_waiting == seen.writing.samples, "{seen:?}");
    assert_eq!(u64::from(opened.load(Ordering::SeqCst)), seen.samples_waiting);
}

/// On NFS, each query of the length of a file that was read costs a request.
#[test]
fn first_sample_of_a_segment_requests_its_length_once() {
    let dir = scratch();
    let config = config(dir.path(), 10, "READ: pread\n");
    let mut generator = Generator::open(&config).unwrap();
    (0..10).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let fs = HookFs::default();
    let reader = Reader::open_on(Arc::new(fs.clone()), &config).unwrap();
    let newest = reader.newest().unwrap();
    let lengths = count(&fs, "size", "read.1/");
    for (pass, expected) in [(1, 10), (2, 20), (3, 30)] {
        (0..10).for_each(|n| drop(reader.sample(&newest, n).unwrap()));
        assert_eq!(lengths.load(Ordering::SeqCst), expected, "in pass {pass}: one for each sample");
    }
}

/// Counts calls by name and path.
#[derive(Debug)]
struct Calls(Arc<Mutex<BTreeMap<(String, PathBuf), u32>>>);

impl Calls {
    fn of(fs: &HookFs) -> Calls {
        let calls = Calls(Arc::default());
        let counted = calls.0.clone();
        fs.hook(move |_, op, path| {
            *counted.lock().unwrap().entry((op.to_owned(), path.to_owned())).or_default() += 1;
            Action::Pass
        });
        calls
    }

    fn all(&self) -> u32 {
        self.0.lock().unwrap().values().sum()
    }

    /// Counts calls of this kind whose path ends with `end`.
    fn of_name(&self, op: &str, end: &str) -> u32 {
        let calls = self.0.lock().unwrap();
        calls.iter().filter(|((called, path), _)| called == op && path.ends_with(end)).map(|(_, n)| n).sum()
    }
}
