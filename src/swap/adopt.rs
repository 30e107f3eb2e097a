//! Recovery: commits the sealed segments of dead owners, and removes their unfinished files.

use crate::commit::{Commit, CommitOutcome, Staged};
use crate::coordination::if_available;
use crate::error::{Error, Result};
use crate::fs::{FsError, surely};
use crate::humanize::counted;
use crate::layout::{is_owner, sealed_id};
use crate::ring::Ring;
use crate::ring::failure_detector::FailureDetector;
use crate::segment::reader::read_tail;
use ringreel_format::SegmentId;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::PoisonError;
use std::time::Duration;

/// Unfinished files are kept for this many leases after the last heartbeat of their owner, which
/// may only have been suspended.
pub const UNFINISHED_GRACE_LEASES: u32 = 6;

/// A silent member stays listed for at least this long, so that `ringreel status` shows it.
const SHORTEST_MEMBERSHIP: Duration = Duration::from_secs(60);

/// The segments that a round found linked into the filling generation.
struct Present {
    /// The newest generation at that time.
    newest: u64,
    /// The `born` generation of each segment.
    born: HashMap<SegmentId, u64>,
}

/// Returns whether a later round has to try again: another process holds the file open (an `.nfs*`
/// file on NFS), or the handle is stale.
pub fn is_left_for_later(error: &FsError) -> bool {
    error.source.kind() == ErrorKind::ResourceBusy || error.is_stale()
}

/// The result of a round of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of segments of dead owners that were linked.
    pub adopted: u64,
    /// Number of segments of dead owners that a manifest lists already; their remaining staging
    /// names were removed.
    pub delivered: u64,
    /// Number of segments that were moved to quarantine.
    pub quarantined: u64,
    /// Number of unfinished files that were removed.
    pub litter: u64,
}

impl Recovered {
    /// Describes the result, as in `2 segments adopted, 1 unfinished file removed`. Returns `None`
    /// if nothing was done.
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
    /// Runs one round without waiting: a segment that cannot be linked now is left to the next
    /// round.
    ///
    /// # Errors
    /// Errors of the filesystem or the coordination store.
    pub fn recover(&self, watch: &mut FailureDetector) -> Result<Recovered> {
        let mut done = Recovered::default();
        if if_available(watch.look(&*self.coordination))?.is_none() {
            return Ok(done); // without the store, dead and unreachable members look the same
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
                Err(error) => failed = failed.or(Some(error)), // after the other owners
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

    /// Logs why files of a dead owner stay; once per owner, because every round meets the same
    /// error.
    pub fn log_once(&self, owner: &str, error: &FsError) {
        let mut told = self.steps.told_of_owners.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(owner.to_owned()) {
            tracing::warn!(%error, owner, "cannot remove the files of a dead owner; retrying in each round");
        }
    }

    /// Removes the unfinished files of an owner that has been dead for [`UNFINISHED_GRACE_LEASES`] leases, and its
    /// staging directory once that is empty.
    pub fn remove_unfinished(&self, owner: &str, watch: &mut FailureDetector) -> Result<u64> {
        if !watch.is_silent_for(owner, UNFINISHED_GRACE_LEASES) {
            return Ok(0);
        }
        let dir = self.layout.staging_of(owner);
        let (sealed, begun): (Vec<String>, _) =
            self.list_or_none(&dir)?.into_iter().partition(|name| sealed_id(name).is_some());
        for name in &begun {
            self.unlink_if_allowed(&dir.join(name))?;
        }
        if sealed.is_empty() {
            let _ = self.fs.remove_dir(&dir); // if it is not empty, a later round removes it
            if_available(self.coordination.leave(owner))?;
            watch.forget(owner);
        }
        Ok(begun.len() as u64)
    }

    /// Removes members that have been dead for [`UNFINISHED_GRACE_LEASES`] leases from the member list. A dead
    /// generator remains watched while its sealed segments wait in staging, which may take as long
    /// as the ring exists.
    fn remove_silent_members(&self, watch: &mut FailureDetector) -> Result<()> {
        for member in watch.known() {
            if !watch.is_silent_for(&member, UNFINISHED_GRACE_LEASES) || watch.silence(&member) <= SHORTEST_MEMBERSHIP {
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

    /// Commits a segment as far as that is possible without waiting.
    fn adopt(&self, owner: &str, id: SegmentId, present: &mut Option<Present>, done: &mut Recovered) -> Result<()> {
        // The owner has linked it already, so the next manifest decides. A dead owner may have left
        // thousands of segments, and recovery runs at least once per lease, so this check makes no
        // filesystem call per segment.
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
            // This client may have seen the file too early, and the file does no harm where it is.
            Err(error) => {
                tracing::warn!(%error, owner, "cannot read a segment of a dead owner; leaving it in staging");
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
    fn dead_members_are_delisted_while_their_segments_wait() {
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
        assert_eq!(round(&mut watch, 59), ["dead-1-a", "dead-2-b", "stopped-3-c"], "silent members stay listed");
        assert_eq!(round(&mut watch, 61), ["stopped-3-c"]);
        assert!(staged.exists() && watch.is_dead("dead-1-a"), "its segment still has to be committed");
    }

    #[test]
    fn recovery_is_described_only_if_it_changed_something() {
        let done = Recovered { adopted: 2, delivered: 5, quarantined: 0, litter: 1 };
        assert_eq!(done.words().as_deref(), Some("2 segments adopted, 1 unfinished file removed"));
        assert_eq!(Recovered { delivered: 5, ..Recovered::default() }.words(), None);
    }
}
