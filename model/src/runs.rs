//! Readers of a run, and the generations kept for them, with clients that cache absent names: `Stream::plan_of`,
//! `Ring::pins_of_runs`, `affordable_pins`, `retirable` and `prune_manifests`.
//!
//! Two workers follow the log of one run. A manager queries pins, step by step, and reclaims; another one prunes
//! manifests. If the rule that revalidates is omitted, a lookup of an existing name may be answered "absent".

use crate::rules::Promise;
use ringreel::layout::GenerationDir;
use ringreel::swap::reclaim::is_old;
use stateright::Property;
use std::fmt;

/// The number of promoted generations.
const GENERATIONS: u8 = 4;
/// The number of epochs of the run.
const EPOCHS: usize = 3;

/// A rule of readers and pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// For a worker, before it skips a generation.
    GenerationAskedAgain,
    /// For a manager that reads the notes of runs.
    NotesAskedAgain,
    /// For a manager that checks whether a pinned generation exists.
    PinnedAskedAgain,
    /// For a manager that prunes manifests.
    RootOpenedFirst,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 4] =
        [Rule::GenerationAskedAgain, Rule::NotesAskedAgain, Rule::PinnedAskedAgain, Rule::RootOpenedFirst];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::GenerationAskedAgain => "a reader opens the ring's directory before it considers read.<n> absent",
            Rule::NotesAskedAgain => "a manager opens the folders of notes before it considers a note absent",
            Rule::PinnedAskedAgain => {
                "a manager opens the ring's directory before it considers a pinned read.<n> absent"
            }
            Rule::RootOpenedFirst => "pruning opens the ring's directory before it considers read.<n> absent",
        })
    }
}

/// Two workers, and the managers.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The number of older generations that are kept.
    pub keep: u8,
    /// The omitted rule.
    pub without: Option<Rule>,
}

/// The state of a worker: its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    /// Records that it has finished this many epochs.
    Arrive,
    /// Looks up or decides the generation of its next epoch.
    Decide,
    /// Checks whether the generation and its manifest exist.
    Plan,
    /// Reads the generation.
    Read,
}

/// The state of the manager that reclaims: its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manager {
    /// Lists the manifests.
    Idle,
    /// Reads the notes of the run.
    Notes,
    /// Checks whether the pinned generations exist.
    Pinned,
    /// Moves old generations without pins to `trash/`.
    Retire,
}

/// The whole state. Sets of generations are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    newest: u8,
    there: u8,
    pruned: u8,
    /// The generation of each epoch; 0 before it is decided.
    epochs: [u8; EPOCHS],
    workers: [(Worker, u8); 2],
    /// Epochs that each worker has finished, according to its note; none: it has not begun.
    arrived: [Option<u8>; 2],
    manager: (Manager, u8),
    /// The generations that the manager considers pinned, and those that each worker had pinned when the manager began.
    pins: u8,
    pinned: [u8; 2],
    left_out: bool,
    reclaimed: bool,
}

impl Place {
    /// Generations that each worker still has to read; none for one that has not begun.
    fn pinned(&self) -> [u8; 2] {
        self.arrived
            .map(|k| self.epochs[usize::from(k.unwrap_or(EPOCHS as u8))..].iter().fold(0, |pins, g| pins | bit(*g)))
    }
}

fn bit(generation: u8) -> u8 {
    if generation == 0 { 0 } else { 1 << generation }
}

impl Runs {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn keeps(&self, place: &Place, g: u8) -> bool {
        !is_old(GenerationDir::Read(g.into()), place.newest.into(), self.keep.into())
    }

