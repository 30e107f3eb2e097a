//! The ring as a state machine: the possible next steps from a state. It follows one segment; how other segments fill
//! the generations is nondeterministic.

use crate::rules::Rule;
use crate::state::{Commit, Committer, Manage, Manager, OUT, ROOM, Staged, State};
use ringreel::swap::promote::fitting;
use std::fmt;

/// The actor of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A committer.
    Committer(usize),
    /// A manager.
    Manager(usize),
    /// A reader.
    Reader,
    /// The power supply, or the kernel that writes to the disk at any time.
    Power,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The actor.
    pub who: Who,
    /// A description; `{n}` is replaced by the generation, `{+}` by the next one.
    pub says: &'static str,
    /// The generation.
    pub n: u8,
    /// The next state.
    pub to: State,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Who::Committer(i) => write!(f, "committer {}", i + 1)?,
            Who::Manager(i) => write!(f, "manager {}", i + 1)?,
            Who::Reader => write!(f, "reader")?,
            Who::Power => write!(f, "disk")?,
        }
        let (n, next) = (self.n.to_string(), (self.n + 1).to_string());
        write!(f, " {}", self.says.replace("{n}", &n).replace("{+}", &next))
    }
}

/// A ring to search.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Processes that commit the segment: 1 or 2. The first one is its owner; if it dies, an adopter replaces it.
    pub committers: usize,
    /// Processes that promote and reclaim: 1 or 2. A dead one is replaced.
    pub managers: usize,
    /// The number of promoted generations.
    pub generations: u8,
    /// The number of older generations that are kept.
    pub keep: u8,
    /// Whether power may fail; everything is synced (DURABILITY node).
    pub power: bool,
    /// How many generations a view may be stale.
    pub stale: u8,
    /// Manifests older than the newest and this many before it may be pruned.
    pub prunes: Option<u8>,
    /// The omitted rule.
    pub without: Option<Rule>,
    /// Without faults: every view is fresh, and every reply arrives.
    pub calm: bool,
    /// Whether the product may choose the segment among others, and may omit it.
    choices: (bool, bool),
}

impl Model {
    /// A model with these numbers of processes and generations.
    pub fn new(committers: usize, managers: usize, generations: u8) -> Model {
        let choices = choices();
        Model {
            committers,
            managers,
            generations,
            keep: 1,
            power: false,
            stale: 2,
            prunes: None,
            without: None,
            calm: false,
            choices,
        }
    }

    /// The same with this number of older generations kept.
    pub fn keeping(self, keep: u8) -> Model {
        Model { keep, ..self }
    }

    /// The same with fresh views of the newest generation, in which manifests older than the newest and `kept` before
    /// it may be pruned.
    pub fn pruning(self, kept: u8) -> Model {
        Model { prunes: Some(kept), stale: 0, ..self }
    }

    /// The same with power cuts.
    pub fn with_power_cuts(self) -> Model {
        Model { power: true, ..self }
    }

    /// The same without this rule.
    pub fn without(self, rule: Rule) -> Model {
        Model { without: Some(rule), ..self }
    }

    pub(crate) fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// The generations that a process may believe to be the newest, because its view may be stale.
    pub(crate) fn views(&self, state: &State) -> std::ops::RangeInclusive<u8> {
        let newest = state.newest();
        // With power cuts the search is about the disk, so views are fresh.
        let oldest = if self.calm || self.power { newest } else { newest.saturating_sub(self.stale) };
        oldest..=newest
    }

    /// The last generation that is promoted; in a calm run, some more, so that it can finish.
    pub(crate) fn last(&self) -> u8 {
        if self.calm { ROOM as u8 - 2 } else { self.generations }
    }

    /// Whether a client may cache that a name is absent, and answer a plain lookup from its cache.
    pub(crate) fn remembers(&self) -> bool {
        !self.calm && !self.power
    }

    pub(crate) fn may_choose(&self) -> bool {
        self.choices.0
    }

    pub(crate) fn may_leave_out(&self) -> bool {
        self.choices.1 && !self.calm
    }

