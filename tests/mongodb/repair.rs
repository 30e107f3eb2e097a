//! `ringreel repair` rebuilds the index from the directory, and `ringreel index move` moves it.

use crate::support::Server;
use crate::unique;
use ringreel::{Config, Generator};
use std::path::Path;
use std::process::Command;
use testkit::ring::{self, write};

fn ringreel(dir: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(testkit::binary());
    let said = command.args(args).current_dir(dir).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    println!("ringreel {args:?}: {:?}\n{text}", said.status.code());
    (said.status.code().unwrap(), text)
}

fn yaml_at(uri: &str) -> String {
    let database = unique("test");
    format!("DBNAME: {database}\nMONGOURI: '{uri}'\nRING: a.ring\nSWAP_CAP: 10\nSAMPLE: [data]\nLEASE_SECONDS: 1\n")
}

fn configure(dir: &Path, yaml: &str) -> Config {
    std::fs::write(dir.join("config.yaml"), yaml).unwrap();
    Config::load(&dir.join("config.yaml")).unwrap()
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn emptied_index_is_rebuilt_and_moved_there_and_back() {
    let server = Server::good();
    let dir = tempfile::tempdir().unwrap();
    let yaml = yaml_at(&server.uri());
    let config = configure(dir.path(), &yaml);
    let mut generator = Generator::open(&config).unwrap();
    (0..37).for_each(|n| drop(write(&mut generator, n).unwrap()));
    assert!(generator.ring().coordination.claim_lease("manager", 5, "somebody").unwrap());
    let index = generator.ring().coordination.clone();
    generator.finish(false, &|| false).unwrap();
    assert_eq!(ringreel(dir.path(), &["repair"]).0, 0);

    index.clear().unwrap();
    let (code, said) = ringreel(dir.path(), &["repair"]);
    assert_eq!(code, 1);
    assert!(said.contains("swap status is missing") && said.contains("indices below 7 are in use"), "{said}");
    assert_eq!(index.handed_out(4).unwrap(), 0, "repair without --apply changed the index");
    assert_eq!(ringreel(dir.path(), &["repair", "--apply"]).0, 0);
    assert_eq!(ringreel(dir.path(), &["repair"]).0, 0);
    let status = index.status().unwrap().unwrap();
    assert_eq!((status.generation, status.total_samples, index.handed_out(4).unwrap()), (3, 30, 7));

    assert!(index.claim_lease("manager", 9, "somebody").unwrap());
    let (code, said) = ringreel(dir.path(), &["index", "move", "--to", "files"]);
    assert!(code == 0 && said.contains("INDEX: files"), "{said}");
    assert_eq!((index.status().unwrap(), index.lease("manager").unwrap()), (None, None));
    let files = configure(dir.path(), &format!("{yaml}INDEX: files\n"));
    let mut generator = Generator::open(&files).unwrap();
    let moved = generator.ring().coordination.clone();
    assert_eq!(moved.status().unwrap().unwrap().generation, 3);
    let lease = moved.lease("manager").unwrap().unwrap();
    assert!(lease.token == 9 && lease.released, "{lease:?}");
    (37..50).for_each(|n| drop(write(&mut generator, n).unwrap()));
    drop(generator);

    let (code, said) = ringreel(dir.path(), &["index", "move", "--to", "mongodb"]);
    assert!(code == 0 && said.contains("INDEX: mongodb"), "{said}");
    assert_eq!((moved.status().unwrap(), moved.members().unwrap().len()), (None, 0));
    assert_eq!(index.status().unwrap().unwrap().generation, 5);
    let (code, said) = ringreel(dir.path(), &["index", "show", "--json"]);
    assert_eq!(code, 0, "{said}");
    let config = configure(dir.path(), &yaml);
    assert_eq!(Generator::open(&config).unwrap().ring().coordination.status().unwrap().unwrap().generation, 5);
    let ids: Vec<_> = ring::listed(&config.ring).into_keys().collect();
    assert_eq!(ids.len(), 50);
    ring::assert_delivered_once(&config.ring, &ids, "moved there and back");
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn index_of_a_lost_ring_is_taken_over_on_request() {
    let server = Server::good();
    let dir = tempfile::tempdir().unwrap();
    let yaml = yaml_at(&server.uri());
    let config = configure(dir.path(), &yaml);
    let mut generator = Generator::open(&config).unwrap();
    (0..25).for_each(|n| drop(write(&mut generator, n).unwrap()));
    drop(generator);
    std::fs::remove_dir_all(&config.ring).unwrap();
    let error = Generator::open(&config).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("repair --apply --take-over"), "{error}");
    assert_eq!(ringreel(dir.path(), &["repair"]).0, 2);
    assert_eq!(ringreel(dir.path(), &["repair", "--apply", "--take-over"]).0, 0);
    let mut generator = Generator::open(&config).unwrap();
    assert_eq!(generator.ring().coordination.status().unwrap(), None, "the old ring's index is removed");
    (0..10).for_each(|n| drop(write(&mut generator, n).unwrap()));
    assert_eq!(generator.ring().coordination.status().unwrap().unwrap().generation, 1);
}
