//! The manifests of a ring as one process sees them: which are out, and what they say, each read once.

use super::{CUT_OFF, Decoder, MAX_BYTES, Manifest};
use crate::error::{Error, FsError, Result};
use crate::fs::{Fs, surely};
use crate::layout::{Layout, parse_number};
use ringreel_format::SegmentId;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The newest manifests, this many, are never pruned.
pub const MANIFESTS_KEPT: u64 = if cfg!(feature = "short-history") { 32 } else { 1024 };

/// The first generation whose manifest must be there when `newest` is the newest. Manifests are pruned once there are twice
/// as many as are kept; older ones may be gone.
pub fn first_unpruned(newest: u64) -> u64 {
    if newest < 2 * MANIFESTS_KEPT { 0 } else { newest - MANIFESTS_KEPT + 1 }
}

/// Bytes of manifests held in memory, about. The newest ones stay, and always this many:
const CACHE_BYTES: usize = 16 << 20;
const CACHED_AT_LEAST: usize = 2;

/// The manifests of a ring as one process sees them: each is read once.
#[derive(Clone)]
pub struct Manifests {
    fs: Arc<dyn Fs>,
    layout: Layout,
    seen: Arc<Mutex<Seen>>,
}

/// What the manifests of a range of generations say of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The manifest of this generation, the first one, lists it.
    Listed(u64),
    /// All manifests of the range exist, and none lists it.
    NotListed,
    /// None that exists lists it, and some of the range were pruned. Those did not list it if it
    /// still has a staging name (see `Ring::prune_manifests`).
    Pruned,
}

impl Lookup {
    /// The generation whose manifest lists the segment.
    pub fn generation(self) -> Option<u64> {
        match self {
            Lookup::Listed(n) => Some(n),
            Lookup::NotListed | Lookup::Pruned => None,
        }
    }
}

#[derive(Default)]
struct Seen {
    newest: Option<u64>,
    listed_at: Option<Instant>,
    cache: BTreeMap<u64, Arc<Manifest>>,
    cache_bytes: usize,
}

/// A directory's listing may be older than a name that is asked for; so, now and then, the directory is listed as well.
const RELIST: Duration = Duration::from_secs(2);

impl Manifests {
    /// The manifests in `layout`.
    pub fn new(fs: Arc<dyn Fs>, layout: Layout) -> Manifests {
        Manifests { fs, layout, seen: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest generation. Never goes back.
    ///
    /// # Errors
    /// No manifest at all (no ring); what the filesystem says.
    pub fn newest(&self) -> Result<u64> {
        let mut seen = self.lock();
        let stale = seen.listed_at.is_none_or(|at| at.elapsed() > RELIST);
        let mut newest = seen.newest;
        if stale || newest.is_none() {
            newest = newest.max(self.numbers()?.into_iter().max());
            seen.listed_at = Some(Instant::now());
        }
        let mut newest = newest.ok_or_else(|| Error::RingNotFound { path: self.layout.root().to_owned() })?;
        // A wrong no lasts until the next listing: every poll asks this.
        while self.fs.seen(&self.layout.manifest(newest + 1))? {
            newest += 1;
        }
        seen.newest = Some(newest);
        Ok(newest)
    }

    /// Returns the newest generation that this process has seen. Asks the filesystem only if it has
    /// seen none.
    ///
    /// # Errors
    /// As [`Manifests::newest`].
    pub fn newest_known(&self) -> Result<u64> {
        let known = self.lock().newest;
        known.map_or_else(|| self.newest(), Ok)
    }

    /// The newest generation, by a look at the whole directory.
    ///
    /// # Errors
    /// As [`Manifests::newest`].
    pub fn newest_listed(&self) -> Result<u64> {
        self.lock().listed_at = None;
        self.newest()
    }

    /// Somebody says that generation `n` is out. Believed when it is seen.
    pub fn hint(&self, n: u64) {
        // A wrong no: the next listing tells.
        if self.fs.seen(&self.layout.manifest(n)).unwrap_or(false) {
            let mut seen = self.lock();
            seen.newest = seen.newest.max(Some(n));
            seen.listed_at = Some(Instant::now());
        }
    }

    /// Generations that have a manifest, unsorted.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        match self.numbers_surely() {
            Err(Error::Fs { source }) if source.is_gone() => Ok(Vec::new()),
            numbers => numbers,
        }
    }

