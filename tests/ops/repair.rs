//! `ringreel repair` lists its actions and changes nothing; with `--apply` it repairs what it can. No sample is lost or
//! duplicated.

use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::{Generator, SampleId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::cli::{self, Place, Said, listing, put};

const YAML: &str = "SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 5\n";

/// Generations 1 to 3 of ten samples each, three finished samples in the generation that fills, and no live owner.
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
    assert_eq!(listing(&place.ring()), before, "repair without --apply changed the ring");
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

fn apply(place: &Place) -> Said {
    let said = place.run(&["repair", "--apply", "--json"]);
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

/// Returns action, path relative to the ring, and state of each action, without litter.
fn actions(said: &Said, ring: &Path) -> Vec<(String, PathBuf, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let actions = said.json().into_iter().filter_map(|line| line.get("repair").cloned());
    let actions = actions.filter(|action| action["state"] != "litter");
    actions
        .map(|action| {
            let path = PathBuf::from(text(&action["path"]));
            let path = path.strip_prefix(ring.canonicalize().unwrap_or_default()).map(Path::to_owned).unwrap_or(path);
            (text(&action["what"]), path, text(&action["state"]))
        })
        .collect()
}

fn healed(place: &Place) {
    let again = plan(place);
    assert!(again.code == Some(0) && actions(&again, &place.ring()).is_empty(), "further actions: {again:?}");
}

/// Ids of each generation, from the manifests.
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

/// Finished samples that an owner began in generation 1, and did not link before he died.
fn staged(place: &Place, count: u64) -> Vec<SampleId> {
    let other = Place::new(YAML);
    let mut generator = Generator::open(&other.config()).unwrap();
    let ids = (100..100 + count).flat_map(|n| put(&mut generator, n)).collect();
    let dir = Path::new("staging").join(&generator.ring().me);
    drop(generator);
    fs::rename(other.ring().join(&dir), place.ring().join(&dir)).unwrap();
    ids
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
fn healthy_ring_needs_no_repair() {
    let (place, ids) = ring();
    healed(&place);
    once(&place.ring(), &ids[..30], "healthy");
}

#[test]
fn ring_with_five_kinds_of_damage_is_repaired() {
    let (place, ids) = ring();
    let ring = place.ring();
    let before = listed(&ring);
    let of_one = segments(&ring.join("read.1"));
    flip(&of_one[2]);
    cut(&of_one[5], 40);
    fs::remove_file(ring.join("manifests/2")).unwrap();
    fs::rename(ring.join("write.4"), ring.join("read.4")).unwrap();
    let more = staged(&place, 3);
    let damage = |said: &Said| said.json().iter().filter(|l| l["finding"]["kind"] == "damage").count();
    let all = place.run(&["verify", "demo.ring", "--json"]);
    assert!(all.code == Some(1) && damage(&all) >= 4, "{all:?}");

    let planned = plan(&place);
    assert_eq!(planned.code, Some(1), "{planned:?}");
    let what: Vec<_> = actions(&planned, &ring)
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
    assert!(actions(&applied, &ring).iter().all(|(_, _, state)| state == "repaired"), "{applied:?}");
    let after = listed(&ring);
    for n in 0..=3 {
        assert_eq!(after[&n], before[&n], "generation {n} changed");
    }
    assert_eq!(after[&4].len(), 3, "the half promotion was not finished");
    place.run(&["promote"]).ok();
    once(&ring, &[&ids[..], &more].concat(), "repaired and promoted");
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
    assert_eq!(found, BTreeSet::from(names), "only irreparable damage remains: {verified:?}");
    healed(&place);
}

#[test]
fn damaged_manifests_are_quarantined_and_rebuilt_when_idle() {
    let (place, ids) = ring();
    let (ring, before) = (place.ring(), listed(&place.ring()));
    for n in [2, 3] {
        flip(&ring.join(format!("manifests/{n}")));
    }
    let living = Generator::open(&place.config()).unwrap();
    let beside = apply(&place);
    let states = actions(&beside, &ring);
    assert!(beside.code == Some(1) && states.iter().all(|(_, _, state)| state == "left"), "alive: {beside:?}");
    drop(living);
    assert_eq!(plan(&place).code, Some(1));
    assert_eq!(apply(&place).code, Some(0));
    assert_eq!(listed(&ring), before);
    let kept = fs::read_dir(ring.join("quarantine")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(kept.filter(|name| name.to_string_lossy().starts_with("manifest.")).count(), 4, "with their reasons");
    healed(&place);
    place.run(&["promote"]).ok();
    once(&ring, &ids, "damaged manifests");
}

#[test]
fn lost_newest_manifest_is_not_treated_as_half_promotion() {
    let (place, ids) = ring();
    let (ring, before) = (place.ring(), listed(&place.ring()));
    fs::remove_file(ring.join("manifests/3")).unwrap();
    fs::remove_file(ring.join("manifests/2")).unwrap();
    // A late link of an earlier segment: a promotion would choose it, and drop a segment that has no other name.
    let late = staged(&place, 1);
    let owners = segments(&ring.join("staging"));
    let of_late =
        owners.iter().flat_map(|dir| segments(dir)).find(|path| path.ends_with(format!("{}.rec", late[0].segment)));
    fs::hard_link(of_late.unwrap(), ring.join("read.3/000100.rec")).unwrap();
    let said = apply(&place);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(listed(&ring), before);
    healed(&place);
    place.run(&["promote"]).ok();
    once(&ring, &[ids, late].concat(), "the newest manifest");
}

#[test]
fn two_lost_manifests_are_rebuilt_while_no_process_works() {
    let (place, ids) = ring();
    let before = listed(&place.ring());
    fs::remove_file(place.ring().join("manifests/1")).unwrap();
    fs::remove_file(place.ring().join("manifests/2")).unwrap();
    let living = Generator::open(&place.config()).unwrap();
    let said = apply(&place);
    assert!(said.code == Some(1) && said.out.contains("stop them first"), "{said:?}");
    drop(living);
    assert_eq!(apply(&place).code, Some(0));
    assert_eq!(listed(&place.ring()), before);
    place.run(&["promote"]).ok();
    once(&place.ring(), &ids, "two lost manifests");
}

#[test]
fn promotion_finished_by_repair_removes_no_generation() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\nKEEP: 5\n");
    cli::generate(&place.config(), 0..19);
    let ring = place.ring();
    // A manager died between the rename and the manifest.
    let next = listed(&ring).keys().max().unwrap() + 1;
    fs::rename(ring.join(format!("write.{next}")), ring.join(format!("read.{next}"))).unwrap();
    let there = || (0..20).filter(|n| ring.join(format!("read.{n}")).exists()).collect::<Vec<_>>();
    let before = there();
    assert!(before.len() >= 6, "{before:?}");
    // Called with the directory only, so KEEP is unknown.
    let said = place.run(&["repair", "demo.ring", "--apply"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(there(), before, "{said:?}");
    assert_eq!(listed(&ring).keys().max(), Some(&next), "{said:?}");
}

#[test]
fn manifest_of_a_lost_generation_keeps_its_number_taken() {
    let (place, ids) = ring();
    let ring = place.ring();
    fs::remove_file(ring.join("manifests/1")).unwrap();
    fs::remove_dir_all(ring.join("read.1")).unwrap();
    // A staged segment that the lost manifest may have listed: whether it was delivered is unknown.
    staged(&place, 1);
    assert_eq!(plan(&place).code, Some(1));
    assert_eq!(apply(&place).code, Some(0));
    assert!(listed(&ring)[&1].is_empty());
    assert_eq!(fs::read_dir(ring.join("quarantine")).unwrap().count(), 2, "the segment and the reason");
    let verified = place.run(&["verify", "demo.ring"]).ok();
    assert!(verified.out.contains("10 samples that it listed are missing"), "{verified:?}");
    healed(&place);
    place.run(&["promote"]).ok();
    once(&ring, &ids[10..], "a lost generation");
}

#[test]
fn damaged_segments_of_dead_owners_are_quarantined() {
    let (place, ids) = ring();
    let ring = place.ring();
    for path in segments(&ring.join("write.4")) {
        fs::remove_file(path).unwrap();
    }
    let staged: Vec<PathBuf> = segments(&ring.join("staging")).iter().flat_map(|dir| segments(dir)).collect();
    assert_eq!(staged.len(), 3);
    flip(&staged[1]);
    assert_eq!(plan(&place).code, Some(1));
    assert_eq!(apply(&place).code, Some(0));
    healed(&place);
    place.run(&["promote"]).ok();
    let all: BTreeSet<String> = listed(&ring).into_values().flatten().collect();
    assert_eq!(all.len(), 32);
    assert!(ids[..30].iter().all(|id| all.contains(&format!("{}:{}", id.segment, id.ordinal))));
    assert_eq!(fs::read_dir(ring.join("quarantine")).unwrap().count(), 2);
}

#[test]
fn last_name_of_an_undelivered_sample_is_recovered() {
    let (place, ids) = ring();
    let ring = place.ring();
    fs::create_dir(ring.join("write.1")).unwrap();
    let fills = segments(&ring.join("write.4"));
    let of_two = segments(&ring.join("read.2"))[0].clone();
    // A user moved files by hand: unlisted segments have names only in the wrong places.
    fs::rename(&fills[0], ring.join("write.1/000000.rec")).unwrap();
    fs::rename(&fills[1], ring.join("read.1/000900.rec")).unwrap();
    fs::hard_link(of_two, ring.join("write.1/000001.rec")).unwrap();
    fs::remove_dir_all(ring.join("staging")).unwrap();
    fs::create_dir(ring.join("staging")).unwrap();
    place.configure(&fs::read_to_string(place.path().join("config.yaml")).unwrap().replace("KEEP: 5", "KEEP: 1"));
    let garbage = place.run(&["gc", "--apply", "--json"]);
    assert_eq!(garbage.code, Some(1), "{garbage:?}");
    assert!(ring.join("write.1/000000.rec").exists() && ring.join("read.1/000900.rec").exists(), "{garbage:?}");
    assert_eq!(plan(&place).code, Some(1));
    assert_eq!(apply(&place).code, Some(0));
    healed(&place);
    place.run(&["promote"]).ok();
    once(&ring, &ids, "last names");
    place.run(&["gc", "--apply"]).ok();
    assert!(!ring.join("write.1").exists() && !ring.join("read.1").exists());
}

#[test]
fn damaged_last_names_are_quarantined_and_do_not_block_reclaim() {
    let (place, ids) = ring();
    let ring = place.ring();
    let last = segments(&ring.join("write.4"))[2].clone();
    flip(&last);
    fs::rename(&last, ring.join("read.1/000900.rec")).unwrap();
    fs::remove_dir_all(ring.join("staging")).unwrap();
    fs::create_dir(ring.join("staging")).unwrap();
    place.configure(&fs::read_to_string(place.path().join("config.yaml")).unwrap().replace("KEEP: 5", "KEEP: 1"));
    assert_eq!(place.run(&["gc", "--apply"]).code, Some(1));
    assert_eq!(apply(&place).code, Some(0));
    place.run(&["promote"]).ok();
    once(&ring, &ids[..32], "all but the damaged samples");
    let kept = fs::read_dir(ring.join("quarantine")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(kept.filter(|name| name.to_string_lossy().contains(&ids[32].segment.to_string())).count(), 2);
    place.run(&["gc", "--apply"]).ok();
    assert!(!ring.join("read.1").exists());
}

#[test]
fn lost_ring_json_is_rebuilt_from_manifests_and_configuration() {
    for damage in ["", "{"] {
        let (place, _) = ring();
        let file = place.ring().join("ring.json");
        let before = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        if !damage.is_empty() {
            fs::write(&file, damage).unwrap();
        }
        let by_path = place.run(&["repair", "demo.ring"]);
        assert!(by_path.code == Some(2) && by_path.err.contains("-c config.yaml"), "{by_path:?}");
        // A wrong value would add held-out samples to the training samples.
        let unsaid = place.run(&["repair"]);
        assert!(unsaid.code == Some(2) && unsaid.err.contains("VALIDATION"), "{unsaid:?}");
        let config = place.path().join("config.yaml");
        fs::write(&config, fs::read_to_string(&config).unwrap() + "\nVALIDATION: 0\n").unwrap();
        assert_eq!(plan(&place).code, Some(1));
        assert_eq!(apply(&place).code, Some(0));
        assert_eq!(fs::read(&file).unwrap(), before);
        healed(&place);
    }
}

#[test]
fn repair_refuses_redelivery_if_too_many_manifests_are_lost() {
    let place = Place::new("SWAP_CAP: 1\nSAMPLE: [data, label]\nKEEP: 1\n");
    cli::generate(&place.config(), 0..80);
    for left in [&["0"][..], &[]] {
        for manifest in fs::read_dir(place.ring().join("manifests")).unwrap().map(|entry| entry.unwrap()) {
            if !left.contains(&manifest.file_name().to_str().unwrap()) {
                fs::remove_file(manifest.path()).unwrap();
            }
        }
        let before = listing(&place.ring().join("read.80"));
        let said = apply(&place);
        assert!(said.code == Some(1) && said.out.contains("restore manifests/"), "{said:?}");
        assert!(listed(&place.ring()).values().all(|samples| samples.is_empty()), "{left:?}");
        assert_eq!(listing(&place.ring().join("read.80")), before);
    }
}

#[test]
fn index_newer_than_this_view_is_kept_while_a_process_lives() {
    let (place, _) = ring();
    let status = place.ring().join("index/status");
    let text = fs::read_to_string(status.join("3")).unwrap().replace("\"generation\":3", "\"generation\":9");
    fs::write(status.join("9"), text).unwrap();
    let living = Generator::open(&place.config()).unwrap();
    let said = apply(&place);
    assert!(said.code == Some(1) && status.join("9").exists(), "a process works with the index: {said:?}");
    drop(living);
    let said = apply(&place);
    assert!(said.code == Some(0) && !status.join("9").exists(), "{said:?}");
}

#[test]
fn readable_samples_of_damaged_segments_are_salvaged() {
    let place = Place::new("SWAP_CAP: 10\nSAMPLE: [data, label]\nSEGMENT_SAMPLES: 5\n");
    cli::generate(&place.config(), 0..10);
    let file = segments(&place.ring().join("read.1"))[0].clone();
    flip(&file);
    let before = listing(&place.ring());
    let inside = place.run(&["repair", "--salvage", "demo.ring/saved"]);
    assert!(inside.code == Some(2) && inside.err.contains("is inside the ring"), "{inside:?}");
    let said = place.run(&["repair", "--salvage", "saved"]);
    assert!(said.code == Some(0) && said.out.contains("4 of 5 samples"), "{said:?}");
    assert_eq!(listing(&place.ring()), before);
    let saved = segments(&place.path().join("saved"))[0].clone();
    let verified = place.run(&["verify", saved.to_str().unwrap(), "--json"]).ok();
    assert_eq!(verified.values("readable"), ["4"]);
}
