//! `ringreel doctor`: a healthy filesystem has no failures, each problem is named, and no files are left behind.

use ringreel::config::Config;
use ringreel::fs::Space;
use ringreel_cli::render::doctor::{advice, measured};
use ringreel_ops::doctor::config::Size;
use ringreel_ops::doctor::space::{Rights, budget, judge, room};
use ringreel_ops::doctor::{CannotMeasure, Check, Doctor, Verdict, examine};
use ringreel_ops::probe::Facts;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use testkit::cli::{self, Mount, Place, Running, Said, as_nobody, eventually, generate, listing, loudly};
use testkit::liar::{self, Liar, Lie, examined, examined_with, leftovers, wrong};

const YAML: &str = "SWAP_CAP: 10\nSAMPLE: [data, label]";

/// Returns verdict, measured and advice for `check`.
fn said_of(said: &Said, check: &str) -> (String, String, String) {
    let lines = said.json();
    let line = lines.iter().find(|line| line["check"] == check);
    let line = line.unwrap_or_else(|| panic!("no finding for {check}: {said:?}"));
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    assert!(!text("why").is_empty() && !text("group").is_empty());
    (text("verdict"), text("measured"), text("advice"))
}

fn assert_fails(said: &Said, check: &str, words: &[&str]) {
    let (verdict, measured, advice) = said_of(said, check);
    let text = format!("{measured}; {advice}");
    assert_eq!(verdict, "failure", "{text}");
    assert!(words.iter().all(|word| text.contains(word)) && !advice.is_empty(), "{text}");
}

fn failures(said: &Said) -> Vec<String> {
    let lines = said.json();
    let failed = lines.iter().filter(|line| line["verdict"] == "failure");
    failed.map(|line| line["check"].as_str().unwrap().to_owned()).collect()
}

fn doctor(place: &Place) -> Said {
    let said = place.run(&["doctor", "--json"]);
    assert!(!said.err.contains("panicked"), "{said:?}");
    assert_eq!(leftovers(place.path()), Vec::<String>::new());
    said
}

fn assert_healthy(place: &Place) {
    let said = doctor(place);
    assert_eq!((failures(&said), said.code), (vec![], Some(0)), "{said:?}");
    for group in ["configuration", "filesystem", "index", "machine"] {
        assert!(said.json().iter().any(|line| line["group"] == group), "{group}: {said:?}");
    }
    // A line reads `CHECK MEASURED`.
    for line in said.json() {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        assert!(!text("measured").starts_with(&text("check")), "{line}");
    }
}

#[test]
fn healthy_filesystem_passes_with_and_without_a_ring() {
    let place = Place::new(YAML);
    assert_healthy(&place);
    assert!(!place.ring().exists(), "doctor created a ring");
    generate(&place.config(), 0..30);
    let before = listing(&place.ring());
    assert_healthy(&place);
    assert_eq!(listing(&place.ring()), before, "doctor changed the ring");
    let (_, measured, _) = said_of(&doctor(&place), "room");
    assert!(measured.contains("in 10 files"), "doctor knows the size of a generation: {measured}");
}

