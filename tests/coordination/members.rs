//! Members of a ring: how long each may miss heartbeats, and which ones count as alive.

use ringreel::Config;
use ringreel::coordination::Report;
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel::swap::manager::Manager;
use ringreel_ops::gc;
use ringreel_ops::metrics::prometheus;
use ringreel_ops::monitor::Watcher;
use ringreel_ops::status::{Status, status};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::memory_store::MemoryStore;
use testkit::ring::{Action, HookFs, another, config, scratch};

const EACCES: i32 = 13;
/// A timeout that only catches hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn report(lease_seconds: f64) -> Report {
    Report { role: "generator".into(), lease_seconds, per_second: 20.0, unix_ms: now(), ..Report::default() }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The report is a wire format between versions: an older one lacks fields, a later one has more.
#[test]
fn reports_of_older_and_later_versions_are_read() {
    let old = r#"{"role": "reader", "host": "node", "pid": 7, "started_unix_ms": 1, "unix_ms": 2, "samples": 3,
        "bytes": 4, "per_second": 5.0, "doing": "", "last_error": null"#;
    let report = serde_json::from_str::<Report>(&format!("{old}}}")).unwrap();
    assert_eq!((report.samples, &report.reading, &report.generating), (3, &None, &None));
    assert!(!serde_json::to_string(&report).unwrap().contains("reading"), "older readers see what they know");
    let later = r#""reading": {"waited_seconds": 2.5, "slept_seconds": 1.0, "now": "slept"}, "dreams": []}"#;
    let report = serde_json::from_str::<Report>(&format!("{old}, {later}")).unwrap();
    let reading = report.reading.unwrap();
    assert_eq!((reading.waited_seconds, reading.step_seconds, &*reading.now), (2.5, 0.0, "slept"));
}

/// A file that `owner` began to write, as a killed generator leaves it.
fn begun(ring: &Ring, owner: &str) -> PathBuf {
    let dir = ring.layout.staging_of(owner);
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("x.part");
    std::fs::write(&path, "begun").unwrap();
    path
}

/// A configuration with short leases.
fn impatient(dir: &Path) -> Config {
    Config { lease: Duration::from_millis(40), ..config(dir, 8, "") }
}

#[test]
fn members_are_judged_by_their_own_lease() {
    type Round = fn(&Ring);
    let rounds: [Round; 2] =
        [|ring| gc::gc(ring).unwrap(), |ring| assert!(ring.recover(&mut ring.failure_detector()).is_ok())];
    for (round, in_memory) in rounds.into_iter().flat_map(|round| [(round, false), (round, true)]) {
        let dir = scratch();
        let mut ring = another(&impatient(dir.path()));
        if in_memory {
            ring.coordination = Arc::new(MemoryStore::default());
        }
        let (patient, impatient) = (begun(&ring, "patient-1-a"), begun(&ring, "impatient-2-b"));
        ring.coordination.beat("patient-1-a", 1, &report(600.0)).unwrap();
        ring.coordination.beat("impatient-2-b", 1, &report(0.01)).unwrap();
        assert!(ring.coordination.claim_lease("manager", 1, "patient-1-a").unwrap());
        let ring = Arc::new(ring);
        let mut manager = Manager::on_ring(ring.clone());
        wait_until("the file of the owner with the short lease is removed", || {
            round(&ring);
            assert_eq!(manager.turn().unwrap().map(|swap| swap.generation), None);
            !impatient.exists()
        });
        assert!(patient.exists() && !ring.failure_detector().is_dead("patient-1-a"));
        assert_eq!(
            ring.coordination.lease("manager").unwrap().unwrap().holder,
            "patient-1-a",
            "the lease was taken over"
        );
        assert!(gc::garbage_of_the_dead(&ring).unwrap().is_empty());
    }
}

#[test]
fn roles_publish_their_lease() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(2500), ..config(dir.path(), 8, "") };
    let manager = Manager::open(&config).unwrap();
    let (member, beat) = manager.ring().coordination.members().unwrap().remove(0);
    let report = another(&config).coordination.report(&member, beat).unwrap().unwrap();
    assert_eq!((report.lease_seconds, report.lease()), (2.5, Duration::from_millis(2500)));
}

fn names(members: &[ringreel_ops::status::MemberStatus]) -> Vec<&str> {
    members.iter().map(|member| member.name.as_str()).collect()
}

