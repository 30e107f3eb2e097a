//! The files under `vectors`: each is made here, with the outcome that it is to have. What is expected comes from what
//! was written and what was damaged, not from a decoder.
//!
//! `RINGREEL_WRITE_VECTORS=1 cargo test -p ringreel-format --test vectors` writes them anew.
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

/// A file, and the outcome that it is to have.
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
fn the_files_are_those_that_are_made_here() {
    let mut wanted = BTreeMap::new();
    for vector in vectors() {
        let outcome = vector.outcome.page().into_bytes();
        assert!(wanted.insert(format!("{}.json", vector.name), outcome).is_none(), "{} stands twice", vector.name);
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
        assert!(found[name] == *bytes, "{name} on disk is another one");
    }
}

/// The kind of a file, as its outcome says.
fn kind(vector: &Vector) -> String {
    match outcome::field(&vector.outcome, "kind") {
        Some(Json::Text(kind)) => kind,
        _ => unreachable!("{} has no kind", vector.name),
    }
}

#[test]
fn the_library_gives_each_outcome() {
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
fn good_segments_read_by_position_give_the_same_samples() {
    let good = vectors().into_iter().filter(|vector| vector.name.starts_with("ok/") && kind(vector) == "segment");
    for vector in good {
        let found = outcome::by_position(&vector.bytes).unwrap();
        assert_eq!(found, outcome::of_position(&vector.outcome), "{}", vector.name);
    }
}

/// What a writer of this version does not write, but may read.
const NOT_WRITTEN: [&str; 6] =
    ["meta-empty", "own-as-schema", "minor", "minor-bare", "other-records", "other-records-alone"];

/// The other good segments come from the library's writer with the same bytes.
#[test]
fn the_library_writes_the_same_bytes() {
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
