//! The connection: made by the process that uses it, with time-outs of seconds, and quick to say that nobody answers.
//!
//! The rest of the crate is synchronous. A thread of the connection's own drives the driver, so that it can be used from
//! anywhere, be it from inside another runtime.

use super::diagnosis::{self, Finding};
use super::documents::{OtherRing, RingName, Tables};
use crate::config::MongoPlace;
use crate::error::{Error, Result};
use crate::fs::watch::jittered;
use crate::index::Absence;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};

/// Longest time for an operation.
const LIMIT: Duration = Duration::from_secs(3);
/// Longest time for a connection to come about, TLS included, and for finding a server that takes it; unless the
/// connection string says otherwise.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Time between two tries to reach a server that fell silent.
const PROBE: Duration = Duration::from_millis(500);
/// For so long, what was logged is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// A process needs few connections, and a server of many processes has no more to spare.
const POOL: u32 = 4;

/// A server, and a place on it.
pub struct Connection {
    shared: Arc<Shared>,
    link: Mutex<Link>,
}

struct Shared {
    place: MongoPlace,
    shown: String,
    owner: OnceLock<RingName>,
    /// The process for which the server is silent; 0: none.
    away: AtomicU32,
    /// Why.
    why: Mutex<String>,
    /// What was logged last, and when.
    told: Mutex<Option<(String, Instant)>>,
}

/// What belongs to one process.
struct Link {
    pid: u32,
    runtime: Option<Runtime>,
    handle: Handle,
    database: Database,
}

impl Connection {
    /// Finds the server at `place`, or what is the matter with it. Takes less than five seconds.
    ///
    /// # Errors
    /// [`Error::Config`] for a connection string that is none; [`Error::IndexRefused`] for a wrong user or password, or
    /// where one side speaks TLS and the other does not; [`Error::IndexAway`] for nobody there, unless that is borne.
    pub fn open(place: &MongoPlace, absence: Absence) -> Result<Connection> {
        let (link, options) = Link::make(place)?;
        let hosts: Vec<_> = options.hosts.iter().map(ToString::to_string).collect();
        let (at, database, counters) = (hosts.join(","), &place.database, &place.counters);
        let shared = Arc::new(Shared {
            place: place.clone(),
            shown: format!("MongoDB at {at} (database {database}, collection {counters})"),
            owner: OnceLock::new(),
            away: AtomicU32::new(0),
            why: Mutex::default(),
            told: Mutex::default(),
        });
        let found = start(&link.handle, LIMIT * 2, diagnosis::ask(options, link.database.collection(counters))).recv();
        let connection = Connection { shared, link: Mutex::new(link) };
        match found.unwrap_or_default().unwrap_or_else(|| Err(diagnosis::silence(LIMIT * 2))) {
            Ok(()) => {}
            Err(Finding::Away(why)) if absence == Absence::Borne => {
                connection.shared.fell_silent(&*connection.link()?, why)
            }
            Err(finding) => return Err(connection.shared.error(finding)),
        }
        Ok(connection)
    }

    /// Where it is, without its password.
    pub fn shown(&self) -> &str {
        &self.shared.shown
    }

    /// Says whose index it is to be. A server that is silent is no error: it will be told.
    ///
    /// # Errors
    /// When it is another ring's already, unless that one's is to be thrown away; when this user may not write there.
    pub fn belongs_to(&self, owner: RingName, take_over: bool) -> Result<()> {
        let _ = self.shared.owner.set(owner);
        let held = self.call(move |tables| async move {
            match tables.hold().await {
                Err(error) if take_over => {
                    let Some(OtherRing(other)) = error.get_custom() else { return Err(error) };
                    tables.clear(&other.id).await?;
                    tables.hold().await
                }
                other => other,
            }
        });
        match held {
            Err(Error::IndexAway { .. }) => Ok(()),
            other => other,
        }
    }

    /// Does `op`; where the connection breaks in the middle of it, perhaps twice, which no operation of ours minds. While
    /// the server is known to be silent, fails at once.
    ///
    /// # Errors
    /// [`Error::IndexAway`] or [`Error::IndexRefused`] when it cannot be done; [`Error::WrongRing`] when the place is
    /// another ring's.
    pub fn call<T, F>(&self, op: impl FnOnce(Tables) -> F + Clone) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        if self.shared.away.load(Ordering::Acquire) == std::process::id() {
            return Err(self.shared.error(Finding::Away(lock(&self.shared.why).clone())));
        }
        let mut done = self.attempt(op.clone())?;
        if matches!(&done, Some(Err(error)) if diagnosis::is_broken_connection(error)) {
            done = self.attempt(op)?;
        }
        let finding = match done {
            Some(Ok(value)) => return Ok(value),
            Some(Err(error)) => match error.get_custom() {
                Some(OtherRing(other)) => return Err(self.shared.other_ring(other)),
                None => diagnosis::of_error(&error),
            },
            None => diagnosis::silence(LIMIT),
        };
        let error = self.shared.error(finding);
        if let Error::IndexAway { message, .. } | Error::IndexRefused { message, .. } = &error {
            self.shared.fell_silent(&*self.link()?, message.clone());
        }
        Err(error)
    }

    fn attempt<T, F>(&self, op: impl FnOnce(Tables) -> F) -> Result<Option<mongodb::error::Result<T>>>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        let done = {
            let link = self.link()?;
            start(&link.handle, LIMIT, op(self.shared.tables(&link.database)))
        };
        Ok(done.recv().unwrap_or_default())
    }

    /// The link of this process: after a fork, the child makes its own.
    fn link(&self) -> Result<MutexGuard<'_, Link>> {
        let mut link = lock(&self.link);
        if link.pid != std::process::id() {
            *link = Link::make(&self.shared.place)?.0;
        }
        Ok(link)
    }
}

