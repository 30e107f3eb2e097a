//! What belongs to one process: the driver's client, the thread that drives it, and whether the
//! server answers.

use super::diagnosis;
use super::outage_log::OutageLog;
use crate::config::MongoPlace;
use crate::error::{Error, Result};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// Longest time for an operation.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Longest time to connect, TLS included, and to find a server that accepts the connection. The
/// connection string may set others.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Connections of a process. It needs few, and a server of many processes has no more to spare.
const POOL: u32 = 4;

/// The state of one process, and behind it that of the child that it was forked into. A child never
/// touches its parent's, whose locks may be held for ever and whose threads it does not have. No
/// lock is taken on the way there.
pub struct ProcessLink {
    pid: u32,
    state: Arc<ProcessState>,
    next: OnceLock<Box<ProcessLink>>,
}

/// The driver's client in one process.
pub struct ProcessState {
    pub options: ClientOptions,
    pub database: Mutex<Database>,
    /// The server does not answer; calls fail at once.
    pub away: AtomicBool,
    pub log: Mutex<OutageLog>,
    pub driver: DriverRuntime,
}

/// The runtime that drives the driver. It may be dropped anywhere, inside another runtime too.
pub struct DriverRuntime {
    pub handle: Handle,
    runtime: Option<Runtime>,
}

impl Drop for DriverRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl DriverRuntime {
    /// Begins `future`. `None` is received when it takes longer than `limit`.
    pub fn start<T: Send + 'static>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> mpsc::Receiver<Option<T>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move { drop(sender.send(tokio::time::timeout(limit, future).await.ok())) });
        receiver
    }
}

impl Drop for ProcessLink {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.state.clone()); // never dropped here: its threads are the parent's
        }
    }
}

impl ProcessState {
    /// Returns a handle of the database.
    pub fn database(&self) -> Database {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Locks the log of outages.
    pub fn log(&self) -> MutexGuard<'_, OutageLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessLink {
    /// Makes the state of this process. Talks to no server, but for the lookup of names in the
    /// connection string.
    ///
    /// # Errors
    /// [`Error::Config`] for a connection string or TLS files that cannot be used;
    /// [`Error::CoordinationUnavailable`] when a name server does not answer.
    pub fn make(place: &MongoPlace) -> Result<ProcessLink> {
        let origin = || format!("MONGOURI or MONGOHOST ({})", place.shown());
        let broken = |message: &str| Error::Config { origin: origin(), message: place.without_secrets(message) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringreel-mongodb")
            .enable_all()
            .build()
            .map_err(|error| Error::Coordination(format!("no thread for the MongoDB driver: {error}")))?;
        let driver = DriverRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) };
        let uri = place.uri().to_owned();
        let parsed = driver.start(LIMIT, async move { ClientOptions::parse(uri).await }).recv();
        let mut options = match parsed.unwrap_or_default() {
            Some(Ok(options)) => options,
            Some(Err(error)) if !diagnosis::is_of_names(&error) => {
                return Err(broken(diagnosis::of_error(&error).words()));
            }
            unknown => {
                let why =
                    unknown.and_then(|parsed| parsed.err()).map(|error| diagnosis::of_error(&error).words().to_owned());
                let message = why.unwrap_or_else(|| "the name server does not answer".to_owned());
                return Err(Error::CoordinationUnavailable {
                    place: origin(),
                    message: place.without_secrets(&message),
                });
            }
        };
        diagnosis::check_tls_files(&options).map_err(|message| broken(&message))?;
        options.app_name.get_or_insert_with(|| "ringreel".to_owned());
        options.connect_timeout.get_or_insert(CONNECT_LIMIT);
        options.server_selection_timeout.get_or_insert(CONNECT_LIMIT);
        options.max_pool_size.get_or_insert(POOL.max(options.min_pool_size.unwrap_or_default()));
        let client = {
            let _inside = driver.handle.enter();
            Client::with_options(options.clone()).map_err(|error| broken(diagnosis::of_error(&error).words()))?
        };
        let database = Mutex::new(client.database(&place.database));
        let (away, log) = (AtomicBool::new(false), Mutex::default());
        let state = ProcessState { options, database, away, log, driver };
        Ok(ProcessLink { pid: std::process::id(), state: Arc::new(state), next: OnceLock::new() })
    }

    /// Returns the state of this process, which a forked child makes at its first call.
    ///
    /// # Errors
    /// Those of [`ProcessLink::make`].
    pub fn here(&self, place: &MongoPlace) -> Result<&Arc<ProcessState>> {
        let mut link = self;
        while link.pid != std::process::id() {
            link = match link.next.get() {
                Some(next) => next,
                None => {
                    let made = Box::new(ProcessLink::make(place)?);
                    link.next.get_or_init(|| made)
                }
            };
        }
        Ok(&link.state)
    }
}
