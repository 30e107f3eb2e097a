//! Members of a ring: how long each may be silent, and who is counted as living.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{another, config, scratch};
use ringreel::Config;
use ringreel::index::{MemoryIndex, Report};
use ringreel::manager::{Manager, ROLE};
use ringreel::ring::Ring;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Only catches hangs.
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

/// A file that `owner` began, as a killed generator leaves it.
fn begun(ring: &Ring, owner: &str) -> PathBuf {
    let dir = ring.layout.staging_of(owner);
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("x.part");
    std::fs::write(&path, "begun").unwrap();
    path
}

/// A ring of short leases.
fn impatient(dir: &Path) -> Config {
    Config { lease: Duration::from_millis(40), ..config(dir, 8, "") }
}

#[test]
fn each_member_is_judged_by_its_own_lease() {
    type Round = fn(&Ring);
    let rounds: [Round; 2] = [|ring| ring.gc().unwrap(), |ring| assert!(ring.recover(&mut ring.watch()).is_ok())];
    for (round, in_memory) in rounds.into_iter().flat_map(|round| [(round, false), (round, true)]) {
        let dir = scratch();
        let mut ring = another(&impatient(dir.path()));
        if in_memory {
            ring.index = Arc::new(MemoryIndex::default());
        }
        let (patient, impatient) = (begun(&ring, "patient-1-a"), begun(&ring, "impatient-2-b"));
        ring.index.beat("patient-1-a", 1, &report(600.0)).unwrap();
        ring.index.beat("impatient-2-b", 1, &report(0.01)).unwrap();
        assert!(ring.index.claim_lease(ROLE, 1, "patient-1-a").unwrap());
        let ring = Arc::new(ring);
        let mut manager = Manager::on_ring(ring.clone());
        wait_until("the impatient one's file is removed", || {
            round(&ring);
            assert_eq!(manager.turn().unwrap().map(|swap| swap.generation), None);
            !impatient.exists()
        });
        assert!(patient.exists() && !ring.watch().is_dead("patient-1-a"));
        assert_eq!(ring.index.lease(ROLE).unwrap().unwrap().holder, "patient-1-a", "nobody takes the lease over");
        assert!(ring.garbage_of_the_dead().unwrap().is_empty());
    }
}

#[test]
fn roles_publish_their_lease() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(2500), ..config(dir.path(), 8, "") };
    let manager = Manager::open(&config).unwrap();
    let (member, beat) = manager.ring().index.members().unwrap().remove(0);
    let report = another(&config).index.report(&member, beat).unwrap().unwrap();
    assert_eq!((report.lease_seconds, report.lease()), (2.5, Duration::from_millis(2500)));
}
