//! Edge cases of the ring's steps: their numbers, their counts, and calls that fail before or after their effect.

mod creation;
mod manifests;
mod plan;
mod repair;
mod steps;
mod upkeep;
mod warnings;

use ringreel::SampleId;
use ringreel::config::Config;
use ringreel::format::SegmentId;
use ringreel::layout::Layout;
use ringreel::manifest::{Manifest, SegmentEntry, Summary};
use ringreel::ring::Ring;
use ringreel::swap::promote::PromoteWhen;
use std::fs;
use testkit::ring::{another, linked};

fn entry(n: u64, samples: u64) -> SegmentEntry {
    SegmentEntry {
        id: SegmentId(u128::from(n).to_be_bytes()),
        index: n,
        owner: "node-1-ab".into(),
        born: 1,
        samples,
        bytes: 1000 + n,
        check: 7,
    }
}

/// Writes the manifests 0 to `newest`, each but the first of one segment, whose id is its generation's number.
fn write_manifests(layout: &Layout, newest: u64) {
    fs::create_dir_all(layout.manifests()).unwrap();
    let mut manifest = Manifest::new(Summary::empty("r", "a"), vec![]);
    for n in 0..=newest {
        fs::write(layout.manifest(n), manifest.encode().unwrap()).unwrap();
        let segments = vec![entry(n + 1, 1)];
        manifest = Manifest::new(manifest.summary.next("a", &segments, 0.0), segments);
    }
}

/// Writes `count` generations of two samples each, all promoted and none reclaimed; returns their samples.
fn generations(config: &Config, count: u64) -> Vec<SampleId> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.extend([2 * n, 2 * n + 1].map(|index| linked(config, index).0));
        let ring = another(config);
        let promotion = promote_only(&ring);
        assert_eq!(promotion, n + 1);
    }
    ids
}

/// The ring as if its configuration had this KEEP.
fn keeping(mut ring: Ring, keep: u64) -> Ring {
    ring.settings.keep = keep;
    ring
}

fn promote_only(ring: &Ring) -> u64 {
    ring.promote(PromoteWhen::Full).unwrap().done().unwrap().manifest.summary.generation
}
