//! `ringreel promote` and `ringreel gc`, and both with `repair` while roles work.

use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::{Generator, SampleId};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::cli::{Place, eventually, listing, put};

const YAML: &str = "SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 1000\n";

/// All ids that manifests list, with repetitions.
fn listed(ring: &Path) -> Vec<String> {
    let manifests = Manifests::new(Arc::new(Posix), Layout::new(ring));
    let of = |n: u64| manifests.get(n).unwrap().unwrap();
    let numbers = manifests.numbers().unwrap();
    let segments = numbers.into_iter().flat_map(|n| of(n).segments.clone());
    segments.flat_map(|s| (0..s.samples).map(move |k| SampleId { segment: s.id, ordinal: k }.to_string())).collect()
}

fn once(ring: &Path, ids: &BTreeSet<String>) {
    let all = listed(ring);
    let distinct: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(all.len(), distinct.len(), "a sample is listed twice");
    let lost: Vec<_> = ids.difference(&distinct).collect();
    assert!(lost.is_empty(), "lost {} of {}: {lost:?}", lost.len(), ids.len());
}

fn ledgers(place: &Place) -> BTreeSet<String> {
    let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let ledgers: Vec<PathBuf> =
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("ledger")).collect();
    ledgers
        .iter()
        .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn partial_generation_is_promoted_once_and_owner_continues() {
    let place = Place::new(YAML);
    let mut generator = Generator::open(&place.config()).unwrap();
    let nothing = place.run(&["promote"]);
    assert!(nothing.code == Some(1) && nothing.out.contains("nothing to promote"), "{nothing:?}");
    let mut ids: Vec<SampleId> = (0..3).flat_map(|n| put(&mut generator, n)).collect();
    let said = place.run(&["promote", "--json"]).ok();
    assert_eq!(
        (&said.json()[0]["promoted"]["generation"], &said.json()[0]["promoted"]["samples"]),
        (&1.into(), &3.into())
    );
    assert_eq!(place.run(&["promote"]).code, Some(1));
    ids.extend((3..5).flat_map(|n| put(&mut generator, n)));
    place.run(&["promote"]).ok();
    drop(generator);
    once(&place.ring(), &ids.iter().map(ToString::to_string).collect());
    assert_eq!(listed(&place.ring()).len(), 5);
}

#[test]
fn half_promoted_and_next_generations_are_promoted_together() {
    let place = Place::new(YAML);
    let mut generator = Generator::open(&place.config()).unwrap();
    let ids: Vec<SampleId> = (0..2).flat_map(|n| put(&mut generator, n)).collect();
    fs::create_dir(place.ring().join("write.2")).unwrap();
    fs::rename(place.ring().join("write.1"), place.ring().join("read.1")).unwrap();
    let said = place.run(&["promote"]).ok();
    assert!(said.out.starts_with("generation 1 is readable: 2 samples"), "{said:?}");
    drop(generator);
    once(&place.ring(), &ids.iter().map(ToString::to_string).collect());
}

#[test]
fn promote_refuses_if_reuse_min_waits_for_readers() {
    let place = Place::new(&format!("{YAML}REUSE: {{min: 1}}\n"));
    let mut generator = Generator::open(&place.config()).unwrap();
    put(&mut generator, 0);
    place.run(&["promote"]).ok();
    put(&mut generator, 1);
    let held = place.run(&["promote"]);
    assert!(held.code == Some(1) && held.out.contains("REUSE min is 1"), "{held:?}");
    assert_eq!(listed(&place.ring()).len(), 1);
}