#[test]
fn in_memory_filesystem_passes() {
    let place = Place::new(YAML);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    place.configure(&format!("RING: {}/ring\n{YAML}", dir.path().display()));
    assert_healthy(&place);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn text_output_has_the_same_findings_without_colours() {
    let place = Place::new(YAML);
    generate(&place.config(), 0..10);
    place.configure("DBNAME: demo\nSWAP_CAP: 11\nSAMPLE: [data, label]");
    let said = place.run(&["doctor", "-v"]);
    assert_eq!(said.code, Some(1));
    for words in
        ["  FAILURE ring", "do:  change config.yaml", "  ok      hard link", "why: a finished segment", ", 1 failure"]
    {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    assert!(!said.out.contains('\x1b'));
}

#[test]
fn unloadable_configurations_are_reported_without_any_check() {
    let place = Place::verbatim("DBNAME: demo\nSWAPCAP: 10\n");
    let said = doctor(&place);
    assert_eq!(said.code, Some(2));
    assert_fails(&said, "loads", &["SWAP_CAP", "config.yaml"]);
    assert_eq!(place.run(&["doctor", "-c", "nowhere.yaml"]).code, Some(2));
}

#[test]
fn mismatched_ring_is_reported_with_its_own_value() {
    let place = Place::new(YAML);
    generate(&place.config(), 0..10);
    place.configure("DBNAME: demo\nSWAP_CAP: 11\nSAMPLE: [data, label]");
    let said = doctor(&place);
    assert_eq!((said.code, failures(&said)), (Some(1), vec!["ring".to_owned()]));
    assert_fails(&said, "ring", &["SWAP_CAP 10", "11"]);
    let json = place.ring().join("ring.json");
    let text = fs::read_to_string(&json).unwrap().replace("\"ringreel\": 1", "\"ringreel\": 7");
    fs::write(&json, text).unwrap();
    assert_fails(&doctor(&place), "ring", &["version 7", "version 1"]);
}

#[test]
fn unusable_ring_path_is_reported() {
    let place = Place::new(YAML);
    for (ring, word) in
        [("nowhere/ring", "nowhere"), ("config.yaml", "another directory for RING"), (".", "holds other things")]
    {
        place.configure(&format!("RING: {ring}\n{YAML}"));
        let said = doctor(&place);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert_fails(&said, "ring", &[word]);
    }
}

#[test]
fn unwritable_directory_is_reported() {
    let place = Place::new(YAML);
    let Some(said) = as_nobody("unwritable_directory_is_reported", &place, &["doctor", "--json"]) else {
        return;
    };
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_fails(&said, "scratch", &["Permission denied", "owner and mode"]);
}

#[test]
fn read_only_filesystem_is_reported() {
    let Some(mount) = Mount::tmpfs("read_only_filesystem_is_reported", "size=2m,ro") else { return };
    let place = Place::new(YAML);
    place.configure(&format!("RING: {}/ring\n{YAML}", mount.path().display()));
    let said = doctor(&place);
    assert_eq!((said.code, failures(&said)), (Some(1), vec!["scratch".to_owned()]), "{said:?}");
    assert_fails(&said, "scratch", &["Read-only file system", "mount the filesystem read-write"]);
}

#[test]
fn foreign_ring_is_reported_as_unwritable() {
    let place = Place::new(YAML);
    generate(&place.config(), 0..10);
    fs::set_permissions(place.ring(), fs::Permissions::from_mode(0o777)).unwrap();
    let test = "foreign_ring_is_reported_as_unwritable";
    let Some(said) = as_nobody(test, &place, &["doctor", "--json"]) else { return };
    if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) != 0) {
        return loudly(&format!("SKIPPED: {test}: only root can be another user"));
    }
    assert_fails(&said, "permissions", &["staging", "manifests", "chmod"]);
    assert_eq!(leftovers(&place.ring()), Vec::<String>::new());
}

#[test]
fn full_disk_is_reported() {
    let Some(mount) = Mount::tmpfs("full_disk_is_reported", "size=2m") else { return };
    let place = Place::new(YAML);
    place.configure(&format!("RING: {}/ring\n{YAML}", mount.path().display()));
    mount.fill_up(8);
    let said = doctor(&place);
    assert_eq!(said.code, Some(1), "{said:?}");
    // What cannot be measured on a full disk is not reported as a defect of the filesystem.
    assert_eq!(failures(&said), ["room"], "{said:?}");
    assert_fails(&said, "room", &["32.0 KiB", "too little for the other checks", "free space"]);
    assert_eq!(leftovers(mount.path()), Vec::<String>::new());
    mount.fill_up(0);
    assert_eq!(doctor(&place).code, Some(1));
}

#[test]
fn low_open_file_limit_is_reported() {
    let place = Place::new(YAML);
    let mut command = Command::new("sh");
    let run = format!("ulimit -n 100; exec {} doctor --json", testkit::binary());
    command.args(["-c", &run]).current_dir(place.path());
    let said = Running::start(command).finish();
    assert_fails(&said, "open files (ulimit -n)", &["100", "ulimit -n 1024"]);
    assert_eq!((said.code, failures(&said).len()), (Some(1), 1), "{said:?}");
}

#[test]
#[cfg(feature = "mongodb")]
fn unreachable_mongodb_is_reported_without_its_password() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = Place::new(YAML);
    place.configure(&format!("DBNAME: demo\n{YAML}\nMONGOURI: 'mongodb://me:s3cr3t@127.0.0.1:{port}'"));
    let said = doctor(&place);
    assert_eq!((said.code, failures(&said)), (Some(1), vec!["MongoDB".to_owned()]));
    assert_fails(&said, "MongoDB", &["connection refused", "INDEX: files"]);
    assert!(!format!("{said:?}").contains("s3cr3t"), "{said:?}");
}

