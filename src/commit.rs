//! Commit: links a sealed segment into the generation that fills. The segment stays staged until a manifest lists it.
//!
//! The owner commits its segments; after its death another process does. Both may do so at once without harm, since a
//! manifest lists an id once. One call of [`Ring::commit_step`] makes the progress that is possible now and returns
//! what to wait for.

use crate::coordination::if_available;
use crate::error::{Error, FsError, Result};
use crate::fs::atomic_publish::same_file;
use crate::layout::{SegmentName, sealed_id, segment_name};
use crate::manifest::Manifest;
use crate::manifest::store::{Lookup, Manifests};
use crate::random::random_u32;
use crate::ring::Ring;
use crate::ring::state::Occupancy;
use crate::segment::reader::check_stored;
use ringreel_format::SegmentId;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

/// From this number on, indices are random. They are used when the index hands out none.
const STRAY_INDEX: u64 = 1 << 40;
/// Collisions after which a commit no longer takes numbers from the index.
const COLLISIONS: u32 = 16;
/// Names that one step tries before it fails.
const ATTEMPTS: usize = 1000;

/// A sealed segment that no manifest is known to list.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The process that wrote it.
    pub owner: String,
    /// Its id.
    pub id: SegmentId,
    /// The generation that was filling when the segment was begun.
    pub born: u64,
    /// Samples in it.
    pub samples: u64,
    /// Bytes in it.
    pub bytes: u64,
}

/// A segment that is being committed.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The segment.
    pub staged: Staged,
    /// The newest manifest checked. It and all earlier ones are known not to list the segment.
    checked: Option<u64>,
    /// The generation into which it was linked last, if that was open when it was checked.
    pub linked: Option<u64>,
    /// Whether a manifest that may list it was pruned before this process read it. While the segment is staged, that
    /// manifest does not list it.
    pruned: bool,
    /// Since when its staged file is missing although no manifest that this process can see lists it.
    missing: Option<Instant>,
    /// Whether its owner sealed it early to fit into the remaining room. If it does not fit, it waits for a while,
    /// because smaller segments of other generators may fill the generation exactly.
    pub(crate) is_cut: bool,
}

/// The manifest that was searched last, and the position of the last hit. A manifest lists the segments of one owner
/// in their order, with those of other owners in between.
#[derive(Default)]
pub(crate) struct ManifestCursor {
    manifest: Option<Arc<Manifest>>,
    next: usize,
}

impl ManifestCursor {
    /// A segment at most this far after the last hit is found without the manifest's lookup table.
    const BETWEEN: usize = 8;

    /// Returns whether generation `n` has a readable manifest that lists `id`.
    fn finds(&mut self, id: SegmentId, n: u64, manifests: &Manifests) -> bool {
        if self.manifest.as_ref().is_none_or(|manifest| manifest.summary.generation != n) {
            *self = ManifestCursor { manifest: manifests.get(n).ok().flatten(), next: 0 };
        }
        let Some(manifest) = &self.manifest else { return false };
        let near = manifest.segments[self.next..].iter().take(Self::BETWEEN).position(|segment| segment.id == id);
        let found = near.map(|n| self.next + n).or_else(|| manifest.place_of(id));
        self.next = found.map_or(self.next, |n| n + 1);
        found.is_some()
    }
}

/// State of a segment after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Linked into this generation, which has no manifest yet.
    Linked(u64),
    /// This generation's manifest lists it, or, for `None`, a manifest that was pruned since. The commit is complete.
    Delivered(Option<u64>),
    /// This generation is full or is being promoted: wait for its manifest.
    Wait(u64),
    /// The filesystem does not allow links to another process's file: its owner has to commit it.
    Refused,
    /// It is damaged and was moved to quarantine.
    Quarantined(String),
}

/// State of a segment according to the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// This generation's manifest lists it.
    Listed(u64),
    /// It was linked into this generation, which has no manifest yet.
    Linked(u64),
    /// It was linked but is not listed: the generation was full or already promoted, or the segment is damaged.
    LeftOut,
    /// It is only staged.
    Staged,
}

/// Returns the state of a segment by the manifests up to `newest`. `listed` is the generation whose manifest lists
/// it, `linked` the generation into which it was linked last.
pub fn commit_state(listed: Option<u64>, linked: Option<u64>, newest: u64) -> CommitState {
    match (listed, linked) {
        (Some(n), _) => CommitState::Listed(n),
        (None, Some(n)) if n > newest => CommitState::Linked(n),
        (None, Some(_)) => CommitState::LeftOut,
        (None, None) => CommitState::Staged,
    }
}

