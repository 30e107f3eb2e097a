//! TLS and logins: agreed settings work, mismatches are named, and no secret is sent without TLS if TLS is requested.

use crate::config_at;
use crate::errors::{assert_says, error_at};
use crate::support::{Kind, Server};
use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::{Config, Error, Generator, Reader};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use testkit::ring::{assert_delivered_once, write};

/// A connection string for a server that speaks TLS; `options` come after `tls=true`.
fn uri_with(server: &Server, host: &str, port: u16, options: &str) -> String {
    let (user, password) = (Server::encoded(server.user()), Server::encoded(server.password()));
    format!("mongodb://{user}:{password}@{host}:{port}/?authSource=admin&tls=true{options}")
}

fn trusting(name: &str) -> String {
    format!("&tlsCAFile={}", Server::tls_file(name))
}

/// Writes 20 samples, reads them, and checks their entries in the index.
fn twenty_samples(uri: &str) {
    let dir = tempfile::tempdir().unwrap();
    let config = config_at(uri, dir.path(), 5, "KEEP: 4");
    let mut generator = Generator::open(&config).unwrap();
    let ids: Vec<_> = (0..20).flat_map(|n| write(&mut generator, n).unwrap()).collect();
    let index = generator.ring().coordination.clone();
    assert_eq!((index.status().unwrap().unwrap().generation, index.members().unwrap().len()), (4, 1));
    assert!(index.handed_out(3).unwrap() > 0);
    generator.finish(false, &|| false).unwrap();
    assert_eq!(ids.len(), 20);
    assert_delivered_once(&config.ring, &ids, uri);
    assert_eq!(strays(&config), 0, "the index was bypassed");

    let reader = Reader::open(&config).unwrap();
    let mut read = Vec::new();
    for manifest in reader.kept().unwrap() {
        for position in 0..manifest.segments.iter().map(|segment| segment.samples).sum() {
            let sample = reader.sample(&manifest, position).unwrap();
            read.push(u64::from_le_bytes(sample.parts[0].data().unwrap()[..].try_into().unwrap()));
        }
    }
    read.sort_unstable();
    assert_eq!(read, (0..20).collect::<Vec<u64>>());
}

/// Counts segments whose name has no index from the counter.
fn strays(config: &Config) -> usize {
    const STRAY: u64 = 1 << 40;
    let manifests = Manifests::new(Arc::new(Posix), Layout::new(&config.ring));
    let numbers = manifests.numbers().unwrap().into_iter();
    let segments = numbers.flat_map(|n| manifests.get(n).unwrap().unwrap().segments.clone());
    segments.filter(|segment| segment.index >= STRAY).count()
}

/// Forwards connections to a server, and records what the clients send.
struct Relay {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    /// If set, connections are accepted, but get no answer.
    silent: Arc<AtomicBool>,
}

impl Relay {
    fn start(at: Ipv4Addr, to: SocketAddr) -> Relay {
        let listener = TcpListener::bind((at, 0)).unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let (keep, silent) = (heard.clone(), Arc::new(AtomicBool::new(false)));
        let is_silent = silent.clone();
        thread::spawn(move || {
            let mut held = Vec::new();
            for client in listener.incoming() {
                if is_silent.load(Ordering::SeqCst) {
                    held.push(client);
                    continue;
                }
                let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
                let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let mut all = keep.lock().unwrap();
                let (n, keep) = (all.len(), keep.clone());
                all.push(Vec::new());
                thread::spawn(move || drop(hand_on(client, server, &keep, n)));
                thread::spawn(move || {
                    let _ = io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
            }
        });
        Relay { address, heard, silent }
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    /// What each client sent, one entry per connection.
    fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }

    fn heard_of(&self, text: &str) -> bool {
        self.heard().iter().any(|said| said.windows(text.len()).any(|bytes| bytes == text.as_bytes()))
    }
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, keep: &Mutex<Vec<Vec<u8>>>, n: usize) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let length = from.read(&mut bytes)?;
        if length == 0 {
            return to.shutdown(Shutdown::Both);
        }
        keep.lock().unwrap()[n].extend_from_slice(&bytes[..length]);
        to.write_all(&bytes[..length])?;
    }
}

/// Whether this is a TLS record with a handshake; a MongoDB message begins with its length.
fn is_tls(said: &[u8]) -> bool {
    said.starts_with(&[0x16, 0x03])
}

/// Checks for an error that contains these words and no password of this server.
fn refusal(server: &Server, uri: &str, words: &[&str]) {
    let error = error_at(uri);
    assert!(matches!(error, Error::CoordinationDenied { .. }), "{error:?}");
    assert_says(&error, words);
    assert_quiet(server, &error);
}

