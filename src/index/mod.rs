//! The index: atomic counter, swap status, leases, signs of life.
//!
//! It is a hint that can be lost. The counter spreads segments' names so that they do not collide, the status says
//! sooner where to look, leases save work; nothing is lost or doubled when any of it lies (rule 5 of `docs/design.md`).
//! Kept in [`FilesIndex`] (names in the ring itself) or [`MemoryIndex`] (one process, for tests).

mod files;
mod memory;

pub use files::FilesIndex;
pub use memory::MemoryIndex;

use crate::error::Result;
use serde::{Deserialize, Serialize};

/// What the newest promotion left: only says sooner what the manifests say for certain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwapStatus {
    /// The newest generation that was promoted.
    pub generation: u64,
    /// When, by its promoter's clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// Samples in all generations.
    pub total_samples: u64,
}

/// Who holds a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Grows with each holder.
    pub token: u64,
    /// The holder's owner name, whose sign of life is to be watched.
    pub holder: String,
    /// The holder gave it up.
    pub released: bool,
}

/// What a process says of itself with each sign of life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `generator`, `manager` or `reader`.
    pub role: String,
    /// Its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// When it began, by its clock: milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it said this, by its clock. For people to read; never compared between machines.
    pub unix_ms: u64,
    /// Samples generated, delivered or read by it.
    pub samples: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Samples per second of late.
    pub per_second: f64,
    /// What it is doing or waiting for.
    pub doing: String,
    /// The last error it met.
    pub last_error: Option<String>,
}

/// The index of one ring.
pub trait Index: Send + Sync {
    /// A number for a segment's name in `generation`, one that nobody got before as far as the index remembers; none
    /// when the generation was closed.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn next_index(&self, generation: u64) -> Result<Option<u64>>;

    /// Hands out no more numbers for `generation`. May be called again.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn close_generation(&self, generation: u64) -> Result<()>;

    /// Makes `status` the newest one, unless a later generation is there already. True: it is.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn publish_status(&self, status: &SwapStatus) -> Result<bool>;

    /// The newest status; none in a new or lost index.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn status(&self) -> Result<Option<SwapStatus>>;

    /// Who holds `role`; none when nobody ever did.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn lease(&self, role: &str) -> Result<Option<Lease>>;

    /// Claims `role` with `token`, which is to be one more than the last holder's. True: it is ours.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool>;

    /// Gives up `role`, held with `token`, so that nobody has to wait.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn release_lease(&self, role: &str, token: u64) -> Result<()>;

    /// A sign of life of `member`; `beat` grows by one each time.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()>;

    /// Takes `member` off the list.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn leave(&self, member: &str) -> Result<()>;

    /// All members and their last beats.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn members(&self) -> Result<Vec<(String, u64)>>;

    /// What `member` said with `beat`; none when it has said something newer, or left.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>>;

    /// Forgets what is kept of generations before `generation`.
    ///
    /// # Errors
    /// When the index cannot be reached.
    fn forget_before(&self, generation: u64) -> Result<()>;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod conformance {
    //! The contract of [`Index`], the same for all of them.
    use super::*;
    use crate::fs::Posix;
    use std::collections::HashSet;
    use std::sync::Arc;

    fn each(test: impl Fn(&dyn Fn() -> Arc<dyn Index>)) {
        let memory: Arc<dyn Index> = Arc::new(MemoryIndex::default());
        test(&|| memory.clone());
        let dir = tempfile::tempdir().unwrap();
        let n = std::cell::Cell::new(0);
        test(&|| {
            n.set(n.get() + 1);
            Arc::new(FilesIndex::new(Arc::new(Posix), dir.path().join("index"), &format!("me-{}", n.get()), 4))
        });
    }

    #[test]
    fn the_counter_gives_no_number_twice_from_many_threads_until_it_is_closed() {
        each(|open| {
            let indices: Vec<_> = (0..16).map(|_| open()).collect();
            let numbers: Vec<u64> = std::thread::scope(|scope| {
                let threads: Vec<_> = indices
                    .iter()
                    .map(|index| {
                        scope.spawn(|| (0..100).map(|_| index.next_index(1).unwrap().unwrap()).collect::<Vec<_>>())
                    })
                    .collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 1600);
            assert_eq!(open().next_index(2).unwrap(), Some(0), "each generation counts from 0");
            open().close_generation(1).unwrap();
            open().close_generation(1).unwrap();
            assert_eq!(open().next_index(1).unwrap(), None);
        });
    }

    #[test]
    fn the_status_never_goes_back() {
        each(|open| {
            let status = |generation| SwapStatus { generation, unix_ms: 5, total_samples: generation * 10 };
            assert_eq!(open().status().unwrap(), None);
            assert!(open().publish_status(&status(3)).unwrap());
            assert!(!open().publish_status(&status(2)).unwrap());
            assert_eq!(open().status().unwrap(), Some(status(3)));
            open().forget_before(3).unwrap();
            assert_eq!(open().status().unwrap(), Some(status(3)));
        });
    }

    #[test]
    fn a_lease_has_one_holder_by_token_and_can_be_given_up() {
        each(|open| {
            assert_eq!(open().lease("manager").unwrap(), None);
            assert!(open().claim_lease("manager", 1, "a").unwrap());
            assert!(!open().claim_lease("manager", 1, "b").unwrap());
            assert!(open().claim_lease("manager", 2, "b").unwrap());
            let held = open().lease("manager").unwrap().unwrap();
            assert_eq!(held, Lease { token: 2, holder: "b".into(), released: false });
            open().release_lease("manager", 2).unwrap();
            assert!(open().lease("manager").unwrap().unwrap().released);
            let winners: usize = std::thread::scope(|scope| {
                let indices: Vec<_> = (0..8).map(|_| open()).collect();
                let claim = |n: usize, index: &Arc<dyn Index>| {
                    usize::from(index.claim_lease("manager", 3, &format!("x{n}")).unwrap())
                };
                let threads: Vec<_> =
                    indices.into_iter().enumerate().map(|(n, index)| scope.spawn(move || claim(n, &index))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(winners, 1);
        });
    }

    #[test]
    fn members_are_seen_by_their_last_beat_until_they_leave() {
        each(|open| {
            let report = |samples| Report { role: "generator".into(), samples, ..Report::default() };
            let (me, you) = (open(), open());
            for beat in 1..=3 {
                me.beat("host-1-aa", beat, &report(beat * 7)).unwrap();
            }
            you.beat("host.b-2-bb", 9, &report(1)).unwrap();
            let mut members = open().members().unwrap();
            members.sort();
            assert_eq!(members, [("host-1-aa".to_owned(), 3), ("host.b-2-bb".to_owned(), 9)]);
            assert_eq!(open().report("host-1-aa", 3).unwrap().unwrap().samples, 21);
            assert_eq!(open().report("host-1-aa", 1).unwrap(), None);
            me.leave("host-1-aa").unwrap();
            assert_eq!(open().members().unwrap().len(), 1);
        });
    }

    #[test]
    fn files_that_were_deleted_by_hand_are_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let index = FilesIndex::new(Arc::new(Posix), dir.path().join("index"), "me", 1);
        assert_eq!(index.next_index(1).unwrap(), Some(0));
        std::fs::remove_dir_all(dir.path().join("index")).unwrap();
        index.next_index(1).unwrap().unwrap();
        index.beat("me", 1, &Report::default()).unwrap();
        assert!(index.claim_lease("manager", 1, "me").unwrap());
        assert!(index.publish_status(&SwapStatus { generation: 1, unix_ms: 0, total_samples: 0 }).unwrap());
    }
}
