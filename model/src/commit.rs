//! The steps of a committer, from `Generator::write`, `StagingWriter::seal` and `Ring::commit_step`.

use crate::model::{Model, Move, Who, is_out};
use crate::rules::Rule;
use crate::state::{Commit, Committer, NAMES, Staged, State, THERE};
use ringreel::commit::{CommitState, commit_state};

impl Model {
    /// The steps of committer `i`.
    pub(crate) fn commit(&self, state: &State, i: usize, moves: &mut Vec<Move>) {
        let me = state.committers[i];
        let mut push = |says, n, me: Committer, next: &State| {
            let mut to = *next;
            to.committers[i] = me;
            if to != *state {
                moves.push(Move { who: Who::Committer(i), says, n, to });
            }
        };
        let mut to = *state;
        match me.at {
            Commit::Begin => {
                to.staged = Staged::Part;
                let at = if self.power { Commit::Sync } else { Commit::Seal };
                push("begins the segment: <id>.part", 0, Committer { at, ..me }, &to);
            }
            Commit::Sync => {
                to.disk.bytes |= !self.lacks(Rule::BytesFirst);
                push("syncs the file", 0, Committer { at: Commit::Seal, ..me }, &to);
            }
            Commit::Seal if state.staged != Staged::Part => {
                push("finds its .part removed, and rewrites it", 0, Committer { at: Commit::Begin, ..me }, &to);
            }
            Commit::Seal => {
                (to.staged, to.finished) = (Staged::Sealed, !self.power);
                let at = if self.power { Commit::SyncName } else { Commit::Look };
                push("seals it: <id>.rec; finished", 0, Committer { at, ..me }, &to);
            }
            Commit::SyncName => {
                if !self.lacks(Rule::SealedSynced) {
                    to.disk.staged = to.staged;
                }
                to.finished = true;
                push("syncs the staging directory; finished", 0, Committer { at: Commit::Look, ..me }, &to);
            }
            Commit::Look => self.look(state, me, &mut push),
            Commit::Link => self.link(state, me, &mut push),
            Commit::Afresh => self.look_afresh(state, me, &mut push),
            Commit::MakeDir => {
                let t = me.target;
                to.write[usize::from(t)] |= THERE;
                push("makes write.{n}", t, Committer { at: Commit::Look, target: 0, ..me }, &to);
            }
            Commit::SyncManifests => {
                if !self.lacks(Rule::SeenSynced) {
                    to.disk.manifest = to.manifest;
                }
                push("syncs manifests/", 0, Committer { at: Commit::Tidy, ..me }, &to);
            }
            Commit::Tidy => {
                to.staged = if to.staged == Staged::Sealed { Staged::Gone } else { to.staged };
                push("removes the staging name of the listed segment", 0, self.after(me, &mut to), &to);
            }
            Commit::Done => {}
        }
    }

    /// The next state after the segment is delivered.
    fn after(&self, me: Committer, state: &mut State) -> Committer {
        if me.adopts {
            return Committer { at: Commit::Look, adopts: true, ..Committer::default() };
        }
        if self.lacks(Rule::NoNameTwice) && state.finished {
            // The next segment uses the same names; the first one is delivered, and is no longer followed.
            state.finished = false;
            for dir in state.write.iter_mut().chain(&mut state.read).chain(&mut state.manifest) {
                *dir &= !NAMES;
            }
            for manager in &mut state.managers {
                (manager.seen, manager.mine) = (0, 0);
            }
            return Committer::default();
        }
        Committer { at: Commit::Done, ..Committer::default() }
    }

