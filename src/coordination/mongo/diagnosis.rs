//! Diagnoses why a server cannot be used, with messages that say what to check.

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{ClientOptions, ServerAddress, Tls};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limits of the first check, together less than five seconds: to resolve a name, to connect
/// to a host (a lost first packet is sent again after a second), to get an answer through the
/// driver, and to find out whether the server accepts connections without TLS.
const LOOKUP: Duration = Duration::from_millis(700);
const KNOCK: Duration = Duration::from_millis(1300);
const PING: Duration = Duration::from_millis(2200);
const PLAIN: Duration = Duration::from_millis(600);
/// Pauses before a request is repeated after its connection broke.
const PAUSES: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(60), Duration::from_millis(180)];

/// MongoDB error codes (`src/mongo/base/error_codes.yml` in its source).
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;

/// Why an operation failed.
#[derive(Debug)]
pub enum MongoFailure {
    /// The server does not answer, but may do so later.
    Away(String),
    /// The server refuses access until the configuration of one side is changed.
    Refused(String),
    /// The server answered, but this operation failed.
    Failed(String),
}

impl MongoFailure {
    /// Returns the message.
    pub fn words(&self) -> &str {
        match self {
            MongoFailure::Away(words) | MongoFailure::Refused(words) | MongoFailure::Failed(words) => words,
        }
    }
}

/// Returns the failure for no answer within `limit`.
pub fn silence(limit: Duration) -> MongoFailure {
    let seconds = limit.as_secs_f64();
    MongoFailure::Away(format!("no answer in {seconds:.1} s: is the server overloaded, or the network down?"))
}

/// Classifies an error of the driver.
pub fn of_error(error: &Error) -> MongoFailure {
    let login = |said: &str| format!("login refused ({said}): check user, password and authSource in MONGOURI");
    match &*error.kind {
        ErrorKind::Authentication { message, .. } => MongoFailure::Refused(login(message)),
        ErrorKind::Command(command) if command.code == AUTHENTICATION_FAILED => {
            MongoFailure::Refused(login(&command.message))
        }
        ErrorKind::Command(command) if command.code == UNAUTHORIZED => MongoFailure::Failed(format!(
            "not allowed ({}): set a user in MONGOURI that has the role readWrite on this database",
            command.message
        )),
        ErrorKind::Command(command) => MongoFailure::Failed(format!("operation refused ({})", command.message)),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            MongoFailure::Failed(format!("operation refused ({})", error.message))
        }
        ErrorKind::Write(failure) => MongoFailure::Failed(format!("operation refused ({failure:?})")),
        ErrorKind::InvalidResponse { message, .. } => MongoFailure::Failed(format!("invalid response ({message})")),
        ErrorKind::ServerSelection { message, .. } => {
            MongoFailure::Away(format!("no server can be used ({})", cause(message)))
        }
        ErrorKind::Io(error) => MongoFailure::Away(format!("the connection broke ({error})")),
        ErrorKind::DnsResolve { message, .. } => {
            MongoFailure::Away(format!("a host name cannot be resolved ({message})"))
        }
        ErrorKind::InvalidArgument { message, .. } | ErrorKind::InvalidTlsConfig { message, .. } => {
            MongoFailure::Refused(message.clone())
        }
        ErrorKind::Custom(_) => MongoFailure::Failed(error.get_custom::<String>().cloned().unwrap_or_default()),
        kind => MongoFailure::Away(kind.to_string()),
    }
}

/// Describes why a server cannot be reached again: as at the first connection if no host accepts connections, which
/// says what to check, and otherwise as the driver does.
pub async fn of_reconnect(error: &Error, hosts: &[ServerAddress]) -> String {
    let mut failure = of_error(error);
    if let MongoFailure::Away(_) = failure {
        failure = knock_at_all(hosts).await.err().unwrap_or(failure);
    }
    failure.words().to_owned()
}

/// Returns whether an established connection broke: the server may have been restarted, and a new
/// connection may work.
pub fn is_broken_connection(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. })
}

/// Extracts the server's error from the driver's message, which describes the whole topology.
fn cause(message: &str) -> &str {
    match message.split_once("Error: Kind: ") {
        Some((_, error)) => error.split(", labels: ").next().unwrap_or(error),
        None => message.split(". Topology:").next().unwrap_or(message),
    }
}

/// Checks at the first connection whether the server can be used. Changes nothing on the server.
pub async fn ask(options: ClientOptions, counters: Collection<Document>, may_write: bool) -> Result<(), MongoFailure> {
    knock_at_all(&options.hosts).await?;
    let nothing = doc! { "_id": -1_i64 };
    let ask_once = || async {
        match may_write {
            // An update of a document that does not exist requires write permission.
            true => counters.update_one(nothing.clone(), doc! { "$set": { "next": 0_i64 } }).await.map(drop),
            false => counters.find_one(nothing.clone()).await.map(drop),
        }
    };
    let asked = async {
        // A connection may break once or twice while a network or a server is reconfigured.
        for pause in PAUSES {
            match ask_once().await {
                Err(error) if is_broken_connection(&error) => tokio::time::sleep(pause).await,
                answer => return answer,
            }
        }
        ask_once().await
    };
    let finding = match timeout(PING, asked).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => of_error(&error),
        Err(_) => silence(PING),
    };
    let said = match finding {
        MongoFailure::Refused(why) | MongoFailure::Failed(why) => return Err(MongoFailure::Refused(why)),
        MongoFailure::Away(said) => said,
    };
    if let Some(Tls::Enabled(tls)) = options.tls.clone() {
        if speaks_without_tls(options.clone()).await {
            return Err(MongoFailure::Refused(
                "MONGOURI requests TLS, but the server does not use TLS: remove tls=true, or enable TLS on the \
                 server"
                    .to_owned(),
            ));
        }
        if let Some(check) = of_handshake(&said, tls.ca_file_path.is_some()) {
            return Err(MongoFailure::Refused(format!("the TLS handshake failed ({said}): {check}")));
        }
    }
    Err(MongoFailure::Away(match (&options.repl_set_name, options.hosts.len()) {
        (Some(set), _) => format!(
            "no server of the replica set {set} can be used ({said}): is replicaSet in MONGOURI the set's name, and \
             do the hosts belong to it?"
        ),
        (None, 2..) => {
            format!("no server can be used ({said}): with several hosts, MONGOURI has to name their replicaSet")
        }
        (None, _) => format!(
            "it accepts connections but does not answer as a MongoDB does ({said}): is it a MongoDB? Is it overloaded? \
             If it requires TLS, add tls=true to MONGOURI"
        ),
    }))
}