#[test]
fn each_filesystem_defect_is_named_and_no_other() {
    use Verdict::{Failure, Warning};
    let cases: Vec<(Lie, &[(&str, Verdict)])> = vec![
        (Lie::None, &[]),
        (Lie::RenameFails(116), &[("rename of a directory", Failure)]),
        (Lie::OpenFilesEndAtRename, &[("rename of a directory", Failure)]),
        (Lie::RenameReplaces, &[("rename onto a full one", Failure)]),
        (
            Lie::LinkFails(95),
            &[
                ("hard link", Failure),
                ("link has one winner", Failure),
                ("when names are seen", Failure),
                ("files", Failure),
            ],
        ),
        (Lie::LinkReplaces, &[("hard link", Failure)]),
        (Lie::LinkIsCopy, &[("hard link", Failure)]),
        (Lie::TwoWin("race-link"), &[("link has one winner", Failure)]),
        (Lie::TwoWin("race-O_EXCL"), &[("O_EXCL has one winner", Failure)]),
        (Lie::TwoWin("race-mkdir"), &[("mkdir has one winner", Failure)]),
        (Lie::TwoWin("leases"), &[("files", Failure)]),
        (Lie::NobodyWins("race-O_EXCL"), &[("O_EXCL has one winner", Warning)]),
        (Lie::RemovedFilesEnd, &[("removal of an open file", Warning)]),
        (Lie::LeftoversStay, &[("removal of an open file", Warning)]),
        (Lie::CaseFolds, &[("upper and lower case", Warning)]),
        (Lie::LongestName(150), &[("length of names", Warning)]),
        (Lie::LongestName(100), &[("length of names", Failure)]),
        (Lie::InotifySilent, &[("inotify", Warning)]),
        (Lie::InotifyNotToBeHad, &[("inotify", Warning)]),
        (Lie::LocksDoNotHold, &[("flock", Warning)]),
        (Lie::LocksRefused(38), &[("flock", Warning)]),
        (Lie::ReadsOther, &[("reading (pread)", Failure)]),
        (Lie::MapsNothing, &[("mapping (mmap)", Failure)]),
        (Lie::MapsOther, &[("mapping (mmap)", Failure)]),
        (Lie::ListsLate, &[("when names are seen", Warning)]),
        (Lie::OpensLate, &[("when names are seen", Warning)]),
        (Lie::SyncFails(5), &[("fsync", Failure), ("writing", Failure)]),
        (Lie::SyncIsSlow, &[("fsync", Warning)]),
        (Lie::Free(Space { bytes: 1 << 19, inodes: None }), &[("room", Failure)]),
        (Lie::Free(Space { bytes: 1 << 40, inodes: Some(3) }), &[("room", Failure)]),
        (Lie::Quota, &[("writing", Failure)]),
        (Lie::TwoDevices, &[("one mount", Failure)]),
    ];
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((lie, expected)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            let dir = tempfile::tempdir_in(dir.path()).unwrap();
            let checks = examined(dir.path(), lie.clone());
            let expected: Vec<_> = expected.iter().map(|(check, verdict)| ((*check).to_owned(), *verdict)).collect();
            assert_eq!(wrong(&checks), expected, "{lie:?}: {checks:#?}");
            let mut bad = checks.iter().filter(|check| check.verdict != Verdict::Ok);
            assert!(bad.all(|check| !advice(check).is_empty()), "{lie:?}");
            assert_eq!(leftovers(dir.path()), Vec::<String>::new(), "{lie:?}");
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn doctor_tests_ring_mode_with_setgid() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let of = |lie: Lie, mode: &str| liar::examined_as(dir.path(), lie, &format!("RING_MODE: \"{mode}\""));
    let checked = |checks: &[Check]| checks.iter().any(|check| check.check == "RING_MODE");
    let (kept, dropped) = (of(Lie::None, "2770"), of(Lie::SetgidIsDropped, "2770"));
    assert!(checked(&kept), "{kept:#?}");
    assert_eq!((wrong(&kept), wrong(&dropped)), (vec![], vec![("RING_MODE".to_owned(), Verdict::Warning)]));
    assert!(!checked(&of(Lie::SetgidIsDropped, "0770")));
}

/// A directory of a group, and a umask that keeps the group from writing: RING_MODE makes up for it.
#[test]
fn ring_mode_is_judged_instead_of_the_umask() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(dir.path().join("probe")).unwrap();
    if fs::metadata(dir.path().join("probe")).unwrap().permissions().mode() & 0o020 != 0 {
        return loudly("SKIPPED: the umask lets the group write: RING_MODE beside it is NOT tested");
    }
    fs::remove_dir(dir.path().join("probe")).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2775)).unwrap();
    let of = |more: &str| liar::examined_as(dir.path(), Lie::None, more);
    let warned = |more| wrong(&of(more)).iter().any(|(check, _)| check == "permissions");
    assert!(warned("KEEP: 1") && !warned("RING_MODE: \"2770\""));
}

