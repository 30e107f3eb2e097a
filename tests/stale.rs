//! Rings on a filesystem whose clients remember absent names (`docs/filesystems.md`).
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
mod stale_support;

use common::{config, never, write};
use ringreel::convert::export::{self, Format, Report};
use ringreel::fs::Fs;
use ringreel::inspect::Subject;
use ringreel::layout::Layout;
use ringreel::reader::Reader;
use ringreel::reader::stream::Item;
use ringreel::ring::Ring;
use ringreel::{Config, Generator, SampleId, Stream, StreamOptions};
use stale_support::StaleClient;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A hang, and nothing else, takes longer.
const HANG: Duration = Duration::from_secs(60);

fn client(dir: &Path) -> Arc<StaleClient> {
    Arc::new(StaleClient::new(dir))
}

/// A new client that made one generation of three samples, and sealed it.
fn sealed_generation(dir: &TempDir, config: &Config) -> Vec<SampleId> {
    let fs = client(dir.path());
    let mut generator = Generator::open_on(fs.clone(), config).unwrap();
    let ids: Vec<SampleId> = (0..3).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    generator.finish(false, &never).unwrap();
    let sealed = Ring::find(fs, config).unwrap().seal().unwrap();
    assert_eq!(sealed.promotions.len(), 1);
    ids
}

/// Plants, in the memory of a client, that generations 1 to 5 have no directories.
fn look_too_early(fs: &StaleClient, config: &Config) {
    let layout = Layout::new(&config.ring);
    for n in 1..6 {
        for path in [layout.read(n), layout.write(n), layout.manifest(n)] {
            let _ = fs.identity(&path);
        }
    }
}

#[test]
fn a_reader_that_looked_too_early_gets_every_sample() {
    let dir = common::scratch();
    let config = config(dir.path(), 10, "KEEP: 5\nINDEX: files\n");
    sealed_generation(&dir, &config);
    let fs = client(dir.path());
    let reader = Reader::open_on(fs.clone(), &config).unwrap();
    look_too_early(&fs, &config);
    sealed_generation(&dir, &config);
    reader.ring().manifests.newest_listed().unwrap();
    let kept = reader.kept().unwrap();
    let read: u64 =
        kept.iter().map(|m| (0..m.summary.samples).filter(|n| reader.sample(m, *n).is_ok()).count() as u64).sum();
    assert!(fs.lies() > 0, "the client never lied: the test tests nothing");
    assert_eq!(read, 6);
}

#[test]
fn a_stream_that_looked_too_early_gets_the_fresh_generation() {
    let dir = common::scratch();
    let config = config(dir.path(), 10, "KEEP: 5\nINDEX: files\n");
    sealed_generation(&dir, &config);
    let fs = client(dir.path());
    let reader = Arc::new(Reader::open_on(fs.clone(), &config).unwrap());
    look_too_early(&fs, &config);
    let fresh: BTreeSet<SampleId> = sealed_generation(&dir, &config).into_iter().collect();
    reader.ring().manifests.newest_listed().unwrap();
    let options = StreamOptions { epochs: Some(1), timeout: Some(HANG), repeat: false, ..StreamOptions::default() };
    let mut stream = Stream::new(reader, options).unwrap();
    let mut seen = BTreeSet::new();
    while let Some(item) = stream.next(&never, &mut |_| ()).unwrap() {
        let Item::Sample(sample) = item else { panic!("{item:?}") };
        seen.insert(sample.id);
    }
    assert!(fs.lies() > 0, "the client never lied: the test tests nothing");
    assert_eq!(seen, fresh);
}

fn exported(fs: Arc<StaleClient>, dir: &Path, generation: Option<u64>) -> Report {
    let ring = Layout::new(&dir.join("t.ring"));
    let (format, out) = (Format::Npy, dir.join(format!("out.{generation:?}")));
    let options = export::Options {
        format,
        out,
        parts: Vec::new(),
        raw: false,
        positions: 0..u64::MAX,
        shard_samples: None,
        shard_bytes: None,
        threads: 1,
        force: false,
    };
    let watch = export::Watch { total: &|_| (), step: &|| (), stop: &never };
    let fs: Arc<dyn Fs> = fs;
    export::export(&fs, Subject::Ring(ring), generation, &options, &watch).unwrap()
}

#[test]
fn an_export_that_looked_too_early_has_every_sample() {
    let dir = common::scratch();
    let config = config(dir.path(), 10, "KEEP: 5\nINDEX: files\n");
    sealed_generation(&dir, &config);
    let fs = client(dir.path());
    look_too_early(&fs, &config);
    sealed_generation(&dir, &config);
    let report = exported(fs.clone(), dir.path(), Some(2));
    assert!(fs.lies() > 0, "the client never lied: the test tests nothing");
    assert_eq!((report.generation, report.samples, report.is_incomplete()), (Some(2), 3, false));
    std::fs::remove_dir_all(Layout::new(&config.ring).read(2)).unwrap();
    let report = exported(client(dir.path()), dir.path(), None);
    assert_eq!((report.generation, report.is_incomplete()), (Some(1), true), "{:?}", report.notes);
}
