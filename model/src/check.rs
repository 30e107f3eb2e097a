//! The search: visits every reachable state, breadth first, and checks every property in it.

use crate::creation::Creation;
use crate::model::{Model, Move};
use crate::rules::{Promise, Rule};
use crate::runs::Runs;
use crate::state::{FULL, NAMES, OUT, Staged, State, THERE};
use stateright::{Checker, HasDiscoveries, Property};
use std::time::{Duration, Instant};

impl stateright::Model for Model {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        vec![State::born(self.power)]
    }

    fn actions(&self, state: &State, moves: &mut Vec<Move>) {
        self.moves(state, moves);
    }

    fn next_state(&self, _: &State, step: Move) -> Option<State> {
        Some(step.to)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = [
            (Promise::NotLost, not_lost as fn(&Model, &State) -> bool),
            (Promise::Once, |_, state| state.manifest.iter().map(|m| (m & NAMES).count_ones()).sum::<u32>() <= 1),
            (Promise::ManifestStays, |_, state| !state.marks.changed),
            (Promise::InOrder, |_, state| state.manifest[..usize::from(state.newest())].iter().all(|m| m & OUT != 0)),
            (Promise::SealedOnly, sealed_only),
            (Promise::ListedIsThere, listed_is_there),
            (Promise::ListedOnly, |_, state| !state.marks.unlisted),
            (Promise::DiskBound, disk_bound),
            (Promise::Delivered, Model::ends_well),
        ];
        let broken = self.without.map(|rule| rule.breaks().0);
        let wanted = all.into_iter().filter(|(promise, _)| broken.is_none_or(|broken| broken == *promise));
        wanted.map(|(promise, holds)| Property::always(promise.name(), holds)).collect()
    }
}

/// The segment is listed, or has a name from which it will be: in staging, or in a generation that is not listed yet.
fn not_lost(_: &Model, state: &State) -> bool {
    let newest = state.newest();
    let next = usize::from(newest) + 1;
    let linked = || state.write[next..].iter().chain(&state.read[next..]).any(|dir| dir & NAMES != 0);
    !state.finished || state.staged == Staged::Sealed || state.listed(newest).is_some() || linked()
}

/// A `.part` file is not listed. (After a power cut, a complete file may have that name again.)
fn sealed_only(_: &Model, state: &State) -> bool {
    state.staged != Staged::Part || state.disk.bytes || state.listed(state.newest()).is_none()
}

fn listed_is_there(model: &Model, state: &State) -> bool {
    let newest = usize::from(state.newest());
    let oldest = newest.saturating_sub(usize::from(model.keep));
    (oldest..=newest).all(|n| state.manifest[n] & NAMES & !state.read[n] == 0)
}

fn disk_bound(model: &Model, state: &State) -> bool {
    let full = state.write.iter().chain(&state.read).filter(|dir| *dir & FULL != 0).count();
    // A directory that a late call recreated contains only links to staged files, which take no space.
    let next = usize::from(state.newest()) + 1;
    let fills = |n: &usize| state.read[*n] & THERE == 0;
    let filling = (next..state.write.len()).find(fills).map_or(0, |n| state.write[n]);
    let filling = usize::from(filling & (THERE | FULL) == THERE);
    // A power cut may bring back a generation that was just removed. (This takes three promotions.)
    let back = usize::from(model.power && model.generations > 2);
    full + filling + usize::from(state.trash) <= usize::from(model.keep) + 3 + back
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The number of distinct states.
    pub states: usize,
    /// The maximum over all states of the shortest number of steps to it.
    pub depth: usize,
    /// Whether all reachable states were visited.
    pub complete: bool,
    /// Wall time and CPU time.
    pub seconds: (f64, f64),
    /// Violated properties, with a trace for each.
    pub broken: Vec<(&'static str, Vec<String>)>,
}

/// Searches all states, or until `limit`.
pub fn search(model: Model, threads: usize, limit: Option<Duration>) -> Outcome {
    let explain = |path: Vec<(State, Option<Move>)>| {
        let steps = path.into_iter().filter_map(|(_, step)| step);
        steps.map(|step| format!("{:<75} | {}", step.to_string(), step.to)).collect()
    };
    run(model, threads, limit, explain)
}

/// Searches the creation of a ring.
pub fn search_creations(creation: Creation) -> Outcome {
    let explain = |path: Vec<(_, Option<_>)>| path.into_iter().filter_map(|(_, step)| step).collect();
    run(creation, 1, None, explain)
}

/// Searches the readers of a run.
pub fn search_runs(runs: Runs) -> Outcome {
    let explain =
        |path: Vec<(_, Option<(String, _)>)>| path.into_iter().filter_map(|(_, step)| Some(step?.0)).collect();
    run(runs, 1, None, explain)
}

fn run<M>(model: M, threads: usize, limit: Option<Duration>, explain: impl Fn(Path<M>) -> Vec<String>) -> Outcome
where
    M: stateright::Model + Send + Sync + 'static,
    M::State: Clone + std::hash::Hash + PartialEq + Send + Sync + std::fmt::Debug + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let (started, processor) = (Instant::now(), processor_seconds());
    let mut builder = model.checker().threads(threads).finish_when(HasDiscoveries::Any);
    if let Some(limit) = limit {
        builder = builder.timeout(limit);
    }
    let checker = builder.spawn_bfs().join();
    let seconds = (started.elapsed().as_secs_f64(), processor_seconds() - processor);
    let discoveries = checker.discoveries().into_iter();
    let broken: Vec<_> = discoveries.map(|(promise, path)| (promise, explain(path.into_vec()))).collect();
    let complete = broken.is_empty() && limit.is_none_or(|limit| started.elapsed() < limit);
    Outcome { states: checker.unique_state_count(), depth: checker.max_depth(), complete, seconds, broken }
}

type Path<M> = Vec<(<M as stateright::Model>::State, Option<<M as stateright::Model>::Action>)>;

/// The CPU time of this process, or 0 if unknown.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / 100.0 // in units of 1/100 s (proc(5), USER_HZ)
}

/// The counter-example to omitting a rule: the violated property, and the steps that lead there.
pub fn counter_example(rule: Rule) -> Outcome {
    let (_, committers, managers, power) = rule.breaks();
    let mut model = Model::new(committers, managers, if power { 2 } else { 4 }).without(rule);
    model.stale = 4;
    if rule.is_of_pruning() {
        (model, model.generations) = (model.keeping(0).pruning(0), 3);
    }
    search(if power { model.with_power_cuts().keeping(0) } else { model }, 1, None)
}
