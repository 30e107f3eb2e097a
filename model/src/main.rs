//! The long search: checks the rules, and finds the counter-example to each omitted rule.
//!
//! A numeric argument limits each search, in seconds; `--traces` prints the counter-examples step by step.
#![allow(clippy::print_stdout)]

use ringreel_model::check::{Outcome, counter_example, search, search_creations, search_runs};
use ringreel_model::creation::Creation;
use ringreel_model::model::Model;
use ringreel_model::rules::Rule;
use ringreel_model::runs::{self, Runs};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let limit = Duration::from_secs(args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(25));
    let traces = args.iter().any(|arg| arg == "--traces");
    let holds = the_rules_hold(limit);
    println!();
    let found = each_rule_is_needed(traces);
    if holds && found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn the_rules_hold(limit: Duration) -> bool {
    println!("{:<58} {:>10} {:>6} {:>7} {:>7}  violations", "configuration", "states", "depth", "s", "CPU s");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let searches: [(&str, Model); 8] = [
        ("1 committer, 1 manager", Model::new(1, 1, 2).keeping(0)),
        ("1 committer, 1 manager, power cuts", Model::new(1, 1, 2).with_power_cuts().keeping(0)),
        ("1 committer, 1 manager", Model::new(1, 1, 3).keeping(0)),
        ("2 committers, 1 manager", Model::new(2, 1, 3).keeping(0)),
        ("1 committer, 2 managers", Model::new(1, 2, 3).keeping(0)),
        ("1 committer, 1 manager, pruning", Model::new(1, 1, 3).keeping(0).pruning(0)),
        ("2 committers, 1 manager, pruning", Model::new(2, 1, 3).keeping(0).pruning(0)),
        ("1 committer, 1 manager, pruning, power cuts", Model::new(1, 1, 3).keeping(0).with_power_cuts().pruning(0)),
    ];
    let mut all = (0, 0.0, 0.0, true);
    for (name, model) in searches {
        let outcome = search(model, threads, Some(limit));
        let how = if outcome.complete { "complete" } else { "incomplete" };
        print(&format!("{name}, {} generations, {how}", model.generations), &outcome);
        all.0 += outcome.states;
        all.1 += outcome.seconds.0;
        all.2 += outcome.seconds.1;
        all.3 &= outcome.broken.is_empty();
    }
    let creation = search_creations(Creation { linked: true });
    print("creation of a ring, 2 creators, complete", &creation);
    let mut read = true;
    for keep in 0..2 {
        let outcome = search_runs(Runs { keep, without: None });
        print(&format!("2 workers of a run, KEEP {keep}, complete"), &outcome);
        read &= outcome.broken.is_empty();
    }
    println!("{:<58} {:>10} {:>6} {:>7.1} {:>7.1}", "total", all.0, "", all.1, all.2);
    all.3 && creation.broken.is_empty() && read
}

fn print(name: &str, outcome: &Outcome) {
    let (seconds, processor) = outcome.seconds;
    let broken: Vec<_> = outcome.broken.iter().map(|(promise, trace)| format!("{promise} ({})", trace.len())).collect();
    let broken = if broken.is_empty() { "0".to_owned() } else { broken.join(", ") };
    println!("{name:<58} {:>10} {:>6} {seconds:>7.1} {processor:>7.1}  {broken}", outcome.states, outcome.depth);
    for (promise, trace) in &outcome.broken {
        println!("  {promise}:");
        trace.iter().enumerate().for_each(|(n, step)| println!("  {:>3} {step}", n + 1));
    }
}

fn each_rule_is_needed(traces: bool) -> bool {
    println!("{:<80} {:<22} {:>5} {:>9}", "omitted rule", "broken", "steps", "states");
    let planted = Rule::ALL.iter().map(|rule| (rule.to_string(), counter_example(*rule)));
    let creations = [("ring.json is linked once".to_owned(), search_creations(Creation { linked: false }))];
    let readers =
        runs::Rule::ALL.iter().map(|rule| (rule.to_string(), search_runs(Runs { keep: 0, without: Some(*rule) })));
    let (mut found, mut all) = (0, 0);
    for (rule, outcome) in planted.chain(creations).chain(readers) {
        all += 1;
        let Some((promise, trace)) = outcome.broken.first() else {
            println!("{rule:<80} {:<22} {:>5} {:>9}", "NOT FOUND", "", outcome.states);
            continue;
        };
        found += 1;
        println!("{rule:<80} {promise:<22} {:>5} {:>9}", trace.len(), outcome.states);
        if traces {
            trace.iter().enumerate().for_each(|(n, step)| println!("  {:>3} {step}", n + 1));
        }
    }
    println!("planted: {found} of {all} found");
    found == all
}
