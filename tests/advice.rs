//! What the command's messages tell the user to do next.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cli_support;

use cli_support::{Place, generate};
use std::fs;

fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\nVALIDATION: 0\n");
    generate(&place.config(), 0..10);
    place
}

#[test]
fn a_damaged_ring_json_names_the_repair_command() {
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

/// The contact sheet shows the first 8 digits of an id.
#[test]
fn inspect_and_cat_accept_the_short_ids_that_picture_prints() {
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
