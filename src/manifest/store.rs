//! A process's view of the manifests of a ring: which ones exist, and their contents, each read
//! once and cached.

use super::{CUT_OFF, Decoder, MAX_BYTES, Manifest};
use crate::error::{Error, FsError, Result};
use crate::fs::{Fs, surely};
use crate::layout::{Layout, parse_number};
use ringreel_format::SegmentId;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of newest manifests that are never pruned.
pub const MANIFESTS_KEPT: u64 = if cfg!(feature = "short-history") { 32 } else { 1024 };

/// Returns the first generation whose manifest must exist if `newest` is the newest generation.
/// Manifests are pruned once there are twice [`MANIFESTS_KEPT`]; older ones may be missing.
pub fn first_unpruned(newest: u64) -> u64 {
    if newest < 2 * MANIFESTS_KEPT { 0 } else { newest - MANIFESTS_KEPT + 1 }
}

/// Approximate limit of the manifest cache in bytes. The newest manifests stay, and always at least
/// `CACHED_AT_LEAST`.
const CACHE_BYTES: usize = 16 << 20;
const CACHED_AT_LEAST: usize = 2;

/// A process's view of the manifests of a ring. Each manifest is read once.
#[derive(Clone)]
pub struct Manifests {
    fs: Arc<dyn Fs>,
    layout: Layout,
    seen: Arc<Mutex<Seen>>,
}

/// The result of searching a range of manifests for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The manifest of this generation lists it; the first one that does.
    Listed(u64),
    /// All manifests of the range exist, and none lists it.
    NotListed,
    /// No existing manifest lists it, and some of the range were pruned. The pruned ones did not
    /// list it if it still has a staging name (see `Ring::prune_manifests`).
    Pruned,
}

