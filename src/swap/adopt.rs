//! Recovery: what dead owners finished is committed for them; what they had begun is litter.

use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::fs::{FsError, surely};
use crate::humanize::counted;
use crate::layout::{is_owner, sealed_id};
use crate::ring::Ring;
use crate::ring::failure_detector::FailureDetector;
use crate::segment::reader::read_tail;
use crate::write::commit::{Commit, CommitOutcome, Staged};
use ringreel_format::SegmentId;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::PoisonError;
use std::time::Duration;

/// An unfinished file is kept for this many leases after its owner fell silent: he may only have been stopped.
pub const GRACE: u32 = 6;

/// A member that fell silent stays on the list for this long at least, for people to see.
const SHORTEST_MEMBERSHIP: Duration = Duration::from_secs(60);

/// What a round found linked into the generation that fills.
struct Present {
    /// The newest generation then.
    newest: u64,
    /// When each segment was born.
    born: HashMap<SegmentId, u64>,
}

/// Held open by a process elsewhere (an `.nfs*` file on NFS), or changed on the server meanwhile.
pub fn is_left_for_later(error: &FsError) -> bool {
    error.source.kind() == ErrorKind::ResourceBusy || error.is_stale()
}

/// What a round of recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments of dead owners that were linked.
    pub adopted: u64,
    /// Segments of dead owners that a manifest lists: only their staging names were left.
    pub delivered: u64,
    /// Segments that were moved to quarantine.
    pub quarantined: u64,
    /// Unfinished files that were removed.
    pub litter: u64,
}