    /// All possible steps.
    pub fn moves(&self, state: &State, moves: &mut Vec<Move>) {
        for i in 0..self.committers {
            self.commit(state, i, moves);
        }
        for i in 0..self.managers {
            self.manage(state, i, moves);
        }
        self.deaths(state, moves);
        if self.lacks(Rule::ReadersAsk) {
            self.read_a_directory(state, moves);
        }
        if self.power {
            self.reach_the_disk(state, moves);
            self.cut(state, moves);
        }
    }

    /// Any process may die at any moment. Another manager replaces a manager, and an adopter the owner.
    fn deaths(&self, state: &State, moves: &mut Vec<Move>) {
        for (i, committer) in state.committers[..self.committers].iter().enumerate() {
            let reborn = Committer { at: Commit::Look, adopts: true, ..Committer::default() };
            if committer.at != Commit::Done && *committer != reborn {
                let mut to = *state;
                to.committers[i] = reborn;
                moves.push(Move { who: Who::Committer(i), says: "dies; an adopter takes its place", n: 0, to });
            }
        }
        for (i, manager) in state.managers[..self.managers].iter().enumerate() {
            if manager.at != Manage::Idle {
                let mut to = *state;
                to.managers[i] = Manager::default();
                moves.push(Move { who: Who::Manager(i), says: "dies; another manager takes its place", n: 0, to });
            }
        }
    }

    /// What no reader may do: use what it sees in a directory.
    fn read_a_directory(&self, state: &State, moves: &mut Vec<Move>) {
        for n in 1..ROOM {
            if state.read[n] & crate::state::NAMES & !state.manifest[n] != 0 {
                let mut to = *state;
                to.marks.unlisted = true;
                let says = "takes the segment from read.{n}, and no manifest lists it there";
                moves.push(Move { who: Who::Reader, says, n: n as u8, to });
            }
        }
    }

    /// Whether a calm run from here lists the segment, if it was finished, and promotes one more generation.
    pub fn ends_well(&self, state: &State) -> bool {
        self.calm_run(state, |_| ())
    }

    /// The run from here without faults: all processes take turns, one step each, and other segments fill a generation
    /// only while the committers wait. Returns whether it ends well.
    pub fn calm_run(&self, state: &State, mut told: impl FnMut(&Move)) -> bool {
        let calm = Model { calm: true, ..*self };
        let (mut at, mut moves) = (*state, Vec::with_capacity(8));
        let goal = (state.newest() + 1).min(calm.last());
        for _ in 0..MOST_ROUNDS {
            let ended = |c: &Committer| c.at == Commit::Done || c.adopts;
            let done = at.committers[..self.committers].iter().all(ended) && at.staged != Staged::Sealed;
            if done && at.newest() >= goal && (!at.finished || at.listed(at.newest()).is_some()) {
                return true;
            }
            let before = at;
            let mut take = |at: &mut State, moves: &mut Vec<Move>| {
                if let Some(step) = moves.first() {
                    told(step);
                    *at = step.to;
                }
                moves.clear();
            };
            for i in 0..self.committers {
                calm.commit(&at, i, &mut moves);
                take(&mut at, &mut moves);
            }
            let quiet = at == before;
            for i in 0..self.managers {
                if quiet || at.managers[i].at != Manage::Idle {
                    calm.manage(&at, i, &mut moves);
                    take(&mut at, &mut moves);
                }
            }
            if at == before {
                return false;
            }
        }
        false
    }
}

/// A calm run with more steps does not end.
const MOST_ROUNDS: usize = 100;

/// Whether the product's choice lists a segment, and whether it omits one, among older or newer ones.
fn choices() -> (bool, bool) {
    const CAP: u64 = 2;
    let outcomes = (0..=CAP).flat_map(|older| (1..=CAP).map(move |size| (older, size)));
    let chosen = outcomes.filter_map(|(older, size)| {
        let others = (0..older).map(|_| 1);
        fitting(others.chain([size]).chain([1, 1]), CAP).nth(older as usize)
    });
    chosen.fold((false, false), |(in_, out), fits| (in_ || fits, out || !fits))
}

/// Whether a manifest is published.
pub(crate) fn is_out(state: &State, n: u8) -> bool {
    state.manifest[usize::from(n)] & OUT != 0
}