fn assert_quiet(server: &Server, error: &Error) {
    let text = format!("{error} {error:?}");
    for secret in [server.password().to_owned(), Server::encoded(server.password())] {
        assert!(!text.contains(&secret), "{text}");
    }
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_index_works_over_tls() {
    let server = Server::start(Kind::FerretDbWithTls);
    let relay = Relay::start(Ipv4Addr::LOCALHOST, server.address());
    twenty_samples(&uri_with(&server, "localhost", relay.port(), &trusting("ca.pem")));
    twenty_samples(&server.uri());
    let mut heard = relay.heard();
    heard.retain(|said| !said.is_empty()); // some connections only check for a listener
    assert!(heard.len() > 1 && heard.iter().all(|said| is_tls(said)), "{heard:?}");
    assert!(!relay.heard_of(server.user()) && !relay.heard_of("ringreel"));
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_untrusted_certificate_is_named() {
    let server = Server::start(Kind::FerretDbWithTls);
    let port = server.port();
    for options in [trusting("other-ca.pem"), String::new()] {
        refusal(&server, &uri_with(&server, "localhost", port, &options), &["certificate", "tlsCAFile"]);
    }
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_certificate_for_another_host_is_named() {
    let server = Server::start(Kind::FerretDbWithTls);
    let relay = Relay::start(Ipv4Addr::new(127, 0, 0, 2), server.address());
    let uri = uri_with(&server, "127.0.0.2", relay.port(), &trusting("ca.pem"));
    refusal(&server, &uri, &["certificate", "127.0.0.2"]);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_server_that_requires_tls_is_named() {
    let server = Server::start(Kind::FerretDbWithTls);
    let uri = uri_with(&server, "localhost", server.port(), "").replace("&tls=true", "");
    let error = error_at(&uri);
    assert!(matches!(error, Error::CoordinationUnavailable { .. }), "{error:?}");
    assert_says(&error, &["If it requires TLS", "tls=true"]);
    assert_quiet(&server, &error);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_unusable_tls_file_is_named() {
    let server = Server::start(Kind::FerretDbWithTls);
    let at = |options: &str| error_at(&uri_with(&server, "localhost", server.port(), options));
    // The file is missing, or has the wrong contents.
    let wrong = [("tlsCAFile", "server-key.pem"), ("tlsCertificateKeyFile", "ca.pem")];
    for (option, file) in wrong.into_iter().chain(wrong.map(|(option, _)| (option, "no-such-file.pem"))) {
        let error = at(&format!("&{option}={}", Server::tls_file(file)));
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert_says(&error, &[option, file, "MONGOURI"]);
        assert_quiet(&server, &error);
    }
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_silent_tls_server_is_bypassed() {
    let server = Server::start(Kind::FerretDbWithTls);
    let relay = Relay::start(Ipv4Addr::LOCALHOST, server.address());
    let dir = tempfile::tempdir().unwrap();
    let uri = uri_with(&server, "localhost", relay.port(), &trusting("ca.pem"));
    let config = config_at(&uri, dir.path(), 5, "");
    let mut generator = Generator::open(&config).unwrap();
    (0..10).for_each(|n| drop(write(&mut generator, n).unwrap()));
    drop(generator);
    relay.silent.store(true, Ordering::SeqCst);
    let error = Generator::open(&config).map(|_| ()).unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::CoordinationUnavailable { .. }), "{error:?}");
    assert_says(&error, &["answer"]);
    assert_quiet(&server, &error);
    let reader = Reader::open(&config).unwrap();
    assert_eq!(reader.newest().unwrap().summary.generation, 2);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_server_gets_the_client_certificate_it_requires() {
    let server = Server::start(Kind::FerretDbWithClientCertificates);
    twenty_samples(&server.uri());
    let without = uri_with(&server, "localhost", server.port(), &trusting("ca.pem"));
    refusal(&server, &without, &["certificate"]);
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_each_login_works_and_wrong_passwords_fail() {
    let server = Server::start(Kind::FerretDbWithTls);
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let options = format!("&authMechanism={mechanism}{}", trusting("ca.pem"));
        let uri = uri_with(&server, "localhost", server.port(), &options);
        twenty_samples(&uri);
        let wrong = uri.replace(&Server::encoded(server.password()), "s3cr3t%2Fs3cr3t%40");
        let error = error_at(&wrong);
        assert!(matches!(error, Error::CoordinationDenied { .. }), "{error:?}");
        assert_says(&error, &["login refused", "password", "authSource"]);
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
        refusal(&server, &uri.replace("authSource=admin", "authSource=other"), &["login refused", "authSource"]);
    }
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh ferretdb"]
fn ferretdb_credentials_are_never_sent_without_requested_tls() {
    let server = Server::start(Kind::FerretDbWithUsers);
    let (user, password) = (server.user(), server.password());
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"] {
        let relay = Relay::start(Ipv4Addr::LOCALHOST, server.address());
        let login = format!("mongodb://{user}:{password}@127.0.0.1:{}/?authMechanism={mechanism}", relay.port());
        refusal(&server, &format!("{login}&tls=true"), &["does not use TLS", "tls=true"]);
        let heard = relay.heard();
        let plain = heard.iter().filter(|said| !said.is_empty() && !is_tls(said)).count();
        assert!(plain > 0 && heard.iter().any(|said| is_tls(said)), "{plain} of {}", heard.len());
        assert!(!relay.heard_of(user) && !relay.heard_of(password), "{mechanism}: {heard:?}");
        assert!(!relay.heard_of("sasl") && !relay.heard_of("peculativeAuth"), "{mechanism}: {heard:?}");
        // Without requested TLS, the relay sees the user's name and, with PLAIN, the password.
        let _ = Generator::open(&config_at(&login, tempfile::tempdir().unwrap().path(), 5, ""));
        assert!(relay.heard_of(user), "{mechanism}");
        assert_eq!(relay.heard_of(password), mechanism == "PLAIN", "{mechanism}");
    }
}
