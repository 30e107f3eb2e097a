//! Promotion: renames a full `write.<n>` to `read.<n>`, then publishes its manifest.
//!
//! Only the generation after the newest one is promoted, by the manager or by a generator that
//! finds it full. Any process may repeat any step, and two may run it at once: the rename happens
//! once, and the manifest is published once.

use super::orphans::Delivery;
use crate::coordination::{SwapStatus, if_available};
use crate::error::{Error, REPAIR_COMMAND, Result};
use crate::fs::atomic_publish::publish_by;
use crate::manifest::{MAX_SEGMENTS, Manifest, SegmentEntry};
use crate::random::random_u32;
use crate::ring::Ring;
use crate::ring::scan::ScannedGeneration;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// When a generation is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromoteWhen {
    /// When it has SWAP_CAP samples.
    Full,
    /// When it has at least one sample.
    NotEmpty,
}

/// The state of the generation after the newest one.
#[derive(Clone, Debug)]
pub enum Promoted {
    /// It has a manifest.
    Done(Promotion),
    /// It does not have enough samples yet.
    Filling {
        /// Number of samples in it.
        samples: u64,
    },
    /// It has enough samples, and waits for readers of the generation before.
    Blocked {
        /// Number of samples in it.
        samples: u64,
        /// What it waits for.
        why: String,
    },
    /// Another process has begun to promote it, or has promoted it. The next scan shows the
    /// progress.
    Raced,
}

impl Promoted {
    /// Returns the promotion, if there was one.
    pub fn done(self) -> Option<Promotion> {
        match self {
            Promoted::Done(promotion) => Some(promotion),
            Promoted::Filling { .. } | Promoted::Blocked { .. } | Promoted::Raced => None,
        }
    }
}

/// The result of a promotion.
#[derive(Clone, Debug)]
pub struct Promotion {
    /// The published manifest, by this process or by another one.
    pub manifest: Arc<Manifest>,
    /// Whether this process published it.
    pub ours: bool,
    /// Milliseconds from closing the generation until the next one was open, during which
    /// generators could not commit.
    pub swap_ms: f64,
    /// Milliseconds from closing the generation until it was readable.
    pub readable_ms: f64,
}

impl Ring {
    /// Promotes the generation after the newest one, if it is time.
    ///
    /// # Errors
    /// Filesystem errors. After an error, any process can try again.
    pub fn promote(&self, when: PromoteWhen) -> Result<Promoted> {
        match self.promote_next(when) {
            // Another process has promoted this generation meanwhile, and maybe later ones.
            Err(Error::Fs { source }) if source.is_gone() => Ok(Promoted::Raced),
            other => other,
        }
    }

    fn promote_next(&self, when: PromoteWhen) -> Result<Promoted> {
        let n = self.manifests.newest()? + 1;
        // A cached lookup suffices, because a manager polls this: a false "not found" is detected
        // below, before anything is changed.
        let begun = self.fs.seen(&self.layout.read(n))?;
        if !begun && let Some(not_yet) = self.not_yet(n, when)? {
            return Ok(not_yet);
        }
        if self.manifests.newest_listed()? != n - 1 {
            return Ok(Promoted::Raced);
        }
        self.reclaim_before_promote(n - 1);
        let started = Instant::now();
        self.rotate(n)?;
        let swap_ms = milliseconds_since(started);
        let found = self.look_at(n, &self.layout.read(n))?;
        let (manifest, ours) = self.publish_manifest(n, &found, swap_ms)?;
        let readable_ms = milliseconds_since(started);
        self.after_promotion(&manifest, &found)?;
        Ok(Promoted::Done(Promotion { manifest, ours, swap_ms, readable_ms }))
    }

    /// Returns why generation `n`, whose promotion has not begun, is not promoted now. Returns
    /// `None` if it is time.
    fn not_yet(&self, n: u64, when: PromoteWhen) -> Result<Option<Promoted>> {
        let samples = match self.count_samples(n) {
            Ok(samples) => samples,
            Err(Error::Fs { source }) if source.is_gone() => {
                if self.is_renamed(n)? {
                    return Ok(Some(Promoted::Raced)); // another process has just begun
                }
                self.fs.ensure_dir(&self.layout.write(n))?;
                return Ok(Some(Promoted::Filling { samples: 0 }));
            }
            Err(error) => return Err(error),
        };
        let wanted = if when == PromoteWhen::Full { self.descriptor.swap_cap } else { 1 };
        // A generation that is not full is not blocked by readers: another process may have
        // promoted the one that they blocked.
        if samples < wanted {
            return Ok(Some(Promoted::Filling { samples }));
        }
        Ok(self.held_back()?.map(|why| Promoted::Blocked { samples, why }))
    }

    /// Reclaims old generations before a promotion, because the process that promoted the newest
    /// generation may have died before it reclaimed. Otherwise each such death would leave one
    /// generation more on the disk than KEEP allows.
    fn reclaim_before_promote(&self, newest: u64) {
        if self.steps.reclaimed.load(Ordering::Relaxed) < newest
            && let Err(error) = self.reclaim()
        {
            tracing::warn!(%error, "cannot reclaim old generations before the next promotion");
        }
    }

    /// Closes generation `n`, creates the next one, and renames `write.<n>` to `read.<n>`.
    fn rotate(&self, n: u64) -> Result<()> {
        // The counter is only a hint. Without the close, late links are still detected, by the
        // manifest.
        if_available(self.coordination.close_generation(n))
            .map(drop)
            .unwrap_or_else(|error| tracing::warn!(%error, "cannot close generation {n} in the index"));
        self.fs.ensure_dir(&self.layout.write(n + 1))?;
        let (write, read) = (self.layout.write(n), self.layout.read(n));
        if let Err(error) = self.fs.rename(&write, &read)
            && !self.is_renamed(n)?
        {
            return Err(error.into()); // the rename did not happen
        }
        self.sync_dir(self.layout.root())
    }