impl Shared {
    fn tables(&self, database: &Database) -> Tables {
        Tables::new(database, &self.place, &self.owner.get().cloned().unwrap_or_default())
    }

    fn error(&self, finding: Finding) -> Error {
        let place = self.shown.clone();
        match finding {
            Finding::Away(message) => Error::IndexAway { place, message: self.place.scrub(&message) },
            Finding::Refused(message) => Error::IndexRefused { place, message: self.place.scrub(&message) },
        }
    }

    fn other_ring(&self, other: &RingName) -> Error {
        let path = self.owner.get().map(|owner| Path::new(&owner.path).to_owned()).unwrap_or_default();
        let message = format!(
            "{} holds the index of another ring (id {}, at {}): use another DBNAME or COUNTER_COLLECTION, or, if that \
             ring is gone, `ringreel repair --apply --take-over`",
            self.shown, other.id, other.path
        );
        Error::WrongRing { path, message }
    }

    /// From now on nobody waits for the server, and somebody looks for it.
    fn fell_silent(self: &Arc<Shared>, link: &Link, why: String) {
        lock(&self.why).clone_from(&why);
        let me = std::process::id();
        if self.away.swap(me, Ordering::AcqRel) != me {
            let (shared, database) = (self.clone(), link.database.clone());
            link.handle.spawn(async move { shared.look_for_it(database).await });
        }
        self.tell(&why);
    }

    /// Says once that, and why, the ring goes on without its index.
    fn tell(&self, why: &str) {
        let mut told = lock(&self.told);
        if told.as_ref().is_none_or(|(last, when)| last != why || when.elapsed() > QUIET) {
            tracing::warn!("{}: {why}. The ring goes on without its index until it answers", self.shown);
            *told = Some((why.to_owned(), Instant::now()));
        }
    }

    async fn look_for_it(&self, database: Database) {
        loop {
            tokio::time::sleep(jittered(PROBE)).await;
            if self.owner.get().is_none() {
                continue; // asked for too early: whose it is to be is not known yet
            }
            let why = match tokio::time::timeout(LIMIT, self.tables(&database).hold()).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => match error.get_custom() {
                    Some(OtherRing(other)) => self.other_ring(other).to_string(),
                    None => self.place.scrub(&diagnosis::of_error(&error).into_words()),
                },
                Err(_) => continue,
            };
            lock(&self.why).clone_from(&why);
        }
        self.away.store(0, Ordering::Release);
        tracing::info!("{} answers again", self.shown);
    }
}

impl Link {
    fn make(place: &MongoPlace) -> Result<(Link, ClientOptions)> {
        let broken = |message: String| Error::Config {
            origin: format!("MONGOURI or MONGOHOST ({})", place.shown()),
            message: place.scrub(&message),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringreel-mongodb")
            .enable_all()
            .build()
            .map_err(|error| Error::Index(format!("no thread for the MongoDB driver: {error}")))?;
        let uri = place.uri().to_owned();
        let handle = runtime.handle().clone();
        let parsed = start(&handle, LIMIT, async move { ClientOptions::parse(uri).await }).recv();
        let mut options = match parsed.unwrap_or_default() {
            Some(parsed) => parsed.map_err(|error| broken(diagnosis::of_error(&error).into_words()))?,
            None => return Err(broken("the name server did not answer".to_owned())),
        };
        options.app_name.get_or_insert_with(|| "ringreel".to_owned());
        options.connect_timeout.get_or_insert(CONNECT_LIMIT);
        options.server_selection_timeout.get_or_insert(CONNECT_LIMIT);
        options.max_pool_size.get_or_insert(POOL);
        let database = {
            let _inside = runtime.enter();
            Client::with_options(options.clone()).map_err(|error| broken(diagnosis::of_error(&error).into_words()))?
        };
        let database = database.database(&place.database);
        Ok((Link { pid: std::process::id(), runtime: Some(runtime), handle, database }, options))
    }
}

/// Begins `future`. None will be received when it took too long.
fn start<T: Send + 'static>(
    handle: &Handle,
    limit: Duration,
    future: impl Future<Output = T> + Send + 'static,
) -> mpsc::Receiver<Option<T>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle.spawn(async move { drop(sender.send(tokio::time::timeout(limit, future).await.ok())) });
    receiver
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.pid == std::process::id() {
            runtime.shutdown_background();
        } else {
            std::mem::forget(runtime); // its threads are the parent's
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