#[test]
fn gc_lists_and_then_removes_what_a_manager_would() {
    let place = Place::new("SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 5\nSEGMENT_SAMPLES: 2\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..40).for_each(|n| drop(put(&mut generator, n)));
    generator.finish(false, &|| false).unwrap();
    let ring = place.ring();
    fs::create_dir(ring.join("write.2")).unwrap();
    fs::write(ring.join("write.2/000000.rec"), "late").unwrap();
    fs::create_dir(ring.join("trash/read.0.abc")).unwrap();
    fs::write(ring.join("trash/read.0.abc/000000.rec"), [0; 1000]).unwrap();
    assert_eq!(place.run(&["gc", "demo.ring"]).code, Some(2), "gc does not know KEEP");
    let before = listing(&ring);
    let would = place.run(&["gc", "demo.ring", "--keep", "1", "--json"]);
    let now = listing(&ring);
    let same = |path: &PathBuf| !path.starts_with(ring.join("index"));
    assert!(before.keys().filter(|p| same(p)).eq(now.keys().filter(|p| same(p))), "gc without --apply removed files");
    let gone: BTreeSet<String> = would
        .json()
        .iter()
        .filter_map(|line| line.get("garbage"))
        .map(|one| one["path"].as_str().unwrap().rsplit("demo.ring/").next().unwrap().to_owned())
        .collect();
    let want = ["read.1", "read.2", "trash/read.0.abc", "write.2"].map(str::to_owned);
    assert!(BTreeSet::from(want.clone()).is_subset(&gone), "{would:?}");
    let done = place.run(&["gc", "demo.ring", "--keep", "1", "--apply", "--json"]).ok();
    assert!(want.iter().all(|name| !ring.join(name).exists()), "{done:?}");
    assert!(ring.join("read.3").exists() && ring.join("read.4").exists() && ring.join("ring.json").exists());
    assert!(done.values("bytes").pop().unwrap().parse::<u64>().unwrap() > 20 * 4096, "{done:?}");
}

#[test]
fn unfinished_files_of_long_dead_owners_are_removed() {
    let place = Place::verbatim(&format!("DBNAME: demo\nINDEX: files\nLEASE_SECONDS: 0.3\n{YAML}"));
    let mut generator = Generator::open(&place.config()).unwrap();
    put(&mut generator, 0);
    let dir = place.ring().join("staging").join(&generator.ring().me);
    fs::write(dir.join("x.part"), [0; 500]).unwrap();
    let finished = fs::read_dir(&dir).unwrap().count() - 1;
    let living = place.run(&["gc", "--apply"]);
    assert!(dir.join("x.part").exists() && finished == 1, "the owner is alive: {living:?}");
    drop(generator);
    fs::create_dir(place.ring().join("staging/empty-1-ab")).unwrap();
    eventually("the owner is long dead", || {
        place.run(&["gc", "--apply"]).ok();
        !dir.join("x.part").exists() && !place.ring().join("staging/empty-1-ab").exists()
    });
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn repair_gc_and_promote_lose_nothing_while_roles_work() {
    let place = Place::new(YAML);
    let manager = place.start(&["manager"]);
    let generate = |n: u32| {
        let (seed, ledger) = (n.to_string(), format!("ledger.{n}"));
        place.start(&["generate", "--shape", "8", "--rate", "150", "--seed", &seed, "--ledger", &ledger])
    };
    let mut generators: Vec<_> = (0..2).map(generate).collect();
    let newest = || Manifests::new(Arc::new(Posix), Layout::new(&place.ring())).numbers().map_or(0, |all| all.len());
    eventually("generations", || newest() > 5);
    for round in 0..2 {
        generators.remove(0); // kills the process
        generators.push(generate(10 + round));
        fs::remove_file(place.ring().join(format!("manifests/{}", newest() / 2))).unwrap();
        let said = place.run(&["repair", "--apply"]);
        assert!(said.code.is_some() && !said.err.contains("panicked"), "{said:?}");
        for command in [&["promote"][..], &["gc", "--apply"], &["promote"]] {
            assert!(place.run(command).code.is_some());
        }
    }
    for generator in generators {
        generator.terminate();
        generator.finish();
    }
    manager.terminate();
    manager.finish();
    eventually("everything is repaired", || place.run(&["repair", "--apply"]).code == Some(0));
    let ids = ledgers(&place);
    eventually("all samples are readable", || {
        place.run(&["promote"]);
        let there: BTreeSet<String> = listed(&place.ring()).into_iter().collect();
        ids.is_subset(&there)
    });
    assert!(ids.len() > 300, "{}", ids.len());
    once(&place.ring(), &ids);
}