impl Commit {
    /// Creates the commit of a segment of which only the footer is known.
    pub fn new(staged: Staged) -> Commit {
        Commit { staged, checked: None, linked: None, pruned: false, missing: None, is_cut: false }
    }

    /// Creates the commit of a segment that its owner sealed when `newest` was already published, so that no manifest
    /// up to `newest` can list it.
    pub fn sealed_after(staged: Staged, newest: u64) -> Commit {
        Commit { checked: (newest >= staged.born).then_some(newest), ..Commit::new(staged) }
    }

    /// Returns the first generation whose manifest may list the segment, as far as this process knows.
    fn unchecked_from(&self) -> u64 {
        self.checked.map_or(self.staged.born, |n| n + 1)
    }
}

impl Ring {
    /// Returns the number after the highest one in `write.<n>`, or 0 if the directory is missing or has no number
    /// from the index.
    pub fn first_free_index(&self, n: u64) -> Result<u64> {
        // A false negative is harmless: the next link collides, and the number after it is tried.
        let names = self.names_in(n)?.unwrap_or_default();
        let taken = names.iter().map(|name| name.index).filter(|index| *index < STRAY_INDEX);
        Ok(taken.max().map_or(0, |highest| highest + 1))
    }

    /// Returns the names of the segments in `write.<n>`, or `None` if one listing does not find the directory.
    fn names_in(&self, n: u64) -> Result<Option<Vec<SegmentName>>> {
        // A false negative is harmless: both callers then try a link, which asks the server.
        match self.fs.list(&self.layout.write(n)) {
            Ok(names) => Ok(Some(names.iter().filter_map(|name| SegmentName::parse(name)).collect())),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes one step of the commit. `thorough`: the commit has waited for this generation for some time, so its
    /// samples are counted exactly.
    ///
    /// # Errors
    /// Errors of the filesystem and of the index; [`Error::Lost`] if the staged file was removed by hand.
    pub fn commit_step(&self, commit: &mut Commit, thorough: bool) -> Result<CommitOutcome> {
        let staged = self.layout.sealed(&commit.staged.owner, commit.staged.id);
        let mut collisions = 0;
        for _ in 0..ATTEMPTS {
            let newest = self.manifests.newest()?;
            if let Some(step) = self.judge(commit, &staged, newest)? {
                return Ok(step);
            }
            let target = self.filling(newest);
            let needed = if commit.is_cut && !thorough { commit.staged.samples } else { 1 };
            if self.is_full(target, needed, thorough)? {
                return Ok(CommitOutcome::Wait(target));
            }
            if target != self.filling(newest) {
                continue;
            }
            // The index is only a hint. A random number is used if there is no index, if the index hands out only
            // numbers that are taken, or if a process closed its counter and died before the promotion.
            let handed =
                if collisions < COLLISIONS { if_available(self.coordination.next_index(target))? } else { None };
            let index = match handed {
                Some(Some(index)) => index,
                Some(None) if target == newest + 1 && self.has_begun(target)? => continue,
                Some(None) if !thorough => return Ok(CommitOutcome::Wait(target)),
                _ => STRAY_INDEX + u64::from(random_u32()),
            };
            let name = self.layout.write(target).join(segment_name(index, commit.staged.samples));
            let Err(error) = self.fs.link(&staged, &name) else {
                return Ok(self.linked(commit, target));
            };
            // The server's reply may have been lost: the link may exist although the call failed.
            match same_file(&*self.fs, &staged, &name) {
                Ok(Some(true)) => return Ok(self.linked(commit, target)),
                Ok(Some(false)) => {
                    collisions += 1;
                    self.collided(target, index, collisions)?;
                    continue; // another segment has the name: try the next one
                }
                _ => {}
            }
            if error.is_gone() {
                if let Some(step) = self.look_afresh(commit, &staged, newest, target)? {
                    return Ok(step);
                }
            } else if error.is_denied() && commit.staged.owner != self.me {
                return Ok(CommitOutcome::Refused);
            } else if !error.is_taken() {
                return Err(error.into());
            }
        }
        Err(Error::Coordination(format!(
            "found no free name for a segment in {} in {ATTEMPTS} attempts",
            self.layout.root().display()
        )))
    }

    /// Returns the generation that fills, as far as is known: the one after the newest, or the one after that while
    /// the former waits for its manifest.
    fn filling(&self, newest: u64) -> u64 {
        newest + 1 + u64::from(self.begun() == newest + 1)
    }

    fn occupancy(&self) -> MutexGuard<'_, Occupancy> {
        self.steps.occupancy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last generation that was seen to wait for its manifest. It may have its manifest by now.
    pub(crate) fn begun(&self) -> u64 {
        self.steps.begun.load(Ordering::Relaxed)
    }

    /// Returns whether generation `n` was renamed for its promotion, so that the one after it fills. (Generation
    /// `n + 1` may also be renamed if a power failure lost the manifests of promoted generations.)
    fn has_begun(&self, n: u64) -> Result<bool> {
        let begun = self.is_renamed(n)? && !self.is_renamed(n + 1)?;
        if begun {
            self.steps.begun.store(n, Ordering::Relaxed);
        }
        Ok(begun)
    }

    /// Handles a number from the index that another segment has: logs a warning once, and moves the counter on after
    /// the second, fourth, eighth... collision.
    fn collided(&self, n: u64, index: u64, collisions: u32) -> Result<()> {
        if index < STRAY_INDEX && !self.steps.told_of_repeats.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the counter repeats itself: it handed out number {index} of generation {n}, which is taken ({}). No \
                 sample is lost, but each repeat costs time. Check whether the index was emptied, or whether \
                 findAndModify is not atomic on its server",
                self.coordination.place()
            );
        }
        if collisions.is_power_of_two() && collisions > 1 {
            let free = self.first_free_index(n)?;
            if free > 0 {
                if_available(self.coordination.skip_to(n, free))?;
            }
        }
        Ok(())
    }

