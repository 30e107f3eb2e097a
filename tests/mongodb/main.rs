//! The index in MongoDB, against servers that these tests start and kill. `scripts/mongodb.sh` builds the servers, and
//! `cargo test --test mongodb -- --ignored` runs all tests; those whose names begin with `ferretdb` need FerretDB,
//! which is written in Go. With RINGREEL_TEST_MONGOURI, tests that need a correct server use that one.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod doctor;
mod errors;
mod faults;
mod load;
mod repair;
mod support;
mod tls;
mod turning;

use ringreel::config::{Config, IndexPlace};
use ringreel::coordination::{Backend, Claim, CoordinationStore, IfUnreachable, RingContext};
use ringreel::fs::Posix;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::Server;
use testkit::contract::{self, Place};

testkit::contract!(on_a_server, crate::good_place, ignore = "needs a server: scripts/mongodb.sh java");

/// A name that no other test has used, because the server may be permanent.
fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{prefix}-{:x}-{:x}-{}", time, std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A configuration with its index at `uri`, in a separate database.
fn config_at(uri: &str, dir: &Path, cap: u64, more: &str) -> Config {
    let yaml =
        format!("DBNAME: {}\nMONGOURI: '{uri}'\nRING: a.ring\nSWAP_CAP: {cap}\nSAMPLE: [data]\n{more}", unique("test"));
    Config::parse(&yaml, "test", dir, true).unwrap()
}

/// Opens the index of ring `ring_id` as a separate process would.
fn index_of(config: &Config, ring_id: &str) -> ringreel::Result<Arc<dyn CoordinationStore>> {
    let path = Path::new("/a/ring");
    let ring = RingContext { ring_id, path, swap_cap: 64, me: "me" };
    Backend::connect(&config.index, IfUnreachable::Fail)?.open(Arc::new(Posix), ring, Claim::IfUnowned)
}

/// Overwrites the counter of `generation` with an invalid value, as a user at a shell might.
fn spoil(config: &Config, generation: i64) {
    use mongodb::bson::{Document, doc};
    let IndexPlace::MongoDb(place) = &config.index else { panic!("no MongoDB") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(place.uri()).await.unwrap();
        let counters = client.database(&place.database).collection::<Document>(&place.counters);
        let change = doc! { "$set": { "next": "many" } };
        counters.update_one(doc! { "_id": generation }, change).upsert(true).await.unwrap();
    });
}

fn good_place() -> Place {
    let server = Server::good();
    let config = config_at(&server.uri(), Path::new("/"), 64, "");
    Box::new(move || {
        let _alive = &server;
        index_of(&config, "1234").unwrap()
    })
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn sixteen_processes_take_16000_distinct_numbers() {
    let server = Server::good();
    let place = format!("{} {}", server.uri(), unique("test"));
    contract::hands_out_each_number_to_one_process(&testkit::test_name!("child_of_mongodb"), &place, 16, 1000);
}

#[test]
fn child_of_mongodb() {
    contract::child(|place| {
        let (uri, database) = place.split_once(' ').unwrap();
        let yaml = format!("DBNAME: {database}\nMONGOURI: '{uri}'\n");
        index_of(&Config::parse(&yaml, "test", Path::new("/"), true).unwrap(), "1234").unwrap()
    });
}
