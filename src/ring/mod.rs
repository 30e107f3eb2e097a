//! The handle of a ring: where it is, what it is, and how this process works with it.
//!
//! | file | |
//! |---|---|
//! | here | [`Ring`]: finding a ring, or making one |
//! | [`descriptor`] | `ring.json`: what this ring is, once and for all |
//! | [`settings`] | how this process works with it |
//! | [`failure_detector`] | who is alive |
//! | [`scan`] | what a generation's directory holds right now |
//! | [`validation_split`] | the ring's first samples, which are kept and not served for training |
//! | [`mod@missing`] | generations that must be there and are not |
//! | `durability` | what is synced |
//! | `state` | what the steps above the handle remember: data alone |
//!
//! The steps of a sample are in `write`, those of a generation in `swap`, a reader's in `read`. They are methods of
//! [`Ring`] too, and stand above this folder, which knows none of them.

pub mod descriptor;
mod durability;
pub mod failure_detector;
pub mod missing;
pub mod scan;
pub mod settings;
pub(crate) mod state;
pub mod validation_split;

use crate::config::Config;
use crate::coordination::{Backend, Claim, CoordinationStore, IfUnreachable, RingContext};
use crate::error::{Error, Result};
use crate::fs::poll::jittered;
use crate::fs::{Fs, FsResult, surely, within};
use crate::layout::Layout;
use crate::manifest::store::Manifests;
use crate::random::random_u32;
use descriptor::RingDescriptor;
use durability::Syncs;
use failure_detector::FailureDetector;
use scan::Scanner;
use settings::Settings;
use state::StepsState;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use validation_split::KeptSoFar;

/// One process's view of a ring.
pub struct Ring {
    /// The filesystem it lies on.
    pub fs: Arc<dyn Fs>,
    /// Counter, status, leases.
    pub coordination: Arc<dyn CoordinationStore>,
    /// Its paths.
    pub layout: Layout,
    /// Its manifests.
    pub manifests: Manifests,
    /// What it is.
    pub descriptor: RingDescriptor,
    /// This process's owner name.
    pub me: String,
    /// How this process works with it.
    pub settings: Settings,
    syncs: Syncs,
    scanner: Scanner,
    failure_detector: Mutex<FailureDetector>,
    kept: Mutex<KeptSoFar>,
    pub(crate) steps: StepsState,
}

impl Ring {
    /// Finds or makes the ring that `config` describes: for generators and managers. Waits LEASE_SECONDS for a file server
    /// that does not answer, and for a limit of the system's that this process has reached.
    ///
    /// # Errors
    /// A directory that cannot be made; a ring that does not fit; [`Error::Timeout`].
    pub fn find_or_make(fs: Arc<dyn Fs>, config: &Config) -> Result<Ring> {
        let started = Instant::now();
        let mut told = false;
        loop {
            let source = match Ring::find_or_make_now(fs.clone(), config) {
                Err(Error::Fs { source }) if source.is_away() || source.is_stale() || source.is_exhausted() => source,
                done => return done,
            };
            let (waited, limit) = (started.elapsed(), config.lease);
            if waited >= limit && source.is_exhausted() {
                return Err(source.into()); // it names the limit
            }
            if waited >= limit {
                let what = format!("the file server, which does not answer: {source}");
                return Err(Error::Timeout { seconds: waited.as_secs_f64(), what });
            }
            if !told {
                tracing::warn!(error = %source, "the ring cannot be opened now; trying again for {limit:?}");
                told = true;
            }
            let pause = config.poll.unwrap_or(Duration::from_millis(200));
            std::thread::sleep(jittered(pause).min(limit - waited));
        }
    }

    fn find_or_make_now(fs: Arc<dyn Fs>, config: &Config) -> Result<Ring> {
        // Before anything is made: who gave a wrong address finds no ring there afterwards.
        let backend = Backend::connect(&config.index, IfUnreachable::Fail)?;
        let layout = Layout::new(&config.ring);
        let fs = within(fs, layout.root(), config.modes);
        let me = owner_name();
        let manifests = Manifests::new(fs.clone(), layout.clone());
        let descriptor = descriptor::find_or_make(&*fs, &layout, config, &me, &manifests)?;
        let ring = Ring::assemble(fs, config, descriptor, me, backend, Claim::IfUnowned)?;
        ring.sync_root()?;
        Ok(ring)
    }

    /// Finds the ring that `config` describes: for readers. They need no index, and do without one that is away.
    ///
    /// # Errors
    /// No ring (yet); a ring that does not fit; an index that refuses us.
    pub fn find(fs: Arc<dyn Fs>, config: &Config) -> Result<Ring> {
        Ring::find_with(fs, config, Claim::Never)
    }

