//! Pruning: removes manifests older than the last [`MANIFESTS_KEPT`], a bounded number in each
//! pass.
//!
//! Invariant: no pruned manifest lists a segment that still has a staging name. A promoter that
//! dies, or that may not remove another user's file, leaves staging names of segments that its
//! manifest lists. A pass removes these names first, and a later pass the manifest. So an owner,
//! even after a long suspension, and an adopter can always find out whether a segment was
//! delivered: either a manifest lists it, or its staging name is missing.

use super::adopt::is_left_for_later;
use crate::error::{Error, Result};
use crate::layout::{is_owner, sealed_id};
use crate::manifest::store::MANIFESTS_KEPT;
use crate::ring::Ring;
use crate::segment::reader::read_tail;
use ringreel_format::SegmentId;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Instant;

/// A pass runs when the newest generation is a multiple of this.
const PASS_EVERY: u64 = 8;
/// Maximum number of manifests removed in one pass.
const MOST_REMOVED: usize = 256;
/// Maximum number of segment entries read from manifests in one pass, which take about 40 ms to
/// decode.
const MOST_ENTRIES: usize = 100_000;
/// Maximum number of footers read in one pass. Segments beyond it are treated as if any manifest
/// could list them.
const MOST_FOOTERS: usize = 1_000;

/// A sealed segment in a staging directory, or linked into the filling generation.
struct StagedName {
    /// Its staging name; `None` if it is only linked.
    path: Option<PathBuf>,
    /// The first generation whose manifest can list it; 0 if unknown.
    born: u64,
}

/// The state of the staging names of the segments that a manifest lists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// No segment has one, and none is linked into the filling generation.
    Absent,
    /// Some existed and were removed in this pass; a later pass checks again.
    Removed,
    /// At least one cannot be removed, or the manifest cannot be read.
    Stuck,
}

impl Ring {
    /// Removes old manifests once there are twice as many as [`MANIFESTS_KEPT`]. Keeps those of
    /// held-out samples and those whose generation still exists.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn prune_manifests(&self, newest: u64) -> Result<()> {
        if !newest.is_multiple_of(PASS_EVERY) {
            return Ok(());
        }
        let mut numbers = self.manifests.numbers()?;
        if (numbers.len() as u64) < 2 * MANIFESTS_KEPT {
            return Ok(());
        }
        // Manifests whose staging names could not be removed are skipped for a lease, so that the
        // others are examined.
        let mut stuck = self.steps.unprunable.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.retain(|n| stuck.get(n).is_none_or(|tried| tried.elapsed() > self.settings.lease));
        numbers.sort_unstable();
        let first = self.reclaimable_from()?;
        let owners: Vec<String> =
            self.list_or_none(&self.layout.staging())?.into_iter().filter(|name| is_owner(name)).collect();
        let staged = match self.staged_names(&owners, newest) {
            Err(Error::Fs { source }) if source.is_denied() => {
                tracing::debug!(error = %source, "cannot list the staging directories; pruning no manifest");
                return Ok(());
            }
            staged => staged?,
        };
        let oldest_born = staged.values().map(|name| name.born).min().unwrap_or(u64::MAX);
        // One refresh serves all lookups below, of which about a thousand find nothing. After it,
        // they return no false "not found".
        self.fs.refresh(self.layout.root())?;
        let (mut prunable, mut entries) = (Vec::new(), 0);
        for n in numbers.into_iter().filter(|n| *n >= first && n + MANIFESTS_KEPT < newest) {
            if prunable.len() == MOST_REMOVED || entries > MOST_ENTRIES {
                break;
            }
            // The manifest records which files of an existing generation were delivered. (No false
            // "not found", because of the refresh above.)
            if self.fs.seen(&self.layout.read(n))? {
                continue;
            }
            if n < oldest_born {
                prunable.push(n);
                continue;
            }
            let names = self.look_for_staged(n, &staged, &mut entries)?;
            stuck.remove(&n);
            match names {
                Names::Absent => prunable.push(n),
                Names::Removed => {}
                Names::Stuck => {
                    stuck.insert(n, Instant::now());
                }
            }
        }
        if prunable.is_empty() {
            return Ok(());
        }
        self.settle_staging(&owners)?;
        prunable.iter().try_for_each(|n| Ok(self.fs.forget_file(&self.layout.manifest(*n))?))
    }

    /// Searches manifest `n` for segments that are staged, or linked into the filling generation,
    /// whose promoter has to see that they are listed already. Removes their staging names, and
    /// adds the number of the manifest's entries to `entries`.
    fn look_for_staged(&self, n: u64, staged: &HashMap<SegmentId, StagedName>, entries: &mut usize) -> Result<Names> {
        let manifest = match self.manifests.get(n) {
            Ok(Some(manifest)) => manifest,
            Ok(None) | Err(Error::Manifest { .. }) => return Ok(Names::Stuck), // the segments that it lists are unknown
            Err(error) => return Err(error),
        };
        *entries += manifest.segments.len();
        let mut names = Names::Absent;
        for name in manifest.segments.iter().filter_map(|entry| staged.get(&entry.id)) {
            if names == Names::Absent {
                self.sync_manifests(n)?;
                names = Names::Removed;
            }
            match name.path.as_deref().map_or(Ok(()), |path| self.fs.forget_file(path)) {
                Ok(()) => {}
                Err(error) if error.is_denied() || is_left_for_later(&error) => {
                    tracing::debug!(%error, "keeping manifest {n} until this staging name can be removed");
                    names = Names::Stuck;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(names)
    }

    /// Returns all sealed segments in the staging directories of `owners`, and all that are linked
    /// into the filling generation.
    fn staged_names(&self, owners: &[String], newest: u64) -> Result<HashMap<SegmentId, StagedName>> {
        let mut staged = HashMap::new();
        for owner in owners {
            for id in self.list_or_none(&self.layout.staging_of(owner))?.iter().filter_map(|name| sealed_id(name)) {
                staged.insert(id, StagedName { path: Some(self.layout.sealed(owner, id)), born: 0 });
            }
        }
        let filling = self.look_at_filling(newest)?;
        for entry in filling.iter().flat_map(|found| &found.segments) {
            staged.entry(entry.id).or_insert(StagedName { path: None, born: 0 }).born = entry.born;
        }
        for name in staged.values_mut().filter(|name| name.born == 0).take(MOST_FOOTERS) {
            let tail = name.path.as_deref().and_then(|path| read_tail(&*self.fs, path).ok());
            name.born = tail.map_or(0, |tail| tail.footer.info.born);
        }
        Ok(staged)
    }

    /// Syncs the staging directories if DURABILITY is `node`, because a power cut must not restore
    /// a staging name whose manifest is pruned.
    fn settle_staging(&self, owners: &[String]) -> Result<()> {
        if !self.syncs_dirs() {
            return Ok(());
        }
        for owner in owners {
            match self.sync_dir(&self.layout.staging_of(owner)) {
                Err(Error::Fs { source }) if source.is_gone() => {}
                done => done?,
            }
        }
        self.sync_dir(&self.layout.staging())
    }
}
