//! A short search, and the counter-example to each omitted rule. For the long search, run `cargo run --release
//! --package ringreel-model`.
#![allow(clippy::unwrap_used, missing_docs)]

use ringreel_model::check::{Outcome, counter_example, search, search_creations, search_runs};
use ringreel_model::creation::Creation;
use ringreel_model::model::Model;
use ringreel_model::rules::Rule;
use ringreel_model::runs::{self, Runs};
use std::time::Duration;

fn holds(outcome: &Outcome, at_least: usize) {
    assert!(outcome.broken.is_empty(), "{:#?}", outcome.broken);
    assert!(outcome.complete && outcome.states >= at_least, "{} states", outcome.states);
}

#[test]
fn rules_hold_for_an_owner_a_manager_and_successors() {
    holds(&search(Model::new(1, 1, 1).keeping(0), 2, None), 1_000);
}

/// An incomplete search of configurations with two generations or two managers.
#[test]
fn rules_hold_for_a_while_with_more_managers() {
    for model in [Model::new(1, 1, 2), Model::new(1, 2, 2)] {
        // A busy machine gets more time for the same number of states.
        let enough = [6, 24, 96].into_iter().any(|seconds| {
            let outcome = search(model.keeping(0), 2, Some(Duration::from_secs(seconds)));
            assert!(outcome.broken.is_empty(), "{:#?}", outcome.broken);
            outcome.states > 30_000
        });
        assert!(enough, "the search sees too few states");
    }
}

#[test]
fn rules_hold_under_power_cuts() {
    holds(&search(Model::new(1, 1, 1).with_power_cuts().keeping(0), 2, None), 1_000);
}

#[test]
fn concurrent_creators_agree_on_the_ring() {
    holds(&search_creations(Creation { linked: true }), 10);
    assert!(!search_creations(Creation { linked: false }).broken.is_empty());
}

#[test]
fn readers_skip_nothing_and_pinned_generations_stay() {
    for keep in 0..2 {
        holds(&search_runs(Runs { keep, without: None }), 10_000);
    }
    for rule in runs::Rule::ALL {
        let outcome = search_runs(Runs { keep: 0, without: Some(rule) });
        assert!(!outcome.broken.is_empty(), "no violation without: {rule}");
    }
}

#[test]
fn each_rule_is_needed() {
    for rule in Rule::ALL {
        let outcome = counter_example(*rule);
        assert!(!outcome.broken.is_empty(), "no violation without: {rule}");
        let (promise, trace) = &outcome.broken[0];
        assert_eq!(*promise, rule.breaks().0.name());
        assert!(trace.len() < 80, "{rule}: {trace:#?}");
    }
}
