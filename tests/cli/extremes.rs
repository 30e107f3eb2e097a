//! Runs every numeric option of every subcommand with values that overflow, that are not numbers, or that request
//! more memory than the machine has.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use testkit::cli::{PATIENCE, Place, Running, Said, generate};

/// Value names in `--help` that stand for numbers.
const NUMBERS: [&str; 8] =
    ["<N>", "<RATE>", "<RATIO>", "<PIXELS>", "<BYTES>", "<SECONDS>", "<N,N,...>", "<[ADDR:]PORT>"];

const VALUES: [&str; 12] = [
    "-1",
    "0",
    "1e-300",
    "1e300",
    "inf",
    "nan",
    "1e19",
    "40000000000",
    "1000000000000",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// Each subcommand with numeric options, with the other arguments that it needs.
const COMMANDS: [&[&str]; 17] = [
    &["cat", "demo.ring", "--as", "json"],
    &["cat", "demo.ring", "--as", "png", "--part", "data"],
    &["doctor", "-c", "config.yaml"],
    &["export", "demo.ring", "-o", "out", "--force"],
    &["gc", "demo.ring"],
    &["generate", "--samples", "1", "--shape", "8"],
    &["import", "photos", "--part", "data=*.png", "--part", "label=*.png"],
    &["inspect", "demo.ring"],
    &["inspect", "demo.ring/read.1/000000.rec", "--hex"],
    &["metrics", "demo.ring", "--json"],
    &["pack", "--list", "train", "photos", "--force"],
    &["pack", "train", "photos", "--force"],
    &["preview", "demo.ring", "-o", "sheet.png"],
    &["read", "--timeout", "0.2"],
    &["report", "demo.ring", "-o", "report.html"],
    &["status", "demo.ring"],
    &["verify", "demo.ring"],
];

/// Returns the numeric options that `--help` lists.
fn options(help: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in help.lines().map(str::trim).filter(|line| line.starts_with('-')) {
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let name = words.iter().find(|word| word.starts_with("--"));
        if NUMBERS.iter().any(|number| line.contains(number)) {
            found.extend(name.map(|name| (*name).to_owned()));
        }
    }
    found
}

/// Runs the command to its end; sends SIGTERM if it has not ended after a moment.
fn run(place: &Place, args: &[&str]) -> Said {
    let mut running: Running = place.start(args);
    let begun = Instant::now();
    while running.is_running() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
        if begun.elapsed() > Duration::from_millis(500) {
            running.terminate();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    running.finish()
}

#[test]
fn extreme_numbers_never_panic_or_abort_a_command() {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\n");
    generate(&place.config(), 0..10);
    fs::create_dir(place.path().join("photos")).unwrap();
    place.run(&["preview", "demo.ring", "-o", "photos/a.png", "--samples", "1"]);
    place.run(&["pack", "--list", "train", "photos"]).ok();
    let mut tried = 0;
    for command in COMMANDS {
        for option in options(&place.run(&[command[0], "--help"]).ok().out) {
            for value in VALUES {
                // Passes the option last, because clap refuses an option that is given twice.
                let at = command.iter().position(|word| *word == option);
                let rest = command.iter().enumerate().filter(|(n, _)| at.is_none_or(|at| *n != at && *n != at + 1));
                let given = format!("{option}={value}");
                let args: Vec<&str> = rest.map(|(_, word)| *word).chain([given.as_str()]).collect();
                let said = run(&place, &args);
                let stopped = said.status.signal() == Some(15); // the signal came before the handler was installed
                assert!(stopped || said.code.is_some_and(|code| (0..=2).contains(&code)), "{args:?}: {said:?}");
                assert!(!said.err.contains("panicked") && !said.err.contains("overflow"), "{args:?}: {said:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 30 * VALUES.len(), "--help lists too few numeric options: {tried} runs");
}

#[test]
fn sample_larger_than_memory_is_refused_by_option_name() {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data]\n");
    let said = place.run(&["generate", "--samples", "1", "--shape", "1000000000000"]);
    assert!(said.code == Some(2) && said.err.contains("--shape") && said.err.contains("memory"), "{said:?}");
    let said = place.run(&["generate", "--rate", "1e-300"]);
    assert!(said.code == Some(2) && said.err.contains("--rate") && said.err.contains("0.000001"), "{said:?}");
    assert!(!place.ring().exists());
}
