//! The steps of a manager, from `Ring::promote`, `Ring::reclaim` and the cleanup of `Ring::recover`. (Adoption is a
//! committer's step.)

use crate::model::{Model, Move, Who, is_out};
use crate::rules::Rule;
use crate::state::{FULL, Manage, Manager, NAMES, OUT, PRUNED, ROOM, Staged, State, THERE};
use ringreel::layout::GenerationDir;
use ringreel::swap::reclaim::is_old;

impl Model {
    /// The steps of manager `i`.
    pub(crate) fn manage(&self, state: &State, i: usize, moves: &mut Vec<Move>) {
        let me = state.managers[i];
        let n = usize::from(me.n);
        let mut push = |says, n, me: Manager, next: &State| {
            let mut to = *next;
            to.managers[i] = me;
            if to != *state {
                moves.push(Move { who: Who::Manager(i), says, n, to });
            }
        };
        let then = |at| Manager { at, ..me };
        let mut to = *state;
        match me.at {
            Manage::Idle => {
                self.tidy_up(state, &mut push);
                self.prune(state, &mut push);
                self.begin(state, &mut push);
            }
            Manage::MakeNext => {
                to.write[n + 1] |= THERE;
                push("makes write.{+}", me.n, then(Manage::Rename), &to);
            }
            Manage::Rename => {
                let next = if self.power { Manage::SyncRing } else { Manage::List };
                if to.write[n] & THERE != 0 && to.read[n] & (NAMES | FULL) == 0 {
                    (to.read[n], to.write[n]) = (to.write[n], 0);
                    push("renames write.{n} to read.{n}", me.n, then(next), &to);
                    if self.remembers() {
                        let says = "renames write.{n} to read.{n}; the reply is lost, and read.{n} appears absent";
                        push(says, me.n, Manager::default(), &to);
                    }
                } else if to.read[n] & THERE != 0 {
                    push("cannot rename write.{n}; read.{n} exists", me.n, then(next), &to);
                } else {
                    push("finds neither write.{n} nor read.{n}", me.n, Manager::default(), &to);
                }
            }
            Manage::SyncRing => {
                if !self.lacks(Rule::RenameSynced) {
                    to.sync_ring();
                }
                push("syncs the ring's directory", me.n, then(Manage::List), &to);
            }
            Manage::List => self.list(state, me, &mut push),
            Manage::TooSoon => {
                to.unstage();
                push("removes the staging name before listing", me.n, then(self.before_publishing()), &to);
            }
            Manage::SyncRead => {
                if !self.lacks(Rule::LinksSynced) {
                    to.sync_links(n);
                }
                push("syncs read.{n}", me.n, then(Manage::SyncEarlier), &to);
            }
            Manage::SyncEarlier => {
                if !self.lacks(Rule::EarlierSynced) {
                    to.disk.manifest = to.manifest;
                }
                push("syncs manifests/", me.n, then(Manage::Publish), &to);
            }
            Manage::Publish => self.publish(state, me, &mut push),
            Manage::SyncManifests => {
                if !self.lacks(Rule::ManifestSynced) {
                    to.disk.manifest = to.manifest;
                }
                push("syncs manifests/", me.n, self.after_publishing(&to, me), &to);
            }
            Manage::Unstage => {
                to.unstage();
                let next = self.unlinking(&to, me);
                push("removes the staging name", me.n, next, &to);
            }
            Manage::Unlink => {
                to.read[n] &= !self.unlisted(state, me);
                push("removes unlisted links from read.{n}", me.n, Manager::default(), &to);
            }
            Manage::SyncBefore => {
                if !self.lacks(Rule::NewestSynced) {
                    to.disk.manifest = to.manifest;
                }
                push("syncs manifests/", me.n, then(Manage::RetireRead), &to);
            }
            Manage::RetireRead | Manage::RetireWrite => {
                let write = me.at == Manage::RetireWrite;
                let dir = if write { &mut to.write[n] } else { &mut to.read[n] };
                let full = *dir & FULL != 0;
                *dir = 0;
                to.trash += u8::from(full);
                let says = if write { "moves write.{n} to trash/" } else { "moves read.{n} to trash/" };
                push(says, me.n, Manager::default(), &to);
            }
            Manage::Strike => {
                to.unstage();
                push("removes the staging name of a segment in manifest {n}", me.n, Manager::default(), &to);
            }
            Manage::SyncStaging => {
                if !self.lacks(Rule::StruckSynced) {
                    to.disk.staged = to.staged;
                }
                push("syncs the staging directories", me.n, then(Manage::Prune), &to);
            }
            Manage::Prune => {
                to.manifest[n] |= PRUNED;
                push("prunes manifest {n}", me.n, Manager::default(), &to);
            }
        }
    }

