//! Servers that are down, slow or emptied, repeat their counter, lose replies or get requests twice: no sample is lost
//! or delivered twice, and the ring continues.

use crate::support::{Faults, Kind, Proxy, Server};
use crate::turning::{Turned, drain, turn};
use crate::{config_at, index_of};
use ringreel::coordination::CoordinationStore;
use ringreel::fs::Posix;
use ringreel::ring::Ring;
use ringreel::{Config, Generator};
use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::ring::{another, assert_delivered_once, write};
use testkit::wait::eventually;

/// Short times, because these tests wait for leases to expire.
const SHORT: &str = "LEASE_SECONDS: 1\nPOLL_SECONDS: 0.02\n";
/// The longest wait in these tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn told(what: &str, turned: &Turned) {
    println!("{what}: {turned:?}, {:.0} samples/s", turned.finished as f64 / turned.seconds);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn message_faults_lose_or_duplicate_no_sample() {
    let server = Server::start(Kind::Good);
    let proxy = Proxy::start(server.address());
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&proxy.uri(), dir.path(), 200, SHORT);
    let faults = Faults {
        cut_before: 0.01,
        cut_after: 0.01,
        duplicate: 0.05,
        delay: (0.02, Duration::from_millis(40)),
        ..Faults::default()
    };
    let mut begun = false;
    let turned = turn(&config, 8, 1250, |_| {
        if !std::mem::replace(&mut begun, true) {
            proxy.set(faults.clone());
        }
        true
    });
    let counts = proxy.counts();
    proxy.set(Faults::default());
    told(&format!("{counts:?}"), &turned);
    assert!(turned.finished >= 10_000);
    assert!(counts.dropped > 5 && counts.duplicated > 20 && counts.cut > 5, "{counts:?}");
    assert!(turned.counted > turned.stray, "the index was hardly used: {turned:?}");
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn connections_broken_while_opening_a_ring_are_retried() {
    let server = Server::start(Kind::Good);
    let proxy = Proxy::start(server.address());
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&proxy.uri(), dir.path(), 200, SHORT);
    // On an overloaded machine an attempt may find no answer in time, which is another fault.
    eventually("an attempt that is answered in time", || {
        // The driver retries once.
        proxy.set(Faults { cut_before: 1.0, cuts: Some(3), ..Faults::default() });
        let cuts_before = proxy.counts().cut;
        match Ring::find_or_make(Arc::new(Posix), &config) {
            Ok(_) => {
                assert!(proxy.counts().cut >= cuts_before + 3);
                true
            }
            Err(e) if e.to_string().contains("no answer in") => false,
            Err(e) => panic!("{e}"),
        }
    });
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn server_that_restarts_empty_is_used_again() {
    let mut server = Some(Server::start(Kind::Good));
    let port = server.as_ref().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&server.as_ref().unwrap().uri(), dir.path(), 50, SHORT);
    let (mut killed, mut back, mut used_after) = (None, None, None);
    let turned = turn(&config, 4, 2000, |finished| {
        if killed.is_none() && finished > 1500 {
            killed = Some(finished);
            server.take().unwrap().kill();
        }
        if back.is_none() && killed.is_some_and(|at| finished > at + 1500) {
            server = Some(Server::start_on(Kind::Good, port));
            back = Some(Instant::now());
        }
        if let Some(back) = back
            && used_after.is_none()
        {
            // Everything is restored: the owner, the status, a counter.
            let ring = another(&config);
            let said = ring
                .coordination
                .status()
                .ok()
                .flatten()
                .map(|status| ring.coordination.handed_out(status.generation + 1));
            if said.is_some_and(|counter| counter.is_ok_and(|n| n > 0))
                && !ring.coordination.members().unwrap().is_empty()
            {
                used_after = Some(back.elapsed());
            }
        }
        used_after.is_some() || back.is_some_and(|back| back.elapsed() > PATIENCE)
    });
    told(&format!("used again after {used_after:?}"), &turned);
    assert!(used_after.is_some(), "the server was never used again");
    assert!(turned.stray > 0 && turned.counted > 0, "{turned:?}");
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn hanging_server_is_bypassed_until_it_answers() {
    let server = Server::start(Kind::Good);
    let proxy = Proxy::start(server.address());
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&proxy.uri(), dir.path(), 50, SHORT);
    let (mut hung, mut freed) = (None, false);
    let turned = turn(&config, 4, 1500, |finished| {
        if hung.is_none() && finished > 1000 {
            hung = Some((Instant::now(), finished));
            proxy.set(Faults { hang: true, ..Faults::default() });
        }
        if !freed && hung.is_some_and(|(since, at)| since.elapsed() > Duration::from_secs(4) && finished > at + 1000) {
            freed = true;
            proxy.set(Faults::default());
        }
        freed || hung.is_some_and(|(since, _)| since.elapsed() > PATIENCE)
    });
    told("hung", &turned);
    assert!(freed && turned.stray > 0, "{turned:?}");
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn readers_continue_without_a_server_but_generators_fail() {
    let server = Server::start(Kind::Good);
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&server.uri(), dir.path(), 5, SHORT);
    let mut generator = Generator::open(&config).unwrap();
    (0..10).for_each(|n| drop(write(&mut generator, n).unwrap()));
    server.kill();
    // Open readers continue.
    (10..20).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let reader = ringreel::Reader::open(&config).unwrap();
    assert_eq!(reader.newest().unwrap().summary.generation, 4);
    let status = ringreel_ops::status::status(reader.ring()).unwrap();
    assert!(status.index_away.is_some() && status.samples_delivered == 20, "{status:?}");
    assert!(Generator::open(&config).is_err());
}

