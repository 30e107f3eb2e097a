//! The handle of a ring: its paths, its descriptor, and the settings of this process.
//!
//! The steps of a sample are in `commit` and `write`, those of a generation in `swap`, and those of
//! a reader in `read`. They are methods of [`Ring`] too, but belong to higher layers: this module
//! does not depend on them. It only keeps their data, in `state`.

pub mod descriptor;
mod durability;
pub mod failure_detector;
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

/// One process's handle of a ring.
pub struct Ring {
    /// The filesystem that holds the ring.
    pub fs: Arc<dyn Fs>,
    /// The coordination store: counter, status, leases, membership.
    pub coordination: Arc<dyn CoordinationStore>,
    /// The paths of the ring.
    pub layout: Layout,
    /// The manifests of the ring.
    pub manifests: Manifests,
    /// The contents of `ring.json`.
    pub descriptor: RingDescriptor,
    /// The owner name of this process.
    pub me: String,
    /// The settings of this process for the ring.
    pub settings: Settings,
    syncs: Syncs,
    scanner: Scanner,
    failure_detector: Mutex<FailureDetector>,
    kept: Mutex<KeptSoFar>,
    pub(crate) steps: StepsState,
}

impl Ring {
    /// Opens or creates the ring that `config` describes, for generators and managers. Retries for
    /// LEASE_SECONDS while the file server does not answer or a system limit is reached.
    ///
    /// # Errors
    /// A directory that cannot be created; a ring that does not match the configuration;
    /// [`Error::Timeout`].
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
                tracing::warn!(error = %source, "cannot open the ring; retrying for up to {limit:?}");
                told = true;
            }
            let pause = config.poll.unwrap_or(Duration::from_millis(200));
            std::thread::sleep(jittered(pause).min(limit - waited));
        }
    }

    fn find_or_make_now(fs: Arc<dyn Fs>, config: &Config) -> Result<Ring> {
        // Before anything is created, so that a wrong address of the coordination store leaves no
        // ring behind.
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

    /// Opens the ring that `config` describes, for readers. They work without the coordination
    /// store while it is unreachable.
    ///
    /// # Errors
    /// No ring (yet); a ring that does not match the configuration; a coordination store that
    /// refuses access.
    pub fn find(fs: Arc<dyn Fs>, config: &Config) -> Result<Ring> {
        Ring::find_with(fs, config, Claim::Never)
    }

    /// Like [`Ring::find`], but with `claim` on the place of the coordination store.
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

    /// Builds the handle from its parts.
    ///
    /// # Errors
    /// A coordination store that cannot be used; a filesystem whose type cannot be determined.
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

    /// Locks this process's failure detector.
    pub fn failure_detector(&self) -> MutexGuard<'_, FailureDetector> {
        self.failure_detector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the directory still holds this ring. If it was removed under a running process,
    /// the samples written to it are lost.
    ///
    /// # Errors
    /// [`Error::RingMismatch`] if the ring was removed or replaced by another one. Other errors are
    /// ignored, because they do not prove that the ring is gone.
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
            "{message}: the samples delivered to it are lost. Restore it from a copy, or stop all roles \
             and start them again"
        );
        Err(Error::RingMismatch { path: self.layout.root().to_owned(), message })
    }

    /// Returns this process and this ring as the coordination store identifies them.
    pub fn ring_context(&self) -> RingContext<'_> {
        context(&self.layout, &self.descriptor, &self.me)
    }

    /// Removes a name that is no longer needed. If another user's directory denies the removal, the
    /// name stays until its owner removes it.
    pub(crate) fn unlink_if_allowed(&self, path: &Path) -> Result<()> {
        match self.fs.forget_file(path) {
            Err(error) if error.is_denied() => {
                tracing::debug!(%error, "cannot remove the file; leaving it to its owner");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Moves `from` into `dir`, which is created again if it was removed.
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

    /// Returns the names in a directory, sorted; an empty list if the directory does not exist. (A
    /// stale handle does not prove that it does not exist.)
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
    RingContext { ring_id, path: layout.root(), swap_cap, me }
}

/// Returns a name for this process that no other process has or will have: host, pid and a random
/// number.
pub fn owner_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let host: String = host.chars().map(plain).take(64).collect();
    let host = if host.is_empty() { "host".to_owned() } else { host };
    format!("{host}-{}-{:08x}", std::process::id(), random_u32())
}
