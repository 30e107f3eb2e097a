//! The contract of `ringreel::coordination::CoordinationStore`, the same for all implementations. `contract!(name,
//! open)` generates a module of tests; `open` returns a new empty place for a store, and each call of that place opens
//! the same store again, as another process would.

use ringreel::coordination::{CoordinationStore, Lease, Report, SwapStatus};
use ringreel::ring::failure_detector::FailureDetector;
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// An empty place for an index.
pub type Place = Box<dyn Fn() -> Arc<dyn CoordinationStore> + Send + Sync>;

#[macro_export]
macro_rules! contract {
    ($kind:ident, $open:path $(, $ignored:meta)?) => {
        mod $kind {
            use $crate::contract;

            $crate::contract!(@ $open; $($ignored)?;
                hands_out_each_number_once, skips_taken_numbers, status_never_goes_back,
                lease_has_one_holder_per_token, silent_holder_loses_its_lease_and_live_one_keeps_it,
                members_are_listed_by_last_heartbeat_until_they_leave, store_is_empty_after_clear,
                first_note_under_a_name_stays);
        }
    };
    (@ $open:path; ; $($test:ident),+) => { $(#[test] fn $test() { contract::$test(&$open()); })+ };
    (@ $open:path; $ignored:meta; $($test:ident),+) => {
        $(#[test] #[$ignored] fn $test() { contract::$test(&$open()); })+
    };
}

/// Runs 16 threads, each with a separate index.
fn threads<T: Send>(open: &Place, each: impl Fn(u64, Arc<dyn CoordinationStore>) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> =
            (0..16).map(|n| (n, open())).map(|(n, index)| scope.spawn(move || each(n, index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub fn hands_out_each_number_once(open: &Place) {
    let taken = threads(open, |_, index| (0..100).map(|_| index.next_index(1).unwrap().unwrap()).collect::<Vec<_>>());
    let numbers: Vec<u64> = taken.concat();
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 1600);
    assert!(open().handed_out(1).unwrap() > *numbers.iter().max().unwrap());
    assert_eq!(open().handed_out(2).unwrap(), 0);
    assert_eq!(open().next_index(2).unwrap(), Some(0), "each generation counts from 0");
    open().close_generation(1).unwrap();
    open().close_generation(1).unwrap();
    assert_eq!(open().next_index(1).unwrap(), None);
    open().forget_before(2).unwrap();
    assert!(open().next_index(2).unwrap().unwrap() > 0, "a newer counter is kept");
    open().close_generation(7).unwrap();
    assert_eq!(open().next_index(7).unwrap(), None, "closed before any number was requested");
}

pub fn skips_taken_numbers(open: &Place) {
    let index = open();
    assert_eq!(index.next_index(3).unwrap(), Some(0));
    index.skip_to(3, 1000).unwrap();
    index.skip_to(3, 500).unwrap();
    assert!(index.next_index(3).unwrap().unwrap() >= 1000);
    assert!(open().next_index(3).unwrap().unwrap() >= 1000);
    assert!(open().handed_out(3).unwrap() > 1000);
    open().skip_to(4, 10).unwrap();
    assert!(open().next_index(4).unwrap().unwrap() >= 10);
}

fn status(generation: u64) -> SwapStatus {
    SwapStatus { generation, unix_ms: 1_700_000_000_123 + generation, total_samples: generation * 10 }
}

pub fn status_never_goes_back(open: &Place) {
    assert_eq!(open().status().unwrap(), None);
    assert!(open().publish_status(&status(3)).unwrap());
    assert!(open().publish_status(&status(3)).unwrap(), "the same status again: a reply may be lost");
    assert!(!open().publish_status(&status(2)).unwrap());
    assert_eq!(open().status().unwrap(), Some(status(3)));
    open().forget_before(3).unwrap();
    assert_eq!(open().status().unwrap(), Some(status(3)));
    threads(open, |n, index| index.publish_status(&status(4 + (n * 7) % 16)).unwrap());
    assert_eq!(open().status().unwrap(), Some(status(19)));
}

pub fn lease_has_one_holder_per_token(open: &Place) {
    assert_eq!(open().lease("manager").unwrap(), None);
    assert!(open().claim_lease("manager", 1, "a").unwrap());
    assert!(!open().claim_lease("manager", 1, "b").unwrap());
    assert!(open().claim_lease("manager", 2, "b").unwrap());
    assert!(!open().claim_lease("manager", 1, "c").unwrap(), "an old token has no holder any more");
    let held = open().lease("manager").unwrap().unwrap();
    assert_eq!(held, Lease { token: 2, holder: "b".into(), released: false });
    open().release_lease("manager", 1).unwrap();
    assert!(!open().lease("manager").unwrap().unwrap().released, "a lease of another holder was released");
    open().release_lease("manager", 2).unwrap();
    assert!(open().lease("manager").unwrap().unwrap().released);
    for token in 3..8 {
        let winners = threads(open, |n, index| index.claim_lease("manager", token, &format!("x{n}")).unwrap());
        assert_eq!(winners.iter().filter(|won| **won).count(), 1, "token {token}");
    }
    assert!(!open().lease("manager").unwrap().unwrap().released);
    assert_eq!(open().lease("other").unwrap(), None);
}

pub fn silent_holder_loses_its_lease_and_live_one_keeps_it(open: &Place) {
    let index = open();
    assert!(index.claim_lease("manager", 1, "me").unwrap());
    let ttl = Duration::from_millis(400);
    let mut watch = FailureDetector::new(ttl);
    let mut silent = Instant::now();
    // The holder lives for three leases, and then stops its heartbeats.
    for beat in 1..=30 {
        silent = Instant::now();
        // Clocks are set back, which has no effect.
        let report = Report { unix_ms: 1_000_000 - beat, ..Report::default() };
        index.beat("me", beat, &report).unwrap();
        watch.look(&*open()).unwrap();
        assert!(!watch.is_dead("me"), "beat {beat} was just seen");
        thread::sleep(ttl / 10);
    }
    while !watch.is_dead("me") {
        assert!(silent.elapsed() < Duration::from_secs(60), "the holder never counts as dead");
        thread::sleep(ttl / 10);
        watch.look(&*open()).unwrap();
    }
    assert!(silent.elapsed() >= ttl, "{:?}", silent.elapsed());
    assert!(open().claim_lease("manager", 2, "you").unwrap());
    assert!(!index.claim_lease("manager", 2, "me").unwrap());
    assert_eq!(index.lease("manager").unwrap().unwrap().holder, "you");
}

pub fn members_are_listed_by_last_heartbeat_until_they_leave(open: &Place) {
    let report = |samples: u64| Report {
        role: "reader".into(),
        host: "hôst".into(),
        pid: 7,
        samples,
        bytes: 1 << 40,
        per_second: 0.6,
        doing: "waiting for \"room\"".into(),
        last_error: (samples > 10).then(|| "a\nb".to_owned()),
        ..Report::default()
    };
    let (me, you) = (open(), open());
    for beat in 1..=3 {
        me.beat("host-1-aa", beat, &report(beat * 7)).unwrap();
    }
    you.beat("host.b-2-bb", 9, &report(1)).unwrap();
    let mut members = open().members().unwrap();
    members.sort();
    assert_eq!(members, [("host-1-aa".to_owned(), 3), ("host.b-2-bb".to_owned(), 9)]);
    assert_eq!(open().report("host-1-aa", 3).unwrap(), Some(report(21)));
    assert_eq!(open().report("host-1-aa", 1).unwrap(), None);
    assert_eq!(open().report("nobody", 1).unwrap(), None);
    me.leave("host-1-aa").unwrap();
    me.leave("nobody").unwrap();
    assert_eq!(open().members().unwrap(), [("host.b-2-bb".to_owned(), 9)]);
    threads(open, |n, index| (1..20).for_each(|beat| index.beat(&format!("m{n}"), beat, &report(n)).unwrap()));
    let members = open().members().unwrap();
    assert_eq!(members.len(), 17);
    assert!(members.iter().all(|(name, beat)| *beat == if name.starts_with('m') { 19 } else { 9 }), "{members:?}");
}

pub fn store_is_empty_after_clear(open: &Place) {
    let index = open();
    index.next_index(5).unwrap();
    index.publish_status(&status(4)).unwrap();
    index.claim_lease("manager", 9, "a").unwrap();
    index.beat("a", 1, &Report::default()).unwrap();
    index.clear().unwrap();
    let index = open();
    assert_eq!((index.status().unwrap(), index.handed_out(5).unwrap()), (None, 0));
    assert_eq!((index.lease("manager").unwrap(), index.members().unwrap()), (None, Vec::new()));
    assert_eq!(index.next_index(5).unwrap(), Some(0));
    assert!(index.publish_status(&status(1)).unwrap());
    assert!(index.claim_lease("manager", 1, "b").unwrap());
}

/// Takes numbers from many processes: starts this program again as `test`, which must call [`child`].
pub fn hands_out_each_number_to_one_process(test: &str, place: &str, processes: usize, each: u64) {
    let dir = tempfile::tempdir().unwrap();
    let start = |n: usize| -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--include-ignored"]).stdout(Stdio::null());
        command.env("INDEX_PLACE", place).env("INDEX_NUMBERS", each.to_string());
        command.env("INDEX_OUT", dir.path().join(n.to_string())).spawn().unwrap()
    };
    let children: Vec<Child> = (0..processes).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let read = |n: usize| std::fs::read_to_string(dir.path().join(n.to_string())).unwrap();
    let all: Vec<String> =
        (0..processes).flat_map(|n| read(n).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(all.len() as u64, processes as u64 * each);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
}

/// The body of the processes of [`hands_out_each_number_to_one_process`]. Does nothing in an ordinary run.
pub fn child(open: impl FnOnce(&str) -> Arc<dyn CoordinationStore>) {
    let (Ok(place), Ok(out)) = (std::env::var("INDEX_PLACE"), std::env::var("INDEX_OUT")) else { return };
    let index = open(&place);
    let each: u64 = std::env::var("INDEX_NUMBERS").unwrap().parse().unwrap();
    let numbers: Vec<_> = (0..each).map(|_| index.next_index(1).unwrap().unwrap().to_string()).collect();
    std::fs::write(out, numbers.join("\n")).unwrap();
}

pub fn first_note_under_a_name_stays(open: &Place) {
    let said = threads(open, |n, index| index.add_note("run.a-1", "epoch.0", &format!("by {n}")).unwrap());
    assert_eq!(said.iter().collect::<HashSet<_>>().len(), 1, "all got the same note");
    let index = open();
    assert_eq!(index.read_note("run.a-1", "epoch.0").unwrap().as_ref(), said.first());
    assert_eq!(index.read_note("run.a-1", "epoch.1").unwrap(), None);
    assert_eq!(index.read_note("run.b", "epoch.0").unwrap(), None, "folders are separate");
    assert_eq!(index.add_note("run.a-1", "at.3.0", "").unwrap(), "");
    assert_eq!(index.add_note("run.a-1", "at.3.0", "").unwrap(), "");
    assert_eq!(index.add_note("run.a-1", "at.3.0", "late").unwrap(), "", "an empty note stays, too");
    let mut names = open().note_names("run.a-1").unwrap();
    names.sort();
    assert_eq!(names, ["at.3.0", "epoch.0"]);
    assert_eq!(index.note_names("run.b").unwrap(), Vec::<String>::new());
    index.remove_note("run.a-1", "epoch.0").unwrap();
    index.remove_note("run.a-1", "epoch.0").unwrap();
    assert_eq!(open().note_names("run.a-1").unwrap(), ["at.3.0"]);
    assert_eq!(open().add_note("run.a-1", "epoch.0", "again").unwrap(), "again");
    assert!(index.members().unwrap().is_empty(), "a note counts as a member");
    index.clear().unwrap();
    assert_eq!(open().note_names("run.a-1").unwrap(), Vec::<String>::new());
}