    /// As [`Manifests::numbers`]; a listing that fails by a stale handle is an error, and not one of no manifests.
    fn numbers_surely(&self) -> Result<Vec<u64>> {
        let dir = self.layout.manifests();
        match surely(&*self.fs, &dir, || self.fs.list(&dir)) {
            Ok(names) => Ok(names.iter().filter_map(|name| parse_number(name)).collect()),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The manifest of generation `n`; none when there is none (not yet, or no longer).
    ///
    /// # Errors
    /// A damaged manifest; what the filesystem says.
    pub fn get(&self, n: u64) -> Result<Option<Arc<Manifest>>> {
        if let Some(manifest) = self.lock().cache.get(&n) {
            return Ok(Some(manifest.clone()));
        }
        let path = self.layout.manifest(n);
        let read = || {
            let mut decoder = Decoder::default();
            self.fs.read_blocks(&path, MAX_BYTES, &mut |block| decoder.feed(block)).map(|()| decoder)
        };
        // A stale handle does not mean that the name is gone: once more, from the name.
        let decoder = match read().or_else(|error| if error.is_stale() { read() } else { Err(error) }) {
            Ok(decoder) => decoder,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A manifest that is cut off may be seen too early: it was published whole.
        let bad = |message: String| Error::Manifest { passing: message.starts_with(CUT_OFF), message, path };
        let manifest = decoder.end().and_then(|manifest| manifest.of_generation(n)).map_err(bad)?;
        Ok(Some(self.keep(manifest)))
    }

    /// The same for whoever makes a manifest anew where there is none: what cannot be opened just now (a stale handle) is an
    /// error, too.
    ///
    /// # Errors
    /// As [`Manifests::get`].
    pub fn get_surely(&self, n: u64) -> Result<Option<Arc<Manifest>>> {
        if let Some(found) = self.get(n)? {
            return Ok(Some(found));
        }
        let path = self.layout.manifest(n);
        match surely(&*self.fs, &path, || self.fs.identity(&path)) {
            Err(error) if matches!(error.source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
            Ok(_) => Err(self.unseen(n)),
        }
    }

    /// The error for one that must be there, and cannot be opened just now.
    fn unseen(&self, n: u64) -> Error {
        let stale = io::Error::from(io::ErrorKind::StaleNetworkFileHandle);
        FsError::new("find manifest", &self.layout.manifest(n), stale).into()
    }

    /// Remembers a manifest that stands under its name.
    pub(crate) fn keep(&self, manifest: Manifest) -> Arc<Manifest> {
        let manifest = Arc::new(manifest);
        let mut seen = self.lock();
        seen.cache_bytes += manifest.memory();
        let replaced = seen.cache.insert(manifest.summary.generation, manifest.clone());
        seen.cache_bytes -= replaced.map_or(0, |replaced| replaced.memory());
        while seen.cache_bytes > CACHE_BYTES && seen.cache.len() > CACHED_AT_LEAST {
            let oldest = seen.cache.pop_first();
            seen.cache_bytes -= oldest.map_or(0, |(_, oldest)| oldest.memory());
        }
        manifest
    }

    /// The same for whoever only looks; none, too, for one that is damaged.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn usable(&self, n: u64) -> Result<Option<Arc<Manifest>>> {
        match self.get(n) {
            Err(Error::Manifest { .. }) => Ok(None),
            other => other,
        }
    }

    /// The generations `from` to `to` that may have a manifest, in order: those that are not so old that it may have been
    /// pruned, and of the others those that have one. (Whoever plants a number far away keeps nobody busy.)
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn between(&self, from: u64, to: u64) -> Result<Vec<u64>> {
        let young = to.saturating_sub(MANIFESTS_KEPT - 1).max(from);
        let mut old = if from < young { self.numbers_surely()? } else { Vec::new() };
        old.retain(|n| (from..young).contains(n));
        old.sort_unstable();
        Ok(old.into_iter().chain(young..=to).collect())
    }

    /// Looks the segment up in the manifests of the generations `from` to `to`, where `to` is at most the newest.
    ///
    /// # Errors
    /// A manifest that must exist and cannot be seen: it may list the segment. As [`Manifests::get`].
    pub fn find(&self, id: SegmentId, from: u64, to: u64) -> Result<Lookup> {
        let existing = self.between(from, to)?;
        let mut pruned = (existing.len() as u64) < to.saturating_sub(from).saturating_add(u64::from(from <= to));
        for n in existing {
            match self.get_surely(n)? {
                Some(manifest) if manifest.lists(id) => return Ok(Lookup::Listed(n)),
                Some(_) => {}
                None if n + MANIFESTS_KEPT <= to => pruned = true,
                None => return Err(self.unseen(n)),
            }
        }
        Ok(if pruned { Lookup::Pruned } else { Lookup::NotListed })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::manifest::tests::example;

    #[test]
    fn cache_is_bounded_by_bytes_and_keeps_the_newest() {
        let manifests = Manifests::new(Arc::new(crate::fs::Posix), Layout::new(std::path::Path::new("/nowhere")));
        for n in 0..300 {
            let mut manifest = example(2_000);
            manifest.summary.generation = n;
            manifests.keep(manifest);
        }
        let kept = |manifests: &Manifests| {
            let seen = manifests.lock();
            let bytes: usize = seen.cache.values().map(|manifest| manifest.memory()).sum();
            assert_eq!(bytes, seen.cache_bytes);
            (bytes, seen.cache.len(), seen.cache.last_key_value().map(|(n, _)| *n))
        };
        let (bytes, count, newest) = kept(&manifests);
        assert!(bytes <= CACHE_BYTES && count > 20 && newest == Some(299), "{bytes} bytes, {count} manifests");
        for n in 300..303 {
            let mut manifest = example(100_000);
            manifest.summary.generation = n;
            manifests.keep(manifest);
        }
        assert_eq!(kept(&manifests).1, CACHED_AT_LEAST, "the newest one and the one before, however large");
    }
}