    /// Old manifests: their segments must have no staging name when they are pruned.
    fn prune(&self, state: &State, push: &mut impl FnMut(&'static str, u8, Manager, &State)) {
        let Some(kept) = self.prunes else { return };
        for newest in self.views(state) {
            for n in 1..newest.saturating_sub(kept) {
                let manifest = state.manifest[usize::from(n)];
                if manifest & (OUT | PRUNED) != OUT || state.read[usize::from(n)] & THERE != 0 {
                    continue;
                }
                let then = |at| Manager { at, n, ..Manager::default() };
                let is_staged = state.staged == Staged::Sealed && manifest & NAMES != 0;
                if is_staged && !self.lacks(Rule::StruckFirst) {
                    push("finds a segment of manifest {n} staged", n, then(Manage::Strike), state);
                } else {
                    let at = if self.power { Manage::SyncStaging } else { Manage::Prune };
                    push("finds no segment of manifest {n} staged", n, then(at), state);
                }
            }
        }
    }

    /// What can be reclaimed, and the unfinished file of an owner that appears dead.
    fn tidy_up(&self, state: &State, push: &mut impl FnMut(&'static str, u8, Manager, &State)) {
        let mut to = *state;
        if state.trash > 0 {
            to.trash = 0;
            push("empties trash/", 0, Manager::default(), &to);
        }
        for newest in self.views(state) {
            for n in 0..ROOM as u8 {
                let at = usize::from(n);
                if state.read[at] & THERE != 0 && self.retires(state, GenerationDir::Read(n.into()), newest) {
                    let at = if self.power { Manage::SyncBefore } else { Manage::RetireRead };
                    push("finds that read.{n} is old", n, Manager { at, n, ..Manager::default() }, state);
                }
                if state.write[at] & THERE != 0 && self.retires(state, GenerationDir::Write(n.into()), newest) {
                    let next = Manager { at: Manage::RetireWrite, n, ..Manager::default() };
                    push("finds that write.{n} is litter", n, next, state);
                }
            }
        }
        if state.staged == Staged::Part && !self.calm {
            to = *state;
            to.staged = Staged::Gone;
            push("considers the owner dead, and removes the .part", 0, Manager::default(), &to);
        }
    }

    fn retires(&self, state: &State, dir: GenerationDir, newest: u8) -> bool {
        let (GenerationDir::Read(n) | GenerationDir::Write(n)) = dir;
        let (n, view) = (n as u8, u64::from(newest));
        let no_manifest = n > newest && !is_out(state, n);
        let keep = if self.lacks(Rule::KeptStays) { 0 } else { u64::from(self.keep) };
        is_old(dir, view, keep)
            || (self.lacks(Rule::NextIsNoLitter) && no_manifest && matches!(dir, GenerationDir::Read(_)))
            || (self.lacks(Rule::TooNewStays) && n > newest + 2)
    }

    /// Whether the generation after the apparently newest one must be promoted.
    fn begin(&self, state: &State, push: &mut impl FnMut(&'static str, u8, Manager, &State)) {
        for newest in self.views(state) {
            let skips = self.lacks(Rule::NextOnly) || self.lacks(Rule::NextOnlyOnce);
            for n in newest + 1..=newest + 1 + u8::from(skips) {
                if n > self.last() || (!self.lacks(Rule::ReclaimFirst) && self.owes_room(state, n)) {
                    continue;
                }
                let at = usize::from(n);
                let (begun, there) = (state.read[at] & THERE != 0, state.write[at] & THERE != 0);
                let next = Manager { at: Manage::MakeNext, n, ..Manager::default() };
                let mut to = *state;
                // A client that caches read.<n> as absent looks up write.<n> first. (If that is absent, too, it looks
                // up read.<n> again.)
                if begun && there && self.remembers() {
                    push("finds read.{n} missing by a lookup, and write.{n} full", n, next, state);
                }
                if begun {
                    push("continues with read.{n}", n, next, state);
                    let fills = state.write[at + 1] & (THERE | FULL) == THERE && !self.is_promoted(state, at + 1);
                    if fills && !is_out(state, n) && !self.calm {
                        to.write[at + 1] |= FULL;
                        push("other processes fill write.{+} meanwhile", n, Manager::default(), &to);
                    }
                } else if !there {
                    if n <= state.newest() {
                        continue; // a committer's late mkdir has the same effect
                    }
                    to.write[at] |= THERE;
                    push("makes write.{n}", n, Manager::default(), &to);
                } else if !self.waits_for_all(state, at) {
                    // A directory that a late call recreated contains only links to staged files, which take no space.
                    to.write[at] |= if is_out(state, n) { 0 } else { FULL };
                    push("finds write.{n} full", n, next, &to);
                    if state.write[at] & NAMES != 0 && state.write[at] & FULL == 0 && !self.calm {
                        push("finds write.{n} full by the segment alone", n, next, state);
                    }
                }
            }
        }
    }

    /// Whether an older generation still uses the space that generation `n` needs.
    fn owes_room(&self, state: &State, n: u8) -> bool {
        let old = |g: usize| is_old(GenerationDir::Read(g as u64), u64::from(n) - 1, u64::from(self.keep));
        let stays = |g: usize| self.lacks(Rule::LastNameAskedAgain) && seems_last(state, g);
        state.trash > 0 || (0..ROOM).any(|g| state.read[g] & THERE != 0 && old(g) && !stays(g))
    }

    /// Whether generation `n` must not be filled although the previous one has no manifest.
    pub(crate) fn is_promoted(&self, state: &State, n: usize) -> bool {
        let seems_absent = self.lacks(Rule::PromotedIsFull) || self.lacks(Rule::PromotedAskedAgain);
        state.read[n] & THERE != 0 && !seems_absent
    }

    fn waits_for_all(&self, state: &State, n: usize) -> bool {
        let in_it = state.write[n] & NAMES != 0 || state.listed(state.newest()).is_some();
        self.lacks(Rule::NoWaiting) && state.staged != Staged::Gone && !in_it
    }

    /// What the manager sees of the segment in `read.<n>`, and whether it would list it.
    fn list(&self, state: &State, me: Manager, push: &mut impl FnMut(&'static str, u8, Manager, &State)) {
        let n = usize::from(me.n);
        if state.read[n] & THERE == 0 {
            return push("finds read.{n} missing", me.n, Manager::default(), state);
        }
        let there = state.read[n] & NAMES;
        let forgets = self.lacks(Rule::EarlierManifests) || self.lacks(Rule::ManifestAskedAgain);
        let listed_before = state.seen_listed(me.n - 1).is_some() && !forgets;
        // A stale view shows fewer names, or files that do not pass their check yet.
        let fresh = self.calm || self.power;
        for seen in (0..=NAMES).rev().filter(|seen| seen & !there == 0 && (!fresh || *seen == there)) {
            let mut to = *state;
            if self.lacks(Rule::NothingOnAStaleView) && seen != there {
                to.read[n] &= !(there & !seen);
                to.unstage();
            }
            let first = if self.lacks(Rule::EachIdOnce) { seen } else { seen & seen.wrapping_neg() };
            let can = first != 0 && !listed_before && self.may_choose();
            let next = |mine| {
                let too_soon = self.lacks(Rule::RemovedAfterwards) && mine != 0;
                let at = if too_soon { Manage::TooSoon } else { self.before_publishing() };
                Manager { at, seen, mine, ..me }
            };
            if can {
                push("lists read.{n}, and chooses the segment", me.n, next(first), &to);
            }
            if !can || self.may_leave_out() {
                let says = if seen == 0 { "lists read.{n}, without it" } else { "lists read.{n}, and omits it" };
                push(says, me.n, next(0), &to);
            }
        }
    }

    fn before_publishing(&self) -> Manage {
        if self.power { Manage::SyncRead } else { Manage::Publish }
    }

    /// The first manifest wins.
    fn publish(&self, state: &State, me: Manager, push: &mut impl FnMut(&'static str, u8, Manager, &State)) {
        let (n, mut to) = (usize::from(me.n), *state);
        let replaces = self.lacks(Rule::FirstWins) || self.lacks(Rule::FirstWinsOnce);
        let says = if to.manifest[n] == 0 {
            to.manifest[n] = OUT | me.mine;
            "publishes manifest {n}"
        } else if replaces {
            to.marks.changed |= to.manifest[n] != OUT | me.mine;
            to.manifest[n] = OUT | me.mine;
            "publishes manifest {n} over another"
        } else {
            "finds manifest {n} published"
        };
        let next =
            if self.power { Manager { at: Manage::SyncManifests, ..me } } else { self.after_publishing(&to, me) };
        push(says, me.n, next, &to);
    }

    fn after_publishing(&self, state: &State, me: Manager) -> Manager {
        let listed = state.manifest[usize::from(me.n)] & NAMES;
        let removes = if self.lacks(Rule::RemovedAsListed) { listed | me.seen } else { listed };
        if removes != 0 { Manager { at: Manage::Unstage, ..me } } else { self.unlinking(state, me) }
    }

    fn unlinking(&self, state: &State, me: Manager) -> Manager {
        if self.unlisted(state, me) != 0 { Manager { at: Manage::Unlink, ..me } } else { Manager::default() }
    }

    /// Names that it saw in `read.<n>` and that its manifest does not list; none if they are the last ones.
    fn unlisted(&self, state: &State, me: Manager) -> u8 {
        let listed = if self.lacks(Rule::WinnersList) { me.mine } else { state.manifest[usize::from(me.n)] };
        let is_listed = state.seen_listed(me.n).is_some() || state.has_pruned(me.n);
        let last = state.staged != Staged::Sealed && !is_listed;
        if last { 0 } else { me.seen & !listed & NAMES }
    }
}

/// Whether a name in `read.<g>` appears to be the last one of the segment to a client that caches the staging name as
/// absent.
fn seems_last(state: &State, g: usize) -> bool {
    let unlisted = state.read[g] & NAMES & !state.manifest[g] != 0;
    unlisted && state.staged == Staged::Sealed && state.listed(state.newest()).is_none()
}
