//! `ringreel doctor --peer`: both sides report the same, name what one of them does not see, and leave no files behind,
//! even if one dies.

use ringreel::Config;
use ringreel_cli::render::doctor::{advice, measured};
use ringreel_ops::doctor::peer::{self, Times};
use ringreel_ops::doctor::{self, CannotMeasure, Check, Doctor, Stop, Verdict};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::cli::{self, Place, Said, eventually};
use testkit::liar::{Liar, Lie, leftovers};

const YAML: &str = "SWAP_CAP: 10\nSAMPLE: [data, label]";

fn times() -> Times {
    let second = Duration::from_secs(1);
    Times { meeting: 30 * second, answer: 20 * second, look: 2 * second, lease: 60 * second }
}

type Looked = (Vec<Check>, Result<(), CannotMeasure>);

/// One side, on a filesystem with this defect.
fn side(dir: &Path, lie: Lie, times: Times, stop: &Stop) -> Looked {
    let mut checks = Vec::new();
    let mut doctor = Doctor::new(Liar(lie).subject(), stop.clone(), |check| checks.push(check));
    let looked = peer::examine(&mut doctor, dir, times, stop);
    drop(doctor);
    (checks, looked)
}

fn never() -> Stop {
    Arc::new(|| false)
}

/// Runs both sides on filesystems with the same defect; returns their common report.
fn pair(lie: &Lie) -> Vec<Check> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let one = || side(dir.path(), lie.clone(), times(), &never());
    let (a, b) = std::thread::scope(|scope| {
        let other = scope.spawn(one);
        (one(), other.join().unwrap())
    });
    assert_eq!((&a.1, &b.1), (&Ok(()), &Ok(())), "{lie:?}");
    assert_eq!(a.0, b.0, "{lie:?}: the sides' reports differ");
    assert_eq!(leftovers(dir.path()), Vec::<String>::new(), "{lie:?}");
    a.0
}

fn of<'a>(checks: &'a [Check], check: &str) -> &'a Check {
    checks.iter().find(|one| one.check == check).unwrap_or_else(|| panic!("{check}: {checks:#?}"))
}

