//! The state of one process: the driver's client, the thread that runs it, and whether the server
//! answers.

use super::diagnosis::{self, MongoFailure};
use super::outage_log::OutageLog;
use crate::config::MongoPlace;
use crate::error::{Error, Result};
use mongodb::error::ErrorKind;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// Time limit of an operation.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Time limit to connect, TLS included, and to find a server that accepts the connection. The
/// connection string may set others.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of connections of a process. It needs few, and a server with many client
/// processes cannot provide more.
const POOL: u32 = 4;

/// The state of one process, and a link to the state of the child that was forked from it. A child
/// never uses the state of its parent, whose locks may be held forever and whose threads do not
/// exist in the child. Following the link takes no lock.
pub struct ProcessLink {
    pid: u32,
    state: Arc<ProcessState>,
    next: OnceLock<Box<ProcessLink>>,
}

/// The driver's client in one process.
pub struct ProcessState {
    pub options: ClientOptions,
    pub database: Mutex<Database>,
    /// Whether the server does not answer, so that calls fail immediately.
    pub away: AtomicBool,
    pub log: Mutex<OutageLog>,
    pub driver: DriverRuntime,
}

/// The runtime that runs the driver. It may be dropped anywhere, even inside another runtime.
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
    /// Starts `future`. The receiver gets `None` if it takes longer than `limit`.
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
            std::mem::forget(self.state.clone()); // never dropped here, because its threads belong to the parent
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
    /// Creates the state of this process. Contacts no server, except to resolve names in the
    /// connection string.
    ///
    /// # Errors
    /// [`Error::Config`] for a connection string or TLS files that cannot be used;
    /// [`Error::CoordinationUnavailable`] if a name server does not answer.
    pub fn make(place: &MongoPlace) -> Result<ProcessLink> {
        let origin = || format!("MONGOURI or MONGOHOST ({})", place.shown());
        let broken = |message: &str| Error::Config { origin: origin(), message: place.without_secrets(message) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringreel-mongodb")
            .enable_all()
            .build()
            .map_err(|error| Error::Coordination(format!("cannot start a thread for the MongoDB driver: {error}")))?;
        let driver = DriverRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) };
        let uri = place.uri().to_owned();
        let parsed = driver.start(LIMIT, async move { ClientOptions::parse(uri).await }).recv();
        let mut options = match parsed.unwrap_or_default() {
            Some(Ok(options)) => options,
            Some(Err(error)) if !matches!(&*error.kind, ErrorKind::DnsResolve { .. }) => {
                return Err(broken(diagnosis::of_error(&error).words()));
            }
            unknown => {
                let failure = unknown.and_then(|parsed| parsed.err()).map(|error| diagnosis::of_error(&error));
                let message = failure.as_ref().map_or("the name server does not answer", MongoFailure::words);
                return Err(Error::CoordinationUnavailable {
                    place: origin(),
                    message: place.without_secrets(message),
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

    /// Returns the state of this process. A forked child creates it at its first call.
    ///
    /// # Errors
    /// Errors of [`ProcessLink::make`].
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
