//! The doctor's findings on a server.

use crate::support::{Kind, Server};
use crate::{config_at, unique};
use ringreel::config::{Config, IndexPlace};
use ringreel_cli::render::doctor::measured;
use ringreel_ops::doctor::{Check, Doctor, Verdict, examine};
use ringreel_ops::probe::Subject;
use std::sync::Arc;
use testkit::ring;

fn examined(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut doctor = Doctor::new(Subject::system(), Arc::new(|| false), |check| checks.push(check));
    examine(&mut doctor, config).unwrap();
    drop(doctor);
    checks.into_iter().filter(|check| check.group == "index").collect()
}

/// Returns all collections in the database, with their number of documents.
fn contents(config: &Config) -> Vec<(String, u64)> {
    use mongodb::bson::{Document, doc};
    let IndexPlace::MongoDb(place) = &config.index else { panic!("no MongoDB") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let database = mongodb::Client::with_uri_str(place.uri()).await.unwrap().database(&place.database);
        let mut found = Vec::new();
        for name in database.list_collection_names().await.unwrap() {
            let count = database.collection::<Document>(&name).count_documents(doc! {}).await.unwrap();
            found.push((name, count));
        }
        found.sort();
        found
    })
}

fn verdicts(checks: &[Check]) -> Vec<(&str, Verdict)> {
    checks.iter().map(|check| (check.check.as_str(), check.verdict)).collect()
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn doctor_passes_good_servers_and_leaves_no_documents() {
    let server = Server::good();
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&server.uri(), dir.path(), 4, "");
    let none = contents(&config);
    let checks = examined(&config);
    let ok = |check| (check, Verdict::Ok);
    let all = ["MongoDB", "round trip", "atomic counter", "write concern", "clock of the server"].map(ok);
    assert_eq!(verdicts(&checks), all, "{checks:#?}");
    assert!(
        measured(&checks[0]).contains("not used by any ring yet")
            && measured(&checks[2]).contains("128 distinct numbers of 128")
    );
    assert_eq!(contents(&config), none, "an empty database stays empty");

    let mut generator = ringreel::Generator::open(&config).unwrap();
    (0..6).for_each(|n| drop(ring::write(&mut generator, n).unwrap()));
    let before = contents(&config);
    let numbers = generator.ring().coordination.handed_out(2).unwrap();
    let checks = examined(&config);
    assert_eq!(verdicts(&checks), all, "{checks:#?}");
    assert!(measured(&checks[0]).contains("used by this ring"), "{checks:#?}");
    assert_eq!((contents(&config), generator.ring().coordination.handed_out(2).unwrap()), (before, numbers));
    generator.finish(true, &|| false).unwrap();
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn doctor_names_a_counter_that_repeats_numbers() {
    let server = Server::start(Kind::Racy);
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&server.uri(), dir.path(), 4, "");
    let repeats = (0..20).any(|_| {
        let checks = examined(&config);
        let counter = checks.iter().find(|check| check.check == "atomic counter").unwrap();
        counter.verdict == Verdict::Warning && measured(counter).contains("duplicates")
    });
    assert!(repeats, "no number was given twice");
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn doctor_names_foreign_databases_and_unacknowledged_writes() {
    let server = Server::good();
    let dir = tempfile::tempdir().unwrap();
    let database = unique("test");
    let config = |ring: &str, option: &str| {
        let (uri, path) = (server.uri(), dir.path());
        let more = if uri.contains('?') {
            format!("{uri}&{option}")
        } else {
            format!("{}/?{option}", uri.trim_end_matches('/'))
        };
        let uri = if option.is_empty() { uri } else { more };
        let yaml = format!("DBNAME: {database}\nMONGOURI: '{uri}'\nRING: {ring}\nSWAP_CAP: 4\nSAMPLE: [data]");
        Config::parse(&yaml, "test", path, true).unwrap()
    };
    drop(ringreel::Generator::open(&config("one", "")).unwrap());
    let files = Config::parse("RING: two\nSWAP_CAP: 4\nSAMPLE: [data]", "test", dir.path(), true).unwrap();
    drop(ringreel::Generator::open(&files).unwrap());
    let checks = examined(&config("two", ""));
    assert_eq!(verdicts(&checks), [("MongoDB", Verdict::Failure)], "{checks:#?}");
    assert!(measured(&checks[0]).contains("/one"), "{checks:#?}");
    let checks = examined(&config("one", "w=0"));
    let concern = checks.iter().find(|check| check.check == "write concern");
    let concern = concern.unwrap_or_else(|| panic!("{checks:#?}"));
    assert_eq!(concern.verdict, Verdict::Failure, "{checks:#?}");
}
