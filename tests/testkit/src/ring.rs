//! What the tests of the ring share: a small ring, numbered samples, and checks of delivered samples.

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

/// A configuration for a test: `cap` samples per generation, the part `data`, short times.
pub fn config(dir: &Path, cap: u64, more: &str) -> Config {
    let yaml = format!("DBNAME: t\nSWAP_CAP: {cap}\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 60\n{more}");
    let yaml = format!("{yaml}\n{}", coordination::lines(dir));
    // Without SEGMENT_SAMPLES, tests follow single samples.
    let segments = if more.contains("SEGMENT_SAMPLES") { "" } else { "SEGMENT_SAMPLES: 1\n" };
    Config::parse(&format!("{segments}{yaml}"), "test", dir, true).unwrap()
}

pub fn never() -> bool {
    false
}

/// Runs a manager until `stop` returns true.
pub fn manage(manager: Manager, stop: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(manager.run(until(stop), |_| ())).unwrap();
}

/// Writes sample `n`; its only part contains `n`.
pub fn write(generator: &mut Generator, n: u64) -> ringreel::Result<Vec<SampleId>> {
    write_until(generator, n, &never)
}

/// The same; stops waiting when `stop` returns true.
pub fn write_until(generator: &mut Generator, n: u64, stop: &dyn Fn() -> bool) -> ringreel::Result<Vec<SampleId>> {
    let data = n.to_le_bytes();
    let mut meta = Meta::new();
    meta.set("n", n);
    generator.write(&[NamedPart::new("data", DType::U64, &[1], &data)], &meta, stop)
}

/// Makes generators leave promotion to a supposed manager, for a lease.
pub fn a_manager_seems_to_live(config: &Config) {
    assert!(another(config).coordination.claim_lease("manager", 1, "somebody-1-abc").unwrap());
}

/// Every listed sample, with the generations that list it.
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
        // A manifest that is lost has lost its list.
        let Ok(Some(manifest)) = manifests.get(n) else { continue };
        for segment in &manifest.segments {
            for ordinal in 0..segment.samples {
                found.entry(SampleId { segment: segment.id, ordinal }).or_default().push(n);
            }
        }
    }
    found
}

/// Panics unless exactly one manifest lists each of `ids`, and no sample is listed twice.
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

/// The same ring as another process sees it, on the plain filesystem.
pub fn another(config: &Config) -> Ring {
    Ring::find_or_make(Arc::new(Posix), config).unwrap()
}

/// A finished sample of an owner that died before it linked it; with its staged file.
pub fn staged(config: &Config, n: u64) -> (SampleId, PathBuf) {
    let fs = Arc::new(HookFs::default());
    let mut generator = Generator::open_on(fs.clone(), config).unwrap();
    let no_commit = |path: &Path| path.extension().is_some_and(|end| end == "rec");
    fs.hook(move |_, op, path| if op == "link" && no_commit(path) { Action::Refuse(EACCES) } else { Action::Pass });
    let id = write(&mut generator, n).unwrap()[0];
    let ring = generator.ring();
    (id, ring.layout.sealed(&ring.me, id.segment))
}

/// The same, linked as `index` in the generation that fills.
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

/// Commits the segments of dead owners, and promotes everything.
pub fn bring_in(ring: &Ring) {
    try_bring_in(ring).unwrap();
}

/// The same, without a panic on errors.
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

/// A directory in memory, if available, because these tests create thousands of rings with many syncs.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The next number of the sequence SplitMix64 (Steele, Lea, Flood 2014; <https://prng.di.unimi.it/splitmix64.c>).
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