    fn publish_manifest(&self, n: u64, found: &ScannedGeneration, swap_ms: f64) -> Result<(Arc<Manifest>, bool)> {
        let path = self.layout.manifest(n - 1);
        let before = self.manifests.get(n - 1)?.ok_or_else(|| unseen(&path))?;
        let segments = choose(&self.countable(n, &found.segments)?, self.descriptor.swap_cap, MAX_SEGMENTS);
        let summary = before.summary.next(&self.me, &segments, swap_ms);
        let path = self.layout.manifest(n);
        let refused = |message: String| Error::Manifest { path: path.clone(), message, passing: false };
        let manifest = Manifest::new(summary, segments);
        manifest.check().map_err(refused)?; // a manifest that readers would refuse is never published
        self.sync_dir(&self.layout.read(n))?;
        self.sync_manifests(n - 1)?;
        let temp = self.layout.staging_of(&self.me).join(format!("manifest.{n}.{:08x}", random_u32()));
        self.fs.ensure_dir(&self.layout.staging_of(&self.me))?;
        let ours = publish_by(&*self.fs, &temp, &path, &|file| manifest.write_to(file), self.syncs_files())?;
        self.sync_manifests(n)?;
        if ours {
            return Ok((self.manifests.keep(manifest), true)); // not read again, because generators wait
        }
        Ok((self.manifests.get(n)?.ok_or_else(|| unseen(&path))?, false))
    }

    /// Publishes the status, then removes the staging names of listed segments and the links of
    /// segments that are not listed.
    fn after_promotion(&self, manifest: &Manifest, found: &ScannedGeneration) -> Result<()> {
        let summary = &manifest.summary;
        let (n, total_samples) = (summary.generation, summary.total_samples);
        let status = SwapStatus { generation: n, unix_ms: summary.unix_ms, total_samples };
        if_available(self.coordination.publish_status(&status))
            .map(drop)
            .unwrap_or_else(|error| tracing::warn!(%error, "cannot publish the status in the index"));
        for entry in &manifest.segments {
            self.unlink_if_allowed(&self.layout.sealed(&entry.owner, entry.id))?;
        }
        // Only links of segments that passed their check are removed. A damaged segment may only
        // have been seen too early, and its owner checks it.
        let is_listed =
            |entry: &SegmentEntry| manifest.locate_id(entry.id).is_some_and(|listed| listed.name() == entry.name());
        for entry in found.segments.iter().filter(|entry| !is_listed(entry)) {
            let staged = self.fs.exists(&self.layout.sealed(&entry.owner, entry.id))?;
            if !staged
                && matches!(
                    self.delivery_from(entry, entry.born, self.manifests.newest()?)?,
                    Delivery::Undelivered | Delivery::Unclear
                )
            {
                tracing::error!(
                    segment = %entry.id,
                    "keeping read.{n}/{}: no manifest lists it and it has no other name; run {REPAIR_COMMAND}",
                    entry.file()
                );
                continue;
            }
            self.unlink_if_allowed(&self.layout.read(n).join(entry.file()))?;
        }
        Ok(())
    }
}

fn milliseconds_since(then: Instant) -> f64 {
    then.elapsed().as_secs_f64() * 1e3
}

/// Returns the error for a manifest that exists but is not visible to this client yet.
fn unseen(path: &Path) -> Error {
    Error::Manifest { path: path.to_owned(), message: "it cannot be seen yet".to_owned(), passing: true }
}

/// Chooses whole segments in order: each one that still fits into `cap` samples, and at most `most`.
/// The others are linked again into the next generation.
fn choose(countable: &[Arc<SegmentEntry>], cap: u64, most: usize) -> Vec<SegmentEntry> {
    let fit = fitting(countable.iter().map(|entry| entry.samples), cap);
    countable.iter().zip(fit).filter(|(_, fits)| *fits).map(|(entry, _)| (**entry).clone()).take(most).collect()
}

/// Returns for each segment, given its number of samples, whether a manifest with `cap` samples
/// lists it.
pub fn fitting(samples: impl Iterator<Item = u64>, cap: u64) -> impl Iterator<Item = bool> {
    let mut listed = 0;
    samples.map(move |samples| {
        let fits = samples > 0 && listed + samples <= cap;
        listed += if fits { samples } else { 0 };
        fits
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::manifest::tests::example;
    use crate::manifest::{MAX_BYTES, MAX_SEGMENTS};

    #[test]
    fn promotion_lists_no_more_than_readers_accept() {
        let countable: Vec<_> = example(10).segments.into_iter().map(Arc::new).collect();
        assert_eq!(choose(&countable, 1000, 7).len(), 7);
        assert_eq!(choose(&countable, 1000, 70).len(), 10);
        // The longest possible line: every number has the most digits, and the owner name is the
        // longest.
        let longest = SegmentEntry {
            index: u64::MAX,
            owner: "o".repeat(200).into(),
            born: u64::MAX,
            samples: u64::MAX,
            bytes: u64::MAX,
            ..(*countable[0]).clone()
        };
        let line = serde_json::to_vec(&longest).unwrap().len() as u64 + 1;
        assert!(crate::layout::is_owner(&longest.owner) && !crate::layout::is_owner(&"o".repeat(201)));
        assert!((line + 1) * MAX_SEGMENTS as u64 <= MAX_BYTES, "{line} bytes a line");
    }
}