    /// Looks the segment up in the manifests up to `newest`. If one of them lists it, its staging name is no longer
    /// needed.
    pub(crate) fn look_up(&self, commit: &Commit, newest: u64, looked: &mut ManifestCursor) -> Result<Lookup> {
        let (id, from) = (commit.staged.id, commit.unchecked_from());
        // The generation into which it was linked lists nearly all of its segments, so this saves a search for each
        // of thousands.
        let first = commit.linked.filter(|n| (from..=newest).contains(n));
        let first = first.filter(|n| looked.finds(id, *n, &self.manifests));
        let found = first.map_or_else(|| self.manifests.find(id, from, newest), |n| Ok(Lookup::Listed(n)))?;
        if let Lookup::Listed(n) = found {
            self.sync_manifests(n)?;
        }
        Ok(found)
    }

    /// Returns whether the staging name exists. Lists the directory, because a cached lookup may be older than the
    /// manifests that were read before this call.
    fn is_staged_now(&self, staged: &Staged) -> Result<bool> {
        let names = self.list_or_none(&self.layout.staging_of(&staged.owner))?;
        Ok(names.iter().filter_map(|name| sealed_id(name)).any(|id| id == staged.id))
    }

    /// Decides by the manifests: delivered, waiting for a manifest, or, for `None`, to be linked (again).
    fn judge(&self, commit: &mut Commit, staged: &Path, newest: u64) -> Result<Option<CommitOutcome>> {
        let Staged { id, born, .. } = commit.staged;
        let found = self.look_up(commit, newest, &mut ManifestCursor::default())?;
        let standing = commit_state(found.generation(), commit.linked, newest);
        if let CommitState::Listed(n) = standing {
            self.unlink_if_allowed(staged)?;
            return Ok(Some(CommitOutcome::Delivered(Some(n))));
        }
        // The staging name is checked after the manifest, because a manifest is pruned only after the staging names
        // of its segments are removed.
        if found == Lookup::Pruned {
            commit.pruned = true;
            if !self.is_staged_now(&commit.staged)? {
                return self.unstaged(&commit.staged).map(Some);
            }
        }
        commit.checked = Some(newest.max(born.saturating_sub(1)));
        match standing {
            CommitState::Linked(n) => return Ok(Some(CommitOutcome::Linked(n))),
            CommitState::LeftOut => {
                if let Err(Error::Format { source, .. }) = check_stored(&*self.fs, staged) {
                    return self.quarantine_staged(&commit.staged.owner, id, source.to_string()).map(Some);
                }
                commit.linked = None;
            }
            CommitState::Staged | CommitState::Listed(_) => {}
        }
        Ok(None)
    }

    fn linked(&self, commit: &mut Commit, target: u64) -> CommitOutcome {
        commit.linked = Some(target);
        let mut occupancy = self.occupancy();
        if occupancy.generation == target {
            occupancy.spent += commit.staged.samples;
        }
        CommitOutcome::Linked(target)
    }