#[test]
fn findings_include_error_numbers_and_causes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let words = |lie: Lie, check: &str| {
        let checks = examined(dir.path(), lie);
        let found = checks.into_iter().find(|one| one.check == check).unwrap();
        format!("{} {}", measured(&found), advice(&found))
    };
    assert!(words(Lie::Quota, "writing").contains("your quota"));
    for code in [95, 1] {
        assert!(words(Lie::LinkFails(code), "hard link").contains("needs hard links"), "{code}");
    }
    assert!(words(Lie::RenameFails(116), "rename of a directory").contains("os error 116"));
}

#[test]
fn hanging_call_is_named_and_not_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let checks = examined_with(dir.path(), Lie::HangsAt("race-O_EXCL"), |doctor| doctor.limit = Duration::from_secs(8));
    let of_place = checks.iter().filter(|check| check.group != "machine");
    let hangs: Vec<_> = of_place.filter(|check| measured(check).contains("it hangs")).collect();
    assert!(
        matches!(hangs[..], [one] if one.check == "O_EXCL has one winner" && one.verdict == Verdict::Failure),
        "{checks:#?}"
    );
    assert!(checks.iter().any(|check| check.group == "machine"), "the remaining groups are checked");
    assert!(!checks.iter().any(|check| check.check == "flock"), "other calls would hang too");
}

#[test]
fn interrupted_doctor_leaves_no_files() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let yaml = format!("DBNAME: demo\n{YAML}");
    let config = Config::parse(&yaml, "test", dir.path(), true).unwrap();
    let (mut interrupted, mut told) = (0, 0);
    for at in (0..6).chain((6..50).step_by(4)) {
        let asked = AtomicUsize::new(0);
        let stop = Arc::new(move || asked.fetch_add(1, Ordering::SeqCst) >= at);
        told = 0;
        let mut doctor = Doctor::new(Liar(Lie::None).subject(), stop, |_| told += 1);
        let looked = examine(&mut doctor, &config);
        drop(doctor);
        if looked == Err(CannotMeasure("interrupted".to_owned())) {
            interrupted += 1;
        }
        assert_eq!(leftovers(dir.path()), Vec::<String>::new(), "at {at}");
    }
    assert!(interrupted > 8 && told > 20, "{interrupted} {told}");
}

#[test]
fn files_of_a_killed_doctor_are_removed_after_a_day() {
    let place = Place::new(YAML);
    let (old, new) = (place.path().join(".doctor-00000001"), place.path().join(".doctor-00000002"));
    for dir in [&old, &new] {
        fs::create_dir_all(dir.join("race-link")).unwrap();
        fs::write(dir.join("race-link/of-1"), "x").unwrap();
    }
    // A foreign file with such a name, and the target of a link, are kept.
    let (notes, data, link) = (".doctor-notes", place.path().join("data"), place.path().join(".doctor-00000003"));
    fs::create_dir(place.path().join(notes)).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("mine"), "x").unwrap();
    std::os::unix::fs::symlink(&data, &link).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(25 * 3600);
    for dir in [&old, &place.path().join(notes)] {
        fs::File::open(dir).unwrap().set_modified(long_ago).unwrap();
    }
    let touched = std::process::Command::new("touch").args(["-h", "-d", "2 days ago"]).arg(&link).status();
    assert!(touched.unwrap().success());
    assert_eq!(place.run(&["doctor"]).code, Some(0));
    assert_eq!(leftovers(place.path()), [".doctor-00000002", notes]);
    assert!(data.join("mine").exists());
}

#[test]
fn empty_directories_are_measured_and_stay_usable_for_a_ring() {
    let place = Place::new(YAML);
    fs::create_dir(place.ring()).unwrap();
    let said = doctor(&place);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said_of(&said, "kind").1.ends_with("demo.ring"), "{said:?}");
    cli::generate(&place.config(), 0..10);
}