#[test]
fn doctor_peer_names_what_one_node_does_not_see() {
    use Verdict::{Failure, Ok, Warning};
    let cases: Vec<(Lie, &str, Verdict, &str)> = vec![
        (Lie::None, "late names", Ok, "B could not create names by the old path"),
        (Lie::None, "sealed files", Ok, "read and mapped 3"),
        (Lie::None, "inotify", Ok, "fires on B"),
        (Lie::RenameFails(116), "rename is seen", Failure, "os error 116"),
        (Lie::VerdictIsReadLate, "rename is seen", Failure, "os error 116"),
        (Lie::ListsLate, "new name is listed", Warning, "not within"),
        (Lie::OpensLate, "missing name appears", Warning, "not within"),
        (Lie::None, "missing name appears", Ok, "after opening its directory"),
        (Lie::AbsenceIsRemembered, "missing name appears", Ok, "by the name alone: more than 2.0 s"),
        (Lie::InotifySilent, "inotify", Ok, "does not fire on B"),
        (Lie::InotifyNotToBeHad, "inotify", Ok, "too many open files"),
        (Lie::LateNamesLand, "late names", Ok, "20 of 20 names by the old path landed"),
        (Lie::LateNamesLandUntilRefreshed, "late names", Ok, "20 of 20 names by the old path landed"),
        (Lie::LateNamesVanish, "late names", Failure, "are lost"),
        (Lie::ReadsStale, "replaced files", Ok, "replaced by rename: stale 10; rewritten: stale 10"),
        (Lie::ReadsOther, "sealed files", Failure, "wrong bytes are read"),
        (Lie::MapsOther, "sealed files", Warning, "the map shows wrong bytes"),
        (Lie::MapsNothing, "sealed files", Ok, "cannot be mapped"),
        (Lie::LinkFails(95), "new name is listed", Failure, "os error 95"),
        (Lie::TwoWin("link"), "one winner", Failure, "had two winners (link"),
        (Lie::TwoWin("O_EXCL"), "one winner", Failure, "had two winners (O_EXCL"),
        (Lie::TwoWin("mkdir"), "one winner", Failure, "had two winners (mkdir"),
        (Lie::NobodyWins("O_EXCL"), "one winner", Warning, "1 without a winner (O_EXCL"),
    ];
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((lie, check, verdict, words)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            let checks = pair(lie);
            let found = of(&checks, check);
            assert!(found.verdict == *verdict && measured(found).contains(words), "{lie:?}: {found:#?}");
            let only = ["nodes", check]; // expected, because both sides are on one node here
            let others = checks.iter().filter(|one| one.verdict != Ok && !only.contains(&one.check.as_str()));
            assert_eq!(others.collect::<Vec<_>>(), Vec::<&Check>::new(), "{lie:?}");
            let end = checks.last().unwrap();
            assert_eq!(end.check == "end", *verdict != Failure, "{lie:?}: no check follows a failure");
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn cached_absence_advice_names_a_mount_option() {
    let checks = pair(&Lie::AbsenceIsRemembered);
    let found = of(&checks, "missing name appears");
    for words in ["nothing for a ring", "lookupcache=positive"] {
        assert!(advice(found).contains(words), "{found:#?}");
    }
    assert_eq!(advice(of(&pair(&Lie::None), "missing name appears")), "");
}

#[test]
fn slow_filesystem_gets_fewer_rounds() {
    // Each message creates a name, which takes at least 0.12 s here; a round has two messages or more.
    let checks = pair(&Lie::Slow(Duration::from_millis(120)));
    let rounds = |check: &str, after: &str, before: &str| {
        let text = measured(of(&checks, check));
        let (_, text) = text.split_once(after).unwrap();
        text.split_once(before).unwrap().0.parse::<usize>().unwrap()
    };
    for check in ["round trip", "rename is seen", "new name is listed", "missing name appears"] {
        assert!((1..10).contains(&rounds(check, "median of ", ")")), "{check}: {checks:#?}");
    }
    assert!((5..20).contains(&rounds("late names", "", " renames")), "{checks:#?}");
    assert!(!measured(of(&checks, "replaced files")).contains("10"), "{checks:#?}");
    assert!(!measured(of(&checks, "one winner")).contains("120"), "{checks:#?}");
}

fn start(place: &Path, more: &[&str]) -> cli::Running {
    let mut command = std::process::Command::new(testkit::binary());
    command.args(["doctor", "--json"]).args(more).current_dir(place);
    cli::Running::start(command)
}

fn verdicts(said: &Said) -> Vec<String> {
    said.json().iter().map(|line| line.to_string()).collect()
}

#[test]
fn four_nodes_form_two_pairs_with_equal_reports() {
    let place = Place::new(YAML);
    let all: Vec<_> = (0..4).map(|_| start(place.path(), &["--peer"])).collect();
    let said: Vec<Said> = all.into_iter().map(|one| one.finish().ok()).collect();
    for one in &said {
        let same = said.iter().filter(|other| verdicts(other) == verdicts(one)).count();
        assert_eq!(same, 2, "{one:?}");
        assert!(one.out.contains("\"check\":\"end\""), "{one:?}");
    }
    assert_eq!(leftovers(place.path()), Vec::<String>::new());
}

#[test]
fn doctor_peer_works_with_a_plain_directory() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let peer = format!("--peer={}", dir.path().display());
    let other = start(elsewhere.path(), &[&peer]);
    start(elsewhere.path(), &[&peer]).finish().ok();
    other.finish().ok();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

#[test]
fn doctor_peer_without_a_partner_times_out() {
    let place = Place::new(YAML);
    let said = place.run(&["doctor", "--peer", "--peer-timeout", "1"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), "0 ok, 0 warnings, 0 failures\n"), "{said:?}");
    assert!(said.err.contains("no other process appeared") && said.err.contains("on another node"), "{said:?}");
    assert_eq!(leftovers(place.path()), Vec::<String>::new());
    let said = place.run(&["doctor", "--peer=/nowhere/at/all", "--peer-timeout", "1"]);
    assert!(said.code == Some(2) && said.err.contains("/nowhere/at/all"), "{said:?}");
}

#[test]
fn dead_waiting_peers_are_skipped() {
    let place = Place::new(YAML);
    let dir = place.path().join(".doctor-peers");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("invite.0000000000000000"), "").unwrap();
    let other = start(place.path(), &["--peer", "--peer-timeout", "60"]);
    let said = start(place.path(), &["--peer", "--peer-timeout", "60"]).finish();
    assert_eq!((said.code, other.finish().code), (Some(0), Some(0)), "{said:?}");
    assert_eq!(leftovers(place.path()), Vec::<String>::new());
}