impl Recovered {
    /// Says what was done, as in `2 segments adopted, 1 unfinished file removed`; `None`: nothing.
    pub fn words(&self) -> Option<String> {
        let done = [
            (self.adopted, "segment", "adopted"),
            (self.quarantined, "segment", "moved to quarantine"),
            (self.litter, "unfinished file", "removed"),
        ];
        let done = done.iter().filter(|(n, ..)| *n > 0);
        let words: Vec<String> = done.map(|(n, what, how)| format!("{} {how}", counted(*n, what))).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl Ring {
    /// One round. Nothing is waited for: what cannot be linked now is left to the next round.
    ///
    /// # Errors
    /// What the filesystem or the index says.
    pub fn recover(&self, watch: &mut FailureDetector) -> Result<Recovered> {
        let mut done = Recovered::default();
        if if_available(watch.look(&*self.coordination))?.is_none() {
            return Ok(done); // who is silent, and who is not heard, cannot be told apart now
        }
        let (mut present, mut failed) = (None, None);
        let staging = self.layout.staging();
        for owner in surely(&*self.fs, &staging, || self.fs.list(&staging))? {
            if owner == self.me || !is_owner(&owner) || !watch.is_dead(&owner) {
                continue;
            }
            match self.recover_owner(&owner, watch, &mut present, &mut done) {
                Ok(()) => {}
                Err(Error::Fs { source }) if is_left_for_later(&source) => self.log_once(&owner, &source),
                Err(Error::Fs { source }) if source.is_away() => return Err(source.into()),
                Err(error) => failed = failed.or(Some(error)), // the other owners come first
            }
        }
        self.remove_silent_members(watch)?;
        failed.map_or(Ok(done), Err)
    }

    fn recover_owner(
        &self,
        owner: &str,
        watch: &mut FailureDetector,
        present: &mut Option<Present>,
        done: &mut Recovered,
    ) -> Result<()> {
        let dir = self.layout.staging_of(owner);
        let names = match surely(&*self.fs, &dir, || self.fs.list(&dir)) {
            Ok(names) => names,
            Err(error) if error.is_gone() || error.source.kind() == ErrorKind::NotADirectory => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        for id in names.iter().filter_map(|name| sealed_id(name)) {
            self.adopt(owner, id, present, done)?;
        }
        done.litter += self.remove_unfinished(owner, watch)?;
        Ok(())
    }

    /// Removes unfinished files of owners that have been dead for long. Commits nothing.
    ///
    /// # Errors
    /// What the filesystem or the index says.
    pub(crate) fn sweep_dead(&self) -> Result<Recovered> {
        let mut done = Recovered::default();
        let mut watch = self.failure_detector();
        if if_available(watch.look(&*self.coordination))?.is_none() {
            return Ok(done);
        }
        for owner in self.list_or_none(&self.layout.staging())? {
            if owner == self.me || !is_owner(&owner) {
                continue;
            }
            match self.remove_unfinished(&owner, &mut watch) {
                Ok(litter) => done.litter += litter,
                Err(Error::Fs { source }) if is_left_for_later(&source) => self.log_once(&owner, &source),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Logs why files of a dead owner stay, once for each owner: every round meets the same error.
    pub fn log_once(&self, owner: &str, error: &FsError) {
        let mut told = self.steps.maintenance.told_of_owners.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(owner.to_owned()) {
            tracing::warn!(%error, owner, "a dead owner's files cannot be removed yet; every round tries again");
        }
    }

    /// Removes what an owner had begun who has been dead for long, and his directory when nothing is left in it.
    pub fn remove_unfinished(&self, owner: &str, watch: &mut FailureDetector) -> Result<u64> {
        if !watch.is_silent_for(owner, GRACE) {
            return Ok(0);
        }
        let dir = self.layout.staging_of(owner);
        let (sealed, begun): (Vec<String>, _) =
            self.list_or_none(&dir)?.into_iter().partition(|name| sealed_id(name).is_some());
        for name in &begun {
            self.unlink_if_allowed(&dir.join(name))?;
        }
        if sealed.is_empty() {
            let _ = self.fs.remove_dir(&dir); // not empty after all: next time
            if_available(self.coordination.leave(owner))?;
            watch.forget(owner);
        }
        Ok(begun.len() as u64)
    }

    /// Strikes members that are long dead off the list. A dead generator stays watched while its sealed
    /// segments wait in staging, which may take as long as the ring lives.
    fn remove_silent_members(&self, watch: &mut FailureDetector) -> Result<()> {
        for member in watch.known() {
            if !watch.is_silent_for(&member, GRACE) || watch.silence(&member) <= SHORTEST_MEMBERSHIP {
                continue;
            }
            let is_staged = self.fs.exists(&self.layout.staging_of(&member))?;
            if watch.is_listed(&member) || !is_staged {
                if_available(self.coordination.leave(&member))?;
            }
            if !is_staged {
                watch.forget(&member);
            }
        }
        Ok(())
    }

    /// Commits it, as far as that can be done now.
    fn adopt(&self, owner: &str, id: SegmentId, present: &mut Option<Present>, done: &mut Recovered) -> Result<()> {
        // Linked already, by its owner: the next manifest will tell. (A dead owner may have left thousands, and this comes again
        // twice a lease: the filesystem is not asked about each of them.)
        let present = match present {
            Some(present) => present,
            None => present.insert(self.present()?),
        };
        if let Some(born) = present.born.get(&id)
            && self.manifests.find(id, *born, present.newest)?.generation().is_none()
        {
            return Ok(());
        }
        let path = self.layout.sealed(owner, id);
        let tail = match read_tail(&*self.fs, &path) {
            Ok(tail) => tail,
            Err(Error::Fs { source }) if source.is_gone() => return Ok(()),
            // Perhaps only seen too early. It harms nobody where it is.
            Err(error) => {
                tracing::warn!(%error, owner, "a dead owner's segment cannot be read: left where it is");
                return Ok(());
            }
        };
        let footer = &tail.footer;
        let staged =
            Staged { owner: owner.to_owned(), id, born: footer.info.born, samples: footer.count, bytes: tail.len };
        let born = staged.born;
        match self.commit_step(&mut Commit::new(staged), true)? {
            CommitOutcome::Linked(_) => {
                done.adopted += 1;
                present.born.insert(id, born);
            }
            CommitOutcome::Delivered(_) => done.delivered += 1,
            CommitOutcome::Quarantined(_) => done.quarantined += 1,
            CommitOutcome::Wait(_) | CommitOutcome::Refused => {}
        }
        Ok(())
    }

    fn present(&self) -> Result<Present> {
        let newest = self.manifests.newest()?;
        let found = self.look_at_filling(newest)?;
        let all = found.iter().flat_map(|found| &found.segments);
        Ok(Present { newest, born: all.map(|entry| (entry.id, entry.born)).collect() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::coordination::Report;
    use crate::fs::Posix;
    use std::sync::Arc;

    #[test]
    fn dead_members_are_struck_off_though_their_segments_wait() {
        let dir = tempfile::tempdir().unwrap();
        let yaml = "DBNAME: x\nSWAP_CAP: 2\nSAMPLE: [data]\nLEASE_SECONDS: 1\n";
        let config = Config::parse(yaml, "c", dir.path(), true).unwrap();
        let ring = Ring::find_or_make(Arc::new(Posix), &config).unwrap();
        for member in ["dead-1-a", "dead-2-b", "stopped-3-c"] {
            ring.coordination.beat(member, 7, &Report { lease_seconds: 2.0, ..Report::default() }).unwrap();
        }
        // The first one left a segment that cannot be committed yet.
        let staged = ring.layout.sealed("dead-1-a", SegmentId([7; 16]));
        std::fs::create_dir_all(staged.parent().unwrap()).unwrap();
        std::fs::write(&staged, "unreadable").unwrap();
        let mut watch = FailureDetector::new(ring.settings.lease);
        watch.look(&*ring.coordination).unwrap();
        let round = |watch: &mut FailureDetector, silence: u64| {
            for member in ["dead-1-a", "dead-2-b"] {
                watch.backdate(member, Duration::from_secs(silence));
            }
            ring.recover(watch).unwrap();
            let mut members: Vec<_> = ring.coordination.members().unwrap().into_iter().map(|(name, _)| name).collect();
            members.sort();
            members
        };
        assert_eq!(round(&mut watch, 59), ["dead-1-a", "dead-2-b", "stopped-3-c"], "people still want to see them");
        assert_eq!(round(&mut watch, 61), ["stopped-3-c"]);
        assert!(staged.exists() && watch.is_dead("dead-1-a"), "its segment is still to be committed");
    }

    #[test]
    fn recovery_is_described_in_words_or_not_at_all() {
        let done = Recovered { adopted: 2, delivered: 5, quarantined: 0, litter: 1 };
        assert_eq!(done.words().as_deref(), Some("2 segments adopted, 1 unfinished file removed"));
        assert_eq!(Recovered { delivered: 5, ..Recovered::default() }.words(), None);
    }
}
