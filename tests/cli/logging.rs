//! How much the roles log, with which time stamps, and that log lines do not tear progress bars.

use std::process::Command;
use std::time::Instant;
use testkit::cli::{Place, Running, eventually, loudly};

const YAML: &str = "SWAP_CAP: 5\nSAMPLE: [data]\n";
const SAMPLES: &str = "400";

/// Returns whether a line begins with a time stamp such as `2026-11-23T21:06:50.123Z`.
fn has_iso_time(line: &str) -> bool {
    let pattern = "0000-00-00T00:00:00.000Z ";
    line.len() > pattern.len()
        && pattern.bytes().zip(line.bytes()).all(|(wanted, found)| match wanted {
            b'0' => found.is_ascii_digit(),
            other => found == other,
        })
}

/// Checks for the first and last line, and for at most one line per minute in between.
fn check_log(err: &str, begun: Instant, first: &str, last: &str) {
    let lines: Vec<&str> = err.lines().collect();
    let most = 3 + begun.elapsed().as_secs() / 60;
    assert!(lines.iter().all(|line| has_iso_time(line)), "{err}");
    assert!(lines.len() as u64 <= most, "{} lines, {most} are expected: {err}", lines.len());
    assert!(lines[0].contains(first) && lines.last().unwrap().contains(last), "{err}");
}

#[test]
fn generator_without_manager_logs_start_and_end() {
    let (place, begun) = (Place::new(YAML), Instant::now());
    let said = place.run(&["generate", "--samples", SAMPLES, "--shape", "8"]).ok();
    check_log(&said.err, begun, "started", "400 samples finished, 400 readable, 80 swaps");
}

#[test]
fn generator_and_manager_log_start_and_end_only() {
    let (place, begun) = (Place::new(YAML), Instant::now());
    let mut manager = place.start(&["manager", "-c", "config.yaml"]);
    manager.await_err("this manager holds the lease");
    let said = place.run(&["generate", "--samples", SAMPLES, "--shape", "8", "--promote"]).ok();
    check_log(&said.err, begun, "started", "400 samples finished, 400 readable");
    manager.terminate();
    eventually("the manager ends", || !manager.is_running());
    check_log(&manager.finish().ok().err, begun, "holds the lease", "the manager stopped after");
}

/// Needs `script` (util-linux) for a terminal.
#[test]
fn log_lines_do_not_tear_the_progress_bar() {
    if Command::new("script").arg("--version").output().is_err() {
        loudly("SKIPPED: log_lines_do_not_tear_the_progress_bar: `script` is missing (package util-linux)");
        return;
    }
    let place = Place::new(YAML);
    let run = format!("{} generate --samples 100 --shape 8 --rate 100", testkit::binary());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &run, "/dev/null"]).current_dir(place.path()).env("RINGREEL_LOG", "debug");
    let said = {
        terminal.env("NO_COLOR", "1").env("TERM", "xterm");
        Running::start(terminal)
    }
    .finish()
    .ok();
    let times = said.out.match_indices("-").filter_map(|(at, _)| at.checked_sub(4));
    let lines: Vec<usize> = times.filter(|at| said.out.get(*at..).is_some_and(has_iso_time)).collect();
    assert!(lines.len() > 10 && said.out.contains("generating"), "{said:?}");
    for at in lines {
        // A log line begins after a line feed, a carriage return, or the sequence that clears the line.
        let before = &said.out[..at];
        assert!(
            before.is_empty() || before.ends_with(['\n', '\r', 'K']),
            "{:?}",
            &said.out[at.saturating_sub(80)..at + 40]
        );
    }
}

#[test]
fn manager_reports_a_removed_ring_once() {
    const REMOVED: &str = "it was removed while this process worked in it";
    let place = Place::new(YAML);
    let mut manager = place.start(&["manager", "-c", "config.yaml"]);
    manager.await_err("this manager holds the lease");
    std::fs::rename(place.ring(), place.path().join("moved")).unwrap();
    manager.await_err(REMOVED);
    manager.terminate(); // it may have exited already
    eventually("the manager ends", || !manager.is_running());
    let said = manager.finish();
    assert_eq!(said.err.matches(REMOVED).count(), 1, "{said:?}");
    assert!(!place.ring().exists(), "the manager recreated a part of the ring");
}
