//! Servers that speak MongoDB's protocol, one process each. `scripts/mongodb.sh` builds them.

use super::wire::Message;
use super::{free_port, wire};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const USER: &str = "trainer";
const PASSWORD: &str = "not-a-secret";
/// Each of these characters has a meaning in a connection string, or is not ASCII.
const ODD_USER: &str = "träiner@site";
const ODD_PASSWORD: &str = "n0t:a/s?cr#t@[%41] &=+$,;'€";
/// The socket at which the test waits for a TLS server, before any client connects.
const SOCKET: &str = "socket";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory; executes one command at a time.
    Good,
    /// In memory; its counter repeats numbers if several connections request one at the same time.
    Racy,
    /// On SQLite; its counters are worse, because findAndModify reads and then writes.
    FerretDb,
    /// The same, with a login.
    FerretDbWithUsers,
    /// Accepts only TLS, as `localhost` and 127.0.0.1, with a user and a password of unusual characters.
    FerretDbWithTls,
    /// The same, and requires a client certificate.
    FerretDbWithClientCertificates,
}

impl Kind {
    fn speaks_tls(self) -> bool {
        matches!(self, Kind::FerretDbWithTls | Kind::FerretDbWithClientCertificates)
    }

    /// User and password.
    fn login(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::FerretDbWithUsers => Some((USER, PASSWORD)),
            _ if self.speaks_tls() => Some((ODD_USER, ODD_PASSWORD)),
            _ => None,
        }
    }
}

/// A server on 127.0.0.1. It is killed when this is dropped, and when this process dies.
pub struct Server {
    kind: Kind,
    port: u16,
    process: Child,
    dir: TempDir,
}

impl Server {
    /// Starts an empty server on a free port.
    pub fn start(kind: Kind) -> Server {
        for _ in 0..4 {
            match Server::try_start(kind, free_port()) {
                Ok(server) => return server,
                // Another process took the port.
                Err(log) if log.contains("address already in use") || log.contains("BindException") => {}
                Err(log) => panic!("{log}"),
            }
        }
        panic!("each free port was taken before the server could bind it");
    }

    pub fn start_on(kind: Kind, port: u16) -> Server {
        Server::try_start(kind, port).unwrap_or_else(|log| panic!("{log}"))
    }