/// Runs `generators` real processes; returns their logs.
fn processes(dir: &Path, config: &Config, generators: usize, samples: u64) -> Vec<String> {
    let ringreel::config::IndexPlace::MongoDb(place) = &config.index else { panic!("no MongoDB") };
    let yaml = format!(
        "DBNAME: {}\nMONGOURI: '{}'\nRING: a.ring\nSWAP_CAP: 100\nSAMPLE: [data]\nSEGMENT_SAMPLES: 1\nLEASE_SECONDS: 1\nPOLL_SECONDS: 0.02\n",
        place.database,
        place.uri()
    );
    std::fs::write(dir.join("config.yaml"), yaml).unwrap();
    let start = |n: usize| -> Child {
        let mut command = Command::new(testkit::binary());
        command.args(["generate", "--shape", "16", "--samples", &samples.to_string(), "--seed", &n.to_string()]);
        command.args(["--ledger", &format!("ledger.{n}")]).current_dir(dir).stdout(Stdio::null());
        command.stderr(std::fs::File::create(dir.join(format!("{n}.log"))).unwrap()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..generators).map(start).collect();
    for (n, mut child) in children.into_iter().enumerate() {
        let status = child.wait().unwrap();
        assert!(status.success(), "{}", std::fs::read_to_string(dir.join(format!("{n}.log"))).unwrap());
    }
    (0..generators).map(|n| std::fs::read_to_string(dir.join(format!("{n}.log"))).unwrap()).collect()
}

/// How many of 1,600 numbers, taken by 16 threads, were handed out twice.
fn repeats(server: &Server) -> usize {
    let config = config_at(&server.uri(), Path::new("/"), 1, "");
    let indices: Vec<_> = (0..16).map(|_| index_of(&config, "x").unwrap()).collect();
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let take = |index: Arc<dyn CoordinationStore>| {
            (0..100).filter_map(|_| index.next_index(1).ok().flatten()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = indices.into_iter().map(|index| scope.spawn(move || take(index))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    numbers.len() - numbers.iter().collect::<HashSet<_>>().len()
}

fn assert_counter_repeats_are_harmless(kind: Kind) {
    let server = Server::start(kind);
    // Numbers repeat when requests overlap, which may not happen on a quiet machine.
    let repeated = (0..20).map(|_| repeats(&server)).find(|repeated| *repeated > 0);
    println!("{kind:?}: {repeated:?} numbers were handed out before");
    assert!(repeated.is_some(), "this counter never repeats, so the test is void");
    let dir = tempfile::tempdir().unwrap();
    let turned = turn(&config_at(&server.uri(), dir.path(), 100, SHORT), 8, 500, |_| true);
    told(&format!("{kind:?}"), &turned);
    assert!((0..20).any(|_| repeats_were_logged(&server)), "no process logged that the counter repeats");
}

/// Returns whether one of 8 processes logged that the counter repeats; checks that none logs it twice and none is lost.
fn repeats_were_logged(server: &Server) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&server.uri(), dir.path(), 100, SHORT);
    let logs = processes(dir.path(), &config, 8, 250);
    let repeats: Vec<usize> = logs.iter().map(|log| log.matches("the counter repeats itself").count()).collect();
    println!("warnings of repeats, by process: {repeats:?}");
    assert!(repeats.iter().all(|times| *times <= 1), "{repeats:?}");
    let ledgers: String =
        (0..8).map(|n| std::fs::read_to_string(dir.path().join(format!("ledger.{n}"))).unwrap()).collect();
    let wanted: HashSet<String> = ledgers.lines().map(str::to_owned).collect();
    assert_eq!(wanted.len(), 2000);
    let ids = drain(&config, &wanted);
    assert_delivered_once(&config.ring, &ids, "processes");
    repeats.contains(&1)
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn non_atomic_counter_loses_or_duplicates_no_sample() {
    assert_counter_repeats_are_harmless(Kind::Racy);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_non_atomic_counter_loses_or_duplicates_no_sample() {
    assert_counter_repeats_are_harmless(Kind::FerretDb);
}