    /// Reads the manifests, and then the generation that fills. Waiting while it is full is not a step.
    fn look(&self, state: &State, me: Committer, push: &mut impl FnMut(&'static str, u8, Committer, &State)) {
        let adoptable = match state.staged {
            Staged::Sealed => true,
            Staged::Part => self.lacks(Rule::SealedAdopted),
            Staged::Gone => false,
        };
        if me.adopts && !adoptable {
            return;
        }
        for view in self.views(state) {
            let t = usize::from(view) + 1;
            // While a generation waits for its manifest, the next one is filled, unless that one was promoted before a
            // power cut took the manifest back.
            let begun = state.read[t] & THERE != 0;
            let waits = begun && self.is_promoted(state, t + 1);
            let filling = t + usize::from(begun);
            if self.calm && me.adopts && (t..=filling).any(|t| (state.write[t] | state.read[t]) & NAMES != 0) {
                continue; // it is linked already
            }
            let linked = (me.linked > 0).then_some(u64::from(me.linked));
            // This query and the promoter's rule guard each other, so both are omitted together.
            let asks = !(self.lacks(Rule::EarlierManifests) && me.adopts);
            let mut listed = state.seen_listed(view).filter(|_| asks);
            // A manifest that is not the newest, and is cached as absent, appears to be pruned.
            let forgets = self.lacks(Rule::ManifestAskedAgain) && listed.is_some_and(|n| n < u64::from(view));
            if forgets && state.staged == Staged::Sealed {
                listed = None;
            }
            if listed.is_none() && state.has_pruned(view) && !self.lacks(Rule::StagingAsked) {
                if state.staged == Staged::Gone {
                    let mut to = *state;
                    push(
                        "finds a manifest and its staging name missing: delivered",
                        view,
                        self.after(me, &mut to),
                        &to,
                    );
                }
                if state.staged == Staged::Sealed && self.lacks(Rule::StagedAskedAgain) && !self.calm && !me.adopts {
                    let mut to = *state;
                    let says = "a lookup finds a manifest and its staging name missing: delivered";
                    push(says, view, self.after(me, &mut to), &to);
                }
                // An owner that read a manifest before it was pruned does not query it. Then that manifest does not
                // list it.
                if state.listed(view).is_some() && state.staged == Staged::Gone {
                    continue;
                }
            }
            match commit_state(listed, linked, u64::from(view)) {
                CommitState::Listed(n) => {
                    let at = if self.power { Commit::SyncManifests } else { Commit::Tidy };
                    push("sees that manifest {n} lists it", n as u8, Committer { at, target: 0, ..me }, state);
                }
                CommitState::Linked(_) => {}
                CommitState::LeftOut if self.lacks(Rule::LinkedAgain) => {}
                CommitState::LeftOut | CommitState::Staged => {
                    let link = |t: usize| Committer { at: Commit::Link, target: t as u8, linked: 0, ..me };
                    if !(begun && self.calm) {
                        push(
                            "believes that {n} is the newest generation, and that it is not listed",
                            view,
                            link(t),
                            state,
                        );
                    }
                    if begun && !waits {
                        push(
                            "believes that {n} is newest, that the next one awaits its manifest, and that it is not listed",
                            view,
                            link(filling),
                            state,
                        );
                    }
                }
            }
        }
    }

    /// The link. Where the path leads depends on the age of the client's view. If another segment has the name, the
    /// next index is used, which changes nothing.
    fn link(&self, state: &State, me: Committer, push: &mut impl FnMut(&'static str, u8, Committer, &State)) {
        let t = me.target;
        let at = usize::from(t);
        let fresh = self.calm || self.power;
        let unknown = Committer { at: Commit::Look, target: 0, ..me };
        let linked = Committer { linked: if me.adopts { 0 } else { t }, ..unknown };
        // A client that knows the file can link it even if its staging name is removed.
        if state.staged != Staged::Gone || (state.has_name() && !fresh) {
            let in_time = named(state, at, true).map(|to| (IN_TIME, to));
            let late = named(state, at, false).filter(|_| !fresh).map(|to| (LATE, to));
            let gone = (state.write[at] | state.read[at]) & THERE == 0 && is_out(state, t) && !fresh;
            for (says, mut to) in [in_time, late, gone.then_some((INTO_TRASH, *state))].into_iter().flatten() {
                if self.lacks(Rule::StagingNameStays) {
                    to.staged = Staged::Gone;
                }
                push(says[0], t, linked, &to);
                if !self.calm {
                    push(says[1], t, unknown, &to);
                }
            }
            if state.write[at] & NAMES != 0 {
                push("finds its own file in write.{n}", t, linked, state);
            }
        }
        if state.write[at] & THERE == 0 || state.staged == Staged::Gone {
            let mut to = *state;
            if self.lacks(Rule::ManifestJudges) {
                to.unstage(); // the process that renamed the directory has listed it
            }
            push("finds write.{n} or the file missing", t, Committer { at: Commit::Afresh, ..me }, &to);
        }
    }

    /// Neither the file nor the directory was found.
    fn look_afresh(&self, state: &State, me: Committer, push: &mut impl FnMut(&'static str, u8, Committer, &State)) {
        let t = me.target;
        let again = Committer { at: Commit::Look, target: 0, ..me };
        if state.staged == Staged::Gone {
            let mut to = *state;
            if state.seen_listed(state.newest()).is_some() {
                push("checks again: a manifest lists it", t, self.after(me, &mut to), &to);
            } else if state.has_pruned(state.newest()) && !self.lacks(Rule::StagingAsked) {
                push("checks again: a manifest is missing: delivered", t, self.after(me, &mut to), &to);
            }
            push("checks again: waits", t, again, state);
            return;
        }
        if self.lacks(Rule::StagedAskedAgain) && !self.calm && !me.adopts {
            let mut to = *state;
            push("a lookup finds its staging name missing: lost", t, self.after(me, &mut to), &to);
        }
        let begun = state.read[usize::from(t)] & THERE != 0;
        if state.newest() >= t || begun {
            push("checks again: {n} is promoted", t, again, state);
        }
        // A stale view shows neither the manifest nor read.<t>.
        if (state.newest() < t && !begun) || !(self.calm || self.power) {
            push("checks again: write.{n} must be created", t, Committer { at: Commit::MakeDir, ..me }, state);
        }
    }
}

/// The effects of a link; and the same with a lost reply, so that the outcome is unknown.
const IN_TIME: [&str; 2] = ["links it into write.{n}", "links it into write.{n}; the reply is lost"];
const LATE: [&str; 2] = ["links it late, into read.{n}", "links it late into read.{n}; the reply is lost"];
const INTO_TRASH: [&str; 2] = ["links it late, into trash/", "links it late into trash/; the reply is lost"];

/// The state with one more name in `write.<n>` or `read.<n>`; none if that is missing, or both names are used.
fn named(state: &State, n: usize, write: bool) -> Option<State> {
    let mut to = *state;
    let dir = if write { &mut to.write[n] } else { &mut to.read[n] };
    let free = !*dir & NAMES;
    if *dir & THERE == 0 || free == 0 {
        return None;
    }
    *dir |= free & free.wrapping_neg();
    Some(to)
}