#[test]
fn status_does_not_count_members_without_heartbeat() {
    let dir = scratch();
    let config = impatient(dir.path());
    let ring = another(&config);
    let old = |unix_ms| Report { unix_ms, ..report(0.04) };
    ring.coordination.beat("killed-1-a", 40, &old(now() - 38 * 60_000)).unwrap();
    ring.coordination.beat("ahead-2-b", 40, &old(now() + 38 * 60_000)).unwrap();
    assert!(ring.coordination.claim_lease("manager", 1, "killed-1-a").unwrap());
    // Each check opens the ring anew, like a separate command, so only the filesystem's clock shows the lease's end.
    wait_until("both have no heartbeat", || {
        let Status { generators, silent, manager, .. } = status(&another(&config)).unwrap();
        let are_silent = names(&silent) == ["ahead-2-b", "killed-1-a"];
        assert!(!are_silent || manager.is_none(), "a dead manager is shown as the manager");
        are_silent && generators.is_empty()
    });
}

/// A ring with a member whose last report is dated 1970; returns its status, and how often one call of `status` listed
/// the members.
fn status_with_old_report(refused: &'static str) -> (Status, usize) {
    let dir = scratch();
    let config = Config { lease: Duration::from_secs(600), ..config(dir.path(), 8, "") };
    another(&config).coordination.beat("slow-clock-1-a", 7, &Report { unix_ms: 1, ..report(600.0) }).unwrap();
    let (fs, lists) = (HookFs::on(Posix), Arc::new(AtomicUsize::new(0)));
    let counted = lists.clone();
    fs.hook(move |_, call, path| {
        if call == "list" && path.ends_with("index/members") {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        if call == refused { Action::Refuse(EACCES) } else { Action::Pass }
    });
    let ring = Ring::find(Arc::new(fs), &config).unwrap();
    let status = status(&ring).unwrap();
    assert_eq!(std::fs::read_dir(ring.layout.root().join("index/tmp")).unwrap().count(), 0);
    (status, lists.load(Ordering::Relaxed))
}

#[test]
fn status_trusts_the_filesystem_clock_at_first_sight() {
    let (status, lists) = status_with_old_report("none");
    assert_eq!((names(&status.generators), names(&status.silent)), (vec!["slow-clock-1-a"], vec![]));
    assert!(status.generators[0].silent_seconds < 600.0);
    assert_eq!(lists, 1, "status waited for another heartbeat");
}

#[test]
fn status_of_an_unwritable_ring_uses_report_times() {
    let (status, lists) = status_with_old_report("create");
    assert_eq!((names(&status.generators), names(&status.silent)), (vec![], vec!["slow-clock-1-a"]));
    assert!(status.silent[0].silent_seconds > 1e9);
    assert_eq!(lists, 1, "status waited for another heartbeat");
}

#[test]
fn long_lived_observers_stop_counting_a_killed_generator() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(200), ..config(dir.path(), 8, "") };
    let (ring, mut watcher) = (another(&config), Watcher::new(config.clone(), 4));
    let counted = |watcher: &mut Watcher| {
        let text = prometheus::text(&watcher.look().unwrap());
        let line = text.lines().find(|line| line.starts_with("ringreel_members{") && line.contains("generator"));
        let is_rated = text.lines().any(|line| line.starts_with("ringreel_member_samples_per_second{"));
        (line.unwrap().rsplit_once(' ').unwrap().1.to_owned(), is_rated)
    };
    let mut beat = 0;
    // The member's clock is an hour ahead, so the time in its report never becomes old.
    let report = Report { unix_ms: now() + 3_600_000, ..report(0.2) };
    wait_until("the live generator is counted", || {
        beat += 1;
        ring.coordination.beat("killed-1-a", beat, &report).unwrap();
        counted(&mut watcher) == ("1".to_owned(), true)
    });
    wait_until("the killed generator is no longer counted", || counted(&mut watcher) == ("0".to_owned(), false));
    assert_eq!(names(&watcher.look().unwrap().status.silent), ["killed-1-a"]);
}

#[test]
fn files_held_open_elsewhere_do_not_delay_other_owners() {
    const EBUSY: i32 = 16;
    let dir = scratch();
    let config = impatient(dir.path());
    let fs = HookFs::on(Posix);
    let ring = Ring::find_or_make(Arc::new(fs.clone()), &config).unwrap();
    let owners: Vec<String> = (0..4).map(|n| format!("dead-{n}-a")).collect();
    let files: Vec<PathBuf> = owners.iter().map(|owner| begun(&ring, owner)).collect();
    let held = ring.layout.staging_of(&owners[1]).join(".nfs0001");
    std::fs::write(&held, "").unwrap();
    fs.hook(|_, call, path| match path.file_name().is_some_and(|name| name == ".nfs0001") {
        true if call == "remove_file" => Action::Refuse(EBUSY),
        _ => Action::Pass,
    });
    wait_until("the files of the other owners are removed", || {
        ring.recover(&mut ring.failure_detector()).unwrap();
        files.iter().enumerate().all(|(n, file)| n == 1 || !file.exists())
    });
    assert!(held.exists());
    fs.unhook();
    wait_until("the file is removed once it is closed", || {
        ring.recover(&mut ring.failure_detector()).unwrap();
        !held.exists()
    });
}
