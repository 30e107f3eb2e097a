//! What the tests of the ring share: a small ring, numbered samples, and a look at what was delivered.

use crate::coordination;
use ringreel::format::{DType, Meta};
use ringreel::fs::{Fs, Posix};
use ringreel::layout::{Layout, segment_name};
use ringreel::manifest::store::Manifests;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::{Manager, until};
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Generator, NamedPart, SampleId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use crate::fault::{EACCES, EINTR, EIO, ESTALE};
pub use crate::hook::{Action, CHANGES, HookFs};

/// A ring for a test: `cap` samples in a generation, parts `data`, short times.
pub fn config(dir: &Path, cap: u64, more: &str) -> Config {
    let yaml = format!("DBNAME: t\nSWAP_CAP: {cap}\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 60\n{more}");
    let yaml = format!("{yaml}\n{}", coordination::lines(dir));
    // A test that says nothing of segments follows each sample by itself.
    let segments = if more.contains("SEGMENT_SAMPLES") { "" } else { "SEGMENT_SAMPLES: 1\n" };
    Config::parse(&format!("{segments}{yaml}"), "test", dir, true).unwrap()
}

pub fn never() -> bool {
    false
}

/// Runs a manager until `stop` says so.
pub fn manage(manager: Manager, stop: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(manager.run(until(stop), |_| ())).unwrap();
}

/// Writes sample `n`; its one part holds `n`.
pub fn write(generator: &mut Generator, n: u64) -> ringreel::Result<Vec<SampleId>> {
    write_until(generator, n, &never)
}

/// The same; when `stop` says so, it waits no longer.
pub fn write_until(generator: &mut Generator, n: u64, stop: &dyn Fn() -> bool) -> ringreel::Result<Vec<SampleId>> {
    let data = n.to_le_bytes();
    let mut meta = Meta::new();
    meta.set("n", n);
    generator.write(&[NamedPart::new("data", DType::U64, &[1], &data)], &meta, stop)
}

/// From now on generators leave promotion to it, for a lease.
pub fn a_manager_seems_to_live(config: &Config) {
    assert!(another(config).coordination.claim_lease("manager", 1, "somebody-1-abc").unwrap());
}

/// Every listed sample, and the generations that list it.
pub fn listed(root: &Path) -> BTreeMap<SampleId, Vec<u64>> {
    listed_on(Arc::new(Posix), root)
}

/// The same on another filesystem.
pub fn listed_on(fs: Arc<dyn Fs>, root: &Path) -> BTreeMap<SampleId, Vec<u64>> {
    let manifests = Manifests::new(fs, Layout::new(root));
    let mut numbers = manifests.numbers().unwrap();
    numbers.sort_unstable();
    let mut found: BTreeMap<SampleId, Vec<u64>> = BTreeMap::new();
    for n in numbers {
        // Who lost one lost what it lists.
        let Ok(Some(manifest)) = manifests.get(n) else { continue };
        for segment in &manifest.segments {
            for ordinal in 0..segment.samples {
                found.entry(SampleId { segment: segment.id, ordinal }).or_default().push(n);
            }
        }
    }
    found
}

/// Panics unless each of `ids` is listed by exactly one manifest, and nothing is listed twice.
pub fn assert_delivered_once(root: &Path, ids: &[SampleId], what: &str) {
    assert_delivered_once_on(Arc::new(Posix), root, ids, what);
}

/// The same on another filesystem.
pub fn assert_delivered_once_on(fs: Arc<dyn Fs>, root: &Path, ids: &[SampleId], what: &str) {
    let listed = listed_on(fs, root);
    let lost: Vec<_> = ids.iter().filter(|id| !listed.contains_key(id)).collect();
    let twice: Vec<_> = listed.iter().filter(|(_, generations)| generations.len() > 1).collect();
    assert!(lost.is_empty() && twice.is_empty(), "{what}: lost {lost:?}, twice {twice:?}");
}

/// Another process's view of the same ring, on the plain filesystem.
pub fn another(config: &Config) -> Ring {
    Ring::find_or_make(Arc::new(Posix), config).unwrap()
}

/// A finished sample of an owner that died before it linked it; and its staged file.
pub fn staged(config: &Config, n: u64) -> (SampleId, PathBuf) {
    let fs = Arc::new(HookFs::default());
    let mut generator = Generator::open_on(fs.clone(), config).unwrap();
    let no_commit = |path: &Path| path.extension().is_some_and(|end| end == "rec");
    fs.hook(move |_, op, path| if op == "link" && no_commit(path) { Action::Refuse(EACCES) } else { Action::Pass });
    let id = write(&mut generator, n).unwrap()[0];
    let ring = generator.ring();
    (id, ring.layout.sealed(&ring.me, id.segment))
}

/// The same, linked as number `index` of the generation that fills.
pub fn linked(config: &Config, index: u64) -> (SampleId, PathBuf) {
    let (id, file) = staged(config, index);
    let ring = another(config);
    let filling = ring.layout.write(ring.manifests.newest().unwrap() + 1);
    std::fs::hard_link(&file, filling.join(segment_name(index, 1))).unwrap();
    (id, file)
}

/// A ring on a filesystem with a hook.
pub fn hooked(config: &Config) -> (Ring, Arc<HookFs>) {
    let fs = Arc::new(HookFs::default());
    (Ring::find_or_make(fs.clone(), config).unwrap(), fs)
}

/// Brings in what dead owners left, and makes everything visible.
pub fn bring_in(ring: &Ring) {
    try_bring_in(ring).unwrap();
}

/// The same, as far as it can be done.
pub fn try_bring_in(ring: &Ring) -> ringreel::Result<()> {
    let mut watch = FailureDetector::new(Duration::ZERO);
    for _ in 0..20 {
        ring.recover(&mut watch)?;
        ring.promote(PromoteWhen::NotEmpty)?;
        ring.reclaim()?;
        let owners = ring.fs.list(&ring.layout.staging())?;
        let names = owners.iter().flat_map(|owner| ring.fs.list(&ring.layout.staging_of(owner)).unwrap_or_default());
        if !names.into_iter().any(|name| name.ends_with(".rec")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A directory in memory where there is one: these tests make thousands of rings, each with its own syncs.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The next number of a row: SplitMix64 (Steele, Lea, Flood 2014; <https://prng.di.unimi.it/splitmix64.c>).
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
