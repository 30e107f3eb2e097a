//! `ringreel status`

use super::RingArgs;
use super::output::{json_line, line, plain};
use super::signals::{Stop, interval};
use crate::render::status as render;
use clap::Args;
use ringreel::unix_ms;
use ringreel_ops::metrics::json_of_failure;
use ringreel_ops::monitor::Watcher;
use ringreel_ops::status::status;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Arguments of `ringreel status`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel status -c config.yaml               show the status once
  ringreel status demo.ring --watch            refresh it every 2 seconds until Ctrl-C
  ringreel status demo.ring --watch 10 --json  print a JSON line every ten seconds

In a terminal, `ringreel top` shows more.")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Refresh at this interval until Ctrl-C; 2 if no number is given
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = interval)]
    watch: Option<Duration>,
}

/// Prints the status once, or repeatedly with `--watch`.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    if let Some(interval) = options.watch {
        return watch(options, interval);
    }
    let ring = options.ring.look()?;
    let mut status = status(&ring)?;
    options.ring.forget_guesses(&mut status);
    if options.ring.common.json {
        json_line(&serde_json::to_value(&status)?)?;
    } else {
        for text in render::lines(&status) {
            line(&text)?;
        }
    }
    Ok(0)
}

/// Prints the status until a signal. A missing or unreachable ring is reported each time, because it may appear.
fn watch(options: &Options, interval: Duration) -> anyhow::Result<i32> {
    let mut watcher = Watcher::new(options.ring.config()?, 1);
    let stop = Stop::on_signals()?;
    let json = options.ring.common.json;
    loop {
        let seen = watcher.look().map(|look| {
            let mut status = look.status;
            options.ring.forget_guesses(&mut status);
            status
        });
        match seen {
            Ok(status) if json => json_line(&serde_json::to_value(&status)?)?,
            Err(error) if json => json_line(&json_of_failure(&watcher.place(), unix_ms(), &error.to_string()))?,
            Ok(status) => show(render::lines(&status))?,
            Err(error) => show(vec![plain(&error.to_string()), "retrying".to_owned()])?,
        }
        if stop.sleep(interval) {
            return Ok(0);
        }
    }
}

/// Replaces the previous output on a terminal, cut to its size; elsewhere appends.
fn show(lines: Vec<String>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let text = lines.join("\n");
    if !out.is_terminal() {
        writeln!(out, "{text}\n")?;
        return out.flush();
    }
    let (width, height) = ratatui::crossterm::terminal::size().unwrap_or((80, 24));
    let (begin, end) = ("\x1b[H", "\x1b[J"); // move to the upper left corner; clear the rest
    write!(out, "{begin}")?;
    for line in text.lines().take(height.saturating_sub(1).into()) {
        let line: String = line.chars().take(width.into()).collect();
        write!(out, "{line}\x1b[K\r\n")?;
    }
    write!(out, "{end}")?;
    out.flush()
}