    /// The server for tests that need a correct one: the one that RINGREEL_TEST_MONGOURI names, or a new one.
    pub fn good() -> Good {
        match std::env::var("RINGREEL_TEST_MONGOURI") {
            Ok(uri) if !uri.is_empty() => Good { uri, server: None },
            _ => {
                let server = Server::start(Kind::Good);
                Good { uri: server.uri(), server: Some(server) }
            }
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Contains user and password, if the server has users.
    pub fn uri(&self) -> String {
        let (mut uri, address) = ("mongodb://".to_owned(), self.address());
        if self.kind.login().is_some() {
            uri += &format!("{}:{}@", Server::encoded(self.user()), Server::encoded(self.password()));
        }
        uri += &format!("{address}/?");
        if self.kind.login().is_some() {
            uri += "authSource=admin&";
        }
        if self.kind.speaks_tls() {
            uri += &format!("tls=true&tlsCAFile={}&", Server::tls_file("ca.pem"));
        }
        if self.kind == Kind::FerretDbWithClientCertificates {
            uri += &format!("tlsCertificateKeyFile={}&", Server::tls_file("client.pem"));
        }
        uri.pop();
        uri
    }

    /// A user in the database `admin`.
    pub fn user(&self) -> &str {
        self.kind.login().expect("this server has no users").0
    }

    pub fn password(&self) -> &str {
        self.kind.login().expect("this server has no users").1
    }

    /// `text` as it is encoded in a connection string.
    pub fn encoded(text: &str) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
    }

    /// The path of a file in `tests/mongodb/servers/tls`.
    pub fn tls_file(name: &str) -> String {
        format!("{}/../tests/mongodb/servers/tls/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    /// How many commands of each name the server got. For Good and Racy only.
    pub fn operations(&self) -> BTreeMap<String, u64> {
        let reply = wire::ask(self.port, "testOperations", PATIENCE).unwrap();
        let numbers = wire::numbers(&reply).expect("the server does not count");
        numbers.into_iter().filter_map(|(name, n)| Some((name.strip_prefix("counts.")?.to_owned(), n))).collect()
    }

    /// Sends SIGKILL, and waits until the server is dead.
    pub fn kill(self) {}

    /// Kills it, and starts it again on the same port, empty.
    pub fn restart_empty(&mut self) {
        end(&mut self.process);
        *self = Server::start_on(self.kind, self.port);
    }

    /// Its stdout and stderr.
    pub fn log(&self) -> String {
        read_log(self.dir.path())
    }

    /// Returns an error, with the server's log, if it exited or did not answer.
    fn try_start(kind: Kind, port: u16) -> Result<Server, String> {
        let dir = TempDir::with_prefix("ringreel-mongodb-").unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = match kind {
            Kind::Good => java(port, 1),
            Kind::Racy => java(port, 8),
            _ => ferretdb(port, kind, dir.path()),
        };
        let process = command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        let process = process.unwrap_or_else(|e| panic!("{kind:?} cannot be started ({e}): run scripts/mongodb.sh"));
        let mut server = Server { kind, port, process, dir };
        let begin = Instant::now();
        loop {
            let answer = match kind.speaks_tls() {
                true => ask_socket(&server.dir.path().join(SOCKET)),
                false => wire::ask(port, "isMaster", Duration::from_secs(1)).map(drop),
            };
            // Checked after the answer, because a server that could not bind the port exits, and another process
            // answered.
            if let Some(status) = server.process.try_wait().unwrap() {
                return Err(format!("{kind:?} on port {port} ended with {status}:\n{}", server.log()));
            }
            match answer {
                Ok(()) => return Ok(server),
                Err(e) if begin.elapsed() > PATIENCE => {
                    return Err(format!("{kind:?} on port {port} does not answer ({e}):\n{}", server.log()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A correct server: one that was started, or a given one.
pub struct Good {
    uri: String,
    server: Option<Server>,
}

impl Good {
    pub fn uri(&self) -> String {
        self.uri.clone()
    }

    /// None for a given server, which must not be killed or asked for its counts.
    pub fn server(&mut self) -> Option<&mut Server> {
        self.server.as_mut()
    }
}

fn end(process: &mut Child) {
    // Anything written to stdin ends the guard of a FerretDB, so that the guard does not kill a reused process id.
    if let Some(mut stdin) = process.stdin.take() {
        let _ = stdin.write_all(b"\n");
    }
    let _ = process.kill();
    let _ = process.wait();
}

fn java(port: u16, threads: u32) -> Command {
    let mut command = Command::new("java");
    // For a fast start.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"]);
    command.arg(format!("-Dio.netty.eventLoopThreads={threads}"));
    command.arg("-jar").arg(built("mongo-java-server.jar")).arg("--port").arg(port.to_string());
    command
}

fn ferretdb(port: u16, kind: Kind, dir: &Path) -> Command {
    // FerretDB does not read its stdin. A guard beside it does, and kills it when the stdin is closed without a
    // message, which means that the test process is dead. The shell becomes FerretDB, so that the child's id is
    // FerretDB's.
    const GUARDED: &str = r#"exec 3<&0; { read -r word <&3 || kill -KILL $$; } & exec "$@" 3<&- </dev/null"#;
    let mut command = Command::new("sh");
    command.args(["-c", GUARDED, "sh"]).arg(built("ferretdb"));
    if kind.speaks_tls() {
        command.arg("--listen-addr=").arg(format!("--listen-unix={}", dir.join(SOCKET).display()));
        command.arg(format!("--listen-tls=127.0.0.1:{port}"));
        command.arg(format!("--listen-tls-cert-file={}", Server::tls_file("server.pem")));
        command.arg(format!("--listen-tls-key-file={}", Server::tls_file("server-key.pem")));
    } else {
        command.arg(format!("--listen-addr=127.0.0.1:{port}"));
    }
    if kind == Kind::FerretDbWithClientCertificates {
        command.arg(format!("--listen-tls-ca-file={}", Server::tls_file("ca.pem")));
    }
    command.arg("--handler=sqlite").arg(format!("--sqlite-url=file:{}/", dir.display()));
    command.arg(format!("--state-dir={}", dir.display()));
    command.args(["--debug-addr=-", "--telemetry=disable", "--log-level=WARN"]);
    if let Some((user, password)) = kind.login() {
        command.args(["--test-enable-new-auth", "--setup-database=admin"]);
        command.arg(format!("--setup-username={user}")).arg(format!("--setup-password={password}"));
    }
    command
}

/// Whether a server answers on its Unix socket, which it does once all its ports are open.
fn ask_socket(path: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    Message::command("isMaster").write(&mut stream)?;
    Message::read(&mut stream)?.map(drop).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn built(name: &str) -> PathBuf {
    let path = testkit::workspace().join("target/servers").join(name);
    assert!(path.exists(), "{} is missing: run scripts/mongodb.sh", path.display());
    path
}

fn read_log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}
