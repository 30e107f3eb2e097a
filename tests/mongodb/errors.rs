//! An error on a wrong address names the cause and shows no password.

use crate::support::{Kind, Server, blackhole, free_port};
use crate::{config_at, unique};
use ringreel::{Config, Error, Generator};
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::ring;

/// Returns the error of opening a generator, which gives up after a lease and creates no ring.
pub(crate) fn error_at(uri: &str) -> Error {
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(uri, dir.path(), 10, "");
    error_of(&config, dir.path())
}

fn error_of(config: &Config, dir: &Path) -> Error {
    let begun = Instant::now();
    let error = Generator::open(config).map(|_| ()).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}: {error}", begun.elapsed());
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "a ring was created: {error}");
    println!("{:.2} s: {error}", begun.elapsed().as_secs_f64());
    error
}

pub(crate) fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(!text.contains("labels:") && !text.contains("Topology"), "the message contains the driver's text: {text}");
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn wrong_ports_and_wrong_hosts_have_separate_errors() {
    let port = free_port();
    let wrong_port = error_at(&format!("mongodb://127.0.0.1:{port}"));
    assert!(matches!(wrong_port, Error::CoordinationUnavailable { .. }));
    assert_says(&wrong_port, &[&format!("127.0.0.1:{port}"), "connection refused", "PORT"]);
    let (_hole, port) = blackhole();
    let unreachable = error_at(&format!("mongodb://127.0.0.1:{port}"));
    assert_says(&unreachable, &[&format!("127.0.0.1:{port}"), "does not answer", "firewall"]);
    let unknown = error_at("mongodb://no-such-host.invalid");
    assert_says(&unknown, &["no-such-host.invalid", "not known", "MONGOHOST"]);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn server_without_requested_tls_is_named() {
    let server = Server::start(Kind::Good);
    let error = error_at(&format!("mongodb://127.0.0.1:{}/?tls=true", server.port()));
    assert!(matches!(error, Error::CoordinationDenied { .. }), "{error:?}");
    assert_says(&error, &["does not use TLS", "tls=true"]);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn server_with_another_protocol_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = std::io::Write::write_all(&mut stream.unwrap(), b"220 mail.example ESMTP\r\n");
        }
    });
    let error = error_at(&format!("mongodb://127.0.0.1:{port}"));
    assert_says(&error, &["does not answer as a MongoDB does", "is it a MongoDB"]);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_wrong_password_is_reported_but_never_shown() {
    let server = Server::start(Kind::FerretDbWithUsers);
    let (user, password, port) = (server.user(), server.password(), server.port());
    let dir = tempfile::tempdir().unwrap();
    let right = config_at(&format!("mongodb://{user}:{password}@127.0.0.1:{port}"), dir.path(), 2, "");
    let mut generator = Generator::open(&right).unwrap();
    (0..4).for_each(|n| drop(ring::write(&mut generator, n).unwrap()));
    let shown = format!("{right:?} {:?} {}", generator.ring().coordination, generator.ring().coordination.place());
    assert!(!shown.contains(password), "{shown}");
    generator.finish(true, &|| false).unwrap();

    let wrong = error_at(&format!("mongodb://{user}:s3cr3t%2Fs3cr3t@127.0.0.1:{port}/?authSource=admin"));
    assert!(matches!(wrong, Error::CoordinationDenied { .. }), "{wrong:?}");
    assert_says(&wrong, &["login refused", "password", "authSource"]);
    assert!(!format!("{wrong} {wrong:?}").contains("s3cr3t"), "{wrong:?}");
    let nobody = error_at(&format!("mongodb://127.0.0.1:{port}"));
    assert_says(&nobody, &["not allowed", "readWrite"]);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn invalid_connection_strings_are_reported_without_the_password() {
    for uri in [
        "mongodb://me:s3cr3t@:1",
        "mongodb://me:s3/cr3t@127.0.0.1",
        "mongodb://me:s3cr3t:s3cr3t@127.0.0.1",
        "mongodb://me:s3cr3t@s3cr3t@127.0.0.1",
        "mongodb://me:s3cr3t@127.0.0.1:99999",
        "mongodb://me:4711?s3cr3t@127.0.0.1",
        "mongodb://me:s3cr3t",
        "mongodb://me:s3cr3t%40host",
        "mongodb://127.0.0.1/?authMechanismProperties=s3cr3t",
        "mongodb://127.0.0.1/?s3cr3t",
        "mongodb://me:s3cr3t@127.0.0.1/?authMechanism=NONE",
        "mongodb+srv://me:s3cr3t@127.0.0.1",
    ] {
        let error = error_at(uri);
        let text = format!("{error} {error:?}");
        assert!(
            matches!(
                error,
                Error::Config { .. } | Error::CoordinationDenied { .. } | Error::CoordinationUnavailable { .. }
            ),
            "{text}"
        );
        assert!(!text.contains("s3cr3t") && !text.contains("s3/cr3t"), "{text}");
    }
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn rings_in_one_database_stay_apart() {
    let server = Server::good();
    let dir = tempfile::tempdir().unwrap();
    let database = unique("test");
    let config = |ring: &str, counter: &str| {
        let uri = server.uri();
        let yaml = format!(
            "DBNAME: {database}\nMONGOURI: '{uri}'\nRING: {ring}\nSWAP_CAP: 4\nSAMPLE: [data]\nLEASE_SECONDS: 1\n\
             COUNTER_COLLECTION: {counter}"
        );
        Config::parse(&yaml, "test", dir.path(), true).unwrap()
    };
    let (one, two) = (config("one", "a"), config("two", "b"));
    let mut generators = [Generator::open(&one).unwrap(), Generator::open(&two).unwrap()];
    for n in 0..9 {
        generators.iter_mut().for_each(|generator| drop(ring::write(generator, n).unwrap()));
    }
    for generator in &generators {
        let index = &generator.ring().coordination;
        assert_eq!(index.members().unwrap().len(), 1);
        assert_eq!((index.status().unwrap().unwrap().generation, index.handed_out(3).unwrap()), (2, 1));
    }
    let error = Generator::open(&config("three", "a")).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::RingMismatch { .. }), "{error:?}");
    let text = error.to_string();
    let id = &generators[0].ring().descriptor.ring_id;
    for words in [id.as_str(), "/one", "DBNAME", "COUNTER_COLLECTION", "--take-over"] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(generators[0].ring().coordination.members().unwrap().len(), 1, "the foreign member was counted");
    // The same in the middle of a run: when another ring takes over the database, the first one gets an error.
    let first = &generators[0].ring().coordination;
    first.clear().unwrap();
    assert_eq!(first.next_index(7).unwrap(), Some(0));
    assert!(first.claim_lease("manager", 1, "somebody").unwrap());
    first.beat("one-of-the-first", 1, &Default::default()).unwrap();
    let four = Generator::open(&config("four", "a")).unwrap();
    let second = &four.ring().coordination;
    assert_eq!(second.next_index(9).unwrap(), Some(0));
    for said in [
        first.ping(),
        first.status().map(|_| ()),
        first.next_index(9).map(|_| ()),
        first.close_generation(9),
        first.skip_to(9, 100),
    ] {
        let error = said.unwrap_err();
        assert!(matches!(error, Error::RingMismatch { .. }) && error.to_string().contains("/four"), "{error:?}");
    }
    assert_eq!(second.handed_out(9).unwrap(), 1, "the first ring wrote to it");
    assert_eq!(second.next_index(9).unwrap(), Some(1));
    // What the first ring left behind does not disturb the second one.
    assert!(second.members().unwrap().iter().all(|(name, _)| name != "one-of-the-first"));
    assert_eq!(second.lease("manager").unwrap(), None);
    assert!(second.claim_lease("manager", 1, "me").unwrap());
    assert_eq!((second.handed_out(7).unwrap(), second.next_index(7).unwrap()), (0, Some(0)));
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn status_claims_no_database_and_bad_documents_fail_alone() {
    let server = Server::good();
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(&server.uri(), dir.path(), 4, "");
    let mut generator = Generator::open(&config).unwrap();
    (0..6).for_each(|n| drop(ring::write(&mut generator, n).unwrap()));
    let index = generator.ring().coordination.clone();
    index.clear().unwrap();
    let reader = ringreel::Reader::open(&config).unwrap();
    reader.ring().coordination.ping().unwrap();
    // An unclaimed database: another ring may take it, whichever process read it before.
    let other = crate::index_of(&config, "another").unwrap();
    other.clear().unwrap();
    // A damaged counter fails alone; heartbeats continue.
    index.ping().unwrap();
    index.next_index(2).unwrap();
    crate::spoil(&config, 2);
    assert!(matches!(index.next_index(2).unwrap_err(), Error::CoordinationUnavailable { .. }));
    index.beat("me", 1, &Default::default()).unwrap();
    (6..8).for_each(|n| drop(ring::write(&mut generator, n).unwrap()));
    generator.finish(true, &|| false).unwrap();
    assert_eq!(ring::listed(&config.ring).len(), 8);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn error_inside_another_async_runtime_causes_no_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        error_at("mongodb://127.0.0.1/?authMechanism=NONE");
        error_at("mongodb+srv://no-such-host.invalid");
        error_at(&format!("mongodb://127.0.0.1:{}", free_port()));
        let server = Server::good();
        let dir = tempfile::tempdir().unwrap();
        let mut generator = Generator::open(&config_at(&server.uri(), dir.path(), 1, "")).unwrap();
        ring::write(&mut generator, 1).unwrap();
        drop(generator);
    });
}
