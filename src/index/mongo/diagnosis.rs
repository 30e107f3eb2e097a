//! What is the matter with a server, in words that say what to check.

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{ClientOptions, ServerAddress, Tls};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limits of the first look, together less than five seconds: for a host to take a connection, for the driver to
/// get an answer, and for a look at what else the server may speak.
const KNOCK: Duration = Duration::from_millis(1200);
const PING: Duration = Duration::from_millis(2300);
const PLAIN: Duration = Duration::from_millis(1000);

/// Codes of MongoDB's errors (`src/mongo/base/error_codes.yml` in its source).
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;

/// Why a server does not serve us.
#[derive(Debug)]
pub enum Finding {
    /// It may do so later.
    Away(String),
    /// It will not, until somebody changes something.
    Refused(String),
}

impl Finding {
    /// Without the difference.
    pub fn into_words(self) -> String {
        match self {
            Finding::Away(words) | Finding::Refused(words) => words,
        }
    }
}

/// No answer in time.
pub fn silence(limit: Duration) -> Finding {
    Finding::Away(format!("no answer in {:.0} s: is the server overloaded, or the network cut?", limit.as_secs_f64()))
}

/// What an error of the driver means.
pub fn of_error(error: &Error) -> Finding {
    let check = "check user, password and authSource in MONGOURI";
    match &*error.kind {
        ErrorKind::Authentication { message, .. } => Finding::Refused(format!("login refused ({message}): {check}")),
        ErrorKind::Command(command) if command.code == AUTHENTICATION_FAILED => {
            Finding::Refused(format!("login refused ({}): {check}", command.message))
        }
        ErrorKind::Command(command) if command.code == UNAUTHORIZED => Finding::Refused(format!(
            "not allowed ({}): give a user in MONGOURI who has the role readWrite on this database",
            command.message
        )),
        ErrorKind::ServerSelection { message, .. } => {
            Finding::Away(format!("no server can be used: {}", cause(message)))
        }
        ErrorKind::Io(error) => Finding::Away(format!("the connection broke: {error}")),
        ErrorKind::InvalidArgument { message, .. } | ErrorKind::InvalidTlsConfig { message, .. } => {
            Finding::Refused(message.clone())
        }
        ErrorKind::Write(WriteFailure::WriteError(error)) => Finding::Away(error.message.clone()),
        kind => Finding::Away(kind.to_string()),
    }
}

/// A connection that was good before: the server may have been started again, and the next one may be good.
pub fn is_broken_connection(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. })
}

/// The driver tells the whole topology; what counts is the error of a server in it.
fn cause(message: &str) -> &str {
    let error = message.split_once("Error: Kind: ").map_or(message, |(_, error)| error);
    error.split(", labels: ").next().unwrap_or(error)
}

/// Asks a server that nobody talked to before whether it serves us there.
pub async fn ask(options: ClientOptions, counters: Collection<Document>) -> Result<(), Finding> {
    knock_at_all(&options.hosts).await?;
    let error = match timeout(PING, counters.find_one(doc! { "_id": -1_i64 })).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    if let Some(Finding::Refused(words)) = error.as_ref().map(of_error) {
        return Err(Finding::Refused(words));
    }
    let said = error.map_or_else(|| "no answer".to_owned(), |error| of_error(&error).into_words());
    if !matches!(options.tls, Some(Tls::Enabled(_))) {
        return Err(Finding::Away(format!(
            "it takes connections, and does not answer as a MongoDB does ({said}): is it one? If it wants TLS, add \
             tls=true to MONGOURI"
        )));
    }
    Err(Finding::Refused(if speaks_without_tls(options).await {
        "MONGOURI asks for TLS, and the server speaks without it: leave tls=true out, or turn TLS on at the server"
            .to_owned()
    } else {
        format!("TLS could not be agreed upon ({said}): check the server's certificate, and tlsCAFile in MONGOURI")
    }))
}

/// Whether the server answers a greeting in plain text. (No user or password is sent.)
async fn speaks_without_tls(mut options: ClientOptions) -> bool {
    options.tls = Some(Tls::Disabled);
    options.credential = None;
    let Ok(client) = mongodb::Client::with_options(options) else { return false };
    let admin = client.database("admin");
    match timeout(PLAIN, admin.run_command(doc! { "ping": 1 })).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => matches!(&*error.kind, ErrorKind::Command(_)), // a refusal, in MongoDB's words
        Err(_) => false,
    }
}

/// Whether any of the hosts takes a connection.
async fn knock_at_all(hosts: &[ServerAddress]) -> Result<(), Finding> {
    let mut knocks = JoinSet::new();
    for host in hosts {
        match host {
            ServerAddress::Tcp { host, port } => drop(knocks.spawn(knock(host.clone(), port.unwrap_or(27_017)))),
            _ => return Ok(()), // a socket on this machine: the driver will tell
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
    Err(Finding::Away(findings.join("; ")))
}

async fn knock(host: String, port: u16) -> Result<(), String> {
    let at = format!("{host}:{port}");
    match timeout(KNOCK, tokio::net::lookup_host((host.as_str(), port))).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(format!("the host name {host:?} is not known ({error}): check MONGOHOST")),
        Err(_) => return Err(format!("the name server does not say where {host:?} is: check MONGOHOST")),
    }
    match timeout(KNOCK, TcpStream::connect((host.as_str(), port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Err(format!(
            "nothing listens at {at} (connection refused): is mongod running there, for other hosts too (bindIp), and \
             is PORT right?"
        )),
        Ok(Err(error)) => Err(format!("{at} cannot be reached ({error}): is the host up, and MONGOHOST right?")),
        Err(_) => Err(format!("{at} does not answer: is the host up, or does a firewall stand in between?")),
    }
}
