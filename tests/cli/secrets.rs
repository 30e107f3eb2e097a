//! The configuration's password appears in no output, log or file.

use std::fs;
use std::net::TcpListener;
use testkit::cli::{self, Place, generate, listing};

const SECRET: &str = "s3cr3tWord";
const YAML: &str = "SWAP_CAP: 2\nSAMPLE: [data, label]\nPOLL_SECONDS: 0.01\nLEASE_SECONDS: 0.5\n";

/// Every subcommand that takes a configuration. Their results do not matter here.
const COMMANDS: [&[&str]; 27] = [
    &["config"],
    &["config", "--json"],
    &["status"],
    &["status", "--json"],
    &["manager", "-v"],
    &["generate", "--samples", "1", "--shape", "10"],
    &["read", "--all", "-v"],
    &["read", "--all", "--json"],
    &["read", "--replay"],
    &["read", "--generations", "1", "--run", "r", "--timeout", "1"],
    &["promote"],
    &["promote", "--json"],
    &["top", "--once"],
    &["metrics"],
    &["metrics", "--json"],
    &["metrics", "--prometheus"],
    &["metrics", "-o", "metrics.prom"],
    &["report", "-o", "report.html"],
    &["report", "--json", "-o", "report2.html"],
    &["repair"],
    &["repair", "--json"],
    &["repair", "--apply"],
    &["gc", "--apply"],
    &["index", "show"],
    &["index", "show", "--json"],
    &["index", "move", "--to", "files"],
    &["doctor", "--json"],
];

#[test]
fn passwords_are_in_no_output_and_no_file() {
    // Nothing listens on one port; a listener on the other sends what no MongoDB server would.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let places = [
        format!(
            "MONGOURI: 'mongodb://me:{SECRET}@127.0.0.1:{closed}/admin?appName={SECRET}&serverSelectionTimeoutMS=200'"
        ),
        format!("MONGOURI: 'mongodb://me:{SECRET}/@127.0.0.1:{closed}'"),
        format!("MONGOHOST: 'me:{SECRET}@127.0.0.1'\nPORT: {closed}"),
    ];
    for mongo in places {
        let place = Place::verbatim(&format!("DBNAME: demo\nINDEX: files\n{YAML}"));
        generate(&place.config(), 0..2);
        place.configure(&format!("DBNAME: demo\n{YAML}{mongo}\n"));
        let mut answered = 0;
        std::thread::scope(|scope| {
            let run = |args: &'static [&'static str]| {
                let mut command = place.command(args);
                command.args(["-c", "config.yaml"]).env("RINGREEL_LOG", "trace").env("RUST_BACKTRACE", "1");
                (args, cli::Running::start(command).finish())
            };
            // Each waits for the server; they run at the same time.
            let all: Vec<_> = COMMANDS.iter().map(|args| scope.spawn(move || run(args))).collect();
            for done in all {
                let (args, said) = done.join().unwrap();
                assert!(!format!("{}{}", said.out, said.err).contains(SECRET), "{args:?}: {said:?}");
                assert!(!said.err.contains("unexpected argument"), "{args:?}: {said:?}");
                answered += usize::from(said.err.contains("MongoDB") || said.out.contains("***"));
            }
        });
        assert!(answered > 2, "too few outputs name the server without its password: {answered}");
        fs::remove_file(place.path().join("config.yaml")).unwrap();
        for (path, (_, contents)) in listing(place.path()) {
            let there = contents.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!there && !path.to_string_lossy().contains(SECRET), "{}", path.display());
        }
        for report in ["report.html", "report2.html"] {
            // An invalid connection string makes the command fail earlier.
            assert!(place.path().join(report).exists() || mongo.contains("/@"), "{report} was not written");
        }
    }
}