    fn work(&self, place: &Place, i: usize, push: &mut impl FnMut(String, Place)) {
        let (at, k) = place.workers[i];
        let mut push = |says: String, at, k, to: Place| {
            let mut to = to;
            to.workers[i] = (at, k);
            push(format!("worker {i} {says}"), to);
        };
        let Some(&epoch) = place.epochs.get(usize::from(k)) else { return };
        let mut to = *place;
        match at {
            Worker::Arrive => {
                to.arrived[i] = Some(k);
                push(format!("has finished {k} epochs"), Worker::Decide, k, to);
            }
            Worker::Decide if epoch != 0 => push(format!("reads epoch {k} from {epoch}"), Worker::Plan, k, to),
            Worker::Decide => {
                // Its view of the newest generation may be stale. It never decides for one that it has read.
                let last = k.checked_sub(1).map_or(0, |last| place.epochs[usize::from(last)]);
                for g in last + 1..=place.newest {
                    to.epochs[usize::from(k)] = g;
                    push(format!("decides that epoch {k} is read from {g}"), Worker::Plan, k, to);
                }
            }
            Worker::Plan => {
                let is_there = place.there & bit(epoch) != 0;
                let listed = place.pruned & bit(epoch) == 0;
                if is_there && listed {
                    push(format!("finds read.{epoch}"), Worker::Read, k, to);
                }
                let denied = is_there && self.lacks(Rule::GenerationAskedAgain);
                if !is_there || denied || !listed {
                    to.left_out |= is_there || self.keeps(place, epoch);
                    push(format!("skips generation {epoch}"), Worker::Arrive, k + 1, to);
                }
            }
            Worker::Read => push(format!("has read generation {epoch}"), Worker::Arrive, k + 1, to),
        }
    }

    fn manage(&self, place: &Place, push: &mut impl FnMut(String, Place)) {
        let (at, newest) = place.manager;
        let mut to = *place;
        match at {
            Manager::Idle => {
                (to.manager, to.pins, to.pinned) = ((Manager::Notes, place.newest), 0, place.pinned());
                push(format!("manager believes that {} is the newest generation", place.newest), to);
            }
            Manager::Notes => {
                to.manager.0 = Manager::Pinned;
                to.pins = place.pinned().iter().fold(0, |pins, pinned| pins | pinned);
                push("manager reads notes".to_owned(), to);
                if self.lacks(Rule::NotesAskedAgain) {
                    to.pins = 0;
                    push("manager does not see the notes".to_owned(), to);
                }
            }
            Manager::Pinned => {
                to.manager.0 = Manager::Retire;
                to.pins &= place.there;
                push("manager checks which pinned generations exist".to_owned(), to);
                if self.lacks(Rule::PinnedAskedAgain) {
                    to.pins = 0;
                    push("manager sees none of the pinned generations".to_owned(), to);
                }
            }
            Manager::Retire => {
                let old = |g: &u8| is_old(GenerationDir::Read((*g).into()), newest.into(), self.keep.into());
                for g in (1..=newest).filter(|g| old(g) && place.there & bit(*g) != 0 && place.pins & bit(*g) == 0) {
                    let mut to = *place;
                    to.there &= !bit(g);
                    to.reclaimed |= (0..2).any(|i| place.pinned[i] & place.pinned()[i] & bit(g) != 0);
                    push(format!("manager moves read.{g} to trash/"), to);
                }
                to.manager = (Manager::Idle, 0);
                (to.pins, to.pinned) = (0, [0; 2]);
                push("manager rests".to_owned(), to);
            }
        }
    }
}

impl stateright::Model for Runs {
    type State = Place;
    type Action = (String, Place);

    fn init_states(&self) -> Vec<Place> {
        vec![Place {
            newest: 0,
            there: 0,
            pruned: 0,
            epochs: [0; EPOCHS],
            workers: [(Worker::Arrive, 0); 2],
            arrived: [None; 2],
            manager: (Manager::Idle, 0),
            pins: 0,
            pinned: [0; 2],
            left_out: false,
            reclaimed: false,
        }]
    }

    fn actions(&self, place: &Place, actions: &mut Vec<(String, Place)>) {
        let mut push = |says, to: Place| {
            if to != *place {
                actions.push((says, to));
            }
        };
        for i in 0..place.workers.len() {
            self.work(place, i, &mut push);
        }
        self.manage(place, &mut push);
        let mut to = *place;
        if place.newest < GENERATIONS {
            to.newest += 1;
            to.there |= bit(to.newest);
            push(format!("generation {} is promoted", to.newest), to);
        }
        for g in (1..place.newest).filter(|g| place.pruned & bit(*g) == 0 && !self.keeps(place, *g)) {
            let mut to = *place;
            to.pruned |= bit(g);
            if place.there & bit(g) == 0 || self.lacks(Rule::RootOpenedFirst) {
                push(format!("another manager prunes manifest {g}"), to);
            }
        }
    }

    fn next_state(&self, _: &Place, (_, to): (String, Place)) -> Option<Place> {
        Some(to)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(Promise::NotLeftOut.name(), |_: &Runs, place: &Place| !place.left_out),
            Property::always(Promise::PinnedStays.name(), |_: &Runs, place: &Place| !place.reclaimed),
        ]
    }
}