#[test]
fn doctor_ends_on_a_signal_and_leaves_no_files() {
    let place = Place::new(YAML);
    let running = place.start(&["doctor", "--peer"]);
    eventually("the doctor waits", || place.path().join(".doctor-peers").exists());
    running.terminate();
    let said = running.finish();
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("interrupted"), "{said:?}");
    assert_eq!(leftovers(place.path()), Vec::<String>::new());
}

#[test]
fn free_space_is_compared_to_the_rings_needs() {
    let size = Some(Size { generation: (100 << 20, 50), ring: (150 << 20, 80) });
    let free = |mib: u64, inodes| Space { bytes: mib << 20, inodes };
    // KEEP 1: the ring needs space for at least 3 generations, and takes up to 4.
    for (space, expected) in [
        (free(149, None), Verdict::Failure),
        (free(150, None), Verdict::Warning),
        (free(249, None), Verdict::Warning),
        (free(250, None), Verdict::Ok),
        (free(250, Some(69)), Verdict::Failure),
        (free(250, Some(119)), Verdict::Warning),
        (free(250, Some(120)), Verdict::Ok),
    ] {
        assert_eq!(room(space, size, 1).verdict, expected, "{space:?}");
    }
    assert_eq!(room(free(2, None), None, 1).verdict, Verdict::Ok);
    let config = |more: &str| Config::parse(&format!("DBNAME: a\n{more}"), "test", Path::new("/"), true).unwrap();
    let mib = |n: u64| format!("MAX_BYTES: {}", n << 20);
    for (limits, expected) in [
        (String::new(), Verdict::Ok),
        (mib(299), Verdict::Failure),
        (mib(300), Verdict::Warning),
        (mib(400), Verdict::Ok),
        ("MAX_FILES: 149".to_owned(), Verdict::Failure),
        ("MAX_FILES: 199".to_owned(), Verdict::Warning),
        ("MAX_FILES: 200".to_owned(), Verdict::Ok),
    ] {
        assert_eq!(budget(&config(&limits), size).verdict, expected, "{limits}");
    }
}

#[test]
fn shared_ring_needs_a_matching_umask_and_no_sticky_bit() {
    let facts = |mode, uid| Facts { mode, uid, gid: 7, modified: SystemTime::UNIX_EPOCH };
    let rights = |place, made, is_ring| Rights { place, made, is_ring, closed: Vec::new() };
    let (mine, group) = (facts(0o755, 5), facts(0o2775, 9));
    for (rights, protected, expected) in [
        (rights(facts(0o755, 5), mine, true), true, Verdict::Ok),
        (rights(facts(0o1777, 0), mine, false), true, Verdict::Ok), // /tmp
        (rights(facts(0o1777, 0), mine, true), true, Verdict::Failure),
        (rights(facts(0o1777, 5), mine, true), true, Verdict::Ok),
        (rights(group, mine, true), false, Verdict::Warning),
        (rights(group, facts(0o2775, 5), true), false, Verdict::Ok),
        (rights(group, facts(0o2775, 5), true), true, Verdict::Warning),
        (rights(facts(0o777, 9), mine, true), true, Verdict::Warning),
        (Rights { closed: vec!["staging".to_owned()], ..rights(group, mine, true) }, false, Verdict::Failure),
    ] {
        assert_eq!(judge(&rights, protected).verdict, expected, "{rights:?}");
    }
}

#[test]
fn unsuitable_configuration_keys_are_named() {
    let place = Place::new(YAML);
    place.configure(&format!("DBNAME: demo\n{YAML}\nPOLL_SECONDS: 3\nLEASE_SECONDS: 2"));
    let (verdict, measured, _) = said_of(&doctor(&place), "POLL_SECONDS");
    assert!(verdict == "warning" && measured.contains("quarter"), "{measured}");
    place.configure("DBNAME: demo\nSWAP_CAP: 10");
    assert_eq!(said_of(&doctor(&place), "ring").0, "warning");
    let dir = tempfile::tempdir().unwrap();
    let of = |lie: Lie, more: &str| liar::examined_as(dir.path(), lie, more);
    assert_eq!(wrong(&of(Lie::Shared, "READ: mmap")), [("READ".to_owned(), Verdict::Warning)]);
    assert_eq!(wrong(&of(Lie::Shared, "READ: auto")), []);
    assert_eq!(wrong(&of(Lie::MapsNothing, "READ: pread")), [], "READ: pread maps nothing");
}
