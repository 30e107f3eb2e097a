//! `ringreel repair`: it says what it would do and changes nothing; then it mends what can be mended. Nothing is lost,
//! and nothing is twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cli_support;

use cli_support::{Place, Said, listing, put};
use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::ring::manifest::Manifests;
use ringreel::{Generator, SampleId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const YAML: &str = "SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 5\n";

/// Generations 1 to 3 of ten samples each, three finished samples in the one that fills, and their owner gone.
fn ring() -> (Place, Vec<SampleId>) {
    let place = Place::new(YAML);
    let mut generator = Generator::open(&place.config()).unwrap();
    let ids = (0..33).flat_map(|n| put(&mut generator, n)).collect();
    drop(generator);
    assert!(place.ring().join("read.3").exists() && place.ring().join("write.4").exists());
    (place, ids)
}

fn plan(place: &Place) -> Said {
    let before = listing(&place.ring());
    let said = place.run(&["repair", "--json"]);
    assert_eq!(listing(&place.ring()), before, "a plan changes nothing");
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

fn apply(place: &Place) -> Said {
    let said = place.run(&["repair", "--apply", "--json"]);
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

/// What, path below the ring, state; litter is left out.
fn mends(said: &Said, ring: &Path) -> Vec<(String, PathBuf, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mends = said.json().into_iter().filter_map(|line| line.get("mend").cloned());
    let mends = mends.filter(|mend| mend["state"] != "litter");
    mends
        .map(|mend| {
            let path = PathBuf::from(text(&mend["path"]));
            let path = path.strip_prefix(ring.canonicalize().unwrap_or_default()).map(Path::to_owned).unwrap_or(path);
            (text(&mend["what"]), path, text(&mend["state"]))
        })
        .collect()
}

fn healed(place: &Place) {
    let again = plan(place);
    assert!(again.code == Some(0) && mends(&again, &place.ring()).is_empty(), "nothing more to do: {again:?}");
}

/// Ids of each generation, as the manifests say.
fn listed(ring: &Path) -> BTreeMap<u64, BTreeSet<String>> {
    let manifests = Manifests::new(Arc::new(Posix), Layout::new(ring));
    let ids = |n: u64| {
        let manifest = manifests.get(n).unwrap().unwrap();
        let ids = manifest.segments.iter().flat_map(|s| (0..s.samples).map(|k| format!("{}:{k}", s.id)));
        (n, ids.collect())
    };
    manifests.numbers().unwrap().into_iter().map(ids).collect()
}

fn once(ring: &Path, ids: &[SampleId], what: &str) {
    let all: Vec<String> = listed(ring).into_values().flatten().collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(all.len(), distinct.len(), "twice: {what}");
    for id in ids {
        let name = format!("{}:{}", id.segment, id.ordinal);
        assert!(distinct.contains(&name), "lost: {name}: {what}");
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, &bytes).unwrap();
}

fn cut(path: &Path, by: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - by).unwrap();
}

#[test]
fn a_healthy_ring_has_nothing_to_mend() {
    let (place, ids) = ring();
    healed(&place);
    once(&place.ring(), &ids[..30], "healthy");
}

#[test]
fn a_ring_with_five_damages_is_mended_as_far_as_it_can_be() {
    let (place, ids) = ring();
    let ring = place.ring();
    let before = listed(&ring);
    let of_one = segments(&ring.join("read.1"));
    flip(&of_one[2]);
    cut(&of_one[5], 40);
    fs::remove_file(ring.join("manifests/2")).unwrap();
    fs::rename(ring.join("write.4"), ring.join("read.4")).unwrap();
    // Three more, of an owner who died before he linked them.
    let other = Place::new(YAML);
    let mut generator = Generator::open(&other.config()).unwrap();
    let more: Vec<SampleId> = (100..103).flat_map(|n| put(&mut generator, n)).collect();
    let owner = generator.ring().me.clone();
    drop(generator);
    fs::rename(other.ring().join("staging").join(&owner), ring.join("staging/dead-1-ab")).unwrap();
    let damage = |said: &Said| said.json().iter().filter(|l| l["finding"]["kind"] == "damage").count();
    let all = place.run(&["verify", "demo.ring", "--json"]);
    assert!(all.code == Some(1) && damage(&all) >= 4, "{all:?}");

    let planned = plan(&place);
    assert_eq!(planned.code, Some(1), "{planned:?}");
    let what: Vec<_> = mends(&planned, &ring)
        .into_iter()
        .map(|(what, path, state)| {
            assert_eq!(state, "planned", "{what} {}", path.display());
            what
        })
        .collect();
    assert_eq!(what, ["manifest", "promotion", "staged"], "{planned:?}");
    assert!(planned.out.contains("as many as it listed"), "{planned:?}");

    let applied = apply(&place);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert!(mends(&applied, &ring).iter().all(|(_, _, state)| state == "mended"), "{applied:?}");
    let after = listed(&ring);
    for n in 0..=3 {
        assert_eq!(after[&n], before[&n], "generation {n} lists what it listed");
    }
    assert_eq!(after[&4].len(), 3, "the half promotion was finished");
    place.run(&["seal"]).ok();
    once(&ring, &[&ids[..], &more].concat(), "mended, and sealed");
    let read = place.run(&["read", "--all", "--json"]);
    let seen = read.values("sample_id");
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (34, 34), "two of 36 are damaged: {read:?}");
    let verified = place.run(&["verify", "demo.ring", "--json"]);
    let found: BTreeSet<String> = verified
        .json()
        .iter()
        .filter(|l| l["finding"]["kind"] == "damage")
        .map(|line| line["finding"]["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned())
        .collect();
    let names = [&of_one[2], &of_one[5]].map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    assert_eq!(found, BTreeSet::from(names), "only what cannot be mended: {verified:?}");
    healed(&place);
}
