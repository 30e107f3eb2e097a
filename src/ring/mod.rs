//! The ring: how a sealed segment becomes part of a generation, and a generation visible. One file for each step.
//!
//! | file | step |
//! |---|---|
//! | [`birth`] | a ring comes into being |
//! | [`manifest`] | the sealed list of a generation: the only judge |
//! | [`manifests`] | those of the ring, as one process sees them |
//! | [`scan`] | what a generation's directory holds right now |
//! | [`commit`] | a sealed segment is linked into the generation that fills, until a manifest lists it |
//! | [`promote`] | a full generation is renamed and gets its manifest |
//! | [`held_out`] | the ring's first samples, which are kept and not served for training |
//! | [`reclaim`] | old generations and litter are removed |
//! | `prune` | old manifests are removed |
//! | [`recover`] | what dead owners finished is committed for them |
//! | [`maintenance`] | a round of promotion, reclaim and recovery |
//! | [`liveness`] | who is alive |
//! | [`runs`] | which generation each epoch of a run is read from; which ones are still needed |
//! | [`repair`] | a damaged ring is mended, its index included |
//! | [`mod@missing`] | generations that must be there and are not |
//! | [`gc`] | what a manager would reclaim is named, and reclaimed |
//! | [`seal`] | a generation that is not full becomes readable |
//!
//! Every step may be done by anybody, by two at once, and again. It knows the filesystem and the index by their traits
//! alone. Why the steps are as they are: `docs/design.md`.

pub mod birth;
pub mod commit;
pub mod gc;
pub mod held_out;
mod last_names;
pub mod liveness;
pub mod maintenance;
pub mod manifest;
pub mod manifests;
pub mod missing;
pub mod promote;
mod prune;
pub mod reclaim;
pub mod recover;
pub mod repair;
pub mod runs;
pub mod scan;
pub mod seal;

use crate::config::{Config, Durability, OnStale, Reuse};
use crate::error::{Error, Result};
use crate::fs::publish::DirSyncs;
use crate::fs::watch::jittered;
use crate::fs::{Fs, FsError, FsResult, Kind, surely, within};
use crate::index::{Absence, Claim, Index, Opening, Owner};
use crate::layout::Layout;
use crate::random::random_u32;
use birth::Birth;
use commit::Occupancy;
use held_out::KeptSoFar;
use liveness::Watch;
use manifests::Manifests;
use runs::{Pins, RunLog};
use scan::Scan;
use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The newest manifests, this many, are never pruned.
pub const MANIFESTS_KEPT: u64 = if cfg!(feature = "short-history") { 32 } else { 1024 };