/// Returns what to check if one side refused the other's TLS. Returns `None` for other failures,
/// after which the server may answer later. The driver exposes only the error text of rustls.
fn of_handshake(said: &str, has_ca_file: bool) -> Option<&'static str> {
    let says = |words: &str| said.contains(words);
    if says("not valid for name") {
        Some("check the host name in MONGOURI, and the names in the server's certificate")
    } else if says("UnknownIssuer") && has_ca_file {
        Some("tlsCAFile in MONGOURI does not contain the authority that signed the server's certificate")
    } else if says("UnknownIssuer") {
        Some(
            "set tlsCAFile in MONGOURI to the certificate of the authority that signed the server's certificate \
             (without it, only public authorities are trusted, not those of this machine)",
        )
    } else if says("invalid peer certificate") {
        Some("check the server's certificate")
    } else if says("CertificateRequired") {
        Some("the server requires a client certificate: set tlsCertificateKeyFile in MONGOURI")
    } else if says("received fatal alert") || says("peer is incompatible") || says("received corrupt message") {
        Some("check the server's log for the reason")
    } else {
        None
    }
}

/// Checks that the files that TLS needs can be read and contain a certificate or key, because the
/// driver does not report this.
pub fn check_tls_files(options: &ClientOptions) -> Result<(), String> {
    let Some(Tls::Enabled(tls)) = &options.tls else { return Ok(()) };
    let files = [
        ("tlsCAFile", &tls.ca_file_path, "CERTIFICATE"),
        ("tlsCertificateKeyFile", &tls.cert_key_file_path, "PRIVATE KEY"),
    ];
    for (option, path, wanted) in files {
        let Some(path) = path else { continue };
        let shown = path.display();
        let held = std::fs::read(path).map_err(|error| format!("{option}: {shown} cannot be read ({error})"))?;
        if !String::from_utf8_lossy(&held).contains(&format!("{wanted}-----")) {
            return Err(format!("{option}: {shown} contains no {}", wanted.to_lowercase()));
        }
    }
    Ok(())
}

/// Returns whether the server answers a ping without TLS. (No user or password is sent.)
async fn speaks_without_tls(mut options: ClientOptions) -> bool {
    options.tls = Some(Tls::Disabled);
    options.credential = None;
    let Ok(client) = mongodb::Client::with_options(options) else { return false };
    let admin = client.database("admin");
    match timeout(PLAIN, admin.run_command(doc! { "ping": 1 })).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => matches!(&*error.kind, ErrorKind::Command(_)), // an error reply of MongoDB
        Err(_) => false,
    }
}

/// Checks that at least one of the hosts accepts a connection.
async fn knock_at_all(hosts: &[ServerAddress]) -> Result<(), MongoFailure> {
    let mut knocks = JoinSet::new();
    for host in hosts {
        match host {
            ServerAddress::Tcp { host, port } => drop(knocks.spawn(knock(host.clone(), port.unwrap_or(27_017)))),
            _ => return Ok(()), // a socket on this machine, which the driver checks
        }
    }
    let mut findings = Vec::new();
    while let Some(knock) = knocks.join_next().await {
        match knock {
            Ok(Err(finding)) => findings.push(finding),
            _ => return Ok(()),
        }
    }
    findings.sort();
    Err(MongoFailure::Away(findings.join("; ")))
}

async fn knock(host: String, port: u16) -> Result<(), String> {
    let at = format!("{host}:{port}");
    let addresses = match timeout(LOOKUP, tokio::net::lookup_host((host.as_str(), port))).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => return Err(format!("the host name {host:?} is not known ({error}): check MONGOHOST")),
        Err(_) => return Err(format!("the name server does not answer for {host:?}: check MONGOHOST")),
    };
    // Connects to all addresses at once, so that an unresponsive one does not delay the others.
    let mut connects = JoinSet::new();
    addresses.for_each(|address| drop(connects.spawn(timeout(KNOCK, TcpStream::connect(address)))));
    let mut refused = None;
    while let Some(done) = connects.join_next().await {
        match done {
            Ok(Ok(Ok(_))) => return Ok(()),
            Ok(Ok(Err(error))) => refused = Some(error),
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Err(match refused {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => format!(
            "nothing listens at {at} (connection refused): is mongod running there, does it accept other \
             hosts (bindIp), and is PORT right?"
        ),
        Some(error) => format!("{at} cannot be reached ({error}): is the host up, and MONGOHOST right?"),
        None => format!("{at} does not answer: is the host up, or does a firewall block the port?"),
    })
}