#[test]
fn interrupted_side_ends_the_other_one_with_a_reason() {
    for at in [1, 3, 10, 30, 60, 100, 200, 400] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let asked = AtomicUsize::new(0);
        let stops: Stop = Arc::new(move || asked.fetch_add(1, Ordering::SeqCst) >= at);
        let brief = Times { meeting: Duration::from_secs(3), answer: Duration::from_secs(3), ..times() };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| side(dir.path(), Lie::None, brief, &never()));
            (side(dir.path(), Lie::None, times(), &stops), other.join().unwrap())
        });
        if let Err(CannotMeasure(why)) = &one.1 {
            assert!(why.contains("interrupted"), "{at}: {why}");
        }
        if let Err(CannotMeasure(why)) = &other.1 {
            assert!(
                ["ended early", "sent nothing", "no other process appeared"].iter().any(|words| why.contains(words)),
                "{at}: {why}"
            );
        }
        assert_eq!(leftovers(dir.path()), Vec::<String>::new(), "at {at}");
    }
}

#[test]
fn side_that_exits_before_the_verdict_is_named() {
    for call in ["write", "rename"] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let said = std::thread::scope(|scope| {
            let other = scope.spawn(|| side(dir.path(), Lie::PairEnds(call), times(), &never()));
            [side(dir.path(), Lie::PairEnds(call), times(), &never()), other.join().unwrap()]
        });
        for (_, looked) in said {
            let why = looked.unwrap_err().0;
            assert!(why.contains("ended early"), "{call}: {why}");
        }
    }
}

#[test]
fn killed_side_is_detected_and_the_other_one_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let peer = format!("--peer={}", dir.path().display());
    let mut child = Some(start(dir.path(), &[&peer]));
    eventually("the doctor waits", || dir.path().join(".doctor-peers").exists());
    // It is killed (kill -9) after a number of polls at which both sides are in the middle of the exchange.
    let killed = std::sync::Mutex::new(child.take());
    let asked = AtomicUsize::new(0);
    let stop: Stop = Arc::new(move || {
        if asked.fetch_add(1, Ordering::SeqCst) == 120 {
            killed.lock().unwrap().take();
        }
        false
    });
    let brief = Times { answer: Duration::from_secs(2), ..times() };
    let (_, looked) = side(dir.path(), Lie::None, brief, &stop);
    let why = looked.unwrap_err().0;
    assert!(why.contains("sent nothing for 2 s") && why.contains("killed"), "{why}");
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

#[test]
fn doctor_peer_names_a_hanging_filesystem() {
    let dir = tempfile::tempdir().unwrap();
    let hung = |lie: Lie| {
        let stop = never();
        let mut doctor = Doctor::new(Liar(lie).subject(), stop.clone(), |_| ());
        doctor.limit = Duration::from_secs(8);
        peer::examine(&mut doctor, dir.path(), times(), &stop)
    };
    let why = hung(Lie::HangsAt(".doctor-peers")).unwrap_err().0;
    assert!(why.contains("hangs"), "{why}");
    // Before the sides meet, the path is looked up.
    let config = Config::parse("DBNAME: t\nSWAP_CAP: 4\nSAMPLE: [data]\n", "test", dir.path(), true).unwrap();
    let mut doctor = Doctor::new(Liar(Lie::HangsAt("t.ring")).subject(), never(), |_| ());
    doctor.limit = Duration::from_secs(8);
    let why = doctor::place(&doctor, &config).unwrap_err().0;
    assert!(why.contains("hangs") && why.contains("t.ring"), "{why}");
}