    /// Handles a link that found no file or no directory. Returns `None` to try again.
    fn look_afresh(
        &self,
        commit: &mut Commit,
        staged: &Path,
        known: u64,
        target: u64,
    ) -> Result<Option<CommitOutcome>> {
        let is_staged = self.fs.exists(staged)? || self.is_staged_now(&commit.staged)?;
        if is_staged && target == known + 1 && self.has_begun(target)? {
            commit.missing = None;
            return Ok(None); // the next generation fills, with or without this one's manifest
        }
        let newest = self.manifests.newest_listed()?;
        if !is_staged {
            let id = commit.staged.id;
            return match self.manifests.find(id, commit.unchecked_from(), newest)? {
                Lookup::Listed(n) => Ok(Some(CommitOutcome::Delivered(Some(n)))),
                Lookup::Pruned => self.unstaged(&commit.staged).map(Some),
                // The listing in which the segment was still staged was stale.
                Lookup::NotListed if commit.pruned => self.unstaged(&commit.staged).map(Some),
                // Most likely another process adopted it, and this process's view of the manifests is stale.
                Lookup::NotListed
                    if commit.missing.get_or_insert_with(Instant::now).elapsed() <= self.settings.lease =>
                {
                    Ok(Some(CommitOutcome::Wait(target)))
                }
                Lookup::NotListed => match self.quarantined_as(&commit.staged)? {
                    Some(step) => Ok(Some(step)),
                    None => Err(Error::Lost { id: id.to_string(), path: staged.to_owned() }),
                },
            };
        }
        commit.missing = None;
        if newest >= target {
            return Ok(None);
        }
        if self.is_renamed(target)? {
            return Ok(Some(CommitOutcome::Wait(target))); // it is being promoted
        }
        self.fs.ensure_dir(&self.layout.write(target))?;
        Ok(None)
    }

    /// Returns whether the generation after `newest` seems to have no room left after this process's last commit.
    pub fn seems_full(&self, newest: u64) -> bool {
        let occupancy = self.occupancy();
        occupancy.generation > newest && occupancy.spent >= occupancy.room
    }

    /// Measures the room that the filling generation has.
    ///
    /// # Errors
    /// Filesystem errors.
    pub(crate) fn look_for_room(&self) -> Result<()> {
        let filling = self.filling(self.manifests.newest()?);
        self.is_full(filling, 1, false).map(drop)
    }

    /// Returns this process's share of the room that the filling generation had when it was last measured, in
    /// samples, at least 1. All members may fill it as fast as this process does.
    pub(crate) fn share_of_room(&self) -> u64 {
        let occupancy = self.occupancy();
        // If the generation is full, the next segment goes into an empty one.
        let room = occupancy.room.checked_sub(occupancy.spent).filter(|room| *room > 0);
        (room.unwrap_or(self.descriptor.swap_cap) / occupancy.sharers.max(1)).max(1)
    }

    /// Returns whether generation `n` has no room for `needed` samples, by the file names in it, which contain the
    /// number of samples. `thorough`: if the names say that it is full, also reads the footers, because some segments
    /// may be damaged or linked twice.
    fn is_full(&self, n: u64, needed: u64, thorough: bool) -> Result<bool> {
        let mut occupancy = self.occupancy();
        let left = occupancy.room.saturating_sub(occupancy.spent);
        if occupancy.generation == n && !thorough {
            if needed <= left && occupancy.spent * 8 * occupancy.sharers < occupancy.room {
                return Ok(false);
            }
            // A full generation has no room until it is promoted. It is listed again only at intervals, because the
            // last listing may have been stale.
            let recent = occupancy.looked.is_some_and(|looked| looked.elapsed() < self.settings.poll * 2);
            if needed > left && recent {
                // A false negative only waits for the manifest. Generators poll this.
                return Ok(!self.fs.seen(&self.layout.read(n))? || !self.has_begun(n)?);
            }
        }
        // Checked once per generation: a process with a stale view may have created its directory again.
        if occupancy.generation < n && self.manifests.newest()? + 1 == n {
            self.has_begun(n)?;
        }
        let cap = self.descriptor.swap_cap;
        // A false negative is harmless: the link is tried, which asks the server, and its error shows the cause.
        let Some(names) = self.names_in(n)? else { return Ok(false) };
        // A manifest lists no segment with more samples than a generation has.
        let samples = names.iter().map(|name| name.samples).filter(|samples| *samples <= cap);
        let named = samples.fold(0, u64::saturating_add);
        if occupancy.generation != n {
            occupancy.surplus = 0;
        }
        let mut room = cap.saturating_sub(named.saturating_sub(occupancy.surplus));
        if thorough && room == 0 {
            let fill = match self.count_samples(n) {
                Ok(fill) => fill,
                Err(Error::Fs { source }) if source.is_gone() => return Ok(false),
                Err(error) => return Err(error),
            };
            occupancy.surplus = named.saturating_sub(fill);
            room = cap.saturating_sub(fill);
        }
        if occupancy.counted.is_none_or(|counted| counted.elapsed() > self.settings.lease / 2) {
            // Readers are members without a staging directory, and dead owners may have one: the smaller number
            // counts. If the index or the directory is unreachable, the last count holds.
            if let (Ok(members), Ok(owners)) = (self.coordination.members(), self.fs.list(&self.layout.staging())) {
                occupancy.sharers = members.len().min(owners.len()) as u64;
                occupancy.counted = Some(Instant::now());
            }
            occupancy.sharers = occupancy.sharers.max(1);
        }
        (occupancy.generation, occupancy.room, occupancy.spent) = (n, room, 0);
        occupancy.looked = Some(Instant::now());
        Ok(room < needed)
    }

