//! What the command's messages tell the user to do next.

use std::fs;
use std::path::Path;
use testkit::cli::{Place, eventually, generate, put};

fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\nVALIDATION: 0\n");
    generate(&place.config(), 0..10);
    place
}

#[test]
fn damaged_ring_json_names_the_repair_command() {
    let place = ring();
    fs::write(place.ring().join("ring.json"), "{").unwrap();
    for args in [&["status"][..], &["generate", "--samples", "1"], &["read", "--all"], &["metrics"]] {
        let said = place.run(args);
        assert!(said.code != Some(0) && said.err.contains("`ringreel repair -c config.yaml`"), "{args:?}: {said:?}");
    }
}

#[test]
fn report_writes_to_stdout_for_a_dash() {
    let place = ring();
    let said = place.run(&["report", "demo.ring", "-o", "-"]).ok();
    assert!(said.out.starts_with("<!DOCTYPE html>"), "{said:?}");
    assert!(!place.path().join("-").exists());
    assert_eq!(place.run(&["report", "demo.ring", "-o", "-", "--json"]).code, Some(2));
}

#[test]
fn cat_and_metrics_write_to_stdout_for_a_dash() {
    let place = ring();
    let sample = ["cat", "demo.ring", "-n", "0", "--as", "json"];
    for args in [&sample[..], &["metrics", "demo.ring", "--json"], &["metrics", "demo.ring"]] {
        let said = place.run(&[args, &["-o", "-"]].concat()).ok();
        assert!(!said.out.is_empty() && !place.path().join("-").exists(), "{said:?}");
    }
    let again = ["metrics", "demo.ring", "--every", "1", "-o", "-"];
    assert_eq!(place.run(&again).code, Some(2), "repeated metrics in text format need an output file");
}

/// Ids are shortened to the first 8 digits, as in the captions of a contact sheet.
#[test]
fn inspect_and_cat_accept_short_ids_printed_by_preview() {
    let place = ring();
    let ids = place.run(&["read", "--all", "--json"]).ok().values("sample_id");
    let (segment, ordinal) = ids[0].split_once('.').unwrap();
    let short = format!("{}.{ordinal}", &segment[..8]);
    for path in ["demo.ring", "demo.ring/read.1"] {
        let said = place.run(&["inspect", path, "--id", &short]).ok();
        assert!(said.out.contains(&ids[0]), "{path}: {said:?}");
    }
    place.run(&["cat", "demo.ring", "--id", &short, "--as", "json"]).ok();
    let digit = if segment.starts_with('0') { '1' } else { '0' };
    let unknown = format!("{digit}{}.0", &segment[1..]);
    assert_eq!(place.run(&["inspect", "demo.ring", "--id", &unknown]).code, Some(2));
    let said = place.run(&["inspect", "demo.ring", "--id", "abc.0"]);
    assert!(said.code == Some(2) && said.err.contains("4 to 32"), "{said:?}");
}

/// One kind of damage: its name, the function that inflicts it on a ring, and the command that fixes it.
type Damage = (&'static str, fn(&Path), &'static str);

const REPAIR: &str = "`ringreel repair -c config.yaml`";
const SALVAGE: &str = "--salvage DIR";

const DAMAGES: [Damage; 6] = [
    ("ring.json is missing", |ring| fs::remove_file(ring.join("ring.json")).unwrap(), REPAIR),
    ("ring.json is damaged", |ring| fs::write(ring.join("ring.json"), "{").unwrap(), REPAIR),
    ("a manifest is missing", |ring| fs::remove_file(ring.join("manifests/1")).unwrap(), REPAIR),
    ("a manifest is damaged", |ring| fs::write(ring.join("manifests/1"), "x").unwrap(), REPAIR),
    ("a segment is missing", |ring| fs::remove_file(ring.join("read.2/000000.rec")).unwrap(), SALVAGE),
    ("a segment is damaged", |ring| fs::write(ring.join("read.2/000000.rec"), "x").unwrap(), SALVAGE),
];

/// `verify` and `repair` name the same next command, and no other command suggests a different one.
#[test]
fn all_commands_suggest_the_same_next_command_for_damage() {
    for (what, damage, next) in DAMAGES {
        let place = ring();
        damage(&place.ring());
        let verify = place.run(&["verify", "demo.ring"]);
        assert!(verify.code == Some(1) && verify.out.contains("DAMAGED"), "{what}: {verify:?}");
        let named = verify.out.lines().last().unwrap();
        assert!(named.starts_with("next: ") && named.contains(next), "{what}: {verify:?}");
        let repair = place.run(&["repair", "-c", "config.yaml"]);
        assert_eq!(repair.code, Some(i32::from(next == REPAIR)), "{what}: {repair:?}");
        assert!(next == REPAIR || repair.out.contains(next), "{what}: {repair:?}");
        if what.starts_with("ring.json") {
            for args in [&["status"][..], &["generate", "--samples", "1"], &["promote"], &["gc"], &["read", "--all"]] {
                let said = place.run(args);
                assert!(said.code != Some(0) && said.err.contains(REPAIR), "{what}: {args:?}: {said:?}");
            }
        }
        if next == REPAIR {
            place.run(&["repair", "-c", "config.yaml", "--apply"]).ok();
            place.run(&["verify", "demo.ring"]).ok();
        } else {
            place.run(&["repair", "-c", "config.yaml", "--salvage", "saved"]).ok();
        }
    }
}

#[test]
fn finish_reports_a_removed_ring() {
    let place = ring();
    let mut generator = ringreel::Generator::open(&place.config()).unwrap();
    put(&mut generator, 10);
    fs::rename(place.ring(), place.path().join("moved")).unwrap();
    let error = generator.finish(false, &|| false).unwrap_err();
    assert!(matches!(error, ringreel::Error::RingMismatch { .. }), "{error}");
    assert!(!place.ring().exists());
}

#[test]
fn generator_exits_with_error_when_its_ring_is_removed() {
    let place = ring();
    let mut running = place.start(&["generate", "--rate", "200", "--shape", "8", "--json"]);
    eventually("samples are generated", || running.out().lines().count() > 10);
    fs::rename(place.ring(), place.path().join("removed")).unwrap();
    running.terminate();
    eventually("the generator ends", || !running.is_running());
    let said = running.finish();
    assert!(said.code == Some(2) && said.err.contains("it was removed while this process worked in it"), "{said:?}");
}
