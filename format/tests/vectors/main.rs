//! The files under `vectors`. Each is generated here with its expected outcome, which follows from what was written
//! and damaged and not from a decoder.
//!
//! `RINGREEL_WRITE_VECTORS=1 cargo test -p ringreel-format --test vectors` writes the files again.
#![allow(clippy::unwrap_used, missing_docs)]

mod bad;
mod good;
mod json;
mod model;
mod outcome;
mod plain;
mod written;

use json::Json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file and its expected outcome.
pub struct Vector {
    /// Its path under `vectors`.
    pub name: String,
    pub bytes: Vec<u8>,
    pub outcome: Json,
}

fn vectors() -> Vec<Vector> {
    [good::vectors(), bad::vectors(), plain::vectors()].into_iter().flatten().collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

#[test]
fn vector_files_match_the_generated_ones() {
    let mut wanted = BTreeMap::new();
    for vector in vectors() {
        let outcome = vector.outcome.page().into_bytes();
        assert!(wanted.insert(format!("{}.json", vector.name), outcome).is_none(), "{} occurs twice", vector.name);
        wanted.insert(vector.name, vector.bytes);
    }
    let write = std::env::var_os("RINGREEL_WRITE_VECTORS").is_some();
    for kind in ["ok", "bad"] {
        let folder = folder().join(kind);
        if write {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
        }
    }
    if write {
        wanted.iter().for_each(|(name, bytes)| fs::write(folder().join(name), bytes).unwrap());
    }
    let mut found = BTreeMap::new();
    for kind in ["ok", "bad"] {
        for entry in fs::read_dir(folder().join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{kind}/{}", path.file_name().unwrap().to_str().unwrap());
            found.insert(name, fs::read(path).unwrap());
        }
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, bytes) in &wanted {
        assert!(found[name] == *bytes, "{name} on disk differs");
    }
}

/// Returns the kind of a file from its outcome.
fn kind(vector: &Vector) -> String {
    match outcome::field(&vector.outcome, "kind") {
        Some(Json::Text(kind)) => kind,
        _ => unreachable!("{} has no kind", vector.name),
    }
}

#[test]
fn library_produces_each_expected_outcome() {
    let mut wrong = Vec::new();
    for vector in vectors() {
        let found = std::panic::catch_unwind(|| outcome::outcome(&vector.bytes, &kind(&vector)));
        match found {
            Ok(found) if found == vector.outcome => {}
            Ok(found) => {
                wrong.push(format!("{}\nexpected {}found {}", vector.name, vector.outcome.page(), found.page()))
            }
            Err(_) => wrong.push(format!("{}: a panic", vector.name)),
        }
    }
    assert!(wrong.is_empty(), "{} outcomes differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn good_segments_have_the_same_samples_by_position() {
    let good = vectors().into_iter().filter(|vector| vector.name.starts_with("ok/") && kind(vector) == "segment");
    for vector in good {
        let found = outcome::by_position(&vector.bytes).unwrap();
        assert_eq!(found, outcome::of_position(&vector.outcome), "{}", vector.name);
    }
}

/// Good segments that a writer of this version does not produce but a reader accepts.
const NOT_WRITTEN: [&str; 6] =
    ["meta-empty", "own-as-schema", "minor", "minor-bare", "other-records", "other-records-alone"];

/// The library's writer produces the other good segments with the same bytes.
#[test]
fn library_writes_the_same_bytes() {
    let mut same = 0;
    let not_written = NOT_WRITTEN.map(|name| format!("ok/{name}.rec"));
    for vector in vectors().iter().filter(|vector| vector.name.starts_with("ok/") && kind(vector) == "segment") {
        if not_written.contains(&vector.name) {
            continue;
        }
        if let Some(written) = outcome::written_again(&vector.bytes) {
            assert!(written == vector.bytes, "{}", vector.name);
            same += 1;
        }
    }
    assert!(same >= 25, "{same}");
}
