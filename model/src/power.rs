//! What reaches the disk, and what a power cut leaves: every name and every file that was not synced may survive or
//! not, independently. This is DURABILITY node.

use crate::model::{Model, Move, Who};
use crate::state::{Commit, Committer, FULL, Manager, NAMES, ROOM, Staged, State, THERE};

impl State {
    /// Removes the followed segment's sealed name.
    pub(crate) fn unstage(&mut self) {
        if self.staged == Staged::Sealed {
            self.staged = Staged::Gone;
        }
    }

    /// Syncs the ring's directory: which directories of generations exist, and under which names.
    pub(crate) fn sync_ring(&mut self) {
        (0..ROOM).for_each(|n| self.sync_ring_at(n));
    }

    fn sync_ring_at(&mut self, n: usize) {
        let links = (self.disk.write[n] | self.disk.read[n]) & NAMES;
        let there = |dir: u8| if dir & THERE != 0 { dir & (THERE | FULL) | links } else { 0 };
        (self.disk.write[n], self.disk.read[n]) = (there(self.write[n]), there(self.read[n]));
    }

    /// Syncs the directory of generation `n`, wherever it is on the disk.
    pub(crate) fn sync_links(&mut self, n: usize) {
        let links = (self.write[n] | self.read[n]) & NAMES;
        for dir in [&mut self.disk.write[n], &mut self.disk.read[n]] {
            if *dir & THERE != 0 {
                *dir = *dir & !NAMES | links;
            }
        }
    }
}

impl Model {
    /// The kernel may write anything to the disk at any time.
    pub(crate) fn reach_the_disk(&self, state: &State, moves: &mut Vec<Move>) {
        let mut push = |says, n, to: State| {
            if to != *state {
                moves.push(Move { who: Who::Power, says, n, to });
            }
        };
        let mut to = *state;
        to.disk.staged = to.staged;
        push("has the staging directory now", 0, to);
        let mut to = *state;
        to.disk.bytes |= to.staged != Staged::Gone;
        push("has the segment's bytes now", 0, to);
        for n in 1..=usize::from(self.generations) + 1 {
            let mut to = *state;
            to.sync_ring_at(n);
            push("has the names of generation {n}'s directory now", n as u8, to);
            let mut to = *state;
            to.sync_links(n);
            push("has what is in generation {n}'s directory now", n as u8, to);
            let mut to = *state;
            to.disk.manifest[n] = to.manifest[n];
            push("has manifest {n} now", n as u8, to);
        }
    }

    /// The power fails: everything that is not on the disk is lost, and all processes end.
    pub(crate) fn cut(&self, state: &State, moves: &mut Vec<Move>) {
        let mut to = *state;
        let disk = &mut to.disk;
        if !disk.bytes {
            // The names survive, but the file is empty.
            if disk.staged == Staged::Sealed {
                disk.staged = Staged::Gone;
            }
            disk.write.iter_mut().chain(&mut disk.read).for_each(|dir| *dir &= !NAMES);
        }
        // A directory that was being moved to trash/ may be back in its place.
        let full =
            |write: &[u8; ROOM], read: &[u8; ROOM]| write.iter().chain(read).filter(|dir| **dir & FULL != 0).count();
        let back = full(&disk.write, &disk.read).saturating_sub(full(&to.write, &to.read));
        to.trash = to.trash.saturating_sub(back as u8);
        (to.staged, to.write, to.read, to.manifest) = (disk.staged, disk.write, disk.read, disk.manifest);
        to.committers = [Committer { at: Commit::Look, adopts: true, ..Committer::default() }; 2];
        to.managers = [Manager::default(); 2];
        if to != *state {
            moves.push(Move { who: Who::Power, says: "loses everything that was not synced: a power cut", n: 0, to });
        }
    }
}
