//! The conditions: each manifest appears and never changes, every sample in a ledger is listed once, and readers see
//! what generators wrote.

use crate::faults::names;
use crate::members::Members;
use ringreel::SampleId;
use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::lines::whole_lines;

/// Without a new manifest for this time, while generators work and the disk has space, the ring hangs.
const HANGS: Duration = Duration::from_secs(60);

/// All manifests that ever existed, also after their removal.
pub struct Watcher {
    layout: Layout,
    crcs: BTreeMap<u64, u32>,
    pub listed: BTreeMap<String, Vec<u64>>,
    /// When the last manifest appeared; and since when another one is due.
    last: Instant,
    due_since: Instant,
    /// The longest wait for a due manifest, and for any manifest.
    pub longest: Duration,
    pub longest_of_all: Duration,
}

impl Watcher {
    pub fn new(ring: &Path) -> Watcher {
        let (layout, now) = (Layout::new(ring), Instant::now());
        let (crcs, listed, longest) = (BTreeMap::new(), BTreeMap::new(), Duration::ZERO);
        Watcher { layout, crcs, listed, last: now, due_since: now, longest, longest_of_all: longest }
    }

    /// Looks for new manifests. `excused`: no generator works, or the disk is full.
    pub fn look(&mut self, excused: bool) {
        let manifests = Manifests::new(Arc::new(Posix), self.layout.clone());
        let mut numbers = manifests.numbers().unwrap_or_default(); // the ring may not exist yet
        numbers.sort_unstable();
        numbers.retain(|n| self.newest().is_none_or(|known| *n > known));
        self.longest = self.longest.max(self.due_since.elapsed());
        self.longest_of_all = self.longest_of_all.max(self.last.elapsed());
        if !numbers.is_empty() {
            self.last = Instant::now();
        }
        if excused || !numbers.is_empty() {
            self.due_since = Instant::now();
        }
        assert!(self.due_since.elapsed() < HANGS, "no generation was promoted for {:?}", self.last.elapsed());
        for n in numbers {
            assert_eq!(n, self.newest().map_or(0, |known| known + 1), "a generation was skipped");
            self.crcs.insert(n, crc32fast::hash(&fs::read(self.layout.manifest(n)).unwrap()));
            for segment in &manifests.get(n).unwrap().unwrap().segments {
                for ordinal in 0..segment.samples {
                    let id = SampleId { segment: segment.id, ordinal };
                    self.listed.entry(id.to_string()).or_default().push(n);
                }
            }
        }
    }

    pub fn newest(&self) -> Option<u64> {
        self.crcs.last_key_value().map(|(n, _)| *n)
    }

    /// Counts the manifests whose contents have changed.
    pub fn changed(&self) -> usize {
        let differs =
            |n: u64, crc: u32| fs::read(self.layout.manifest(n)).is_ok_and(|now| crc32fast::hash(&now) != crc);
        self.crcs.iter().filter(|(n, crc)| differs(**n, **crc)).count()
    }

    pub fn twice(&self) -> Vec<&String> {
        self.listed.iter().filter(|(_, generations)| generations.len() > 1).map(|(id, _)| id).collect()
    }

    pub fn lost<'a>(&self, wanted: &'a HashSet<String>) -> Vec<&'a String> {
        wanted.iter().filter(|id| !self.listed.contains_key(*id)).collect()
    }
}

fn files_of(dir: &Path, kind: &str) -> Vec<PathBuf> {
    let is = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(kind));
    names(dir).into_iter().filter(is).collect()
}

/// Complete lines, because a kill may have torn the last one.
fn lines_of(dir: &Path, kind: &str) -> Vec<String> {
    files_of(dir, kind).iter().flat_map(|path| whole_lines(path)).collect()
}

/// Ids of finished samples in the ledgers.
pub fn ledgers(dir: &Path) -> HashSet<String> {
    lines_of(dir, "ledger.").into_iter().collect()
}

/// Counts of the readers' output.
#[derive(Default, Debug)]
pub struct Seen {
    pub samples: u64,
    pub different: u64,
    /// Lines with damage, with bytes of another generator, or with a generation or a sample that is not listed.
    pub wrong: Vec<String>,
}

/// Checks every line of readers: the sample is listed in that generation and has its generator's contents, and no two
/// samples are equal.
pub fn check_seen(dir: &Path, listed: &BTreeMap<String, Vec<u64>>) -> Seen {
    let (mut seen, mut by_contents) = (Seen::default(), HashMap::new());
    for line in lines_of(dir, "seen.") {
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let id = value["sample_id"].as_str().unwrap_or_default().to_owned();
        let is_listed = listed.get(&id).is_some_and(|generations| Some(generations[0]) == value["generation"].as_u64());
        let is_whole = |part: &str| {
            let (read, put) = (&value["parts"][part], &value["meta"]["crc32"][part]);
            read["crc32"] == *put && read["shape"] == serde_json::json!([20, 20, 20])
        };
        let contents = (value["meta"]["seed"].as_u64(), value["meta"]["n"].as_u64());
        let first = by_contents.entry(contents).or_insert_with(|| id.clone());
        if !is_listed || *first != id || !["data", "label"].into_iter().all(is_whole) || value.get("error").is_some() {
            seen.wrong.push(line);
        }
        seen.samples += 1;
    }
    seen.different = by_contents.len() as u64;
    seen
}

/// Returns files of dead processes that remain in staging.
pub fn litter(ring: &Path, members: &Members) -> Vec<PathBuf> {
    let alive = members.pids();
    let of_dead = |path: &PathBuf| {
        let pid = path.file_name().and_then(|name| name.to_str()?.rsplit('-').nth(1)?.parse::<u32>().ok());
        pid.is_none_or(|pid| !alive.contains_key(&pid))
    };
    names(&ring.join("staging")).into_iter().filter(of_dead).collect()
}