    /// The same, with this claim to the place of the index.
    ///
    /// # Errors
    /// As [`Ring::find`].
    pub fn find_with(fs: Arc<dyn Fs>, config: &Config, claim: Claim) -> Result<Ring> {
        let layout = Layout::new(&config.ring);
        let fs = within(fs, layout.root(), config.modes);
        let descriptor = descriptor::read(&*fs, &layout)?.ok_or_else(|| descriptor::missing(&*fs, &layout))?;
        descriptor::check(&descriptor, config)?;
        let backend = Backend::connect(&config.index, IfUnreachable::Continue)?;
        Ring::assemble(fs, config, descriptor, owner_name(), backend, claim)
    }

    /// The ring of these parts.
    ///
    /// # Errors
    /// A place of the index that cannot be used; a filesystem that cannot be told.
    pub fn assemble(
        fs: Arc<dyn Fs>,
        config: &Config,
        descriptor: RingDescriptor,
        me: String,
        backend: Backend,
        claim: Claim,
    ) -> Result<Ring> {
        let layout = Layout::new(&config.ring);
        let coordination = backend.open(fs.clone(), context(&layout, &descriptor, &me), claim)?;
        let kind = fs.kind(layout.root())?;
        let manifests = Manifests::new(fs.clone(), layout.clone());
        if let Ok(Some(status)) = coordination.status() {
            manifests.hint(status.generation);
        }
        Ok(Ring {
            manifests,
            settings: Settings::new(config, kind),
            syncs: Syncs::default(),
            scanner: Scanner::default(),
            failure_detector: Mutex::new(FailureDetector::new(config.lease)),
            kept: Mutex::default(),
            steps: StepsState::default(),
            fs,
            coordination,
            layout,
            descriptor,
            me,
        })
    }

    /// Locks this process's view of which members are alive.
    pub fn failure_detector(&self) -> MutexGuard<'_, FailureDetector> {
        self.failure_detector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the directory still holds this ring: it may have been removed under a process that
    /// works in it, whose samples went with it.
    ///
    /// # Errors
    /// [`Error::RingMismatch`]: it was removed, or replaced by another one. What cannot be seen is no error.
    pub fn check_is_there(&self) -> Result<()> {
        let message = match descriptor::read(&*self.fs, &self.layout) {
            Ok(Some(descriptor)) if descriptor.ring_id == self.descriptor.ring_id => return Ok(()),
            Ok(Some(_)) => "it was replaced by another ring while this process worked in it",
            Ok(None) => match descriptor::missing(&*self.fs, &self.layout) {
                Error::RingNotFound { .. } => "it was removed while this process worked in it",
                lost => return Err(lost),
            },
            Err(lost @ Error::RingMismatch { .. }) => return Err(lost),
            Err(_) => return Ok(()),
        };
        let message = format!(
            "{message}: the samples that were delivered to it are gone with it. Put it back from a copy, or stop all \
             roles and start them again"
        );
        Err(Error::RingMismatch { path: self.layout.root().to_owned(), message })
    }

    /// This process and this ring, as an index wants to know them.
    pub fn ring_context(&self) -> RingContext<'_> {
        context(&self.layout, &self.descriptor, &self.me)
    }

    /// Removes a name that is of no use any more. Where another user's directory does not let us, it stays: its owner
    /// removes it.
    pub(crate) fn unlink_if_allowed(&self, path: &Path) -> Result<()> {
        match self.fs.forget_file(path) {
            Err(error) if error.is_denied() => {
                tracing::debug!(%error, "left to its owner");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Moves something into `dir`. That is made again where somebody removed it.
    pub(crate) fn move_to(&self, from: &Path, dir: &Path, name: &str) -> FsResult<()> {
        let target = dir.join(name);
        match self.fs.rename(from, &target) {
            Err(error) if error.is_gone() && !self.fs.exists(dir)? => {
                self.fs.ensure_dir(dir)?;
                self.fs.rename(from, &target)
            }
            done => done,
        }
    }

    /// The names in a directory; none where there is none. (A stale handle does not say that there is none.)
    pub fn list_or_none(&self, dir: &Path) -> Result<Vec<String>> {
        match surely(&*self.fs, dir, || self.fs.list(dir)) {
            Ok(mut names) => {
                names.sort_unstable();
                Ok(names)
            }
            Err(error) if matches!(error.source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            Err(error) => Err(Error::from(error)),
        }
    }
}

fn context<'a>(layout: &'a Layout, descriptor: &'a RingDescriptor, me: &'a str) -> RingContext<'a> {
    let (ring_id, swap_cap) = (descriptor.ring_id.as_str(), descriptor.swap_cap);
    RingContext { ring_id, path: layout.root(), files: layout.index(), swap_cap, me }
}

/// A name for this process that no other process has or will have: host, pid, and a random number.
pub fn owner_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let host: String = host.chars().map(plain).take(64).collect();
    let host = if host.is_empty() { "host".to_owned() } else { host };
    format!("{host}-{}-{:08x}", std::process::id(), random_u32())
}