/// One process's view of a ring.
pub struct Ring {
    /// The filesystem it lies on.
    pub fs: Arc<dyn Fs>,
    /// Counter, status, leases.
    pub index: Arc<dyn Index>,
    /// Its paths.
    pub layout: Layout,
    /// Its manifests.
    pub manifests: Manifests,
    /// What it is.
    pub birth: Birth,
    /// This process's owner name.
    pub me: String,
    /// Which kind of filesystem it lies on.
    pub kind: Kind,
    /// Generations kept besides the newest.
    pub keep: u64,
    /// For how long a role may be silent.
    pub lease: Duration,
    /// Time between two looks.
    pub poll: Duration,
    /// What survives what.
    pub durability: Durability,
    /// How often a generation is to be read.
    pub reuse: Reuse,
    /// What readers do when nothing new comes.
    pub on_stale: OnStale,
    /// After this time without a living generator nothing new is thought to come.
    pub stale_after: Duration,
    /// How long the generations that a killed run still has to read are kept.
    pub run_grace: Duration,
    /// Most bytes that the ring may take.
    pub max_bytes: Option<u64>,
    /// What became of directories' syncs, this process's staging included.
    pub dir_syncs: DirSyncs,
    /// Of two generations: of the one that is being promoted, and of the one that fills meanwhile.
    scans: [Mutex<Scan>; 2],
    occupancy: Mutex<Occupancy>,
    /// A generation that was seen to wait for its manifest.
    begun: AtomicU64,
    /// Generations that are never reclaimed.
    kept: Mutex<KeptSoFar>,
    watch: Mutex<Watch>,
    runs: Mutex<HashMap<String, Arc<RunLog>>>,
    /// Generations that were pinned when the index was last asked.
    pins: Mutex<Pins>,
    /// The newest generation whose manifest is known to be on the disk.
    settled: AtomicU64,
    /// The newest generation when this process last reclaimed what was older than is kept.
    reclaimed: AtomicU64,
    /// Old manifests that list a segment whose staging name could not be removed, and when that was tried last.
    unprunable: Mutex<HashMap<u64, Instant>>,
    /// Whether it was logged that the index hands out what is taken.
    told_of_repeats: AtomicBool,
    /// Whether it was logged that a directory cannot be reclaimed.
    told_of_last_names: AtomicBool,
    /// Dead owners of whom it was logged that their files cannot be removed.
    told_of_owners: Mutex<BTreeSet<String>>,
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
        let index = Opening::at(&config.index, Absence::Fatal)?;
        let layout = Layout::new(&config.ring);
        let fs = within(fs, layout.root(), config.modes);
        let me = owner_name();
        let manifests = Manifests::new(fs.clone(), layout.clone());
        let birth = birth::find_or_make(&*fs, &layout, config, &me, &manifests)?;
        let ring = Ring::assemble(fs, config, birth, me, index, Claim::Hold)?;
        ring.settle_root()?;
        Ok(ring)
    }

    /// Finds the ring that `config` describes: for readers. They need no index, and do without one that is away.
    ///
    /// # Errors
    /// No ring (yet); a ring that does not fit; an index that refuses us.
    pub fn find(fs: Arc<dyn Fs>, config: &Config) -> Result<Ring> {
        Ring::find_with(fs, config, Claim::Look)
    }

    /// The same, with this claim to the place of the index.
    ///
    /// # Errors
    /// As [`Ring::find`].
    pub fn find_with(fs: Arc<dyn Fs>, config: &Config, claim: Claim) -> Result<Ring> {
        let layout = Layout::new(&config.ring);
        let fs = within(fs, layout.root(), config.modes);
        let birth = birth::read(&*fs, &layout)?.ok_or_else(|| birth::missing(&*fs, &layout))?;
        birth::check(&birth, config)?;
        let index = Opening::at(&config.index, Absence::Borne)?;
        Ring::assemble(fs, config, birth, owner_name(), index, claim)
    }

    fn assemble(
        fs: Arc<dyn Fs>,
        config: &Config,
        birth: Birth,
        me: String,
        index: Opening,
        claim: Claim,
    ) -> Result<Ring> {
        let layout = Layout::new(&config.ring);
        let index = index.of(fs.clone(), owner(&layout, &birth, &me), claim)?;
        let kind = fs.kind(layout.root())?;
        let default_poll = if kind.local { Duration::from_millis(200) } else { Duration::from_secs(1) };
        let poll = config.poll.unwrap_or(default_poll).min(config.lease / 4);
        let manifests = Manifests::new(fs.clone(), layout.clone());
        if let Ok(Some(status)) = index.status() {
            manifests.hint(status.generation);
        }
        Ok(Ring {
            manifests,
            dir_syncs: DirSyncs::default(),
            scans: [Mutex::new(Scan::new()), Mutex::new(Scan::new())],
            occupancy: Mutex::default(),
            begun: AtomicU64::new(0),
            kept: Mutex::default(),
            watch: Mutex::new(Watch::new(config.lease)),
            runs: Mutex::default(),
            pins: Mutex::default(),
            reuse: config.reuse,
            on_stale: config.on_stale,
            stale_after: config.stale_after,
            run_grace: config.run_grace,
            max_bytes: config.max_bytes,
            settled: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            unprunable: Mutex::default(),
            told_of_repeats: AtomicBool::new(false),
            told_of_last_names: AtomicBool::new(false),
            told_of_owners: Mutex::default(),
            fs,
            index,
            layout,
            birth,
            me,
            kind,
            keep: config.keep,
            lease: config.lease,
            poll,
            durability: config.durability,
        })
    }

    /// Checks that the directory still holds this ring: it may have been removed under a process that
    /// works in it, whose samples went with it.
    ///
    /// # Errors
    /// [`Error::WrongRing`]: it was removed, or replaced by another one. What cannot be seen is no error.
    pub fn check_is_there(&self) -> Result<()> {
        let message = match birth::read(&*self.fs, &self.layout) {
            Ok(Some(birth)) if birth.ring_id == self.birth.ring_id => return Ok(()),
            Ok(Some(_)) => "it was replaced by another ring while this process worked in it",
            Ok(None) => match birth::missing(&*self.fs, &self.layout) {
                Error::NoRing { .. } => "it was removed while this process worked in it",
                lost => return Err(lost),
            },
            Err(lost @ Error::WrongRing { .. }) => return Err(lost),
            Err(_) => return Ok(()),
        };
        let message = format!(
            "{message}: the samples that were delivered to it are gone with it. Put it back from a copy, or stop all \
             roles and start them again"
        );
        Err(Error::WrongRing { path: self.layout.root().to_owned(), message })
    }

    /// This process and this ring, as an index wants to know them.
    pub fn index_owner(&self) -> Owner<'_> {
        owner(&self.layout, &self.birth, &self.me)
    }

    /// Whether files are synced before they are sealed: on a network always, since a full server may take writes and
    /// keep nothing.
    pub fn syncs_files(&self) -> bool {
        !self.kind.local || self.durability == Durability::Node
    }

    /// Whether directories are synced at each step.
    pub fn syncs_dirs(&self) -> bool {
        self.durability == Durability::Node
    }

    /// Syncs a directory, where that was asked for.
    fn settle_dir(&self, dir: &Path) -> Result<()> {
        if self.syncs_dirs() { Ok(self.dir_syncs.sync(&*self.fs, dir)?) } else { Ok(()) }
    }

    /// Syncs the ring's own name, where that was asked for. (Who may not read the directory above may not sync it; and
    /// there are filesystems, as that of an automounter, which have nothing to sync.)
    fn settle_root(&self) -> Result<()> {
        let above = self.layout.root().parent().filter(|above| !above.as_os_str().is_empty());
        match self.settle_dir(above.unwrap_or(Path::new("."))) {
            Err(Error::Fs { source }) if source.is_denied() || has_no_sync(&source) => Ok(()),
            done => done,
        }
    }

    /// Who builds upon a manifest makes sure that a power cut does not take it back: whoever published it may not have
    /// come to that.
    fn settle_manifests(&self, newest: u64) -> Result<()> {
        if self.syncs_dirs() && self.settled.load(Ordering::Relaxed) < newest {
            self.dir_syncs.sync(&*self.fs, &self.layout.manifests())?;
            self.settled.fetch_max(newest, Ordering::Relaxed);
        }
        Ok(())
    }

    /// This process promotes where nobody else does, and removes nothing by that.
    pub(crate) fn leave_reclaiming(&self) {
        self.reclaimed.store(u64::MAX, Ordering::Relaxed);
    }

    /// Removes a name that is of no use any more. Where another user's directory does not let us, it stays: its owner
    /// removes it.
    pub(crate) fn tidy(&self, path: &Path) -> Result<()> {
        match self.fs.forget_file(path) {
            Err(error) if error.is_denied() => {
                tracing::debug!(%error, "left to its owner");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Moves something into `dir`. That is made again where somebody removed it.
    fn move_to(&self, from: &Path, dir: &Path, name: &str) -> FsResult<()> {
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
    pub(super) fn list_or_none(&self, dir: &Path) -> Result<Vec<String>> {
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

    /// Who lives, as this process sees it.
    pub fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the directory of generation `n`, or of another one with the same parity.
    fn scan(&self, n: u64) -> MutexGuard<'_, Scan> {
        self.scans[(n % 2) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn occupancy(&self) -> MutexGuard<'_, Occupancy> {
        self.occupancy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owner<'a>(layout: &'a Layout, birth: &'a Birth, me: &'a str) -> Owner<'a> {
    let (ring_id, swap_cap) = (birth.ring_id.as_str(), birth.swap_cap);
    Owner { ring_id, path: layout.root(), files: layout.index(), swap_cap, me }
}

/// Whether a filesystem says that it syncs no directories.
fn has_no_sync(error: &FsError) -> bool {
    matches!(error.source.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

/// A name for this process that no other process has or will have: host, pid, and a random number.
pub fn owner_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let host: String = host.chars().map(plain).take(64).collect();
    let host = if host.is_empty() { "host".to_owned() } else { host };
    format!("{host}-{}-{:08x}", std::process::id(), random_u32())
}
