//! Servers that speak MongoDB's protocol, one process each. `scripts/mongodb.sh` builds them.

use super::{free_port, wire};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const USER: &str = "trainer";
const PASSWORD: &str = "not-a-secret";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory. It does one command after the other.
    Good,
    /// In memory. A counter hands out numbers twice when several connections ask for one at a time.
    Racy,
    /// On SQLite. Its counters are worse: findAndModify reads, and then writes.
    FerretDb,
    /// The same, and it wants to know who asks.
    FerretDbWithUsers,
}

/// A server on 127.0.0.1. It is killed when this is dropped, and also when this process dies without that.
pub struct Server {
    kind: Kind,
    port: u16,
    process: Child,
    dir: TempDir,
}

impl Server {
    /// On a free port, and empty.
    pub fn start(kind: Kind) -> Server {
        for _ in 0..4 {
            match Server::try_start(kind, free_port()) {
                Ok(server) => return server,
                // Somebody else was quicker.
                Err(log) if log.contains("address already in use") || log.contains("BindException") => {}
                Err(log) => panic!("{log}"),
            }
        }
        panic!("each port that was free was in use a moment later");
    }

    pub fn start_on(kind: Kind, port: u16) -> Server {
        Server::try_start(kind, port).unwrap_or_else(|log| panic!("{log}"))
    }

    /// The server that tests of what shall work run against: the one that RINGREEL_TEST_MONGOURI names, or one that is
    /// started for them.
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

    /// With user and password, where the server has users.
    pub fn uri(&self) -> String {
        match self.kind {
            Kind::FerretDbWithUsers => format!("mongodb://{USER}:{PASSWORD}@{}/?authSource=admin", self.address()),
            _ => format!("mongodb://{}", self.address()),
        }
    }

    /// A user in the database `admin`.
    pub fn user(&self) -> &str {
        assert_eq!(self.kind, Kind::FerretDbWithUsers, "this server has no users");
        USER
    }

    pub fn password(&self) -> &str {
        assert_eq!(self.kind, Kind::FerretDbWithUsers, "this server has no users");
        PASSWORD
    }

    /// How many commands of each name the server was asked for so far. Good and Racy only.
    pub fn operations(&self) -> BTreeMap<String, u64> {
        let reply = wire::ask(self.port, "testOperations", PATIENCE).unwrap();
        let numbers = wire::numbers(&reply).expect("the server does not count");
        numbers.into_iter().filter_map(|(name, n)| Some((name.strip_prefix("counts.")?.to_owned(), n))).collect()
    }

    /// SIGKILL. It is dead when this returns.
    pub fn kill(self) {}

    /// Kills it, and starts it again on the same port, without anything that it held.
    pub fn restart_empty(&mut self) {
        end(&mut self.process);
        *self = Server::start_on(self.kind, self.port);
    }

    /// What it wrote to stdout and stderr.
    pub fn log(&self) -> String {
        read_log(self.dir.path())
    }

    /// Err: it ended, or did not answer. The text says why, with its log.
    fn try_start(kind: Kind, port: u16) -> Result<Server, String> {
        let dir = TempDir::with_prefix("ringreel-mongodb-").unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = match kind {
            Kind::Good => java(port, 1),
            Kind::Racy => java(port, 8),
            Kind::FerretDb | Kind::FerretDbWithUsers => ferretdb(port, kind, dir.path()),
        };
        let process = command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        let process = process.unwrap_or_else(|e| panic!("{kind:?} cannot be started ({e}): run scripts/mongodb.sh"));
        let mut server = Server { kind, port, process, dir };
        let begin = Instant::now();
        loop {
            let answer = wire::ask(port, "isMaster", Duration::from_secs(1));
            // Looked at after the answer: one that could not have the port is gone, and somebody else answered.
            if let Some(status) = server.process.try_wait().unwrap() {
                return Err(format!("{kind:?} on port {port} ended with {status}:\n{}", server.log()));
            }
            match answer {
                Ok(_) => return Ok(server),
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

/// A server that keeps what MongoDB promises: one that was started, or one that was given.
pub struct Good {
    uri: String,
    server: Option<Server>,
}

impl Good {
    pub fn uri(&self) -> String {
        self.uri.clone()
    }

    /// None: it was given, and may be neither killed nor asked for its counts.
    pub fn server(&mut self) -> Option<&mut Server> {
        self.server.as_mut()
    }
}

fn end(process: &mut Child) {
    // Anything written to stdin ends the guard of a FerretDB, which must not kill by an id that is free again.
    if let Some(mut stdin) = process.stdin.take() {
        let _ = stdin.write_all(b"\n");
    }
    let _ = process.kill();
    let _ = process.wait();
}

fn java(port: u16, threads: u32) -> Command {
    let mut command = Command::new("java");
    // For a quick start.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"]);
    command.arg(format!("-Dio.netty.eventLoopThreads={threads}"));
    command.arg("-jar").arg(built("mongo-java-server.jar")).arg("--port").arg(port.to_string());
    command
}

fn ferretdb(port: u16, kind: Kind, dir: &Path) -> Command {
    // FerretDB does not look at its stdin: something beside it does, and kills it when that is closed without a word,
    // since whoever held it is dead. The shell becomes FerretDB, so that the child's id is FerretDB's.
    const GUARDED: &str = r#"exec 3<&0; { read -r word <&3 || kill -KILL $$; } & exec "$@" 3<&- </dev/null"#;
    let mut command = Command::new("sh");
    command.args(["-c", GUARDED, "sh"]).arg(built("ferretdb"));
    command.arg(format!("--listen-addr=127.0.0.1:{port}"));
    command.arg("--handler=sqlite").arg(format!("--sqlite-url=file:{}/", dir.display()));
    command.arg(format!("--state-dir={}", dir.display()));
    command.args(["--debug-addr=-", "--telemetry=disable", "--log-level=WARN"]);
    if kind == Kind::FerretDbWithUsers {
        command.args(["--test-enable-new-auth", "--setup-database=admin"]);
        command.arg(format!("--setup-username={USER}")).arg(format!("--setup-password={PASSWORD}"));
    }
    command
}

fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers").join(name);
    assert!(path.exists(), "{} is missing: run scripts/mongodb.sh", path.display());
    path
}

fn read_log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}