    /// Returns the outcome for a segment that has no staging name and that a pruned manifest may have listed:
    /// `ringreel repair` quarantined it, or that manifest delivered it.
    fn unstaged(&self, staged: &Staged) -> Result<CommitOutcome> {
        Ok(self.quarantined_as(staged)?.unwrap_or(CommitOutcome::Delivered(None)))
    }

    /// Returns [`CommitOutcome::Quarantined`] with the recorded reason if the segment is in `quarantine/`.
    fn quarantined_as(&self, staged: &Staged) -> Result<Option<CommitOutcome>> {
        let (dir, prefix) = (self.layout.quarantine(), format!("{}.{}.", staged.owner, staged.id));
        let names = self.list_or_none(&dir)?;
        let mut files = names.iter().filter_map(|name| name.strip_suffix(".rec"));
        let Some(stem) = files.find(|stem| stem.starts_with(&prefix)) else { return Ok(None) };
        let why = self.fs.read(&dir.join(format!("{stem}.why")), 1 << 16).unwrap_or_default();
        let why = String::from_utf8_lossy(&why).trim().to_owned();
        let unknown = || "another process quarantined it".to_owned();
        Ok(Some(CommitOutcome::Quarantined(if why.is_empty() { unknown() } else { why })))
    }

    /// Moves a staged segment to `quarantine/` and records the reason.
    pub fn quarantine_staged(&self, owner: &str, id: SegmentId, why: String) -> Result<CommitOutcome> {
        let staged = self.layout.sealed(owner, id);
        let name = format!("{owner}.{id}.{:08x}", random_u32());
        let to = self.layout.quarantine();
        tracing::error!(segment = %id, owner, reason = why, to = %to.display(), name, "moving a staged segment to quarantine");
        match self.move_to(&staged, &to, &format!("{name}.rec")) {
            Ok(()) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
        self.note_why(&name, &why);
        Ok(CommitOutcome::Quarantined(why))
    }

    /// Writes the reason for a quarantine beside the file `name` in `quarantine/`.
    pub fn note_why(&self, name: &str, why: &str) {
        let note = self.layout.quarantine().join(format!("{name}.why"));
        let noted = crate::fs::atomic_publish::write_new(&*self.fs, &note, format!("{why}\n").as_bytes(), false);
        noted.unwrap_or_else(
            |error: FsError| tracing::warn!(%error, "cannot write the reason beside a quarantined file"),
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::manifest::tests::example;

    #[test]
    fn manifest_cursor_finds_only_listed_ids_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        std::fs::create_dir(layout.manifests()).unwrap();
        for (n, count) in [(5, 100), (6, 3)] {
            let mut manifest = example(count);
            manifest.summary.generation = n;
            std::fs::write(layout.manifest(n), manifest.encode().unwrap()).unwrap();
        }
        let manifests = Manifests::new(Arc::new(crate::fs::Posix), layout);
        let mut looked = ManifestCursor::default();
        let mut finds = |id: u64, n| looked.finds(SegmentId(u128::from(id).to_be_bytes()), n, &manifests);
        // In order with few other segments in between, then with many; to the end, back, and beyond the end.
        for id in (0..20).chain((20..40).step_by(3)).chain([70, 71, 99, 2, 3, 98, 99]) {
            assert!(finds(id, 5), "{id}");
            assert!(!finds(id + 100, 5) && !finds(u64::MAX, 5), "{id}");
        }
        assert!(finds(2, 6) && !finds(3, 6) && !finds(2, 7) && finds(3, 5), "each generation is searched separately");
    }
}