impl Lookup {
    /// Returns the generation whose manifest lists the segment.
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

/// The directory is listed again after this time, because single lookups alone might miss a
/// manifest.
const RELIST: Duration = Duration::from_secs(2);

impl Manifests {
    /// Creates a view of the manifests in `layout`.
    pub fn new(fs: Arc<dyn Fs>, layout: Layout) -> Manifests {
        Manifests { fs, layout, seen: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest generation. The result never decreases.
    ///
    /// # Errors
    /// [`Error::RingNotFound`] if there is no manifest; filesystem errors.
    pub fn newest(&self) -> Result<u64> {
        let mut seen = self.lock();
        let stale = seen.listed_at.is_none_or(|at| at.elapsed() > RELIST);
        let mut newest = seen.newest;
        if stale || newest.is_none() {
            newest = newest.max(self.numbers()?.into_iter().max());
            seen.listed_at = Some(Instant::now());
        }
        let mut newest = newest.ok_or_else(|| Error::RingNotFound { path: self.layout.root().to_owned() })?;
        // Each poll calls this, so a cached lookup is used. A false "not found" lasts until the
        // next listing.
        while self.fs.seen(&self.layout.manifest(newest + 1))? {
            newest += 1;
        }
        seen.newest = Some(newest);
        Ok(newest)
    }

    /// Returns the newest generation that this process has seen. Queries the filesystem only if it
    /// has seen none.
    ///
    /// # Errors
    /// As [`Manifests::newest`].
    pub fn newest_known(&self) -> Result<u64> {
        let known = self.lock().newest;
        known.map_or_else(|| self.newest(), Ok)
    }

    /// Returns the newest generation according to a listing of the whole directory.
    ///
    /// # Errors
    /// As [`Manifests::newest`].
    pub fn newest_listed(&self) -> Result<u64> {
        self.lock().listed_at = None;
        self.newest()
    }

    /// Records a hint that generation `n` has a manifest. The hint counts only if the manifest is
    /// visible.
    pub fn hint(&self, n: u64) {
        // After a false "not found", the next listing finds the manifest.
        if self.fs.seen(&self.layout.manifest(n)).unwrap_or(false) {
            let mut seen = self.lock();
            seen.newest = seen.newest.max(Some(n));
            seen.listed_at = Some(Instant::now());
        }
    }

    /// Returns the generations that have a manifest, unsorted.
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        match self.numbers_surely() {
            Err(Error::Fs { source }) if source.is_gone() => Ok(Vec::new()),
            numbers => numbers,
        }
    }

    /// Like [`Manifests::numbers`], but returns an error instead of an empty list if the listing
    /// fails with a stale handle.
    fn numbers_surely(&self) -> Result<Vec<u64>> {
        let dir = self.layout.manifests();
        match surely(&*self.fs, &dir, || self.fs.list(&dir)) {
            Ok(names) => Ok(names.iter().filter_map(|name| parse_number(name)).collect()),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the manifest of generation `n`, or `None` if it does not exist (not yet, or no
    /// longer).
    ///
    /// # Errors
    /// A damaged manifest; filesystem errors.
    pub fn get(&self, n: u64) -> Result<Option<Arc<Manifest>>> {
        if let Some(manifest) = self.lock().cache.get(&n) {
            return Ok(Some(manifest.clone()));
        }
        let path = self.layout.manifest(n);
        let read = || {
            let mut decoder = Decoder::default();
            self.fs.read_blocks(&path, MAX_BYTES, &mut |block| decoder.feed(block)).map(|()| decoder)
        };
        // A stale handle does not mean that the name is gone, so the file is opened once more by
        // its name.
        let decoder = match read().or_else(|error| if error.is_stale() { read() } else { Err(error) }) {
            Ok(decoder) => decoder,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A manifest is published whole, so one that is truncated may have been seen too early.
        let bad =
            |message: String| Error::Manifest { passing: message.starts_with(CUT_OFF), message, path: path.clone() };
        let manifest = decoder.end().map_err(&bad)?;
        if manifest.summary.generation != n {
            return Err(bad(format!("it belongs to generation {}", manifest.summary.generation)));
        }
        Ok(Some(self.keep(manifest)))
    }

    /// Like [`Manifests::get`], for a caller that rebuilds missing manifests or relies on their
    /// absence: a file that exists but cannot be opened just now (a stale handle) is an error, too.
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

    /// Returns the error for a manifest that must exist and cannot be opened just now.
    fn unseen(&self, n: u64) -> Error {
        let stale = io::Error::from(io::ErrorKind::StaleNetworkFileHandle);
        FsError::new("find manifest", &self.layout.manifest(n), stale).into()
    }

    /// Caches a manifest that is published under its name.
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

    /// Like [`Manifests::get`], but also returns `None` for a damaged manifest. For callers that
    /// only display or count.
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn usable(&self, n: u64) -> Result<Option<Arc<Manifest>>> {
        match self.get(n) {
            Err(Error::Manifest { .. }) => Ok(None),
            other => other,
        }
    }

    /// Returns the generations from `from` to `to` that may have a manifest, in order: all that are
    /// too new to be pruned, and the older ones that have a manifest. (So a forged file name with a
    /// distant number costs no time.)
    ///
    /// # Errors
    /// Filesystem errors.
    pub fn between(&self, from: u64, to: u64) -> Result<Vec<u64>> {
        let young = to.saturating_sub(MANIFESTS_KEPT - 1).max(from);
        let mut old = if from < young { self.numbers_surely()? } else { Vec::new() };
        old.retain(|n| (from..young).contains(n));
        old.sort_unstable();
        Ok(old.into_iter().chain(young..=to).collect())
    }

    /// Searches the manifests of the generations `from` to `to` for the segment, where `to` is at
    /// most the newest.
    ///
    /// # Errors
    /// A manifest that must exist and is not visible, because it may list the segment; errors of
    /// [`Manifests::get`].
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
        assert_eq!(kept(&manifests).1, CACHED_AT_LEAST, "the two newest manifests stay, however large");
    }
}
