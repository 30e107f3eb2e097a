//! Other processes that recover after one was killed or stopped.

use crate::PATIENCE;
use crate::scene::load;
use ringreel::SampleId;
use ringreel::fs::{Fs, Posix};
use ringreel::layout::{Layout, sealed_id};
use ringreel::ring::Ring;
use ringreel::segment::reader::read_tail;
use ringreel::swap::promote::PromoteWhen;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::lines::whole_lines;
use testkit::ring::{another, listed};

/// The samples in sealed segments, even if their ids were not returned yet.
pub fn sealed(dir: &Path) -> HashSet<String> {
    let layout = Layout::new(&dir.join("t.ring"));
    let mut ids = HashSet::new();
    for owner in Posix.list(&layout.staging()).unwrap_or_default() {
        for id in Posix.list(&layout.staging_of(&owner)).unwrap_or_default().iter().filter_map(|name| sealed_id(name)) {
            let samples = read_tail(&Posix, &layout.sealed(&owner, id)).unwrap().footer.count;
            ids.extend((0..samples).map(|ordinal| SampleId { segment: id, ordinal }.to_string()));
        }
    }
    ids
}

/// The ids in a ledger, from complete lines only.
pub fn ledger(dir: &Path, name: &str) -> HashSet<String> {
    whole_lines(&dir.join(name)).into_iter().collect()
}

/// The recovering processes: a manager and a generator.
pub struct Rescue<'a> {
    pub dir: &'a Path,
    pub begun: Instant,
    pub ring: Ring,
    pub manager: Child,
    pub generator: Child,
}

impl<'a> Rescue<'a> {
    pub fn start(dir: &'a Path) -> Rescue<'a> {
        let begun = Instant::now();
        let start = |args: &str| {
            let mut command = Command::new(testkit::binary());
            command.args(args.split(' ')).args(["-c", "rescue.yaml"]).current_dir(dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let manager = start("manager");
        let generator = start("generate --samples 2 --shape 4 --ledger ledger.second --promote");
        Rescue { dir, begun, ring: another(&load(dir, "rescue.yaml")), manager, generator }
    }

    /// Waits until all of `wanted` is listed; returns the time since the start. Promotes the last, partial generation.
    pub fn list_all(&self, wanted: &HashSet<String>) -> Duration {
        loop {
            let there: HashSet<String> = self.listed().into_keys().collect();
            if wanted.is_subset(&there) || self.begun.elapsed() > PATIENCE {
                return self.begun.elapsed();
            }
            self.ring.promote(PromoteWhen::NotEmpty).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn listed(&self) -> BTreeMap<String, Vec<u64>> {
        listed(&self.dir.join("t.ring")).into_iter().map(|(id, generations)| (id.to_string(), generations)).collect()
    }

    pub fn generator_ends(&mut self) {
        let begun = Instant::now();
        while self.generator.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "the second generator does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ledger(self.dir, "ledger.second").len(), 2);
    }
}

impl Drop for Rescue<'_> {
    fn drop(&mut self) {
        for child in [&mut self.manager, &mut self.generator] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
