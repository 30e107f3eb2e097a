//! `ringreel metrics`

use super::RingArgs;
use super::http::{Answer, serve};
use super::output::{file_of, json_text, line, may_write, refused, replace};
use super::signals::{Stop, interval};
use anyhow::Context;
use clap::Args;
use ringreel::config::Config;
use ringreel::unix_ms;
use ringreel_ops::metrics::{json, json_of_failure, prometheus};
use ringreel_ops::monitor::Watcher;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `ringreel metrics`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel metrics demo.ring                   print metrics once, in Prometheus format
  ringreel metrics demo.ring --json --every 2  print a JSON line every two seconds
  ringreel metrics -c config.yaml --json --every 10 -o ring.jsonl
                                               append a JSON line every ten seconds
  ringreel metrics -c config.yaml --every 15 -o /var/lib/node_exporter/ring.prom
                                               feed the textfile collector of node_exporter
  ringreel metrics -c config.yaml --listen 9464  serve http://127.0.0.1:9464/metrics for Prometheus

With --every or --listen, an unreachable ring is reported as ringreel_up 0, or as a JSON line with
the key \"error\".")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Use the Prometheus text format, which is the default
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Repeat at this interval until Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    every: Option<Duration>,
    /// Write to this file: Prometheus text replaces it, JSON lines are appended; `-` means stdout [default: -]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Serve /metrics (Prometheus text) and /json over HTTP; ADDR defaults to 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address, conflicts_with_all = ["json", "output", "every"])]
    listen: Option<SocketAddr>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    text.parse().or_else(|_| text.parse().map(local)).map_err(|_| "expected ADDRESS:PORT or a port".to_owned())
}

/// Number of swaps over which averages are taken.
const SWAPS: usize = 64;
/// Requests within this time after an observation get that observation.
const FRESH: Duration = Duration::from_secs(1);

/// Prints or writes metrics once, repeatedly, or on request.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    let config = options.ring.config()?;
    let file = file_of(options.output.as_deref());
    if options.every.is_some() && file.is_none() && !options.ring.common.json {
        return Ok(refused("--every in Prometheus format needs a file: add -o PATH, or use --listen PORT or --json"));
    }
    if let Some(path) = file
        && let Err(error) = may_write(path, &config.ring)
    {
        return Ok(refused(&format!("{error:#}")));
    }
    let mut teller = Teller::new(config, options.every);
    if let Some(address) = options.listen {
        return listen(teller, address);
    }
    let Some(every) = options.every else {
        teller.look()?;
        put(options, &teller)?;
        return Ok(0);
    };
    let stop = Stop::on_signals()?;
    let mut has_written = false;
    loop {
        if let Err(error) = teller.look() {
            tracing::warn!("{error}");
        }
        match put(options, &teller) {
            // The file was writable before, so the error may be transient, such as a full disk.
            Err(error) if has_written && file.is_some() => tracing::warn!("{error:#}"),
            done => done?,
        }
        has_written = true;
        if stop.sleep(every) {
            return Ok(0);
        }
    }
}

/// Observes a ring, and formats the last observation.
struct Teller {
    watcher: Watcher,
    name: String,
    every: f64,
    seen: Result<ringreel_ops::monitor::Observation, String>,
}

impl Teller {
    fn new(config: Config, every: Option<Duration>) -> Teller {
        let (name, every) = (config.name.clone(), every.map_or(0.0, |every| every.as_secs_f64()));
        Teller { watcher: Watcher::new(config, SWAPS), name, every, seen: Err("not observed yet".to_owned()) }
    }

    fn look(&mut self) -> ringreel::Result<()> {
        let (seen, done) = match self.watcher.look() {
            Ok(look) => (Ok(look), Ok(())),
            Err(error) => (Err(error.to_string()), Err(error)),
        };
        self.seen = seen;
        done
    }

    fn json(&self) -> String {
        match &self.seen {
            Ok(look) => json_text(&json(look, &self.name, self.every)),
            Err(message) => json_text(&json_of_failure(&self.watcher.place(), unix_ms(), message)),
        }
    }

    fn prometheus(&self) -> String {
        match &self.seen {
            Ok(look) => prometheus::text(look),
            Err(_) => prometheus::text_of_failure(&self.watcher.place()),
        }
    }
}

fn put(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    match (file_of(options.output.as_deref()), options.ring.common.json) {
        (None, true) => Ok(line(&teller.json())?),
        (None, false) => Ok(io::stdout().write_all(teller.prometheus().as_bytes())?),
        (Some(path), true) => append(path, &teller.json()),
        (Some(path), false) => replace(path, &teller.prometheus()),
    }
    .and_then(|()| Ok(io::stdout().flush()?))
}

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || OpenOptions::new().append(true).create(true).open(path)?.write_all(format!("{text}\n").as_bytes());
    write().with_context(|| path.display().to_string())
}

fn listen(mut teller: Teller, address: SocketAddr) -> anyhow::Result<i32> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    let stop = Stop::on_signals()?;
    tracing::info!("serving http://{}/metrics", listener.local_addr()?);
    let mut looked: Option<Instant> = None;
    serve(listener, stop, move |path| {
        let page: fn(&Teller) -> Answer = match path {
            "/metrics" => |t| Answer { content_type: prometheus::CONTENT_TYPE, body: t.prometheus() },
            "/json" => |t| Answer { content_type: "application/json", body: t.json() + "\n" },
            _ => return None,
        };
        if looked.is_none_or(|at| at.elapsed() >= FRESH) {
            if let Err(error) = teller.look() {
                tracing::warn!("{error}");
            }
            looked = Some(Instant::now());
        }
        Some(page(&teller))
    })?;
    Ok(0)
}
